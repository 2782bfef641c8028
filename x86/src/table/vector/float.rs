//! Floating point.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::op::{Condition, Loc, Op, Vector};
use crate::sem::vector::convert::{
    self, Between, FromInteger, TRUNCATE, ToInteger, UNSIGNED, into_general, into_low_lane, packed,
};
use crate::sem::vector::float::{self, Double, Half, Single};
use crate::sem::vector::float_masks;

use super::{auxiliary, fused};

/// The handler; some find in `op` a selector.
pub(super) fn body<M: Machine>(i: &Instruction, op: &mut Op) -> Option<Body<M>> {
    between_registers(i, op)
        .or_else(|| arithmetic(i))
        .or_else(|| combinations(i))
        .or_else(|| comparisons(i, op))
        .or_else(|| conversions(i, op))
        .or_else(|| fused::body(i, op))
        .or_else(|| auxiliary::body(i, op))
}

/// The handler of what has legacy forms, but for combinations of lanes.
pub(super) fn legacy<M: Machine>(i: &Instruction, op: &mut Op) -> Option<Body<M>> {
    arithmetic(i).or_else(|| comparisons(i, op)).or_else(|| conversions(i, op))
}

/// Matches the four forms of an arithmetic instruction, legacy and VEX.
macro_rules! four_forms {
    ($i:expr, $packed:ident, $scalar:ident, $($ps:ident $vps:ident $pd:ident $vpd:ident $ss:ident $vss:ident $sd:ident $vsd:ident
        => $operation:ident;)*) => {
        match $i.mnemonic() {
            $(
                N::$ps | N::$vps => Some(float::$packed::<M, Single, float::$operation> as Body<M>),
                N::$pd | N::$vpd => Some(float::$packed::<M, Double, float::$operation> as Body<M>),
                N::$ss | N::$vss => Some(float::$scalar::<M, Single, float::$operation> as Body<M>),
                N::$sd | N::$vsd => Some(float::$scalar::<M, Double, float::$operation> as Body<M>),
            )*
            _ => None,
        }
    };
}

macro_rules! operations {
    ($i:expr, $packed:ident, $scalar:ident) => {
        four_forms!($i, $packed, $scalar,
            Addps Vaddps Addpd Vaddpd Addss Vaddss Addsd Vaddsd => Add;
            Subps Vsubps Subpd Vsubpd Subss Vsubss Subsd Vsubsd => Sub;
            Mulps Vmulps Mulpd Vmulpd Mulss Vmulss Mulsd Vmulsd => Mul;
            Divps Vdivps Divpd Vdivpd Divss Vdivss Divsd Vdivsd => Div;
            Minps Vminps Minpd Vminpd Minss Vminss Minsd Vminsd => Min;
            Maxps Vmaxps Maxpd Vmaxpd Maxss Vmaxss Maxsd Vmaxsd => Max;
        )
    };
}

macro_rules! roots {
    ($i:expr, $packed:ident, $scalar:ident) => {
        four_forms!($i, $packed, $scalar,
            Sqrtps Vsqrtps Sqrtpd Vsqrtpd Sqrtss Vsqrtss Sqrtsd Vsqrtsd => Sqrt;
        )
    };
}

fn arithmetic<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    operations!(i, packed, scalar).or_else(|| roots!(i, packed_unary, scalar))
}

/// Legacy instructions between registers, whose shape their handlers know.
fn between_registers<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    if op.vector != Vector::LEGACY || !matches!(op.a, Loc::Vector(_)) {
        return None;
    }
    if matches!(op.b, Loc::Reg(_)) {
        return Some(match (i.mnemonic(), i.op1_register().is_gpr64()) {
            (N::Cvtsi2ss, false) => convert::from_register::<M, FromInteger<Single, 32>>,
            (N::Cvtsi2ss, true) => convert::from_register::<M, FromInteger<Single, 64>>,
            (N::Cvtsi2sd, false) => convert::from_register::<M, FromInteger<Double, 32>>,
            (N::Cvtsi2sd, true) => convert::from_register::<M, FromInteger<Double, 64>>,
            _ => return None,
        });
    }
    if !matches!(op.b, Loc::Vector(_)) {
        return None;
    }
    operations!(i, packed_registers, scalar_registers)
        .or_else(|| roots!(i, packed_unary_registers, scalar_registers))
        .or_else(|| {
            Some(match i.mnemonic() {
                N::Comiss => float::compare_registers::<M, Single, true>,
                N::Comisd => float::compare_registers::<M, Double, true>,
                N::Ucomiss => float::compare_registers::<M, Single, false>,
                N::Ucomisd => float::compare_registers::<M, Double, false>,
                N::Cvtss2sd => convert::low_lane_registers::<M, Between<Single, Double>>,
                N::Cvtsd2ss => convert::low_lane_registers::<M, Between<Double, Single>>,
                N::Cvtps2pd => convert::packed_registers::<M, Between<Single, Double>>,
                N::Cvtpd2ps => convert::packed_registers::<M, Between<Double, Single>>,
                _ => return None,
            })
        })
}

fn combinations<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Haddps | N::Vhaddps => float::horizontal::<M, Single, float::Add>,
        N::Haddpd | N::Vhaddpd => float::horizontal::<M, Double, float::Add>,
        N::Hsubps | N::Vhsubps => float::horizontal::<M, Single, float::Sub>,
        N::Hsubpd | N::Vhsubpd => float::horizontal::<M, Double, float::Sub>,
        N::Addsubps | N::Vaddsubps => float::alternate::<M, Single>,
        N::Addsubpd | N::Vaddsubpd => float::alternate::<M, Double>,
        N::Dpps | N::Vdpps => float::dot_product::<M, Single>,
        N::Dppd | N::Vdppd => float::dot_product::<M, Double>,
        _ => return None,
    })
}

fn comparisons<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let to_mask = matches!(op.a, Loc::Mask(_));
    Some(match i.mnemonic() {
        N::Vcmpps if to_mask => float_masks::compare_packed::<M, Single>,
        N::Vcmppd if to_mask => float_masks::compare_packed::<M, Double>,
        N::Vcmpss if to_mask => float_masks::compare_scalar::<M, Single>,
        N::Vcmpsd if to_mask => float_masks::compare_scalar::<M, Double>,
        N::Cmpps | N::Vcmpps => float::compare_packed::<M, Single>,
        N::Cmppd | N::Vcmppd => float::compare_packed::<M, Double>,
        N::Cmpss | N::Vcmpss => float::compare_scalar::<M, Single>,
        N::Cmpsd | N::Vcmpsd => float::compare_scalar::<M, Double>,
        N::Comiss | N::Vcomiss => float::compare_to_flags::<M, Single, true>,
        N::Comisd | N::Vcomisd => float::compare_to_flags::<M, Double, true>,
        N::Ucomiss | N::Vucomiss => float::compare_to_flags::<M, Single, false>,
        N::Ucomisd | N::Vucomisd => float::compare_to_flags::<M, Double, false>,
        _ => return None,
    })
}

fn conversions<M: Machine>(i: &Instruction, op: &mut Op) -> Option<Body<M>> {
    let body =
        rounding(i).or_else(|| to_integer(i)).or_else(|| from_integer(i)).or_else(|| between_formats(i))?;
    let (truncate, unsigned) = (truncates(i.mnemonic()), is_unsigned(i.mnemonic()));
    op.cc = Condition(if truncate { TRUNCATE } else { 0 } | if unsigned { UNSIGNED } else { 0 });
    Some(body)
}

fn truncates(mnemonic: N) -> bool {
    matches!(
        mnemonic,
        N::Cvttss2si | N::Vcvttss2si | N::Cvttsd2si | N::Vcvttsd2si | N::Vcvttss2usi | N::Vcvttsd2usi
    ) || matches!(mnemonic, N::Cvttps2dq | N::Vcvttps2dq | N::Cvttpd2dq | N::Vcvttpd2dq)
        || matches!(mnemonic, N::Vcvttps2udq | N::Vcvttpd2udq | N::Vcvttps2qq | N::Vcvttpd2qq)
        || matches!(mnemonic, N::Vcvttps2uqq | N::Vcvttpd2uqq)
}

fn is_unsigned(mnemonic: N) -> bool {
    matches!(mnemonic, N::Vcvtss2usi | N::Vcvtsd2usi | N::Vcvttss2usi | N::Vcvttsd2usi)
        || matches!(mnemonic, N::Vcvtusi2ss | N::Vcvtusi2sd | N::Vcvtudq2ps | N::Vcvtudq2pd)
        || matches!(mnemonic, N::Vcvtuqq2ps | N::Vcvtuqq2pd | N::Vcvtps2udq | N::Vcvtpd2udq)
        || matches!(mnemonic, N::Vcvttps2udq | N::Vcvttpd2udq | N::Vcvtps2uqq | N::Vcvtpd2uqq)
        || matches!(mnemonic, N::Vcvttps2uqq | N::Vcvttpd2uqq)
}

fn to_integer<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    let to_64 = i.op0_register().is_gpr64();
    Some(match i.mnemonic() {
        N::Cvtss2si | N::Vcvtss2si | N::Cvttss2si | N::Vcvttss2si | N::Vcvtss2usi | N::Vcvttss2usi => {
            if to_64 {
                into_general::<M, ToInteger<Single, 64>>
            } else {
                into_general::<M, ToInteger<Single, 32>>
            }
        }
        N::Cvtsd2si | N::Vcvtsd2si | N::Cvttsd2si | N::Vcvttsd2si | N::Vcvtsd2usi | N::Vcvttsd2usi => {
            if to_64 {
                into_general::<M, ToInteger<Double, 64>>
            } else {
                into_general::<M, ToInteger<Double, 32>>
            }
        }
        N::Cvtps2dq | N::Vcvtps2dq | N::Cvttps2dq | N::Vcvttps2dq | N::Vcvtps2udq | N::Vcvttps2udq => {
            packed::<M, ToInteger<Single, 32>>
        }
        N::Cvtpd2dq | N::Vcvtpd2dq | N::Cvttpd2dq | N::Vcvttpd2dq | N::Vcvtpd2udq | N::Vcvttpd2udq => {
            packed::<M, ToInteger<Double, 32>>
        }
        N::Vcvtps2qq | N::Vcvttps2qq | N::Vcvtps2uqq | N::Vcvttps2uqq => packed::<M, ToInteger<Single, 64>>,
        N::Vcvtpd2qq | N::Vcvttpd2qq | N::Vcvtpd2uqq | N::Vcvttpd2uqq => packed::<M, ToInteger<Double, 64>>,
        _ => return None,
    })
}

fn from_integer<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    // Where one mnemonic has a 32-bit and a 64-bit integer, it is the last operand.
    let last = i.op_count().saturating_sub(1);
    let from_64 = i.op_register(last).is_gpr64() || i.memory_size().size() == 8;
    Some(match i.mnemonic() {
        N::Cvtsi2ss | N::Vcvtsi2ss | N::Vcvtusi2ss if from_64 => into_low_lane::<M, FromInteger<Single, 64>>,
        N::Cvtsi2ss | N::Vcvtsi2ss | N::Vcvtusi2ss => into_low_lane::<M, FromInteger<Single, 32>>,
        N::Cvtsi2sd | N::Vcvtsi2sd | N::Vcvtusi2sd if from_64 => into_low_lane::<M, FromInteger<Double, 64>>,
        N::Cvtsi2sd | N::Vcvtsi2sd | N::Vcvtusi2sd => into_low_lane::<M, FromInteger<Double, 32>>,
        N::Cvtdq2ps | N::Vcvtdq2ps | N::Vcvtudq2ps => packed::<M, FromInteger<Single, 32>>,
        N::Cvtdq2pd | N::Vcvtdq2pd | N::Vcvtudq2pd => packed::<M, FromInteger<Double, 32>>,
        N::Vcvtqq2ps | N::Vcvtuqq2ps => packed::<M, FromInteger<Single, 64>>,
        N::Vcvtqq2pd | N::Vcvtuqq2pd => packed::<M, FromInteger<Double, 64>>,
        _ => return None,
    })
}

fn between_formats<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Cvtss2sd | N::Vcvtss2sd => into_low_lane::<M, Between<Single, Double>>,
        N::Cvtsd2ss | N::Vcvtsd2ss => into_low_lane::<M, Between<Double, Single>>,
        N::Cvtps2pd | N::Vcvtps2pd => packed::<M, Between<Single, Double>>,
        N::Cvtpd2ps | N::Vcvtpd2ps => packed::<M, Between<Double, Single>>,
        N::Vcvtph2ps => packed::<M, Between<Half, Single>>,
        N::Vcvtps2ph => convert::to_halves::<M>,
        _ => return None,
    })
}

fn rounding<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Roundps | N::Vroundps => convert::round_packed::<M, Single>,
        N::Roundpd | N::Vroundpd => convert::round_packed::<M, Double>,
        N::Roundss | N::Vroundss => convert::round_scalar::<M, Single>,
        N::Roundsd | N::Vroundsd => convert::round_scalar::<M, Double>,
        _ => return None,
    })
}
