//! A decoded instruction as the semantics sees it.

/// A general register by its hardware number: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, rbp 5, rsi 6, rdi 7, r8..r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gpr(pub u8);

impl Gpr {
    /// rax.
    pub const RAX: Gpr = Gpr(0);
    /// rcx.
    pub const RCX: Gpr = Gpr(1);
    /// rdx.
    pub const RDX: Gpr = Gpr(2);
    /// rbx.
    pub const RBX: Gpr = Gpr(3);
    /// rsp.
    pub const RSP: Gpr = Gpr(4);
    /// rbp.
    pub const RBP: Gpr = Gpr(5);
    /// rsi.
    pub const RSI: Gpr = Gpr(6);
    /// rdi.
    pub const RDI: Gpr = Gpr(7);
    /// r11.
    pub const R11: Gpr = Gpr(11);
    /// The names, by number.
    pub const NAMES: [&'static str; 16] = [
        "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13",
        "r14", "r15",
    ];

    /// The register's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.0 & 15)]
    }
}

/// A segment whose base is not zero in 64-bit mode, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Segment {
    /// CS, DS, ES, SS: base zero.
    #[default]
    Flat,
    /// FS: thread-local storage.
    Fs,
    /// GS.
    Gs,
}

/// A memory operand: `segment + base + index * 2^scale + disp`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mem {
    /// Base register; `None` for an absolute or rip-relative address (which is already added to `disp`).
    pub base: Option<Gpr>,
    /// Index register.
    pub index: Option<Gpr>,
    /// log2 of the factor of the index.
    pub scale: u8,
    /// Displacement, sign-extended; for rip-relative operands the absolute address.
    pub disp: u64,
    /// Segment override.
    pub segment: Segment,
    /// The 67 prefix: the effective address is cut to 32 bits before the segment base is added.
    pub addr32: bool,
}

/// Where an operand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loc {
    /// No such operand.
    None,
    /// A general register (its low bits for narrower operands).
    Reg(Gpr),
    /// Bits 8 to 15 of a general register: ah, ch, dh, bh.
    RegHigh(Gpr),
    /// A vector register: xmm, ymm or zmm, by number.
    Vector(u8),
    /// An opmask register, k0 to k7.
    Mask(u8),
    /// An MMX register: the significand of an x87 register, by number and not relative to TOP.
    Mmx(u8),
    /// An x87 register relative to TOP.
    X87(u8),
    /// The memory operand of the instruction.
    Mem,
    /// The immediate operand of the instruction.
    Imm,
}

/// The kind of a branch, in the terms of the branch filters (LBR_SELECT and IA32_LBR_CTL, Intel SDM vol. 3,
/// "Last Branch Records").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BranchKind {
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
    /// Far transfers: SYSCALL, interrupts, exceptions, IRET.
    Far,
}

impl BranchKind {
    /// Every kind; the far one is last.
    pub const ALL: [BranchKind; 7] = [
        BranchKind::Conditional,
        BranchKind::RelativeJump,
        BranchKind::IndirectJump,
        BranchKind::RelativeCall,
        BranchKind::IndirectCall,
        BranchKind::Return,
        BranchKind::Far,
    ];
}

/// A condition code by its encoding (Jcc opcode & 15): 0 o, 1 no, 2 b, 3 ae, 4 e, 5 ne, 6 be, 7 a, 8 s, 9 ns,
/// 10 p, 11 np, 12 l, 13 ge, 14 le, 15 g.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Condition(pub u8);

/// The prefix of a string instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Rep {
    /// None: one iteration.
    #[default]
    None,
    /// REP or REPE: while rcx is not zero (and, for CMPS and SCAS, ZF is set).
    Repe,
    /// REPNE: while rcx is not zero (and, for CMPS and SCAS, ZF is clear).
    Repne,
}

/// How an instruction is encoded, which says what becomes of the bits of a vector register above the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Encoding {
    /// They stay, and the first source is the destination; 128-bit memory operands must be aligned.
    #[default]
    Legacy,
    /// They become zero, and the first source is an operand of its own.
    Vex,
    /// As VEX; and a mask, a broadcast or a rounding mode may be given.
    Evex,
}

/// The opmask of an EVEX encoding, in a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Opmask(u8);

impl Opmask {
    const ZEROING: u8 = 0x80;

    /// Register `number`, 0 to 7; 0 means that every lane is computed. Other lanes stay or, if `zeroing`, become
    /// zero.
    #[must_use]
    pub const fn new(number: u8, zeroing: bool) -> Opmask {
        Opmask(number & 7 | if zeroing { Self::ZEROING } else { 0 })
    }

    /// The register, if there is one.
    #[must_use]
    #[inline(always)]
    pub const fn register(self) -> Option<u8> {
        if self.0 & 7 == 0 { None } else { Some(self.0 & 7) }
    }

    /// Whether the lanes whose bit is clear become zero.
    #[must_use]
    pub const fn is_zeroing(self) -> bool {
        self.0 & Self::ZEROING != 0
    }
}

/// What EVEX.b says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Embedded {
    /// Nothing.
    #[default]
    None,
    /// The memory operand is one lane, which is used for all.
    Broadcast,
    /// Floating-point exceptions are not raised.
    Suppress,
    /// The same, and the result is rounded to nearest.
    RoundNearest,
    /// The same, and the result is rounded down.
    RoundDown,
    /// The same, and the result is rounded up.
    RoundUp,
    /// The same, and the result is rounded toward zero.
    RoundZero,
}

/// What an instruction on vectors has besides its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    /// The vector length in parts of 64 bits: 2, 4 or 8.
    pub parts: u8,
    /// The encoding.
    pub encoding: Encoding,
    /// The opmask.
    pub mask: Opmask,
    /// Broadcast or rounding.
    pub embedded: Embedded,
}

impl Vector {
    /// That of every legacy encoding.
    pub const LEGACY: Vector =
        Vector { parts: 2, encoding: Encoding::Legacy, mask: Opmask(0), embedded: Embedded::None };
}

/// The numbers of the general registers among the operands, for those who know from the form of the instruction which
/// of them there are: to ask [`Loc`] and [`Mem`] each time takes as long as the reading of the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Of the first two operands.
    pub operands: [Gpr; 2],
    /// Of the base of the memory operand.
    pub base: Gpr,
    /// Of its index.
    pub index: Gpr,
}

impl Numbers {
    /// Those of these operands; rax where there is none.
    #[must_use]
    pub fn new(operands: [Loc; 2], mem: &Mem) -> Numbers {
        let number = |loc| if let Loc::Reg(r) = loc { r } else { Gpr::RAX };
        Numbers {
            operands: [number(operands[0]), number(operands[1])],
            base: mem.base.unwrap_or(Gpr::RAX),
            index: mem.index.unwrap_or(Gpr::RAX),
        }
    }
}

/// A decoded instruction. All that depends on the bytes alone is settled here, once, at decode time.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// First operand, as Intel writes them: the destination.
    pub a: Loc,
    /// Second operand.
    pub b: Loc,
    /// Third operand.
    pub c: Loc,
    /// Fourth operand; of a gather or scatter, the vector of indices.
    pub d: Loc,
    /// Vector length, mask and the like.
    pub vector: Vector,
    /// Width of the operation in bits.
    pub w: u8,
    /// Length in bytes.
    pub len: u8,
    /// Condition code of Jcc, SETcc, CMOVcc; a family may use it as a small selector.
    pub cc: Condition,
    /// Prefix of a string instruction.
    pub rep: Rep,
    /// The general registers of `a`, `b` and `mem`, by number alone.
    pub numbers: Numbers,
    /// The memory operand.
    pub mem: Mem,
    /// The immediate, sign- or zero-extended to `w` as the instruction does; or the target of a direct branch.
    pub imm: u64,
    /// The address of the next instruction.
    pub next: u64,
}

impl Op {
    /// The address of this instruction.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.next.wrapping_sub(u64::from(self.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps of a block are arrays of them.
    #[test]
    fn an_op_is_small() {
        assert_eq!(size_of::<Op>(), 56);
    }
}
