//! FICLONE and FICLONERANGE: a file, or a part of it, that shares its blocks with another one. The host does it where its file system
//! can; ext4 and tmpfs cannot, and `cp` then copies.

use super::descriptors::OpenFile;
use super::{Guest, Kernel, Served, errno, host, int};
use crate::ram::Virt;
use std::rc::Rc;

const FICLONE: u64 = 0x4004_9409;
const FICLONERANGE: u64 = 0x4020_940d;

const MAPPED: &str = "a clone (FICLONE) over a file that is mapped shared";

/// Serves the requests, with a descriptor or a `struct file_clone_range` as argument; `None` for others.
pub(super) fn ioctl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    to: &Rc<OpenFile>,
    request: u64,
    argument: u64,
) -> Option<Served> {
    match request {
        FICLONE => Some(whole(kernel, guest, to, int(argument))),
        FICLONERANGE => Some(part(kernel, guest, to, argument)),
        _ => None,
    }
}

fn whole(kernel: &mut Kernel, guest: &mut Guest<'_>, to: &Rc<OpenFile>, from: i32) -> Served {
    let from = kernel.files().get(from)?;
    before(kernel, guest, [&from, to])?;
    guest.input_number(|| host::ioctl_value(to.host(), FICLONE, from.host()))
}

fn part(kernel: &mut Kernel, guest: &mut Guest<'_>, to: &Rc<OpenFile>, address: Virt) -> Served {
    let mut range: [u8; 32] = guest.read_array(address)?;
    let (number, _) = range.split_first_chunk().expect("32 bytes");
    let from = kernel.files().get(int(u64::from_le_bytes(*number)))?;
    before(kernel, guest, [&from, to])?;
    guest.input_number(|| {
        range[..8].copy_from_slice(&i64::from(from.host()).to_le_bytes());
        host::ioctl(to.host(), FICLONERANGE, &mut range)
    })
}

/// What was stored in mapped files is in them. What the guest alone has is on a file system of its own; and whoever has mapped the file
/// that is written would not see it.
fn before(kernel: &mut Kernel, guest: &mut Guest<'_>, [from, to]: [&Rc<OpenFile>; 2]) -> Served<()> {
    let own = |file: &OpenFile| file.source().is_some() || file.queue().is_some() || file.process().is_some();
    if own(from) || own(to) {
        return errno(libc::EXDEV);
    }
    if kernel.mapped_shared(to).is_some() {
        return kernel.refuse(MAPPED, libc::EOPNOTSUPP).map(|_| ());
    }
    kernel.before_read(guest, from, None, usize::MAX)
}
