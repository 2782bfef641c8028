//! The calls that take a path or a descriptor, where it leads to a file of /proc.

use super::super::{Guest, Kernel, Served, errno, int};
use super::tree::{Target, target};
use super::{Node, attributes, open};
use crate::memory::space::Access;
use crate::ram::Virt;

/// A call by path: of those that ask, the answer; what is in /proc cannot be made, changed, moved or removed.
pub(in super::super) fn by_path(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    call: i64,
    node: &Node,
    a: &[u64; 6],
) -> Served {
    match call {
        libc::SYS_stat | libc::SYS_lstat => attributes::stat(kernel, guest, node, a[1]),
        libc::SYS_newfstatat => attributes::stat(kernel, guest, node, a[2]),
        libc::SYS_statx => attributes::statx(kernel, guest, node, a[4]),
        libc::SYS_statfs => attributes::statfs(guest, a[1]),
        libc::SYS_access => attributes::access(kernel, guest, node, a[1]),
        libc::SYS_faccessat | libc::SYS_faccessat2 => attributes::access(kernel, guest, node, a[2]),
        libc::SYS_readlink => read_link(kernel, guest, node, (a[1], a[2])),
        libc::SYS_readlinkat => read_link(kernel, guest, node, (a[2], a[3])),
        libc::SYS_mkdir | libc::SYS_mkdirat | libc::SYS_mknod | libc::SYS_mknodat => errno(libc::EEXIST),
        libc::SYS_symlink | libc::SYS_symlinkat => errno(libc::EEXIST),
        libc::SYS_truncate => errno(libc::EINVAL),
        libc::SYS_rmdir if matches!(node, Node::Root) => errno(libc::EBUSY),
        libc::SYS_unlinkat if matches!(node, Node::Root) && int(a[2]) & libc::AT_REMOVEDIR != 0 => {
            errno(libc::EBUSY)
        }
        libc::SYS_link | libc::SYS_linkat => errno(libc::EXDEV),
        _ => errno(libc::EPERM),
    }
}

/// readlink: where a link leads, cut to the buffer.
fn read_link(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node, (buffer, room): (Virt, u64)) -> Served {
    if int(room) <= 0 {
        return errno(libc::EINVAL);
    }
    let mut text = match target(kernel, node)? {
        None => return errno(libc::EINVAL),
        Some(Target::Near(text)) => text.into_bytes(),
        Some(Target::Path(path)) => path,
        Some(Target::Open(file)) => open::of_open(kernel, guest, &file)?,
    };
    let room = guest.accessible(buffer, room.min(4096), Access::Write);
    if room == 0 {
        return errno(libc::EFAULT);
    }
    text.truncate(usize::try_from(room).unwrap_or(usize::MAX));
    guest.write(buffer, &text)?;
    Ok(text.len() as u64)
}

/// A call by descriptor; `None` if the host answers it for /dev/null as for a file of /proc.
pub(in super::super) fn by_descriptor(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    call: i64,
    object: u64,
    a: &[u64; 6],
) -> Option<Served> {
    Some(match call {
        libc::SYS_fstat => {
            open::node_of(kernel, object).and_then(|node| attributes::stat(kernel, guest, &node, a[1]))
        }
        libc::SYS_fstatfs => attributes::statfs(guest, a[1]),
        libc::SYS_lseek => open::seek(kernel, object, a[1], a[2]),
        libc::SYS_getdents => open::entries(kernel, guest, object, (a[1], a[2]), false),
        libc::SYS_getdents64 => open::entries(kernel, guest, object, (a[1], a[2]), true),
        libc::SYS_ftruncate | libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range => {
            errno(libc::EINVAL)
        }
        libc::SYS_fallocate => errno(libc::EOPNOTSUPP),
        libc::SYS_fchmod | libc::SYS_fchown => errno(libc::EPERM),
        libc::SYS_readahead | libc::SYS_fadvise64 => errno(libc::EINVAL),
        _ => return None,
    })
}
