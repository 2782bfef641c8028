//! Polynomials over the field of two elements: products without carries, the field of 256 elements (GFNI), and the
//! steps of AES on a column of its state (FIPS 197).

/// An operation on such polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// (a, b), 64 bits each, to (low half, high half) of their product without carries.
    CarrylessProduct,
    /// (a, b) to the products of their eight bytes modulo x^8 + x^4 + x^3 + x + 1.
    Multiply,
    /// (a) to the inverses of its eight bytes modulo the same; that of zero is zero.
    Inverse,
    /// (a, matrix) to the eight bytes of a, each multiplied by a matrix of bits: bit n of the result is the parity of
    /// a byte and byte 7 - n of the matrix.
    Affine,
    /// (column, 32 bits, its first row in the lowest byte) to (column).
    Aes(AesStep),
}

/// A step of AES on a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AesStep {
    /// SubBytes.
    Substitute,
    /// SubBytes, MixColumns.
    SubstituteAndMix,
    /// InvSubBytes.
    InverseSubstitute,
    /// InvSubBytes, InvMixColumns.
    InverseSubstituteAndMix,
    /// InvMixColumns.
    InverseMix,
}

impl Field {
    /// The widths of the arguments in bits.
    pub(super) fn argument_widths(self) -> Vec<u32> {
        match self {
            Field::CarrylessProduct | Field::Multiply | Field::Affine => vec![64, 64],
            Field::Inverse => vec![64],
            Field::Aes(_) => vec![32],
        }
    }

    /// The widths of the results in bits.
    pub(super) fn result_widths(self) -> [u32; 3] {
        match self {
            Field::CarrylessProduct => [64, 64, 1],
            Field::Multiply | Field::Affine | Field::Inverse => [64, 1, 1],
            Field::Aes(_) => [32, 1, 1],
        }
    }
}

/// Applies the operation.
pub(super) fn evaluate(op: Field, args: &[u64]) -> [u64; 3] {
    let bytes = args[0].to_le_bytes();
    let of_bytes = |f: &dyn Fn(usize) -> u8| [u64::from_le_bytes(std::array::from_fn(f)), 0, 0];
    match op {
        Field::CarrylessProduct => carryless_product(args[0], args[1]),
        Field::Multiply => {
            let others = args[1].to_le_bytes();
            of_bytes(&|n| multiply(bytes[n], others[n]))
        }
        Field::Inverse => of_bytes(&|n| inverse(bytes[n])),
        Field::Affine => of_bytes(&|n| affine(args[1], bytes[n])),
        Field::Aes(step) => {
            let column = [bytes[0], bytes[1], bytes[2], bytes[3]];
            [u64::from(u32::from_le_bytes(aes(step, column))), 0, 0]
        }
    }
}

fn carryless_product(a: u64, mut b: u64) -> [u64; 3] {
    let mut product = 0_u128;
    while b != 0 {
        product ^= u128::from(a) << b.trailing_zeros();
        b &= b - 1;
    }
    let bytes = product.to_le_bytes();
    let half = |from: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[from + n]));
    [half(0), half(8), 0]
}

/// Twice `a`.
const fn double(a: u8) -> u8 {
    a << 1 ^ if a & 0x80 == 0 { 0 } else { 0x1b }
}

const fn multiply(a: u8, b: u8) -> u8 {
    let (mut power, mut product, mut n) = (a, 0, 0);
    while n < 8 {
        if b >> n & 1 != 0 {
            product ^= power;
        }
        power = double(power);
        n += 1;
    }
    product
}

/// a^254, which is the inverse, since a^255 is one.
const fn inverse(a: u8) -> u8 {
    let (mut power, mut product, mut n) = (a, 1, 1);
    while n < 8 {
        power = multiply(power, power);
        product = multiply(product, power);
        n += 1;
    }
    product
}

const fn affine(matrix: u64, a: u8) -> u8 {
    let rows = matrix.to_be_bytes();
    let (mut r, mut n) = (0, 0);
    while n < 8 {
        if (rows[n] & a).count_ones() & 1 != 0 {
            r |= 1 << n;
        }
        n += 1;
    }
    r
}

/// The S-box of AES and its inverse.
const BOXES: [[u8; 256]; 2] = {
    const MATRIX: u64 = 0xf1e3_c78f_1f3e_7cf8;
    let (mut boxes, mut n) = ([[0; 256]; 2], 0_u8);
    loop {
        let substituted = affine(MATRIX, inverse(n)) ^ 0x63;
        boxes[0][n as usize] = substituted;
        boxes[1][substituted as usize] = n;
        match n.checked_add(1) {
            Some(next) => n = next,
            None => break boxes,
        }
    }
};

fn aes(step: AesStep, column: [u8; 4]) -> [u8; 4] {
    let substitute = |which: usize| column.map(|byte| BOXES[which][usize::from(byte)]);
    match step {
        AesStep::Substitute => substitute(0),
        AesStep::SubstituteAndMix => mix(substitute(0)),
        AesStep::InverseSubstitute => substitute(1),
        AesStep::InverseSubstituteAndMix => inverse_mix(substitute(1)),
        AesStep::InverseMix => inverse_mix(column),
    }
}

/// MixColumns: each row is twice itself, thrice the next and the two others.
fn mix(a: [u8; 4]) -> [u8; 4] {
    let all = a[0] ^ a[1] ^ a[2] ^ a[3];
    std::array::from_fn(|n| a[n] ^ all ^ double(a[n] ^ a[(n + 1) % 4]))
}

/// InvMixColumns, which is MixColumns after adding four times the sum of a row and the next but one to both.
fn inverse_mix(a: [u8; 4]) -> [u8; 4] {
    let four_times = |x: u8| double(double(x));
    mix(std::array::from_fn(|n| a[n] ^ four_times(a[n] ^ a[(n + 2) % 4])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_s_box_is_that_of_the_standard() {
        assert_eq!(BOXES[0][..8], [0x63, 0x7c, 0x77, 0x7b, 0xf2, 0x6b, 0x6f, 0xc5]);
        assert_eq!((BOXES[0][0x53], BOXES[1][0xed], BOXES[0][0xff]), (0xed, 0x53, 0x16));
    }

    #[test]
    fn columns_mix_as_in_the_standard() {
        let (plain, mixed) = ([0xdb, 0x13, 0x53, 0x45], [0x8e, 0x4d, 0xa1, 0xbc]);
        assert_eq!(mix(plain), mixed);
        assert_eq!(inverse_mix(mixed), plain);
    }

    #[test]
    fn every_byte_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), 0);
        assert!((1..=255).all(|a| multiply(a, inverse(a)) == 1));
    }

    #[test]
    fn products_have_no_carries() {
        assert_eq!(carryless_product(3, 3), [5, 0, 0]);
        assert_eq!(carryless_product(u64::MAX, 1 << 63), [1 << 63, u64::MAX >> 1, 0]);
    }
}
