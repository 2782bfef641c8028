//! Integer arithmetic, comparisons, shifts and logic.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::sem::vector::lanes::{self, lanes as each, lanes_whole as each_whole, unary};
use crate::sem::vector::shift::{self, Arithmetic, Left, Right};
use crate::sem::vector::ternary::{FunnelLeft, FunnelRight, accumulated};
use crate::sem::vector::{blend, compare_strings, ternary};

pub(super) fn body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    lanes_of_two(i).or_else(|| comparison_of_registers(i))
}

/// What computes lanes from lanes.
pub(super) fn lanes_of_two<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    arithmetic(i).or_else(|| multiplication(i)).or_else(|| comparison(i)).or_else(|| shifts(i))
}

fn arithmetic<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Paddb | N::Vpaddb => each::<M, lanes::Add<8>>,
        N::Paddw | N::Vpaddw => each::<M, lanes::Add<16>>,
        N::Paddd | N::Vpaddd => each::<M, lanes::Add<32>>,
        N::Paddq | N::Vpaddq => each::<M, lanes::Add<64>>,
        N::Psubb | N::Vpsubb => each::<M, lanes::Sub<8>>,
        N::Psubw | N::Vpsubw => each::<M, lanes::Sub<16>>,
        N::Psubd | N::Vpsubd => each::<M, lanes::Sub<32>>,
        N::Psubq | N::Vpsubq => each::<M, lanes::Sub<64>>,
        N::Paddsb | N::Vpaddsb => each::<M, lanes::AddSigned<8>>,
        N::Paddsw | N::Vpaddsw => each::<M, lanes::AddSigned<16>>,
        N::Psubsb | N::Vpsubsb => each::<M, lanes::SubSigned<8>>,
        N::Psubsw | N::Vpsubsw => each::<M, lanes::SubSigned<16>>,
        N::Paddusb | N::Vpaddusb => each::<M, lanes::AddUnsigned<8>>,
        N::Paddusw | N::Vpaddusw => each::<M, lanes::AddUnsigned<16>>,
        N::Psubusb | N::Vpsubusb => each::<M, lanes::SubUnsigned<8>>,
        N::Psubusw | N::Vpsubusw => each::<M, lanes::SubUnsigned<16>>,
        N::Pand | N::Vpand | N::Andpd | N::Vandpd | N::Vpandq => each::<M, lanes::And<64>>,
        N::Andps | N::Vandps | N::Vpandd => each::<M, lanes::And<32>>,
        N::Pandn | N::Vpandn | N::Andnpd | N::Vandnpd | N::Vpandnq => each::<M, lanes::AndNot<64>>,
        N::Andnps | N::Vandnps | N::Vpandnd => each::<M, lanes::AndNot<32>>,
        N::Por | N::Vpor | N::Orpd | N::Vorpd | N::Vporq => each::<M, lanes::Or<64>>,
        N::Orps | N::Vorps | N::Vpord => each::<M, lanes::Or<32>>,
        N::Pxor | N::Vpxor | N::Xorpd | N::Vxorpd | N::Vpxorq => each::<M, lanes::Xor<64>>,
        N::Xorps | N::Vxorps | N::Vpxord => each::<M, lanes::Xor<32>>,
        N::Pavgb | N::Vpavgb => each::<M, lanes::Average<8>>,
        N::Pavgw | N::Vpavgw => each::<M, lanes::Average<16>>,
        N::Pabsb | N::Vpabsb => unary::<M, lanes::Absolute<8>>,
        N::Pabsw | N::Vpabsw => unary::<M, lanes::Absolute<16>>,
        N::Pabsd | N::Vpabsd => unary::<M, lanes::Absolute<32>>,
        N::Vpabsq => unary::<M, lanes::Absolute<64>>,
        N::Vpternlogd => ternary::logic::<M, 32>,
        N::Vpternlogq => ternary::logic::<M, 64>,
        N::Vpopcntb => unary::<M, lanes::Popcount<8>>,
        N::Vpopcntw => unary::<M, lanes::Popcount<16>>,
        N::Vpopcntd => unary::<M, lanes::Popcount<32>>,
        N::Vpopcntq => unary::<M, lanes::Popcount<64>>,
        N::Vplzcntd => unary::<M, lanes::LeadingZeros<32>>,
        N::Vplzcntq => unary::<M, lanes::LeadingZeros<64>>,
        N::Vpconflictd => lanes::conflicts::<M, 32>,
        N::Vpconflictq => lanes::conflicts::<M, 64>,
        N::Psignb | N::Vpsignb => each::<M, lanes::Sign<8>>,
        N::Psignw | N::Vpsignw => each::<M, lanes::Sign<16>>,
        N::Psignd | N::Vpsignd => each::<M, lanes::Sign<32>>,
        N::Phaddw | N::Vphaddw => lanes::horizontal::<M, lanes::Add<16>>,
        N::Phaddd | N::Vphaddd => lanes::horizontal::<M, lanes::Add<32>>,
        N::Phaddsw | N::Vphaddsw => lanes::horizontal::<M, lanes::AddSigned<16>>,
        N::Phsubw | N::Vphsubw => lanes::horizontal::<M, lanes::Sub<16>>,
        N::Phsubd | N::Vphsubd => lanes::horizontal::<M, lanes::Sub<32>>,
        N::Phsubsw | N::Vphsubsw => lanes::horizontal::<M, lanes::SubSigned<16>>,
        N::Phminposuw | N::Vphminposuw => lanes::minimum_position::<M>,
        N::Psadbw | N::Vpsadbw => each_whole::<M, lanes::SumOfDifferences<64>>,
        N::Vdbpsadbw => lanes::shuffled_differences::<M>,
        N::Mpsadbw | N::Vmpsadbw => lanes::block_differences::<M>,
        _ => return None,
    })
}

fn multiplication<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Pmullw | N::Vpmullw => each::<M, lanes::MulLow<16>>,
        N::Pmulld | N::Vpmulld => each::<M, lanes::MulLow<32>>,
        N::Vpmullq => each::<M, lanes::MulLow<64>>,
        N::Pmulhw | N::Vpmulhw => each::<M, lanes::MulHighSigned<16>>,
        N::Pmulhuw | N::Vpmulhuw => each::<M, lanes::MulHighUnsigned<16>>,
        N::Pmulhrsw | N::Vpmulhrsw => each::<M, lanes::MulRound<16>>,
        N::Pmuludq | N::Vpmuludq => each::<M, lanes::MulWideUnsigned<64>>,
        N::Pmuldq | N::Vpmuldq => each::<M, lanes::MulWideSigned<64>>,
        N::Vpmadd52luq => accumulated::<M, ternary::MulAdd52<false>>,
        N::Vpmadd52huq => accumulated::<M, ternary::MulAdd52<true>>,
        N::Vpdpbusd => accumulated::<M, ternary::DotBytes<false>>,
        N::Vpdpbusds => accumulated::<M, ternary::DotBytes<true>>,
        N::Vpdpwssd => accumulated::<M, ternary::DotWords<false>>,
        N::Vpdpwssds => accumulated::<M, ternary::DotWords<true>>,
        N::Pmaddwd | N::Vpmaddwd => each_whole::<M, lanes::MulAdd<32>>,
        N::Pmaddubsw | N::Vpmaddubsw => each_whole::<M, lanes::MulAddUnsigned<16>>,
        _ => return None,
    })
}

fn comparison<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Pcmpeqb | N::Vpcmpeqb => each::<M, lanes::Equal<8>>,
        N::Pcmpeqw | N::Vpcmpeqw => each::<M, lanes::Equal<16>>,
        N::Pcmpeqd | N::Vpcmpeqd => each::<M, lanes::Equal<32>>,
        N::Pcmpeqq | N::Vpcmpeqq => each::<M, lanes::Equal<64>>,
        N::Pcmpgtb | N::Vpcmpgtb => each::<M, lanes::Greater<8>>,
        N::Pcmpgtw | N::Vpcmpgtw => each::<M, lanes::Greater<16>>,
        N::Pcmpgtd | N::Vpcmpgtd => each::<M, lanes::Greater<32>>,
        N::Pcmpgtq | N::Vpcmpgtq => each::<M, lanes::Greater<64>>,
        N::Pminub | N::Vpminub => each::<M, lanes::MinUnsigned<8>>,
        N::Pminuw | N::Vpminuw => each::<M, lanes::MinUnsigned<16>>,
        N::Pminud | N::Vpminud => each::<M, lanes::MinUnsigned<32>>,
        N::Vpminuq => each::<M, lanes::MinUnsigned<64>>,
        N::Pmaxub | N::Vpmaxub => each::<M, lanes::MaxUnsigned<8>>,
        N::Pmaxuw | N::Vpmaxuw => each::<M, lanes::MaxUnsigned<16>>,
        N::Pmaxud | N::Vpmaxud => each::<M, lanes::MaxUnsigned<32>>,
        N::Vpmaxuq => each::<M, lanes::MaxUnsigned<64>>,
        N::Pminsb | N::Vpminsb => each::<M, lanes::MinSigned<8>>,
        N::Pminsw | N::Vpminsw => each::<M, lanes::MinSigned<16>>,
        N::Pminsd | N::Vpminsd => each::<M, lanes::MinSigned<32>>,
        N::Vpminsq => each::<M, lanes::MinSigned<64>>,
        N::Pmaxsb | N::Vpmaxsb => each::<M, lanes::MaxSigned<8>>,
        N::Pmaxsw | N::Vpmaxsw => each::<M, lanes::MaxSigned<16>>,
        N::Pmaxsd | N::Vpmaxsd => each::<M, lanes::MaxSigned<32>>,
        N::Vpmaxsq => each::<M, lanes::MaxSigned<64>>,
        _ => return None,
    })
}

/// What compares whole registers.
fn comparison_of_registers<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Ptest | N::Vptest => blend::test::<M, { u64::MAX }>,
        N::Vtestps => blend::test::<M, 0x8000_0000_8000_0000>,
        N::Vtestpd => blend::test::<M, 0x8000_0000_0000_0000>,
        N::Pcmpistri | N::Vpcmpistri => compare_strings::index::<M, false, 32>,
        N::Pcmpistrm | N::Vpcmpistrm => compare_strings::masks::<M, false, 32>,
        N::Pcmpestri | N::Vpcmpestri => compare_strings::index::<M, true, 32>,
        N::Pcmpestri64 | N::Vpcmpestri64 => compare_strings::index::<M, true, 64>,
        N::Pcmpestrm | N::Vpcmpestrm => compare_strings::masks::<M, true, 32>,
        N::Pcmpestrm64 | N::Vpcmpestrm64 => compare_strings::masks::<M, true, 64>,
        _ => return None,
    })
}

fn shifts<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Psllw | N::Vpsllw => shift::lanes::<M, Left, 16>,
        N::Pslld | N::Vpslld => shift::lanes::<M, Left, 32>,
        N::Psllq | N::Vpsllq => shift::lanes::<M, Left, 64>,
        N::Psrlw | N::Vpsrlw => shift::lanes::<M, Right, 16>,
        N::Psrld | N::Vpsrld => shift::lanes::<M, Right, 32>,
        N::Psrlq | N::Vpsrlq => shift::lanes::<M, Right, 64>,
        N::Psraw | N::Vpsraw => shift::lanes::<M, Arithmetic, 16>,
        N::Psrad | N::Vpsrad => shift::lanes::<M, Arithmetic, 32>,
        N::Vpsraq => shift::lanes::<M, Arithmetic, 64>,
        N::Vprold => lanes::with_immediate::<M, lanes::RotateLeft<32>>,
        N::Vprolq => lanes::with_immediate::<M, lanes::RotateLeft<64>>,
        N::Vprord => lanes::with_immediate::<M, lanes::RotateRight<32>>,
        N::Vprorq => lanes::with_immediate::<M, lanes::RotateRight<64>>,
        N::Vprolvd => each::<M, lanes::RotateLeft<32>>,
        N::Vprolvq => each::<M, lanes::RotateLeft<64>>,
        N::Vprorvd => each::<M, lanes::RotateRight<32>>,
        N::Vprorvq => each::<M, lanes::RotateRight<64>>,
        N::Vpsllvw => shift::variable::<M, Left, 16>,
        N::Vpsrlvw => shift::variable::<M, Right, 16>,
        N::Vpsravw => shift::variable::<M, Arithmetic, 16>,
        N::Vpsravq => shift::variable::<M, Arithmetic, 64>,
        N::Vpsllvd => shift::variable::<M, Left, 32>,
        N::Vpsllvq => shift::variable::<M, Left, 64>,
        N::Vpsrlvd => shift::variable::<M, Right, 32>,
        N::Vpsrlvq => shift::variable::<M, Right, 64>,
        N::Vpsravd => shift::variable::<M, Arithmetic, 32>,
        N::Vpshldw => ternary::with_immediate::<M, FunnelLeft<16>>,
        N::Vpshrdw => ternary::with_immediate::<M, FunnelRight<16>>,
        N::Vpshldvw => accumulated::<M, FunnelLeft<16>>,
        N::Vpshrdvw => accumulated::<M, FunnelRight<16>>,
        N::Vpshldd => ternary::with_immediate::<M, FunnelLeft<32>>,
        N::Vpshrdd => ternary::with_immediate::<M, FunnelRight<32>>,
        N::Vpshldvd => accumulated::<M, FunnelLeft<32>>,
        N::Vpshrdvd => accumulated::<M, FunnelRight<32>>,
        N::Vpshldq => ternary::with_immediate::<M, FunnelLeft<64>>,
        N::Vpshrdq => ternary::with_immediate::<M, FunnelRight<64>>,
        N::Vpshldvq => accumulated::<M, FunnelLeft<64>>,
        N::Vpshrdvq => accumulated::<M, FunnelRight<64>>,
        N::Vpmultishiftqb => shift::unaligned_bytes::<M>,
        N::Pslldq | N::Vpslldq => shift::bytes::<M, true>,
        N::Psrldq | N::Vpsrldq => shift::bytes::<M, false>,
        N::Palignr | N::Vpalignr => shift::align_right::<M>,
        _ => return None,
    })
}
