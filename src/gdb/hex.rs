//! Bytes and numbers as two and more digits of sixteen.

use std::fmt::Write;

/// Two digits for each byte.
pub(super) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a text that is nothing but pairs of digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).ok().filter(|pair| is_digits(pair)));
    pairs.map(|pair| pair.and_then(|pair| u8::from_str_radix(pair, 16).ok())).collect()
}

fn is_digits(pair: &str) -> bool {
    pair.len() == 2 && pair.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// A number of digits alone.
pub(super) fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok().filter(|_| !text.starts_with('+'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_they_are_written() {
        assert_eq!(decode(&encode(&[0, 0x9f, 255])), Some(vec![0, 0x9f, 255]));
        for bad in ["1", "0g", "éé", "+1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
        assert_eq!(number("ffffffffffffffff"), Some(u64::MAX));
        assert_eq!((number("+1"), number(""), number("10000000000000000")), (None, None, None));
    }
}
