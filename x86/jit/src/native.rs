//! The fence: memory for code, the call into it, and the call out of it. All unsafe code of this crate is here.
//!
//! Compiled code computes with floats by the host's own instructions ([`crate::floats`]). What they raise stays in the host's MXCSR,
//! which has none but the guest's when code is entered, and gives all to the guest when it is left, and around each call out of it:
//! what the description of an instruction has the host compute raises nothing in the guest.
//!
//! No page is both writable and executable: the memory for code is mapped twice, once to write and once to run.

use std::arch::asm;
use std::io;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

use x86::bus::Bus;
use x86::cpu::Cpu;
use x86::machine::{Control, Machine};

use crate::context::{Context, Stored, Why};
use crate::floats::DEFAULT_MXCSR;
use crate::kept::Kept;
use crate::outcall::{Entry, Outcall};

/// Code begins at multiples of this.
const ALIGNMENT: usize = 32;

/// Compiled code that lies in an [`Arena`]: for as long as that is neither dropped nor cleared, it may be entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(NonNull<u8>);

impl Code {
    pub(crate) fn address(self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Code {
        Code(NonNull::dangling())
    }
}

/// Memory for code.
pub(crate) struct Arena {
    write: NonNull<u8>,
    run: NonNull<u8>,
    used: usize,
    size: usize,
}

// SAFETY: the mappings are this arena's alone, and any thread may use them.
unsafe impl Send for Arena {}

// SAFETY: its pointers are followed by compiled code only, during `enter`, which sets them.
unsafe impl Send for Context {}

impl Arena {
    /// Room for `size` bytes, which cost memory when they are used.
    ///
    /// # Errors
    /// What the host says.
    pub(crate) fn new(size: usize) -> io::Result<Arena> {
        let len = libc::off_t::try_from(size).map_err(io::Error::other)?;
        // SAFETY: the name is a NUL-terminated literal; the result is checked.
        let file = unsafe { libc::memfd_create(c"gretel-code".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `file` is a descriptor of this function's own; it is closed once, below, and not used after that.
        let (sized, write, run) = unsafe {
            let sized = libc::ftruncate(file, len);
            let error = io::Error::last_os_error();
            let write = map(file, size, libc::PROT_READ | libc::PROT_WRITE);
            let run = map(file, size, libc::PROT_READ | libc::PROT_EXEC);
            libc::close(file);
            (if sized == 0 { Ok(()) } else { Err(error) }, write, run)
        };
        match (sized, write, run) {
            (Ok(()), Ok(write), Ok(run)) => Ok(Arena { write, run, used: 0, size }),
            (sized, write, run) => {
                for mapping in [&write, &run].into_iter().flatten() {
                    // SAFETY: it was mapped above, and nobody knows of it.
                    unsafe { libc::munmap(mapping.as_ptr().cast(), size) };
                }
                sized?;
                write?;
                run?;
                Err(io::Error::other("no memory for code"))
            }
        }
    }

    /// Adds code that the compiler made; `None` where there is no room left.
    pub(crate) fn add(&mut self, bytes: &[u8]) -> Option<Code> {
        let at = self.used.next_multiple_of(ALIGNMENT);
        let end = at.checked_add(bytes.len()).filter(|end| *end <= self.size)?;
        self.used = end;
        // SAFETY: `at..end` is inside both mappings, and in no code that was added before.
        unsafe {
            self.write.add(at).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            Some(Code(self.run.add(at)))
        }
    }

    /// Makes room: what was added may be entered no more.
    pub(crate) fn clear_behind(&mut self, kept: usize) {
        self.used = kept;
    }

    /// How many bytes are used.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

/// Maps `size` bytes of a file.
///
/// # Safety
/// `file` must be a descriptor of a file that nobody truncates.
unsafe fn map(file: libc::c_int, size: usize, protection: libc::c_int) -> io::Result<NonNull<u8>> {
    // SAFETY: a new mapping wherever the host likes; the result is checked.
    let at = unsafe { libc::mmap(null_mut(), size, protection, libc::MAP_SHARED, file, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::other("a mapping at address zero"))
}

impl Drop for Arena {
    fn drop(&mut self) {
        for mapping in [self.write, self.run] {
            // SAFETY: mapped by `new`, and no code of it is running: whoever runs some has a borrow of its owner.
            unsafe { libc::munmap(mapping.as_ptr().cast(), self.size) };
        }
    }
}

/// The way into compiled code on CPUs over one kind of memory: code that has the calling convention of this language, and calls
/// code that has its own.
pub(crate) struct Gate<B> {
    enter: unsafe extern "C" fn(*mut Context, *const u8) -> u64,
    bus: PhantomData<fn(B)>,
}

impl<B: Bus> Gate<B> {
    /// The gate whose code, as [`crate::compiler::Compiler::gate`] makes it, is `code`.
    pub(crate) fn new(code: Code) -> Gate<B> {
        // SAFETY: that code has this signature, and nothing clears it.
        let enter = unsafe {
            std::mem::transmute::<*mut u8, unsafe extern "C" fn(*mut Context, *const u8) -> u64>(
                code.0.as_ptr(),
            )
        };
        Gate { enter, bus: PhantomData }
    }

    /// Runs `code` on `cpu`. `None`: it cannot be run now, since translations lead beyond the memory there is.
    pub(crate) fn enter(&self, context: &mut Context, code: Code, cpu: &mut Cpu<B>) -> Option<Why> {
        clear_on_host(cpu);
        let cpu: *mut Cpu<B> = cpu;
        // SAFETY: the pointer was a reference a line ago.
        context.point_to(unsafe { &mut *cpu }.parts()?);
        context.cpu = cpu.cast();
        // SAFETY: the code was compiled for this context, now or by this program before (`kept_from_bytes`), and lies in an arena that is there. What it follows are the pointers of
        // the context: the CPU's registers and translations, which stay where they are while the CPU is borrowed here, and its
        // memory, within which all translations lead (`Cpu::parts`). The links lead to code of the same arena.
        let why = unsafe { (self.enter)(context, code.0.as_ptr()) };
        // SAFETY: the CPU is still borrowed, and the code has ended.
        take_raised(unsafe { &mut *cpu });
        Why::ALL.into_iter().find(|known| *known as u64 == why)
    }
}

/// The exception flags of MXCSR (Intel SDM vol. 1, 10.2.3).
const EXCEPTIONS: u64 = 0x3f;

/// Has the host's MXCSR have no exception that the guest's has not, and the default modes, which a program in this language has.
/// To read it and find that there is nothing to do costs less than to write it.
fn clear_on_host<B: Bus>(cpu: &Cpu<B>) {
    let guest = cpu.control(Control::Mxcsr);
    if raised_on_host() & !guest == 0 {
        return;
    }
    let host = DEFAULT_MXCSR | guest & EXCEPTIONS;
    // SAFETY: only the exception flags are new, which any assembly may change (Rust reference, rules for inline assembly).
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const host, options(nostack, readonly)) };
}

/// Gives the exceptions of the host's MXCSR to the guest's.
fn take_raised<B: Bus>(cpu: &mut Cpu<B>) {
    let all = cpu.control(Control::Mxcsr) | raised_on_host();
    cpu.set_control(Control::Mxcsr, all);
}

/// The exceptions of the host's MXCSR.
fn raised_on_host() -> u64 {
    let mut host = 0_u64;
    // SAFETY: it writes the first four bytes of `host`.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut host, options(nostack, preserves_flags)) };
    host & EXCEPTIONS
}

/// What compiled code calls to run an [`Outcall`].
pub(crate) fn outcall_entry<B: Bus>() -> Entry {
    call_out::<B>
}

/// Runs an instruction on the CPU.
///
/// # Safety
/// Only compiled code may call it, with its context and the address of an outcall of its region.
unsafe extern "C" fn call_out<B: Bus>(context: *mut Context, call: *const u8) -> u64 {
    // SAFETY: `Gate::enter` holds the context, and this code runs within that call; the region keeps its outcalls for as long as
    // its code may be entered, and they are of the type of the CPU, because a driver compiles for its own CPU alone.
    let (context, call) = unsafe { (&mut *context, &*call.cast::<Outcall<B>>()) };
    // SAFETY: `Gate::enter` borrows the CPU, uses no reference to it while the code runs, and made this pointer of its borrow.
    let cpu = unsafe { &mut *context.cpu.cast::<Cpu<B>>() };
    take_raised(cpu);
    let has_trapped = call.run(cpu, &mut context.flags);
    clear_on_host(cpu);
    // Compiled code has the address of the memory in a register. A bus that moves its memory when it translates is not one to
    // compile for, and to go on would be to write to memory that is not the guest's.
    if !context.points_to(cpu.bus_mut().ram_mut()) {
        std::process::abort();
    }
    u64::from(has_trapped)
}

/// Has the flags of a context be bits: what compiled code calls where it reads some of them, and does not know what they are made of.
///
/// # Safety
/// Only compiled code may call it, with its context.
pub(crate) unsafe extern "C" fn make_bits(context: *mut Context) {
    // SAFETY: `Gate::enter` holds the context, and this code runs within that call.
    let flags = unsafe { &mut (*context).flags };
    *flags = Stored::bits_of(&flags.flags());
}

/// Reads code that was kept; `None` if it is no such thing, or of another processor.
///
/// # Safety
/// The bytes must be what [`Kept::to_bytes`] has given in this same program: its code is run, and what it does to the context and
/// the CPU is what this program's compiler makes it do.
#[must_use]
pub unsafe fn kept_from_bytes(bytes: &[u8]) -> Option<Kept> {
    Kept::from_bytes(bytes)
}

/// Runs `start` with all signals blocked, so that a thread it starts is never the one that a signal interrupts.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are written before they are read, and the calls keep no pointer to them.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = start();
    // SAFETY: the call above has written it.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    started
}
