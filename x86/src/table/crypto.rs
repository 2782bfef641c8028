//! AES, SHA, products without carries and GFNI, by mnemonic, as in [`super::vector`]: legacy, VEX and EVEX forms.

use iced_x86::{Instruction, Mnemonic as N};

use crate::decode;
use crate::machine::{Body, Handler, Machine};
use crate::op::Op;
use crate::sem::vector::aes::{Decrypt, DecryptLast, Encrypt, EncryptLast};
use crate::sem::vector::{aes, galois, sha};

/// The handler and operands of `i`, if it is one of these.
pub(super) fn lookup<M: Machine>(i: &Instruction) -> Option<(Handler<M>, Op)> {
    Some((Handler::Body(body(i)?), decode::op(i)))
}

fn body<M: Machine>(i: &Instruction) -> Option<Body<M>> {
    Some(match i.mnemonic() {
        N::Aesenc | N::Vaesenc => aes::round::<M, Encrypt>,
        N::Aesenclast | N::Vaesenclast => aes::round::<M, EncryptLast>,
        N::Aesdec | N::Vaesdec => aes::round::<M, Decrypt>,
        N::Aesdeclast | N::Vaesdeclast => aes::round::<M, DecryptLast>,
        N::Aesimc | N::Vaesimc => aes::inverse_mix::<M>,
        N::Aeskeygenassist | N::Vaeskeygenassist => aes::assist_key::<M>,
        N::Pclmulqdq | N::Vpclmulqdq => galois::carryless_product::<M>,
        N::Gf2p8mulb | N::Vgf2p8mulb => galois::multiply::<M>,
        N::Gf2p8affineqb | N::Vgf2p8affineqb => galois::affine::<M, false>,
        N::Gf2p8affineinvqb | N::Vgf2p8affineinvqb => galois::affine::<M, true>,
        N::Sha1rnds4 => sha::sha1_rounds::<M>,
        N::Sha1nexte => sha::sha1_next_e::<M>,
        N::Sha1msg1 => sha::sha1_schedule_1::<M>,
        N::Sha1msg2 => sha::sha1_schedule_2::<M>,
        N::Sha256rnds2 => sha::sha256_rounds::<M>,
        N::Sha256msg1 => sha::sha256_schedule_1::<M>,
        N::Sha256msg2 => sha::sha256_schedule_2::<M>,
        _ => return None,
    })
}
