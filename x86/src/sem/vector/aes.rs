//! AES (FIPS 197), a round at a time. The rows are shifted and the key is added exactly; what happens to a column is
//! opaque.

use super::{Block, block_from_lanes, commit, first, immediate, in_blocks, lane, second_whole, source_whole};
use crate::domain::{Bin, Domain};
use crate::machine::{Exec, Machine};
use crate::op::Op;
use crate::opaque::{AesStep, Field, Opaque};

/// A round, chosen by the table.
pub trait Round {
    /// What becomes of a column.
    const STEP: AesStep;
    /// Whether the rows are shifted to the right, as for decryption.
    const DECRYPTS: bool;
}

macro_rules! rounds {
    ($($(#[$doc:meta])* $name:ident = $step:ident, $decrypts:literal;)*) => {$(
        $(#[$doc])*
        pub struct $name;
        impl Round for $name {
            const STEP: AesStep = AesStep::$step;
            const DECRYPTS: bool = $decrypts;
        }
    )*};
}
rounds! {
    /// AESENC.
    Encrypt = SubstituteAndMix, false;
    /// AESENCLAST.
    EncryptLast = Substitute, false;
    /// AESDEC.
    Decrypt = InverseSubstituteAndMix, true;
    /// AESDECLAST.
    DecryptLast = InverseSubstitute, true;
}

/// A step on a column.
fn step<D: Domain>(d: &D, step: AesStep, column: D::Bv) -> D::Bv {
    let [column, _, _] = d.opaque(Opaque::Field(Field::Aes(step)), &[column]);
    column
}

/// Column `n` of the state after its rows were shifted: row r by r places to the left, or to the right.
fn shifted_column<D: Domain>(d: &D, state: &Block<D>, n: u32, to_right: bool) -> D::Bv {
    let byte = |row: u32| {
        let column = if to_right { n + 4 - row } else { n + row } % 4;
        lane(d, 8, 4 * column + row, state)
    };
    (1..4).fold(byte(0), |column, row| d.concat(8, byte(row), 8 * row, column))
}

/// AESENC, AESENCLAST, AESDEC, AESDECLAST: a round with the second source as its key.
pub fn round<M: Machine, R: Round>(m: &mut M, op: &Op) -> Exec {
    let key = second_whole(m, op, 64)?;
    let state = first(m, op);
    let d = m.d();
    let r = in_blocks(d, op, &state, &key, |_, state, key| {
        let [low, high] = block_from_lanes(d, 32, |n| {
            let column = shifted_column(d, &state, n, R::DECRYPTS);
            step(d, R::STEP, column)
        });
        [d.bin(Bin::Xor, 64, low, key[0]), d.bin(Bin::Xor, 64, high, key[1])]
    });
    commit(m, op, 64, r);
    Ok(())
}

/// AESIMC.
pub fn inverse_mix<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let key = source_whole(m, op, op.b, 64)?;
    let d = m.d();
    let r = in_blocks(d, op, &key, &key, |_, key, _| {
        block_from_lanes(d, 32, |n| step(d, AesStep::InverseMix, lane(d, 32, n, &key)))
    });
    commit(m, op, 64, r);
    Ok(())
}

/// AESKEYGENASSIST: of doublewords 1 and 3 the substitution, and the same rotated by a byte and with the immediate
/// added.
pub fn assist_key<M: Machine>(m: &mut M, op: &Op) -> Exec {
    let key = source_whole(m, op, op.b, 64)?;
    let d = m.d();
    let r = in_blocks(d, op, &key, &key, |_, key, _| {
        block_from_lanes(d, 32, |n| {
            let word = step(d, AesStep::Substitute, lane(d, 32, n | 1, &key));
            if n & 1 == 0 {
                return word;
            }
            let rotated = d.concat(8, d.trunc(32, 8, word), 24, d.extract(32, 8, 24, word));
            d.bin(Bin::Xor, 32, rotated, d.lit(32, immediate(op).into()))
        })
    });
    commit(m, op, 64, r);
    Ok(())
}
