//! Who may do what with something that has a key (ipc/util.c).

use super::super::identity::Credentials;
use super::super::{Guest, Served, errno};
use super::Record;
use crate::plain::plain;
use crate::ram::Virt;

/// The size of `struct ipc64_perm`, with which every structure of the *ctl calls begins.
pub(super) const PERMISSION: usize = 48;
const RIGHTS: u32 = 0o777;

/// One who asks.
pub(super) struct Who<'a> {
    pub(super) credentials: &'a Credentials,
}

impl Who<'_> {
    fn uid(&self) -> u32 {
        self.credentials.uid[1]
    }

    fn gid(&self) -> u32 {
        self.credentials.gid[1]
    }

    /// Whether nothing is refused.
    pub(super) fn is_privileged(&self) -> bool {
        self.uid() == 0
    }

    fn is_in(&self, group: u32) -> bool {
        self.gid() == group || self.credentials.groups.contains(&group)
    }
}

/// Owner, creator and rights.
#[derive(Clone, Debug)]
pub(super) struct Permission {
    pub(super) key: i32,
    pub(super) owner: [u32; 2],
    pub(super) creator: [u32; 2],
    pub(super) mode: u32,
    /// How often the place of its number was used before.
    pub(super) sequence: i32,
}
plain!(struct Permission { key, owner, creator, mode, sequence });

impl Permission {
    pub(super) fn new(who: &Who<'_>, key: i32, flags: i32) -> Permission {
        let ids = [who.uid(), who.gid()];
        Permission { key, owner: ids, creator: ids, mode: flags.unsigned_abs() & RIGHTS, sequence: 0 }
    }

    /// Owner and creator, as /proc/sysvipc shows them.
    pub(super) fn shown(&self) -> String {
        let [[uid, gid], [creator, creators_group]] = [self.owner, self.creator];
        format!("{uid:5} {gid:5} {creator:5} {creators_group:5}")
    }

    /// That somebody may do what the bits of `wanted` say, those for the owner, the group or all others.
    pub(super) fn allows(&self, who: &Who<'_>, wanted: i32) -> Served<()> {
        let wanted = wanted.unsigned_abs();
        let requested = wanted >> 6 | wanted >> 3 | wanted;
        let granted = if [self.owner[0], self.creator[0]].contains(&who.uid()) {
            self.mode >> 6
        } else if who.is_in(self.owner[1]) || who.is_in(self.creator[1]) {
            self.mode >> 3
        } else {
            self.mode
        };
        if requested & !granted & 7 != 0 && !who.is_privileged() { errno(libc::EACCES) } else { Ok(()) }
    }

    /// That somebody may change or remove it.
    pub(super) fn owned_by(&self, who: &Who<'_>) -> Served<()> {
        let own = [self.owner[0], self.creator[0]].contains(&who.uid());
        if own || who.is_privileged() { Ok(()) } else { errno(libc::EPERM) }
    }

    /// Takes owner and rights from a structure of the guest's (IPC_SET).
    pub(super) fn set(&mut self, guest: &mut Guest<'_>, address: Virt) -> Served<()> {
        let bytes: [u8; PERMISSION] = guest.read_array(address)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        self.owner = [word(4), word(8)];
        self.mode = self.mode & !RIGHTS | word(20) & RIGHTS;
        Ok(())
    }

    /// The beginning of a structure of so many bytes.
    pub(super) fn record(&self, size: usize) -> Record {
        let [uid, gid] = self.owner;
        let [creator_uid, creator_gid] = self.creator;
        let words = [uid, gid, creator_uid, creator_gid, self.mode];
        let mut record = Record::new(size).word(0, self.key);
        for (at, word) in (4..).step_by(4).zip(words) {
            record.put(at, &word.to_le_bytes());
        }
        record.word(24, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(uid: u32, gid: u32, groups: &[u32]) -> Credentials {
        Credentials {
            uid: [uid; 4],
            gid: [gid; 4],
            groups: groups.to_vec(),
            no_new_privileges: false,
            capabilities: crate::program::Capabilities::usual(uid == 0),
        }
    }

    #[test]
    fn owner_group_and_others_have_their_own_rights() {
        let own = credentials(5, 5, &[]);
        let who = |credentials| Who { credentials };
        let permission = Permission::new(&who(&own), 1, 0o640);
        let (friend, stranger, root) =
            (credentials(6, 6, &[5]), credentials(7, 7, &[]), credentials(0, 0, &[]));
        assert!(permission.allows(&who(&own), 0o666).is_ok());
        assert!(
            permission.allows(&who(&friend), 0o444).is_ok()
                && permission.allows(&who(&friend), 0o222).is_err()
        );
        assert!(
            permission.allows(&who(&stranger), 0o444).is_err()
                && permission.allows(&who(&stranger), 0).is_ok()
        );
        assert!(permission.allows(&who(&root), 0o666).is_ok());
        assert!(permission.owned_by(&who(&own)).is_ok() && permission.owned_by(&who(&friend)).is_err());
    }
}
