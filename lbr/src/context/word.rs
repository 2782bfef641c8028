//! The word of a calling context: p' = 3p + c for each call, beginning with 0 in the outermost function.
//!
//! A call site is its return address. c is not that address but a hash of it: addresses are small and near each other,
//! so that 3p + c would be the same for many different stacks.

use xxhash_rust::xxh3::xxh3_64;

/// The word of the outermost function, which nobody called.
pub const ROOT: u64 = 0;
/// The inverse of 3 modulo 2^64.
const THIRD: u64 = 0xaaaa_aaaa_aaaa_aaab;
const _: () = assert!(THIRD.wrapping_mul(3) == 1);

/// The number c of the call site with this return address.
#[must_use]
pub fn id(site: u64) -> u64 {
    xxh3_64(&site.to_le_bytes())
}

/// The callee's word, when a caller with `word` calls at the site with this [`id`].
#[must_use]
pub fn called(word: u64, id: u64) -> u64 {
    word.wrapping_mul(3).wrapping_add(id)
}

/// The caller's word, of a callee's: undoes [`called`].
#[must_use]
pub fn caller(word: u64, id: u64) -> u64 {
    word.wrapping_sub(id).wrapping_mul(THIRD)
}
