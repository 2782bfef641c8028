//! How a kernel came to be running what it runs: by a system call, an exception or an interrupt, or back from one.
//!
//! A path ends at the newest of these, since none of its steps is one. Two kinds of evidence tell of it: crumbs, how many instructions
//! retired since one was left, and branch records, to which address the newest far transfer among them led.
//!
//! Example: a timer's interrupt came 1040 instructions before a crash, 876 of them in its handler. Branch records tell that IRET led back to
//! `checksum+0x2c`, and what goes on before that address is not what ran. Without records a path may have 1040 instructions at most.

/// What is known of the newest exit or far transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Entered {
    /// Instructions that retired since the newest exit: a path has no more. A repeated string instruction is one.
    pub retired: Option<u64>,
    /// Where the far transfer led before which the branch records are of another path.
    pub back: Option<u64>,
}
