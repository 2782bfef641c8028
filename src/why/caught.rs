//! The fault behind a crash that a handler of signals made of it: who handles SIGSEGV prints a report, and then sends itself the signal
//! again, or aborts.
//!
//! Example: Redis prints its bug report, and calls `kill(getpid(), SIGSEGV)`. What there is to be explained is the store in
//! `debugCommand` for which the handler was called. Its address is in the frame that the kernel built for the handler.

use super::question::place_of;
use crate::ending;
use crate::symbols::Symbols;
use std::cell::RefCell;
use std::rc::Rc;
use vmm::elfcore::unwind::FoundBy;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::process::happening::{Happening, What};
use vmm::replay::ReplayError;
use vmm::signal::Raised;
use vmm::slice::fault::Blame;
use vmm::slice::recorded::Recorded;
use vmm::syscalls::show::signal;
use vmm::travel::{Stop, Travel};
use x86::op::Gpr;

/// So many frames are looked through for those of signals.
const MOST_FRAMES: usize = 64;

/// What a handler was called for.
pub(super) struct Caught {
    pub(super) blame: Blame,
    /// Where the program stood then.
    pub(super) place: String,
}

/// The fault whose handler the program has not left, the newest one. The program stands before its instruction then; where there is
/// none, where it stood.
pub(super) fn fault(history: &mut Recorded<'_>, symbols: &Symbols) -> Result<Option<Caught>, ReplayError> {
    let travel = history.travel();
    let (here, ended) = (travel.position(), travel.ended());
    let (pid, thread) = (travel.process().pid(), travel.process().thread());
    let stack = symbols.walk(travel.process(), thread, MOST_FRAMES);
    travel.follow(pid);
    for frame in stack.iter().flat_map(|it| &it.frames).filter(|frame| frame.by == FoundBy::Signal) {
        let lookout = Lookout { at: vec![frame.rip], data: Vec::new() };
        let travel = history.travel();
        let stop = travel.backward_where(&lookout, &mut |process, _| {
            process.thread() == thread && process.cpu().regs().gpr[usize::from(Gpr::RSP.0)] == frame.rsp
        })?;
        if !matches!(stop, Stop::Breakpoint(_)) {
            break;
        }
        if let Some(blame) = history.blame()? {
            return Ok(Some(Caught { blame, place: place_of(symbols, frame.rip) }));
        }
    }
    let travel = history.travel();
    if ended {
        travel.seek_end()?
    } else {
        travel.seek(here).map(drop)?
    }
    Ok(None)
}

/// Of a program that stands neither at a crash nor in a handler: how it ended, which faults it handled before, and how to ask for one. A
/// runtime that makes an exception of a fault (Go's, Java's) has left the handler when the program gives up.
pub(super) fn none_unwound(travel: &mut Travel) -> Result<String, ReplayError> {
    let here = travel.position();
    let handled: Vec<(Position, Raised)> =
        faults(travel, None)?.into_iter().filter(|(at, _)| *at <= here).collect();
    let end = travel.report()?.end.filter(|_| travel.position() == here);
    let ended = end.map_or_else(
        || format!("the program did not crash at {here}"),
        |end| format!("the program did not crash ({})", ending::sentence(&end)),
    );
    let of = "say with --of what is to be explained, as `--of rax`";
    Ok(match newest(&handled) {
        None => format!("{ended}, and handled no fault before; {of}"),
        Some(newest) => format!("{ended}. But {newest}; or {of}"),
    })
}

/// Of a program that gave up: which fault of the same process a handler was called for before, if there was one, and how to ask for it.
/// The program stands at the recording's end behind it.
pub(super) fn handled_before(travel: &mut Travel) -> Result<Option<String>, ReplayError> {
    let (here, pid) = (travel.position(), travel.process().pid());
    let mut handled = faults(travel, Some(pid))?;
    handled.retain(|(at, _)| *at <= here);
    Ok(newest(&handled))
}

/// Which fault was handled last, and how to ask for it.
fn newest(handled: &[(Position, Raised)]) -> Option<String> {
    let (at, raised) = handled.last()?;
    let name = signal(raised.signal().unsigned_abs().into());
    let (which, all) = match handled.len() {
        1 => (format!("it handled a fault, {name} at {at}"), ""),
        faults => (
            format!("it handled {faults} faults, the newest {name} at {at}"),
            " (`gretel events --kind signal` lists all)",
        ),
    };
    Some(format!("{which}: --at {at} explains that{all}"))
}

/// The faults for which a handler was called, in order, of one process or of all. It ends at the recording's end.
fn faults(travel: &mut Travel, pid: Option<i32>) -> Result<Vec<(Position, Raised)>, ReplayError> {
    let found: Rc<RefCell<Vec<(Position, Raised)>>> = Rc::default();
    let told = Rc::clone(&found);
    travel.seek(travel.begin())?;
    travel.process_mut().trace(Box::new(move |it: &Happening| {
        if let What::Signal { raised, handler: Some(_) } = &it.what
            && raised.death.exception.is_some()
            && pid.is_none_or(|pid| pid == it.pid)
        {
            told.borrow_mut().push((it.position, *raised));
        }
    }));
    let mut walked = Ok(true);
    while matches!(walked, Ok(true)) {
        walked = travel.next_event();
    }
    travel.process_mut().trace_no_more();
    walked.map(|_| found.take())
}
