//! SSE, AVX and AVX-512: one file per family. What they share: [`operands`] (where operands are, and how they are read),
//! [`algebra`] (vectors as lanes), [`results`] (how results are written).
//!
//! A vector register is eight parts of 64 bits. Integer lanes are exact bit-vector algebra, so that a solver reasons
//! about them; floating point goes through [`crate::opaque`].
//!
//! # How to add an instruction
//!
//! One handler serves the legacy form (its destination is its first source), the VEX form (three operands) and the
//! EVEX form (mask, broadcast, rounding), at every vector length. It has three steps:
//!
//! 1. Read what can trap: [`second`] (or [`second_low`] of a scalar, [`source`] of an instruction with one source).
//!    It checks alignment where the encoding asks for it, broadcasts, and touches no lane that the mask leaves out.
//!    Instructions that move data between lanes load all of it whatever the mask says (in the manual: exception
//!    types E4NF): these use [`second_whole`]. Then read [`first`].
//! 2. Compute all parts of the result: with [`from_lanes`] lane by lane, or with [`in_blocks`] where each 128 bits
//!    are computed by themselves. Floating point: [`float::each_lane`], then [`float::settle`].
//! 3. [`commit`] with the width of the lanes that a mask bit stands for ([`commit_low`] for a scalar): it applies the
//!    mask, and clears what is above the result unless the encoding is legacy. [`commit_mask`] writes a result that is
//!    itself an opmask, [`commit_store`] one that goes to memory.
//!
//! Where each lane of the result depends on the same lane of the sources alone, [`by_lanes`] is all three steps in one,
//! and faster; [`by_blocks`] the same for 128 bits. A simple operation of two lanes is one line in [`lanes`], of three in [`ternary`];
//! and a question whose answers are an opmask is one in [`predicate`].
//!
//! Then name the handler in `table/vector` by mnemonic: `N::Paddb | N::Vpaddb` has all forms and lengths at once. Add a
//! golden case for each mnemonic, and run `x86-oracle --mnemonic vpaddb`, which takes its encodings from the table.

pub mod aes;
pub mod auxiliary;
pub mod blend;
pub mod compare_strings;
pub mod compress;
pub mod convert;
pub mod crc;
pub mod float;
pub mod float_masks;
pub mod fused;
pub mod galois;
pub mod lanes;
pub mod masked;
pub mod mmx;
pub mod moves;
pub mod opmask;
pub mod pack;
pub mod permute;
pub mod predicate;
pub mod sha;
pub mod shift;
pub mod shuffle;
pub mod state;
pub mod ternary;

mod algebra;
mod operands;
mod results;

use algebra::{
    Block, Wide, block_from_lanes, first_lanes, from_block, from_lanes, from_parts, in_blocks, lane,
    lane_of_part, low_block, mask, part_from_lanes, side_by_side, with_lane,
};
use operands::{
    above, aligned_address, any_active, empty_blocks, first, first_low, first_place, immediate, is_active,
    is_legacy, length, load_bits, load_for_all, load_lanes, low_of, mask_bit, number, packed_register,
    packed_sources, parts, register, second, second_low, second_place, second_whole, source, source_address,
    source_of, source_whole, sources,
};
use results::{
    blockwise, by_blocks, by_lane, by_lanes, commit, commit_lanes, commit_low, commit_low_over, commit_mask,
    commit_store, set_blocks, set_mask, set_register, store_chosen,
};
