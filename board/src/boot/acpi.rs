//! The ACPI tables: one processor, one I/O APIC, a timer, power-off and reset (ACPI 6.4, chapters 4 and 5).
//!
//! RSDP, which the boot parameters point to → XSDT → FADT → DSDT and FACS; and MADT. The DSDT has the sleep state S5 and, of the
//! devices of virtio that there are, where these are (`aml`).

use super::aml;
use crate::devices::power::port;
use crate::devices::{CONSOLE, DISK, Extras, IOAPIC, LAPIC, NET, RNG, TIMER, VSOCK};

/// Where the tables are. Kernels look there, too.
pub(super) const BASE: u64 = 0xe_0000;
/// The line of ACPI's own interrupt, which is never raised.
const SCI: u8 = 9;

/// A table that is being written.
struct Table(Vec<u8>);

impl Table {
    fn new(signature: &[u8; 4], revision: u8) -> Table {
        let mut bytes = Vec::from(signature);
        bytes.extend([0; 4]);
        bytes.push(revision);
        bytes.push(0);
        bytes.extend(b"GRETEL");
        bytes.extend(b"BOARD   ");
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(b"GRTL");
        bytes.extend(1_u32.to_le_bytes());
        Table(bytes)
    }

    fn push(mut self, bytes: &[u8]) -> Table {
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes at an offset, beyond the end too.
    fn put(mut self, at: usize, bytes: &[u8]) -> Table {
        self.0.resize(self.0.len().max(at + bytes.len()), 0);
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len()).unwrap_or(0).to_le_bytes();
        self.0[4..8].copy_from_slice(&length);
        self.0[9] = checksum(&self.0);
        self.0
    }
}

/// What makes the sum of all bytes zero.
fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte))
}

/// The tables, as they are from [`BASE`] on; the RSDP is the first.
pub(super) fn tables(has_disk: bool, extras: Extras) -> Vec<u8> {
    const RSDP: usize = 64;
    let Extras { net, rng, console, vsock } = extras;
    let slots = [(has_disk, DISK), (net.is_some(), NET), (rng, RNG), (console, CONSOLE), (vsock, VSOCK)];
    let slots = (0..).zip(slots).filter(|(_, (is_there, _))| *is_there);
    let devices: Vec<u8> = slots.flat_map(|(number, (_, slot))| aml::virtio(slot, number)).collect();
    let mut out = vec![0; RSDP];
    let mut add = |table: Vec<u8>| {
        // FACS has to be aligned so.
        out.resize(out.len().next_multiple_of(64), 0);
        let at = BASE + out.len() as u64;
        out.extend(table);
        at
    };
    let facs = add(facs());
    let dsdt = add(Table::new(b"DSDT", 2).push(&aml::sleep()).push(&devices).finish());
    let fadt = add(fadt(facs, dsdt));
    let madt = add(madt());
    let xsdt = add(Table::new(b"XSDT", 1).push(&fadt.to_le_bytes()).push(&madt.to_le_bytes()).finish());
    let rsdp = rsdp(xsdt);
    out[..rsdp.len()].copy_from_slice(&rsdp);
    out
}

fn rsdp(xsdt: u64) -> Vec<u8> {
    let mut out = Vec::from(b"RSD PTR \0GRETEL\x02");
    out.extend([0; 4]);
    out.extend(36_u32.to_le_bytes());
    out.extend(xsdt.to_le_bytes());
    out.extend([0; 4]);
    out[8] = checksum(&out[..20]);
    out[32] = checksum(&out);
    out
}

fn facs() -> Vec<u8> {
    let mut out = vec![0; 64];
    out[..8].copy_from_slice(b"FACS\x40\0\0\0");
    out[32] = 2;
    out
}

fn fadt(facs: u64, dsdt: u64) -> Vec<u8> {
    /// WBINVD works, C1 works, no fixed buttons, the timer has 32 bits, the reset register works.
    const FLAGS: u32 = 1 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 10;
    /// No VGA, and ISA devices; the i8042 is none with a keyboard.
    const NO_VGA_ISA: u16 = 1 << 2 | 1;
    let low = |at: u64| u32::try_from(at).unwrap_or(0).to_le_bytes();
    let block = |port: u16| u32::from(port).to_le_bytes();
    Table::new(b"FACP", 5)
        .put(36, &low(facs))
        .put(40, &low(dsdt))
        .put(46, &[SCI, 0])
        .put(56, &block(port::PM1_EVENT))
        .put(64, &block(port::PM1_CONTROL))
        .put(76, &block(port::PM_TIMER))
        .put(88, &[4, 2, 0, 4])
        .put(96, &[0xff, 0x0f, 0xff, 0x0f])
        .put(108, &[0x32])
        .put(109, &NO_VGA_ISA.to_le_bytes())
        .put(112, &FLAGS.to_le_bytes())
        // An I/O port of eight bits, and what is written to it.
        .put(116, &[1, 8, 0, 1])
        .put(120, &u64::from(port::RESET).to_le_bytes())
        .put(128, &[6])
        .put(140, &dsdt.to_le_bytes())
        .put(267, &[0])
        .finish()
}

fn madt() -> Vec<u8> {
    /// There are 8259s, too.
    const DUAL_8259: u32 = 1;
    let low = |at: u64| u32::try_from(at).unwrap_or(0).to_le_bytes();
    let replaces = |line: u8, by: u8, flags: u8| [2, 10, 0, line, by, 0, 0, 0, flags, 0];
    Table::new(b"APIC", 4)
        .push(&low(LAPIC))
        .push(&DUAL_8259.to_le_bytes())
        // Processor 0, enabled.
        .push(&[0, 8, 0, 0, 1, 0, 0, 0])
        .push(&[1, 12, 0, 0])
        .push(&low(IOAPIC))
        .push(&[0; 4])
        .push(&replaces(0, TIMER, 0))
        // Level-triggered, active high.
        .push(&replaces(SCI, SCI, 0x0d))
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
    }

    #[test]
    fn checksums_hold_and_pointers_lead_to_tables() {
        let all = tables(true, Extras { net: Some([0; 6]), rng: true, console: true, vsock: true });
        assert_eq!((&all[..8], sum(&all[..20]), sum(&all[..36])), (b"RSD PTR ".as_slice(), 0, 0));
        let at = |address: u64| &all[usize::try_from(address - BASE).unwrap()..];
        let long = |bytes: &[u8], n: usize| u64::from_le_bytes(bytes[n..n + 8].try_into().unwrap());
        let table = |address: u64, signature: &[u8]| {
            let bytes = at(address);
            let length = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            assert_eq!((&bytes[..4], sum(&bytes[..length])), (signature, 0));
            bytes[..length].to_vec()
        };
        let xsdt = table(long(&all, 24), b"XSDT");
        let fadt = table(long(&xsdt, 36), b"FACP");
        table(long(&xsdt, 44), b"APIC");
        table(long(&fadt, 140), b"DSDT");
        let facs = u32::from_le_bytes(fadt[36..40].try_into().unwrap());
        assert!(at(facs.into()).starts_with(b"FACS") && fadt.len() == 268);
    }
}
