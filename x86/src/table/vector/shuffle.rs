//! Lanes that move, are chosen, or become narrower or wider.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::op::{Loc, Op};
use crate::sem::vector::{blend, pack, permute, shuffle};

pub(super) fn body<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    places(i)
        .or_else(|| permutations(i, op))
        .or_else(|| choices(i))
        .or_else(|| insertions(i))
        .or_else(|| widths(i))
}

fn places<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Punpcklbw | N::Vpunpcklbw => shuffle::interleave::<M, 8, false>,
        N::Punpcklwd | N::Vpunpcklwd => shuffle::interleave::<M, 16, false>,
        N::Punpckldq | N::Vpunpckldq | N::Unpcklps | N::Vunpcklps => shuffle::interleave::<M, 32, false>,
        N::Punpcklqdq | N::Vpunpcklqdq | N::Unpcklpd | N::Vunpcklpd => shuffle::interleave::<M, 64, false>,
        N::Punpckhbw | N::Vpunpckhbw => shuffle::interleave::<M, 8, true>,
        N::Punpckhwd | N::Vpunpckhwd => shuffle::interleave::<M, 16, true>,
        N::Punpckhdq | N::Vpunpckhdq | N::Unpckhps | N::Vunpckhps => shuffle::interleave::<M, 32, true>,
        N::Punpckhqdq | N::Vpunpckhqdq | N::Unpckhpd | N::Vunpckhpd => shuffle::interleave::<M, 64, true>,
        N::Pshufd | N::Vpshufd => shuffle::doublewords::<M>,
        N::Pshuflw | N::Vpshuflw => shuffle::words::<M, false>,
        N::Pshufhw | N::Vpshufhw => shuffle::words::<M, true>,
        N::Pshufb | N::Vpshufb => shuffle::bytes::<M>,
        N::Shufps | N::Vshufps => shuffle::singles::<M>,
        N::Shufpd | N::Vshufpd => shuffle::doubles::<M>,
        N::Movsldup | N::Vmovsldup => shuffle::duplicate_singles::<M, false>,
        N::Movshdup | N::Vmovshdup => shuffle::duplicate_singles::<M, true>,
        N::Movddup | N::Vmovddup => shuffle::duplicate_double::<M>,
        _ => return None,
    })
}

fn permutations<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let by_immediate = op.c == Loc::Imm;
    Some(match i.mnemonic() {
        N::Vpermilps if by_immediate => shuffle::doublewords::<M>,
        N::Vpermilps => permute::singles_in_blocks::<M>,
        N::Vpermilpd if by_immediate => permute::doubles_in_blocks_by_immediate::<M>,
        N::Vpermilpd => permute::doubles_in_blocks::<M>,
        N::Vpermd | N::Vpermps => permute::by_index::<M, 32>,
        N::Vpermq | N::Vpermpd if by_immediate => permute::quadwords::<M>,
        N::Vperm2f128 | N::Vperm2i128 => permute::blocks::<M>,
        N::Vpbroadcastb => permute::broadcast::<M, 8>,
        N::Vpbroadcastw => permute::broadcast::<M, 16>,
        N::Vpbroadcastd | N::Vbroadcastss => permute::broadcast::<M, 32>,
        N::Vpbroadcastq | N::Vbroadcastsd => permute::broadcast::<M, 64>,
        N::Vbroadcastf128 | N::Vbroadcasti128 => permute::broadcast_block::<M, 64, 128>,
        N::Vinsertf128 | N::Vinserti128 => permute::insert_block::<M, 64, 128>,
        N::Vextractf128 | N::Vextracti128 => permute::extract_block::<M, 64, 128>,
        _ => return None,
    })
}

fn choices<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Pblendw | N::Vpblendw => blend::by_immediate::<M, 16>,
        N::Blendps | N::Vblendps | N::Vpblendd => blend::by_immediate::<M, 32>,
        N::Blendpd | N::Vblendpd => blend::by_immediate::<M, 64>,
        N::Vpblendmb => blend::by_mask::<M, 8>,
        N::Vpblendmw => blend::by_mask::<M, 16>,
        N::Vpblendmd | N::Vblendmps => blend::by_mask::<M, 32>,
        N::Vpblendmq | N::Vblendmpd => blend::by_mask::<M, 64>,
        N::Pblendvb | N::Vpblendvb => blend::by_sign::<M, 8>,
        N::Blendvps | N::Vblendvps => blend::by_sign::<M, 32>,
        N::Blendvpd | N::Vblendvpd => blend::by_sign::<M, 64>,
        _ => return None,
    })
}

fn insertions<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Pinsrb | N::Vpinsrb => shuffle::insert::<M, 8>,
        N::Pinsrw | N::Vpinsrw => shuffle::insert::<M, 16>,
        N::Pinsrd | N::Vpinsrd => shuffle::insert::<M, 32>,
        N::Pinsrq | N::Vpinsrq => shuffle::insert::<M, 64>,
        N::Pextrb | N::Vpextrb => shuffle::extract::<M, 8>,
        N::Pextrw | N::Vpextrw => shuffle::extract::<M, 16>,
        N::Pextrd | N::Vpextrd | N::Extractps | N::Vextractps => shuffle::extract::<M, 32>,
        N::Pextrq | N::Vpextrq => shuffle::extract::<M, 64>,
        N::Insertps | N::Vinsertps => shuffle::insert_single::<M>,
        _ => return None,
    })
}

fn widths<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Packsswb | N::Vpacksswb => pack::narrow::<M, 8, true>,
        N::Packuswb | N::Vpackuswb => pack::narrow::<M, 8, false>,
        N::Packssdw | N::Vpackssdw => pack::narrow::<M, 16, true>,
        N::Packusdw | N::Vpackusdw => pack::narrow::<M, 16, false>,
        N::Pmovsxbw | N::Vpmovsxbw => pack::widen::<M, 8, 16, true>,
        N::Pmovsxbd | N::Vpmovsxbd => pack::widen::<M, 8, 32, true>,
        N::Pmovsxbq | N::Vpmovsxbq => pack::widen::<M, 8, 64, true>,
        N::Pmovsxwd | N::Vpmovsxwd => pack::widen::<M, 16, 32, true>,
        N::Pmovsxwq | N::Vpmovsxwq => pack::widen::<M, 16, 64, true>,
        N::Pmovsxdq | N::Vpmovsxdq => pack::widen::<M, 32, 64, true>,
        N::Pmovzxbw | N::Vpmovzxbw => pack::widen::<M, 8, 16, false>,
        N::Pmovzxbd | N::Vpmovzxbd => pack::widen::<M, 8, 32, false>,
        N::Pmovzxbq | N::Vpmovzxbq => pack::widen::<M, 8, 64, false>,
        N::Pmovzxwd | N::Vpmovzxwd => pack::widen::<M, 16, 32, false>,
        N::Pmovzxwq | N::Vpmovzxwq => pack::widen::<M, 16, 64, false>,
        N::Pmovzxdq | N::Vpmovzxdq => pack::widen::<M, 32, 64, false>,
        _ => return None,
    })
}
