//! Keys that are signals: what is written to a master is what somebody has typed, and the line discipline makes signals of some
//! of it (`n_tty_receive_char_special` of drivers/tty/n_tty.c). The host's discipline takes those bytes out as well, and has
//! nobody to send a signal to.

use super::super::descriptors::OpenFile;
use super::super::{Guest, Kernel, Served, host};
use super::{KERNEL_TERMIOS, Side};

/// The places of keys in the settings' characters, each with its signal.
const SIGNALS: [(usize, i32); 3] =
    [(libc::VINTR, libc::SIGINT), (libc::VQUIT, libc::SIGQUIT), (libc::VSUSP, libc::SIGTSTP)];
/// Where the flags and the characters are in the kernel's `struct termios`.
const LOCAL: usize = 12;
const CHARACTERS: usize = 17;

/// The settings of a terminal, as far as they concern keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Settings {
    local: u32,
    characters: [u8; KERNEL_TERMIOS - CHARACTERS],
}

impl Settings {
    fn of(bytes: &[u8]) -> Option<Settings> {
        let local = u32::from_le_bytes(bytes.get(LOCAL..LOCAL + 4)?.try_into().ok()?);
        Some(Settings { local, characters: bytes.get(CHARACTERS..KERNEL_TERMIOS)?.try_into().ok()? })
    }

    /// The settings of a terminal as they are.
    pub(super) fn ask(guest: &mut Guest<'_>, file: &OpenFile) -> Served<Option<Settings>> {
        let bytes = guest.input_bytes(&mut || {
            let mut bytes = vec![0; KERNEL_TERMIOS];
            match host::ioctl(file.host(), libc::TCGETS, &mut bytes) {
                0 => Ok(bytes),
                error => Err(error),
            }
        })?;
        Ok(Settings::of(&bytes))
    }

    pub(super) fn has(&self, flag: libc::tcflag_t) -> bool {
        self.local & flag != 0
    }

    fn is(&self, key: usize, byte: u8) -> bool {
        self.characters[key] != 0 && self.characters[key] == byte
    }

    /// The signals of what was typed. `literal`: the next byte is no key.
    fn signals(&self, typed: &[u8], literal: &mut bool) -> Vec<i32> {
        let mut signals = Vec::new();
        for byte in typed {
            if std::mem::take(literal) || self.has(libc::EXTPROC) {
                continue;
            }
            if self.has(libc::ISIG) {
                let found = SIGNALS.iter().find(|(key, _)| self.is(*key, *byte));
                signals.extend(found.map(|(_, signal)| *signal));
            }
            *literal = self.has(libc::ICANON) && self.has(libc::IEXTEN) && self.is(libc::VLNEXT, *byte);
        }
        signals
    }
}

impl Kernel {
    /// The settings by which what is about to be written to a file is typed, if that is a master.
    pub(in super::super) fn before_typing(
        &self,
        guest: &mut Guest<'_>,
        file: &OpenFile,
    ) -> Served<Option<Settings>> {
        match file.terminal() {
            Some(Side::Master(_)) => Settings::ask(guest, file),
            _ => Ok(None),
        }
    }

    /// Sends the signals of what was typed.
    pub(in super::super) fn after_typing(&mut self, file: &OpenFile, settings: &Settings, typed: &[u8]) {
        let Some(Side::Master(number)) = file.terminal() else { return };
        let Some(terminal) = self.terminals.all.get_mut(&number) else { return };
        for signal in settings.signals(typed, &mut terminal.literal) {
            self.signal_foreground(number, signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_signals_unless_they_are_quoted_or_switched_off() {
        let mut characters = [0; KERNEL_TERMIOS - CHARACTERS];
        (characters[libc::VINTR], characters[libc::VSUSP], characters[libc::VLNEXT]) = (3, 26, 22);
        let mut settings = Settings { local: libc::ISIG | libc::ICANON | libc::IEXTEN, characters };
        let mut literal = false;
        assert_eq!(settings.signals(b"a\x03b\x1a\0", &mut literal), [libc::SIGINT, libc::SIGTSTP]);
        assert_eq!(settings.signals(b"\x16", &mut literal), [0; 0]);
        assert_eq!(settings.signals(b"\x03\x03", &mut literal), [libc::SIGINT]);
        settings.local = libc::ICANON;
        assert_eq!(settings.signals(b"\x03", &mut literal), [0; 0]);
    }
}
