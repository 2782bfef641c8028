//! Who uses which frame of guest memory: a count of owners for each.

use super::{PAGE, Phys};

/// Every frame is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the guest needs more than the {bytes} bytes of memory that it has; give it more with --memory")]
pub struct OutOfFrames {
    /// The size of guest memory.
    pub bytes: u64,
}

/// The frames of guest memory and how many owners each has: address spaces, shared objects, checkpoints.
#[derive(Debug)]
pub struct Frames {
    /// The first frame that was never given out; everything above is zero.
    next: Phys,
    end: Phys,
    /// How many bytes may be in use before memory counts as exhausted.
    limit: u64,
    /// How many frames were in use at most.
    most: u64,
    /// Frames without an owner, below `next`.
    free: Vec<Phys>,
    /// Former page tables: not to be used before the processor has forgotten what it derived from them.
    quarantine: Vec<Phys>,
    /// Owners by frame number.
    owners: Vec<u32>,
}

impl Frames {
    /// All frames from `first` to `end`, both multiples of [`PAGE`].
    #[must_use]
    pub fn new(first: Phys, end: Phys) -> Frames {
        let (free, quarantine, owners) = (Vec::new(), Vec::new(), Vec::new());
        Frames { next: first, end, limit: end, most: 0, free, quarantine, owners }
    }

    /// Keeps the frames below `end` for a processor; they must not have been given out.
    pub fn reserve(&mut self, end: Phys) {
        assert!(self.owners.is_empty(), "a processor takes its frames before anyone else");
        self.next = self.next.max(end);
    }

    /// Counts memory as exhausted when so many bytes are in use; what is above is given out all the same, so that a call is served
    /// to its end.
    pub fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes.min(self.end);
    }

    /// A frame with one owner; true if it was used before, so that it may hold anything.
    pub fn take(&mut self) -> Result<(Phys, bool), OutOfFrames> {
        let (frame, used) = match self.free.pop() {
            Some(frame) => (frame, true),
            None => (self.take_fresh()?, false),
        };
        self.given(frame);
        Ok((frame, used))
    }

    /// A frame that was never used, with one owner.
    pub fn take_fresh(&mut self) -> Result<Phys, OutOfFrames> {
        if self.next >= self.end {
            return Err(self.exhausted());
        }
        let frame = self.next;
        self.next += PAGE;
        self.given(frame);
        Ok(frame)
    }

    /// Counts one more owner.
    pub fn share(&mut self, frame: Phys) {
        let owners = self.owners(frame);
        debug_assert!(owners > 0, "a frame that is shared is in use");
        self.set_owners(frame, owners + 1);
    }

    /// Counts one owner less; the last one's leaving frees the frame.
    pub fn release(&mut self, frame: Phys) {
        let owners = self.owners(frame);
        debug_assert!(owners > 0, "a frame that is released is in use");
        self.set_owners(frame, owners.saturating_sub(1));
        if owners == 1 {
            self.free.push(frame);
        }
    }

    /// Takes back a page table: it is used again after [`Frames::end_quarantine`] only.
    pub fn release_table(&mut self, frame: Phys) {
        self.set_owners(frame, 0);
        self.quarantine.push(frame);
    }

    /// How many former page tables wait.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        self.quarantine.len()
    }

    /// No processor remembers anything of the former page tables.
    pub fn end_quarantine(&mut self) {
        self.free.append(&mut self.quarantine);
    }

    /// The first frame that was never given out, as no frame behind it was.
    #[must_use]
    pub fn given_out(&self) -> Phys {
        self.next
    }

    /// How many owners a frame has.
    #[must_use]
    pub fn owners(&self, frame: Phys) -> u32 {
        self.owners.get(number(frame)).copied().unwrap_or(0)
    }

    /// How many frames could still be given out before memory is exhausted.
    #[must_use]
    pub fn available(&self) -> u64 {
        (self.limit / PAGE).saturating_sub(self.used())
    }

    /// Whether as much is in use as may be.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.available() == 0
    }

    /// The error of that.
    #[must_use]
    pub fn exhausted(&self) -> OutOfFrames {
        OutOfFrames { bytes: self.limit }
    }

    /// How many bytes may be in use.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// How many bytes were in use at most: what has several owners counts once, and what checkpoints hold counts as well.
    #[must_use]
    pub fn most_used(&self) -> u64 {
        self.most * PAGE
    }

    /// How many frames are in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.next / PAGE - (self.free.len() + self.quarantine.len()) as u64
    }

    fn given(&mut self, frame: Phys) {
        self.set_owners(frame, 1);
        self.most = self.most.max(self.used());
    }

    fn set_owners(&mut self, frame: Phys, owners: u32) {
        let at = number(frame);
        if self.owners.len() <= at {
            self.owners.resize(at + 1, 0);
        }
        self.owners[at] = owners;
    }
}

fn number(frame: Phys) -> usize {
    usize::try_from(frame / PAGE).expect("guest memory fits the host's address space")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_free_again_when_its_last_owner_leaves() {
        let mut frames = Frames::new(PAGE, 4 * PAGE);
        let (frame, used) = frames.take().unwrap();
        assert_eq!((frame, used, frames.owners(frame)), (PAGE, false, 1));
        frames.share(frame);
        frames.release(frame);
        assert_eq!(frames.owners(frame), 1);
        frames.release(frame);
        assert_eq!(frames.take().unwrap(), (frame, true));
    }

    #[test]
    fn memory_is_exhausted_at_its_limit_and_goes_on_behind_it() {
        let mut frames = Frames::new(PAGE, 8 * PAGE);
        frames.set_limit(3 * PAGE);
        let (first, _) = frames.take().unwrap();
        assert_eq!((frames.available(), frames.is_exhausted()), (1, false));
        frames.share(first);
        assert!(!frames.is_exhausted(), "a frame counts once");
        frames.take().unwrap();
        frames.take().unwrap();
        assert!(frames.is_exhausted());
        frames.release(first);
        frames.release(first);
        assert_eq!((frames.used(), frames.most_used()), (3, 4 * PAGE));
    }

    #[test]
    fn a_former_page_table_waits_for_the_end_of_its_quarantine() {
        let mut frames = Frames::new(0, 2 * PAGE);
        let table = frames.take_fresh().unwrap();
        frames.release_table(table);
        assert_eq!(frames.take().unwrap(), (PAGE, false));
        assert_eq!(frames.take(), Err(OutOfFrames { bytes: 2 * PAGE }));
        frames.end_quarantine();
        assert_eq!(frames.take().unwrap(), (table, true));
    }
}
