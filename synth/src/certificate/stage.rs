//! The start image of a suffix on an engine: the core's memory, with the suffix's over it.

use super::CertificateError;
use crate::suffix::Suffix;
use vmm::elfcore::Core;
use vmm::engine::Engine;
use vmm::paging::{Rights, USER_END};
use vmm::ram::PAGE;
use vmm::sandbox::Sandbox;

/// What the engine needs beside the program's own pages: page tables and its own pages.
const OVERHEAD: u64 = 8 << 20;
/// One page table maps this much: more tables for memory that lies scattered.
const TABLE_SPAN: u64 = 2 << 20;
/// As many pages are mapped at once.
const RUN: u64 = 64;

/// How much memory an engine needs to hold the core's.
pub(super) fn memory_needed(core: &Core) -> u64 {
    let mut bytes = OVERHEAD;
    for segment in &core.segments {
        let size = segment.end.saturating_sub(segment.start);
        bytes = bytes.saturating_add(size).saturating_add((size / TABLE_SPAN + 4) * PAGE);
    }
    bytes.next_multiple_of(PAGE)
}

/// Puts the start image of `suffix` on `engine`.
pub(super) fn set(
    engine: Box<dyn Engine>,
    core: &Core,
    suffix: &Suffix,
) -> Result<Sandbox, CertificateError> {
    let mut sandbox = Sandbox::new(engine)?;
    for segment in &core.segments {
        let rights = segment.rights;
        if !(rights.read || rights.write || rights.execute) {
            continue;
        }
        let rights = Rights { write: rights.write, execute: rights.execute };
        let end = segment.end.min(USER_END);
        let mut at = segment.start;
        while at < end {
            let pages = RUN.min((end - at) / PAGE).max(1);
            at = match run(core, at, pages * PAGE) {
                Some(bytes) => {
                    sandbox.map(at, &bytes, rights)?;
                    at + pages * PAGE
                }
                None => {
                    if let Some(bytes) = run(core, at, PAGE) {
                        sandbox.map(at, &bytes, rights)?;
                    }
                    at + PAGE
                }
            };
        }
    }
    for piece in &suffix.memory {
        refuse_constant(core, piece.address, &piece.bytes)?;
        sandbox.write(piece.address, &piece.bytes)?;
    }
    sandbox.load(&suffix.start)?;
    Ok(sandbox)
}

fn run(core: &Core, at: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    core.read(at, &mut bytes).then_some(bytes)
}

/// A suffix may not begin with other bytes than the core's where the program could not have changed them.
fn refuse_constant(core: &Core, address: u64, bytes: &[u8]) -> Result<(), CertificateError> {
    for (at, byte) in (address..).zip(bytes) {
        let writable = core.segment(at).is_some_and(|segment| segment.rights.write);
        if !writable && core.byte(at) != Some(*byte) {
            return Err(CertificateError::ConstantMemory { address: at });
        }
    }
    Ok(())
}
