//! Lanes that move, are chosen, or become narrower or wider.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::op::{Loc, Op};
use crate::sem::vector::{blend, compress, pack, permute, shuffle};

pub(super) fn body<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    places(i)
        .or_else(|| permutations(i, op))
        .or_else(|| of_two_tables(i))
        .or_else(|| blocks(i))
        .or_else(|| choices(i))
        .or_else(|| insertions(i))
        .or_else(|| widths(i))
        .or_else(|| cuts(i))
        .or_else(|| compressions(i))
}

/// Those that have legacy forms, but for choices and changes of width.
pub(super) fn legacy<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    places(i).or_else(|| insertions(i))
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
        N::Vpermq | N::Vpermpd => permute::by_index::<M, 64>,
        N::Vpermb => permute::by_index::<M, 8>,
        N::Vpermw => permute::by_index::<M, 16>,
        N::Vperm2f128 | N::Vperm2i128 => permute::blocks::<M>,
        N::Vpbroadcastb => permute::broadcast::<M, 8>,
        N::Vpbroadcastw => permute::broadcast::<M, 16>,
        N::Vpbroadcastd | N::Vbroadcastss => permute::broadcast::<M, 32>,
        N::Vpbroadcastq | N::Vbroadcastsd => permute::broadcast::<M, 64>,
        _ => return None,
    })
}

fn of_two_tables<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Vpermi2b => permute::from_two::<M, 8, true>,
        N::Vpermi2w => permute::from_two::<M, 16, true>,
        N::Vpermi2d | N::Vpermi2ps => permute::from_two::<M, 32, true>,
        N::Vpermi2q | N::Vpermi2pd => permute::from_two::<M, 64, true>,
        N::Vpermt2b => permute::from_two::<M, 8, false>,
        N::Vpermt2w => permute::from_two::<M, 16, false>,
        N::Vpermt2d | N::Vpermt2ps => permute::from_two::<M, 32, false>,
        N::Vpermt2q | N::Vpermt2pd => permute::from_two::<M, 64, false>,
        N::Valignd => permute::align_right::<M, 32>,
        N::Valignq => permute::align_right::<M, 64>,
        _ => return None,
    })
}

fn blocks<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Vshuff32x4 | N::Vshufi32x4 => permute::shuffle_blocks::<M, 32>,
        N::Vshuff64x2 | N::Vshufi64x2 => permute::shuffle_blocks::<M, 64>,
        N::Vbroadcastf32x2 | N::Vbroadcasti32x2 => permute::broadcast_block::<M, 32, 64>,
        N::Vbroadcastf32x4 | N::Vbroadcasti32x4 => permute::broadcast_block::<M, 32, 128>,
        N::Vbroadcastf128 | N::Vbroadcasti128 | N::Vbroadcastf64x2 | N::Vbroadcasti64x2 => {
            permute::broadcast_block::<M, 64, 128>
        }
        N::Vbroadcastf32x8 | N::Vbroadcasti32x8 => permute::broadcast_block::<M, 32, 256>,
        N::Vbroadcastf64x4 | N::Vbroadcasti64x4 => permute::broadcast_block::<M, 64, 256>,
        N::Vinsertf32x4 | N::Vinserti32x4 => permute::insert_block::<M, 32, 128>,
        N::Vinsertf128 | N::Vinserti128 | N::Vinsertf64x2 | N::Vinserti64x2 => {
            permute::insert_block::<M, 64, 128>
        }
        N::Vinsertf32x8 | N::Vinserti32x8 => permute::insert_block::<M, 32, 256>,
        N::Vinsertf64x4 | N::Vinserti64x4 => permute::insert_block::<M, 64, 256>,
        N::Vextractf32x4 | N::Vextracti32x4 => permute::extract_block::<M, 32, 128>,
        N::Vextractf128 | N::Vextracti128 | N::Vextractf64x2 | N::Vextracti64x2 => {
            permute::extract_block::<M, 64, 128>
        }
        N::Vextractf32x8 | N::Vextracti32x8 => permute::extract_block::<M, 32, 256>,
        N::Vextractf64x4 | N::Vextracti64x4 => permute::extract_block::<M, 64, 256>,
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

fn cuts<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Vpmovwb => pack::cut::<M, pack::Low, 16, 8>,
        N::Vpmovdb => pack::cut::<M, pack::Low, 32, 8>,
        N::Vpmovqb => pack::cut::<M, pack::Low, 64, 8>,
        N::Vpmovdw => pack::cut::<M, pack::Low, 32, 16>,
        N::Vpmovqw => pack::cut::<M, pack::Low, 64, 16>,
        N::Vpmovqd => pack::cut::<M, pack::Low, 64, 32>,
        N::Vpmovswb => pack::cut::<M, pack::Signed, 16, 8>,
        N::Vpmovsdb => pack::cut::<M, pack::Signed, 32, 8>,
        N::Vpmovsqb => pack::cut::<M, pack::Signed, 64, 8>,
        N::Vpmovsdw => pack::cut::<M, pack::Signed, 32, 16>,
        N::Vpmovsqw => pack::cut::<M, pack::Signed, 64, 16>,
        N::Vpmovsqd => pack::cut::<M, pack::Signed, 64, 32>,
        N::Vpmovuswb => pack::cut::<M, pack::Unsigned, 16, 8>,
        N::Vpmovusdb => pack::cut::<M, pack::Unsigned, 32, 8>,
        N::Vpmovusqb => pack::cut::<M, pack::Unsigned, 64, 8>,
        N::Vpmovusdw => pack::cut::<M, pack::Unsigned, 32, 16>,
        N::Vpmovusqw => pack::cut::<M, pack::Unsigned, 64, 16>,
        N::Vpmovusqd => pack::cut::<M, pack::Unsigned, 64, 32>,
        _ => return None,
    })
}

fn compressions<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Vpcompressb => compress::compress::<M, 8>,
        N::Vpcompressw => compress::compress::<M, 16>,
        N::Vpcompressd | N::Vcompressps => compress::compress::<M, 32>,
        N::Vpcompressq | N::Vcompresspd => compress::compress::<M, 64>,
        N::Vpexpandb => compress::expand::<M, 8>,
        N::Vpexpandw => compress::expand::<M, 16>,
        N::Vpexpandd | N::Vexpandps => compress::expand::<M, 32>,
        N::Vpexpandq | N::Vexpandpd => compress::expand::<M, 64>,
        _ => return None,
    })
}
