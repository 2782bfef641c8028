//! Numbers taken apart, scaled, chosen, approximated and classified.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::op::{Condition, Op};
use crate::opaque::Approximation::{Reciprocal, Reciprocal14, ReciprocalRoot, ReciprocalRoot14};
use crate::opaque::Auxiliary::{self, Approximate, Exponent, Range, Reduce, RoundScale, Scale, Significand};
use crate::sem::vector::auxiliary::{fix_up_packed, fix_up_scalar, packed, scalar, selector};
use crate::sem::vector::float::{Double, Single};
use crate::sem::vector::float_masks::{classify_packed, classify_scalar};

/// Matches the four forms of an operation.
macro_rules! four_forms {
    ($i:expr, $($ps:ident $pd:ident $ss:ident $sd:ident => $operation:expr;)*) => {
        match $i.mnemonic() {
            $(
                N::$ps => ($operation, packed::<M, Single> as Body<M>),
                N::$pd => ($operation, packed::<M, Double> as Body<M>),
                N::$ss => ($operation, scalar::<M, Single> as Body<M>),
                N::$sd => ($operation, scalar::<M, Double> as Body<M>),
            )*
            N::Rcpps | N::Vrcpps => (Approximate(Reciprocal), packed::<M, Single> as Body<M>),
            N::Rcpss | N::Vrcpss => (Approximate(Reciprocal), scalar::<M, Single> as Body<M>),
            N::Rsqrtps | N::Vrsqrtps => (Approximate(ReciprocalRoot), packed::<M, Single> as Body<M>),
            N::Rsqrtss | N::Vrsqrtss => (Approximate(ReciprocalRoot), scalar::<M, Single> as Body<M>),
            _ => return classes($i),
        }
    };
}

/// The handler, which finds the operation in `op`.
pub(super) fn body<M: Machine>(i: &Instruction, op: &mut Op) -> Option<Body<M>> {
    let (operation, body): (Auxiliary, Body<M>) = four_forms!(i,
        Vrndscaleps Vrndscalepd Vrndscaless Vrndscalesd => RoundScale;
        Vreduceps Vreducepd Vreducess Vreducesd => Reduce;
        Vgetexpps Vgetexppd Vgetexpss Vgetexpsd => Exponent;
        Vgetmantps Vgetmantpd Vgetmantss Vgetmantsd => Significand;
        Vscalefps Vscalefpd Vscalefss Vscalefsd => Scale;
        Vrangeps Vrangepd Vrangess Vrangesd => Range;
        Vrcp14ps Vrcp14pd Vrcp14ss Vrcp14sd => Approximate(Reciprocal14);
        Vrsqrt14ps Vrsqrt14pd Vrsqrt14ss Vrsqrt14sd => Approximate(ReciprocalRoot14);
    );
    op.cc = Condition(selector(operation));
    Some(body)
}

fn classes<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Vfixupimmps => fix_up_packed::<M, Single>,
        N::Vfixupimmpd => fix_up_packed::<M, Double>,
        N::Vfixupimmss => fix_up_scalar::<M, Single>,
        N::Vfixupimmsd => fix_up_scalar::<M, Double>,
        N::Vfpclassps => classify_packed::<M, Single>,
        N::Vfpclasspd => classify_packed::<M, Double>,
        N::Vfpclassss => classify_scalar::<M, Single>,
        N::Vfpclasssd => classify_scalar::<M, Double>,
        _ => return None,
    })
}
