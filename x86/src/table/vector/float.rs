//! Floating point.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::sem::vector::convert::{
    self, FromInteger, Narrow, ToInteger, Widen, into_general, into_low_lane, packed,
};
use crate::sem::vector::float::{self, Double, Single};

pub(super) fn body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    arithmetic(i).or_else(|| combinations(i)).or_else(|| comparisons(i)).or_else(|| conversions(i))
}

/// Matches the four forms of an arithmetic instruction, legacy and VEX.
macro_rules! four_forms {
    ($i:expr, $packed:ident, $($ps:ident $vps:ident $pd:ident $vpd:ident $ss:ident $vss:ident $sd:ident $vsd:ident
        => $operation:ident;)*) => {
        match $i.mnemonic() {
            $(
                N::$ps | N::$vps => Some(float::$packed::<M, Single, float::$operation> as Body<M>),
                N::$pd | N::$vpd => Some(float::$packed::<M, Double, float::$operation> as Body<M>),
                N::$ss | N::$vss => Some(float::scalar::<M, Single, float::$operation> as Body<M>),
                N::$sd | N::$vsd => Some(float::scalar::<M, Double, float::$operation> as Body<M>),
            )*
            _ => None,
        }
    };
}

fn arithmetic<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    four_forms!(i, packed,
        Addps Vaddps Addpd Vaddpd Addss Vaddss Addsd Vaddsd => Add;
        Subps Vsubps Subpd Vsubpd Subss Vsubss Subsd Vsubsd => Sub;
        Mulps Vmulps Mulpd Vmulpd Mulss Vmulss Mulsd Vmulsd => Mul;
        Divps Vdivps Divpd Vdivpd Divss Vdivss Divsd Vdivsd => Div;
        Minps Vminps Minpd Vminpd Minss Vminss Minsd Vminsd => Min;
        Maxps Vmaxps Maxpd Vmaxpd Maxss Vmaxss Maxsd Vmaxsd => Max;
    )
    .or_else(|| {
        four_forms!(i, packed_unary,
            Sqrtps Vsqrtps Sqrtpd Vsqrtpd Sqrtss Vsqrtss Sqrtsd Vsqrtsd => Sqrt;
        )
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

fn comparisons<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
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

fn conversions<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    // Where one mnemonic has a 32-bit and a 64-bit integer, it is the last operand of one, the first of the other.
    let last = i.op_count().saturating_sub(1);
    let from_64 = i.op_register(last).is_gpr64() || i.memory_size().size() == 8;
    let to_64 = i.op0_register().is_gpr64();
    Some(match i.mnemonic() {
        N::Cvtsi2ss | N::Vcvtsi2ss if from_64 => into_low_lane::<M, FromInteger<Single, 64>>,
        N::Cvtsi2ss | N::Vcvtsi2ss => into_low_lane::<M, FromInteger<Single, 32>>,
        N::Cvtsi2sd | N::Vcvtsi2sd if from_64 => into_low_lane::<M, FromInteger<Double, 64>>,
        N::Cvtsi2sd | N::Vcvtsi2sd => into_low_lane::<M, FromInteger<Double, 32>>,
        N::Cvtss2sd | N::Vcvtss2sd => into_low_lane::<M, Widen>,
        N::Cvtsd2ss | N::Vcvtsd2ss => into_low_lane::<M, Narrow>,
        N::Cvtss2si | N::Vcvtss2si if to_64 => into_general::<M, ToInteger<Single, 64, false>>,
        N::Cvtss2si | N::Vcvtss2si => into_general::<M, ToInteger<Single, 32, false>>,
        N::Cvtsd2si | N::Vcvtsd2si if to_64 => into_general::<M, ToInteger<Double, 64, false>>,
        N::Cvtsd2si | N::Vcvtsd2si => into_general::<M, ToInteger<Double, 32, false>>,
        N::Cvttss2si | N::Vcvttss2si if to_64 => into_general::<M, ToInteger<Single, 64, true>>,
        N::Cvttss2si | N::Vcvttss2si => into_general::<M, ToInteger<Single, 32, true>>,
        N::Cvttsd2si | N::Vcvttsd2si if to_64 => into_general::<M, ToInteger<Double, 64, true>>,
        N::Cvttsd2si | N::Vcvttsd2si => into_general::<M, ToInteger<Double, 32, true>>,
        N::Cvtps2pd | N::Vcvtps2pd => packed::<M, Widen>,
        N::Cvtpd2ps | N::Vcvtpd2ps => packed::<M, Narrow>,
        N::Cvtdq2ps | N::Vcvtdq2ps => packed::<M, FromInteger<Single, 32>>,
        N::Cvtdq2pd | N::Vcvtdq2pd => packed::<M, FromInteger<Double, 32>>,
        N::Cvtps2dq | N::Vcvtps2dq => packed::<M, ToInteger<Single, 32, false>>,
        N::Cvttps2dq | N::Vcvttps2dq => packed::<M, ToInteger<Single, 32, true>>,
        N::Cvtpd2dq | N::Vcvtpd2dq => packed::<M, ToInteger<Double, 32, false>>,
        N::Cvttpd2dq | N::Vcvttpd2dq => packed::<M, ToInteger<Double, 32, true>>,
        N::Roundps | N::Vroundps => convert::round_packed::<M, Single>,
        N::Roundpd | N::Vroundpd => convert::round_packed::<M, Double>,
        N::Roundss | N::Vroundss => convert::round_scalar::<M, Single>,
        N::Roundsd | N::Vroundsd => convert::round_scalar::<M, Double>,
        _ => return None,
    })
}
