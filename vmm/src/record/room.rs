//! How much of its room on disk a recording has used.

use crate::checkpoints::keeper::Keeper;
use crate::gate::Input;
use crate::journal::Writer;
use crate::process::Process;
use crate::recording::Recording;

/// The room of a recording on disk.
pub(super) struct Room {
    bytes: u64,
    /// What the recording has besides its journal, the contents that this names, and checkpoints.
    others: u64,
    /// It has checkpoints.
    checkpoints: bool,
}

/// Checkpoints have one part in so many of that.
pub(super) const CHECKPOINTS: u64 = 4;
/// Smaller inputs have room: by one event of them, the recording may be larger.
const LARGE: u64 = 128 << 10;

impl Room {
    pub(super) fn new(bytes: u64, recording: &Recording, writer: &Writer, checkpoints: bool) -> Room {
        Room { bytes, others: recording.size().saturating_sub(writer.size()), checkpoints }
    }

    /// Whether the recording has all of it.
    pub(super) fn is_used_up(
        &self,
        writer: &Writer,
        keeper: Option<&mut Keeper>,
        process: &mut Process,
    ) -> bool {
        let share = if self.checkpoints { self.bytes / CHECKPOINTS } else { 0 };
        if !self.is_beyond(writer, self.bytes - share, 0) {
            return false;
        }
        // Asked only where it matters: the program waits for what is being written.
        let checkpoints = keeper.map_or(0, |keeper| keeper.written(process));
        self.is_beyond(writer, self.bytes.saturating_sub(checkpoints), 0)
    }

    /// Whether there is room for an input of the event that is going on, and for as many checkpoints as there may be.
    pub(super) fn has_room_for(&self, writer: &Writer, input: &Input) -> bool {
        let share = if self.checkpoints { self.bytes / CHECKPOINTS } else { 0 };
        let (room, length) = (self.bytes - share, length(input));
        if length < LARGE || self.others + writer.size() + length <= room {
            return true;
        }
        // One that cannot be encoded fails when it is put, and says why.
        writer.cost(input).map_or(true, |cost| !self.is_beyond(writer, room, cost))
    }

    /// Whether more than `room` is in use with `more` bytes. What waits to be written counts uncompressed at first, and where that is
    /// beyond, as what it comes to.
    fn is_beyond(&self, writer: &Writer, room: u64, more: u64) -> bool {
        let is_beyond = || self.others + writer.size() + more >= room;
        is_beyond() && {
            writer.settle();
            is_beyond()
        }
    }
}

/// How many bytes an input has.
fn length(input: &Input) -> u64 {
    match input {
        Input::Bytes { writes, .. } => writes.iter().map(|write| write.bytes.len() as u64).sum(),
        Input::File(Ok(file)) => file.bytes.len() as u64,
        _ => 0,
    }
}
