//! COM1: the 16550 of the crate vm-superio, what the guest has printed on it, and a reader of kernel panics.

use crate::saved::{Saved, Words, saved};
use std::cell::Cell;
use std::convert::Infallible;
use std::io;
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

/// What a kernel prints first when it panics; the reason follows.
const PANIC: &str = "Kernel panic - not syncing: ";
/// What Linux prints when it has told all, and goes round and round for ever.
const PANIC_END: &str = "---[ end Kernel panic";
/// No line that is looked at is longer.
const LONGEST: usize = 1024;

/// Where bytes go that the guest prints.
#[derive(Default)]
struct Screen {
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

impl Screen {
    /// Looks for the reason of a panic in a line that has ended. The first is the reason, what follows its consequence.
    fn read_line(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        if let (None, Some((_, reason))) = (&self.panic, line.split_once(PANIC)) {
            self.panic = Some(reason.trim_end().to_owned());
        }
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
        let Screen { printed: _, line, panic, has_told } = self.serial.writer();
        self.serial.state().put(out);
        self.wire.0.get().put(out);
        line.put(out);
        panic.put(out);
        has_told.put(out);
    }

    fn take(from: &mut Words<'_>) -> Option<Com1> {
        let (state, is_pulsed) = <(SerialState, bool)>::take(from)?;
        let (line, (panic, has_told)) = Saved::take(from)?;
        let (wire, screen) = (Wire::default(), Screen { printed: Vec::new(), line, panic, has_told });
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

    /// What the guest has printed since this was called last.
    pub(super) fn take_printed(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.serial.writer_mut().printed)
    }

    /// Whether something is printed that nobody took.
    pub(super) fn has_printed(&self) -> bool {
        !self.serial.writer().printed.is_empty()
    }

    /// The reason of the panic that the guest has printed.
    pub(super) fn panic(&self) -> Option<&str> {
        self.serial.writer().panic.as_deref()
    }

    /// Whether it has printed all that it has to say of that.
    pub(super) fn has_told_panic(&self) -> bool {
        self.serial.writer().has_told
    }
}

fn offset(port: u16) -> u8 {
    let [low, _] = (port & 7).to_le_bytes();
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(com1: &mut Com1, text: &str) {
        text.bytes().for_each(|byte| com1.write(0x3f8, byte));
    }

    #[test]
    fn nothing_is_typed_before_the_guest_listens() {
        let mut com1 = Com1::default();
        assert_eq!(com1.room(), 0);
        com1.write(0x3f9, 1);
        assert!(com1.room() > 0 && !com1.take_pulse());
        com1.type_bytes(b"a");
        assert!(com1.take_pulse());
        assert_eq!((com1.read(0x3fd) & 1, com1.read(0x3f8)), (1, b'a'));
    }

    #[test]
    fn a_panic_is_read_from_the_line_it_is_in() {
        let mut com1 = Com1::default();
        print(
            &mut com1,
            "[    1.5] Kernel panic - not syncing: No init\r\n[ 1.6] Kernel panic - not syncing: b\r\n",
        );
        assert_eq!((com1.panic(), com1.has_told_panic()), (Some("No init"), false));
        print(&mut com1, "[    1.6] ---[ end Kernel panic");
        assert!(com1.has_told_panic());
        assert!(com1.take_printed().ends_with(b"panic") && !com1.has_printed());
    }
}
