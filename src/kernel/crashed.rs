//! Where a kernel crashed, as a core and a program for whoever reasons about it: from a core that says it in a note
//! ([`board::vmcore::Crashed`]), or by a run of the recording ([`board::crash`]).
//!
//! The machine there is the core: its page tables say what memory is, and what is code in it is taken as it lies there. Names are those
//! that Linux has in its memory, else those of the file that was booted.

use super::{file, is_one, travel};
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::synth::{Usable, Use};
use ::synth::evidence::{Anchors, Entered};
use board::crash;
use board::linux::Linux;
use board::travel::{Travel, TravelError};
use board::vmcore::{Crashed, Vmcore, is_one as is_vmcore};
use board::{Machine, Position};
use lbr::{Trail, crumb, regular};
use std::path::{Path, PathBuf};
use synth::program::{Layout, Program};
use vmm::elfcore::Core;
use vmm::elfcore::machine::Standing;
use vmm::recording::Recording;
use x86::op::BranchKind;
use x86::state::{Regs, State};
use x86_system::Raised;

/// A kernel's crash that the command line means.
pub(crate) enum Source {
    /// In the recording of a machine.
    Recording(Recording),
    /// In a core alone.
    Core(PathBuf),
}

impl Source {
    /// The one that is meant: a folder, the core in it, which stands for it, or a core elsewhere. `None` where a program is meant.
    pub(crate) fn of(input: &Path) -> Option<Source> {
        let machine = |dir: &Path| Recording::open(dir).ok().filter(is_one);
        if input.is_dir() {
            return machine(input).map(Source::Recording);
        }
        if !is_vmcore(input) {
            return None;
        }
        let folder = input.parent().map(|it| if it == Path::new("") { Path::new(".") } else { it });
        let is_its_core = |recording: &Recording| recording.core().file_name() == input.file_name();
        let recording = folder.and_then(machine).filter(is_its_core);
        Some(recording.map_or_else(|| Source::Core(input.to_owned()), Source::Recording))
    }
}

/// A kernel where it crashed.
pub(crate) struct Taken {
    pub(crate) core: Core,
    pub(crate) program: Program,
    /// Where in its run.
    pub(crate) at: Position,
    /// The branch records there that its core has.
    pub(crate) trail: Option<Trail>,
    /// Instructions since the newest exit before it.
    since_exit: Option<u64>,
    /// Of Linux, where it stands there, and the calls around that: addresses in these instructions, the innermost first.
    pub(crate) calls: Vec<u64>,
}

/// What of the machine's memory the kernel describes itself by, and what has its names otherwise.
struct Names<'a> {
    linux: Option<Linux<'a>>,
    /// The file that was booted.
    booted: &'a dyn Fn() -> Result<Vec<u8>, Failure>,
}

impl Taken {
    /// The one that is meant, by the quickest way; the exe names a kernel that is no Linux.
    pub(crate) fn of(source: &Source, exe: Option<&Path>) -> Result<Taken, Failure> {
        match source {
            Source::Core(path) => Taken::of_core(path, exe, None),
            Source::Recording(recording) => {
                let path = recording.core();
                if is_vmcore(&path)
                    && let Ok(taken) = Taken::of_core(&path, exe, Some(recording))
                {
                    return Ok(taken);
                }
                Taken::of_recording(recording)
            }
        }
    }

    fn of_recording(recording: &Recording) -> Result<Taken, Failure> {
        let (mut travel, damage) = travel(recording, None)?;
        damage.iter().for_each(|damage| say!("gretel: {damage}"));
        if !travel.ended().is_some_and(super::has_crashed) {
            return Err(no_crash(recording, &travel));
        }
        let crash = crash::seek(&mut travel).map_err(failed)?;
        Taken::of_machine(recording, travel.machine(), crash.end())
    }

    /// A machine of a recording that stands there: what the next instruction raises, or what its end is in words.
    pub(crate) fn of_machine(
        recording: &Recording,
        machine: &Machine,
        end: Result<Raised, &'static str>,
    ) -> Result<Taken, Failure> {
        let standing = Standing {
            state: State { regs: machine.regs(), fpu: machine.fpu() },
            registers: *machine.system_registers(),
            ram: machine.ram(),
            raised: end.ok(),
            end: end.err().unwrap_or_default(),
        };
        let description = machine.description();
        let linux = description.as_deref().and_then(|description| Linux::new(machine, description).ok());
        let names = Names { linux, booted: &|| file(recording) };
        let calls = names.calls(&standing.state.regs);
        let (core, program) = both(recording.dir(), &standing, &names)?;
        let at = machine.position();
        let since_exit = since_newest(at, &machine.crumbs());
        Ok(Taken { core, program, at, trail: None, since_exit, calls })
    }

    /// A core that says where its kernel crashed.
    pub(crate) fn of_core(
        path: &Path,
        exe: Option<&Path>,
        recording: Option<&Recording>,
    ) -> Result<Taken, Failure> {
        let damaged = |why: &dyn std::fmt::Display| {
            Failure::new(Code::Damaged, format!("core {}: {why}", path.display()))
        };
        let core = Vmcore::open(path).map_err(|error| Failure::new(Code::Damaged, error))?;
        let crashed = core.crashed().map_err(|why| damaged(&why))?.ok_or_else(|| unsaid(path))?;
        let trail = core.trail().map_err(|why| damaged(&why))?;
        let crumbs = core.crumbs().unwrap_or_else(|why| {
            say!("gretel: core {}: {why}; its crumbs are not used", path.display());
            None
        });
        let memory = crashed.memory(&core).ok_or_else(|| damaged(&"a part of its memory is missing"))?;
        let Crashed { at, state, registers, raised, end, .. } = &crashed;
        let standing = Standing { state: *state, registers: *registers, ram: &memory, raised: *raised, end };
        let linux = core.description.as_deref().and_then(|it| Linux::new(&memory, it).ok());
        let booted = || match (exe, recording) {
            (Some(exe), _) => regular::read(exe).map_err(|error| {
                Failure::new(Code::Damaged, format!("cannot read {}: {error}", exe.display()))
            }),
            (None, Some(recording)) => file(recording),
            (None, None) => Err(Failure::new(
                Code::Usage,
                format!(
                    "{}: no names of the kernel are in its memory: name the file that was booted with --exe",
                    path.display()
                ),
            )),
        };
        let names = Names { linux, booted: &booted };
        let calls = names.calls(&standing.state.regs);
        let (core, program) = both(path, &standing, &names)?;
        let since_exit = crumbs.and_then(|crumbs| since_newest(*at, &crumbs.entries));
        Ok(Taken { core, program, at: *at, trail, since_exit, calls })
    }
}

impl Taken {
    /// Its branch records as the search takes them, and what they and so much of the crumbs tell of how the kernel was entered.
    pub(crate) fn evidence(&self, used: Use) -> Result<(Usable, Anchors), Failure> {
        let nothing = || Ok(((Vec::new(), Vec::new()), None));
        let (usable, back) =
            self.trail.as_ref().map_or_else(nothing, |trail| usable(trail, &self.program))?;
        let retired = self.since_exit.filter(|_| matches!(used, Use::Counts | Use::Contexts));
        Ok((usable, Anchors::of_kernel(Entered { retired, back })))
    }

    /// The function that it crashed in, as the kernel prints it.
    pub(crate) fn place(&self) -> String {
        let rip = self.core.state.regs.rip;
        self.program.function_at(rip).map_or_else(
            || format!("{rip:#x}"),
            |function| match function.name.split_once(" [") {
                Some((name, module)) => format!("{name}+{:#x} [{module}", rip - function.start),
                None => format!("{}+{:#x}", function.name, rip - function.start),
            },
        )
    }
}

/// How many instructions before a position the newest exit was left.
fn since_newest(at: Position, crumbs: &[crumb::Entry]) -> Option<u64> {
    at.retired.checked_sub(crumbs.last()?.crumb.counts.instructions?)
}

/// Why a core alone cannot be taken back.
fn unsaid(path: &Path) -> Failure {
    let why = "it does not say where the kernel crashed, as those of gretel do, and its memory is that of the end of a panic: record the \
               crash with gretel, or name its recording";
    Failure::new(Code::Usage, format!("{} is the core of a kernel: {why}", path.display()))
}

/// Why there is nothing to take back.
pub(crate) fn no_crash(recording: &Recording, travel: &Travel) -> Failure {
    let end = travel.ended().map_or_else(|| "its journal has no end".to_owned(), super::sentence);
    let why = format!("its kernel did not crash ({end}): `gretel synth` takes another place with --at");
    let dir = recording.dir().display();
    Failure::new(Code::Usage, format!("{dir} is the recording of a machine with a kernel: {why}"))
}

pub(crate) fn failed(error: TravelError) -> Failure {
    let code = if matches!(error, TravelError::Replay(_)) { Code::Diverged } else { Code::Damaged };
    Failure::new(code, error)
}

/// A machine as a core, and the kernel in it.
fn both(path: &Path, standing: &Standing<'_>, names: &Names<'_>) -> Result<(Core, Program), Failure> {
    let refused = |why: String| Failure::new(Code::Other, why);
    if standing.registers.privilege != 0 {
        return Err(refused(
            "the machine runs a program there, and no kernel: name another place with --at".to_owned(),
        ));
    }
    if standing.registers.is_narrow() {
        return Err(refused("the machine runs 32-bit code there, which is not taken back".to_owned()));
    }
    let core = Core::of_machine(path.to_owned(), standing).map_err(|error| refused(error.to_string()))?;
    let mut layout = names.layout()?;
    layout.entries = entries(&core);
    let program = Program::in_memory(&core, &layout).map_err(|error| refused(error.to_string()))?;
    Ok((core, program))
}

impl Names<'_> {
    /// Where the kernel stands, and the calls around that.
    fn calls(&self, regs: &Regs) -> Vec<u64> {
        let frames = self.linux.as_ref().map(|linux| linux.stack(regs).frames);
        frames.into_iter().flatten().map(|frame| frame.lookup()).collect()
    }

    /// Where the kernel is, and its names.
    fn layout(&self) -> Result<Layout, Failure> {
        if let Some(symbols) = self.linux.as_ref().and_then(|linux| linux.symbols().ok()) {
            let parts = [("_sdata", "_edata"), ("__start_rodata", "__end_rodata")];
            let part = |(start, end): (&str, &str)| Some(symbols.address(start)?..symbols.address(end)?);
            let name = |(start, name, module): (u64, &str, Option<&str>)| {
                let name = module.map_or_else(|| name.to_owned(), |module| format!("{name} [{module}]"));
                (start, 0, name)
            };
            return Ok(Layout {
                code: symbols.code().collect(),
                // A driver's functions are called through a table of its module's (`struct proc_ops`).
                data: parts.into_iter().filter_map(part).chain(symbols.data_of_modules()).collect(),
                names: symbols.functions().map(name).collect(),
                entries: Vec::new(),
            });
        }
        let unread = self.linux.as_ref().and_then(|linux| linux.symbols().err());
        let why = unread.map_or_else(String::new, |why| format!(" ({why})"));
        let file = (self.booted)()?;
        Layout::of_file(&file).map_err(|error| {
            let error = match file.starts_with(b"\x7fELF") {
                true => error.to_string(),
                false => "it is compressed (name the core, and with --exe its vmlinux)".to_owned(),
            };
            let both = format!(
                "no names of the kernel are in its memory{why}, and the file that was booted has none"
            );
            Failure::new(Code::Other, format!("{both}: {error}"))
        })
    }
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

/// The records as the search takes them, newest first, up to the first that is no branch of the kernel's code: before an interrupt, an
/// exception or a system call another path has ended. And where that one led.
fn usable(trail: &Trail, program: &Program) -> Result<(Usable, Option<u64>), Failure> {
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
    let back = records.get(used).map(|(_, to)| *to);
    Ok(((records[..used].to_vec(), recorded), back))
}
