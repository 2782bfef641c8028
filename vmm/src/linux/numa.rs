//! Memory policies (mm/mempolicy.c) on a machine with one node: a task's policy is kept and told, and where memory is, no policy changes.
//! That of a range is checked and not kept.
//!
//! Example: libnuma, which FFmpeg and OpenBLAS are linked with, asks `get_mempolicy(0, 0, 0, 0, 0)` whether there are any.

use super::{Guest, Kernel, Served, errno, int};
use crate::memory::vma::page_up;
use crate::plain::plain;
use crate::ram::{PAGE, Virt};

/// MPOL_DEFAULT to MPOL_PREFERRED_MANY, as Linux 6.1 has them.
const DEFAULT: i32 = 0;
const PREFERRED: i32 = 1;
const BIND: i32 = 2;
const INTERLEAVE: i32 = 3;
const LOCAL: i32 = 4;
const PREFERRED_MANY: i32 = 5;
/// MPOL_F_STATIC_NODES, MPOL_F_RELATIVE_NODES, MPOL_F_NUMA_BALANCING.
const STATIC: i32 = 1 << 15;
const RELATIVE: i32 = 1 << 14;
const BALANCING: i32 = 1 << 13;
const MODE_FLAGS: i32 = STATIC | RELATIVE | BALANCING;
/// How many nodes kernels know of at the most (CONFIG_NODES_SHIFT=10), in words.
const WORDS: usize = 16;
/// The only node.
const NODE: u64 = 1;

/// What a task has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    mode: i32,
    /// The nodes below 64 that it named.
    nodes: u64,
}
plain!(struct Policy { mode, nodes });

impl Policy {
    /// A mode with its flags and the nodes, if they go together (`sanitize_mpol_flags`, `mpol_new` and `mpol_set_nodemask`).
    fn new(mode: i32, nodes: [u64; WORDS]) -> Served<Policy> {
        let (flags, kind) = (mode & MODE_FLAGS, mode & !MODE_FLAGS);
        let by_user = STATIC | RELATIVE;
        if !(DEFAULT..=PREFERRED_MANY).contains(&kind)
            || flags & by_user == by_user
            || flags & BALANCING != 0 && kind != BIND && kind != PREFERRED_MANY
        {
            return errno(libc::EINVAL);
        }
        let none = nodes == [0; WORDS];
        match kind {
            DEFAULT | LOCAL if !none => return errno(libc::EINVAL),
            DEFAULT => return Ok(Policy::default()),
            LOCAL if flags & by_user != 0 => return errno(libc::EINVAL),
            LOCAL => return Ok(Policy { mode, nodes: 0 }),
            PREFERRED if none && flags & by_user != 0 => return errno(libc::EINVAL),
            PREFERRED if none => return Ok(Policy { mode: LOCAL | flags, nodes: 0 }),
            _ if none => return errno(libc::EINVAL),
            _ => {}
        }
        // Relative ones are counted among those that there are.
        if flags & RELATIVE == 0 && nodes[0] & NODE == 0 {
            return errno(libc::EINVAL);
        }
        Ok(Policy { mode, nodes: if flags & by_user != 0 { nodes[0] } else { NODE } })
    }
}

/// A set of nodes as a program passes it: `count` bits and one more (`get_nodes`).
fn nodes(guest: &mut Guest<'_>, address: Virt, count: u64) -> Served<[u64; WORDS]> {
    let count = count.wrapping_sub(1);
    let mut words = [0; WORDS];
    if count == 0 || address == 0 {
        return Ok(words);
    }
    let Some(count) = usize::try_from(count).ok().filter(|count| *count as u64 <= PAGE * 8) else {
        return errno(libc::EINVAL);
    };
    let mut bytes = vec![0; count.div_ceil(64) * 8];
    guest.read(address, &mut bytes)?;
    for (at, word) in bytes.as_chunks().0.iter().enumerate() {
        let bits = (count - at * 64).min(64);
        let word = u64::from_le_bytes(*word) & (u64::MAX >> (64 - bits));
        match words.get_mut(at) {
            Some(known) => *known = word,
            None if word != 0 => return errno(libc::EINVAL),
            None => {}
        }
    }
    Ok(words)
}

/// set_mempolicy.
pub(super) fn set(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let nodes = nodes(guest, a[1], a[2])?;
    kernel.tasks.current_mut().memory_policy = Policy::new(int(a[0]), nodes)?;
    Ok(0)
}

/// mbind.
pub(super) fn bind(guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    /// MPOL_MF_STRICT, MPOL_MF_MOVE and MPOL_MF_MOVE_ALL.
    const KNOWN: u64 = 7;
    let (start, length) = (a[0], a[1]);
    let nodes = nodes(guest, a[3], a[4])?;
    if a[5] & !KNOWN != 0 || !start.is_multiple_of(PAGE) {
        return errno(libc::EINVAL);
    }
    let Some(end) = page_up(length).and_then(|length| start.checked_add(length)) else {
        return errno(libc::EINVAL);
    };
    Policy::new(int(a[2]), nodes)?;
    let range = start..end;
    let parts = guest.space().mappings().parts(&range).map(|(part, _)| part.end - part.start);
    if parts.sum::<u64>() == end - start { Ok(0) } else { errno(libc::EFAULT) }
}

/// get_mempolicy.
pub(super) fn get(kernel: &Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    /// MPOL_F_NODE, MPOL_F_ADDR and MPOL_F_MEMS_ALLOWED.
    const OF_NODE: u64 = 1;
    const OF_ADDRESS: u64 = 2;
    const ALLOWED: u64 = 4;
    let [to_mode, to_nodes, count, address, flags, _] = *a;
    if to_nodes != 0 && count < NODE || flags & !(OF_NODE | OF_ADDRESS | ALLOWED) != 0 {
        return errno(libc::EINVAL);
    }
    let policy = kernel.tasks.current().memory_policy;
    let (mode, nodes) = if flags & ALLOWED != 0 {
        if flags != ALLOWED {
            return errno(libc::EINVAL);
        }
        (0, NODE)
    } else {
        if flags & OF_ADDRESS != 0 {
            if guest.space().mappings().find(address).is_none() {
                return errno(libc::EFAULT);
            }
        } else if address != 0 {
            return errno(libc::EINVAL);
        }
        match flags & (OF_NODE | OF_ADDRESS) {
            OF_NODE if policy.mode & !MODE_FLAGS != INTERLEAVE => return errno(libc::EINVAL),
            flags if flags & OF_NODE != 0 => (0, policy.nodes),
            _ => (policy.mode, policy.nodes),
        }
    };
    if to_mode != 0 {
        guest.write(to_mode, &mode.to_le_bytes())?;
    }
    if to_nodes != 0 {
        write_nodes(guest, to_nodes, count, nodes)?;
    }
    Ok(0)
}

/// Writes a set of nodes of which the first 64 matter (`copy_nodes_to_user`).
fn write_nodes(guest: &mut Guest<'_>, address: Virt, count: u64, nodes: u64) -> Served<()> {
    let Some(length) = (count - 1).checked_next_multiple_of(64).map(|bits| bits / 8).filter(|it| *it <= PAGE)
    else {
        return errno(libc::EINVAL);
    };
    let mut bytes = vec![0; usize::try_from(length).expect("at most a page")];
    if let Some(first) = bytes.first_chunk_mut() {
        *first = nodes.to_le_bytes();
    }
    guest.write(address, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(mode: i32, first: u64) -> Option<Policy> {
        let mut nodes = [0; WORDS];
        nodes[0] = first;
        Policy::new(mode, nodes).ok()
    }

    #[test]
    fn policies_name_the_only_node_or_none() {
        assert_eq!(policy(DEFAULT, 0), Some(Policy::default()));
        assert_eq!(policy(BIND, 3), Some(Policy { mode: BIND, nodes: 1 }));
        assert_eq!(policy(BIND | STATIC, 3), Some(Policy { mode: BIND | STATIC, nodes: 3 }));
        assert_eq!(policy(BIND | RELATIVE, 2), Some(Policy { mode: BIND | RELATIVE, nodes: 2 }));
        assert_eq!(policy(PREFERRED, 0), Some(Policy { mode: LOCAL, nodes: 0 }));
        let refused =
            [(DEFAULT, 1), (LOCAL, 1), (BIND, 0), (BIND, 2), (6, 1), (-1, 0), (INTERLEAVE | BALANCING, 1)];
        assert!(refused.iter().all(|&(mode, nodes)| policy(mode, nodes).is_none()));
        assert!(policy(BIND | STATIC | RELATIVE, 1).is_none());
    }
}
