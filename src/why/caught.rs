//! The fault behind a crash that a handler of signals made of it: who handles SIGSEGV prints a report, and then sends itself the signal
//! again, or aborts.
//!
//! Example: Redis prints its bug report, and calls `kill(getpid(), SIGSEGV)`. What there is to be explained is the store in
//! `debugCommand` for which the handler was called. Its address is in the frame that the kernel built for the handler.

use super::question::place_of;
use crate::symbols::Symbols;
use vmm::elfcore::unwind::FoundBy;
use vmm::engine::lookout::Lookout;
use vmm::replay::ReplayError;
use vmm::slice::fault::Blame;
use vmm::slice::recorded::Recorded;
use vmm::travel::Stop;
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
