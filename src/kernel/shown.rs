//! What a guest prints, on standard output; and that what gretel says behind it begins on a line of its own.
//!
//! A guest that ends at its prompt (`/ # `) leaves its last line open. Where standard output and standard error lead to one place, a
//! terminal or a log, that line is closed before gretel's next one. Elsewhere nothing is added: what the guest printed is what it printed.

use rustix::fs::fstat;
use std::io::{self, Write};

/// Standard output as the guest's.
#[derive(Default)]
pub(super) struct Shown {
    /// The last line has something in it, and no end.
    is_open: bool,
}

impl Shown {
    /// Prints what the guest printed.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn show(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.note(bytes);
        io::stdout().write_all(bytes).and_then(|()| io::stdout().flush())
    }

    /// Closes the last line, if what gretel says comes behind it.
    pub(super) fn finish(&mut self) {
        if std::mem::take(&mut self.is_open) && are_one_place() {
            // Where it cannot be written, what follows is lost, too.
            let _ = io::stderr().write_all(b"\n");
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        // A carriage return alone neither begins a line nor ends one.
        if let Some(last) = bytes.iter().rfind(|byte| **byte != b'\r') {
            self.is_open = *last != b'\n';
        }
    }
}

/// Whether standard output and standard error are the same file, terminal or pipe.
fn are_one_place() -> bool {
    let [out, err] = [fstat(io::stdout()), fstat(io::stderr())];
    matches!((out, err), (Ok(out), Ok(err)) if (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_open_until_it_ends() {
        let mut shown = Shown::default();
        for (bytes, is_open) in [
            ("", false),
            ("a\r\n", false),
            ("/ # ", true),
            ("\r", true),
            ("", true),
            ("\n\r", false),
            ("\r", false),
        ] {
            shown.note(bytes.as_bytes());
            assert_eq!(shown.is_open, is_open, "{bytes:?}");
        }
    }
}
