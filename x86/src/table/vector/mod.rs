//! SSE to SSE4.2, AVX, AVX2, FMA, F16C and AVX-512, by mnemonic: one entry has the legacy, the VEX and the EVEX form, at
//! every vector length.
//! [`crate::sem::vector`] tells how to add one.
//!
//! MMX is in [`mmx`].

mod auxiliary;
mod float;
mod fused;
mod integer;
mod mmx;
mod moves;
mod opmask;
mod shuffle;

use iced_x86::{Code, Instruction};

use crate::decode;
use crate::machine::{Body, Handler, Machine};
use crate::op::{Loc, Op, Vector};
use crate::sem::vector::{crc, state};

/// The handler and operands of `i`, if it is one of these.
pub(super) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    // MOVSD and CMPSD are also string instructions.
    if i.is_string_instruction() {
        return None;
    }
    // Most of SSE2 has forms on MMX registers.
    if mmx::is_mmx(i) {
        return mmx::lookup(i);
    }
    let mut op = decode::op(i);
    // Comparisons into masks share only their names with the VEX forms.
    if [op.a, op.b].iter().any(|loc| matches!(loc, Loc::Mask(_))) {
        let body = opmask::body(i).or_else(|| float::body(i, &mut op))?;
        return Some((Handler::Body(body), op));
    }
    let body = moves::body(i, &op)
        .or_else(|| integer::body(i))
        .or_else(|| shuffle::body(i, &op))
        .or_else(|| float::body(i, &mut op))
        .or_else(|| other_body(i))?;
    Some((Handler::Body(body), op))
}

/// The handler and operands of `i`, if it is a legacy instruction on vector registers that moves, shuffles or computes, as others of
/// its family do; not those of AVX and later, which are most of the table.
pub(super) fn lookup_legacy<M: Machine>(i: &Instruction) -> Option<(Body<M>, Op)> {
    let mut op = decode::op(i);
    if i.is_string_instruction() || mmx::is_mmx(i) || op.vector != Vector::LEGACY {
        return None;
    }
    let body = moves::whole(i, &op)
        .or_else(|| moves::low(i, &op))
        .or_else(|| integer::lanes_of_two(i))
        .or_else(|| shuffle::legacy(i))
        .or_else(|| float::legacy(i, &mut op))?;
    Some((body, op))
}

fn other_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Crc32_r32_rm8 | Code::Crc32_r64_rm8 => crc::crc32::<M, 8>,
        Code::Crc32_r32_rm16 => crc::crc32::<M, 16>,
        Code::Crc32_r32_rm32 => crc::crc32::<M, 32>,
        Code::Crc32_r64_rm64 => crc::crc32::<M, 64>,
        Code::Ldmxcsr_m32 | Code::VEX_Vldmxcsr_m32 => state::ldmxcsr::<M>,
        Code::Stmxcsr_m32 | Code::VEX_Vstmxcsr_m32 => state::stmxcsr::<M>,
        Code::Fxrstor_m512byte | Code::Fxrstor64_m512byte => state::fxrstor::<M>,
        _ => return None,
    })
}
