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

/// The port.
pub(super) struct Com1 {
    serial: Serial<Wire, NoEvents, Screen>,
    wire: Wire,
}

impl Default for Com1 {
    fn default() -> Com1 {
        let wire = Wire::default();
        Com1 { serial: Serial::new(wire.clone(), Screen::default()), wire }
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
        Some(Com1 { serial, wire })
    }
}

impl Com1 {
    /// IN from one of its eight ports.
    pub(super) fn read(&mut self, port: u16) -> u8 {
        self.serial.read(offset(port))
    }

    /// OUT to one of them.
    pub(super) fn write(&mut self, port: u16, value: u8) {
        // Neither the wire nor the screen fails.
        let _ = self.serial.write(offset(port), value);
    }

    /// Whether its interrupt line has risen since this was asked last.
    pub(super) fn take_pulse(&mut self) -> bool {
        self.wire.0.take()
    }

    /// How many bytes may be typed now. None before the guest has its interrupt on, so that nothing is lost while it boots.
    pub(super) fn room(&self) -> usize {
        const RECEIVED: u8 = 1;
        let is_open = self.serial.state().interrupt_enable & RECEIVED != 0;
        if is_open { self.serial.fifo_capacity() } else { 0 }
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
}
