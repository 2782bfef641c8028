//! Two 8259 interrupt controllers, the second behind line 2 of the first (Intel 8259A data sheet).
//!
//! Every line is edge-triggered, as on an ISA bus. Rotating priorities, polling and special masks are left out: Linux uses none.

use crate::saved::saved;

/// The line of the first controller that the second is on.
const CASCADE: u8 = 2;

/// Which register the even port reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    #[default]
    Requests,
    Service,
}

/// One controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chip {
    requests: u8,
    service: u8,
    mask: u8,
    /// The vector of line 0.
    base: u8,
    /// The initialization word that the odd port gets next: 2, 3, 4; 0 where it has the mask.
    next_word: u8,
    /// The first word announced a fourth.
    has_fourth: bool,
    automatic_end: bool,
    shown: Shown,
}

saved!(
    enum Shown {
        Requests,
        Service,
    }
);
saved!(struct Chip { requests, service, mask, base, next_word, has_fourth, automatic_end, shown });

impl Chip {
    /// The line that is to be served: the lowest that is requested, open, and before all that are in service.
    fn pending(&self) -> Option<u8> {
        let open = self.requests & !self.mask;
        let line = open.trailing_zeros();
        (open != 0 && line < self.service.trailing_zeros()).then_some(low8(line))
    }

    fn acknowledge(&mut self, line: u8) {
        self.requests &= !(1 << line);
        if !self.automatic_end {
            self.service |= 1 << line;
        }
    }

    fn command(&mut self, value: u8) {
        const INITIALIZE: u8 = 0x10;
        const READ_REGISTER: u8 = 0x08;
        match value {
            _ if value & INITIALIZE != 0 => {
                *self = Chip { next_word: 2, has_fourth: value & 1 != 0, ..Chip::default() };
            }
            _ if value & READ_REGISTER != 0 => match value & 3 {
                2 => self.shown = Shown::Requests,
                3 => self.shown = Shown::Service,
                _ => {}
            },
            // End of interrupt: of one line, or of the first in service.
            _ if value & 0xe0 == 0x60 => self.service &= !(1 << (value & 7)),
            _ if value & 0xe0 == 0x20 => self.service &= self.service.wrapping_sub(1),
            _ => {}
        }
    }

    fn data(&mut self, value: u8) {
        self.next_word = match self.next_word {
            2 => {
                self.base = value & 0xf8;
                3
            }
            3 if self.has_fourth => 4,
            4 => {
                self.automatic_end = value & 2 != 0;
                0
            }
            0 => {
                self.mask = value;
                0
            }
            _ => 0,
        };
    }
}

/// A number of a line.
#[expect(clippy::cast_possible_truncation, reason = "lines are numbers below 8")]
const fn low8(n: u32) -> u8 {
    n as u8
}

/// Both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pic {
    chips: [Chip; 2],
}

saved!(struct Pic { chips });

impl Pic {
    /// A rising edge on one of the 16 lines.
    pub(super) fn pulse(&mut self, line: u8) {
        self.chips[usize::from(line / 8) & 1].requests |= 1 << (line % 8);
    }

    fn pending(&self) -> Option<(u8, Option<u8>)> {
        let [mut first, second] = self.chips;
        let behind = second.pending();
        if behind.is_some() {
            first.requests |= 1 << CASCADE;
        } else {
            first.requests &= !(1 << CASCADE);
        }
        first.pending().map(|line| (line, behind.filter(|_| line == CASCADE)))
    }

    /// Whether an interrupt is asked for.
    pub(super) fn is_pending(&self) -> bool {
        self.pending().is_some()
    }

    /// Takes the interrupt: its vector.
    pub(super) fn acknowledge(&mut self) -> Option<u8> {
        let (line, behind) = self.pending()?;
        self.chips[0].acknowledge(line);
        Some(match behind {
            None => self.chips[0].base + line,
            Some(line) => {
                self.chips[1].acknowledge(line);
                self.chips[1].base + line
            }
        })
    }

    /// IN from 0x20, 0x21, 0xa0 or 0xa1.
    pub(super) fn read(&self, port: u16) -> u8 {
        let chip = &self.chips[usize::from(port >> 7 & 1)];
        match (port & 1, chip.shown) {
            (1, _) => chip.mask,
            (_, Shown::Requests) => chip.requests,
            (_, Shown::Service) => chip.service,
        }
    }

    /// OUT to one of these.
    pub(super) fn write(&mut self, port: u16, value: u8) {
        let chip = &mut self.chips[usize::from(port >> 7 & 1)];
        if port & 1 == 0 { chip.command(value) } else { chip.data(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux and every boot loader program them: vectors 0x20 and 0x28.
    fn initialized() -> Pic {
        let mut pic = Pic::default();
        for (port, words) in [(0x20, [0x11, 0x20, 4, 1]), (0xa0, [0x11, 0x28, 2, 1])] {
            pic.write(port, words[0]);
            words[1..].iter().for_each(|word| pic.write(port + 1, *word));
        }
        pic
    }

    #[test]
    fn the_lowest_line_is_first_and_the_end_lets_the_next_in() {
        let mut pic = initialized();
        pic.pulse(4);
        pic.pulse(1);
        assert_eq!(pic.acknowledge(), Some(0x21));
        assert_eq!(pic.acknowledge(), None, "line 4 waits for the end of line 1");
        pic.write(0x20, 0x20);
        assert_eq!(pic.acknowledge(), Some(0x24));
    }

    #[test]
    fn a_line_of_the_second_controller_comes_through_the_first() {
        let mut pic = initialized();
        pic.write(0x21, !(1 << CASCADE));
        pic.pulse(0);
        pic.pulse(8);
        assert_eq!(pic.acknowledge(), Some(0x28));
        pic.write(0x20, 0x0b);
        assert_eq!(pic.read(0x20), 1 << CASCADE);
        pic.write(0x21, 0xff);
        assert!(!pic.is_pending());
    }
}
