//! The vector instructions that a compiler of blocks writes code for, in their legacy encoding: what programs for x86-64-v2
//! move, compare and compute with. They are few, since each is compiled once more for the machine that writes code.

use iced_x86::{Instruction, Mnemonic as N};

use super::vector;
use crate::machine::{Body, Machine};
use crate::op::{Loc, Op};

/// One of these instructions.
pub struct Compiled<M: Machine> {
    /// Its effect.
    pub body: Body<M>,
    /// Its operands.
    pub op: Op,
    /// It reads MXCSR, and makes exceptions sticky there.
    pub is_float: bool,
}

/// The description of `i`, if it is one of these.
#[must_use]
pub fn lookup_compiled<M: Machine>(i: &Instruction) -> Option<Compiled<M>> {
    let is_float = is_float(i.mnemonic());
    if !is_float && !moves(i.mnemonic()) && !computes(i.mnemonic()) && !shifts(i.mnemonic()) {
        return None;
    }
    let (body, op) = vector::lookup_legacy(i)?;
    // An amount in a register is seldom met.
    let by_register = shifts(i.mnemonic()) && op.b != Loc::Imm && op.c != Loc::Imm;
    (!by_register).then_some(Compiled { body, op, is_float })
}

fn moves(mnemonic: N) -> bool {
    matches!(mnemonic, N::Movdqa | N::Movaps | N::Movapd | N::Movdqu | N::Movups | N::Movupd | N::Lddqu)
        || matches!(mnemonic, N::Movntdq | N::Movntps | N::Movntpd)
        || matches!(mnemonic, N::Movss | N::Movsd | N::Movd | N::Movq | N::Movlps | N::Movlpd)
        || matches!(mnemonic, N::Movhps | N::Movhpd | N::Movhlps | N::Movlhps)
        || matches!(mnemonic, N::Pmovmskb | N::Movmskps | N::Movmskpd)
        || matches!(mnemonic, N::Pextrb | N::Pextrw | N::Pextrd | N::Pextrq | N::Extractps)
        || matches!(mnemonic, N::Pinsrd | N::Pinsrq)
        || matches!(mnemonic, N::Punpcklbw | N::Punpcklwd | N::Punpckldq | N::Punpcklqdq)
        || matches!(mnemonic, N::Punpckhbw | N::Punpckhwd | N::Punpckhdq | N::Punpckhqdq)
        || matches!(mnemonic, N::Unpcklps | N::Unpcklpd | N::Unpckhps | N::Unpckhpd)
        || matches!(mnemonic, N::Pshufd | N::Pshuflw | N::Pshufhw | N::Shufps | N::Shufpd)
}

fn computes(mnemonic: N) -> bool {
    matches!(mnemonic, N::Paddb | N::Paddw | N::Paddd | N::Paddq | N::Psubb | N::Psubw | N::Psubd | N::Psubq)
        || matches!(mnemonic, N::Pmullw | N::Pmulld)
        || matches!(mnemonic, N::Pand | N::Andps | N::Andpd | N::Pandn | N::Andnps | N::Andnpd)
        || matches!(mnemonic, N::Por | N::Orps | N::Orpd | N::Pxor | N::Xorps | N::Xorpd)
        || matches!(mnemonic, N::Pcmpeqb | N::Pcmpeqw | N::Pcmpeqd | N::Pcmpeqq)
        || matches!(mnemonic, N::Pcmpgtb | N::Pcmpgtw | N::Pcmpgtd)
        || matches!(mnemonic, N::Pminub | N::Pmaxub | N::Pminsw | N::Pmaxsw)
}

/// Those whose last operand is an amount.
fn shifts(mnemonic: N) -> bool {
    matches!(mnemonic, N::Psllw | N::Pslld | N::Psllq | N::Psrlw | N::Psrld | N::Psrlq | N::Psraw | N::Psrad)
        || matches!(mnemonic, N::Pslldq | N::Psrldq | N::Palignr)
}

fn is_float(mnemonic: N) -> bool {
    matches!(mnemonic, N::Addps | N::Addpd | N::Addss | N::Addsd | N::Subps | N::Subpd | N::Subss | N::Subsd)
        || matches!(mnemonic, N::Mulps | N::Mulpd | N::Mulss | N::Mulsd)
        || matches!(mnemonic, N::Divps | N::Divpd | N::Divss | N::Divsd)
        || matches!(mnemonic, N::Minps | N::Minpd | N::Minss | N::Minsd)
        || matches!(mnemonic, N::Maxps | N::Maxpd | N::Maxss | N::Maxsd)
        || matches!(mnemonic, N::Sqrtps | N::Sqrtpd | N::Sqrtss | N::Sqrtsd)
        || matches!(mnemonic, N::Comiss | N::Comisd | N::Ucomiss | N::Ucomisd)
        || matches!(mnemonic, N::Cvttss2si | N::Cvttsd2si | N::Cvtsi2ss | N::Cvtsi2sd)
        || matches!(mnemonic, N::Cvtss2sd | N::Cvtsd2ss | N::Cvtps2pd | N::Cvtpd2ps)
        || matches!(mnemonic, N::Cvtdq2ps | N::Cvtdq2pd)
}
