//! The stage of a suffix in ring 0: the machine's software CPU with its system side, over all of its memory, by its page tables.
//!
//! It begins as the machine of the core is, with the suffix's memory over it, and exceptions are raised without being delivered. So what
//! is compared at the end is the state before the handler. There are no devices: an instruction that asks for one is given what the suffix has
//! for it, and cannot be judged where that is nothing.

use std::collections::BTreeSet;
use vmm::elfcore::machine::Machine;
use vmm::engine::{Exception, Exit};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::machine::MachineRead;
use x86::state::{Regs, State};
use x86_system::{Next, Outside, Physical, Raised, System, SystemCpu};

const PAGE: usize = 4096;
/// Accessed and dirty, in an entry of a page table.
const MARKS: u64 = 1 << 5 | 1 << 6;

/// A machine that stands in a suffix.
pub(super) struct Ring0<'a> {
    processor: Interpreter<Physical>,
    system: System,
    machine: &'a Machine,
    regs: Regs,
    /// Frames that were written from outside.
    put: BTreeSet<u64>,
    /// What the next instruction is given from outside.
    answer: Option<u64>,
    /// The newest time stamp.
    time: u64,
    /// Why the last run cannot be judged.
    refusal: Option<String>,
}

/// Where memory differs from the core's: the physical address, and the bytes of the core and of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Differing {
    pub(super) physical: u64,
    pub(super) expected: u8,
    pub(super) found: u8,
}

impl<'a> Ring0<'a> {
    /// The machine of a core, with the registers of a suffix's start; without a base of GS that SWAPGS brings, the core's.
    pub(super) fn new(machine: &'a Machine, start: &State, inactive_gs: Option<u64>) -> Ring0<'a> {
        let mut memory = Physical::new(machine.memory().len() as u64);
        for (at, page) in machine.pages() {
            memory.ram_mut()[at..at + PAGE].copy_from_slice(page);
        }
        let mut cpu = SystemCpu::new(memory);
        cpu.load_state(start);
        let mut registers = machine.registers;
        registers.kernel_gs_base = inactive_gs.unwrap_or(registers.kernel_gs_base);
        let mut system = System::new(&mut cpu, registers);
        system.restore(&mut cpu, registers, None);
        system.holds_exceptions = true;
        let processor = Interpreter::new(cpu);
        Ring0 {
            processor,
            system,
            machine,
            regs: start.regs,
            put: BTreeSet::new(),
            answer: None,
            time: 0,
            refusal: None,
        }
    }

    pub(super) fn regs(&self) -> &Regs {
        &self.regs
    }

    pub(super) fn state(&self) -> State {
        self.processor.cpu().state()
    }

    /// The base of GS that SWAPGS brings.
    pub(super) fn inactive_gs(&self) -> u64 {
        self.system.registers.kernel_gs_base
    }

    pub(super) fn retired(&self) -> u64 {
        self.processor.counters().instructions
    }

    pub(super) fn taken_branches(&self) -> u64 {
        self.processor.counters().taken
    }

    /// What the next instruction is given from outside, if it is RDTSC, RDTSCP or IN.
    pub(super) fn put_answer(&mut self, value: Option<u64>) {
        self.answer = value;
    }

    /// Runs until so many instructions have retired, or to what does not retire.
    pub(super) fn run(&mut self, instructions: u64) -> Exit {
        let exit = self.run_on(instructions);
        self.regs = self.processor.cpu().regs();
        exit
    }

    fn run_on(&mut self, instructions: u64) -> Exit {
        loop {
            let stop = self.processor.run(Until::retired(instructions), &mut ());
            match self.serve(&stop) {
                None if self.retired() < instructions => {}
                None => return Exit::Budget,
                Some(exit) => return exit,
            }
        }
    }

    /// Serves what ended a run; `None` if it goes on.
    fn serve(&mut self, stop: &Stop) -> Option<Exit> {
        let answer = self.answer.take();
        if let Stop::MachineRead { read, .. } = stop
            && !(answer.is_some() && matches!(read, MachineRead::Rdtsc | MachineRead::Rdtscp))
        {
            return Some(Exit::MachineRead(*read));
        }
        let at = match stop {
            Stop::Trap { at, .. } => *at,
            _ => self.processor.cpu().rip(),
        };
        let mut outside = Beyond { is_asked: false, answer, time: None };
        let next = self.system.serve(self.processor.cpu_mut(), stop, &mut outside);
        if outside.is_asked {
            return Some(self.refuse(at, "asks for what is outside of the processor"));
        }
        if outside.time.is_some_and(|time| time < std::mem::replace(&mut self.time, time)) {
            return Some(self.refuse(at, "reads a time that lies before what was read"));
        }
        if let Some(raised) = self.system.raised.take() {
            let cpu = self.processor.cpu_mut();
            if cpu.rip() != at {
                // INT3 and INT n retire, and are shown as what did not, like a fault.
                cpu.unretire(1);
                cpu.set_rip(at);
            }
            return Some(Exit::Exception(exception(raised)));
        }
        match next {
            Ok(Next::Run) => None,
            Ok(Next::Device(_)) => Some(self.refuse(at, "reaches a device in memory")),
            Ok(Next::Halt | Next::Shutdown) => Some(self.refuse(at, "halts the processor")),
            Err(refused) => Some(self.refuse(at, &refused.what)),
        }
    }

    fn refuse(&mut self, at: u64, what: &str) -> Exit {
        self.refusal = Some(format!("the instruction at {at:#x} {what}"));
        Exit::Interrupted
    }

    /// Why the last run cannot be judged, if that is so.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Reads memory by linear addresses, whatever its rights are; false, with nothing promised about `bytes`, if any is not there.
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let memory = self.processor.cpu().bus();
        pieces(address, bytes.len()).all(|(va, range)| {
            let Some(at) = memory.peek(va).and_then(|at| usize::try_from(at).ok()) else { return false };
            let found = memory.ram().get(at..at + range.len());
            found.map(|found| bytes[range].copy_from_slice(found)).is_some()
        })
    }

    /// Writes memory, whatever its rights are; false if any is not there.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> bool {
        pieces(address, bytes.len()).all(|(va, range)| {
            let cpu = self.processor.cpu_mut();
            let Some(physical) = cpu.bus().peek(va) else { return false };
            let at = usize::try_from(physical).unwrap_or(usize::MAX);
            let Some(place) = cpu.bus_mut().ram_mut().get_mut(at..at.saturating_add(range.len())) else {
                return false;
            };
            place.copy_from_slice(&bytes[range]);
            cpu.written(physical, 1);
            self.put.insert(physical / PAGE as u64 * PAGE as u64);
            true
        })
    }

    /// The registers of the system that differ from the core's, if any do.
    pub(super) fn differing_registers(&self) -> Option<(String, String)> {
        let (expected, found) = (&self.machine.registers, &self.system.registers);
        (expected != found).then(|| (format!("{expected:x?}"), format!("{found:x?}")))
    }

    /// The first byte of memory that differs from the core's. What translations have marked in page tables does not count.
    pub(super) fn differing_memory(&mut self) -> Option<Differing> {
        let cpu = self.processor.cpu_mut();
        let marked = cpu.bus_mut().take_marked();
        let size = self.machine.memory().len() as u64;
        let written = cpu.take_written().into_iter().filter(|frame| *frame < size);
        let mut frames: BTreeSet<u64> = written.chain(self.put.iter().copied()).collect();
        frames.extend(&marked);
        let ram = self.processor.cpu().bus().ram();
        frames.into_iter().find_map(|frame| {
            let at = usize::try_from(frame).ok()?;
            let (expected, found) = (self.machine.memory().get(at..at + PAGE)?, ram.get(at..at + PAGE)?);
            let mask = if marked.contains(&frame) { !MARKS } else { u64::MAX };
            let differs = |n: &usize| (expected[*n] ^ found[*n]) & mask.to_le_bytes()[n % 8] != 0;
            let n = (0..PAGE).find(differs)?;
            Some(Differing { physical: frame + n as u64, expected: expected[n], found: found[n] })
        })
    }
}

/// What is around the processor: nothing but the suffix' answer, and who asks for more is noted. What is sent to ports is not looked at.
struct Beyond {
    is_asked: bool,
    answer: Option<u64>,
    /// The time stamp that was read.
    time: Option<u64>,
}

impl Beyond {
    fn answer(&mut self) -> u64 {
        self.is_asked |= self.answer.is_none();
        self.answer.unwrap_or(0)
    }
}

impl Outside for Beyond {
    fn port_in(&mut self, _port: u16, width: u32) -> u32 {
        let [a, b, c, d, ..] = self.answer().to_le_bytes();
        u32::from_le_bytes([a, b, c, d]) & u32::MAX >> (32 - width.clamp(1, 32))
    }
    fn port_out(&mut self, _port: u16, _width: u32, _value: u32) {}
    fn read_msr(&mut self, _index: u32) -> Option<u64> {
        self.is_asked = true;
        None
    }
    fn write_msr(&mut self, _index: u32, _value: u64) -> Option<()> {
        self.is_asked = true;
        None
    }
    fn cpuid(&mut self, _leaf: u32, _subleaf: u32) -> [u32; 4] {
        self.is_asked = true;
        [0; 4]
    }
    fn time_stamp(&mut self, _retired: u64) -> u64 {
        let time = self.answer();
        self.time = Some(time);
        time
    }
    fn task_priority(&mut self) -> u64 {
        self.is_asked = true;
        0
    }
    fn set_task_priority(&mut self, _priority: u64) {
        self.is_asked = true;
    }
}

fn exception(raised: Raised) -> Exception {
    Exception { vector: raised.vector, error_code: raised.code, address: raised.address.unwrap_or(0) }
}

/// Pieces of so many bytes from an address on that do not cross pages: their addresses, and which bytes they are.
fn pieces(address: u64, len: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let va = address.wrapping_add(done as u64);
        let room = PAGE - usize::try_from(va % PAGE as u64).unwrap_or(0);
        let range = done..len.min(done + room);
        done = range.end;
        Some((va, range))
    })
}
