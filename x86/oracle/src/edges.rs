//! Operands at the edges, for the directed cases: pairs of them are enumerated, so each list is short and complete.

/// Integers; narrower operands take the low bits.
pub(crate) const INTEGERS: [u64; 35] = [
    0,
    1,
    2,
    3,
    7,
    8,
    0xf,
    0x10,
    0x1f,
    0x20,
    0x21,
    0x3f,
    0x40,
    0x7f,
    0x80,
    0x81,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff,
    0x8000_0000_0000,
    0x5555_5555_5555_5555,
    0xaaaa_aaaa_aaaa_aaaa,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0x8000_0000_0000_0001,
    0xffff_ffff_8000_0000,
    0xffff_ffff_ffff_fffe,
    0xffff_ffff_ffff_ffff,
];

/// Single-precision magnitudes: each counts with both signs.
pub(crate) const SINGLES: [u32; 22] = [
    0x0000_0000, // 0
    0x0000_0001, // smallest denormal
    0x0040_0000, // a denormal
    0x007f_ffff, // largest denormal
    0x0080_0000, // smallest normal
    0x0080_0001, // just above it
    0x1f80_0000, // its square is a denormal
    0x3f00_0000, // 0.5
    0x3f7f_ffff, // 1 - epsilon
    0x3f80_0000, // 1
    0x3f80_0001, // 1 + epsilon
    0x3fc0_0000, // 1.5
    0x4040_0000, // 3
    0x4b00_0001, // 2^23 + 1
    0x4eff_ffff, // just below 2^31
    0x4f00_0000, // 2^31
    0x5f00_0000, // 2^63
    0x7f7f_ffff, // largest
    0x7f80_0000, // infinity
    0x7f80_0001, // signalling NaN
    0x7fc0_0000, // quiet NaN
    0x7fd2_3456, // quiet NaN with a payload
];

/// Double-precision magnitudes, likewise.
pub(crate) const DOUBLES: [u64; 24] = [
    0x0000_0000_0000_0000, // 0
    0x0000_0000_0000_0001, // smallest denormal
    0x0008_0000_0000_0000, // a denormal
    0x000f_ffff_ffff_ffff, // largest denormal
    0x0010_0000_0000_0000, // smallest normal
    0x0010_0000_0000_0001, // just above it
    0x1ff0_0000_0000_0000, // its square is a denormal
    0x36a0_0000_0000_0000, // smallest denormal single
    0x380f_ffff_ffff_ffff, // rounds to the smallest normal single
    0x3fe0_0000_0000_0000, // 0.5
    0x3fef_ffff_ffff_ffff, // 1 - epsilon
    0x3ff0_0000_0000_0000, // 1
    0x3ff0_0000_0000_0001, // 1 + epsilon
    0x3ff8_0000_0000_0000, // 1.5
    0x4008_0000_0000_0000, // 3
    0x41df_ffff_ffe0_0000, // just below 2^31
    0x41e0_0000_0000_0000, // 2^31
    0x4330_0000_0000_0001, // 2^52 + 1
    0x43e0_0000_0000_0000, // 2^63
    0x47ef_ffff_f000_0000, // rounds past the largest single
    0x7fef_ffff_ffff_ffff, // largest
    0x7ff0_0000_0000_0000, // infinity
    0x7ff0_0000_0000_0001, // signalling NaN
    0x7ffa_1234_5678_9abc, // quiet NaN with a payload
];

/// 80-bit magnitudes, likewise: significand and exponent.
pub(crate) const EXTENDED: [(u64, u16); 28] = [
    (0, 0),
    (1, 0),                                // smallest denormal
    (0x7fff_ffff_ffff_ffff, 0),            // largest denormal
    (0x8000_0000_0000_0001, 0),            // pseudo-denormal
    (0x8000_0000_0000_0000, 1),            // smallest normal
    (0x8000_0000_0000_0001, 0x1fff),       // its square is a denormal
    (0x8000_0000_0000_0000, 0x3fff - 64),  // half a unit in the last place of 1
    (0x8000_0000_0000_0000, 0x3ffe),       // 0.5
    (0xffff_ffff_ffff_ffff, 0x3ffe),       // 1 - epsilon
    (0x8000_0000_0000_0000, 0x3fff),       // 1
    (0x8000_0000_0000_0001, 0x3fff),       // 1 + epsilon
    (0x8000_0080_0000_0000, 0x3fff),       // halfway between two singles
    (0x8000_0000_0000_0400, 0x3fff),       // halfway between two doubles
    (0xc000_0000_0000_0000, 0x3fff),       // 1.5
    (0xc90f_daa2_2168_c235, 0x4000),       // pi
    (0xffff_0000_0000_0000, 0x3fff + 14),  // just below 2^15
    (0x8000_0000_0000_0000, 0x3fff + 31),  // 2^31
    (0xde0b_6b3a_7640_0000, 0x3fff + 59),  // 10^18
    (0xffff_ffff_ffff_ffff, 0x3fff + 62),  // just below 2^63
    (0x8000_0000_0000_0000, 0x3fff + 63),  // 2^63
    (0xffff_ff80_0000_0000, 0x3fff + 127), // rounds past the largest single
    (0xffff_ffff_ffff_ffff, 0x7ffe),       // largest
    (0x8000_0000_0000_0000, 0x7fff),       // infinity
    (0x8000_0000_0000_0001, 0x7fff),       // signalling NaN
    (0xc000_0000_0000_0000, 0x7fff),       // quiet NaN
    (0xd234_5678_9abc_def0, 0x7fff),       // quiet NaN with a payload
    (0x0000_0000_0000_0001, 0x7fff),       // pseudo-NaN
    (0x4000_0000_0000_0000, 0x3fff),       // unnormal
];
