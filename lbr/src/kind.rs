//! What kind of branch a record is of.

use std::fmt;
use x86::op::BranchKind;

/// A branch's kind, as far as any source of records tells kinds apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Conditional branch (Jcc, JRCXZ, LOOP).
    Conditional,
    /// Near relative jump.
    RelativeJump,
    /// Near indirect jump.
    IndirectJump,
    /// Near relative call.
    RelativeCall,
    /// Near indirect call.
    IndirectCall,
    /// Near return.
    Return,
    /// A far transfer of which no more is known.
    Far,
    /// SYSCALL, SYSENTER.
    Syscall,
    /// SYSRET, SYSEXIT.
    Sysret,
    /// IRET.
    Iret,
    /// An interrupt or exception.
    Interrupt,
}

impl Kind {
    /// Every kind, in the order of the numbers by which a trail's bytes know them (from 1).
    pub const ALL: [Kind; 11] = [
        Kind::Conditional,
        Kind::RelativeJump,
        Kind::IndirectJump,
        Kind::RelativeCall,
        Kind::IndirectCall,
        Kind::Return,
        Kind::Far,
        Kind::Syscall,
        Kind::Sysret,
        Kind::Iret,
        Kind::Interrupt,
    ];

    /// The kind as filters know it: one for all far transfers.
    #[must_use]
    pub fn branch_kind(self) -> BranchKind {
        match self {
            Kind::Conditional => BranchKind::Conditional,
            Kind::RelativeJump => BranchKind::RelativeJump,
            Kind::IndirectJump => BranchKind::IndirectJump,
            Kind::RelativeCall => BranchKind::RelativeCall,
            Kind::IndirectCall => BranchKind::IndirectCall,
            Kind::Return => BranchKind::Return,
            Kind::Far | Kind::Syscall | Kind::Sysret | Kind::Iret | Kind::Interrupt => BranchKind::Far,
        }
    }

    /// Its name, as shown and as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Conditional => "conditional",
            Kind::RelativeJump => "jump",
            Kind::IndirectJump => "indirect jump",
            Kind::RelativeCall => "call",
            Kind::IndirectCall => "indirect call",
            Kind::Return => "return",
            Kind::Far => "far",
            Kind::Syscall => "system call",
            Kind::Sysret => "system call return",
            Kind::Iret => "interrupt return",
            Kind::Interrupt => "interrupt",
        }
    }
}

impl From<BranchKind> for Kind {
    fn from(kind: BranchKind) -> Kind {
        match kind {
            BranchKind::Conditional => Kind::Conditional,
            BranchKind::RelativeJump => Kind::RelativeJump,
            BranchKind::IndirectJump => Kind::IndirectJump,
            BranchKind::RelativeCall => Kind::RelativeCall,
            BranchKind::IndirectCall => Kind::IndirectCall,
            BranchKind::Return => Kind::Return,
            BranchKind::Far => Kind::Far,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
