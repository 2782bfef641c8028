//! A recording of a machine as a target: its processor as one thread, by linear addresses as they are mapped where it stands.
//!
//! An exception or an interrupt that is delivered is a step of its own, to the first instruction of its handler. Breakpoints are
//! addresses, in whichever program's memory; so are watched data.
//!
//! Example: `gretel gdb rec -- vmlinux`, then `watch jiffies`, `reverse-continue`: before the instruction that stored to it last.

use super::agent::World;
use super::ids::Id;
use super::points::{Point, Points};
use super::registers::{self, Shown};
use super::target::{Stopped, Target, Task, Way, Why, Wishes};
use crate::exit::{Code, Failure};
use crate::kernel;
use crate::log::say;
use board::journal::{End, Reader, Record};
use board::travel::{Stop, Travel, TravelError};
use board::{Machine, Position, Seen};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vmm::engine::lookout::Lookout;
use vmm::memory::MappingInfo;
use vmm::recording::Recording;
use vmm::signal::Death;
use vmm::travel;

/// The one processor.
const PROCESSOR: Id = Id { pid: 1, tid: 1 };
/// Linux's numbers: what a kernel panic and a triple fault are told as.
const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;

const HELP: &str = "\
monitor when          how many instructions have retired, the guest's time, the level, the tables of pages
monitor goto N        go to where N instructions have retired; also `start` and `end`
monitor registers     control registers, segments, tables
";

/// A machine that is debugged.
pub(super) struct Booted {
    travel: Travel,
    /// The end was told, and nothing has moved since.
    told_end: bool,
}

/// The state before an instruction, as conditions see it.
struct Here<'a>(&'a Machine);

impl World for Here<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        registers::word(&self.0.regs(), number)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes) == bytes.len()
    }
}

/// What was seen, as breakpoints are told of it.
fn stop(seen: Seen) -> travel::Stop {
    match seen {
        Seen::Code(rip) => travel::Stop::Breakpoint(rip),
        Seen::Data { accessed, .. } => travel::Stop::Accessed(accessed),
    }
}

fn hit<'p>(points: &'p Points, machine: &Machine, seen: Seen) -> Option<&'p Point> {
    points.hit(PROCESSOR.pid, stop(seen), &Here(machine))
}

fn failed(error: TravelError) -> Failure {
    let code = if matches!(error, TravelError::Replay(_)) { Code::Diverged } else { Code::Damaged };
    Failure::new(code, error)
}

impl Booted {
    /// Opens a recording at an instruction, or at its end if it crashed and else at its beginning.
    pub(super) fn open(recording: &Recording, at: Option<At>) -> Result<Booted, Failure> {
        let mut reader =
            Reader::open(&recording.journal()).map_err(|error| Failure::new(Code::Damaged, error))?;
        let (records, damage) = kernel::records(&mut reader);
        let (places, notes) = kernel::Places::of(recording, reader.header());
        damage.iter().chain(&notes).for_each(|note| say!("gretel: {note}"));
        let at = at.unwrap_or_else(|| match records.last() {
            Some(Record::End { end, .. }) if kernel::has_crashed(end) => At::End,
            _ => At::Instruction(0),
        });
        let at = if let At::Instruction(at) = at { Some(at) } else { None };
        let mut travel = Travel::open(Box::new(places), records, at).map_err(failed)?;
        say_notes(&mut travel);
        Ok(Booted { travel, told_end: false })
    }

    /// Where it stands, and why.
    pub(super) fn stands(&mut self) -> Stopped {
        let why = self.crash().map_or(Why::There, Why::Signal);
        self.told_end = true;
        Stopped { id: PROCESSOR, why }
    }

    /// The signal that a crash is told as, where it stands at that.
    fn crash(&self) -> Option<i32> {
        match self.travel.ended()? {
            End::Machine(board::End::Panic(_)) => Some(SIGABRT),
            End::Machine(board::End::TripleFault(_)) => Some(SIGSEGV),
            _ => None,
        }
    }

    fn go(&mut self, way: Way, wishes: &Wishes) -> Result<Why, TravelError> {
        let points = &wishes.points;
        let lookout = points.lookouts().remove(&PROCESSOR.pid).unwrap_or_default();
        let mut accept = |machine: &Machine, seen: Seen| hit(points, machine, seen).is_some();
        let travel = &mut self.travel;
        let stop = match way {
            Way::Forward => travel.forward(&lookout, &mut accept)?,
            Way::Step(_, range) => step(travel, &lookout, points, range)?,
            Way::Back => travel.backward(&lookout, &mut accept)?,
            Way::StepBack(_) => travel.step_back()?,
        };
        Ok(self.why(stop, points))
    }

    fn why(&mut self, stop: Stop, points: &Points) -> Why {
        match stop {
            Stop::There => Why::There,
            Stop::Begin => Why::Begin,
            Stop::Asked => Why::Asked,
            Stop::End => match self.crash() {
                Some(signal) if !self.told_end => Why::Signal(signal),
                _ => Why::End,
            },
            Stop::Seen(seen) => match hit(points, self.travel.machine(), seen) {
                Some(point) => Why::Point(point.kind, point.address),
                None => Why::There,
            },
        }
    }

    fn when(&self) -> String {
        let (machine, at) = (self.travel.machine(), self.travel.position());
        let system = machine.system_registers();
        let ended = self.travel.ended().map(|end| format!("; {}", kernel::sentence(end))).unwrap_or_default();
        format!(
            "{} instructions, {} exceptions and interrupts; {} s by the guest's clock; ring {}, cr3 {:#x}{ended}\n",
            at.retired,
            at.delivered,
            kernel::seconds(machine.moment().time),
            system.privilege,
            system.cr3
        )
    }

    fn go_to(&mut self, place: &str) -> Result<String, TravelError> {
        let to = match (place, place.parse()) {
            ("start", _) => {
                self.travel.seek_begin()?;
                return Ok(self.when());
            }
            ("end", _) => u64::MAX,
            (_, Ok(instructions)) => instructions,
            (_, Err(_)) => {
                return Ok(format!("`{place}` is to be a number of instructions, `start` or `end`\n"));
            }
        };
        self.travel.seek(Position::at(to))?;
        Ok(self.when())
    }
}

/// One step, or as many as it takes to leave a range.
fn step(
    travel: &mut Travel,
    lookout: &Lookout,
    points: &Points,
    range: Option<(u64, u64)>,
) -> Result<Stop, TravelError> {
    let mut accept = |machine: &Machine, seen: Seen| hit(points, machine, seen).is_some();
    loop {
        let stop = travel.step(lookout, &mut accept)?;
        let rip = travel.machine().regs().rip;
        let is_inside = range.is_some_and(|(start, end)| (start..end).contains(&rip));
        match stop {
            Stop::There if is_inside => {}
            // Without a range, or out of it, gdb looks itself what is here.
            Stop::Seen(Seen::Code(_)) if !is_inside => return Ok(Stop::There),
            stop => return Ok(stop),
        }
    }
}

/// Where to begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Instruction(u64),
    End,
}

fn say_notes(travel: &mut Travel) {
    travel.take_notes().iter().for_each(|note| say!("gretel: {note}"));
}

impl Target for Booted {
    fn tasks(&self) -> Vec<Task> {
        let privilege = self.travel.machine().system_registers().privilege;
        vec![Task { id: PROCESSOR, name: "CPU 0".to_owned(), about: format!("ring {privilege}") }]
    }

    fn loaded(&self) -> Id {
        PROCESSOR
    }

    fn registers(&mut self, id: Id) -> Result<Option<Shown>, Failure> {
        let machine = self.travel.machine();
        let [es, cs, ss, ds, fs, gs] =
            machine.system_registers().segments.map(|segment| u32::from(segment.selector));
        let selectors = [cs, ss, ds, es, fs, gs];
        let shown = Shown { regs: machine.regs(), selectors, fpu: Some(machine.fpu()) };
        Ok(Some(shown).filter(|_| id == PROCESSOR))
    }

    fn read(&self, pid: i32, address: u64, bytes: &mut [u8]) -> usize {
        if pid == PROCESSOR.pid { self.travel.machine().read(address, bytes) } else { 0 }
    }

    fn program(&self, _: i32) -> Option<Vec<u8>> {
        None
    }

    fn auxiliary(&self, _: i32) -> Vec<(u64, u64)> {
        Vec::new()
    }

    fn mappings(&self, _: i32) -> Vec<MappingInfo> {
        Vec::new()
    }

    fn death(&self, _: i32) -> Option<Death> {
        let signal = self.crash()?;
        Some(Death { signal, code: 0, address: 0, exception: None })
    }

    fn run(&mut self, way: Way, wishes: &Wishes) -> Result<Stopped, Failure> {
        let why = self.go(way, wishes).map_err(failed)?;
        say_notes(&mut self.travel);
        self.told_end = self.travel.ended().is_some();
        Ok(Stopped { id: PROCESSOR, why })
    }

    fn restart(&mut self) -> Result<Stopped, Failure> {
        self.travel.seek_begin().map_err(failed)?;
        self.told_end = false;
        Ok(Stopped { id: PROCESSOR, why: Why::There })
    }

    fn monitor(&mut self, command: &str, _: i32) -> Result<String, Failure> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let text = match words[..] {
            ["when"] => self.when(),
            ["goto", place] => self.go_to(place).map_err(failed)?,
            ["registers"] => listing(self.travel.machine()),
            _ => HELP.to_owned(),
        };
        say_notes(&mut self.travel);
        self.told_end = self.travel.ended().is_some();
        Ok(text)
    }

    fn asks(&self) -> Arc<AtomicBool> {
        self.travel.asks()
    }
}

/// The registers of the system.
fn listing(machine: &Machine) -> String {
    let it = machine.system_registers();
    let mut lines = vec![
        format!(
            "cr0 {:#x}  cr2 {:#x}  cr3 {:#x}  cr4 {:#x}  efer {:#x}",
            it.cr0, it.cr2, it.cr3, it.cr4, it.efer
        ),
        format!("gdt {:#x}+{:#x}  idt {:#x}+{:#x}", it.gdtr.base, it.gdtr.limit, it.idtr.base, it.idtr.limit),
        format!("syscall goes to {:#x}; the other base of gs is {:#x}", it.lstar, it.kernel_gs_base),
    ];
    let named = ["es", "cs", "ss", "ds", "fs", "gs"].into_iter().zip(&it.segments);
    let selectors: Vec<String> =
        named.map(|(name, segment)| format!("{name} {:#x}", segment.selector)).collect();
    lines.push(format!("{}  tr {:#x} at {:#x}", selectors.join("  "), it.tr.selector, it.tr.base));
    lines.join("\n") + "\n"
}
