//! Moves.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::op::{Encoding, Loc, Op};
use crate::sem::vector::{masked, moves};

pub(super) fn body<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    whole(i, op).or_else(|| low(i, op)).or_else(|| elements(i, op))
}

pub(super) fn whole<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let (masked, aligned): (Body<M>, bool) = match i.mnemonic() {
        N::Movdqa | N::Vmovdqa | N::Movntdq | N::Vmovntdq | N::Movntdqa | N::Vmovntdqa => {
            (moves::masked::<M, 64, true>, true)
        }
        N::Movaps | N::Vmovaps | N::Movntps | N::Vmovntps | N::Vmovdqa32 => {
            (moves::masked::<M, 32, true>, true)
        }
        N::Movapd | N::Vmovapd | N::Movntpd | N::Vmovntpd | N::Vmovdqa64 => {
            (moves::masked::<M, 64, true>, true)
        }
        N::Movdqu | N::Vmovdqu | N::Lddqu | N::Vlddqu | N::Vmovdqu64 => {
            (moves::masked::<M, 64, false>, false)
        }
        N::Movups | N::Vmovups | N::Vmovdqu32 => (moves::masked::<M, 32, false>, false),
        N::Vmovdqu8 => (moves::masked::<M, 8, false>, false),
        N::Vmovdqu16 => (moves::masked::<M, 16, false>, false),
        N::Movupd | N::Vmovupd => (moves::masked::<M, 64, false>, false),
        _ => return None,
    };
    Some(match op.vector.parts {
        _ if op.vector.mask.register().is_some() => masked,
        2 => unmasked::<M, 1>(op, aligned),
        4 => unmasked::<M, 2>(op, aligned),
        _ => unmasked::<M, 4>(op, aligned),
    })
}

/// A move of `BLOCKS` times 128 bits.
fn unmasked<M: Machine, const BLOCKS: usize>(op: &Op, aligned: bool) -> Body<M> {
    match (op.a, op.b, aligned) {
        (Loc::Mem, _, true) => moves::store::<M, BLOCKS, true>,
        (Loc::Mem, _, false) => moves::store::<M, BLOCKS, false>,
        (_, Loc::Mem, true) => moves::load::<M, BLOCKS, true>,
        (_, Loc::Mem, false) => moves::load::<M, BLOCKS, false>,
        _ => moves::copy::<M, BLOCKS>,
    }
}

pub(super) fn low<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let between_registers = matches!((op.a, op.b), (Loc::Vector(_), Loc::Vector(_)));
    Some(match i.mnemonic() {
        N::Movss | N::Vmovss if between_registers => moves::merge_low::<M, 32>,
        N::Movsd | N::Vmovsd if between_registers => moves::merge_low::<M, 64>,
        N::Movss | N::Vmovss | N::Movd | N::Vmovd => moves::low::<M, 32>,
        N::Movsd | N::Vmovsd | N::Movq | N::Vmovq => moves::low::<M, 64>,
        N::Movlps | N::Vmovlps | N::Movlpd | N::Vmovlpd => moves::half::<M, 0, 0>,
        N::Movhps | N::Vmovhps | N::Movhpd | N::Vmovhpd => moves::half::<M, 1, 1>,
        N::Movhlps | N::Vmovhlps => moves::half::<M, 0, 1>,
        N::Movlhps | N::Vmovlhps => moves::half::<M, 1, 0>,
        N::Movnti if op.w == 64 => moves::non_temporal::<M, 64>,
        N::Movnti => moves::non_temporal::<M, 32>,
        N::Pmovmskb | N::Vpmovmskb => moves::sign_mask::<M, 8>,
        N::Movmskps | N::Vmovmskps => moves::sign_mask::<M, 32>,
        N::Movmskpd | N::Vmovmskpd => moves::sign_mask::<M, 64>,
        N::Maskmovdqu | N::Vmaskmovdqu => moves::masked_store::<M>,
        N::Vmaskmovps | N::Vpmaskmovd => masked::by_sign::<M, 32>,
        N::Vmaskmovpd | N::Vpmaskmovq => masked::by_sign::<M, 64>,
        N::Vzeroupper => moves::zero::<M, false>,
        N::Vzeroall => moves::zero::<M, true>,
        _ => return None,
    })
}

fn elements<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let by_mask = op.vector.encoding == Encoding::Evex;
    Some(match i.mnemonic() {
        N::Vgatherdps | N::Vpgatherdd if by_mask => masked::gather_by_mask::<M, 32, 32>,
        N::Vgatherdps | N::Vpgatherdd => masked::gather::<M, 32, 32>,
        N::Vgatherqps | N::Vpgatherqd if by_mask => masked::gather_by_mask::<M, 32, 64>,
        N::Vgatherqps | N::Vpgatherqd => masked::gather::<M, 32, 64>,
        N::Vgatherdpd | N::Vpgatherdq if by_mask => masked::gather_by_mask::<M, 64, 32>,
        N::Vgatherdpd | N::Vpgatherdq => masked::gather::<M, 64, 32>,
        N::Vgatherqpd | N::Vpgatherqq if by_mask => masked::gather_by_mask::<M, 64, 64>,
        N::Vgatherqpd | N::Vpgatherqq => masked::gather::<M, 64, 64>,
        N::Vscatterdps | N::Vpscatterdd => masked::scatter::<M, 32, 32>,
        N::Vscatterqps | N::Vpscatterqd => masked::scatter::<M, 32, 64>,
        N::Vscatterdpd | N::Vpscatterdq => masked::scatter::<M, 64, 32>,
        N::Vscatterqpd | N::Vpscatterqq => masked::scatter::<M, 64, 64>,
        _ => return None,
    })
}
