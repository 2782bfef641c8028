//! What the guest prints on a console, and a reader of kernel panics in it.

use crate::saved::{Saved, Words};
use std::io;

/// What a kernel prints first when it panics; the reason follows.
const PANIC: &str = "Kernel panic - not syncing: ";
/// What Linux prints when it has told all, and goes round and round for ever.
const PANIC_END: &str = "---[ end Kernel panic";
/// No line that is looked at is longer.
const LONGEST: usize = 1024;

/// Where bytes go that the guest prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Screen {
    /// What nobody has taken yet.
    printed: Vec<u8>,
    /// The line that is being printed.
    line: Vec<u8>,
    panic: Option<String>,
    has_told: bool,
}

impl io::Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.printed.extend_from_slice(bytes);
        for byte in bytes {
            match byte {
                b'\n' => self.line.clear(),
                _ if self.line.len() < LONGEST => {
                    self.line.push(*byte);
                    self.has_told |= self.panic.is_some() && ends_with(&self.line, PANIC_END);
                }
                _ => {}
            }
            if *byte == b'\r' {
                self.read_line();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ends_with(line: &[u8], text: &str) -> bool {
    line.ends_with(text.as_bytes())
}

/// But for what nobody has taken yet: whoever saves a machine shows that before.
impl Saved for Screen {
    fn put(&self, out: &mut Vec<u64>) {
        let Screen { printed: _, line, panic, has_told } = self;
        line.put(out);
        panic.put(out);
        has_told.put(out);
    }

    fn take(from: &mut Words<'_>) -> Option<Screen> {
        let (line, (panic, has_told)) = Saved::take(from)?;
        Some(Screen { printed: Vec::new(), line, panic, has_told })
    }
}

impl Screen {
    /// What was printed since this was called last.
    pub(super) fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.printed)
    }

    /// Whether something is printed that nobody took.
    pub(super) fn has_printed(&self) -> bool {
        !self.printed.is_empty()
    }

    /// The reason of the panic that was printed.
    pub(super) fn panic(&self) -> Option<&str> {
        self.panic.as_deref()
    }

    /// Whether all is printed that a kernel has to say of that.
    pub(super) fn has_told_panic(&self) -> bool {
        self.has_told
    }

    /// Looks for the reason of a panic in a line that has ended. The first is the reason, what follows its consequence.
    fn read_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        if let (None, Some((_, reason))) = (&self.panic, line.split_once(PANIC)) {
            self.panic = Some(reason.trim_end().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_panic_is_read_from_the_line_it_is_in() {
        let mut screen = Screen::default();
        let text =
            "[    1.5] Kernel panic - not syncing: No init\r\n[ 1.6] Kernel panic - not syncing: b\r\n";
        screen.write_all(text.as_bytes()).unwrap();
        assert_eq!((screen.panic(), screen.has_told_panic()), (Some("No init"), false));
        screen.write_all(b"[    1.6] ---[ end Kernel panic").unwrap();
        assert!(screen.has_told_panic());
        assert!(screen.take_printed().ends_with(b"panic") && !screen.has_printed());
    }
}
