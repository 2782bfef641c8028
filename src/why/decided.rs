//! What led to an abort: the last decision of the innermost function that did more than give up.
//!
//! Example: `free` finds a chunk whose size cannot be, lets its lock go, prints what is wrong and aborts. The innermost function that
//! did not only give up is `_int_free`, and its last decision the comparison of that size: where the size came from is the question.

use super::blamed::Values;
use super::question::{Question, place_of};
use crate::exit::Failure;
use crate::replay::failure;
use crate::symbols::Symbols;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::BTreeSet;
use std::ops::Range;
use synth::report::written;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::slice::fault::Blame;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Byte, Follow, History, slice};
use vmm::travel::Stop;
use x86::op::Gpr;

/// What the functions are named by which glibc waits for a lock, and wakes who does (`__lll_lock_wake_private`).
const LOCK: &str = "lll_lock_wa";
/// Such a call has so many instructions, its own among them.
const BEFORE_CALL: usize = 4;

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
const GIVING_UP_IN: [&str; 19] = [
    "std::terminate",
    "std::__throw_",
    "__cxxabiv1::",
    "__gnu_cxx::__verbose_terminate",
    "core::panicking::",
    "std::panicking::",
    "std::process::abort",
    "core::option::expect_failed",
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

/// The last decision of the innermost function that did not only give up: what led to an abort. None where there is no such function,
/// or it decided nothing.
pub(super) fn decision(
    history: &mut Recorded<'_>,
    symbols: &Symbols,
    head: &str,
) -> Result<Option<Question<Position>>, Failure> {
    let travel = history.travel();
    let process = travel.process();
    let thread = process.thread();
    let stack = symbols.backtrace(process, thread, 64);
    // One that calls another and does nothing else has not decided it.
    let own =
        stack.frames.iter().enumerate().filter(|(_, (_, place))| !gives_up(place)).find_map(|(own, it)| {
            let parts = symbols.parts_of(it.0.lookup_address());
            let mut at: Vec<u64> =
                parts.into_iter().flat_map(|part| deciding_branches(process, symbols, part)).collect();
            at.sort_unstable();
            (!at.is_empty()).then_some((own, at))
        });
    let Some((own, at)) = own else { return Ok(None) };
    let (frame, place) = &stack.frames[own];
    // The same call of the function has the stack between what it called and its caller; a call of itself has it below.
    let caller = stack.frames.get(own + 1).map_or(u64::MAX, |(caller, _)| caller.rsp);
    let (pid, lookout) = (process.pid(), Lookout { at, data: Vec::new() });
    travel.follow(pid);
    for _ in 0..MOST_BRANCHES {
        if !matches!(travel.backward(&lookout).map_err(failure)?, Stop::Breakpoint(_)) {
            break;
        }
        let rsp = travel.process().cpu().regs().gpr[usize::from(Gpr::RSP.0)];
        if travel.process().thread() == thread && (frame.rsp..caller).contains(&rsp) {
            let Some(blame) = history.blame_branch(None).map_err(failure)? else { return Ok(None) };
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
                let words = vec![head.to_owned(), decided];
                return Ok(Some(Question { at, place: blame.place, bytes, words }));
            }
            let words = vec![head.to_owned(), decided];
            return Ok(Some(Question { at: blame.at, place: blame.place, bytes: blame.bytes, words }));
        }
    }
    Ok(None)
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

/// The branches of a part of a function that decide, by address: conditional ones, and those to where a table says. Who lets a lock go on
/// the way to giving up looks whether others wait for it: that decides nothing.
fn deciding_branches(process: &Process, symbols: &Symbols, function: Range<u64>) -> Vec<u64> {
    let len = usize::try_from(function.end - function.start).unwrap_or(0);
    let mut code = vec![0; len];
    if !process.read_memory(function.start, &mut code) {
        return Vec::new();
    }
    let from = |address: u64| {
        let at = usize::try_from(address.wrapping_sub(function.start)).unwrap_or(len).min(len);
        Decoder::with_ip(64, &code[at..], address, DecoderOptions::NONE).into_iter()
    };
    let is_lock = |target: u64| {
        symbols.place(target).is_some_and(|it| it.function().is_some_and(|name| name.contains(LOCK)))
    };
    let calls_lock = |address: u64| {
        let next = from(address).take(BEFORE_CALL).find(|it| it.flow_control() != FlowControl::Next);
        next.is_some_and(|it| it.is_call_near() && is_lock(it.near_branch_target()))
    };
    let decides = |it: &Instruction| match it.flow_control() {
        FlowControl::ConditionalBranch => !calls_lock(it.next_ip()) && !calls_lock(it.near_branch_target()),
        other => other == FlowControl::IndirectBranch,
    };
    from(function.start).filter(decides).map(|it| it.ip()).collect()
}
