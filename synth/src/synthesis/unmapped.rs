//! What can have happened on the way to the crash that the map of predecessors does not have.

use super::Request;
use crate::program::RT_SIGRETURN;
use crate::search::Search;
use vmm::elfcore::AT_SYSINFO_EHDR;

/// What of it a core does not exclude.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unmapped {
    /// Handlers of signals.
    signals: bool,
    /// Something, so that what contradicts the map is not refuted.
    anything: bool,
}

impl Unmapped {
    /// What the core of a request does not exclude. Looks through all memory that is written to.
    pub(crate) fn of(request: &Request<'_>) -> Unmapped {
        let signals = handler_may_have_run(request);
        // Interrupts and exceptions lead into a kernel's code at any instruction, and back.
        let anything = request.program.is_kernel()
            || request.core.had_threads()
            || request.program.is_linked()
            || runs_unknown_code(request)
            || signals;
        Unmapped { signals, anything }
    }

    /// A search that knows of it.
    pub(super) fn told_to(self, search: Search<'_>) -> Search<'_> {
        let search = if self.signals { search.with_signals() } else { search };
        if self.anything { search.with_partial_map() } else { search }
    }
}

/// Whether the handler of a signal may have interrupted the program on the way to the crash, at any of its instructions.
/// Crumbs tell that one has returned. Its frame does, too, whose first word leads to the code that returns from it: it
/// is on the stack while the handler runs, and stays below it until it is overwritten.
fn handler_may_have_run(request: &Request<'_>) -> bool {
    if request.anchors.has_call(RT_SIGRETURN) {
        return true;
    }
    let restorers: Vec<[u8; 8]> = request.program.restorers().iter().copied().map(u64::to_le_bytes).collect();
    let core = request.core;
    let writable = core.segments.iter().filter(|segment| segment.rights.write);
    let known = writable.flat_map(|segment| core.known(segment.start..segment.end));
    let mut words = known.flat_map(|(_, bytes)| bytes.chunks_exact(8));
    !restorers.is_empty() && words.any(|word| restorers.iter().any(|restorer| restorer == word))
}

/// Whether the program could run code that is in none of its files: of a library that is not there, or code that it
/// made itself. (The vDSO does not call it.)
fn runs_unknown_code(request: &Request<'_>) -> bool {
    let vdso = request.core.aux(AT_SYSINFO_EHDR).unwrap_or(0);
    let code =
        request.core.segments.iter().filter(|segment| segment.rights.execute && segment.start >> 63 == 0);
    let mut unknown = code.map(|segment| segment.start..segment.end).filter(|range| !range.contains(&vdso));
    unknown.any(|range| !request.program.has_code_in(&range))
}
