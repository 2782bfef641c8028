//! System calls of perf events, and the memory that they share with the kernel.

use perf_event_open_sys::bindings::{self, perf_event_attr, perf_event_mmap_page};
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Opens an event for a thread (0: the calling one), wherever it runs, in the group of `leader`.
pub(super) fn open(attributes: &mut perf_event_attr, thread: i32, leader: Option<&File>) -> io::Result<File> {
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = bindings::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the attributes are initialised, as long as their size field says, and writable: the kernel may write
    // that field.
    let fd = unsafe { perf_event_open_sys::perf_event_open(attributes, thread, -1, group, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened, and nothing else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// What an event is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Count, the whole group.
    Enable,
    /// Stop counting, the whole group.
    Disable,
    /// Write nothing more into the ring.
    Pause,
    /// Write into the ring again.
    Resume,
}

/// Tells an event what to do.
pub(super) fn control(event: &File, what: Control) -> io::Result<()> {
    let group = bindings::PERF_IOC_FLAG_GROUP.into();
    let (request, argument): (u32, libc::c_ulong) = match what {
        Control::Enable => (bindings::ENABLE, group),
        Control::Disable => (bindings::DISABLE, group),
        Control::Pause => (bindings::PAUSE_OUTPUT, 1),
        Control::Resume => (bindings::PAUSE_OUTPUT, 0),
    };
    // SAFETY: these requests take a number and touch no memory of the caller's.
    match unsafe { libc::ioctl(event.as_raw_fd(), request.into(), argument) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The page of metadata of an event, and the ring behind it.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

/// A number of the page of metadata, read before whatever follows is.
macro_rules! field {
    ($self:ident, $atomic:ty, $field:ident) => {{
        let at = $self.start.as_ptr().wrapping_add(offset_of!(perf_event_mmap_page, $field));
        // SAFETY: the page is mapped while `self` lives, the field is aligned in it, and the kernel writes it atomically. A
        // relaxed load is allowed in memory that cannot be written.
        let value = unsafe { <$atomic>::from_ptr(at.cast()) }.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }};
}

impl Mapping {
    /// Maps the page and `pages` pages of ring behind it (none, or a power of two). A ring that cannot be written is
    /// overwritten by the kernel when it is full; one that can be is not, see [`Mapping::set_tail`].
    pub(super) fn new(event: &File, pages: usize, writable: bool) -> io::Result<Mapping> {
        let len = (1 + pages) * page_size();
        let rights = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, rights, libc::MAP_SHARED, event.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave address zero"))?;
        Ok(Mapping { start, len })
    }

    /// Where the kernel writes next; in a ring that is written backwards, where the newest record begins.
    pub(super) fn head(&self) -> u64 {
        field!(self, AtomicU64, data_head)
    }

    /// Says that everything before `tail` has been read. Only for a mapping that is writable.
    pub(super) fn set_tail(&self, tail: u64) {
        // What was copied out is copied before the kernel may write there again.
        fence(Ordering::SeqCst);
        let at = self.start.as_ptr().wrapping_add(offset_of!(perf_event_mmap_page, data_tail));
        // SAFETY: the page is mapped writable while `self` lives, and the kernel reads the field atomically.
        unsafe { AtomicU64::from_ptr(at.cast()) }.store(tail, Ordering::Release);
    }

    /// A copy of the ring as it is now.
    pub(super) fn ring(&self) -> Vec<u8> {
        let mut copy = vec![0; self.len - page_size()];
        // SAFETY: the ring is the mapping behind the first page, and `copy` is as long. The kernel may write while this
        // copies; callers use only parts that it does not write to (a paused ring; between tail and head).
        unsafe {
            let ring = self.start.as_ptr().add(page_size());
            ptr::copy_nonoverlapping(ring, copy.as_mut_ptr(), copy.len());
        }
        copy
    }

    /// Rises before and after each change of the page.
    pub(super) fn sequence(&self) -> u32 {
        field!(self, AtomicU32, lock)
    }

    /// One more than the processor's counter that has the event; zero: none has.
    pub(super) fn index(&self) -> u32 {
        field!(self, AtomicU32, index)
    }

    /// What is to be added to the processor's counter.
    pub(super) fn offset(&self) -> u64 {
        field!(self, AtomicU64, offset)
    }

    /// The bits of a processor's counter, if this process may read it.
    pub(super) fn rdpmc_width(&self) -> Option<u16> {
        const CAP_USER_RDPMC: u64 = 1 << 2;
        let capabilities = field!(self, AtomicU64, __bindgen_anon_1);
        (capabilities & CAP_USER_RDPMC != 0).then(|| field!(self, AtomicU16, pmc_width))
    }

    /// The processor's counter; `counter` is [`Mapping::index`] minus one, read while [`Mapping::rdpmc_width`] allows it.
    pub(super) fn rdpmc(&self, counter: u32) -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: RDPMC changes edx and eax alone. The kernel allows it to this process while the page says so; should it
        // have withdrawn that since, the process gets SIGSEGV, and no memory is touched.
        unsafe {
            std::arch::asm!("rdpmc", in("ecx") counter, out("eax") low, out("edx") high, options(nomem, nostack));
        }
        u64::from(high) << 32 | u64::from(low)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The size of a page in bytes.
pub(super) fn page_size() -> usize {
    // SAFETY: sysconf takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size")
}
