//! memfd_create: a file of the host without a name. Its seals are the host's, but for one: whether it is mapped writable, the
//! host does not know.

use super::super::descriptors::OpenFile;
use super::super::files::open_file;
use super::super::{Guest, Kernel, Served, errno, host, int};
use crate::memory::layout::USER_END;
use crate::ram::Virt;
use std::ffi::CString;
use std::rc::Rc;

/// The longest name, with its zero byte.
const NAME: usize = 250;

pub(in super::super) fn create(kernel: &mut Kernel, guest: &mut Guest<'_>, name: Virt, flags: u64) -> Served {
    let flags = u32::from_le_bytes(int(flags).to_le_bytes());
    let Some(name) = guest.string(name, NAME)? else { return errno(libc::EINVAL) };
    let Ok(name) = CString::new(name) else { return errno(libc::EINVAL) };
    kernel.files().free(0)?;
    let (file, inode) = open_file(guest, &mut || host::memfd(&name, flags))?;
    kernel.files_mut().install(OpenFile::of_file(file, inode), flags & libc::MFD_CLOEXEC != 0, 0)
}

/// F_ADD_SEALS: a file that is mapped writable cannot be sealed against writing.
pub(in super::super) fn seal(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    seals: u64,
) -> Served {
    let object =
        kernel.mapped_shared(file).and_then(|inode| kernel.shared.files.get(&inode)).map(|it| it.object.id);
    let written = object.is_some_and(|object| {
        let all = 0..USER_END;
        guest.spaces.iter().any(|(_, space)| {
            space
                .mappings()
                .shared(&all)
                .any(|(_, id, _, mapping)| id == object && !mapping.attributes.never_written)
        })
    });
    if int(seals) & libc::F_SEAL_WRITE != 0 && written {
        return errno(libc::EBUSY);
    }
    if int(seals) & libc::F_SEAL_FUTURE_WRITE != 0 && written {
        // What is stored from then on could not be written to the host's file.
        return kernel.refuse("F_SEAL_FUTURE_WRITE of a file that is mapped to write", libc::EINVAL);
    }
    guest.input_number(|| host::fcntl(file.host(), libc::F_ADD_SEALS, seals))
}
