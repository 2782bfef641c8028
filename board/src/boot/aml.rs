//! The objects of the DSDT, as ACPI's machine language has them (ACPI 6.4, chapter 20).

use crate::devices::power::OFF;
use crate::devices::{PAGE, Slot};

/// Opcodes.
mod op {
    pub(super) const ZERO: u8 = 0x00;
    pub(super) const ONE: u8 = 0x01;
    pub(super) const NAME: u8 = 0x08;
    pub(super) const BYTE: u8 = 0x0a;
    pub(super) const STRING: u8 = 0x0d;
    pub(super) const SCOPE: u8 = 0x10;
    pub(super) const BUFFER: u8 = 0x11;
    pub(super) const PACKAGE: u8 = 0x12;
    pub(super) const DEVICE: [u8; 2] = [0x5b, 0x82];
}

/// `opcode`, and a length that counts itself and all of `content`, which is less than 60 bytes, or than 4,000.
fn sized(opcode: &[u8], content: &[u8]) -> Vec<u8> {
    let short = content.len() + 1;
    let length = match u8::try_from(short) {
        Ok(length @ ..0x40) => vec![length],
        _ => {
            // Four bits, then eight.
            let long = u16::try_from(content.len() + 2).unwrap_or(0);
            let [low, high] = (long >> 4 << 8 | long & 0xf).to_le_bytes();
            vec![0x40 | low, high]
        }
    };
    [opcode, &length, content].concat()
}

fn name(name: &[u8; 4], value: &[u8]) -> Vec<u8> {
    [&[op::NAME], name.as_slice(), value].concat()
}

/// `Name (\_S5, Package () { OFF, 0, 0, 0 })`.
pub(super) fn sleep() -> Vec<u8> {
    let package = sized(&[op::PACKAGE], &[4, op::BYTE, OFF, op::ZERO, op::ZERO, op::ZERO]);
    name(b"_S5_", &package)
}

/// A virtio device in memory: `Scope (\_SB) { Device (NAME) { _HID "LNRO0005", _UID n, _CRS { where, line } } }`.
pub(super) fn virtio(slot: Slot, number: u8) -> Vec<u8> {
    let Slot { at, line, name: device } = slot;
    let number = match number {
        0 => vec![op::ZERO],
        1 => vec![op::ONE],
        number => vec![op::BYTE, number],
    };
    let low = |value: u64| u32::try_from(value).unwrap_or(0).to_le_bytes();
    // Memory32Fixed: read and write, from where, how long.
    let memory = [&[0x86, 9, 0, 1], low(at).as_slice(), &low(PAGE)].concat();
    // Interrupt: consumed, edges, active high, its own; one.
    let line = [&[0x89, 6, 0, 3, 1], u32::from(line).to_le_bytes().as_slice()].concat();
    let resources = [memory, line, vec![0x79, 0]].concat();
    let length = u8::try_from(resources.len()).unwrap_or(0);
    let buffer = sized(&[op::BUFFER], &[&[op::BYTE, length], resources.as_slice()].concat());
    let id = [&[op::STRING], b"LNRO0005\0".as_slice()].concat();
    let content = [device.to_vec(), name(b"_HID", &id), name(b"_UID", &number), name(b"_CRS", &buffer)];
    let device = sized(&op::DEVICE, &content.concat());
    sized(&[op::SCOPE], &[b"\\_SB_".to_vec(), device].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_count_themselves() {
        assert_eq!(sleep(), [8, b'_', b'S', b'5', b'_', 0x12, 7, 4, 0x0a, OFF, 0, 0, 0]);
        assert_eq!(sized(&[1], &[0; 62])[..2], [1, 63]);
        assert_eq!(sized(&[1], &[0; 63])[..3], [1, 0x41, 4], "65 bytes: 1 in the low four bits, 4 above");
        let disk = virtio(crate::devices::DISK, 0);
        let length = usize::from(disk[1] & 0xf) | usize::from(disk[2]) << 4;
        assert_eq!((disk[1] >> 6, length), (1, disk.len() - 1));
    }
}
