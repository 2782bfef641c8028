//! Capabilities: root has all, others none. capget and capset, and how user ids change them (capabilities(7)).

use super::identity::Credentials;
use super::{Guest, Kernel, Served, errno, int};
use crate::plain::plain;
use crate::ram::Virt;

/// Those that are asked for here (linux/capability.h).
pub(super) const KILL: u32 = 5;
pub(super) const SETGID: u32 = 6;
pub(super) const SETUID: u32 = 7;
pub(super) const SETPCAP: u32 = 8;
pub(super) const SYS_ADMIN: u32 = 21;
pub(super) const SYS_NICE: u32 = 23;
pub(super) const SYS_RESOURCE: u32 = 24;
/// The last that there is: CAP_CHECKPOINT_RESTORE.
pub(super) const LAST: u64 = 40;
const ALL: u64 = (1 << (LAST + 1)) - 1;
/// Versions of the calls' structures: the first has sets of 32 bits.
const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;
/// Securebits: root is like others, and changing ids changes nothing.
const NO_ROOT: u32 = 1;
const NO_SETUID_FIXUP: u32 = 4;

/// Sets of capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Capabilities {
    effective: u64,
    permitted: u64,
    inheritable: u64,
    pub(super) bounding: u64,
    pub(super) ambient: u64,
    pub(super) securebits: u32,
}
plain!(struct Capabilities { effective, permitted, inheritable, bounding, ambient, securebits });

impl Capabilities {
    /// Those of a program that these users run.
    pub(super) fn of(uid: [u32; 4]) -> Capabilities {
        let permitted = if uid[..3].contains(&0) { ALL } else { 0 };
        let effective = if uid[1] == 0 { permitted } else { 0 };
        Capabilities { effective, permitted, inheritable: 0, bounding: ALL, ambient: 0, securebits: 0 }
    }
}

impl Credentials {
    /// Whether the program may do what a capability allows.
    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities.effective >> capability & 1 == 1
    }

    /// What a change of user ids does.
    pub(super) fn changed(&mut self, before: [u32; 4]) {
        let sets = &mut self.capabilities;
        if sets.securebits & NO_SETUID_FIXUP != 0 {
            return;
        }
        let [was, is] = [before, self.uid].map(|uid| uid[..3].contains(&0));
        if was && !is {
            sets.ambient = 0;
            if !self.keeps_capabilities {
                (sets.permitted, sets.effective) = (0, 0);
            }
        }
        match (before[1], self.uid[1]) {
            (0, 1..) => sets.effective = 0,
            (1.., 0) => sets.effective = sets.permitted,
            _ => {}
        }
    }

    /// What exec does.
    pub(super) fn executed(&mut self) {
        let [real, effective, ..] = self.uid;
        let sets = &mut self.capabilities;
        let root = sets.securebits & NO_ROOT == 0 && (real == 0 || effective == 0);
        if root {
            sets.permitted = sets.bounding | sets.inheritable;
            sets.effective = if effective == 0 { sets.permitted } else { 0 };
        } else {
            (sets.permitted, sets.effective) = (sets.ambient, sets.ambient);
        }
        self.keeps_capabilities = false;
        (self.uid[2], self.uid[3]) = (effective, effective);
        (self.gid[2], self.gid[3]) = (self.gid[1], self.gid[1]);
    }
}

/// Reads the header; gives how many words each set has, and the process.
fn header(guest: &mut Guest<'_>, at: Virt) -> Served<Option<(usize, i32)>> {
    let [head] = guest.read_words(at)?;
    let words = match int(head).cast_unsigned() {
        VERSION_1 => 1,
        VERSION_2 | VERSION_3 => 2,
        _ => {
            guest.write(at, &VERSION_3.to_le_bytes())?;
            return Ok(None);
        }
    };
    Ok(Some((words, int(head >> 32))))
}

pub(super) fn capget(kernel: &Kernel, guest: &mut Guest<'_>, at: Virt, data: Virt) -> Served {
    let Some((words, pid)) = header(guest, at)? else {
        return if data == 0 { Ok(0) } else { errno(libc::EINVAL) };
    };
    if pid < 0 {
        return errno(libc::EINVAL);
    }
    let id = if pid == 0 { kernel.tasks.id() } else { pid };
    let Some(group) = kernel.tasks.get(id).and_then(|task| kernel.groups.get(task.group)) else {
        return errno(libc::ESRCH);
    };
    let sets = group.credentials.capabilities;
    if data != 0 {
        let mut bytes = Vec::new();
        for word in 0..words {
            for set in [sets.effective, sets.permitted, sets.inheritable] {
                bytes.extend(int(set >> (32 * word)).to_le_bytes());
            }
        }
        guest.write(data, &bytes)?;
    }
    Ok(0)
}

pub(super) fn capset(kernel: &mut Kernel, guest: &mut Guest<'_>, at: Virt, data: Virt) -> Served {
    let Some((words, pid)) = header(guest, at)? else { return errno(libc::EINVAL) };
    if pid != 0 && pid != kernel.tasks.id() {
        return errno(libc::EPERM);
    }
    let mut sets = [0_u64; 3];
    for word in 0..words {
        let part: [u8; 12] = guest.read_array(data.wrapping_add(12 * word as u64))?;
        for (set, bytes) in sets.iter_mut().zip(part.chunks_exact(4)) {
            *set |= u64::from(u32::from_le_bytes(bytes.try_into().expect("four bytes"))) << (32 * word);
        }
    }
    let [effective, permitted, inheritable] = sets.map(|set| set & ALL);
    let credentials = &mut kernel.group_mut().credentials;
    let adds = credentials.has(SETPCAP);
    let old = &mut credentials.capabilities;
    let within = |set: u64, of: u64| set & !of == 0;
    let allowed = (adds || within(inheritable, old.inheritable | old.permitted))
        && within(inheritable, old.inheritable | old.bounding)
        && within(permitted, old.permitted)
        && within(effective, permitted);
    if !allowed {
        return errno(libc::EPERM);
    }
    let ambient = old.ambient & permitted & inheritable;
    *old = Capabilities { effective, permitted, inheritable, ambient, ..*old };
    Ok(0)
}

/// setgroups.
pub(super) fn setgroups(kernel: &mut Kernel, guest: &mut Guest<'_>, count: u64, at: Virt) -> Served {
    const MOST: i32 = 65536;
    let count = int(count);
    if !kernel.group().credentials.has(SETGID) {
        return errno(libc::EPERM);
    }
    if !(0..=MOST).contains(&count) {
        return errno(libc::EINVAL);
    }
    let mut bytes = vec![[0; 4]; usize::try_from(count).unwrap_or(0)];
    guest.read(at, bytes.as_flattened_mut())?;
    let mut groups: Vec<u32> = bytes.into_iter().map(u32::from_le_bytes).collect();
    groups.sort_unstable();
    kernel.group_mut().credentials.groups = groups;
    Ok(0)
}
