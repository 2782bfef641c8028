//! What an allocator was given that gave up: its history is another question, which `gretel heap` answers.
//!
//! Example: behind `free(): double free detected in tcache 2` the slice ends where the pointer was made. Who freed it first is no part of
//! that value.

use super::question::Question;
use crate::symbols::Symbols;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};
use x86::op::Gpr;

/// Functions that are given what was allocated, each as its first argument.
const FUNCTIONS: [&str; 4] = ["free", "__libc_free", "realloc", "__libc_realloc"];
/// How what glibc says begins where it refuses that.
const REFUSALS: [&str; 4] =
    ["libc said: free()", "libc said: double free", "libc said: realloc()", "libc said: munmap_chunk()"];

/// The address that was given to the call of `free` in which the program gave up.
pub(super) fn refused(
    travel: &mut Travel,
    symbols: &Symbols,
    question: &Question<Position>,
) -> Result<Option<u64>, ReplayError> {
    if !question.words.iter().any(|word| REFUSALS.iter().any(|it| word.starts_with(it))) {
        return Ok(None);
    }
    let mut at: Vec<u64> =
        FUNCTIONS.iter().flat_map(|name| symbols.functions(name)).map(|(entry, _)| entry).collect();
    at.sort_unstable();
    at.dedup();
    travel.seek(question.at)?;
    travel.follow(question.place.pid);
    let mut is_own = |process: &Process, _: Stop| process.thread() == question.place.thread;
    let stop = travel.backward_where(&Lookout { at, data: Vec::new() }, &mut is_own)?;
    let address = travel.process().cpu().regs().gpr[usize::from(Gpr::RDI.0)];
    Ok(matches!(stop, Stop::Breakpoint(_)).then_some(address))
}
