//! Paths in commands that are shown to be typed.

use std::path::Path;

/// A path as a word of the shell: in quotes if it needs them.
pub(crate) fn word(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%=".contains(c);
    if !path.is_empty() && path.chars().all(is_plain) {
        return path.into_owned();
    }
    format!("'{}'", path.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_the_shell_would_split_them() {
        for (path, as_word) in [
            ("gretel-redis-1", "gretel-redis-1"),
            ("/tmp/ä/x.rec", "/tmp/ä/x.rec"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(x)", "'$(x)'"),
            ("", "''"),
        ] {
            assert_eq!(word(Path::new(path)), as_word);
        }
    }
}
