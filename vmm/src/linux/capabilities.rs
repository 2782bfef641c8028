//! Capabilities: capget and capset, and how user ids and exec change them (capabilities(7)).

use super::identity::Credentials;
use super::{Guest, Kernel, Served, errno, int};
use crate::program::Capabilities;
use crate::ram::Virt;

/// Those that are asked for here (linux/capability.h).
pub(super) const KILL: u32 = 5;
pub(super) const SETGID: u32 = 6;
pub(super) const SETUID: u32 = 7;
pub(super) const SETPCAP: u32 = 8;
pub(super) const SYS_CHROOT: u32 = 18;
pub(super) const SYS_ADMIN: u32 = 21;
pub(super) const SYS_NICE: u32 = 23;
pub(super) const SYS_RESOURCE: u32 = 24;
pub(super) const SYS_TIME: u32 = 25;
pub(super) const LEASE: u32 = 28;
/// Those that go with the user of files: CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, LINUX_IMMUTABLE, MKNOD,
/// MAC_OVERRIDE.
const OF_FILES: u64 = 0b1_1111 | 1 << 9 | 1 << 27 | 1 << 32;
/// Versions of the calls' structures: the first has sets of 32 bits.
const VERSION_1: u32 = 0x1998_0330;
const VERSION_2: u32 = 0x2007_1026;
const VERSION_3: u32 = 0x2008_0522;
/// Securebits: root is like others, changing ids changes nothing, a change to another user keeps what is permitted, and
/// nothing is added to the ambient set. The bit above each locks it.
const NO_ROOT: u32 = 1;
const NO_SETUID_FIXUP: u32 = 1 << 2;
const KEEP_CAPS: u32 = 1 << 4;
const NO_AMBIENT_RAISE: u32 = 1 << 6;
const LOCKS: u32 = 0b1010_1010;
/// The last capability, as an argument has it.
const LAST: u64 = Capabilities::LAST as u64;
/// PR_CAP_AMBIENT_*.
const AMBIENT_IS_SET: i32 = 1;
const AMBIENT_RAISE: i32 = 2;
const AMBIENT_LOWER: i32 = 3;
const AMBIENT_CLEAR: i32 = 4;

impl Credentials {
    /// Whether the program may do what a capability allows.
    pub(super) fn has(&self, capability: u32) -> bool {
        self.capabilities.effective >> capability & 1 == 1
    }

    /// The capabilities that access looks with, for it asks as the real user.
    pub(super) fn for_access(&self) -> u64 {
        let sets = &self.capabilities;
        match sets.securebits & NO_SETUID_FIXUP {
            0 if self.uid[0] == 0 => sets.permitted,
            0 => 0,
            _ => sets.effective,
        }
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
            if sets.securebits & KEEP_CAPS == 0 {
                (sets.permitted, sets.effective) = (0, 0);
            }
        }
        match (before[1], self.uid[1]) {
            (0, 1..) => sets.effective = 0,
            (1.., 0) => sets.effective = sets.permitted,
            _ => {}
        }
    }

    /// What a change of the user of files alone does.
    pub(super) fn changed_for_files(&mut self, before: u32) {
        let sets = &mut self.capabilities;
        if sets.securebits & NO_SETUID_FIXUP != 0 {
            return;
        }
        match (before, self.uid[3]) {
            (0, 1..) => sets.effective &= !OF_FILES,
            (1.., 0) => sets.effective |= sets.permitted & OF_FILES,
            _ => {}
        }
    }

    /// What exec does.
    pub(super) fn executed(&mut self) {
        let [real, effective, ..] = self.uid;
        let sets = &mut self.capabilities;
        if real != effective || self.gid[0] != self.gid[1] {
            sets.ambient = 0;
        }
        let root = sets.securebits & NO_ROOT == 0;
        let given = if root && (real == 0 || effective == 0) { sets.bounding | sets.inheritable } else { 0 };
        sets.permitted = given | sets.ambient;
        sets.effective = if root && effective == 0 { sets.permitted } else { sets.ambient };
        sets.securebits &= !KEEP_CAPS;
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
    let [effective, permitted, inheritable] = sets.map(|set| set & Capabilities::ALL);
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
    let before = std::mem::replace(&mut kernel.group_mut().credentials.groups, groups);
    if let Err(stop) = kernel.check_rights(guest) {
        kernel.group_mut().credentials.groups = before;
        return Err(stop);
    }
    Ok(0)
}

/// PR_GET_KEEPCAPS.
pub(super) fn keeps(kernel: &Kernel) -> bool {
    kernel.group().credentials.capabilities.securebits & KEEP_CAPS != 0
}

/// PR_SET_KEEPCAPS.
pub(super) fn set_keeps(kernel: &mut Kernel, keeps: bool) -> Served {
    let bits = &mut kernel.group_mut().credentials.capabilities.securebits;
    if *bits & KEEP_CAPS << 1 != 0 {
        return errno(libc::EPERM);
    }
    *bits = *bits & !KEEP_CAPS | if keeps { KEEP_CAPS } else { 0 };
    Ok(0)
}

/// PR_SET_SECUREBITS.
pub(super) fn set_securebits(kernel: &mut Kernel, value: u64) -> Served {
    let credentials = &mut kernel.group_mut().credentials;
    let (may, bits) = (credentials.has(SETPCAP), &mut credentials.capabilities.securebits);
    let wanted = u32::try_from(value).ok().filter(|wanted| wanted & !(LOCKS | LOCKS >> 1) == 0);
    match wanted {
        Some(wanted)
            if may && (*bits & LOCKS) >> 1 & (*bits ^ wanted) == 0 && *bits & LOCKS & !wanted == 0 =>
        {
            *bits = wanted;
            Ok(0)
        }
        _ => errno(libc::EPERM),
    }
}

/// PR_CAPBSET_READ.
pub(super) fn bounds(kernel: &Kernel, capability: u64) -> Served {
    match capability {
        ..=LAST => Ok(kernel.group().credentials.capabilities.bounding >> capability & 1),
        _ => errno(libc::EINVAL),
    }
}

/// PR_CAPBSET_DROP.
pub(super) fn drop_bound(kernel: &mut Kernel, capability: u64) -> Served {
    let credentials = &mut kernel.group_mut().credentials;
    match capability {
        _ if !credentials.has(SETPCAP) => errno(libc::EPERM),
        ..=LAST => {
            credentials.capabilities.bounding &= !(1 << capability);
            Ok(0)
        }
        _ => errno(libc::EINVAL),
    }
}

/// PR_CAP_AMBIENT.
pub(super) fn ambient(kernel: &mut Kernel, what: i32, capability: u64, rest: [u64; 2]) -> Served {
    let sets = &mut kernel.group_mut().credentials.capabilities;
    if rest != [0; 2] || what == AMBIENT_CLEAR && capability != 0 || capability > LAST {
        return errno(libc::EINVAL);
    }
    let bit = 1 << capability;
    match what {
        AMBIENT_CLEAR => sets.ambient = 0,
        AMBIENT_IS_SET => return Ok(sets.ambient >> capability & 1),
        AMBIENT_LOWER => sets.ambient &= !bit,
        AMBIENT_RAISE if sets.securebits & NO_AMBIENT_RAISE != 0 => return errno(libc::EPERM),
        AMBIENT_RAISE if sets.permitted & sets.inheritable & bit == 0 => return errno(libc::EPERM),
        AMBIENT_RAISE => sets.ambient |= bit,
        _ => return errno(libc::EINVAL),
    }
    Ok(0)
}
