//! How to get from a frame to its caller.

/// What the frame's address is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    Rsp,
    Rbp,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rbp {
    /// Still in rbp.
    Same,
    /// In memory, this far from the frame's address.
    InFrame(i32),
    /// In memory, this far from where rbp points.
    Pointed(i32),
    /// Nobody knows.
    Lost,
}

/// The frame's address is the stack pointer before the call pushed the return address (the CFA of DWARF).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Frame {
        base: Base,
        /// What to add to the base.
        offset: i32,
        /// The frame's address is not that sum, but in memory there.
        through: bool,
        rbp: Rbp,
    },
    /// Nobody called this function.
    Outermost,
    Unknown,
}

impl Rule {
    /// Of a function that has put nothing on the stack, as those of the vDSO never do.
    pub(super) const LEAF: Rule = Rule::Frame { base: Base::Rsp, offset: 8, through: false, rbp: Rbp::Same };
}
