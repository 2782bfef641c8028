//! `gretel core` of a kernel: the processor, the task, who called whom, and the log. What is looked at is in `subject`.

use super::seconds;
use super::subject::Subject;
use crate::Outcome;
use crate::core_file::{REGISTERS, hex};
use crate::crumbs;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::{Printed, print, written};
use crate::shown_trail::{self, Format};
use board::linux::Linux;
use board::linux::printk::{Line, Log};
use board::linux::stack::{By, Frame, Trace};
use board::linux::symbols::Place;
use board::linux::tasks::Task;
use board::vmcore::{Crashed, said};
use lbr::Trail;
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use x86::state::Regs;

/// So many lines of the log are shown beside everything else.
const LAST: usize = 80;

/// A processor as it stood.
struct Processor {
    regs: Regs,
    task: Result<Task, String>,
    trace: Trace,
    /// Names for the frames.
    places: Vec<String>,
}

/// All that is shown.
struct Found {
    origin: Option<String>,
    damage: Option<String>,
    release: Option<String>,
    processors: Vec<Processor>,
    log: Result<Log, String>,
    /// What is not known at all, and why.
    unknown: Vec<String>,
    /// Where the kernel crashed, and the branch records there.
    crash: Option<CrashFound>,
    trail: Option<(Trail, Vec<(String, String)>)>,
    /// How many exits there are.
    crumbs: usize,
}

/// The instruction that the kernel crashed at.
struct CrashFound {
    rip: u64,
    place: String,
    instructions: u64,
    /// The vector, the error code and the address of what it raised; else what the end is, in words.
    raised: Result<(u8, u32, Option<u64>), String>,
}

/// Shows a kernel's core, or its log alone.
pub(crate) fn show(subject: &Subject, exe: Option<&Path>, log: bool, format: Format) -> Outcome {
    let path = &subject.path;
    if exe.is_some() {
        let why = "--exe is not for it: a kernel's core has the kernel's code and names itself";
        return Err(Failure::new(Code::Usage, format!("{} is the core of a kernel: {why}", path.display())));
    }
    if format == Format::PerfScript {
        let Some(trail) = &subject.crash.trail else {
            return Err(Failure::new(Code::Usage, "this core of a kernel has no branch records"));
        };
        print(format_args!("{}\n", shown_trail::perf_script(trail)))?;
        return Ok(ExitCode::SUCCESS);
    }
    subject.crash_damage.iter().for_each(|why| say!("gretel: core {}: {why}", path.display()));
    let found = Found::of(subject);
    let damage = &found.damage;
    damage.iter().for_each(|damage| say!("gretel: core {} is damaged: {damage}", path.display()));
    let shown = match (format, log) {
        (Format::Json, _) => writeln!(io::stdout(), "{}", found.as_json(path)),
        (_, true) => match &found.log {
            Ok(log) => found.print_log(&mut io::stdout().lock(), log),
            Err(why) => return Err(Failure::new(Code::Damaged, format!("there is no log: {why}"))),
        },
        (_, false) => found.print(&mut io::stdout().lock()),
    };
    written(shown)?;
    Ok(if damage.is_none() { ExitCode::SUCCESS } else { Code::Damaged.into() })
}

impl Found {
    fn of(subject: &Subject) -> Found {
        const NO_LINUX: &str = "the core has no VMCOREINFO: it is no Linux, or had not come so far";
        let linux = match &subject.description {
            Some(description) => Linux::new(&*subject.memory, description),
            None => Err(NO_LINUX.to_owned()),
        };
        let mut unknown: Vec<String> = linux.as_ref().err().into_iter().cloned().collect();
        let processors = subject.processors.iter().enumerate();
        let processors = processors.map(|(n, regs)| Processor::of(linux.as_ref(), n, *regs)).collect();
        let log = linux.as_ref().map_err(Clone::clone).and_then(Linux::log);
        let release = linux.as_ref().ok().and_then(Linux::release).map(str::to_owned);
        let symbols = linux.as_ref().ok().map(Linux::symbols);
        match symbols {
            Some(Err(why)) => unknown.push(format!("addresses have no names: {why}")),
            Some(Ok(symbols)) => unknown.extend(
                symbols.without_modules.iter().map(|why| format!("names of modules are missing: {why}")),
            ),
            None => {}
        }
        let (origin, damage) = (subject.origin.clone(), subject.damage.clone());
        let symbols = linux.as_ref().ok().and_then(|linux| linux.symbols().ok());
        let place = |address: u64| {
            symbols.and_then(|it| it.place(address)).as_ref().map(of_place).unwrap_or_default()
        };
        let crash = subject.crash.crashed.as_ref().map(|crashed| CrashFound::of(crashed, &place));
        let trail = subject.crash.trail.clone().map(|trail| {
            let places = trail.records.iter().map(|it| (place(it.from), place(it.to))).collect();
            (trail, places)
        });
        let crumbs = subject.crash.crumbs.as_ref().map_or(0, |crumbs| crumbs.entries.len());
        Found { origin, damage, release, processors, log, unknown, crash, trail, crumbs }
    }

    /// What is known of the crash itself.
    fn print_crash(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(crash) = &self.crash {
            writeln!(out, "\n{crash}")?;
        }
        if let Some((trail, places)) = &self.trail {
            writeln!(out)?;
            shown_trail::print(out, trail, places)?;
        }
        if self.crumbs > 0 {
            writeln!(out, "\ncrumbs: the last {} exits before the crash (--crumbs shows them)", self.crumbs)?;
        }
        Ok(())
    }

    /// How it ended, as whoever wrote the core or the kernel has it.
    fn end(&self) -> Option<String> {
        let end = self.said("end").map(str::to_owned);
        end.or_else(|| {
            const PANIC: &str = "Kernel panic - not syncing: ";
            let lines = &self.log.as_ref().ok()?.lines;
            let reason = lines.iter().rev().find_map(|line| line.text.strip_prefix(PANIC))?;
            Some(format!("kernel panic: {reason}"))
        })
    }

    /// What a machine of gretel has said.
    fn said(&self, key: &str) -> Option<&str> {
        said(self.origin.as_deref()?, key)
    }

    /// A number that it has said.
    fn number(&self, key: &str) -> Option<u64> {
        u64::from_str_radix(self.said(key)?.strip_prefix("0x")?, 16).ok()
    }

    /// The control registers, as far as they were said.
    fn control(&self) -> impl Iterator<Item = (&'static str, u64)> {
        ["cr0", "cr2", "cr3", "cr4"].into_iter().filter_map(|name| Some((name, self.number(name)?)))
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.end().unwrap_or_else(|| "how it ended is not known".to_owned()))?;
        if let Some(release) = &self.release {
            writeln!(out, "Linux {release}")?;
        }
        if let (Some(instructions), Some(time)) = (self.number("instructions"), self.number("nanoseconds")) {
            writeln!(out, "{instructions} instructions, {} s by the guest's clock", seconds(time))?;
        }
        self.unknown.iter().try_for_each(|why| writeln!(out, "({why})"))?;
        for (n, processor) in self.processors.iter().enumerate() {
            if self.processors.len() > 1 {
                writeln!(out, "\nprocessor {n}:")?;
            }
            processor.print(out)?;
        }
        let control: Vec<String> = self.control().map(|(name, value)| format!("{name} {value:#x}")).collect();
        if !control.is_empty() {
            writeln!(out, "\n{}", control.join("  "))?;
        }
        self.print_crash(out)?;
        match &self.log {
            Ok(log) => {
                let from = log.lines.len().saturating_sub(LAST);
                let more = if from > 0 {
                    format!(", the last {LAST} of {} lines (--log prints all)", log.lines.len())
                } else {
                    String::new()
                };
                writeln!(out, "\nlog{more}:")?;
                print_lines(out, &log.lines[from..])?;
                print_missing(out, log)
            }
            Err(why) => writeln!(out, "\nlog: {why}"),
        }
    }

    fn print_log(&self, out: &mut impl Write, log: &Log) -> io::Result<()> {
        print_lines(out, &log.lines)?;
        print_missing(out, log)
    }

    fn as_json(&self, path: &Path) -> Value {
        let log = self.log.as_ref();
        let control = self.control().map(|(name, value)| (name.to_owned(), hex(value)));
        let control: serde_json::Map<String, Value> = control.collect();
        let lines = |log: &Log| log.lines.iter().map(line_as_json).collect::<Vec<_>>();
        json!({
            "path": path,
            "kernel": self.release,
            "end": self.end(),
            "instructions": self.number("instructions"),
            "nanoseconds": self.number("nanoseconds"),
            "control": control,
            "processors": self.processors.iter().map(Processor::as_json).collect::<Vec<_>>(),
            "log": log.ok().map(lines),
            "log_replaced": log.ok().map(|log| log.replaced),
            "log_unread": log.ok().map(|log| log.unread),
            "log_unknown": log.err(),
            "unknown": self.unknown,
            "crash": self.crash.as_ref().map(CrashFound::as_json),
            "trail": self.trail.as_ref().map(|(trail, places)| shown_trail::as_json(trail, places)),
            "crumbs": self.crumbs,
            "damage": self.damage,
        })
    }
}

impl CrashFound {
    fn of(crashed: &Crashed, place: &impl Fn(u64) -> String) -> CrashFound {
        let rip = crashed.state.regs.rip;
        let raised = crashed.raised.map(|it| (it.vector, it.code, it.address));
        CrashFound {
            rip,
            place: place(rip),
            instructions: crashed.at.retired,
            raised: raised.ok_or_else(|| crashed.end.clone()),
        }
    }

    fn as_json(&self) -> Value {
        let raised = self.raised.as_ref().ok();
        json!({
            "rip": hex(self.rip),
            "place": self.place,
            "instructions": self.instructions,
            "vector": raised.map(|(vector, ..)| vector),
            "error_code": raised.map(|(_, code, _)| code),
            "address": raised.and_then(|(_, _, address)| *address).map(hex),
            "end": self.raised.as_ref().err(),
        })
    }
}

impl fmt::Display for CrashFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crashed at {:#018x} {}, {} instructions: ", self.rip, self.place, self.instructions)?;
        match &self.raised {
            Ok((vector, code, Some(address))) => {
                write!(f, "exception {vector}, error code {code:#x}, address {address:#x}")
            }
            Ok((vector, code, None)) => write!(f, "exception {vector}, error code {code:#x}"),
            Err(end) => f.write_str(end),
        }
    }
}

impl Processor {
    fn of(linux: Result<&Linux<'_>, &String>, number: usize, regs: Regs) -> Processor {
        let (task, trace) = match linux {
            Ok(linux) => (linux.task(number), linux.stack(&regs)),
            Err(why) => {
                let frames = vec![Frame { rip: regs.rip, rsp: regs.gpr[4], by: By::Registers }];
                (Err(why.clone()), Trace { frames, stopped: Some(why.clone()) })
            }
        };
        let symbols = linux.ok().and_then(|linux| linux.symbols().ok());
        let place = |frame: &Frame| {
            let place = symbols.and_then(|symbols| symbols.place(frame.lookup()));
            place.map_or_else(String::new, |place| named(&place, frame))
        };
        let places = trace.frames.iter().map(place).collect();
        Processor { regs, task, trace, places }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match &self.task {
            Ok(Task { id, process, name }) if id == process => writeln!(out, "task {id}: {name}")?,
            Ok(Task { id, process, name }) => writeln!(out, "task {id} of process {process}: {name}")?,
            Err(why) => writeln!(out, "task: not known ({why})")?,
        }
        let regs = &self.regs;
        writeln!(out, "\nrip {:#018x}  rflags {:#x}", regs.rip, regs.rflags)?;
        for row in 0..4 {
            let names = (row * 4..row * 4 + 4).map(|n| format!("{:3} {:#018x}", REGISTERS[n], regs.gpr[n]));
            writeln!(out, "{}", names.collect::<Vec<_>>().join("  "))?;
        }
        writeln!(out, "fs  {:#018x}  gs  {:#018x}", regs.fs_base, regs.gs_base)?;
        writeln!(out, "\nstack:")?;
        let is_likely = |frame: &Frame| frame.by == By::Likely;
        let sure = self.trace.frames.iter().position(is_likely).unwrap_or(self.trace.frames.len());
        for (n, (frame, place)) in self.trace.frames.iter().zip(&self.places).enumerate() {
            if n == sure {
                self.print_stopped(out, ": what looks like return addresses follows")?;
            }
            writeln!(out, "  #{n:<2} {:#018x} {place}{}", frame.rip, told(frame.by))?;
        }
        if sure == self.trace.frames.len() { self.print_stopped(out, "") } else { Ok(()) }
    }

    fn print_stopped(&self, out: &mut impl Write, behind: &str) -> io::Result<()> {
        self.trace.stopped.iter().try_for_each(|why| writeln!(out, "  ({why}{behind})"))
    }

    fn as_json(&self) -> Value {
        let regs = &self.regs;
        let mut registers: serde_json::Map<String, Value> =
            REGISTERS.iter().zip(regs.gpr).map(|(name, value)| ((*name).to_owned(), hex(value))).collect();
        for (name, value) in
            [("rip", regs.rip), ("rflags", regs.rflags), ("fs_base", regs.fs_base), ("gs_base", regs.gs_base)]
        {
            registers.insert(name.to_owned(), hex(value));
        }
        let frames = self.trace.frames.iter().zip(&self.places).map(|(frame, place)| {
            json!({
                "rip": hex(frame.rip), "rsp": hex(frame.rsp), "place": place,
                "likely": frame.by == By::Likely, "exception": frame.by == By::Saved,
            })
        });
        json!({
            "registers": registers,
            "task": self.task.as_ref().ok().map(|it| json!({ "id": it.id, "process": it.process, "name": it.name })),
            "task_unknown": self.task.as_ref().err(),
            "stack": frames.collect::<Vec<_>>(),
            "stack_stopped": self.trace.stopped,
        })
    }
}

/// The exits before the crash, one a line or as JSON.
pub(crate) fn show_crumbs(subject: &Subject, as_json: bool) -> Outcome {
    let path = &subject.path;
    let Some(crumbs) = &subject.crash.crumbs else {
        let why = subject.crash_damage.first().map_or("there are no crumbs in it", String::as_str);
        return Err(Failure::new(Code::Damaged, format!("core {}: {why}", path.display())));
    };
    let linux = subject.description.as_deref().and_then(|it| Linux::new(&*subject.memory, it).ok());
    let symbols = linux.as_ref().and_then(|linux| linux.symbols().ok());
    let place =
        |address: u64| symbols.and_then(|it| it.place(address)).as_ref().map(of_place).unwrap_or_default();
    if as_json {
        let entries = crumbs.entries.iter().map(|entry| crumbs::json(entry, &place(entry.crumb.rip)));
        print(format_args!("{}\n", json!({ "crumbs": entries.collect::<Vec<_>>() })))?;
        return Ok(ExitCode::SUCCESS);
    }
    for entry in &crumbs.entries {
        let line = crumbs::line(crumbs.origin, entry, &place(entry.crumb.rip));
        if print(format_args!("{line}\n"))? == Printed::Closed {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A place as the kernel prints it.
pub(super) fn of_place(place: &Place<'_>) -> String {
    let module = place.module.map(|module| format!(" [{module}]")).unwrap_or_default();
    format!("{}+{:#x}{module}", place.function, place.offset)
}

/// The function of a frame, as the kernel prints it: how far behind its beginning, and its module.
fn named(place: &Place<'_>, frame: &Frame) -> String {
    let offset = place.offset + (frame.rip - frame.lookup());
    let module = place.module.map(|module| format!(" [{module}]")).unwrap_or_default();
    format!("{}+{offset:#x}{module}", place.function)
}

const fn told(by: By) -> &'static str {
    match by {
        By::Registers | By::Tables => "",
        By::Saved => " (an exception or interrupt came here)",
        By::Likely => " (likely)",
    }
}

/// As dmesg prints it.
fn print_lines(out: &mut impl Write, lines: &[Line]) -> io::Result<()> {
    lines.iter().try_for_each(|line| {
        let microseconds = line.nanoseconds / 1000;
        let (seconds, rest) = (microseconds / 1_000_000, microseconds % 1_000_000);
        writeln!(out, "[{seconds:5}.{rest:06}] {}", line.text)
    })
}

fn print_missing(out: &mut impl Write, log: &Log) -> io::Result<()> {
    if log.replaced > 0 {
        writeln!(out, "({} older records were replaced by these)", log.replaced)?;
    }
    if log.unread > 0 {
        writeln!(out, "({} records cannot be read)", log.unread)?;
    }
    Ok(())
}

fn line_as_json(line: &Line) -> Value {
    json!({
        "sequence": line.sequence, "nanoseconds": line.nanoseconds, "level": line.level, "text": line.text,
    })
}
