//! A flight recorder's window that does not move: the disk had no room for the checkpoint that its next segment begins with.
//!
//! The disk is asked now and then whether it has as much room as was missing. Where it cannot say, as of a quota, writing is tried,
//! and less and less often if it fails.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long after the first failure the disk is asked.
const SOON: Duration = Duration::from_millis(500);
/// It is asked no less often than this.
const LATE: Duration = Duration::from_secs(30);

/// Since when a window does not move, and what it waits for.
pub(super) struct Stall {
    /// A folder on the disk.
    folder: PathBuf,
    /// So many bytes must be free there.
    needs: u64,
    wait: Duration,
    again: Instant,
}

impl Stall {
    /// Nothing could be written to the disk that has this folder.
    pub(super) fn begin(folder: &Path, needs: u64) -> Stall {
        Stall { folder: folder.to_owned(), needs, wait: SOON, again: Instant::now() + SOON }
    }

    /// It was tried again, in vain.
    pub(super) fn go_on(&mut self, needs: u64) {
        self.needs = needs;
        self.wait = (self.wait * 2).min(LATE);
        self.again = Instant::now() + self.wait;
    }

    /// Whether it may be tried again now.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if now < self.again {
            return false;
        }
        self.again = now + self.wait;
        let free = rustix::fs::statvfs(&self.folder).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
        free.map_or(true, |free| free >= self.needs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_when_there_is_room_and_not_before_its_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut stall = Stall::begin(folder.path(), 1);
        let begun = stall.again - SOON;
        assert!(!stall.is_over(begun) && stall.is_over(begun + SOON));
        // Asked again only after a while.
        assert!(!stall.is_over(begun + SOON) && stall.is_over(begun + 2 * SOON));
        stall.go_on(u64::MAX);
        assert!(!stall.is_over(stall.again));
        stall.go_on(1);
        assert_eq!(stall.wait, SOON * 4);
        (0..9).for_each(|_| stall.go_on(1));
        assert_eq!(stall.wait, LATE);
    }
}
