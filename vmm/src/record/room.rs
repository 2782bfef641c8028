//! How much of its room on disk a recording has used.

use crate::checkpoints::keeper::Keeper;
use crate::journal::Writer;
use crate::process::Process;
use crate::recording::Recording;

/// The room of a recording on disk.
pub(super) struct Room {
    bytes: u64,
    /// What the recording has besides its journal, the contents that this names, and checkpoints.
    others: u64,
}

/// Checkpoints have one part in so many of that.
pub(super) const CHECKPOINTS: u64 = 4;

impl Room {
    pub(super) fn new(bytes: u64, recording: &Recording, writer: &Writer) -> Room {
        Room { bytes, others: recording.size().saturating_sub(writer.size()) }
    }

    /// Whether the recording has all of it. What waits to be written counts uncompressed.
    pub(super) fn is_used_up(
        &self,
        writer: &Writer,
        keeper: Option<&mut Keeper>,
        process: &mut Process,
    ) -> bool {
        let without = self.others + writer.size();
        let checkpoints = || keeper.map_or(0, |keeper| keeper.written(process));
        // Asked only where it matters: the program waits for what is being written.
        without >= self.bytes - self.bytes / CHECKPOINTS && without + checkpoints() >= self.bytes
    }
}
