//! The vector instructions that a compiler of blocks writes code for, in their legacy encoding: what programs for x86-64-v2
//! move, compare and compute with. The same functions as in [`super::vector`], and few of them, since each is compiled once more
//! for the machine that writes code.

use iced_x86::{Instruction, Mnemonic as N};

use crate::decode;
use crate::machine::{Body, Machine};
use crate::op::{Condition, Loc, Op, Vector};
use crate::sem::vector::convert::{
    Between, FromInteger, TRUNCATE, ToInteger, into_general, into_low_lane, packed,
};
use crate::sem::vector::float::{self, Double, Single};
use crate::sem::vector::lanes::{self, lanes as each};
use crate::sem::vector::shift::{self, Arithmetic, Left, Right};
use crate::sem::vector::{moves, shuffle};

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
    let is_vector = |n| i.op_register(n).is_xmm();
    if i.is_string_instruction() || !(0..i.op_count()).any(is_vector) {
        return None;
    }
    let mut op = decode::op(i);
    if op.vector != Vector::LEGACY {
        return None;
    }
    let plain = whole(i, &op)
        .or_else(|| low(i, &op))
        .or_else(|| integers(i))
        .or_else(|| shifts(i))
        .or_else(|| places(i));
    if let Some(body) = plain {
        return Some(Compiled { body, op, is_float: false });
    }
    let body = floats(i).or_else(|| conversions(i, &mut op))?;
    Some(Compiled { body, op, is_float: true })
}

fn whole<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let aligned = match i.mnemonic() {
        N::Movdqa | N::Movaps | N::Movapd | N::Movntdq | N::Movntps | N::Movntpd => true,
        N::Movdqu | N::Movups | N::Movupd | N::Lddqu => false,
        _ => return None,
    };
    Some(match (op.a, op.b, aligned) {
        (Loc::Mem, _, true) => moves::store::<M, 1, true>,
        (Loc::Mem, _, false) => moves::store::<M, 1, false>,
        (_, Loc::Mem, true) => moves::load::<M, 1, true>,
        (_, Loc::Mem, false) => moves::load::<M, 1, false>,
        _ => moves::copy::<M, 1>,
    })
}

fn low<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let between_registers = matches!((op.a, op.b), (Loc::Vector(_), Loc::Vector(_)));
    Some(match i.mnemonic() {
        N::Movss if between_registers => moves::merge_low::<M, 32>,
        N::Movsd if between_registers => moves::merge_low::<M, 64>,
        N::Movss | N::Movd => moves::low::<M, 32>,
        N::Movsd | N::Movq => moves::low::<M, 64>,
        N::Movlps | N::Movlpd => moves::half::<M, 0, 0>,
        N::Movhps | N::Movhpd => moves::half::<M, 1, 1>,
        N::Movhlps => moves::half::<M, 0, 1>,
        N::Movlhps => moves::half::<M, 1, 0>,
        N::Pmovmskb => moves::sign_mask::<M, 8>,
        N::Movmskps => moves::sign_mask::<M, 32>,
        N::Movmskpd => moves::sign_mask::<M, 64>,
        _ => return None,
    })
}

fn integers<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Paddb => each::<M, lanes::Add<8>>,
        N::Paddw => each::<M, lanes::Add<16>>,
        N::Paddd => each::<M, lanes::Add<32>>,
        N::Paddq => each::<M, lanes::Add<64>>,
        N::Psubb => each::<M, lanes::Sub<8>>,
        N::Psubw => each::<M, lanes::Sub<16>>,
        N::Psubd => each::<M, lanes::Sub<32>>,
        N::Psubq => each::<M, lanes::Sub<64>>,
        N::Pmullw => each::<M, lanes::MulLow<16>>,
        N::Pmulld => each::<M, lanes::MulLow<32>>,
        N::Pand | N::Andpd | N::Andps => each::<M, lanes::And<64>>,
        N::Pandn | N::Andnpd | N::Andnps => each::<M, lanes::AndNot<64>>,
        N::Por | N::Orpd | N::Orps => each::<M, lanes::Or<64>>,
        N::Pxor | N::Xorpd | N::Xorps => each::<M, lanes::Xor<64>>,
        N::Pcmpeqb => each::<M, lanes::Equal<8>>,
        N::Pcmpeqw => each::<M, lanes::Equal<16>>,
        N::Pcmpeqd => each::<M, lanes::Equal<32>>,
        N::Pcmpeqq => each::<M, lanes::Equal<64>>,
        N::Pcmpgtb => each::<M, lanes::Greater<8>>,
        N::Pcmpgtw => each::<M, lanes::Greater<16>>,
        N::Pcmpgtd => each::<M, lanes::Greater<32>>,
        N::Pminub => each::<M, lanes::MinUnsigned<8>>,
        N::Pmaxub => each::<M, lanes::MaxUnsigned<8>>,
        N::Pminsw => each::<M, lanes::MinSigned<16>>,
        N::Pmaxsw => each::<M, lanes::MaxSigned<16>>,
        _ => return None,
    })
}

fn shifts<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    // The amount in a register is seldom met.
    if i.op_kind(i.op_count() - 1) != iced_x86::OpKind::Immediate8 {
        return None;
    }
    Some(match i.mnemonic() {
        N::Psllw => shift::lanes::<M, Left, 16>,
        N::Pslld => shift::lanes::<M, Left, 32>,
        N::Psllq => shift::lanes::<M, Left, 64>,
        N::Psrlw => shift::lanes::<M, Right, 16>,
        N::Psrld => shift::lanes::<M, Right, 32>,
        N::Psrlq => shift::lanes::<M, Right, 64>,
        N::Psraw => shift::lanes::<M, Arithmetic, 16>,
        N::Psrad => shift::lanes::<M, Arithmetic, 32>,
        N::Pslldq => shift::bytes::<M, true>,
        N::Psrldq => shift::bytes::<M, false>,
        N::Palignr => shift::align_right::<M>,
        _ => return None,
    })
}

fn places<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Punpcklbw => shuffle::interleave::<M, 8, false>,
        N::Punpcklwd => shuffle::interleave::<M, 16, false>,
        N::Punpckldq | N::Unpcklps => shuffle::interleave::<M, 32, false>,
        N::Punpcklqdq | N::Unpcklpd => shuffle::interleave::<M, 64, false>,
        N::Punpckhbw => shuffle::interleave::<M, 8, true>,
        N::Punpckhwd => shuffle::interleave::<M, 16, true>,
        N::Punpckhdq | N::Unpckhps => shuffle::interleave::<M, 32, true>,
        N::Punpckhqdq | N::Unpckhpd => shuffle::interleave::<M, 64, true>,
        N::Pshufd => shuffle::doublewords::<M>,
        N::Pshuflw => shuffle::words::<M, false>,
        N::Pshufhw => shuffle::words::<M, true>,
        N::Shufps => shuffle::singles::<M>,
        N::Shufpd => shuffle::doubles::<M>,
        N::Pextrb => shuffle::extract::<M, 8>,
        N::Pextrw => shuffle::extract::<M, 16>,
        N::Pextrd | N::Extractps => shuffle::extract::<M, 32>,
        N::Pextrq => shuffle::extract::<M, 64>,
        N::Pinsrd => shuffle::insert::<M, 32>,
        N::Pinsrq => shuffle::insert::<M, 64>,
        _ => return None,
    })
}

/// Matches the four forms of an arithmetic instruction.
macro_rules! four_forms {
    ($i:expr, $($ps:ident $pd:ident $ss:ident $sd:ident => $packed:ident $scalar:ident $operation:ident;)*) => {
        match $i.mnemonic() {
            $(
                N::$ps => Some(float::$packed::<M, Single, float::$operation> as Body<M>),
                N::$pd => Some(float::$packed::<M, Double, float::$operation> as Body<M>),
                N::$ss => Some(float::$scalar::<M, Single, float::$operation> as Body<M>),
                N::$sd => Some(float::$scalar::<M, Double, float::$operation> as Body<M>),
            )*
            N::Comiss => Some(float::compare_to_flags::<M, Single, true> as Body<M>),
            N::Comisd => Some(float::compare_to_flags::<M, Double, true> as Body<M>),
            N::Ucomiss => Some(float::compare_to_flags::<M, Single, false> as Body<M>),
            N::Ucomisd => Some(float::compare_to_flags::<M, Double, false> as Body<M>),
            _ => None,
        }
    };
}

fn floats<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    four_forms!(i,
        Addps Addpd Addss Addsd => packed scalar Add;
        Subps Subpd Subss Subsd => packed scalar Sub;
        Mulps Mulpd Mulss Mulsd => packed scalar Mul;
        Divps Divpd Divss Divsd => packed scalar Div;
        Minps Minpd Minss Minsd => packed scalar Min;
        Maxps Maxpd Maxss Maxsd => packed scalar Max;
        Sqrtps Sqrtpd Sqrtss Sqrtsd => packed_unary scalar Sqrt;
    )
}

fn conversions<M: Machine>(i: &Instruction, op: &mut Op) -> Option<Body<M>> {
    let to_64 = i.op0_register().is_gpr64();
    let from_64 = i.op1_register().is_gpr64() || i.memory_size().size() == 8;
    if matches!(i.mnemonic(), N::Cvttss2si | N::Cvttsd2si) {
        op.cc = Condition(TRUNCATE);
    }
    Some(match i.mnemonic() {
        N::Cvttss2si if to_64 => into_general::<M, ToInteger<Single, 64>>,
        N::Cvttss2si => into_general::<M, ToInteger<Single, 32>>,
        N::Cvttsd2si if to_64 => into_general::<M, ToInteger<Double, 64>>,
        N::Cvttsd2si => into_general::<M, ToInteger<Double, 32>>,
        N::Cvtsi2ss if from_64 => into_low_lane::<M, FromInteger<Single, 64>>,
        N::Cvtsi2ss => into_low_lane::<M, FromInteger<Single, 32>>,
        N::Cvtsi2sd if from_64 => into_low_lane::<M, FromInteger<Double, 64>>,
        N::Cvtsi2sd => into_low_lane::<M, FromInteger<Double, 32>>,
        N::Cvtdq2ps => packed::<M, FromInteger<Single, 32>>,
        N::Cvtdq2pd => packed::<M, FromInteger<Double, 32>>,
        N::Cvtss2sd => into_low_lane::<M, Between<Single, Double>>,
        N::Cvtsd2ss => into_low_lane::<M, Between<Double, Single>>,
        N::Cvtps2pd => packed::<M, Between<Single, Double>>,
        N::Cvtpd2ps => packed::<M, Between<Double, Single>>,
        _ => return None,
    })
}
