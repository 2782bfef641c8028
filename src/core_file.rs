//! `gretel core`: shows a core file.

use crate::Outcome;
use crate::abort_message;
use crate::crumbs;
use crate::debug_files::DebugFiles;
use crate::exit::{Code, Failure};
use crate::folded_stack::{Part, fold};
use crate::kernel;
use crate::log::say;
use crate::opened::{Opened, open, warn_of_damage};
use crate::output::written;
use crate::overflow::{self, Overflow};
use crate::sandbox;
use crate::shown_trail::{self, Format, FormatArgs};
use lbr::Trail;
use lbr::code::name_kinds;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use synth::program::{Program, SourceFrame, demangled, readable};
use synth::report::fault::Cause;
use vmm::elfcore::unwind::{FoundBy, Frame, backtrace, backtrace_of};
use vmm::elfcore::{Core, FileMapping, Module};

/// Show a core file: signal, registers, stack, last branches, mappings, where it came from
///
/// Takes a recording's folder (its `core`), or any x86-64 ELF core, also one that the Linux kernel or gdb (`gcore`)
/// wrote. Of a kernel's core (docs/kernel.md): the processor, the task that it ran, who called whom, and the kernel's
/// log.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel core gretel-prog-1
  gretel core --exe ./prog core.1234      a core that the kernel wrote, with the program it belongs to
  gretel core --json gretel-prog-1 | jq .signal
  gretel core --format perf-script gretel-prog-1     the last branches, as perf script -F brstack prints them
  gretel core --log gretel-kernel-1       the log of a kernel that panicked

A core holds the program's memory: treat it as a secret.")]
pub(crate) struct Args {
    /// A recording's folder, or a core file
    #[arg(value_name = "DIR|CORE")]
    input: PathBuf,
    /// The executable, for the pages that the kernel leaves out of its cores (default: DIR/program)
    #[arg(long, value_name = "PROG")]
    exe: Option<PathBuf>,
    /// Print the crumbs instead: one line for each of the newest exits. Of a recording's folder also without a core, and
    /// while it is recorded
    #[arg(long)]
    crumbs: bool,
    /// Of a kernel's core: print its log alone, all of it
    #[arg(long, conflicts_with_all = ["exe", "crumbs", "format"])]
    log: bool,
    /// Of a machine's recording: show the kernel where so many instructions have retired, or at the `end`, also without a core
    #[arg(long, value_name = "N|end", conflicts_with_all = ["exe", "crumbs"])]
    at: Option<kernel::At>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let mut debug_files = DebugFiles::new();
    sandbox::enter();
    if let Some(subject) = kernel::Subject::of(&args.input, args.at)? {
        if args.crumbs {
            return match args.format.get() {
                Format::PerfScript => Err(no_form_for_crumbs()),
                format => kernel::show_crumbs(&subject, format == Format::Json),
            };
        }
        return kernel::show_core(&subject, args.exe.as_deref(), args.log, args.format.get());
    }
    if args.log {
        return Err(Failure::new(Code::Usage, "--log is for the core of a kernel; this is a program's"));
    }
    if args.crumbs {
        return match args.format.get() {
            Format::PerfScript => Err(no_form_for_crumbs()),
            format => {
                crumbs::show(&args.input, args.exe.as_deref(), format == Format::Json, &mut debug_files)
            }
        };
    }
    require_room(0)?;
    let opened = open(&args.input, args.exe.as_deref(), &mut debug_files)?;
    require_room(opened.code_bytes())?;
    let core = &opened.core;
    warn_of_damage(core);
    let mut trail = core.trail().unwrap_or_else(|error| {
        say!("gretel: core {}: {error}", core.path.display());
        None
    });
    trail.iter_mut().for_each(|trail| name_kinds(trail, |address, bytes| code(core, address, bytes)));
    let crumbs = core.crumbs().unwrap_or_else(|error| {
        say!("gretel: core {}: {error}", core.path.display());
        None
    });
    let found = opened.found(trail, crumbs.map_or(0, |crumbs| crumbs.entries.len()));
    let shown = match (args.format.get(), &found.trail) {
        (Format::Text, _) => print(core, &found),
        (Format::Json, _) => writeln!(io::stdout(), "{}", as_json(core, &found)),
        (Format::PerfScript, Some(trail)) => writeln!(io::stdout(), "{}", shown_trail::perf_script(trail)),
        (Format::PerfScript, None) => {
            return Err(Failure::new(Code::Usage, "the core has no branch records"));
        }
    };
    written(shown)?;
    Ok(if core.damage.is_empty() { ExitCode::SUCCESS } else { Code::Damaged.into() })
}

fn no_form_for_crumbs() -> Failure {
    Failure::new(Code::Usage, "perf script has no form for crumbs")
}

/// Memory that showing a core takes at most: for itself, and for each byte of a file with symbols and line tables.
const ROOM: usize = 64 << 20;
const ROOM_FOR_CODE: usize = 8;

/// Whether there is memory to read `code` bytes of programs and libraries: to be told of it in the middle is to be
/// aborted.
fn require_room(code: usize) -> Result<(), Failure> {
    let bytes = ROOM.saturating_add(code.saturating_mul(ROOM_FOR_CODE));
    Vec::<u8>::new().try_reserve_exact(bytes).map_err(|_| {
        let limited = "raise the limit with `ulimit -v unlimited`";
        Failure::new(Code::Host, format!("cannot get {} MiB of memory: {limited}", bytes >> 20))
    })
}

/// The bytes of the core's memory at `address`, as many as follow one another; gives their number.
fn code(core: &Core, address: u64, bytes: &mut [u8]) -> usize {
    let known = (0..).map_while(|n| address.checked_add(n).and_then(|at| core.byte(at)));
    bytes.iter_mut().zip(known).map(|(to, byte)| *to = byte).count()
}

/// What the core and the executable say together.
struct Found {
    frames: Vec<NamedFrame>,
    /// The place of each of the core's threads.
    threads: Vec<String>,
    /// Why the stack is not longer, or why there is none.
    stopped: Option<String>,
    /// Whether the stack was full.
    overflow: Option<Overflow>,
    /// What the C library said before it aborted.
    abort_message: Option<String>,
    trail: Option<Trail>,
    /// The two places of each record of the trail.
    branches: Vec<(String, String)>,
    /// How many crumbs there are.
    crumbs: usize,
}

/// A frame as people see it: a function that was inlined has one of its own, as in gdb.
struct NamedFrame {
    frame: Frame,
    place: String,
    /// Whether it shares the frame on the stack with the one behind it.
    inlined: bool,
}

impl NamedFrame {
    /// The function alone.
    fn function(&self) -> &str {
        let function = self.place.split_once(" at ").map_or(self.place.as_str(), |(function, _)| function);
        function.rsplit_once("+0x").map_or(function, |(name, _)| name)
    }
}

/// The function that a frame on the stack belongs to, behind those that were inlined in it.
fn named(program: &Program, frame: Frame, caller: Option<&Frame>) -> Vec<NamedFrame> {
    // The kernel made the handler return to the beginning of this function, which nobody called.
    let is_restorer = caller.is_some_and(|caller| caller.by == FoundBy::Signal);
    let lookup = if is_restorer { frame.rip } else { frame.lookup_address() };
    let source = program.source_frames(lookup);
    let (outer, inlined) = source.split_last().map_or((None, &[][..]), |(outer, rest)| (Some(outer), rest));
    let name = |at: &SourceFrame| at.function.clone().unwrap_or_else(|| "(no name)".to_owned());
    let inlined = inlined.iter().map(|at| (format!("{}{}", name(at), line(Some(at))), true));
    let outer = format!("{}{}", function(program, frame.rip, lookup), line(outer));
    inlined.chain([(outer, false)]).map(|(place, inlined)| NamedFrame { frame, place, inlined }).collect()
}

impl Opened {
    fn found(&self, trail: Option<Trail>, crumbs: usize) -> Found {
        let program = self.program();
        let known = program.as_ref().ok().map(|(program, _)| program);
        let threads = self.core.threads.iter().map(|(_, state)| place(known, state.regs.rip)).collect();
        let (frames, branches) = (Vec::new(), Vec::new());
        let (stopped, overflow, abort_message) = (None, None, None);
        let mut found = Found { frames, threads, stopped, overflow, abort_message, trail, branches, crumbs };
        let records = found.trail.iter().flat_map(|t| &t.records);
        found.branches = records.map(|r| (place(known, r.from), place(known, r.to))).collect();
        match (&program, &self.executable) {
            (Ok((program, bias)), Some((bytes, _))) => {
                let modules = self.modules(bytes, *bias);
                let trace = backtrace(&self.core, &modules);
                found.overflow = overflowed(&self.core, &modules, program);
                found.abort_message = said_before_abort(&self.core, &modules);
                let after = trace.frames.iter().skip(1).map(Some).chain([None]);
                let frames = trace.frames.iter().zip(after);
                found.frames = frames.flat_map(|(frame, caller)| named(program, *frame, caller)).collect();
                found.stopped = trace.stopped;
            }
            (Err(why), _) => found.stopped = Some(why.clone()),
            (Ok(_), None) => {}
        }
        found
    }
}

/// What a C library among these said before it aborted, if it did.
fn said_before_abort(core: &Core, modules: &[Module<'_>]) -> Option<String> {
    let pointer =
        |module: &Module<'_>| abort_message::pointer(module.bytes).map(|at| at.wrapping_add(module.bias));
    let text = |pointer| abort_message::text(pointer, &|at, out| core.read(at, out));
    (core.signal.signo == libc::SIGABRT).then(|| modules.iter().filter_map(pointer).find_map(text)).flatten()
}

/// Whether the crash is a stack overflow.
fn overflowed(core: &Core, modules: &[Module<'_>], program: &Program) -> Option<Overflow> {
    let Some(Cause::Unusable(at)) = Cause::of(core) else { return None };
    let mapped: Vec<_> = core.segments.iter().map(|it| (it.start..it.end, it.rights)).collect();
    let candidate = overflow::Candidate::of(at, core.state.regs.gpr[4], &mapped)?;
    let name = |at: u64| program.function_at(at).map(|it| demangled(&it.name).into_owned());
    candidate.confirmed(&backtrace_of(core, modules, overflow::MOST_FRAMES), &name)
}

/// The same of a core that was opened, with its program and where that was loaded ([`Opened::program`]).
pub(crate) fn overflow_of(opened: &Opened, (program, bias): (&Program, u64)) -> Option<Overflow> {
    let (bytes, _) = opened.executable.as_ref()?;
    overflowed(&opened.core, &opened.modules(bytes, bias), program)
}

/// Function with offset, and source line, as far as they are known.
pub(crate) fn place(program: Option<&Program>, address: u64) -> String {
    program.map_or_else(String::new, |program| {
        let line = line(program.source_frames(address).first());
        format!("{}{line}", function(program, address, address))
    })
}

/// The same of a call, by its return address.
pub(crate) fn place_of_call(program: &Program, address: u64) -> String {
    let lookup = address.wrapping_sub(1);
    format!("{}{}", function(program, address, lookup), line(program.source_frames(lookup).first()))
}

/// The function of `lookup`, with the offset of `address` in it.
fn function(program: &Program, address: u64, lookup: u64) -> String {
    program.function_at(lookup).map_or_else(
        || "(not code of the program)".to_owned(),
        |f| format!("{}+{:#x}", readable(&f.name), address.wrapping_sub(f.start)),
    )
}

fn line(at: Option<&SourceFrame>) -> String {
    match at.map(|at| (&at.file, at.line)) {
        Some((Some(file), Some(line))) => format!(" at {file}:{line}"),
        _ => String::new(),
    }
}

pub(crate) const REGISTERS: [&str; 16] = [
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
    "r15",
];

fn print(core: &Core, found: &Found) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (signal, regs) = (core.signal, &core.state.regs);
    writeln!(out, "{} (pid {}): {}", core.process.name, core.process.pid, core.process.arguments)?;
    writeln!(out, "{} code {} address {:#x}", signal.name(), signal.code, signal.address)?;
    if let Some(cause) = Cause::of(core) {
        writeln!(out, "  {cause}")?;
    }
    if core.signal.is_stop() {
        writeln!(out, "  it did not crash: it was stopped to make the core, as gdb's gcore does")?;
    }
    if let Some(overflow) = &found.overflow {
        writeln!(out, "  {overflow}")?;
    }
    if let Some(text) = &found.abort_message {
        writeln!(out, "  libc said: {text}")?;
    }
    writeln!(out, "\nrip {:#018x}  rflags {:#x}", regs.rip, regs.rflags)?;
    for row in 0..4 {
        let names = (row * 4..row * 4 + 4).map(|n| format!("{:3} {:#018x}", REGISTERS[n], regs.gpr[n]));
        writeln!(out, "{}", names.collect::<Vec<_>>().join("  "))?;
    }
    writeln!(out, "fs  {:#018x}  gs  {:#018x}", regs.fs_base, regs.gs_base)?;
    print_threads(&mut out, core, found)?;
    writeln!(out, "\nstack:")?;
    print_stack(&mut out, &found.frames)?;
    if let Some(why) = &found.stopped {
        writeln!(out, "  ({why})")?;
    }
    writeln!(out)?;
    match &found.trail {
        Some(trail) => shown_trail::print(&mut out, trail, &found.branches)?,
        None => writeln!(out, "last branches: none in this core")?,
    }
    if found.crumbs > 0 {
        writeln!(out, "\ncrumbs: the last {} exits (--crumbs shows them)", found.crumbs)?;
    }
    writeln!(out, "\nmappings:")?;
    for s in &core.segments {
        let file = file_of(core, s.start);
        let dumped = if s.data.is_empty() { " (not in the core)" } else { "" };
        writeln!(
            out,
            "  {:#014x}-{:#014x} {} {}{dumped}",
            s.start,
            s.end,
            s.rights,
            file.map_or("", |f| &f.path)
        )?;
    }
    if let Some(origin) = &core.origin {
        writeln!(out, "\nmade by gretel:")?;
        origin.lines().try_for_each(|line| writeln!(out, "  {line}"))?;
    }
    Ok(())
}

/// The frames, with recursion folded.
fn print_stack(out: &mut impl Write, frames: &[NamedFrame]) -> io::Result<()> {
    let line = |it: &NamedFrame| {
        let inlined = if it.inlined { " (inlined)" } else { "" };
        format!("{:#018x} {}{inlined}{}", it.frame.rip, it.place, guessed(it.frame.by))
    };
    let lines: Vec<String> = frames.iter().map(line).collect();
    for part in fold(&lines) {
        match part {
            Part::Frame(n) => writeln!(out, "  #{n:<2} {}", lines[n])?,
            Part::Repeated { first, count, period } => {
                let mut names: Vec<_> =
                    frames[first..first + period].iter().map(NamedFrame::function).collect();
                let last = names.pop().unwrap_or_default();
                let others =
                    if names.is_empty() { String::new() } else { format!("{} and ", names.join(", ")) };
                writeln!(out, "  ... {count} more frames of {others}{last}")?;
            }
        }
    }
    Ok(())
}

/// The file that is mapped at an address.
fn file_of(core: &Core, address: u64) -> Option<&FileMapping> {
    core.files.iter().find(|file| (file.start..file.end).contains(&address))
}

/// Where each thread is, if there are several.
fn print_threads(out: &mut impl Write, core: &Core, found: &Found) -> io::Result<()> {
    if core.threads.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\nthreads:")?;
    for (n, ((id, state), place)) in core.threads.iter().zip(&found.threads).enumerate() {
        let crashed = match (n, core.signal.is_stop()) {
            (0, false) => " (crashed)",
            (0, true) => " (stopped here)",
            _ => "",
        };
        writeln!(out, "  {id:<5} {:#018x} {place}{crashed}", state.regs.rip)?;
    }
    Ok(())
}

/// A frame that is not by the unwind tables says so, as does one that a signal interrupted.
fn guessed(by: FoundBy) -> &'static str {
    match by {
        FoundBy::Registers | FoundBy::Tables => "",
        FoundBy::Signal => " (a signal came here)",
        FoundBy::TopOfStack => " (guessed from the top of the stack)",
        FoundBy::FramePointer => " (guessed from the frame pointer)",
    }
}

fn as_json(core: &Core, found: &Found) -> Value {
    let regs = &core.state.regs;
    let mut registers: serde_json::Map<String, Value> =
        REGISTERS.iter().zip(regs.gpr).map(|(name, value)| ((*name).to_owned(), hex(value))).collect();
    for (name, value) in
        [("rip", regs.rip), ("rflags", regs.rflags), ("fs_base", regs.fs_base), ("gs_base", regs.gs_base)]
    {
        registers.insert(name.to_owned(), hex(value));
    }
    let segments = core.segments.iter().map(|s| {
        json!({
            "start": hex(s.start), "end": hex(s.end), "rights": s.rights.to_string(), "bytes": s.data.len(),
            "file": file_of(core, s.start).map(|file| &file.path),
            "offset": file_of(core, s.start).map(|file| hex(file.offset + (s.start - file.start))),
        })
    });
    json!({
        "path": core.path,
        "process": { "pid": core.process.pid, "name": core.process.name, "arguments": core.process.arguments },
        "signal": {
            "number": core.signal.signo, "name": core.signal.name(), "code": core.signal.code,
            "address": hex(core.signal.address),
            "cause": Cause::of(core).map(|cause| cause.to_string()),
            "abort_message": found.abort_message,
            "stack_overflow": found.overflow.as_ref().map(ToString::to_string),
        },
        "registers": registers,
        "threads": core.threads.iter().zip(&found.threads).map(|((id, state), place)| {
            let regs = &state.regs;
            json!({
                "id": id, "rip": hex(regs.rip), "rsp": hex(regs.gpr[4]), "fs_base": hex(regs.fs_base),
                "place": place,
            })
        }).collect::<Vec<_>>(),
        "stack": found.frames.iter().map(|f| {
            let guessed = matches!(f.frame.by, FoundBy::TopOfStack | FoundBy::FramePointer);
            json!({
                "rip": hex(f.frame.rip), "rsp": hex(f.frame.rsp), "place": f.place, "inlined": f.inlined,
                "guessed": guessed, "signal": f.frame.by == FoundBy::Signal,
            })
        }).collect::<Vec<_>>(),
        "stack_stopped": found.stopped,
        "trail": found.trail.as_ref().map(|trail| shown_trail::as_json(trail, &found.branches)),
        "counters": core.counters.map(|c| json!({
            "instructions": c.instructions, "taken_branches": c.taken_branches,
            "conditional_branches": c.conditional_branches,
        })),
        "crumbs": found.crumbs,
        "mappings": segments.collect::<Vec<_>>(),
        "origin": core.origin,
        "damage": core.damage.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

/// An address or register: JSON numbers lose bits above 2^53 in many readers.
pub(crate) fn hex(value: u64) -> Value {
    Value::String(format!("{value:#x}"))
}
