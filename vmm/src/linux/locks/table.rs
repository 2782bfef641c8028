//! The locks that the guest holds of one file, in the order in which Linux keeps them: those of an owner together, by range.

use super::super::descriptors::{Detached, OpenFile};
use crate::plain::plain;
use std::rc::{Rc, Weak};

/// Bytes of a file, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: i64,
    pub(super) last: i64,
}
plain!(struct Range { first, last });

impl Range {
    pub(super) const ALL: Range = Range { first: 0, last: i64::MAX };

    fn meets(self, other: Range) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Its length, as `struct flock` has it: zero up to any end.
    pub(super) fn length(self) -> i64 {
        if self.last == i64::MAX { 0 } else { self.last - self.first + 1 }
    }

    /// A `struct flock` of it: to write, to read, or none.
    pub(super) fn flock(self, kind: Option<bool>) -> [u8; 32] {
        let kind = match kind {
            Some(true) => libc::F_WRLCK,
            Some(false) => libc::F_RDLCK,
            None => libc::F_UNLCK,
        };
        let mut bytes = [0; 32];
        bytes[..2].copy_from_slice(&i16::try_from(kind).expect("a small constant").to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.length().to_le_bytes());
        bytes
    }
}

/// Who has a lock.
#[derive(Clone, Debug)]
pub(super) enum Owner {
    Process(i32),
    /// An open file; the lock goes with it.
    File(Weak<OpenFile>),
}
plain!(enum Owner { 0 = Process(a), 1 = File(a) });

impl PartialEq for Owner {
    fn eq(&self, other: &Owner) -> bool {
        match (self, other) {
            (Owner::Process(one), Owner::Process(other)) => one == other,
            (Owner::File(one), Owner::File(other)) => one.ptr_eq(other),
            _ => false,
        }
    }
}

impl Owner {
    /// Whether it is an open file that nobody has open any more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Owner::File(file) if file.strong_count() == 0)
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Owner {
        match self {
            Owner::Process(pid) => Owner::Process(*pid),
            Owner::File(file) => {
                Owner::File(file.upgrade().map_or_else(Weak::new, |file| Rc::downgrade(&files.file(&file))))
            }
        }
    }
}

/// A lock.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) owner: Owner,
    pub(super) write: bool,
    pub(super) range: Range,
}
plain!(struct Lock { owner, write, range });

/// The locks of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    locks: Vec<Lock>,
}
plain!(struct Table { locks });

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.locks.is_empty()
    }

    /// The same with no host's files.
    pub(super) fn detached(&self, files: &mut Detached) -> Table {
        let locks = self.locks.iter();
        Table {
            locks: locks.map(|lock| Lock { owner: lock.owner.detached(files), ..lock.clone() }).collect(),
        }
    }

    /// The locks of others that keep one from being given.
    pub(super) fn conflicts(&self, owner: &Owner, write: bool, range: Range) -> impl Iterator<Item = &Lock> {
        let (owner, locks) = (owner.clone(), self.locks.iter());
        locks.filter(move |lock| lock.owner != owner && (write || lock.write) && lock.range.meets(range))
    }

    /// Gives an owner a lock of a range in place of those that it has there, or none.
    pub(super) fn set(&mut self, owner: &Owner, kind: Option<bool>, range: Range) {
        let place = self.locks.iter().position(|lock| lock.owner == *owner).unwrap_or(self.locks.len());
        let (own, mut locks): (Vec<Lock>, _) = self.locks.drain(..).partition(|lock| lock.owner == *owner);
        let mut kept = Vec::new();
        for lock in own {
            let below = (lock.range.first < range.first)
                .then(|| Range { last: lock.range.last.min(range.first - 1), ..lock.range });
            let above = (lock.range.last > range.last)
                .then(|| Range { first: lock.range.first.max(range.last + 1), ..lock.range });
            kept.extend([below, above].into_iter().flatten().map(|range| Lock { range, ..lock.clone() }));
        }
        kept.extend(kind.map(|write| Lock { owner: owner.clone(), write, range }));
        kept.sort_by_key(|lock| lock.range.first);
        kept.dedup_by(|next, lock| {
            let joins = next.write == lock.write && lock.range.last.checked_add(1) == Some(next.range.first);
            if joins {
                lock.range.last = next.range.last;
            }
            joins
        });
        locks.splice(place..place, kept);
        self.locks = locks;
    }

    /// Takes the locks of some owners away; whether there were any.
    pub(super) fn remove(&mut self, gone: impl Fn(&Owner) -> bool) -> bool {
        let before = self.locks.len();
        self.locks.retain(|lock| !gone(&lock.owner));
        self.locks.len() < before
    }

    /// The pieces of a range, each with the strongest lock that anybody has on it.
    pub(super) fn strongest(&self, range: Range) -> Vec<(Range, Option<bool>)> {
        let mut starts = vec![range.first];
        for lock in self.locks.iter().filter(|lock| lock.range.meets(range)) {
            starts.push(lock.range.first.max(range.first));
            starts.extend(lock.range.last.checked_add(1).filter(|behind| *behind <= range.last));
        }
        starts.sort_unstable();
        starts.dedup();
        let ends = starts[1..].iter().map(|next| next - 1).chain([range.last]);
        let pieces = starts.iter().zip(ends).map(|(first, last)| Range { first: *first, last });
        pieces
            .map(|piece| {
                let kinds = self.locks.iter().filter(|lock| lock.range.meets(piece)).map(|lock| lock.write);
                (piece, kinds.max())
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(first: i64, last: i64) -> Range {
        Range { first, last }
    }

    fn shown(table: &Table) -> Vec<(i64, i64, bool)> {
        table.locks.iter().map(|lock| (lock.range.first, lock.range.last, lock.write)).collect()
    }

    #[test]
    fn locks_of_an_owner_are_cut_and_joined() {
        let (mut table, one, other) = (Table::default(), Owner::Process(1), Owner::Process(2));
        table.set(&one, Some(true), range(10, 29));
        table.set(&one, Some(false), range(15, 19));
        assert_eq!(shown(&table), [(10, 14, true), (15, 19, false), (20, 29, true)]);
        table.set(&one, Some(true), range(15, 19));
        assert_eq!(shown(&table), [(10, 29, true)]);
        table.set(&other, Some(false), range(40, i64::MAX));
        table.set(&one, None, range(0, 19));
        assert_eq!(shown(&table), [(20, 29, true), (40, i64::MAX, false)]);
        table.set(&one, None, Range::ALL);
        assert_eq!(shown(&table), [(40, i64::MAX, false)]);
    }

    #[test]
    fn readers_keep_writers_out_and_nobody_himself() {
        let (mut table, one, other) = (Table::default(), Owner::Process(1), Owner::Process(2));
        table.set(&one, Some(false), range(10, 19));
        let conflicts = |owner, write, range| table.conflicts(owner, write, range).count();
        assert_eq!(conflicts(&other, true, range(19, 30)), 1);
        assert_eq!(conflicts(&other, true, range(20, 30)), 0);
        assert_eq!(conflicts(&other, false, range(10, 19)), 0);
        assert_eq!(conflicts(&one, true, range(10, 19)), 0);
    }

    #[test]
    fn the_strongest_lock_of_each_byte() {
        let (mut table, one, other) = (Table::default(), Owner::Process(1), Owner::Process(2));
        table.set(&one, Some(false), range(0, 9));
        table.set(&other, Some(false), range(5, 14));
        table.set(&other, Some(true), range(20, i64::MAX));
        let pieces: Vec<_> = table
            .strongest(range(3, i64::MAX))
            .into_iter()
            .map(|(piece, kind)| (piece.first, kind))
            .collect();
        let (read, write) = (Some(false), Some(true));
        assert_eq!(pieces, [(3, read), (5, read), (10, read), (15, None), (20, write)]);
    }
}
