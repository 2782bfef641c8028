//! What compiled code and the driver share.

use x86::cpu::{Entry, Part, Parts};

/// The arguments of compiled code, and its results. The code knows where each field is.
#[repr(C)]
pub(crate) struct Context {
    /// The general registers.
    pub(crate) gpr: *mut u64,
    /// The vector registers.
    pub(crate) vectors: *mut u8,
    /// MXCSR, without the exceptions that compiled code has raised ([`crate::native`]).
    pub(crate) mxcsr: *mut u32,
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
    /// What may still run, and what has.
    pub(crate) counts: Counts,
    /// Where control goes on.
    pub(crate) rip: u64,
    /// The first address of what was looked up together and not there, where the code was left for that.
    pub(crate) reached: u64,
    /// What the arithmetic flags are made of, as [`crate::flags`] has it.
    pub(crate) flags: Stored,
    /// What code that reads some of them calls for them to be bits.
    pub(crate) make_bits: unsafe extern "C" fn(*mut Context),
    /// The translations for loads of parts of pages of which other bytes are watched.
    pub(crate) reads_of_parts: *const Part,
    /// The same for stores.
    pub(crate) writes_of_parts: *const Part,
}

/// Arithmetic flags that lie in the context.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Stored {
    /// One of the numbers of [`crate::flags`]; above 8 bits the width of the operation.
    pub(crate) kind: u64,
    pub(crate) a: u64,
    pub(crate) b: u64,
    /// The result, where it does not follow from the operands.
    pub(crate) r: u64,
    /// Those that are known one by one, in the order of [`x86::flags::Flag::ALL`].
    pub(crate) bits: [u8; 8],
}

/// Counts of one stay in compiled code, in one number: so one addition counts all, and its sign tells when no more may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Counts(u64);

/// Bits of the number of conditional branches, and of that of branches taken above them.
const BRANCH_BITS: u32 = 21;

/// The most instructions that run in one stay in compiled code: none of [`Counts`] overflows.
pub(crate) const LONGEST_STAY: u64 = 1 << 20;

impl Counts {
    /// Some may still run, and nothing has.
    pub(crate) const fn new(left: u64) -> Counts {
        Counts(Counts::added(left, 0, 0))
    }

    /// What is added for instructions that may run again (or not: less than zero, modulo 2^64), branches that were taken, and
    /// conditional branches.
    pub(crate) const fn added(left: u64, taken: u64, conditionals: u64) -> u64 {
        (left << (2 * BRANCH_BITS)).wrapping_add(taken << BRANCH_BITS).wrapping_add(conditionals)
    }

    /// How many instructions may still run; never below zero outside of compiled code.
    pub(crate) const fn left(self) -> u64 {
        self.0 >> (2 * BRANCH_BITS)
    }

    /// Branches that were taken.
    pub(crate) const fn taken(self) -> u64 {
        self.0 >> BRANCH_BITS & ((1 << BRANCH_BITS) - 1)
    }

    /// Conditional branches.
    pub(crate) const fn conditionals(self) -> u64 {
        self.0 & ((1 << BRANCH_BITS) - 1)
    }
}

impl Context {
    /// Pointing nowhere; `make_bits` makes its flags bits.
    pub(crate) const fn new(make_bits: unsafe extern "C" fn(*mut Context)) -> Context {
        Context {
            gpr: std::ptr::null_mut(),
            vectors: std::ptr::null_mut(),
            mxcsr: std::ptr::null_mut(),
            ram: std::ptr::null_mut(),
            ram_len: 0,
            reads: std::ptr::null(),
            writes: std::ptr::null(),
            links: std::ptr::null(),
            turn: 0,
            cpu: std::ptr::null_mut(),
            bases: [0; 2],
            counts: Counts::new(0),
            rip: 0,
            reached: 0,
            flags: Stored { kind: 0, a: 0, b: 0, r: 0, bits: [0; 8] },
            make_bits,
            reads_of_parts: std::ptr::null(),
            writes_of_parts: std::ptr::null(),
        }
    }

    /// Points to the parts of a CPU.
    pub(crate) fn point_to(&mut self, parts: Parts<'_>) {
        self.gpr = parts.gpr.as_mut_ptr();
        self.vectors = parts.vectors.as_mut_ptr().cast();
        self.mxcsr = parts.mxcsr;
        self.ram = parts.ram.as_mut_ptr();
        self.ram_len = parts.ram.len();
        self.reads = parts.reads.as_ptr();
        self.writes = parts.writes.as_ptr();
        self.reads_of_parts = parts.reads_of_parts.as_ptr();
        self.writes_of_parts = parts.writes_of_parts.as_ptr();
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
    /// The same as [`Why::Interpret`]: what was looked up together has the end of a page in it.
    Spread,
}

impl Why {
    pub(crate) const ALL: [Why; 4] = [Why::GoOn, Why::Interpret, Why::Budget, Why::Spread];
}
