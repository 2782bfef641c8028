//! Strings in quotes, escaped as strace does.

use std::fmt::Write as _;

/// Bytes in quotes: an escape is as short as it can be.
#[must_use]
pub fn quoted(bytes: &[u8]) -> String {
    let mut shown = String::from("\"");
    for (n, &byte) in bytes.iter().enumerate() {
        let followed_by_digit = bytes.get(n + 1).is_some_and(|next| (b'0'..=b'7').contains(next));
        match byte {
            b'"' | b'\\' => shown.extend(['\\', char::from(byte)]),
            b'\t' => shown.push_str("\\t"),
            b'\n' => shown.push_str("\\n"),
            0x0b => shown.push_str("\\v"),
            0x0c => shown.push_str("\\f"),
            b'\r' => shown.push_str("\\r"),
            b' '..=b'~' => shown.push(char::from(byte)),
            _ if followed_by_digit => write!(shown, "\\{byte:03o}").expect("a string takes all"),
            _ => write!(shown, "\\{byte:o}").expect("a string takes all"),
        }
    }
    shown + "\""
}

/// Bytes in quotes, each in hexadecimal.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    let mut shown = String::from("\"");
    for byte in bytes {
        write!(shown, "\\x{byte:02x}").expect("a string takes all");
    }
    shown + "\""
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn escapes_are_short_unless_a_digit_follows() {
        assert_eq!(quoted(b"\x7fELF\x02\x01\0\0>"), r#""\177ELF\2\1\0\0>""#);
        assert_eq!(quoted(b"a\tb\n\x01\x012\"\\\xff\x0000"), r#""a\tb\n\1\0012\"\\\377\00000""#);
        assert_eq!(quoted(b"\x0b\x0c\r~ \x1b9"), r#""\v\f\r~ \339""#);
    }
}
