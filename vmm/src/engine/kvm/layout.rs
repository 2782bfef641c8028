//! The engine's own pages: what ring 0 needs so that ring 3 can run without a kernel.
//!
//! The first sixteen frames of guest memory appear at [`BASE`] in every address space, through the top-level
//! entry 511. Descriptor tables and stack are for ring 0 alone, and so is the stub page, which holds one OUT for each
//! exception: the OUT is the exit. Nothing behind an OUT is ever executed, since the registers are replaced before the
//! guest runs again. The OUT for SYSCALL has a page of its own, which is ring 3's where SYSCALL stays there: a program
//! can jump into it. Each byte of that page but the OUT raises #UD, wherever a jump lands.

use crate::engine::{Phys, Virt};
use crate::ram::paging::{engine_entry, table_entry};
use crate::ram::{PAGE, Ram};

/// Where the engine's pages appear.
const BASE: Virt = 0xffff_ffff_8000_0000;
/// The first frame that is not the engine's.
pub(super) const END: Phys = 16 * PAGE;

const GDT: Phys = PAGE;
const IDT: Phys = 2 * PAGE;
const TSS: Phys = 3 * PAGE;
const STUB: Phys = 4 * PAGE;
const STACK: Phys = 5 * PAGE;
/// Tables of levels 2, 1 and 0 for the engine's pages.
const TABLES: [Phys; 3] = [6 * PAGE, 7 * PAGE, 8 * PAGE];
/// A top level that maps nothing but the engine's pages, used until the first address space is set.
pub(super) const EMPTY_ROOT: Phys = 9 * PAGE;

/// The page with the OUT for SYSCALL.
const GATE: Phys = 10 * PAGE;

/// Offsets in the stub page; the entry of exception `v` is at `16 * v`.
const RETURN: u64 = 0x810;
/// Offsets in the gate page.
const SYSCALL_ENTRY: u64 = 0x800;
const PROBE_AT: u64 = 0x820;
const PROBE_CODE: [u8; 4] = [0x74, 0x00, 0x0f, 0x05];

/// Selectors. Their order is what STAR demands: kernel code and data; user code (32-bit), data, code (64-bit).
pub(super) const KERNEL_CODE: u16 = 0x08;
pub(super) const USER_DATA: u16 = 0x2b;
pub(super) const USER_CODE: u16 = 0x33;
pub(super) const TASK: u16 = 0x38;
/// STAR (Intel SDM vol. 3, 5.8.8): SYSCALL takes CS from bits 47:32, SYSRET from bits 63:48.
pub(super) const STAR: u64 = (0x23 << 48) | ((KERNEL_CODE as u64) << 32);
/// Where SYSCALL goes.
pub(super) const LSTAR: Virt = BASE + GATE + SYSCALL_ENTRY;
/// An IRETQ.
pub(super) const IRETQ: Virt = BASE + STUB + RETURN;
/// A conditional branch and a SYSCALL that the engine itself runs in ring 3, to see what counts the one and where the other
/// lands.
pub(super) const PROBE: Virt = BASE + GATE + PROBE_AT;
/// The SYSCALL alone.
pub(super) const PROBE_SYSCALL: Virt = PROBE + 2;
/// How many conditional branches that is.
pub(super) const PROBE_CONDITIONALS: u64 = 1;

/// The ports of the stub's OUTs: `EXCEPTION_PORT + vector`, and one for SYSCALL.
const EXCEPTION_PORT: u8 = 0xc0;
const SYSCALL_PORT: u8 = 0xea;
/// An opcode that is none in 64-bit mode, as the port above is none.
const UNDEFINED: u8 = 0x06;
/// Exceptions have vectors below this.
const VECTORS: u8 = 32;

/// Sizes of the tables, minus one.
pub(super) const GDT_LIMIT: u16 = 9 * 8 - 1;
pub(super) const IDT_LIMIT: u16 = VECTORS as u16 * 16 - 1;
pub(super) const TSS_LIMIT: u32 = 0x67;

pub(super) const fn gdt_base() -> Virt {
    BASE + GDT
}

pub(super) const fn idt_base() -> Virt {
    BASE + IDT
}

pub(super) const fn tss_base() -> Virt {
    BASE + TSS
}

/// The top-level entry 511 that makes the engine's pages appear.
pub(super) fn kernel_entry() -> u64 {
    table_entry(TABLES[0])
}

/// Which of the stub's OUTs made an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    Syscall,
    Exception(u8),
}

/// The door at which the guest left, if `rip` is in the stub (at an OUT, or behind it: hosts differ) and the port
/// is that OUT's.
pub(super) fn door(rip: Virt, port: u16) -> Option<Door> {
    let port = u8::try_from(port).ok()?;
    if port == SYSCALL_PORT && offset_in(GATE, rip).is_some_and(|offset| offset & !15 == SYSCALL_ENTRY) {
        return Some(Door::Syscall);
    }
    let entry = offset_in(STUB, rip)? & !15;
    let vector = port.checked_sub(EXCEPTION_PORT).filter(|v| *v < VECTORS)?;
    (entry == u64::from(vector) * 16).then_some(Door::Exception(vector))
}

/// Whether `rip` is in the engine's code.
pub(super) fn in_stub(rip: Virt) -> bool {
    [STUB, GATE].iter().any(|frame| offset_in(*frame, rip).is_some())
}

fn offset_in(frame: Phys, rip: Virt) -> Option<u64> {
    rip.checked_sub(BASE + frame).filter(|offset| *offset < PAGE)
}

/// What the processor pushed for an exception (Intel SDM vol. 3, 6.14.2), read where ring 0's rsp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) error_code: u64,
    pub(super) rip: u64,
    pub(super) rflags: u64,
    pub(super) rsp: u64,
}

/// Reads the frame of exception `vector` at `rsp`; `None` if that is not on the engine's stack.
pub(super) fn read_frame(ram: &Ram, vector: u8, rsp: Virt) -> Option<Frame> {
    let has_code = matches!(vector, 8 | 10..=14 | 17 | 21 | 29 | 30);
    let words = if has_code { 6 } else { 5 };
    let at = rsp.checked_sub(BASE).filter(|at| (STACK..=STACK + PAGE - words * 8).contains(at))?;
    let word = |n: u64| ram.word(at + n * 8);
    let skip = u64::from(has_code);
    Some(Frame {
        error_code: if has_code { word(0) } else { 0 },
        rip: word(skip),
        rflags: word(skip + 2),
        rsp: word(skip + 3),
    })
}

/// Writes a frame for [`IRETQ`] on the engine's stack and gives ring 0's rsp for it.
pub(super) fn write_return_frame(ram: &mut Ram, rip: u64, rflags: u64, rsp: u64) -> Virt {
    let at = STACK + PAGE - 40;
    for (n, word) in (0..).zip([rip, USER_CODE.into(), rflags, rsp, USER_DATA.into()]) {
        ram.set_word(at + n * 8, word);
    }
    BASE + at
}

/// Fills the engine's frames.
pub(super) fn write(ram: &mut Ram) {
    write_descriptors(ram);
    write_stub(ram);
    write_tables(ram);
}

/// Takes the probe out of the gate page: it has told what it is there for.
pub(super) fn remove_probe(ram: &mut Ram) {
    put(ram, GATE, PROBE_AT, &[UNDEFINED; PROBE_CODE.len()]);
}

/// Withdraws the gate page from ring 3, on hosts where SYSCALL enters ring 0. Gives the frame whose translations
/// must be dropped.
pub(super) fn hide_gate(ram: &mut Ram) -> Phys {
    ram.set_word(TABLES[2] + GATE / PAGE * 8, engine_entry(GATE, false, false));
    GATE
}

fn write_descriptors(ram: &mut Ram) {
    let tss = tss_base();
    let task =
        0x0000_8900_0000_0000 | u64::from(TSS_LIMIT) | (tss & 0xff_ffff) << 16 | (tss >> 24 & 0xff) << 56;
    let code64 = |dpl: u64| 0x00af_9b00_0000_ffff | dpl << 45;
    let code32 = |dpl: u64| 0x00cf_9b00_0000_ffff | dpl << 45;
    let data = |dpl: u64| 0x00cf_9300_0000_ffff | dpl << 45;
    let gdt = [0, code64(0), data(0), 0, code32(3), data(3), code64(3), task, tss >> 32];
    for (n, descriptor) in (0..).zip(gdt) {
        ram.set_word(GDT + n * 8, descriptor);
    }
    // The TSS has RSP0 at offset 4 (Intel SDM vol. 3, figure 7-11).
    ram.frame_mut(TSS)[4..12].copy_from_slice(&(BASE + STACK + PAGE).to_le_bytes());
    for vector in 0..u64::from(VECTORS) {
        let handler = BASE + STUB + vector * 16;
        // Interrupt gates; ring 3 may raise #BP and #OF by an instruction.
        let kind: u64 = if matches!(vector, 3 | 4) { 0xee00 } else { 0x8e00 };
        let low =
            handler & 0xffff | u64::from(KERNEL_CODE) << 16 | kind << 32 | (handler >> 16 & 0xffff) << 48;
        ram.set_word(IDT + vector * 16, low);
        ram.set_word(IDT + vector * 16 + 8, handler >> 32);
    }
}

/// Writes code into an engine's page.
fn put(ram: &mut Ram, frame: Phys, at: u64, bytes: &[u8]) {
    let at = usize::try_from(at).expect("inside the page");
    ram.frame_mut(frame)[at..at + bytes.len()].copy_from_slice(bytes);
}

fn write_stub(ram: &mut Ram) {
    ram.frame_mut(STUB).fill(0xcc);
    for vector in 0..VECTORS {
        put(ram, STUB, u64::from(vector) * 16, &[0xe6, EXCEPTION_PORT + vector]);
    }
    put(ram, STUB, RETURN, &[0x48, 0xcf]);
    ram.frame_mut(GATE).fill(UNDEFINED);
    put(ram, GATE, SYSCALL_ENTRY, &[0xe6, SYSCALL_PORT]);
    put(ram, GATE, PROBE_AT, &PROBE_CODE);
}

fn write_tables(ram: &mut Ram) {
    ram.set_word(EMPTY_ROOT + 511 * 8, kernel_entry());
    ram.set_word(TABLES[0] + 510 * 8, table_entry(TABLES[1]));
    ram.set_word(TABLES[1], table_entry(TABLES[2]));
    for frame in [GDT, IDT, TSS, STUB, STACK, GATE] {
        // Where SYSCALL stays in ring 3, the gate must be executable there; see `hide_gate`.
        let entry = engine_entry(frame, frame == GATE, !matches!(frame, STUB | GATE));
        ram.set_word(TABLES[2] + frame / PAGE * 8, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_known_by_address_and_port_together() {
        let syscall = LSTAR;
        assert_eq!(door(syscall, 0xea), Some(Door::Syscall));
        assert_eq!(door(syscall + 2, 0xea), Some(Door::Syscall), "rip behind the OUT");
        assert_eq!(door(0x40_1000, 0xea), None, "the program's own OUT");
        assert_eq!(door(BASE + STUB + 14 * 16, 0xc0 + 14), Some(Door::Exception(14)));
        assert_eq!(door(BASE + STUB + 14 * 16, 0xea), None, "a port that is not this door's");
        assert_eq!(door(BASE + STUB + 14 * 16, 0x1ce), None, "a port beyond a byte");
        assert!(!in_stub(BASE + STUB + PAGE) && in_stub(IRETQ) && in_stub(syscall));
    }

    #[test]
    fn every_byte_of_the_gate_but_the_way_out_is_undefined() {
        let mut ram = Ram::new(END).unwrap();
        write(&mut ram);
        remove_probe(&mut ram);
        let page = ram.frame(GATE).to_vec();
        for at in (0..page.len() - 1).filter(|at| *at as u64 != SYSCALL_ENTRY) {
            let instruction = iced_x86::Decoder::new(64, &page[at..], 0).decode();
            assert!(instruction.is_invalid(), "at {at:#x}: {instruction}");
        }
    }

    #[test]
    fn frames_are_read_only_from_the_engines_stack() {
        let mut ram = Ram::new(END).unwrap();
        let rsp = write_return_frame(&mut ram, 1, 2, 3);
        assert_eq!(read_frame(&ram, 6, rsp), Some(Frame { error_code: 0, rip: 1, rflags: 2, rsp: 3 }));
        assert_eq!(read_frame(&ram, 14, rsp), None, "no room for six words");
        assert_eq!(read_frame(&ram, 6, BASE + STACK - 8), None);
        assert_eq!(read_frame(&ram, 6, 0x7fff_0000), None);
    }
}
