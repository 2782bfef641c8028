//! process_vm_readv and process_vm_writev: memory of another process of the guest.

use super::super::arena::Id;
use super::super::transfer::{Segment, segments};
use super::super::{Guest, Kernel, Served, Stop, errno, int};
use crate::ram::{PAGE, Virt};

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Direction {
    /// From the other process.
    Read,
    /// To the other process.
    Write,
}

/// The most that one call transfers.
const LONGEST: u64 = 64 << 20;

pub(in super::super) fn peer(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    a: &[u64; 6],
    direction: Direction,
) -> Served {
    let [pid, local, local_count, remote, remote_count, flags] = *a;
    if flags != 0 {
        return errno(libc::EINVAL);
    }
    let (local, remote) = (segments(guest, local, local_count)?, segments(guest, remote, remote_count)?);
    let Some(task) = kernel.tasks.get(int(pid)) else { return errno(libc::ESRCH) };
    let (theirs, group) = (task.space, task.group);
    if group != kernel.pid() && !may_look(kernel, group) {
        return errno(libc::EPERM);
    }
    let ours = *guest.space;
    let (from, to) = match direction {
        Direction::Read => ((theirs, remote), (ours, local)),
        Direction::Write => ((ours, local), (theirs, remote)),
    };
    transfer(guest, from, to)
}

/// Whether the process that runs may look into another one (`ptrace_may_access`).
pub(in super::super) fn may_look(kernel: &Kernel, pid: i32) -> bool {
    let own = &kernel.group().credentials;
    let Some(other) = kernel.groups.get(pid) else { return false };
    let same = |id: u32, ids: &[u32; 4]| ids[..3].iter().all(|it| *it == id);
    own.uid[1] == 0
        || other.dumpable
            && same(own.uid[0], &other.credentials.uid)
            && same(own.gid[0], &other.credentials.gid)
}

/// Copies page by page as far as both sides go; that nothing at all can be copied is EFAULT.
fn transfer(guest: &mut Guest<'_>, from: (Id, Vec<Segment>), to: (Id, Vec<Segment>)) -> Served {
    let total = |all: &[Segment]| all.iter().fold(0_u64, |sum, (_, length)| sum.saturating_add(*length));
    let wanted = total(&from.1).min(total(&to.1)).min(LONGEST);
    let (mut source, mut target) = (Cursor::new(from.1), Cursor::new(to.1));
    let mut done = 0;
    while done < wanted {
        let length = source.room().min(target.room()).min(wanted - done);
        let mut bytes = vec![0; usize::try_from(length).expect("at most a page")];
        let copied = guest.read_from_space(from.0, source.address(), &mut bytes);
        match copied.and_then(|()| guest.write_to_space(to.0, target.address(), &bytes)) {
            Ok(()) => {}
            Err(Stop::Errno(_)) if done > 0 => break,
            Err(stop) => return Err(stop),
        }
        source.advance(length);
        target.advance(length);
        done += length;
    }
    Ok(done)
}

/// Where a transfer stands in a list of buffers.
struct Cursor {
    segments: Vec<Segment>,
    at: usize,
    inside: u64,
}

impl Cursor {
    fn new(segments: Vec<Segment>) -> Cursor {
        let mut cursor = Cursor { segments, at: 0, inside: 0 };
        cursor.skip();
        cursor
    }

    /// Passes over what is used up.
    fn skip(&mut self) {
        while self.segments.get(self.at).is_some_and(|(_, length)| self.inside >= *length) {
            (self.at, self.inside) = (self.at + 1, 0);
        }
    }

    fn address(&self) -> Virt {
        self.segments.get(self.at).map_or(0, |(start, _)| start.wrapping_add(self.inside))
    }

    /// How much of this buffer lies in one page.
    fn room(&self) -> u64 {
        let left = self.segments.get(self.at).map_or(0, |(_, length)| length - self.inside);
        left.min(PAGE - self.address() % PAGE)
    }

    fn advance(&mut self, length: u64) {
        self.inside += length;
        self.skip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_passed_through_page_by_page() {
        let mut cursor = Cursor::new(vec![(0, 0), (PAGE - 1, 3), (7, 0), (5, 2)]);
        let mut seen = Vec::new();
        while cursor.room() > 0 {
            seen.push((cursor.address(), cursor.room()));
            cursor.advance(cursor.room());
        }
        assert_eq!(seen, [(PAGE - 1, 1), (PAGE, 2), (5, 2)]);
    }
}
