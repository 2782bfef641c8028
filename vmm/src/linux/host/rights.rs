//! Whose rights this thread has: its user and group for files, its supplementary groups, its capabilities (setfsuid(2), capset(2)). The
//! kernel keeps them for each thread.

use super::{pointer, raw};
use crate::linux::users::Rights;

/// Makes this thread one with other rights to files; false if it may not, and then it may have some of them.
pub(in crate::linux) fn act_as(rights: &Rights) -> bool {
    const VERSION_3: u32 = 0x2008_0522;
    let half = |set: u64, at: u32| u32::try_from(set >> at & 0xffff_ffff).expect("32 bits");
    let sets = [rights.effective, rights.permitted, rights.inheritable];
    let header = [VERSION_3, 0];
    let set_capabilities = |sets: [u64; 3]| {
        let data = [0, 32].map(|at| sets.map(|set| half(set, at)));
        // SAFETY: the kernel reads a header of two words and two structures of three, for the calling thread.
        unsafe { raw(libc::SYS_capset, [pointer(header.as_ptr()), pointer(data.as_ptr()), 0, 0, 0, 0]) == 0 }
    };
    let set_id = |call: i64, id: u32| {
        // SAFETY: they take no pointer, and change the calling thread alone. The second call only asks.
        unsafe {
            raw(call, [id.into(), 0, 0, 0, 0, 0]);
            raw(call, [u32::MAX.into(), 0, 0, 0, 0, 0]) == i64::from(id)
        }
    };
    // All that is permitted, to change the groups with.
    let raised = set_capabilities([rights.permitted, rights.permitted, rights.inheritable]);
    let grouped = set_groups(&rights.groups);
    let who = set_id(libc::SYS_setfsgid, rights.gid) && set_id(libc::SYS_setfsuid, rights.uid);
    raised && grouped && who && set_capabilities(sets)
}

/// Gives this thread other supplementary groups.
fn set_groups(groups: &[u32]) -> bool {
    let mut now = vec![0_u32; groups.len()];
    // SAFETY: the kernel writes at most as many words as the vector has; with none it only counts them.
    let count =
        unsafe { raw(libc::SYS_getgroups, [now.len() as u64, pointer(now.as_mut_ptr()), 0, 0, 0, 0]) };
    if usize::try_from(count).is_ok_and(|count| count == groups.len()) && now == *groups {
        return true;
    }
    // SAFETY: the kernel reads as many words as the vector has.
    unsafe { raw(libc::SYS_setgroups, [groups.len() as u64, pointer(groups.as_ptr()), 0, 0, 0, 0]) == 0 }
}
