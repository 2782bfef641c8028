//! The same over a synthesized execution: of a core alone, whose suffix is searched first, or of one that was kept.

use super::blamed::{self, There, Values};
use super::gave_up;
use super::question::{Expression, Question};
use super::shown::{Names, View};
use super::{Args, show};
use crate::Outcome;
use crate::core_file;
use crate::debug_files::DebugFiles;
use crate::exit::{Code, Failure};
use crate::kernel::{self, Source, Taken};
use crate::log::say;
use crate::opened;
use crate::overflow::Overflow;
use crate::sandbox;
use crate::shell;
use crate::symbols::Place;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use synth::program::Program;
use synth::report::slice::{Moment, Synthesized};
use synth::suffix::Suffix;
use vmm::elfcore::Core;
use vmm::recording::Recording;
use vmm::slice::{Byte, Follow, slice};

impl Names for Program {
    fn place(&self, address: u64) -> Option<Place> {
        Place::of_program(self, address)
    }
}

pub(super) fn run(args: &Args) -> Outcome {
    let suffix = match &args.suffix {
        Some(path) => Suffix::load(path).map_err(|e| Failure::new(Code::Damaged, e))?,
        None => {
            say_of_recording(args);
            match synthesized(args)? {
                Ok(suffix) => suffix,
                Err(code) => return Ok(code),
            }
        }
    };
    if !suffix.signals.is_empty() {
        // What the kernel keeps of the registers in the frame, and gives back, is not followed.
        return Err(Failure::new(
            Code::Usage,
            "a signal comes in this suffix, and values are not followed through its frame; `gretel synth --instructions` makes a \
             shorter one",
        ));
    }
    let crashed = crashed(args)?;
    let (core, program) = (&crashed.core, &crashed.program);
    let mut history = Synthesized::new(core, &suffix).map_err(|error| {
        Failure::new(
            Code::Damaged,
            format!("the suffix does not run: {error}; `gretel verify` says whose it is"),
        )
    })?;
    let question = question(args, &history, &crashed)?;
    let follow = Follow { addresses: args.addresses, conditions: args.conditions };
    let (at, place) = (question.at, question.place);
    let answer = slice(&mut history, (at, place), &question.bytes, follow, args.steps, &mut |_, _| {});
    let Ok(answer) = answer;
    let places: Vec<_> = answer.nodes.iter().map(|node| program.place(node.writer.rip)).collect();
    let view = View {
        question: &question,
        slice: &answer,
        names: program,
        places: &places,
        is_sure: &|at| history.is_forced(at),
        callers: &BTreeMap::new(),
    };
    show(args, &view)?;
    Ok(ExitCode::SUCCESS)
}

/// What the suffix ends in.
pub(super) struct Crashed {
    pub(super) core: Core,
    pub(super) program: Program,
    /// The crash is a stack overflow.
    overflow: Option<Overflow>,
    /// Of Linux, where it stands, and the calls around that: addresses in these instructions, the innermost first.
    pub(super) calls: Vec<u64>,
}

fn crashed(args: &Args) -> Result<Crashed, Failure> {
    let mut debug_files = DebugFiles::new();
    sandbox::enter();
    if let Some(source) = Source::of(&args.input) {
        let Taken { core, program, calls, .. } = Taken::of(&source, args.exe.as_deref())?;
        return Ok(Crashed { core, program, overflow: None, calls });
    }
    let opened = opened::open(&args.input, args.exe.as_deref(), &mut debug_files)?;
    opened::warn_of_damage(&opened.core);
    let (program, bias) = opened.program().map_err(|why| Failure::new(Code::Damaged, why))?;
    let overflow = core_file::overflow_of(&opened, (&program, bias));
    Ok(Crashed { core: opened.core, program, overflow, calls: Vec::new() })
}

/// What is asked for, at the crash.
fn question(args: &Args, history: &Synthesized<'_>, crashed: &Crashed) -> Result<Question<Moment>, Failure> {
    let Crashed { core, program, overflow, .. } = crashed;
    let (at, place) = history.crash();
    let of_each = |bytes: BTreeSet<Byte>, words: Vec<String>| Question { at, place, bytes, words };
    let of = |bytes: BTreeSet<Byte>, words: String| of_each(bytes, vec![words]);
    match &args.of {
        Some(Expression::Register { name, bytes }) => {
            Ok(of(bytes.iter().copied().collect(), format!("{name} at the crash")))
        }
        Some(Expression::Memory { address, len }) => {
            let bytes = Byte::memory(*address, *len).collect();
            Ok(of(bytes, format!("{len} bytes at {address:#x} at the crash")))
        }
        Some(Expression::Source(text)) => Err(Failure::new(
            Code::Usage,
            format!(
                "`{text}` is looked up in a recording only: of a suffix say a register, or memory as ADDRESS:LENGTH (gdb has the \
                 address: `print &{text}`)"
            ),
        )),
        Some(Expression::Pointer) => {
            Err(Failure::new(Code::Usage, "of a suffix it is not known who went there: ask a recording"))
        }
        None => {
            let Some(blame) = history.blame() else {
                return gave_up::question(crashed, history, &args.input);
            };
            let place_of =
                |at: u64| program.place(at).map_or_else(|| format!("{at:#x}"), |it| it.to_string());
            let values = Values::of(&blame.bytes, &in_core(core, &blame.bytes));
            let instruction = &blame.instruction;
            let sentence = match blame.address.filter(|_| blame.jumped) {
                Some(address) => blamed::went(instruction, address, &place_of(instruction.ip()), &values),
                None => blamed::faulted(instruction, blame.address, &There::Unknown, &values),
            };
            let mut words = vec![format!("it crashed at {}", place_of(core.state.regs.rip)), sentence];
            words.extend(overflow.as_ref().map(ToString::to_string));
            words.extend(guarded(core));
            Ok(Question { at: blame.at, ..of_each(blame.bytes, words) })
        }
    }
}

/// That a kernel could not use memory which is there, since it is a program's.
fn guarded(core: &Core) -> Option<String> {
    const PAGE_FAULT: u8 = 14;
    const PRESENT: u32 = 1;
    const WRITE: u32 = 1 << 1;
    const SMAP: u64 = 1 << 21;
    let machine = core.machine.as_ref().filter(|machine| machine.registers.cr4 & SMAP != 0)?;
    let raised = machine.raised.filter(|raised| raised.vector == PAGE_FAULT && raised.privilege == 0)?;
    let rights = core.segment(raised.address?)?.rights;
    // What its tables allow, and SMAP alone forbids.
    let is_allowed = if raised.code & WRITE == 0 { rights.read } else { rights.write };
    (raised.code & !WRITE == PRESENT && is_allowed).then(|| {
        "the page is there, and is a program's: under SMAP the kernel reaches it by its own functions alone"
            .to_owned()
    })
}

/// What these bytes are in a core, of general registers and memory.
fn in_core(core: &Core, bytes: &BTreeSet<Byte>) -> BTreeMap<Byte, u8> {
    let value = |byte: Byte| match byte {
        Byte::General(r, n) => {
            Some(core.state.regs.gpr[usize::from(r & 15)].to_le_bytes()[usize::from(n & 7)])
        }
        Byte::Memory(at) => core.byte(at),
        _ => None,
    };
    bytes.iter().filter_map(|byte| Some((*byte, value(*byte)?))).collect()
}

/// Of a core that a recording has left: that the recording knows more.
fn say_of_recording(args: &Args) {
    let Some(dir) = args.input.parent().filter(|_| args.input.is_file()) else { return };
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    if !Recording::open(dir).is_ok_and(|it| !kernel::is_one(&it)) {
        return;
    }
    let name = args.input.file_name().and_then(|name| name.to_str());
    let pid = name.and_then(|name| name.strip_prefix("core.")?.parse::<i32>().ok());
    let pid = pid.map(|pid| format!(" --pid {pid}")).unwrap_or_default();
    say!(
        "gretel: this goes over a suffix of the core, one possibility; `gretel why {}{pid}` goes over what was recorded",
        shell::word(dir)
    );
}

/// A suffix of the core, by gretel's own search; else the exit code of a search that could not be made and has said why.
fn synthesized(args: &Args) -> Result<Result<Suffix, ExitCode>, Failure> {
    let failed = |what: &str, error: std::io::Error| Failure::new(Code::Host, format!("{what}: {error}"));
    let dir = tempfile::tempdir().map_err(|e| failed("there is no place for a suffix", e))?;
    let kept = dir.path().join("suffix.json");
    let this = std::env::current_exe().map_err(|e| failed("where gretel is", e))?;
    let mut search = Command::new(this);
    search.arg("synth").arg("-o").arg(&kept).arg(&args.input).stdin(Stdio::null()).stdout(Stdio::null());
    if let Some(exe) = &args.exe {
        search.arg("--exe").arg(exe);
    }
    let status = search.status().map_err(|e| failed("gretel cannot be started again", e))?;
    let searched = [0, 1, 2].map(Some).contains(&status.code());
    if let Some(code) = status.code().and_then(|code| u8::try_from(code).ok()).filter(|_| !searched) {
        return Ok(Err(code.into()));
    }
    if !status.success() {
        let why = "there is no certified suffix to go back over; `gretel synth --explain` says why";
        return Err(Failure::new(Code::Other, why));
    }
    Suffix::load(&kept).map(Ok).map_err(|e| Failure::new(Code::Damaged, e))
}
