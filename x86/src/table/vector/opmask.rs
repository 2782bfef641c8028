//! What names an opmask register as an operand: instructions on these registers, comparisons into them, and what goes
//! between them and vectors.

use iced_x86::{Instruction, Mnemonic as N};

use crate::machine::{Body, Machine};
use crate::sem::vector::shift::{Left, Right};
use crate::sem::vector::{lanes, moves, opmask, predicate};

pub(super) fn body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    logic(i).or_else(|| moved(i)).or_else(|| predicates(i)).or_else(|| conversions(i))
}

fn logic<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Kandb => opmask::combined::<M, lanes::And<8>>,
        N::Kandw => opmask::combined::<M, lanes::And<16>>,
        N::Kandd => opmask::combined::<M, lanes::And<32>>,
        N::Kandq => opmask::combined::<M, lanes::And<64>>,
        N::Kandnb => opmask::combined::<M, lanes::AndNot<8>>,
        N::Kandnw => opmask::combined::<M, lanes::AndNot<16>>,
        N::Kandnd => opmask::combined::<M, lanes::AndNot<32>>,
        N::Kandnq => opmask::combined::<M, lanes::AndNot<64>>,
        N::Korb => opmask::combined::<M, lanes::Or<8>>,
        N::Korw => opmask::combined::<M, lanes::Or<16>>,
        N::Kord => opmask::combined::<M, lanes::Or<32>>,
        N::Korq => opmask::combined::<M, lanes::Or<64>>,
        N::Kxorb => opmask::combined::<M, lanes::Xor<8>>,
        N::Kxorw => opmask::combined::<M, lanes::Xor<16>>,
        N::Kxord => opmask::combined::<M, lanes::Xor<32>>,
        N::Kxorq => opmask::combined::<M, lanes::Xor<64>>,
        N::Kxnorb => opmask::combined::<M, lanes::Xnor<8>>,
        N::Kxnorw => opmask::combined::<M, lanes::Xnor<16>>,
        N::Kxnord => opmask::combined::<M, lanes::Xnor<32>>,
        N::Kxnorq => opmask::combined::<M, lanes::Xnor<64>>,
        N::Kaddb => opmask::combined::<M, lanes::Add<8>>,
        N::Kaddw => opmask::combined::<M, lanes::Add<16>>,
        N::Kaddd => opmask::combined::<M, lanes::Add<32>>,
        N::Kaddq => opmask::combined::<M, lanes::Add<64>>,
        N::Knotb => opmask::complement::<M, 8>,
        N::Knotw => opmask::complement::<M, 16>,
        N::Knotd => opmask::complement::<M, 32>,
        N::Knotq => opmask::complement::<M, 64>,
        N::Kortestb => opmask::or_test::<M, 8>,
        N::Kortestw => opmask::or_test::<M, 16>,
        N::Kortestd => opmask::or_test::<M, 32>,
        N::Kortestq => opmask::or_test::<M, 64>,
        N::Ktestb => opmask::and_test::<M, 8>,
        N::Ktestw => opmask::and_test::<M, 16>,
        N::Ktestd => opmask::and_test::<M, 32>,
        N::Ktestq => opmask::and_test::<M, 64>,
        _ => return None,
    })
}

fn moved<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Kmovb => opmask::moved::<M, 8>,
        N::Kmovw => opmask::moved::<M, 16>,
        N::Kmovd => opmask::moved::<M, 32>,
        N::Kmovq => opmask::moved::<M, 64>,
        N::Kshiftlb => opmask::shifted::<M, Left, 8>,
        N::Kshiftlw => opmask::shifted::<M, Left, 16>,
        N::Kshiftld => opmask::shifted::<M, Left, 32>,
        N::Kshiftlq => opmask::shifted::<M, Left, 64>,
        N::Kshiftrb => opmask::shifted::<M, Right, 8>,
        N::Kshiftrw => opmask::shifted::<M, Right, 16>,
        N::Kshiftrd => opmask::shifted::<M, Right, 32>,
        N::Kshiftrq => opmask::shifted::<M, Right, 64>,
        N::Kunpckbw => opmask::unpacked::<M, 8>,
        N::Kunpckwd => opmask::unpacked::<M, 16>,
        N::Kunpckdq => opmask::unpacked::<M, 32>,
        _ => return None,
    })
}

fn predicates<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    use predicate::{Below, Equal, Greater, Less, NoneCommon, SomeCommon, by_immediate, into_mask};
    Some(match i.mnemonic() {
        N::Vpcmpeqb => into_mask::<M, Equal<8>>,
        N::Vpcmpeqw => into_mask::<M, Equal<16>>,
        N::Vpcmpeqd => into_mask::<M, Equal<32>>,
        N::Vpcmpeqq => into_mask::<M, Equal<64>>,
        N::Vpcmpgtb => into_mask::<M, Greater<8>>,
        N::Vpcmpgtw => into_mask::<M, Greater<16>>,
        N::Vpcmpgtd => into_mask::<M, Greater<32>>,
        N::Vpcmpgtq => into_mask::<M, Greater<64>>,
        N::Vpcmpb => by_immediate::<M, Less<8>, Equal<8>>,
        N::Vpcmpw => by_immediate::<M, Less<16>, Equal<16>>,
        N::Vpcmpd => by_immediate::<M, Less<32>, Equal<32>>,
        N::Vpcmpq => by_immediate::<M, Less<64>, Equal<64>>,
        N::Vpcmpub => by_immediate::<M, Below<8>, Equal<8>>,
        N::Vpcmpuw => by_immediate::<M, Below<16>, Equal<16>>,
        N::Vpcmpud => by_immediate::<M, Below<32>, Equal<32>>,
        N::Vpcmpuq => by_immediate::<M, Below<64>, Equal<64>>,
        N::Vptestmb => into_mask::<M, SomeCommon<8>>,
        N::Vptestmw => into_mask::<M, SomeCommon<16>>,
        N::Vptestmd => into_mask::<M, SomeCommon<32>>,
        N::Vptestmq => into_mask::<M, SomeCommon<64>>,
        N::Vptestnmb => into_mask::<M, NoneCommon<8>>,
        N::Vptestnmw => into_mask::<M, NoneCommon<16>>,
        N::Vptestnmd => into_mask::<M, NoneCommon<32>>,
        N::Vptestnmq => into_mask::<M, NoneCommon<64>>,
        N::Vpshufbitqmb => predicate::chosen_bits::<M>,
        _ => return None,
    })
}

fn conversions<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Vpmovm2b => opmask::spread::<M, 8>,
        N::Vpmovm2w => opmask::spread::<M, 16>,
        N::Vpmovm2d => opmask::spread::<M, 32>,
        N::Vpmovm2q => opmask::spread::<M, 64>,
        N::Vpmovb2m => moves::sign_mask::<M, 8>,
        N::Vpmovw2m => moves::sign_mask::<M, 16>,
        N::Vpmovd2m => moves::sign_mask::<M, 32>,
        N::Vpmovq2m => moves::sign_mask::<M, 64>,
        N::Vpbroadcastmb2q => opmask::broadcast::<M, 8, 64>,
        N::Vpbroadcastmw2d => opmask::broadcast::<M, 16, 32>,
        _ => return None,
    })
}
