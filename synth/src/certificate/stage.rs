//! The start image of a suffix on an engine: the core's memory, with the suffix's over it.

use super::CertificateError;
use crate::suffix::Suffix;
use std::ops::Range;
use vmm::elfcore::{Core, Segment};
use vmm::engine::Machine;
use vmm::paging::{Rights, USER_END};
use vmm::ram::{PAGE, PAGE_LEN};
use vmm::sandbox::Sandbox;

/// What the engine needs beside the program's own pages: page tables and its own pages.
const OVERHEAD: u64 = 8 << 20;
/// One page table maps this much: more tables for memory that lies scattered.
const TABLE_SPAN: u64 = 2 << 20;
/// As many bytes are mapped at once.
const RUN: usize = 64 * PAGE_LEN;

/// How much memory an engine needs to hold the core's.
pub(super) fn memory_needed(core: &Core) -> u64 {
    let mut bytes = OVERHEAD;
    for held in core.segments.iter().flat_map(|segment| whole_pages(core, segment)) {
        let size = held.end - held.start;
        bytes = bytes.saturating_add(size).saturating_add((size / TABLE_SPAN + 4) * PAGE);
    }
    bytes.next_multiple_of(PAGE)
}

/// The pages of a segment that the core holds in whole, counted from the segment's start; none of one without rights.
fn whole_pages(core: &Core, segment: &Segment) -> Vec<Range<u64>> {
    let rights = segment.rights;
    let (start, end) = (segment.start, segment.end.min(USER_END));
    if end <= start || !(rights.read || rights.write || rights.execute) {
        return Vec::new();
    }
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for (at, bytes) in core.known(start..start + (end - start).next_multiple_of(PAGE)) {
        let behind = at + bytes.len() as u64;
        match pieces.last_mut() {
            Some(last) if last.end == at => last.end = behind,
            _ => pieces.push(at..behind),
        }
    }
    let page = |at: u64| start + (at - start) / PAGE * PAGE;
    let whole = pieces.into_iter().map(|piece| page(piece.start + (PAGE - 1))..page(piece.end));
    whole.filter(|piece| piece.start < piece.end).collect()
}

/// Puts the start image of `suffix` on `machine`.
pub(super) fn set(machine: Machine, core: &Core, suffix: &Suffix) -> Result<Sandbox, CertificateError> {
    let mut sandbox = Sandbox::new(machine)?;
    for segment in &core.segments {
        let rights = Rights { write: segment.rights.write, execute: segment.rights.execute };
        for held in whole_pages(core, segment) {
            let mut at = held.start;
            while at < held.end {
                let mut bytes = vec![0; RUN.min(usize::try_from(held.end - at).unwrap_or(RUN))];
                let all = core.read(at, &mut bytes);
                debug_assert!(all, "these pages are known");
                sandbox.map(at, &bytes, rights)?;
                at += bytes.len() as u64;
            }
        }
    }
    for piece in &suffix.memory {
        refuse_constant(core, piece.address, &piece.bytes)?;
        sandbox.write(piece.address, &piece.bytes)?;
    }
    sandbox.load(&suffix.start)?;
    Ok(sandbox)
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

#[cfg(test)]
mod tests {
    use super::*;
    use vmm::elfcore::write::{Area, Contents, write};

    /// A mapping of 64 TiB of which the core has a page, as sanitizers make them.
    #[test]
    fn memory_is_needed_for_what_the_core_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        let rights = vmm::elfcore::Rights { read: true, write: true, execute: false };
        let area = Area { start: 0x60_0000, end: 0x60_1000, rights };
        let file = std::fs::File::create(&path).unwrap();
        write(file, &Contents::default(), &[area], &mut |_, page| {
            page.fill(7);
            true
        })
        .unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        // The second program header's p_memsz.
        bytes[64 + 56 + 40..][..8].copy_from_slice(&(1_u64 << 46).to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let core = Core::open(&path).unwrap();
        assert_eq!(core.segments[0].end, 0x60_0000 + (1 << 46));
        assert_eq!(memory_needed(&core), OVERHEAD + 5 * PAGE);
        assert_eq!(whole_pages(&core, &core.segments[0]), std::slice::from_ref(&(0x60_0000..0x60_1000)));
    }
}
