//! What the software CPU needs of the world: memory, and who may touch which page of it.

use std::ops::Range;

/// Bytes in a page.
pub const PAGE_SIZE: u64 = 4096;

/// What an access wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A data read.
    Read,
    /// A data write.
    Write,
    /// An instruction fetch.
    Execute,
}

/// A page that an access may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// Byte offset of the 4 KiB frame in [`Bus::ram`]; a multiple of [`PAGE_SIZE`].
    pub frame: u64,
    /// Whether the page may be written: then a read need not ask again before a later write.
    pub writable: bool,
    /// Whether the page may be executed.
    pub executable: bool,
}

/// A page fault, as the processor reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageFault {
    /// The linear address that could not be used (CR2).
    pub address: u64,
    /// The error code: [`PageFault::PRESENT`], [`PageFault::WRITE`], [`PageFault::USER`],
    /// [`PageFault::FETCH`].
    pub error_code: u32,
}

impl PageFault {
    /// The page is there, but its protection forbids the access (Intel SDM vol. 3, 4.7).
    pub const PRESENT: u32 = 1;
    /// The access was a write.
    pub const WRITE: u32 = 2;
    /// The access came from user mode: always.
    pub const USER: u32 = 4;
    /// The access was an instruction fetch.
    pub const FETCH: u32 = 16;

    /// The fault of an `access` to `address` by a user-mode program; `present` if a page is there.
    #[must_use]
    pub fn new(address: u64, access: Access, present: bool) -> PageFault {
        let kind = match access {
            Access::Read => 0,
            Access::Write => Self::WRITE,
            Access::Execute => Self::FETCH,
        };
        PageFault { address, error_code: Self::USER | kind | u32::from(present) }
    }
}

/// Guest memory. One contiguous `ram`, and a map from pages to frames of it.
pub trait Bus {
    /// All guest memory.
    fn ram(&self) -> &[u8];
    /// All guest memory, to write.
    fn ram_mut(&mut self) -> &mut [u8];
    /// Whether `access` to the page of `va` (canonical) is allowed, and where that page is.
    ///
    /// `va` is the first byte of the access, or where its part in a second page begins.
    ///
    /// A successful answer is cached (unless [`Bus::may_cache`] forbids it) until [`crate::cpu::Cpu::invalidate_page`] or
    /// [`crate::cpu::Cpu::flush_tlb`]; a write is asked for before the first write to a page after either.
    ///
    /// # Errors
    /// The fault to raise.
    fn translate(&mut self, va: u64, access: Access) -> Result<Translation, PageFault>;

    /// Says how many bytes the accesses have that are asked for from now on; `None`: up to a vector. For memory that watches bytes: it
    /// need not look at an access that ends before them.
    fn expect_length(&mut self, _bytes: Option<u64>) {}

    /// Where instructions may be fetched from the page of `va` (canonical), for somebody who looks at them and executes none: nothing
    /// that the guest can see changes. `None` also where a fetch would change something, as a bit that says that it has been.
    fn peek_code(&mut self, va: u64) -> Option<Translation> {
        self.translate(va, Access::Execute).ok()
    }

    /// Whether a successful answer may be cached; else each access of this kind to the page of `va` asks again.
    fn may_cache(&self, _va: u64, _access: Access) -> bool {
        true
    }

    /// Where no answer for the page of `va` may be cached since some bytes of it are watched for accesses of this kind: a part of the
    /// page, `va` in it, that has none of these bytes. What accesses that part alone need not ask. `None` where `va` is one of these
    /// bytes, and for pages that are not cached for another reason.
    fn part_around(&self, _va: u64, _access: Access) -> Option<Range<u64>> {
        None
    }
}

/// The longest part of the page of `va`, `va` in it, that has none of the bytes that are `watched`; none of the last page that there is.
#[must_use]
pub fn part_between(va: u64, watched: impl Iterator<Item = Range<u64>>) -> Option<Range<u64>> {
    let page = va - va % PAGE_SIZE;
    let mut part = page..page.checked_add(PAGE_SIZE)?;
    for bytes in watched.filter(|bytes| !bytes.is_empty()) {
        if bytes.contains(&va) {
            return None;
        }
        match bytes.end <= va {
            true => part.start = part.start.max(bytes.end),
            false => part.end = part.end.min(bytes.start),
        }
    }
    Some(part)
}
