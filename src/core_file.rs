//! `gretel core`: shows a core file.

use crate::Outcome;
use crate::crumbs;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::written;
use crate::sandbox;
use crate::shown_trail::{self, Format, FormatArgs};
use lbr::Trail;
use lbr::code::name_kinds;
use lbr::regular;
use serde_json::{Value, json};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use synth::program::{Program, SourceFrame};
use synth::report::fault::Cause;
use vmm::checkpoints::Shelf;
use vmm::dump::leaves_core;
use vmm::elfcore::unwind::{FoundBy, Frame, backtrace};
use vmm::elfcore::{AT_ENTRY, Core, CoreError, Module, signal_name};
use vmm::journal::{End, JournalError, Reader, Record};
use vmm::recording::Recording;

/// Show a core file: signal, registers, stack, last branches, mappings, where it came from
///
/// Takes a recording's folder (its `core`), or any x86-64 ELF core, also one that the Linux kernel wrote.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  gretel core gretel-prog-1
  gretel core --exe ./prog core.1234      a core that the kernel wrote, with the program it belongs to
  gretel core --json gretel-prog-1 | jq .signal
  gretel core --format perf-script gretel-prog-1     the last branches, as perf script -F brstack prints them

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
    #[command(flatten)]
    format: FormatArgs,
}

pub(crate) fn run(args: &Args) -> Outcome {
    sandbox::enter();
    if args.crumbs {
        return match args.format.get() {
            Format::PerfScript => Err(Failure::new(Code::Usage, "perf script has no form for crumbs")),
            format => crumbs::show(&args.input, args.exe.as_deref(), format == Format::Json),
        };
    }
    require_room(0)?;
    let opened = open(&args.input, args.exe.as_deref())?;
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

/// Says on stderr what the core lacks.
pub(crate) fn warn_of_damage(core: &Core) {
    for damage in &core.damage {
        say!("gretel: core {} is damaged: {damage}", core.path.display());
    }
}

/// The bytes of the core's memory at `address`, as many as follow one another; gives their number.
fn code(core: &Core, address: u64, bytes: &mut [u8]) -> usize {
    let known = (0..).map_while(|n| address.checked_add(n).and_then(|at| core.byte(at)));
    bytes.iter_mut().zip(known).map(|(to, byte)| *to = byte).count()
}

/// A core with its executable, where there is one, and the libraries that were loaded with it.
pub(crate) struct Opened {
    pub(crate) core: Core,
    pub(crate) executable: Option<(Vec<u8>, PathBuf)>,
    /// The bytes of each, and what was added to the addresses in it.
    libraries: Vec<(Vec<u8>, u64)>,
}

impl Opened {
    /// The size of the program and of the libraries.
    fn code_bytes(&self) -> usize {
        let program = self.executable.as_ref().map_or(0, |(bytes, _)| bytes.len());
        program + self.libraries.iter().map(|(bytes, _)| bytes.len()).sum::<usize>()
    }
}

/// Opens the core that the command line means.
pub(crate) fn open(input: &Path, exe: Option<&Path>) -> Result<Opened, Failure> {
    let is_dir = input.is_dir();
    let path = if is_dir { input.join("core") } else { input.to_owned() };
    if is_dir && !path.exists() {
        return Err(Failure::new(Code::Damaged, why_no_core(input)));
    }
    let damaged = |e: CoreError| Failure::new(Code::Damaged, e);
    let core = Core::open(&path).map_err(damaged)?;
    let Some(exe) = executable(&core, &path, exe)? else {
        return Ok(Opened { core, executable: None, libraries: Vec::new() });
    };
    let mut core = core.with_executable(&exe).map_err(damaged)?;
    let bytes = regular::read(&exe)
        .map_err(|e| Failure::new(Code::Damaged, format!("cannot read {}: {e}", exe.display())))?;
    let libraries = libraries(&mut core);
    Ok(Opened { core, executable: Some((bytes, exe)), libraries })
}

/// A core with fewer bytes of code that are not its program's is damaged; with more it is another program's.
const FEW: usize = 64;

/// The program that left the core: the one that was named, else the one beside it, else the one that the core names, since
/// a program that was started executed it.
fn executable(core: &Core, path: &Path, named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let damaged = |e: CoreError| Failure::new(Code::Damaged, e);
    if let Some(named) = named {
        let (differing, first) = core.differing_code(named).map_err(damaged)?;
        if differing >= FEW {
            let (core, named) = (path.display(), named.display());
            let why =
                format!("{named} is not the program that left {core}: {differing} bytes of its code differ");
            return Err(Failure::new(Code::Usage, why));
        }
        warn_of_code(path, named, differing, first);
        return Ok(Some(named.to_owned()));
    }
    let beside = path.with_file_name("program");
    let candidates = [Some(beside.as_path()), core.executable_path()];
    for candidate in candidates.into_iter().flatten().filter(|candidate| candidate.is_file()) {
        match core.differing_code(candidate) {
            Ok((differing, first)) if differing < FEW => {
                warn_of_code(path, candidate, differing, first);
                return Ok(Some(candidate.to_owned()));
            }
            Err(error) if candidate == beside => return Err(damaged(error)),
            _ => {}
        }
    }
    Ok(None)
}

/// Says that a part of the code is not as it is in the program's file.
fn warn_of_code(core: &Path, executable: &Path, differing: usize, first: Option<u64>) {
    if let Some(first) = first {
        say!(
            "gretel: core {} is damaged: {differing} bytes of code are not as in {}, the first at {first:#x}",
            core.display(),
            executable.display()
        );
    }
}

/// The libraries that were loaded, as far as their files are here; of the others it is said what that means.
fn libraries(core: &mut Core) -> Vec<(Vec<u8>, u64)> {
    let mut taken = Vec::new();
    for library in core.libraries() {
        let bias = core.take_library(&library).map_err(|error| error.to_string());
        let path = library.path.display();
        let read =
            |bias| Ok((regular::read(&library.path).map_err(|e| format!("cannot read {path}: {e}"))?, bias));
        match bias.and_then(read) {
            Ok(found) => taken.push(found),
            Err(why) => say!(
                "gretel: {why}; its code is left out: frames there have no names, and suffixes end there"
            ),
        }
    }
    taken
}

/// Why there is no core in this folder, and what to do about it.
fn why_no_core(dir: &Path) -> String {
    let shown = dir.display();
    let end = Recording::open(dir).map_err(|e| e.to_string()).and_then(|recording| {
        let read = |e: JournalError| e.to_string();
        let shelf = Shelf::open(&recording).map_err(|e| e.to_string())?;
        let mut journal = Reader::open_all(shelf.journals()).map_err(read)?;
        while let Some(record) = journal.take().map_err(read)? {
            if let Record::End(end) = record {
                return Ok(Some(end));
            }
        }
        Ok(None)
    });
    let why = match end {
        Err(why) => return why,
        Ok(None) => format!(
            "its journal has no end, since the recorder was stopped before the program ended; `gretel replay {shown}` \
             runs what there is"
        ),
        Ok(Some(End::Exited(_))) => "the recorded program did not crash".to_owned(),
        Ok(Some(End::Interrupted)) => "the recorded program did not crash, it was interrupted".to_owned(),
        Ok(Some(End::Stopped)) => {
            "the recorded program did not crash, the recorder could not go on and said why".to_owned()
        }
        Ok(Some(End::Full)) => "the recording ended at its room on disk, before the program did".to_owned(),
        Ok(Some(End::Killed(death))) => {
            let signal = signal_name(death.signal).unwrap_or("a signal");
            if leaves_core(&death) {
                format!(
                    "the recorded program crashed with {signal}, but its core was not written, or is lost: record it \
                     again, where there is room"
                )
            } else {
                format!("the recorded program did not crash, it was ended by {signal}")
            }
        }
    };
    format!("{shown} has no core: {why}")
}

/// What the core and the executable say together.
struct Found {
    frames: Vec<NamedFrame>,
    /// The place of each of the core's threads.
    threads: Vec<String>,
    /// Why the stack is not longer, or why there is none.
    stopped: Option<String>,
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

/// The function that a frame on the stack belongs to, behind those that were inlined in it.
fn named(program: &Program, frame: Frame) -> Vec<NamedFrame> {
    let lookup = frame.lookup_address();
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
        let threads = self.core.threads.iter().map(|(_, regs)| place(known, regs.rip)).collect();
        let (frames, branches) = (Vec::new(), Vec::new());
        let mut found = Found { frames, threads, stopped: None, trail, branches, crumbs };
        let records = found.trail.iter().flat_map(|t| &t.records);
        found.branches = records.map(|r| (place(known, r.from), place(known, r.to))).collect();
        match (&program, &self.executable) {
            (Ok((program, bias)), Some((bytes, _))) => {
                let trace = backtrace(&self.core, &self.modules(bytes, *bias));
                found.frames = trace.frames.iter().flat_map(|frame| named(program, *frame)).collect();
                found.stopped = trace.stopped;
            }
            (Err(why), _) => found.stopped = Some(why.clone()),
            (Ok(_), None) => {}
        }
        found
    }

    /// The executable with its symbols, and where it was loaded; or why there is none.
    pub(crate) fn program(&self) -> Result<(Program, u64), String> {
        let Some((bytes, path)) = &self.executable else {
            return Err("no executable is known: give it with --exe PROG".to_owned());
        };
        let bias = self.core.aux(AT_ENTRY).map_or(Ok(0), |entry| Program::load_bias(bytes, entry));
        let program = |bias| {
            let modules = self.modules(bytes, bias);
            Ok((Program::from_modules(modules[0], &modules[1..])?, bias))
        };
        bias.and_then(program).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The executable, and behind it the libraries.
    fn modules<'a>(&'a self, executable: &'a [u8], bias: u64) -> Vec<Module<'a>> {
        let libraries = self.libraries.iter().map(|(bytes, bias)| Module { bytes, bias: *bias });
        std::iter::once(Module { bytes: executable, bias }).chain(libraries).collect()
    }
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
        |f| format!("{}+{:#x}", f.name, address.wrapping_sub(f.start)),
    )
}

fn line(at: Option<&SourceFrame>) -> String {
    match at.map(|at| (&at.file, at.line)) {
        Some((Some(file), Some(line))) => format!(" at {file}:{line}"),
        _ => String::new(),
    }
}

const REGISTERS: [&str; 16] = [
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
    writeln!(out, "\nrip {:#018x}  rflags {:#x}", regs.rip, regs.rflags)?;
    for row in 0..4 {
        let names = (row * 4..row * 4 + 4).map(|n| format!("{:3} {:#018x}", REGISTERS[n], regs.gpr[n]));
        writeln!(out, "{}", names.collect::<Vec<_>>().join("  "))?;
    }
    writeln!(out, "fs  {:#018x}  gs  {:#018x}", regs.fs_base, regs.gs_base)?;
    print_threads(&mut out, core, found)?;
    writeln!(out, "\nstack:")?;
    for (n, NamedFrame { frame, place, inlined }) in found.frames.iter().enumerate() {
        let inlined = if *inlined { " (inlined)" } else { "" };
        writeln!(out, "  #{n:<2} {:#018x} {place}{inlined}{}", frame.rip, guessed(frame.by))?;
    }
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
        let file = core.files.iter().find(|f| f.start <= s.start && s.start < f.end);
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

/// Where each thread is, if there are several.
fn print_threads(out: &mut impl Write, core: &Core, found: &Found) -> io::Result<()> {
    if core.threads.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\nthreads:")?;
    for (n, ((id, regs), place)) in core.threads.iter().zip(&found.threads).enumerate() {
        let crashed = if n == 0 { " (crashed)" } else { "" };
        writeln!(out, "  {id:<5} {:#018x} {place}{crashed}", regs.rip)?;
    }
    Ok(())
}

/// A frame that is not by the unwind tables says so.
fn guessed(by: FoundBy) -> &'static str {
    match by {
        FoundBy::Registers | FoundBy::Tables => "",
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
        json!({ "start": hex(s.start), "end": hex(s.end), "rights": s.rights.to_string(), "bytes": s.data.len() })
    });
    json!({
        "path": core.path,
        "process": { "pid": core.process.pid, "name": core.process.name, "arguments": core.process.arguments },
        "signal": {
            "number": core.signal.signo, "name": core.signal.name(), "code": core.signal.code,
            "address": hex(core.signal.address),
            "cause": Cause::of(core).map(|cause| cause.to_string()),
        },
        "registers": registers,
        "threads": core.threads.iter().map(|(id, regs)| {
            json!({ "id": id, "rip": hex(regs.rip), "rsp": hex(regs.gpr[4]), "fs_base": hex(regs.fs_base) })
        }).collect::<Vec<_>>(),
        "stack": found.frames.iter().map(|f| {
            let guessed = !guessed(f.frame.by).is_empty();
            json!({
                "rip": hex(f.frame.rip), "rsp": hex(f.frame.rsp), "place": f.place, "inlined": f.inlined,
                "guessed": guessed,
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
