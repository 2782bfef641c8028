//! SSE to SSE4.2 instructions, by iced's code, which tells the forms on xmm registers from those on MMX
//! registers (which have no semantics) and from string instructions of the same name.
//!
//! Left out: RCPPS, RCPSS, RSQRTPS, RSQRTSS, whose approximations differ from processor to processor.

use iced_x86::{Code, Instruction};

use crate::decode;
use crate::machine::{Body, Handler, Machine};
use crate::op::{Loc, Op};
use crate::sem::vector::float::{Double, Single};
use crate::sem::vector::{
    blend, compare_strings, convert, crc, float, lanes, moves, pack, shift, shuffle, state,
};

/// The handler and operands of `i`, if it is one of these.
pub(super) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    let op = decode::op(i);
    let body = move_body(i, &op)
        .or_else(|| integer_body(i))
        .or_else(|| comparison_body(i))
        .or_else(|| shift_body(i))
        .or_else(|| shuffle_body(i))
        .or_else(|| insertion_body(i))
        .or_else(|| width_body(i))
        .or_else(|| float_body(i))
        .or_else(|| float_combination_body(i))
        .or_else(|| float_comparison_body(i))
        .or_else(|| conversion_body(i))
        .or_else(|| other_body(i))?;
    Some((Handler::Body(body), op))
}

fn move_body<M: Machine>(i: &Instruction, op: &Op) -> Option<Body<M>> {
    let from_register = matches!(op.b, Loc::Vector(_)) && matches!(op.a, Loc::Vector(_));
    Some(match i.code() {
        Code::Movdqa_xmm_xmmm128
        | Code::Movdqa_xmmm128_xmm
        | Code::Movaps_xmm_xmmm128
        | Code::Movaps_xmmm128_xmm
        | Code::Movapd_xmm_xmmm128
        | Code::Movapd_xmmm128_xmm
        | Code::Movntdq_m128_xmm
        | Code::Movntps_m128_xmm
        | Code::Movntpd_m128_xmm
        | Code::Movntdqa_xmm_m128 => moves::aligned::<M>,
        Code::Movdqu_xmm_xmmm128
        | Code::Movdqu_xmmm128_xmm
        | Code::Movups_xmm_xmmm128
        | Code::Movups_xmmm128_xmm
        | Code::Movupd_xmm_xmmm128
        | Code::Movupd_xmmm128_xmm
        | Code::Lddqu_xmm_m128 => moves::unaligned::<M>,
        Code::Movss_xmm_xmmm32 | Code::Movss_xmmm32_xmm if from_register => moves::merge_low::<M, 32>,
        Code::Movsd_xmm_xmmm64 | Code::Movsd_xmmm64_xmm if from_register => moves::merge_low::<M, 64>,
        Code::Movd_xmm_rm32 | Code::Movd_rm32_xmm | Code::Movss_xmm_xmmm32 | Code::Movss_xmmm32_xmm => {
            moves::low::<M, 32>
        }
        Code::Movq_xmm_rm64
        | Code::Movq_rm64_xmm
        | Code::Movq_xmm_xmmm64
        | Code::Movq_xmmm64_xmm
        | Code::Movsd_xmm_xmmm64
        | Code::Movsd_xmmm64_xmm => moves::low::<M, 64>,
        Code::Movlps_xmm_m64 | Code::Movlpd_xmm_m64 | Code::Movlps_m64_xmm | Code::Movlpd_m64_xmm => {
            moves::half::<M, 0, 0>
        }
        Code::Movhps_xmm_m64 | Code::Movhpd_xmm_m64 | Code::Movhps_m64_xmm | Code::Movhpd_m64_xmm => {
            moves::half::<M, 1, 1>
        }
        Code::Movhlps_xmm_xmm => moves::half::<M, 0, 1>,
        Code::Movlhps_xmm_xmm => moves::half::<M, 1, 0>,
        Code::Movnti_m32_r32 => moves::non_temporal::<M, 32>,
        Code::Movnti_m64_r64 => moves::non_temporal::<M, 64>,
        Code::Pmovmskb_r32_xmm | Code::Pmovmskb_r64_xmm => moves::sign_mask::<M, 8>,
        Code::Movmskps_r32_xmm | Code::Movmskps_r64_xmm => moves::sign_mask::<M, 32>,
        Code::Movmskpd_r32_xmm | Code::Movmskpd_r64_xmm => moves::sign_mask::<M, 64>,
        Code::Maskmovdqu_rDI_xmm_xmm => moves::masked_store::<M>,
        _ => return None,
    })
}

fn integer_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    use lanes::lanes as each;
    Some(match i.code() {
        Code::Paddb_xmm_xmmm128 => each::<M, lanes::Add<8>>,
        Code::Paddw_xmm_xmmm128 => each::<M, lanes::Add<16>>,
        Code::Paddd_xmm_xmmm128 => each::<M, lanes::Add<32>>,
        Code::Paddq_xmm_xmmm128 => each::<M, lanes::Add<64>>,
        Code::Psubb_xmm_xmmm128 => each::<M, lanes::Sub<8>>,
        Code::Psubw_xmm_xmmm128 => each::<M, lanes::Sub<16>>,
        Code::Psubd_xmm_xmmm128 => each::<M, lanes::Sub<32>>,
        Code::Psubq_xmm_xmmm128 => each::<M, lanes::Sub<64>>,
        Code::Paddsb_xmm_xmmm128 => each::<M, lanes::AddSigned<8>>,
        Code::Paddsw_xmm_xmmm128 => each::<M, lanes::AddSigned<16>>,
        Code::Psubsb_xmm_xmmm128 => each::<M, lanes::SubSigned<8>>,
        Code::Psubsw_xmm_xmmm128 => each::<M, lanes::SubSigned<16>>,
        Code::Paddusb_xmm_xmmm128 => each::<M, lanes::AddUnsigned<8>>,
        Code::Paddusw_xmm_xmmm128 => each::<M, lanes::AddUnsigned<16>>,
        Code::Psubusb_xmm_xmmm128 => each::<M, lanes::SubUnsigned<8>>,
        Code::Psubusw_xmm_xmmm128 => each::<M, lanes::SubUnsigned<16>>,
        Code::Pand_xmm_xmmm128 | Code::Andps_xmm_xmmm128 | Code::Andpd_xmm_xmmm128 => {
            each::<M, lanes::And<64>>
        }
        Code::Pandn_xmm_xmmm128 | Code::Andnps_xmm_xmmm128 | Code::Andnpd_xmm_xmmm128 => {
            each::<M, lanes::AndNot<64>>
        }
        Code::Por_xmm_xmmm128 | Code::Orps_xmm_xmmm128 | Code::Orpd_xmm_xmmm128 => each::<M, lanes::Or<64>>,
        Code::Pxor_xmm_xmmm128 | Code::Xorps_xmm_xmmm128 | Code::Xorpd_xmm_xmmm128 => {
            each::<M, lanes::Xor<64>>
        }
        Code::Pmullw_xmm_xmmm128 => each::<M, lanes::MulLow<16>>,
        Code::Pmulld_xmm_xmmm128 => each::<M, lanes::MulLow<32>>,
        Code::Pmulhw_xmm_xmmm128 => each::<M, lanes::MulHighSigned<16>>,
        Code::Pmulhuw_xmm_xmmm128 => each::<M, lanes::MulHighUnsigned<16>>,
        Code::Pmulhrsw_xmm_xmmm128 => each::<M, lanes::MulRound<16>>,
        Code::Pmuludq_xmm_xmmm128 => each::<M, lanes::MulWideUnsigned<64>>,
        Code::Pmuldq_xmm_xmmm128 => each::<M, lanes::MulWideSigned<64>>,
        Code::Pmaddwd_xmm_xmmm128 => each::<M, lanes::MulAdd<32>>,
        Code::Pmaddubsw_xmm_xmmm128 => each::<M, lanes::MulAddUnsigned<16>>,
        Code::Psadbw_xmm_xmmm128 => each::<M, lanes::SumOfDifferences<64>>,
        Code::Pavgb_xmm_xmmm128 => each::<M, lanes::Average<8>>,
        Code::Pavgw_xmm_xmmm128 => each::<M, lanes::Average<16>>,
        Code::Pabsb_xmm_xmmm128 => each::<M, lanes::Absolute<8>>,
        Code::Pabsw_xmm_xmmm128 => each::<M, lanes::Absolute<16>>,
        Code::Pabsd_xmm_xmmm128 => each::<M, lanes::Absolute<32>>,
        Code::Psignb_xmm_xmmm128 => each::<M, lanes::Sign<8>>,
        Code::Psignw_xmm_xmmm128 => each::<M, lanes::Sign<16>>,
        Code::Psignd_xmm_xmmm128 => each::<M, lanes::Sign<32>>,
        Code::Phaddw_xmm_xmmm128 => lanes::horizontal::<M, lanes::Add<16>>,
        Code::Phaddd_xmm_xmmm128 => lanes::horizontal::<M, lanes::Add<32>>,
        Code::Phaddsw_xmm_xmmm128 => lanes::horizontal::<M, lanes::AddSigned<16>>,
        Code::Phsubw_xmm_xmmm128 => lanes::horizontal::<M, lanes::Sub<16>>,
        Code::Phsubd_xmm_xmmm128 => lanes::horizontal::<M, lanes::Sub<32>>,
        Code::Phsubsw_xmm_xmmm128 => lanes::horizontal::<M, lanes::SubSigned<16>>,
        Code::Phminposuw_xmm_xmmm128 => lanes::minimum_position::<M>,
        Code::Mpsadbw_xmm_xmmm128_imm8 => lanes::block_differences::<M>,
        _ => return None,
    })
}

fn comparison_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    use lanes::lanes as each;
    Some(match i.code() {
        Code::Pcmpeqb_xmm_xmmm128 => each::<M, lanes::Equal<8>>,
        Code::Pcmpeqw_xmm_xmmm128 => each::<M, lanes::Equal<16>>,
        Code::Pcmpeqd_xmm_xmmm128 => each::<M, lanes::Equal<32>>,
        Code::Pcmpeqq_xmm_xmmm128 => each::<M, lanes::Equal<64>>,
        Code::Pcmpgtb_xmm_xmmm128 => each::<M, lanes::Greater<8>>,
        Code::Pcmpgtw_xmm_xmmm128 => each::<M, lanes::Greater<16>>,
        Code::Pcmpgtd_xmm_xmmm128 => each::<M, lanes::Greater<32>>,
        Code::Pcmpgtq_xmm_xmmm128 => each::<M, lanes::Greater<64>>,
        Code::Pminub_xmm_xmmm128 => each::<M, lanes::MinUnsigned<8>>,
        Code::Pminuw_xmm_xmmm128 => each::<M, lanes::MinUnsigned<16>>,
        Code::Pminud_xmm_xmmm128 => each::<M, lanes::MinUnsigned<32>>,
        Code::Pmaxub_xmm_xmmm128 => each::<M, lanes::MaxUnsigned<8>>,
        Code::Pmaxuw_xmm_xmmm128 => each::<M, lanes::MaxUnsigned<16>>,
        Code::Pmaxud_xmm_xmmm128 => each::<M, lanes::MaxUnsigned<32>>,
        Code::Pminsb_xmm_xmmm128 => each::<M, lanes::MinSigned<8>>,
        Code::Pminsw_xmm_xmmm128 => each::<M, lanes::MinSigned<16>>,
        Code::Pminsd_xmm_xmmm128 => each::<M, lanes::MinSigned<32>>,
        Code::Pmaxsb_xmm_xmmm128 => each::<M, lanes::MaxSigned<8>>,
        Code::Pmaxsw_xmm_xmmm128 => each::<M, lanes::MaxSigned<16>>,
        Code::Pmaxsd_xmm_xmmm128 => each::<M, lanes::MaxSigned<32>>,
        Code::Ptest_xmm_xmmm128 => blend::test::<M>,
        Code::Pcmpistri_xmm_xmmm128_imm8 => compare_strings::index::<M, false, 32>,
        Code::Pcmpistrm_xmm_xmmm128_imm8 => compare_strings::masks::<M, false, 32>,
        Code::Pcmpestri_xmm_xmmm128_imm8 => compare_strings::index::<M, true, 32>,
        Code::Pcmpestri64_xmm_xmmm128_imm8 => compare_strings::index::<M, true, 64>,
        Code::Pcmpestrm_xmm_xmmm128_imm8 => compare_strings::masks::<M, true, 32>,
        Code::Pcmpestrm64_xmm_xmmm128_imm8 => compare_strings::masks::<M, true, 64>,
        _ => return None,
    })
}

fn shift_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    use shift::{Arithmetic, Left, Right};
    Some(match i.code() {
        Code::Psllw_xmm_xmmm128 | Code::Psllw_xmm_imm8 => shift::lanes::<M, Left, 16>,
        Code::Pslld_xmm_xmmm128 | Code::Pslld_xmm_imm8 => shift::lanes::<M, Left, 32>,
        Code::Psllq_xmm_xmmm128 | Code::Psllq_xmm_imm8 => shift::lanes::<M, Left, 64>,
        Code::Psrlw_xmm_xmmm128 | Code::Psrlw_xmm_imm8 => shift::lanes::<M, Right, 16>,
        Code::Psrld_xmm_xmmm128 | Code::Psrld_xmm_imm8 => shift::lanes::<M, Right, 32>,
        Code::Psrlq_xmm_xmmm128 | Code::Psrlq_xmm_imm8 => shift::lanes::<M, Right, 64>,
        Code::Psraw_xmm_xmmm128 | Code::Psraw_xmm_imm8 => shift::lanes::<M, Arithmetic, 16>,
        Code::Psrad_xmm_xmmm128 | Code::Psrad_xmm_imm8 => shift::lanes::<M, Arithmetic, 32>,
        Code::Pslldq_xmm_imm8 => shift::bytes_left::<M>,
        Code::Psrldq_xmm_imm8 => shift::bytes_right::<M>,
        Code::Palignr_xmm_xmmm128_imm8 => shift::align_right::<M>,
        _ => return None,
    })
}

fn shuffle_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Punpcklbw_xmm_xmmm128 => shuffle::interleave::<M, 8, false>,
        Code::Punpcklwd_xmm_xmmm128 => shuffle::interleave::<M, 16, false>,
        Code::Punpckldq_xmm_xmmm128 | Code::Unpcklps_xmm_xmmm128 => shuffle::interleave::<M, 32, false>,
        Code::Punpcklqdq_xmm_xmmm128 | Code::Unpcklpd_xmm_xmmm128 => shuffle::interleave::<M, 64, false>,
        Code::Punpckhbw_xmm_xmmm128 => shuffle::interleave::<M, 8, true>,
        Code::Punpckhwd_xmm_xmmm128 => shuffle::interleave::<M, 16, true>,
        Code::Punpckhdq_xmm_xmmm128 | Code::Unpckhps_xmm_xmmm128 => shuffle::interleave::<M, 32, true>,
        Code::Punpckhqdq_xmm_xmmm128 | Code::Unpckhpd_xmm_xmmm128 => shuffle::interleave::<M, 64, true>,
        Code::Pshufd_xmm_xmmm128_imm8 => shuffle::doublewords::<M>,
        Code::Pshuflw_xmm_xmmm128_imm8 => shuffle::words::<M, false>,
        Code::Pshufhw_xmm_xmmm128_imm8 => shuffle::words::<M, true>,
        Code::Pshufb_xmm_xmmm128 => shuffle::bytes::<M>,
        Code::Shufps_xmm_xmmm128_imm8 => shuffle::singles::<M>,
        Code::Shufpd_xmm_xmmm128_imm8 => shuffle::doubles::<M>,
        Code::Movsldup_xmm_xmmm128 => shuffle::duplicate_singles::<M, false>,
        Code::Movshdup_xmm_xmmm128 => shuffle::duplicate_singles::<M, true>,
        Code::Movddup_xmm_xmmm64 => shuffle::duplicate_double::<M>,
        Code::Pblendw_xmm_xmmm128_imm8 => blend::by_immediate::<M, 16>,
        Code::Blendps_xmm_xmmm128_imm8 => blend::by_immediate::<M, 32>,
        Code::Blendpd_xmm_xmmm128_imm8 => blend::by_immediate::<M, 64>,
        Code::Pblendvb_xmm_xmmm128 => blend::by_sign::<M, 8>,
        Code::Blendvps_xmm_xmmm128 => blend::by_sign::<M, 32>,
        Code::Blendvpd_xmm_xmmm128 => blend::by_sign::<M, 64>,
        _ => return None,
    })
}

fn insertion_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Pinsrb_xmm_r32m8_imm8 | Code::Pinsrb_xmm_r64m8_imm8 => shuffle::insert::<M, 8>,
        Code::Pinsrw_xmm_r32m16_imm8 | Code::Pinsrw_xmm_r64m16_imm8 => shuffle::insert::<M, 16>,
        Code::Pinsrd_xmm_rm32_imm8 => shuffle::insert::<M, 32>,
        Code::Pinsrq_xmm_rm64_imm8 => shuffle::insert::<M, 64>,
        Code::Pextrb_r32m8_xmm_imm8 | Code::Pextrb_r64m8_xmm_imm8 => shuffle::extract::<M, 8>,
        Code::Pextrw_r32_xmm_imm8
        | Code::Pextrw_r64_xmm_imm8
        | Code::Pextrw_r32m16_xmm_imm8
        | Code::Pextrw_r64m16_xmm_imm8 => shuffle::extract::<M, 16>,
        Code::Pextrd_rm32_xmm_imm8 | Code::Extractps_rm32_xmm_imm8 | Code::Extractps_r64m32_xmm_imm8 => {
            shuffle::extract::<M, 32>
        }
        Code::Pextrq_rm64_xmm_imm8 => shuffle::extract::<M, 64>,
        Code::Insertps_xmm_xmmm32_imm8 => shuffle::insert_single::<M>,
        _ => return None,
    })
}

fn width_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Packsswb_xmm_xmmm128 => pack::narrow::<M, 8, true>,
        Code::Packuswb_xmm_xmmm128 => pack::narrow::<M, 8, false>,
        Code::Packssdw_xmm_xmmm128 => pack::narrow::<M, 16, true>,
        Code::Packusdw_xmm_xmmm128 => pack::narrow::<M, 16, false>,
        Code::Pmovsxbw_xmm_xmmm64 => pack::widen::<M, 8, 16, true>,
        Code::Pmovsxbd_xmm_xmmm32 => pack::widen::<M, 8, 32, true>,
        Code::Pmovsxbq_xmm_xmmm16 => pack::widen::<M, 8, 64, true>,
        Code::Pmovsxwd_xmm_xmmm64 => pack::widen::<M, 16, 32, true>,
        Code::Pmovsxwq_xmm_xmmm32 => pack::widen::<M, 16, 64, true>,
        Code::Pmovsxdq_xmm_xmmm64 => pack::widen::<M, 32, 64, true>,
        Code::Pmovzxbw_xmm_xmmm64 => pack::widen::<M, 8, 16, false>,
        Code::Pmovzxbd_xmm_xmmm32 => pack::widen::<M, 8, 32, false>,
        Code::Pmovzxbq_xmm_xmmm16 => pack::widen::<M, 8, 64, false>,
        Code::Pmovzxwd_xmm_xmmm64 => pack::widen::<M, 16, 32, false>,
        Code::Pmovzxwq_xmm_xmmm32 => pack::widen::<M, 16, 64, false>,
        Code::Pmovzxdq_xmm_xmmm64 => pack::widen::<M, 32, 64, false>,
        _ => return None,
    })
}

/// Matches the four forms of an arithmetic instruction.
macro_rules! arithmetic {
    ($i:expr, $($ps:ident $pd:ident $ss:ident $sd:ident => $operation:ident;)*) => {
        match $i.code() {
            $(
                Code::$ps => float::packed::<M, Single, float::$operation>,
                Code::$pd => float::packed::<M, Double, float::$operation>,
                Code::$ss => float::scalar::<M, Single, float::$operation>,
                Code::$sd => float::scalar::<M, Double, float::$operation>,
            )*
            _ => return None,
        }
    };
}

fn float_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(arithmetic!(i,
        Addps_xmm_xmmm128 Addpd_xmm_xmmm128 Addss_xmm_xmmm32 Addsd_xmm_xmmm64 => Add;
        Subps_xmm_xmmm128 Subpd_xmm_xmmm128 Subss_xmm_xmmm32 Subsd_xmm_xmmm64 => Sub;
        Mulps_xmm_xmmm128 Mulpd_xmm_xmmm128 Mulss_xmm_xmmm32 Mulsd_xmm_xmmm64 => Mul;
        Divps_xmm_xmmm128 Divpd_xmm_xmmm128 Divss_xmm_xmmm32 Divsd_xmm_xmmm64 => Div;
        Minps_xmm_xmmm128 Minpd_xmm_xmmm128 Minss_xmm_xmmm32 Minsd_xmm_xmmm64 => Min;
        Maxps_xmm_xmmm128 Maxpd_xmm_xmmm128 Maxss_xmm_xmmm32 Maxsd_xmm_xmmm64 => Max;
        Sqrtps_xmm_xmmm128 Sqrtpd_xmm_xmmm128 Sqrtss_xmm_xmmm32 Sqrtsd_xmm_xmmm64 => Sqrt;
    ))
}

fn float_combination_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Haddps_xmm_xmmm128 => float::horizontal::<M, Single, float::Add>,
        Code::Haddpd_xmm_xmmm128 => float::horizontal::<M, Double, float::Add>,
        Code::Hsubps_xmm_xmmm128 => float::horizontal::<M, Single, float::Sub>,
        Code::Hsubpd_xmm_xmmm128 => float::horizontal::<M, Double, float::Sub>,
        Code::Addsubps_xmm_xmmm128 => float::alternate::<M, Single>,
        Code::Addsubpd_xmm_xmmm128 => float::alternate::<M, Double>,
        Code::Dpps_xmm_xmmm128_imm8 => float::dot_product::<M, Single>,
        Code::Dppd_xmm_xmmm128_imm8 => float::dot_product::<M, Double>,
        _ => return None,
    })
}

fn float_comparison_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Cmpps_xmm_xmmm128_imm8 => float::compare_packed::<M, Single>,
        Code::Cmppd_xmm_xmmm128_imm8 => float::compare_packed::<M, Double>,
        Code::Cmpss_xmm_xmmm32_imm8 => float::compare_scalar::<M, Single>,
        Code::Cmpsd_xmm_xmmm64_imm8 => float::compare_scalar::<M, Double>,
        Code::Comiss_xmm_xmmm32 => float::compare_to_flags::<M, Single, true>,
        Code::Comisd_xmm_xmmm64 => float::compare_to_flags::<M, Double, true>,
        Code::Ucomiss_xmm_xmmm32 => float::compare_to_flags::<M, Single, false>,
        Code::Ucomisd_xmm_xmmm64 => float::compare_to_flags::<M, Double, false>,
        _ => return None,
    })
}

fn conversion_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    use convert::{FromInteger, Narrow, ToInteger, Widen, into_general, into_low_lane, packed};
    Some(match i.code() {
        Code::Cvtsi2ss_xmm_rm32 => into_low_lane::<M, FromInteger<Single, 32>>,
        Code::Cvtsi2ss_xmm_rm64 => into_low_lane::<M, FromInteger<Single, 64>>,
        Code::Cvtsi2sd_xmm_rm32 => into_low_lane::<M, FromInteger<Double, 32>>,
        Code::Cvtsi2sd_xmm_rm64 => into_low_lane::<M, FromInteger<Double, 64>>,
        Code::Cvtss2sd_xmm_xmmm32 => into_low_lane::<M, Widen>,
        Code::Cvtsd2ss_xmm_xmmm64 => into_low_lane::<M, Narrow>,
        Code::Cvtss2si_r32_xmmm32 => into_general::<M, ToInteger<Single, 32, false>>,
        Code::Cvtss2si_r64_xmmm32 => into_general::<M, ToInteger<Single, 64, false>>,
        Code::Cvtsd2si_r32_xmmm64 => into_general::<M, ToInteger<Double, 32, false>>,
        Code::Cvtsd2si_r64_xmmm64 => into_general::<M, ToInteger<Double, 64, false>>,
        Code::Cvttss2si_r32_xmmm32 => into_general::<M, ToInteger<Single, 32, true>>,
        Code::Cvttss2si_r64_xmmm32 => into_general::<M, ToInteger<Single, 64, true>>,
        Code::Cvttsd2si_r32_xmmm64 => into_general::<M, ToInteger<Double, 32, true>>,
        Code::Cvttsd2si_r64_xmmm64 => into_general::<M, ToInteger<Double, 64, true>>,
        Code::Cvtps2pd_xmm_xmmm64 => packed::<M, Widen>,
        Code::Cvtpd2ps_xmm_xmmm128 => packed::<M, Narrow>,
        Code::Cvtdq2ps_xmm_xmmm128 => packed::<M, FromInteger<Single, 32>>,
        Code::Cvtdq2pd_xmm_xmmm64 => packed::<M, FromInteger<Double, 32>>,
        Code::Cvtps2dq_xmm_xmmm128 => packed::<M, ToInteger<Single, 32, false>>,
        Code::Cvttps2dq_xmm_xmmm128 => packed::<M, ToInteger<Single, 32, true>>,
        Code::Cvtpd2dq_xmm_xmmm128 => packed::<M, ToInteger<Double, 32, false>>,
        Code::Cvttpd2dq_xmm_xmmm128 => packed::<M, ToInteger<Double, 32, true>>,
        Code::Roundps_xmm_xmmm128_imm8 => convert::round_packed::<M, Single>,
        Code::Roundpd_xmm_xmmm128_imm8 => convert::round_packed::<M, Double>,
        Code::Roundss_xmm_xmmm32_imm8 => convert::round_scalar::<M, Single>,
        Code::Roundsd_xmm_xmmm64_imm8 => convert::round_scalar::<M, Double>,
        _ => return None,
    })
}

fn other_body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.code() {
        Code::Crc32_r32_rm8 | Code::Crc32_r64_rm8 => crc::crc32::<M, 8>,
        Code::Crc32_r32_rm16 => crc::crc32::<M, 16>,
        Code::Crc32_r32_rm32 => crc::crc32::<M, 32>,
        Code::Crc32_r64_rm64 => crc::crc32::<M, 64>,
        Code::Ldmxcsr_m32 => state::ldmxcsr::<M>,
        Code::Stmxcsr_m32 => state::stmxcsr::<M>,
        Code::Fxsave_m512byte | Code::Fxsave64_m512byte => state::fxsave::<M>,
        Code::Fxrstor_m512byte | Code::Fxrstor64_m512byte => state::fxrstor::<M>,
        _ => return None,
    })
}
