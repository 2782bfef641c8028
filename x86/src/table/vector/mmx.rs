//! MMX, and what SSE, SSE2 and SSSE3 added on its registers.

use iced_x86::{Instruction, Mnemonic as N};

use crate::decode;
use crate::machine::{Body, Handler, Machine};
use crate::op::{Condition, Op};
use crate::sem::vector::convert::{FromInteger, TRUNCATE, ToInteger};
use crate::sem::vector::float::{Double, Single};
use crate::sem::vector::lanes;
use crate::sem::vector::mmx::{self, horizontal, lanes as each, shift};
use crate::sem::vector::shift::{Arithmetic, Left, Right};

/// Whether `i` has an MMX register, or another form of it has.
pub(super) fn is_mmx(i: &Instruction) -> bool {
    let has_register = (0..i.op_count()).any(|n| i.op_register(n).is_mm());
    has_register || matches!(i.mnemonic(), N::Emms | N::Cvtpi2ps | N::Cvtpi2pd)
}

/// The handler and operands of `i`, which [`is_mmx`].
pub(super) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    let mut op = decode::op(i);
    if matches!(i.mnemonic(), N::Cvttps2pi | N::Cvttpd2pi) {
        op.cc = Condition(TRUNCATE);
    }
    let body = arithmetic(i)
        .or_else(|| multiplication(i))
        .or_else(|| comparison(i))
        .or_else(|| shifts(i))
        .or_else(|| places(i))
        .or_else(|| moves(i))
        .or_else(|| conversions(i))?;
    Some((Handler::Body(body), op))
}

fn arithmetic<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Paddb => each::<M, lanes::Add<8>>,
        N::Paddw => each::<M, lanes::Add<16>>,
        N::Paddd => each::<M, lanes::Add<32>>,
        N::Paddq => each::<M, lanes::Add<64>>,
        N::Psubb => each::<M, lanes::Sub<8>>,
        N::Psubw => each::<M, lanes::Sub<16>>,
        N::Psubd => each::<M, lanes::Sub<32>>,
        N::Psubq => each::<M, lanes::Sub<64>>,
        N::Paddsb => each::<M, lanes::AddSigned<8>>,
        N::Paddsw => each::<M, lanes::AddSigned<16>>,
        N::Psubsb => each::<M, lanes::SubSigned<8>>,
        N::Psubsw => each::<M, lanes::SubSigned<16>>,
        N::Paddusb => each::<M, lanes::AddUnsigned<8>>,
        N::Paddusw => each::<M, lanes::AddUnsigned<16>>,
        N::Psubusb => each::<M, lanes::SubUnsigned<8>>,
        N::Psubusw => each::<M, lanes::SubUnsigned<16>>,
        N::Pand => each::<M, lanes::And<64>>,
        N::Pandn => each::<M, lanes::AndNot<64>>,
        N::Por => each::<M, lanes::Or<64>>,
        N::Pxor => each::<M, lanes::Xor<64>>,
        N::Pavgb => each::<M, lanes::Average<8>>,
        N::Pavgw => each::<M, lanes::Average<16>>,
        N::Pabsb => each::<M, lanes::Absolute<8>>,
        N::Pabsw => each::<M, lanes::Absolute<16>>,
        N::Pabsd => each::<M, lanes::Absolute<32>>,
        N::Psignb => each::<M, lanes::Sign<8>>,
        N::Psignw => each::<M, lanes::Sign<16>>,
        N::Psignd => each::<M, lanes::Sign<32>>,
        N::Phaddw => horizontal::<M, lanes::Add<16>>,
        N::Phaddd => horizontal::<M, lanes::Add<32>>,
        N::Phaddsw => horizontal::<M, lanes::AddSigned<16>>,
        N::Phsubw => horizontal::<M, lanes::Sub<16>>,
        N::Phsubd => horizontal::<M, lanes::Sub<32>>,
        N::Phsubsw => horizontal::<M, lanes::SubSigned<16>>,
        N::Psadbw => each::<M, lanes::SumOfDifferences<64>>,
        _ => return None,
    })
}

fn multiplication<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Pmullw => each::<M, lanes::MulLow<16>>,
        N::Pmulhw => each::<M, lanes::MulHighSigned<16>>,
        N::Pmulhuw => each::<M, lanes::MulHighUnsigned<16>>,
        N::Pmulhrsw => each::<M, lanes::MulRound<16>>,
        N::Pmuludq => each::<M, lanes::MulWideUnsigned<64>>,
        N::Pmaddwd => each::<M, lanes::MulAdd<32>>,
        N::Pmaddubsw => each::<M, lanes::MulAddUnsigned<16>>,
        _ => return None,
    })
}

fn comparison<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Pcmpeqb => each::<M, lanes::Equal<8>>,
        N::Pcmpeqw => each::<M, lanes::Equal<16>>,
        N::Pcmpeqd => each::<M, lanes::Equal<32>>,
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
    Some(match i.mnemonic() {
        N::Psllw => shift::<M, Left, 16>,
        N::Pslld => shift::<M, Left, 32>,
        N::Psllq => shift::<M, Left, 64>,
        N::Psrlw => shift::<M, Right, 16>,
        N::Psrld => shift::<M, Right, 32>,
        N::Psrlq => shift::<M, Right, 64>,
        N::Psraw => shift::<M, Arithmetic, 16>,
        N::Psrad => shift::<M, Arithmetic, 32>,
        N::Palignr => mmx::align_right::<M>,
        _ => return None,
    })
}

fn places<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Punpcklbw => mmx::interleave::<M, 8, false>,
        N::Punpcklwd => mmx::interleave::<M, 16, false>,
        N::Punpckldq => mmx::interleave::<M, 32, false>,
        N::Punpckhbw => mmx::interleave::<M, 8, true>,
        N::Punpckhwd => mmx::interleave::<M, 16, true>,
        N::Punpckhdq => mmx::interleave::<M, 32, true>,
        N::Packsswb => mmx::narrow::<M, 8, true>,
        N::Packuswb => mmx::narrow::<M, 8, false>,
        N::Packssdw => mmx::narrow::<M, 16, true>,
        N::Pshufb => mmx::shuffle_bytes::<M>,
        N::Pshufw => mmx::shuffle_words::<M>,
        N::Pinsrw => mmx::insert::<M>,
        N::Pextrw => mmx::extract::<M>,
        _ => return None,
    })
}

fn moves<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Movd => mmx::copy::<M, 32>,
        N::Movq | N::Movntq | N::Movdq2q | N::Movq2dq => mmx::copy::<M, 64>,
        N::Pmovmskb => mmx::sign_mask::<M>,
        N::Maskmovq => mmx::masked_store::<M>,
        N::Emms => mmx::empty::<M>,
        _ => return None,
    })
}

fn conversions<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Cvtpi2ps => mmx::into_floats::<M, FromInteger<Single, 32>>,
        N::Cvtpi2pd => mmx::into_floats::<M, FromInteger<Double, 32>>,
        N::Cvtps2pi | N::Cvttps2pi => mmx::into_integers::<M, ToInteger<Single, 32>>,
        N::Cvtpd2pi | N::Cvttpd2pi => mmx::into_integers::<M, ToInteger<Double, 32>>,
        _ => return None,
    })
}
