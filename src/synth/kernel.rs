//! `gretel synth` of a machine with a kernel: from where the kernel crashed, in the memory and the registers of that moment.
//!
//! The core of the recording is of the machine's end, in the reset behind the panic. So the recording is run again to the instruction that
//! the panic came from ([`board::crash`]), and the machine there is the core: its page tables say what memory is, and what is code in it
//! is taken as it lies there. Branch records are derived by a run of the last instructions with the model of a processor's.

use super::{Args, Beside, LOOKED_AT, Outcome, explain, interrupter, nothing_written, progress, shown};
use crate::exit::{Code, Failure};
use crate::kernel::{self, At};
use crate::log::say;
use crate::sandbox;
use ::synth::evidence::Anchors;
use ::synth::program::{Layout, Program};
use ::synth::report::Listing;
use ::synth::report::metrics::{self, Metrics};
use ::synth::suffix::Suffix;
use ::synth::synthesis::{Request, synthesize};
use board::crash::{self, Crash};
use board::linux::Linux;
use board::travel::{Travel, TravelError};
use board::{Machine, Position};
use lbr::{Filter, Trail};
use std::path::Path;
use vmm::elfcore::Core;
use vmm::elfcore::machine::Standing;
use vmm::recording::Recording;
use x86::op::BranchKind;
use x86::state::State;
use x86_system::Raised;

/// So many branch records are derived if none are asked for.
const RECORDS: u32 = 32;

/// The rings whose branches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rings {
    kernel: bool,
    user: bool,
}

/// What `--ring` says.
pub(super) fn rings(text: &str) -> Result<Rings, String> {
    match text {
        "kernel" => Ok(Rings { kernel: true, user: false }),
        "user" => Ok(Rings { kernel: false, user: true }),
        "both" => Ok(Rings { kernel: true, user: true }),
        _ => Err("give kernel, user or both".to_owned()),
    }
}

/// The recording of a machine that is meant: its folder, or the core in it.
pub(super) fn of(input: &Path) -> Result<Option<Recording>, Failure> {
    let machine = |dir: &Path| Recording::open(dir).ok().filter(kernel::is_one);
    if input.is_dir() {
        return Ok(machine(input));
    }
    if !board::vmcore::is_one(input) {
        return Ok(None);
    }
    let folder = input.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let recording = folder.and_then(machine);
    let is_its_core = |recording: &Recording| recording.core().file_name() == input.file_name();
    recording.filter(is_its_core).map(Some).ok_or_else(|| {
        let why = "it is of the end of a panic, and what led there is in a recording of gretel: name that";
        Failure::new(Code::Usage, format!("{} is the core of a kernel: {why}", input.display()))
    })
}

/// Works backwards from where a kernel crashed.
pub(super) fn run(args: &Args, recording: &Recording) -> Outcome {
    if args.exe.is_some() {
        let why = "--exe is not for a machine: its code is in its memory";
        return Err(Failure::new(Code::Usage, why));
    }
    let limits = args.limits();
    // What is run is a kernel, and no KVM is needed for it.
    sandbox::enter();
    let (mut travel, end) = stand(args, recording)?;
    let crash = travel.position();
    let (core, program) = taken(recording, travel.machine(), end)?;
    say_place(&core, &program, crash);
    let trail = derived(args, &mut travel)?;
    let (records, recorded) = match &trail {
        Some(trail) => usable(trail, &program)?,
        None => (Vec::new(), Vec::new()),
    };
    let (anchors, interrupter) = (Anchors::NONE, interrupter()?);
    let request = Request {
        core: &core,
        program: &program,
        records: &records,
        recorded: &recorded,
        anchors: &anchors,
        limits,
        kvm: false,
        interrupter: &interrupter,
    };
    let synthesis =
        synthesize(&request, &mut progress(args.time)).map_err(|e| Failure::new(Code::Host, e))?;
    let mut truth = Truth { travel, crash };
    let explanation =
        args.explain.then(|| explain(&request, trail.as_ref(), &synthesis, Some(truth.log(LOOKED_AT))));
    args.smt_lib.iter().for_each(|dir| nothing_written(dir));
    let mut beside = Beside { explanation, refutations: None, machine: Some(truth) };
    shown::report(args, &core, &program, synthesis, &mut beside)
}

/// Says where the suffix is to end.
fn say_place(core: &Core, program: &Program, crash: Position) {
    let rip = core.state.regs.rip;
    let place = program.function_at(rip).map_or_else(
        || format!("{rip:#x}"),
        |function| match function.name.split_once(" [") {
            Some((name, module)) => format!("{name}+{:#x} [{module}", rip - function.start),
            None => format!("{}+{:#x}", function.name, rip - function.start),
        },
    );
    say!("gretel: taken back from {place}, {} instructions: {}", crash.retired, core.end_name());
}

/// The recording where the suffix is to end, and what the instruction there raises, or what its end is.
fn stand(args: &Args, recording: &Recording) -> Result<(Travel, Result<Raised, &'static str>), Failure> {
    let at = if let Some(At::Instruction(at)) = args.at { Some(at) } else { None };
    let (mut travel, damage) = kernel::travel(recording, at)?;
    damage.iter().for_each(|damage| say!("gretel: {damage}"));
    let end = match args.at {
        None if !travel.ended().is_some_and(kernel::has_crashed) => return Err(no_crash(recording, &travel)),
        None => match crash::seek(&mut travel).map_err(failed)? {
            Crash::Raised(raised) => Ok(raised),
            Crash::Panic => Err("panic without an exception"),
            Crash::End => Err("the end of the recording"),
        },
        Some(At::End) => Err("the end of the recording"),
        Some(At::Instruction(at)) => {
            let here = travel.position();
            if here.retired != at {
                let why = format!("the recording has {} instructions, not {at}", here.retired);
                return Err(Failure::new(Code::Usage, why));
            }
            raised_here(&mut travel)?.ok_or("the instruction that was asked for")
        }
    };
    travel.take_notes().iter().for_each(|note| say!("gretel: {note}"));
    Ok((travel, end))
}

/// Why there is nothing to take back.
fn no_crash(recording: &Recording, travel: &Travel) -> Failure {
    let end = travel.ended().map_or_else(|| "its journal has no end".to_owned(), kernel::sentence);
    let why = format!("its kernel did not crash ({end}): name a place with --at");
    let dir = recording.dir().display();
    Failure::new(Code::Usage, format!("{dir} is the recording of a machine with a kernel: {why}"))
}

/// What the instruction raises that is next.
fn raised_here(travel: &mut Travel) -> Result<Option<Raised>, Failure> {
    let here = travel.position();
    travel.step_once().map_err(failed)?;
    let newest = travel.machine().exceptions().next().copied();
    travel.seek(here).map_err(failed)?;
    Ok(newest.filter(|exception| exception.at == here && exception.is_fault()).map(|it| it.raised))
}

fn failed(error: TravelError) -> Failure {
    let code = if matches!(error, TravelError::Replay(_)) { Code::Diverged } else { Code::Damaged };
    Failure::new(code, error)
}

/// The machine as a core, and the kernel in it.
fn taken(
    recording: &Recording,
    machine: &Machine,
    end: Result<Raised, &'static str>,
) -> Result<(Core, Program), Failure> {
    let standing = Standing {
        state: State { regs: machine.regs(), fpu: machine.fpu() },
        registers: *machine.system_registers(),
        ram: machine.ram(),
        raised: end.ok(),
        end: end.err().unwrap_or_default(),
    };
    let refused = |why: String| Failure::new(Code::Other, why);
    if standing.registers.privilege != 0 {
        return Err(refused(
            "the machine runs a program there, and no kernel: name another place with --at".to_owned(),
        ));
    }
    let core = Core::of_machine(recording.dir().to_owned(), &standing);
    let core = core.map_err(|error| refused(error.to_string()))?;
    let mut layout = layout(recording, machine)?;
    layout.entries = entries(&core);
    let program = Program::in_memory(&core, &layout).map_err(|error| refused(error.to_string()))?;
    Ok((core, program))
}

/// Where the kernel is, and its names: those that Linux has in its memory, else those of the file that was booted.
fn layout(recording: &Recording, machine: &Machine) -> Result<Layout, Failure> {
    let description = machine.description();
    let linux = description.as_deref().and_then(|description| Linux::new(machine, description).ok());
    if let Some(symbols) = linux.as_ref().and_then(|linux| linux.symbols().ok()) {
        let parts = [("_sdata", "_edata"), ("__start_rodata", "__end_rodata")];
        let part = |(start, end): (&str, &str)| Some(symbols.address(start)?..symbols.address(end)?);
        let name = |(start, name, module): (u64, &str, Option<&str>)| {
            let name = module.map_or_else(|| name.to_owned(), |module| format!("{name} [{module}]"));
            (start, 0, name)
        };
        return Ok(Layout {
            code: symbols.code().collect(),
            data: parts.into_iter().filter_map(part).collect(),
            names: symbols.functions().map(name).collect(),
            entries: Vec::new(),
        });
    }
    let file = kernel::file(recording)?;
    Layout::of_file(&file).map_err(|error| {
        let why = "no names of the kernel are in its memory, and the file that was booted has none";
        Failure::new(Code::Other, format!("{why}: {error}"))
    })
}

/// Where the processor enters the kernel by itself.
fn entries(core: &Core) -> Vec<(u64, &'static str)> {
    const GATE: u64 = 16;
    let Some(machine) = &core.machine else { return Vec::new() };
    let table = machine.registers.idtr;
    let gates = (0..256).take_while(|n| n * GATE + GATE - 1 <= u64::from(table.limit));
    let target = |n: u64| {
        let at = table.base.wrapping_add(n * GATE);
        let (low, high) = (core.word(at)?, core.word(at.wrapping_add(8))?);
        let is_there = low >> 47 & 1 == 1;
        is_there.then_some(low & 0xffff | low >> 32 & 0xffff_0000 | high << 32)
    };
    let why = |n: u64| match n {
        0..32 => "the entry of an exception: what raised it may be anywhere",
        _ => "the entry of an interrupt: it may have come anywhere",
    };
    let mut entries: Vec<(u64, &'static str)> = gates.filter_map(|n| Some((target(n)?, why(n)))).collect();
    if machine.registers.lstar != 0 {
        entries.push((machine.registers.lstar, "the entry of system calls: a program made one"));
    }
    entries
}

/// The branch records at the place that the recording stands at, which it stands at again then.
fn derived(args: &Args, travel: &mut Travel) -> Result<Option<Trail>, Failure> {
    let wanted = args.records.unwrap_or(RECORDS);
    if wanted == 0 {
        return Ok(None);
    }
    let Rings { kernel, user } = args.ring.unwrap_or(Rings { kernel: true, user: false });
    let filter = args.filter.unwrap_or(Filter::ANY);
    if filter.is_call_stack() {
        let message = "call-stack records are not in the order of time; take others with --filter";
        return Err(Failure::new(Code::Usage, message));
    }
    let trail = travel.branch_records(wanted, filter.in_rings(kernel, user));
    trail.map(Some).map_err(|error| Failure::new(Code::Other, error))
}

/// The records as the search takes them, newest first, up to the first that is no branch of the kernel's code: before an interrupt, an
/// exception or a system call another path has ended.
fn usable(trail: &Trail, program: &Program) -> Result<super::Usable, Failure> {
    let Some(filter) = trail.filter else {
        return Err(Failure::new(Code::Other, "the derived branch records have no filter"));
    };
    let is_branch = |from: u64, to: u64| {
        let instruction = program.instruction_at(from);
        let near = instruction.is_some_and(|i| {
            i.is_call_near()
                || i.is_call_near_indirect()
                || i.is_jmp_short_or_near()
                || i.is_jmp_near_indirect()
                || i.is_jcc_short_or_near()
                || i.is_jcx_short()
                || i.is_loop()
                || i.is_loopcc()
                || i.mnemonic() == iced_x86::Mnemonic::Ret
        });
        near && program.entered_by(to).is_none()
    };
    let records: Vec<(u64, u64)> =
        trail.records.iter().rev().map(|record| (record.from, record.to)).collect();
    let used = records.iter().take_while(|(from, to)| is_branch(*from, *to)).count();
    if let Some((from, to)) = records.get(used) {
        say!(
            "gretel: the newest {used} of {} branch records are used: before them the processor came from {from:#x} to {to:#x} by an \
             interrupt, an exception or a system call",
            records.len()
        );
    }
    let near = BranchKind::ALL.into_iter().filter(|&kind| kind != BranchKind::Far);
    let recorded = near.filter(|&kind| filter.records(kind, true)).collect();
    Ok((records[..used].to_vec(), recorded))
}

/// What really ran, up to the place that a suffix ends at.
pub(super) struct Truth {
    travel: Travel,
    crash: Position,
}

impl Truth {
    /// Measures a suffix against it.
    pub(super) fn measure(&mut self, suffix: &Suffix, listing: &Listing) -> Option<Metrics> {
        let count = metrics::retiring(listing);
        let measured = self
            .seek_before(count)
            .and_then(|()| metrics::measure_against(self, suffix, listing))
            .inspect_err(|why| say!("gretel: the suffix is not compared with the recording: {why}"));
        measured.ok()
    }

    /// The addresses of the last instructions, oldest first.
    fn log(&mut self, count: u64) -> Result<Vec<u64>, String> {
        let in_words = |error: TravelError| error.to_string();
        self.seek_before(count).map_err(in_words)?;
        let mut log = Vec::new();
        while self.travel.position() < self.crash {
            let (before, rip) = (self.travel.position(), self.travel.machine().regs().rip);
            if !self.travel.step_once().map_err(in_words)? {
                break;
            }
            if self.travel.position().retired > before.retired {
                log.push(rip);
            }
        }
        Ok(log)
    }

    /// Stands before the last `count` instructions.
    fn seek_before(&mut self, count: u64) -> Result<(), TravelError> {
        self.travel.seek(Position::at(self.crash.retired.saturating_sub(count))).map(drop)
    }
}

impl metrics::Truth for Truth {
    type Error = TravelError;

    fn left(&self) -> u64 {
        self.crash.retired.saturating_sub(self.travel.position().retired)
    }
    fn ended(&self) -> bool {
        self.travel.position() >= self.crash
    }
    fn thread(&self) -> u32 {
        0
    }
    fn state(&mut self) -> Result<State, TravelError> {
        let machine = self.travel.machine();
        Ok(State { regs: machine.regs(), fpu: machine.fpu() })
    }
    fn read(&self, va: u64, bytes: &mut [u8]) -> bool {
        self.travel.machine().read(va, bytes) == bytes.len()
    }
    fn step(&mut self) -> Result<(), TravelError> {
        self.travel.step_once().map(drop)
    }
}
