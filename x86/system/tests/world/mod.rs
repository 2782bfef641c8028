//! A processor with tables of its own, into which a test puts an instruction.
#![allow(dead_code, reason = "each test uses a part of it")]

use x86::interpreter::Stop;
use x86::machine::Trap;
use x86::state::Regs;
use x86_system::{Next, Outside, Physical, Refused, Registers, Segment, System, SystemCpu, TableRegister};

pub(crate) const GDT: u64 = 0x4000;
pub(crate) const IDT: u64 = 0x5000;
pub(crate) const TSS: u64 = 0x6000;
/// Where instructions are put.
pub(crate) const CODE: u64 = 0x1_0000;
/// Where each handler begins: at this plus the vector.
pub(crate) const HANDLERS: u64 = 0x2_0000;
/// The tops of stacks: of programs, RSP0, IST1.
pub(crate) const STACK: u64 = 0x3_0000;
pub(crate) const RSP0: u64 = 0x4_0000;
pub(crate) const IST1: u64 = 0x5_0000;

/// Selectors, by their place in the GDT.
pub(crate) mod selector {
    pub(crate) const CODE: u16 = 0x08;
    pub(crate) const DATA: u16 = 0x10;
    pub(crate) const USER_DATA: u16 = 0x18 | 3;
    pub(crate) const USER_CODE: u16 = 0x20 | 3;
    pub(crate) const ABSENT_DATA: u16 = 0x28;
    pub(crate) const READ_ONLY: u16 = 0x30 | 3;
    pub(crate) const EXECUTE_ONLY: u16 = 0x38 | 3;
    /// Sixteen bytes.
    pub(crate) const TASK: u16 = 0x40;
    pub(crate) const CODE_32: u16 = 0x50;
    pub(crate) const BEHIND: u16 = 0x58;
}

/// The descriptors of [`selector`], in order.
const DESCRIPTORS: [u64; 11] = [
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_f300_0000_ffff,
    0x00af_fb00_0000_ffff,
    0x00cf_1300_0000_ffff,
    0x00cf_f100_0000_ffff,
    0x00af_f900_0000_ffff,
    0x0000_8900_6000_0067,
    0,
    0x00cf_9b00_0000_ffff,
];

/// Nothing is outside.
#[derive(Default)]
pub(crate) struct Nowhere;

impl Outside for Nowhere {
    fn port_in(&mut self, port: u16, _width: u32) -> u32 {
        u32::from(port) | 0xab00_0000
    }
    fn port_out(&mut self, _port: u16, _width: u32, _value: u32) {}
    fn read_msr(&mut self, _index: u32) -> Option<u64> {
        None
    }
    fn write_msr(&mut self, _index: u32, _value: u64) -> Option<()> {
        None
    }
    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> [u32; 4] {
        [leaf, subleaf, 0, 0]
    }
    fn time_stamp(&mut self, retired: u64) -> u64 {
        retired
    }
    fn task_priority(&mut self) -> u64 {
        0
    }
    fn set_task_priority(&mut self, _priority: u64) {}
}

/// An address as an index.
pub(crate) fn index(at: u64) -> usize {
    usize::try_from(at).unwrap()
}

pub(crate) struct World {
    pub(crate) cpu: SystemCpu,
    pub(crate) system: System,
}

impl World {
    /// A processor in ring 0 or 3, with interrupts on. Every vector below 0x40 has an interrupt gate, open to ring 0 alone.
    pub(crate) fn new(level: u8) -> World {
        let mut memory = Physical::new(2 << 20);
        let mut put =
            |at: u64, word: u64| memory.ram_mut()[index(at)..][..8].copy_from_slice(&word.to_le_bytes());
        // One page of 2 MiB, open to programs.
        put(0x1000, 0x2007);
        put(0x2000, 0x3007);
        put(0x3000, 0x87);
        for (n, descriptor) in (0..).zip(DESCRIPTORS) {
            put(GDT + 8 * n, descriptor);
        }
        put(TSS + 4, RSP0);
        put(TSS + 0x24, IST1);
        let (code, data) = if level == 0 {
            (selector::CODE, selector::DATA)
        } else {
            (selector::USER_CODE, selector::USER_DATA)
        };
        let mut segments = [Segment::flat(selector::DATA, false, 0); 6];
        segments[1] = Segment::flat(code, true, level);
        segments[2] = Segment::flat(data, false, level);
        let registers = Registers {
            cr0: 0x8001_0011,
            cr3: 0x1000,
            efer: 0xd01,
            segments,
            gdtr: TableRegister { base: GDT, limit: 0x57 },
            idtr: TableRegister { base: IDT, limit: 0x3ff },
            tr: Segment { selector: selector::TASK, base: TSS, limit: 0x67, attributes: 0x8b },
            privilege: level,
            ..Registers::default()
        };
        let mut cpu = SystemCpu::new(memory);
        let system = System::new(&mut cpu, registers);
        let mut world = World { cpu, system };
        for vector in 0..0x40 {
            world.gate(vector, 0x8e00, selector::CODE);
        }
        let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
        regs.gpr[4] = STACK;
        world.cpu.set_regs(&regs);
        world
    }

    /// Writes the gate of a vector: its bits 32 to 47, and the code segment.
    pub(crate) fn gate(&mut self, vector: u8, kind: u64, code: u16) {
        let target = HANDLERS + u64::from(vector);
        let low = target & 0xffff | u64::from(code) << 16 | kind << 32 | (target >> 16 & 0xffff) << 48;
        self.put(IDT + 16 * u64::from(vector), low);
        self.put(IDT + 16 * u64::from(vector) + 8, 0);
    }

    pub(crate) fn put(&mut self, at: u64, word: u64) {
        self.cpu.bus_mut().ram_mut()[index(at)..][..8].copy_from_slice(&word.to_le_bytes());
    }

    pub(crate) fn word(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.cpu.bus().ram()[index(at)..][..8].try_into().unwrap())
    }

    pub(crate) fn set(&mut self, gpr: usize, value: u64) {
        let mut regs = self.cpu.regs();
        regs.gpr[gpr] = value;
        self.cpu.set_regs(&regs);
    }

    /// Executes these bytes at rip, which the table leaves to the system.
    pub(crate) fn execute(&mut self, bytes: &[u8]) -> Result<Next, Refused> {
        let at = self.cpu.rip();
        self.cpu.bus_mut().ram_mut()[index(at)..][..bytes.len()].copy_from_slice(bytes);
        self.cpu.written(at, bytes.len() as u64);
        self.serve(&Stop::System)
    }

    pub(crate) fn trap(&mut self, trap: Trap) -> Result<Next, Refused> {
        let at = self.cpu.rip();
        self.serve(&Stop::Trap { trap, at })
    }

    pub(crate) fn serve(&mut self, stop: &Stop) -> Result<Next, Refused> {
        self.system.serve(&mut self.cpu, stop, &mut Nowhere)
    }

    /// The vector whose handler is next.
    pub(crate) fn handled(&self) -> Option<u64> {
        self.cpu.rip().checked_sub(HANDLERS).filter(|vector| *vector < 256)
    }

    /// The words on the stack, the last pushed first.
    pub(crate) fn stack<const N: usize>(&self) -> [u64; N] {
        let rsp = self.cpu.regs().gpr[4];
        std::array::from_fn(|n| self.word(rsp + 8 * n as u64))
    }

    /// The exception that executing these bytes raises in a fresh world, and its error code; none where it retires.
    pub(crate) fn exception(
        level: u8,
        prepare: impl FnOnce(&mut World),
        bytes: &[u8],
    ) -> Option<(u64, Option<u64>)> {
        let mut world = World::new(level);
        prepare(&mut world);
        world.execute(bytes).unwrap();
        let vector = world.handled()?;
        let has_code = matches!(vector, 8 | 10..=14 | 17);
        Some((vector, has_code.then(|| world.stack::<1>()[0])))
    }
}
