//! msync: what was stored in mapped files is written to them.

use super::super::sharing::Inode;
use super::super::{Guest, Kernel, Served, errno, host};
use crate::memory::object::ObjectId;
use crate::memory::vma::page_up;
use crate::ram::{PAGE, Virt};

/// Writes back what is mapped of files in a range; holes are passed over, and told in the end.
pub(in super::super) fn msync(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    start: Virt,
    length: u64,
    flags: i32,
) -> Served {
    let (wait, later) = (flags & libc::MS_SYNC != 0, flags & libc::MS_ASYNC != 0);
    let known = libc::MS_ASYNC | libc::MS_INVALIDATE | libc::MS_SYNC;
    if flags & !known != 0 || !start.is_multiple_of(PAGE) || wait && later {
        return errno(libc::EINVAL);
    }
    let Some(end) = page_up(length).and_then(|length| start.checked_add(length)) else {
        return errno(libc::ENOMEM);
    };
    let range = start..end;
    let mut found: Vec<(ObjectId, std::ops::Range<u64>)> = Vec::new();
    for (part, mapping) in guest.space().mappings().parts(&range) {
        if flags & libc::MS_INVALIDATE != 0 && mapping.attributes.locked {
            return errno(libc::EBUSY);
        }
        let shared = guest.space().mappings().shared(&part);
        found.extend(shared.map(|(part, id, at, _)| (id, at..at + (part.end - part.start))));
    }
    for (object, part) in found {
        let Some((inode, writer)) = kernel.writer_of(object) else { continue };
        write_back(kernel, guest, inode, part)?;
        if wait {
            guest.input_number(|| host::sync_data(writer.host()))?;
        }
    }
    if guest.space().mappings().is_full(&range) { Ok(0) } else { errno(libc::ENOMEM) }
}

fn write_back(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    inode: Inode,
    part: std::ops::Range<u64>,
) -> Served<()> {
    match kernel.write_back(guest, inode, part) {
        Err(super::super::Stop::Errno(_)) => errno(libc::EIO),
        written => written,
    }
}
