//! COM1: the 16550 of the crate vm-superio, and what the guest has printed on it.

use super::screen::Screen;
use crate::saved::{Saved, Words, saved};
use std::cell::Cell;
use std::convert::Infallible;
use std::rc::Rc;

use vm_superio::serial::NoEvents;
use vm_superio::{Serial, SerialState, Trigger};

/// The wire to the interrupt controllers: whether it has been pulsed.
#[derive(Clone, Default)]
struct Wire(Rc<Cell<bool>>);

impl Trigger for Wire {
    type E = Infallible;

    fn trigger(&self) -> Result<(), Infallible> {
        self.0.set(true);
        Ok(())
    }
}

/// Registers of the port.
const INTERRUPTS: u8 = 1;
const FIFOS: u8 = 2;
const LINE_CONTROL: u8 = 3;
const LINE_STATUS: u8 = 5;

/// Who reads the line's status so often, and writes nothing meanwhile, waits for what is typed. Before a byte is transmitted it is read
/// once, since there is always room for one here, and a driver that looks what the port is (Linux, drivers/tty/serial/8250: `autoconfig`,
/// `serial8250_do_startup`) reads it a few times.
const POLLS: u32 = 64;

/// The port.
pub(super) struct Com1 {
    serial: Serial<Wire, NoEvents, Screen>,
    wire: Wire,
    /// How often the line's status was read since something was written.
    polls: u32,
    /// The guest polls for what is typed, without the interrupt. That is no state of the machine's: it decides what a recorder types, which
    /// the journal has. A machine at a checkpoint shows it again.
    is_polled: bool,
}

impl Default for Com1 {
    fn default() -> Com1 {
        let wire = Wire::default();
        Com1::new(Serial::new(wire.clone(), Screen::default()), wire)
    }
}

saved!(struct SerialState {
    baud_divisor_low, baud_divisor_high, interrupt_enable, interrupt_identification, line_control, line_status, modem_control,
    modem_status, scratch, in_buffer,
});

/// But for what nobody has taken yet: whoever saves a machine shows that before.
impl Saved for Com1 {
    fn put(&self, out: &mut Vec<u64>) {
        self.serial.state().put(out);
        self.wire.0.get().put(out);
        self.serial.writer().put(out);
    }

    fn take(from: &mut Words<'_>) -> Option<Com1> {
        let (state, is_pulsed) = <(SerialState, bool)>::take(from)?;
        let (wire, screen) = (Wire::default(), Screen::take(from)?);
        let serial = Serial::from_state(&state, wire.clone(), NoEvents, screen).ok()?;
        // Making it may pulse the wire.
        wire.0.set(is_pulsed);
        Some(Com1::new(serial, wire))
    }
}

impl Com1 {
    fn new(serial: Serial<Wire, NoEvents, Screen>, wire: Wire) -> Com1 {
        Com1 { serial, wire, polls: 0, is_polled: false }
    }

    /// IN from one of its eight ports.
    pub(super) fn read(&mut self, port: u16) -> u8 {
        if offset(port) == LINE_STATUS {
            self.polls = self.polls.saturating_add(1);
            self.is_polled |= self.polls >= POLLS;
        }
        self.serial.read(offset(port))
    }

    /// OUT to one of them.
    pub(super) fn write(&mut self, port: u16, value: u8) {
        self.polls = 0;
        // Who sets the port up is another one, as the kernel behind a boot loader, and clears what it has received.
        self.is_polled &= !matches!(offset(port), INTERRUPTS | FIFOS | LINE_CONTROL);
        // Neither the wire nor the screen fails.
        let _ = self.serial.write(offset(port), value);
    }

    /// Whether its interrupt line has risen since this was asked last.
    pub(super) fn take_pulse(&mut self) -> bool {
        self.wire.0.take()
    }

    /// How many bytes may be typed now. None before the guest has its interrupt on or polls, so that nothing is lost while it boots.
    pub(super) fn room(&self) -> usize {
        const RECEIVED: u8 = 1;
        let is_open = || self.serial.state().interrupt_enable & RECEIVED != 0;
        if self.is_polled || is_open() { self.serial.fifo_capacity() } else { 0 }
    }

    /// Types bytes: no more than there is room for.
    pub(super) fn type_bytes(&mut self, bytes: &[u8]) {
        // Bytes without room, or typed into a loop-back, are lost as on hardware.
        let _ = self.serial.enqueue_raw_bytes(bytes);
    }

    /// What the guest has printed.
    pub(super) fn screen(&self) -> &Screen {
        self.serial.writer()
    }

    pub(super) fn screen_mut(&mut self) -> &mut Screen {
        self.serial.writer_mut()
    }
}

fn offset(port: u16) -> u8 {
    let [low, _] = (port & 7).to_le_bytes();
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_typed_before_the_guest_listens() {
        let mut com1 = Com1::default();
        assert_eq!(com1.room(), 0);
        com1.write(0x3f9, 1);
        assert!(com1.room() > 0 && !com1.take_pulse());
        com1.type_bytes(b"a");
        assert!(com1.take_pulse());
        assert_eq!((com1.read(0x3fd) & 1, com1.read(0x3f8)), (1, b'a'));
        com1.write(0x3f8, b'b');
        assert_eq!(com1.screen_mut().take_printed(), b"b");
    }
    /// What is transmitted is not in the way of it; a set-up is, in which a driver reads a few times, and whoever waits until it may
    /// transmit reads once for each byte.
    #[test]
    fn a_guest_that_polls_is_typed_to() {
        let mut com1 = Com1::default();
        let poll = |com1: &mut Com1, times: u32| (0..times).for_each(|_| assert_eq!(com1.read(0x3fd) & 1, 0));
        for _ in 0..POLLS {
            poll(&mut com1, POLLS - 1);
            com1.write(0x3f8, b'b');
        }
        assert_eq!(com1.room(), 0, "it transmits");
        poll(&mut com1, POLLS);
        assert!(com1.room() > 0);
        com1.write(0x3f8, b'b');
        assert!(com1.room() > 0, "an echo");
        com1.type_bytes(b"a");
        assert_eq!((com1.read(0x3fd) & 1, com1.read(0x3f8), com1.take_pulse()), (1, b'a', false));
        for setup in [0x3f9, 0x3fa, 0x3fb] {
            poll(&mut com1, POLLS);
            assert!(com1.room() > 0);
            com1.write(setup, 0);
            assert_eq!(com1.room(), 0, "{setup:#x}");
        }
    }
}
