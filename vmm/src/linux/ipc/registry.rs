//! Numbers for what has a key: the lowest free place, and how often places were given again, as Linux makes them (ipc/util.c).

use super::super::{Served, errno};
use super::{IPC_CREAT, IPC_EXCL, Permission, Who};
use crate::plain::plain;
use std::collections::BTreeMap;

/// A number's low bits are its place.
const PLACE_BITS: u32 = 15;
const PLACES: i32 = 32_000;
const LAST_SEQUENCE: i32 = i32::MAX >> PLACE_BITS;

/// Something with a key.
#[derive(Clone, Debug)]
pub(super) struct Entry<T> {
    pub(super) permission: Permission,
    pub(super) it: T,
}
plain!(struct Entry<T> { permission, it });

/// All of a kind.
#[derive(Clone, Debug)]
pub(super) struct Registry<T> {
    by_place: BTreeMap<i32, Entry<T>>,
    last_place: i32,
    sequence: i32,
}
plain!(struct Registry<T> { by_place, last_place, sequence });

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { by_place: BTreeMap::new(), last_place: -1, sequence: 0 }
    }
}

impl<T> Registry<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.by_place.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.by_place.len()
    }

    /// The highest place that is used, or zero.
    pub(super) fn last_place(&self) -> i32 {
        self.by_place.keys().next_back().copied().unwrap_or(0)
    }

    fn number(place: i32, sequence: i32) -> i32 {
        sequence << PLACE_BITS | place
    }

    /// All, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, &Entry<T>)> {
        self.by_place.iter().map(|(place, entry)| (Self::number(*place, entry.permission.sequence), entry))
    }

    /// All, to be changed.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (i32, &mut Entry<T>)> {
        self.by_place
            .iter_mut()
            .map(|(place, entry)| (Self::number(*place, entry.permission.sequence), entry))
    }

    /// The number of what a *get call asks for, if it exists: `Ok(None)` if it is to be made. `fits` is asked of what exists.
    pub(super) fn find(
        &self,
        who: &Who<'_>,
        key: i32,
        flags: i32,
        fits: impl Fn(&T) -> bool,
    ) -> Served<Option<i32>> {
        if key == libc::IPC_PRIVATE {
            return Ok(None);
        }
        match self.iter().find(|(_, entry)| entry.permission.key == key) {
            None if flags & IPC_CREAT == 0 => errno(libc::ENOENT),
            None => Ok(None),
            Some(_) if flags & IPC_CREAT != 0 && flags & IPC_EXCL != 0 => errno(libc::EEXIST),
            Some((_, entry)) if !fits(&entry.it) => errno(libc::EINVAL),
            Some((number, entry)) => entry.permission.allows(who, flags).map(|()| Some(number)),
        }
    }

    /// Adds something; gives its number.
    pub(super) fn add(&mut self, permission: Permission, it: T) -> Served<i32> {
        let Some(place) = (0..PLACES).find(|place| !self.by_place.contains_key(place)) else {
            return errno(libc::ENOSPC);
        };
        if place <= self.last_place {
            self.sequence = if self.sequence >= LAST_SEQUENCE { 0 } else { self.sequence + 1 };
        }
        self.last_place = place;
        let sequence = self.sequence;
        self.by_place.insert(place, Entry { permission: Permission { sequence, ..permission }, it });
        Ok(Self::number(place, sequence))
    }

    /// What has a number.
    pub(super) fn get(&self, number: i32) -> Served<&Entry<T>> {
        let found = self.by_place.get(&Self::place(number)?);
        found
            .filter(|it| it.permission.sequence == number >> PLACE_BITS)
            .map_or_else(|| errno(libc::EINVAL), Ok)
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, number: i32) -> Served<&mut Entry<T>> {
        let found = self.by_place.get_mut(&Self::place(number)?);
        found
            .filter(|it| it.permission.sequence == number >> PLACE_BITS)
            .map_or_else(|| errno(libc::EINVAL), Ok)
    }

    fn place(number: i32) -> Served<i32> {
        if number < 0 { errno(libc::EINVAL) } else { Ok(number & ((1 << PLACE_BITS) - 1)) }
    }

    /// The number of what is at a place, if anything is (the *_STAT commands).
    pub(super) fn at_place(&self, place: i32) -> Served<i32> {
        match self.by_place.get(&place) {
            Some(entry) => Ok(Self::number(place, entry.permission.sequence)),
            None => errno(libc::EINVAL),
        }
    }

    /// Takes something out.
    pub(super) fn remove(&mut self, number: i32) -> Option<T> {
        self.get(number).ok()?;
        self.by_place.remove(&Self::place(number).ok()?).map(|entry| entry.it)
    }

    /// Takes out all that `gone` says.
    pub(super) fn take_if(&mut self, gone: impl Fn(&T) -> bool) -> Vec<T> {
        let places: Vec<i32> =
            self.by_place.iter().filter(|(_, entry)| gone(&entry.it)).map(|(place, _)| *place).collect();
        places.into_iter().filter_map(|place| self.by_place.remove(&place)).map(|entry| entry.it).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::identity::Credentials;
    use super::*;

    #[test]
    fn a_number_is_not_given_twice() {
        let credentials = Credentials {
            uid: [1; 4],
            gid: [1; 4],
            groups: Vec::new(),
            no_new_privileges: false,
            capabilities: crate::program::Capabilities::usual(false),
        };
        let who = Who { credentials: &credentials };
        let mut all = Registry::default();
        let first = all.add(Permission::new(&who, 9, 0o600), 'a').unwrap();
        let second = all.add(Permission::new(&who, 0, 0o600), 'b').unwrap();
        assert_eq!((first, second), (0, 1));
        assert_eq!(all.find(&who, 9, 0, |_| true).unwrap(), Some(0));
        assert!(all.find(&who, 9, IPC_CREAT | IPC_EXCL, |_| true).is_err());
        assert!(all.find(&who, 9, 0, |_| false).is_err() && all.find(&who, 8, 0, |_| true).is_err());
        assert_eq!(all.remove(first), Some('a'));
        let third = all.add(Permission::new(&who, 9, 0o600), 'c').unwrap();
        assert_eq!(third, 1 << PLACE_BITS);
        assert!(all.get(first).is_err() && all.get(-1).is_err());
        assert_eq!(all.get(third).unwrap().it, 'c');
        assert_eq!(all.take_if(|it| *it == 'b'), ['b']);
        assert_eq!((all.len(), all.last_place(), all.at_place(0).unwrap()), (1, 0, third));
    }
}
