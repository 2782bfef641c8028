//! A crumb, and its form as 96 bytes: the same in a ring and in a core.

use xxhash_rust::xxh3::xxh3_64;

/// Why the engine came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Exit {
    /// A system call; the crumb's address is the instruction after SYSCALL.
    Syscall {
        /// Its number, as in rax.
        number: u64,
    },
    /// A page fault: often only a page that was not resident yet.
    PageFault {
        /// What was touched.
        address: u64,
        /// Bit 0 present, 1 write, 2 user, 4 fetch.
        error_code: u32,
    },
    /// Any other exception.
    Exception {
        /// The vector.
        vector: u8,
        /// The error code; zero for vectors that have none.
        error_code: u32,
    },
    /// An instruction that reads the machine.
    MachineRead,
    /// A signal from outside.
    Interrupted,
    /// An instruction that the engine cannot execute.
    NoSemantics,
    /// The task had to give the processor away between two instructions.
    Preempted,
    /// An interrupt of a machine with a kernel; the crumb's address is the instruction that would have been next.
    Interrupt {
        /// The vector.
        vector: u8,
    },
}

impl Exit {
    /// Its name, as shown and as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Exit::Syscall { .. } => "syscall",
            Exit::PageFault { .. } => "page-fault",
            Exit::Exception { .. } => "exception",
            Exit::MachineRead => "machine-read",
            Exit::Interrupted => "interrupted",
            Exit::NoSemantics => "no-semantics",
            Exit::Preempted => "preempted",
            Exit::Interrupt { .. } => "interrupt",
        }
    }
}

/// How often what had retired since the program's start; absent where nothing counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Counts {
    /// Instructions; a whole REP string instruction counts as one.
    pub instructions: Option<u64>,
    /// Taken branches.
    pub taken_branches: Option<u64>,
    /// Conditional branches, taken or not.
    pub conditional_branches: Option<u64>,
    /// They were counted when the recording ran again on the software CPU, not while it was made.
    pub derived: bool,
}

/// What is noted of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Crumb {
    /// Why the engine came back.
    pub exit: Exit,
    /// How many of the journal's events had begun before it. Together with what kind of exit it is, its position.
    pub event: u64,
    /// The thread.
    pub thread: u32,
    /// Where the program stood.
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// CLOCK_MONOTONIC in nanoseconds.
    pub time: Option<u64>,
    /// What the engine had counted.
    pub counts: Counts,
    /// The calling context as one word ([`crate::context`]), where it was computed.
    pub context: Option<u64>,
}

/// A crumb with its number: 1 for the first exit of a run, then one more for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The number; never zero.
    pub number: u64,
    /// What was noted.
    pub crumb: Crumb,
}

/// The size of a record in bytes.
pub const RECORD: usize = 96;
/// The size of a record in words.
pub const WORDS: usize = RECORD / 8;
/// Where the checksum is.
const CHECKSUM: usize = RECORD - 4;

const TIME: u16 = 1;
const INSTRUCTIONS: u16 = 1 << 1;
const TAKEN: u16 = 1 << 2;
const CONDITIONAL: u16 = 1 << 3;
const CONTEXT: u16 = 1 << 4;
const DERIVED: u16 = 1 << 5;

impl Crumb {
    /// The record of crumb `number`, as little-endian words: number; events before; time; rip; rsp; what the exit adds (a system
    /// call's number, a page fault's address); instructions; taken branches; conditional branches; context; thread
    /// (4 bytes) and error code (4); kind (1), vector (1), flags (2), checksum (4). Flags say which of time, the three
    /// counts and the context are there, from bit 0 on, bit 5 that the counts are derived; what is not there is zero. The
    /// checksum is the low half of XXH3-64 of the record with zeros in the checksum's place.
    #[must_use]
    #[inline]
    pub fn to_words(&self, number: u64) -> [u64; WORDS] {
        let Crumb { exit, counts, .. } = self;
        let (kind, vector, detail, error_code): (u8, _, _, _) = match *exit {
            Exit::Syscall { number } => (1, 0, number, 0),
            Exit::PageFault { address, error_code } => (2, 0, address, error_code),
            Exit::Exception { vector, error_code } => (3, vector, 0, error_code),
            Exit::MachineRead => (4, 0, 0, 0),
            Exit::Interrupted => (5, 0, 0, 0),
            Exit::NoSemantics => (6, 0, 0, 0),
            Exit::Preempted => (7, 0, 0, 0),
            Exit::Interrupt { vector } => (8, vector, 0, 0),
        };
        let mut flags = if counts.derived { DERIVED } else { 0 };
        let mut optional = |value: Option<u64>, flag: u16| {
            flags |= if value.is_some() { flag } else { 0 };
            value.unwrap_or(0)
        };
        let mut words = [
            number,
            self.event,
            optional(self.time, TIME),
            self.rip,
            self.rsp,
            detail,
            optional(counts.instructions, INSTRUCTIONS),
            optional(counts.taken_branches, TAKEN),
            optional(counts.conditional_branches, CONDITIONAL),
            optional(self.context, CONTEXT),
            u64::from(self.thread) | u64::from(error_code) << 32,
            0,
        ];
        words[WORDS - 1] = u64::from(kind) | u64::from(vector) << 8 | u64::from(flags) << 16;
        words[WORDS - 1] |= u64::from(checksum(&to_bytes(words))) << 32;
        words
    }
}

impl Entry {
    /// The record as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD] {
        to_bytes(self.crumb.to_words(self.number))
    }

    /// Reads what [`Entry::to_bytes`] wrote. `None` for anything else: a record that was never written or only in
    /// part, or that somebody changed.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD]) -> Option<Entry> {
        let word = |n: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[8 * n..8 * n + 8]);
            u64::from_le_bytes(word)
        };
        let half = |value: u64| u32::try_from(value & 0xffff_ffff).ok();
        let last = word(WORDS - 1);
        let mut covered = *bytes;
        covered[CHECKSUM..].fill(0);
        if word(0) == 0 || half(last >> 32)? != checksum(&covered) {
            return None;
        }
        let (vector, flags) = (bytes[CHECKSUM - 3], u16::try_from(last >> 16 & 0xffff).ok()?);
        let error_code = half(word(10) >> 32)?;
        let exit = match bytes[CHECKSUM - 4] {
            1 => Exit::Syscall { number: word(5) },
            2 => Exit::PageFault { address: word(5), error_code },
            3 => Exit::Exception { vector, error_code },
            4 => Exit::MachineRead,
            5 => Exit::Interrupted,
            6 => Exit::NoSemantics,
            7 => Exit::Preempted,
            8 => Exit::Interrupt { vector },
            _ => return None,
        };
        let optional = |n: usize, flag: u16| (flags & flag != 0).then(|| word(n));
        let crumb = Crumb {
            exit,
            event: word(1),
            thread: half(word(10))?,
            rip: word(3),
            rsp: word(4),
            time: optional(2, TIME),
            counts: Counts {
                instructions: optional(6, INSTRUCTIONS),
                taken_branches: optional(7, TAKEN),
                conditional_branches: optional(8, CONDITIONAL),
                derived: flags & DERIVED != 0,
            },
            context: optional(9, CONTEXT),
        };
        let entry = Entry { number: word(0), crumb };
        // What is not used must be zero: then equal crumbs have equal bytes.
        (entry.to_bytes() == *bytes).then_some(entry)
    }
}

fn to_bytes(words: [u64; WORDS]) -> [u8; RECORD] {
    let mut bytes = [0; RECORD];
    for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The low half of XXH3-64 of a record with zeros in the checksum's place: whole words, which the processor can read
/// back at once from where they were just written.
fn checksum(bytes: &[u8; RECORD]) -> u32 {
    let [a, b, c, d, ..] = xxh3_64(bytes).to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}
