//! What `gretel why` is asked for: bytes at a position, and in words what they are.

use super::blamed::{self, There, Values};
use super::caught;
use super::decided;
use super::said;
use crate::exit::{Code, Failure};
use crate::named::{self, Meaning};
use crate::overflow::{self, Overflow};
use crate::replay::failure;
use crate::symbols::Symbols;
use crate::values::number;
use std::collections::BTreeSet;
use std::str::FromStr;
use synth::program::demangled;
use synth::report::written;
use vmm::elfcore::signal_name;
use vmm::engine::lookout::Lookout;
use vmm::journal::End;
use vmm::memory::MappingInfo;
use vmm::position::Position;
use vmm::process::Process;
use vmm::signal::{Death, SI_KERNEL};
use vmm::slice::fault::Blame;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Byte, History, Place};
use vmm::travel::Stop;
use x86::op::Gpr;

/// What a user asks for by name.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    /// Bytes of a register.
    Register {
        /// As it was asked for: `ah` and `ymm0` have bytes of registers with other names.
        name: String,
        /// The lowest first.
        bytes: Vec<Byte>,
    },
    /// The instruction pointer.
    Pointer,
    /// Bytes of memory.
    Memory {
        /// The first.
        address: u64,
        /// How many.
        len: u64,
    },
    /// What an expression of the source names where the program stands.
    Source(String),
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
            return Ok(Expression::Register { name, bytes });
        }
        let (address, len) = text.split_once(':').unwrap_or((text, "8"));
        match (number(address), number(len)) {
            (Some(address), Some(len)) if (1..=MOST).contains(&len) => {
                Ok(Expression::Memory { address, len })
            }
            _ if text.starts_with(|first: char| first.is_alphabetic() || "_*&(".contains(first)) => {
                Ok(Expression::Source(text.to_owned()))
            }
            _ => Err(format!(
                "`{text}` is neither a register (rax, eax, xmm0, rip) nor memory (0x7fffffffe0a8:8, at most {MOST} bytes) nor an \
                 expression of the source (order->amount)"
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

/// What a user asks for of a recording.
pub(crate) struct Asked<'a> {
    /// What; the crash without it.
    pub(crate) expression: Option<&'a Expression>,
    /// Whose; of the task that is loaded without it.
    pub(crate) thread: Option<i32>,
    /// Who else sent the signal that made it crash, in words.
    pub(crate) sent: Option<String>,
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
        asked: Asked<'_>,
        history: &mut Recorded<'_>,
        symbols: &Symbols,
    ) -> Result<Question<Position>, Failure> {
        let travel = history.travel();
        let (at, process) = (travel.position(), travel.process());
        let loaded = Place { pid: process.pid(), thread: process.thread() };
        let place = match asked.thread {
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
        match asked.expression {
            Some(Expression::Register { name, bytes }) => {
                of(bytes.clone(), format!("{name} of thread {} at {at}", place.thread))
            }
            Some(Expression::Memory { address, len }) => {
                let bytes = memory(process, *address, *len, at)?;
                of(bytes, format!("{len} bytes at {address:#x} of process {} at {at}", place.pid))
            }
            Some(Expression::Source(text)) => {
                let meant = Meaning::of(text, travel, symbols, place.thread);
                let meant = meant.map_err(|why| named::usage(unknown(text, why)))?;
                let bytes = kept(&meant, travel.process(), at)?;
                of(bytes, format!("{meant}, of thread {} at {at}", place.thread))
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
            None => crash(history, symbols, asked.sent),
        }
    }
}

/// Bytes that are mapped where the program stands.
fn memory(process: &Process, address: u64, len: u64, at: Position) -> Result<Vec<Byte>, Failure> {
    let mut there = vec![0; usize::try_from(len).unwrap_or(0)];
    if address.checked_add(len).is_none() || !process.read_memory(address, &mut there) {
        let why = format!("not all of {address:#x}:{len} is mapped in process {} at {at}", process.pid());
        return Err(Failure::new(Code::Usage, why));
    }
    Ok(Byte::memory(address, len).collect())
}

/// Why an expression means nothing: one word may have been meant for a register.
fn unknown(text: &str, why: String) -> String {
    match text.chars().all(char::is_alphanumeric) {
        true => format!("`{text}` is no register (rax, eax, xmm0, rip), and {why}"),
        false => why,
    }
}

/// The bytes that an expression's value is.
fn kept(meant: &Meaning, process: &Process, at: Position) -> Result<Vec<Byte>, Failure> {
    match &meant.place {
        named::Place::Register { name, bytes } => {
            let mut of = register(name).unwrap_or_default();
            of.truncate(usize::try_from(*bytes).unwrap_or(usize::MAX));
            Ok(of)
        }
        named::Place::Memory(range) if (1..=MOST).contains(&(range.end - range.start)) => {
            memory(process, range.start, range.end - range.start, at)
        }
        named::Place::Memory(_) => {
            Err(named::usage(format!("{meant}: say which 1 to {MOST} of its bytes, as ADDRESS:LENGTH")))
        }
        named::Place::Number(_) => {
            Err(named::usage(format!("{meant}, which nobody has stored: ask for what it is made of")))
        }
    }
}

pub(super) fn place_of(symbols: &Symbols, address: u64) -> String {
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
fn crash(
    history: &mut Recorded<'_>,
    symbols: &Symbols,
    sent: Option<String>,
) -> Result<Question<Position>, Failure> {
    let travel = history.travel();
    let process = travel.process();
    let Some(death) = process.death() else { return handled(history, symbols) };
    let signal = signal_name(death.signal).map_or_else(|| format!("signal {}", death.signal), str::to_owned);
    let rip = process.cpu().regs().rip;
    let how = if death.leaves_core() { "it crashed with" } else { "it was ended by" };
    let head = format!("{how} {signal} at {}", place_of(symbols, rip));
    let mappings = process.mappings();
    let overflowed = overflowed(process, death, &mappings, symbols).map(|it| it.to_string());
    let said = (death.signal == libc::SIGABRT).then(|| abort_message(process, symbols)).flatten();
    if let Some(blame) = history.blame().map_err(failure)? {
        let mut question = of_fault(&blame, history, symbols)?;
        question.words.extend(overflowed);
        question.words.insert(0, head);
        return Ok(question);
    }
    if let Some(who) = sent {
        return Err(Failure::new(
            Code::Usage,
            format!("{head}, {who}: say with --of what is to be explained, as `--of rax`"),
        ));
    }
    if let Some(caught) = caught::fault(history, symbols).map_err(failure)? {
        let mut question = of_fault(&caught.blame, history, symbols)?;
        let words = [
            head,
            format!("a handler of signals gave up there; what it was called for is at {}", caught.place),
        ];
        question.words.splice(0..0, words.into_iter().chain(said));
        return Ok(question);
    }
    let said = match said {
        None if death.signal == libc::SIGABRT => its_words(history)?,
        said => said,
    };
    let Some(mut question) = decided::decision(history, symbols, &head)? else {
        // Go's runtime aborts (GOTRACEBACK=crash) long after the handler of the fault has returned.
        let handled = caught::handled_before(history.travel()).map_err(failure)?;
        let of = "say with --of what is to be explained";
        let said = said.map(|said| format!(" ({said})")).unwrap_or_default();
        let why = match handled {
            Some(handled) => format!("{head}{said}, and no value made it. But {handled}; or {of}"),
            None => format!("{head}{said}, and no value made it: {of}"),
        };
        return Err(Failure::new(Code::Usage, why));
    };
    question.words.splice(1..1, said);
    Ok(question)
}

/// What the program said before it gave up.
fn its_words(history: &mut Recorded<'_>) -> Result<Option<String>, Failure> {
    let words = said::last_words(history.travel()).map_err(failure)?;
    Ok(words.map(|words| format!("it said: {words}")))
}

/// What made a program fault whose handler runs where it stands, or ended it there.
fn handled(history: &mut Recorded<'_>, symbols: &Symbols) -> Result<Question<Position>, Failure> {
    let Some(caught) = caught::fault(history, symbols).map_err(failure)? else {
        if let Some(question) = panicked(history, symbols)? {
            return Ok(question);
        }
        return Err(Failure::new(Code::Usage, caught::none_unwound(history.travel()).map_err(failure)?));
    };
    let mut question = of_fault(&caught.blame, history, symbols)?;
    let head = format!("a handler of signals runs there; what it was called for is at {}", caught.place);
    question.words.insert(0, head);
    Ok(question)
}

/// What led to the panic of a Rust program that ended by it without a signal: it left its functions one after the other, and exited.
fn panicked(history: &mut Recorded<'_>, symbols: &Symbols) -> Result<Option<Question<Position>>, Failure> {
    /// What the standard library exits with then.
    const STATUS: i32 = 101;
    let travel = history.travel();
    let is_end = travel.ended() && travel.report().map_err(failure)?.end == Some(End::Exited(STATUS));
    let mut at: Vec<u64> = symbols.functions("rust_panic").into_iter().map(|(entry, _)| entry).collect();
    if !is_end || at.is_empty() {
        return Ok(None);
    }
    let words = its_words(history)?;
    let travel = history.travel();
    at.sort_unstable();
    travel.follow(travel.process().pid());
    let lookout = Lookout { at, data: Vec::new() };
    if !matches!(travel.backward(&lookout).map_err(failure)?, Stop::Breakpoint(_)) {
        travel.seek_end().map_err(failure)?;
        return Ok(None);
    }
    let head = format!("it panicked at {}, and exited with status {STATUS}", travel.position());
    let Some(mut question) = decided::decision(history, symbols, &head)? else {
        history.travel().seek_end().map_err(failure)?;
        return Ok(None);
    };
    question.words.splice(1..1, words);
    Ok(Some(question))
}

/// The values of an instruction that faulted, or that went where nothing can be executed. The program stands before it.
fn of_fault(
    blame: &Blame,
    history: &mut Recorded<'_>,
    symbols: &Symbols,
) -> Result<Question<Position>, Failure> {
    let mappings = history.travel().process().mappings();
    let values = blamed_values(blame, history)?;
    let mut question = went(blame, &values, symbols);
    if !blame.jumped {
        let there = There::Mapped(&mappings);
        question.words = vec![blamed::faulted(&blame.instruction, blame.address, &there, &values)];
    }
    Ok(question)
}

/// What the C library said.
fn abort_message(process: &Process, symbols: &Symbols) -> Option<String> {
    let text = symbols.modules().iter().find_map(|module| module.abort_message(process))?;
    Some(format!("libc said: {text}"))
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
