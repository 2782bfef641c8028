//! Paths as they are given to a shell.

use std::path::Path;

/// A path as a word of a shell: quoted, where it has characters that mean something there.
pub(crate) fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./+,:@%=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::word;
    use std::path::Path;

    #[test]
    fn a_word_is_one_word() {
        for (path, expected) in [
            ("gretel-prog-1", "gretel-prog-1"),
            ("a b", "'a b'"),
            ("it's", "'it'\\''s'"),
            ("$HOME", "'$HOME'"),
            ("\u{e9}", "'\u{e9}'"),
        ] {
            assert_eq!(word(Path::new(path)), expected);
        }
    }
}
