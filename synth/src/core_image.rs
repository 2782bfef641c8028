//! The core as the search sees it.

use crate::evidence::Anchors;
use crate::past::image::Image;
use crate::report::fault::stored_by_refused_call;
use std::cell::Cell;
use std::ops::Range;
use vmm::elfcore::{Core, Segment};
use x86::state::State;

/// The memory of a core. Most accesses are near the one before: what that one found is looked at first.
pub(crate) struct CoreImage<'a> {
    core: &'a Core,
    anchors: &'a Anchors,
    segment: Cell<Option<&'a Segment>>,
    /// Bytes in one piece, and where they begin.
    run: Cell<(u64, &'a [u8])>,
    stored_by_crash: Range<u64>,
}

impl<'a> CoreImage<'a> {
    /// Of this core, with the system calls that are known from elsewhere.
    pub(crate) fn new(core: &'a Core, anchors: &'a Anchors) -> CoreImage<'a> {
        let stored_by_crash = stored_by_refused_call(core).unwrap_or_default();
        CoreImage { core, anchors, segment: Cell::new(None), run: Cell::new((0, &[])), stored_by_crash }
    }

    fn segment(&self, va: u64) -> Option<&'a Segment> {
        if let Some(last) = self.segment.get().filter(|last| (last.start..last.end).contains(&va)) {
            return Some(last);
        }
        let found = self.core.segment(va)?;
        self.segment.set(Some(found));
        Some(found)
    }
}

/// The bytes of a piece that begins at `start`, from `va` on.
fn from(start: u64, run: &[u8], va: u64) -> Option<&[u8]> {
    let at = usize::try_from(va.checked_sub(start)?).ok()?;
    run.get(at..).filter(|bytes| !bytes.is_empty())
}

impl Image for CoreImage<'_> {
    fn bytes(&self, va: u64) -> &[u8] {
        let (start, run) = self.run.get();
        if let Some(bytes) = from(start, run, va) {
            return bytes;
        }
        let Some(segment) = self.segment(va) else { return &[] };
        let whole = self.core.bytes(segment.start);
        let (start, run) = match from(segment.start, whole, va) {
            Some(_) => (segment.start, whole),
            None => (va, self.core.bytes(va)),
        };
        self.run.set((start, run));
        from(start, run, va).unwrap_or_default()
    }
    fn is_mapped(&self, va: u64) -> bool {
        self.segment(va).is_some()
    }
    fn is_writable(&self, va: u64) -> bool {
        self.segment(va).is_some_and(|segment| segment.rights.write)
    }
    fn regions(&self) -> Vec<Range<u64>> {
        if let Some(machine) = &self.core.machine {
            return machine.data().to_vec();
        }
        self.core.segments.iter().map(|segment| segment.start..segment.end).collect()
    }
    fn is_shared(&self) -> bool {
        self.core.had_threads()
    }
    fn is_kernel(&self) -> bool {
        self.core.machine.is_some()
    }
    fn guards_programs(&self) -> bool {
        const SMAP: u64 = 1 << 21;
        self.core.machine.as_ref().is_some_and(|machine| machine.registers.cr4 & SMAP != 0)
    }
    fn inactive_gs(&self) -> u64 {
        self.core.machine.as_ref().map_or(0, |machine| machine.registers.kernel_gs_base)
    }
    fn crashed(&self) -> u32 {
        self.core.threads.first().map_or(0, |(id, _)| id.unsigned_abs())
    }
    fn thread(&self, id: u32) -> Option<&State> {
        self.core.thread(id)
    }
    fn stored_by_crash(&self) -> Range<u64> {
        self.stored_by_crash.clone()
    }
    fn anchors(&self) -> &Anchors {
        self.anchors
    }
}
