//! What `gretel why` is asked for: bytes at a position, and in words what they are.

use super::blamed::{self, There, Values};
use crate::exit::{Code, Failure};
use crate::overflow::{self, Overflow};
use crate::replay::failure;
use crate::symbols::Symbols;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use std::collections::BTreeSet;
use std::ops::Range;
use std::str::FromStr;
use synth::program::demangled;
use synth::report::written;
use vmm::elfcore::signal_name;
use vmm::engine::lookout::Lookout;
use vmm::memory::MappingInfo;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::signal::{Death, SI_KERNEL};
use vmm::slice::fault::Blame;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Byte, Follow, History, Place, slice};
use vmm::travel::Stop;
use x86::op::Gpr;

/// What a user asks for by name.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// Bytes of a register.
    Register(Vec<Byte>),
    /// The instruction pointer.
    Pointer,
    /// Bytes of memory.
    Memory {
        /// The first.
        address: u64,
        /// How many.
        len: u64,
    },
}

/// The most bytes that can be asked for.
const MOST: u64 = 4096;

impl FromStr for Expression {
    type Err = String;

    fn from_str(text: &str) -> Result<Expression, String> {
        let name = text.trim_start_matches(['$', '%']).to_ascii_lowercase();
        if name == "rip" || name == "pc" {
            return Ok(Expression::Pointer);
        }
        if let Some(bytes) = register(&name) {
            return Ok(Expression::Register(bytes));
        }
        let (address, len) = text.split_once(':').unwrap_or((text, "8"));
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        match (number(address), number(len)) {
            (Some(address), Some(len)) if (1..=MOST).contains(&len) => {
                Ok(Expression::Memory { address, len })
            }
            _ => Err(format!(
                "`{text}` is neither a register (rax, eax, xmm0, rip) nor memory (0x7fffffffe0a8:8, at most {MOST} bytes)"
            )),
        }
    }
}

/// The bytes of a register by its name.
fn register(name: &str) -> Option<Vec<Byte>> {
    let vector = |prefix: &str, bytes: u8| {
        let n = name.strip_prefix(prefix)?.parse::<u8>().ok().filter(|n| *n < 32)?;
        Some((0..bytes).map(|byte| Byte::Vector(n, byte)).collect())
    };
    if let Some(found) = vector("xmm", 16).or_else(|| vector("ymm", 32)).or_else(|| vector("zmm", 64)) {
        return Some(found);
    }
    if let Some(n) = name.strip_prefix('k').and_then(|n| n.parse::<u8>().ok()).filter(|n| *n < 8) {
        return Some((0..8).map(|byte| Byte::Mask(n, byte)).collect());
    }
    if name == "eflags" || name == "rflags" {
        return Some((0..6).map(Byte::Flag).collect());
    }
    (0..16).find_map(|n| {
        let full = Gpr::NAMES[usize::from(n)];
        let bytes = |range: std::ops::Range<u8>| range.map(|byte| Byte::General(n, byte)).collect();
        if name == full {
            return Some(bytes(0..8));
        }
        let stem = &full[1..];
        if n >= 8 {
            let part = name.strip_prefix(full)?;
            return match part {
                "d" => Some(bytes(0..4)),
                "w" => Some(bytes(0..2)),
                "b" => Some(bytes(0..1)),
                _ => None,
            };
        }
        let letter = stem.trim_end_matches('x');
        match name {
            _ if name == format!("e{stem}") => Some(bytes(0..4)),
            _ if name == stem => Some(bytes(0..2)),
            _ if name == format!("{letter}l") => Some(bytes(0..1)),
            _ if n < 4 && name == format!("{letter}h") => Some(bytes(1..2)),
            _ => None,
        }
    })
}

/// What is to be explained.
pub(crate) struct Question<At> {
    /// When.
    pub(crate) at: At,
    /// Whose.
    pub(crate) place: Place,
    /// What.
    pub(crate) bytes: BTreeSet<Byte>,
    /// In words, a line each.
    pub(crate) words: Vec<String>,
}

impl Question<Position> {
    /// What is asked for of a program that stands where it is to be explained.
    pub(crate) fn of(
        expression: Option<&Expression>,
        thread: Option<i32>,
        history: &mut Recorded<'_>,
        symbols: &Symbols,
    ) -> Result<Question<Position>, Failure> {
        let travel = history.travel();
        let (at, process) = (travel.position(), travel.process());
        let loaded = Place { pid: process.pid(), thread: process.thread() };
        let place = match thread {
            Some(thread) if thread != loaded.thread => {
                if !process.other_tasks().any(|(id, _)| id == thread) {
                    return Err(Failure::new(Code::Usage, format!("there is no task {thread} at {at}")));
                }
                let is_own = process.other_threads().any(|(id, _)| id == thread);
                Place { pid: if is_own { loaded.pid } else { thread }, thread }
            }
            _ => loaded,
        };
        let of = |bytes: Vec<Byte>, words: String| {
            let words = vec![words];
            Ok(Question { at, place, bytes: bytes.into_iter().collect(), words })
        };
        match expression {
            Some(Expression::Register(bytes)) => {
                let name = bytes[0].register().unwrap_or_default();
                of(bytes.clone(), format!("{name} of thread {} at {at}", place.thread))
            }
            Some(Expression::Memory { address, len }) => {
                let mut there = vec![0; usize::try_from(*len).unwrap_or(0)];
                if address.checked_add(*len).is_none() || !process.read_memory(*address, &mut there) {
                    let why =
                        format!("not all of {address:#x}:{len} is mapped in process {} at {at}", loaded.pid);
                    return Err(Failure::new(Code::Usage, why));
                }
                let bytes = Byte::memory(*address, *len).collect();
                of(bytes, format!("{len} bytes at {address:#x} of process {} at {at}", place.pid))
            }
            Some(Expression::Pointer) => {
                travel.step_back().map_err(failure)?;
                let blame = history.blame_branch(None).map_err(failure)?;
                let Some(blame) = blame else {
                    let hint = "the instruction before is no branch that anything told where to go";
                    return Err(Failure::new(Code::Usage, hint));
                };
                let values = blamed_values(&blame, history)?;
                Ok(went(&blame, &values, symbols))
            }
            None => crash(history, symbols),
        }
    }
}

fn place_of(symbols: &Symbols, address: u64) -> String {
    symbols.place(address).map_or_else(|| format!("{address:#x}"), |place| place.to_string())
}

/// Who told a branch where to go.
fn went(blame: &Blame, values: &Values, symbols: &Symbols) -> Question<Position> {
    let place = place_of(symbols, blame.instruction.ip());
    let words = match blame.address {
        Some(address) => blamed::went(&blame.instruction, address, &place, values),
        None => format!("`{}` at {place}", written(&blame.instruction)),
    };
    Question { at: blame.at, place: blame.place, bytes: blame.bytes.clone(), words: vec![words] }
}

/// What the bytes to blame were then.
fn blamed_values(blame: &Blame, history: &mut Recorded<'_>) -> Result<Values, Failure> {
    let known = history.values(blame.at, blame.place, &blame.bytes).map_err(failure)?;
    Ok(Values::of(&blame.bytes, &known))
}

/// What made the program crash that stands at its end.
fn crash(history: &mut Recorded<'_>, symbols: &Symbols) -> Result<Question<Position>, Failure> {
    let travel = history.travel();
    let process = travel.process();
    let Some(death) = process.death() else {
        let hint = "the program did not crash there: say with --of what is to be explained, as `--of rax`";
        return Err(Failure::new(Code::Usage, hint));
    };
    let signal = signal_name(death.signal).map_or_else(|| format!("signal {}", death.signal), str::to_owned);
    let rip = process.cpu().regs().rip;
    let head = format!("it crashed with {signal} at {}", place_of(symbols, rip));
    let mappings = process.mappings();
    let overflowed = overflowed(process, death, &mappings, symbols).map(|it| it.to_string());
    if let Some(blame) = history.blame().map_err(failure)? {
        let values = blamed_values(&blame, history)?;
        let mut question = went(&blame, &values, symbols);
        if !blame.jumped {
            let there = There::Mapped(&mappings);
            question.words = vec![blamed::faulted(&blame.instruction, blame.address, &there, &values)];
            question.words.extend(overflowed);
        }
        question.words.insert(0, head);
        return Ok(question);
    }
    decision(history, symbols, head)
}

/// Whether the crash is a stack overflow.
fn overflowed(
    process: &Process,
    death: Death,
    mappings: &[MappingInfo],
    symbols: &Symbols,
) -> Option<Overflow> {
    // Of a sender, or of the kernel, there is no address.
    if death.signal != libc::SIGSEGV || death.code <= 0 || death.code == SI_KERNEL {
        return None;
    }
    let mapped: Vec<_> = mappings.iter().map(|it| (it.start..it.end, it.rights)).collect();
    let candidate = overflow::Candidate::of(death.address, process.cpu().regs().gpr[4], &mapped)?;
    let trace = symbols.walk(process, process.thread(), overflow::MOST_FRAMES)?;
    let name =
        |at: u64| symbols.module_at(at)?.names().function_at(at).map(|it| demangled(&it.name).into_owned());
    candidate.confirmed(&trace, &name)
}

/// So many times the function's branches are looked at, the newest first.
const MOST_BRANCHES: usize = 1000;

/// What is called when a program gives up: by itself, or by its libraries for it.
const GIVING_UP: [&str; 17] = [
    "abort",
    "raise",
    "gsignal",
    "kill",
    "tgkill",
    "pthread_kill",
    "__pthread_kill_implementation",
    "__pthread_kill_internal",
    "__assert_fail",
    "__assert_fail_base",
    "__libc_message",
    "__fortify_fail",
    "__stack_chk_fail",
    "malloc_printerr",
    "rust_panic",
    "__cxa_throw",
    "__cxa_rethrow",
];

/// The same in C++, Rust and Go, by how their names begin.
const GIVING_UP_IN: [&str; 17] = [
    "std::terminate",
    "std::__throw_",
    "__cxxabiv1::",
    "__gnu_cxx::__verbose_terminate",
    "core::panicking::",
    "std::panicking::",
    "std::sys",
    "__rust",
    "runtime.crash",
    "runtime.dieFromSignal",
    "runtime.fatal",
    "runtime.gopanic",
    "runtime.goPanic",
    "runtime.panic",
    "runtime.raise",
    "runtime.sig",
    "runtime.throw",
];

/// Whether an address is in code that only carries out what was decided before: to give up.
fn gives_up(place: &crate::symbols::Place) -> bool {
    match place.function() {
        // `abort.cold` is a part of `abort`.
        Some(name) => {
            GIVING_UP.contains(&name.split('.').next().unwrap_or(name))
                || GIVING_UP_IN.iter().any(|prefix| name.starts_with(prefix))
        }
        None => place.is_library(),
    }
}

/// The last decision of the innermost function that did not only give up: what led to an abort.
fn decision(
    history: &mut Recorded<'_>,
    symbols: &Symbols,
    head: String,
) -> Result<Question<Position>, Failure> {
    let travel = history.travel();
    let process = travel.process();
    let thread = process.thread();
    let stack = symbols.backtrace(process, thread, 64);
    let own = stack.frames.iter().position(|(_, place)| !gives_up(place));
    let none = || {
        let hint = "and no value made it: say with --of what is to be explained";
        Failure::new(Code::Usage, format!("{head}, {hint}"))
    };
    let own = own.ok_or_else(none)?;
    let (frame, place) = &stack.frames[own];
    // The same call of the function has the stack between what it called and its caller; a call of itself has it below.
    let caller = stack.frames.get(own + 1).map_or(u64::MAX, |(caller, _)| caller.rsp);
    let function = symbols.function_at(frame.lookup_address()).ok_or_else(none)?;
    let at = deciding_branches(process, function);
    let (pid, lookout) = (process.pid(), Lookout { at, data: Vec::new() });
    travel.follow(pid);
    for _ in 0..MOST_BRANCHES {
        if lookout.is_empty() || !matches!(travel.backward(&lookout).map_err(failure)?, Stop::Breakpoint(_)) {
            break;
        }
        let rsp = travel.process().cpu().regs().gpr[usize::from(Gpr::RSP.0)];
        if travel.process().thread() == thread && (frame.rsp..caller).contains(&rsp) {
            let blame = history.blame_branch(None).map_err(failure)?.ok_or_else(none)?;
            let branch = place_of(symbols, blame.instruction.ip());
            let decided = format!(
                "the last decision before it, in {}: `{}` at {branch}",
                name(place),
                written(&blame.instruction)
            );
            if let Some(Looked { at, bytes }) = looked_up(history, &blame).map_err(failure)? {
                let known = history.values(at, blame.place, &bytes).map_err(failure)?;
                let decided =
                    format!("{decided}, by a table that was looked up with {}", Values::of(&bytes, &known));
                return Ok(Question { at, place: blame.place, bytes, words: vec![head.clone(), decided] });
            }
            let words = vec![head.clone(), decided];
            return Ok(Question { at: blame.at, place: blame.place, bytes: blame.bytes, words });
        }
    }
    Err(none())
}

/// What told which entry of a table was taken.
struct Looked {
    at: Position,
    bytes: BTreeSet<Byte>,
}

/// A jump table's target is made of constants: of an offset that a load took from it, and of where it lies. What chose among them is the
/// address of that load.
const FROM_TABLE: usize = 6;

/// Of a branch whose target comes from memory that cannot be written, what told where in it.
fn looked_up(history: &mut Recorded<'_>, blame: &Blame) -> Result<Option<Looked>, ReplayError> {
    if blame.instruction.flow_control() != FlowControl::IndirectBranch {
        return Ok(None);
    }
    let mappings = history.travel().process().mappings();
    let is_constant = |byte: &Byte| {
        let Byte::Memory(at) = byte else { return false };
        mappings.iter().any(|it| (it.start..it.end).contains(at) && !it.rights.write)
    };
    if blame.bytes.iter().all(is_constant) && !blame.looked_up_by.is_empty() {
        return Ok(Some(Looked { at: blame.at, bytes: blame.looked_up_by.clone() }));
    }
    let asked = (blame.at, blame.place);
    let made = slice(history, asked, &blame.bytes, Follow::default(), FROM_TABLE, &mut |_, _| {})?;
    Ok(made.nodes.into_iter().find_map(|node| {
        let origins = || node.writer.given.values().map(|(_, origin)| origin);
        let loads = origins().any(|it| !it.value.is_empty() && it.value.iter().all(is_constant));
        let bytes: BTreeSet<Byte> = origins().flat_map(|it| it.address.iter().copied()).collect();
        (loads && !bytes.is_empty()).then_some(Looked { at: node.writer.at, bytes })
    }))
}

fn name(place: &crate::symbols::Place) -> String {
    place.function().map_or_else(|| place.raw(), str::to_owned)
}

/// The branches of a function that decide, by address: conditional ones, and those to where a table says.
fn deciding_branches(process: &Process, function: Range<u64>) -> Vec<u64> {
    let len = usize::try_from(function.end - function.start).unwrap_or(0);
    let mut code = vec![0; len];
    if !process.read_memory(function.start, &mut code) {
        return Vec::new();
    }
    let decoder = Decoder::with_ip(64, &code, function.start, DecoderOptions::NONE);
    decoder
        .into_iter()
        .filter(|it| {
            matches!(it.flow_control(), FlowControl::ConditionalBranch | FlowControl::IndirectBranch)
        })
        .map(|it| it.ip())
        .collect()
}
