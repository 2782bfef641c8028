//! What compiled code and the driver share.

use x86::cpu::{Entry, Parts};

/// The arguments of compiled code, and its results. The code knows where each field is.
#[repr(C)]
pub(crate) struct Context {
    /// The general registers.
    pub(crate) gpr: *mut u64,
    /// All memory.
    pub(crate) ram: *mut u8,
    /// How much it is; for no code to see.
    ram_len: usize,
    /// The translations for loads.
    pub(crate) reads: *const Entry,
    /// The translations for stores.
    pub(crate) writes: *const Entry,
    /// [`crate::links::Link`]s: which code may be gone to.
    pub(crate) links: *const u8,
    /// What is mixed into the addresses of links that hold now.
    pub(crate) turn: u64,
    /// The CPU, for calls out of compiled code.
    pub(crate) cpu: *mut u8,
    /// The bases of FS and GS.
    pub(crate) bases: [u64; 2],
    /// How many instructions may still run; never below zero outside of compiled code.
    pub(crate) left: i64,
    /// Branches taken in the low half, conditional branches in the high one.
    pub(crate) branches: u64,
    /// Where control goes on.
    pub(crate) rip: u64,
    /// What the arithmetic flags are made of, as [`crate::flags`] has it.
    pub(crate) flags: Stored,
}

/// Arithmetic flags that lie in the context.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Stored {
    /// One of the numbers of [`crate::flags`]; above 8 bits the width of the operation.
    pub(crate) kind: u64,
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) r: u64,
    /// Those that are known one by one, in the order of [`x86::flags::Flag::ALL`].
    pub(crate) bits: [u8; 8],
}

/// The most instructions that run in one stay in compiled code: neither half of [`Context::branches`] overflows.
pub(crate) const LONGEST_STAY: u64 = 1 << 30;

impl Context {
    pub(crate) const fn new() -> Context {
        Context {
            gpr: std::ptr::null_mut(),
            ram: std::ptr::null_mut(),
            ram_len: 0,
            reads: std::ptr::null(),
            writes: std::ptr::null(),
            links: std::ptr::null(),
            turn: 0,
            cpu: std::ptr::null_mut(),
            bases: [0; 2],
            left: 0,
            branches: 0,
            rip: 0,
            flags: Stored { kind: 0, a: 0, b: 0, r: 0, bits: [0; 8] },
        }
    }

    /// Points to the parts of a CPU.
    pub(crate) fn point_to(&mut self, parts: Parts<'_>) {
        self.gpr = parts.gpr.as_mut_ptr();
        self.ram = parts.ram.as_mut_ptr();
        self.ram_len = parts.ram.len();
        self.reads = parts.reads.as_ptr();
        self.writes = parts.writes.as_ptr();
        self.bases = parts.bases;
    }

    /// Whether this is the memory that it points to.
    pub(crate) fn points_to(&self, ram: &mut [u8]) -> bool {
        std::ptr::eq(self.ram, ram.as_mut_ptr()) && self.ram_len == ram.len()
    }
}

/// The offset of a field of [`Context`], as an instruction has it.
macro_rules! at {
    ($($field:tt)+) => {
        i32::try_from(std::mem::offset_of!($crate::context::Context, $($field)+)).expect("the context is small")
    };
}
pub(crate) use at;

/// Why compiled code was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// Control goes on where there is no code that could be gone to.
    GoOn,
    /// The next instruction is the interpreter's: it traps, or its memory has no cached translation, or there is no code
    /// for it.
    Interpret,
    /// The block at rip is longer than what may still run.
    Budget,
}

impl Why {
    pub(crate) const ALL: [Why; 3] = [Why::GoOn, Why::Interpret, Why::Budget];
}
