//! Things that tasks share, by number: descriptor tables, handlers, working directories, address spaces.
//!
//! A CLONE_* flag is "count one more owner of this id" ([`Arena::share`]) or "copy what it names to a new id"
//! ([`Arena::insert`]). Ids are never used again, so that a stale one is noticed.

use crate::plain::plain;
use std::collections::BTreeMap;

/// The number of a thing in an [`Arena`].
pub(crate) type Id = u32;

/// Things by number, each with a count of its owners.
#[derive(Clone, Debug)]
pub(crate) struct Arena<T> {
    things: BTreeMap<Id, (T, u32)>,
    next: Id,
}
plain!(struct Arena<T> { things, next });

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { things: BTreeMap::new(), next: 0 }
    }
}

impl<T> Arena<T> {
    /// Puts a thing in, with one owner.
    pub(crate) fn insert(&mut self, thing: T) -> Id {
        let id = self.next;
        self.next += 1;
        self.things.insert(id, (thing, 1));
        id
    }

    /// Counts one more owner.
    pub(crate) fn share(&mut self, id: Id) -> Id {
        if let Some((_, owners)) = self.things.get_mut(&id) {
            *owners += 1;
        }
        id
    }

    /// Counts one owner less; gives the thing that has none any more.
    pub(crate) fn release(&mut self, id: Id) -> Option<T> {
        let (_, owners) = self.things.get_mut(&id)?;
        *owners -= 1;
        if *owners > 0 {
            return None;
        }
        self.things.remove(&id).map(|(thing, _)| thing)
    }

    /// How many owners it has.
    pub(crate) fn owners(&self, id: Id) -> u32 {
        self.things.get(&id).map_or(0, |(_, owners)| *owners)
    }

    /// The thing of an id that an owner holds.
    pub(crate) fn get(&self, id: Id) -> &T {
        &self.things.get(&id).expect("an id that is held names something").0
    }

    /// The same, to be changed.
    pub(crate) fn get_mut(&mut self, id: Id) -> &mut T {
        &mut self.things.get_mut(&id).expect("an id that is held names something").0
    }

    /// All things, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.things.values_mut().map(|(thing, _)| thing)
    }

    /// The same ids with the same owners, and copies of the things. If one cannot be copied, gives those that were.
    pub(crate) fn try_copy<U, E>(
        &mut self,
        mut copy: impl FnMut(&mut T) -> Result<U, E>,
    ) -> Result<Arena<U>, (Arena<U>, E)> {
        let mut copies = Arena { things: BTreeMap::new(), next: self.next };
        for (id, (thing, owners)) in &mut self.things {
            match copy(thing) {
                Ok(copy) => copies.things.insert(*id, (copy, *owners)),
                Err(error) => return Err((copies, error)),
            };
        }
        Ok(copies)
    }

    /// The same ids with the same owners, and what `copy` makes of the things.
    pub(crate) fn map<U>(&self, mut copy: impl FnMut(&T) -> U) -> Arena<U> {
        let things = self.things.iter().map(|(id, (thing, owners))| (*id, (copy(thing), *owners)));
        Arena { things: things.collect(), next: self.next }
    }

    /// The things, whoever owns them.
    pub(crate) fn into_things(self) -> impl Iterator<Item = T> {
        self.things.into_values().map(|(thing, _)| thing)
    }

    /// All things.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Id, &T)> {
        self.things.iter().map(|(id, (thing, _))| (*id, thing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thing_goes_with_its_last_owner() {
        let mut arena = Arena::default();
        let id = arena.insert('a');
        assert_eq!(arena.share(id), id);
        assert_eq!((arena.release(id), *arena.get(id)), (None, 'a'));
        assert_eq!(arena.release(id), Some('a'));
        assert_ne!(arena.insert('b'), id);
    }

    #[test]
    fn a_copy_has_the_ids_and_owners() {
        let mut arena = Arena::default();
        let first = arena.insert('a');
        arena.release(first);
        let id = arena.insert('b');
        arena.share(id);
        let copy = arena.try_copy(|thing| Ok::<char, ()>(thing.to_ascii_uppercase())).expect("copied");
        assert_eq!((copy.owners(id), *copy.get(id), copy.next), (2, 'B', arena.next));
        let mut left = 1;
        let failed = arena.try_copy(|_| {
            left -= 1;
            if left == 0 { Err(()) } else { Ok('c') }
        });
        assert_eq!(failed.map(|_| ()).map_err(|(copies, ())| copies.into_things().count()), Err(0));
    }
}
