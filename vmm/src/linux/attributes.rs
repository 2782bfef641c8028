//! Extended attributes of files: the host's own. The files of /proc have none.

use super::descriptors::{OpenFile, Source};
use super::host::{self, paths};
use super::passthrough::path;
use super::proc::{Last, Place, find};
use super::{Guest, Kernel, Served, errno, int};
use crate::gate::{Input, MemoryWrite};
use crate::memory::space::Access;
use crate::ram::Virt;
use paths::Bearer;
use std::ffi::CString;
use std::rc::Rc;

/// The longest value, and the longest list of names (XATTR_SIZE_MAX and XATTR_LIST_MAX of linux/limits.h).
const LONGEST: u64 = 65_536;
/// The longest name (XATTR_NAME_MAX).
const LONGEST_NAME: usize = 255;

/// Whose attributes a call is about.
enum Of {
    Path(Place, Last),
    File(Rc<OpenFile>),
}

impl Of {
    /// Calls the host.
    fn ask(&self, mut call: impl FnMut(Bearer<'_>) -> i64) -> i64 {
        match self {
            Of::Path(place, last) => {
                host::by_name(place, matches!(last, Last::Kept), |path| call(Bearer::Path(path)))
            }
            Of::File(file) => call(Bearer::File(file.host())),
        }
    }
}

/// Whose they are, by the call's first argument; `None` for a file that has none.
fn bearer(kernel: &Kernel, guest: &mut Guest<'_>, call: i64, argument: u64) -> Served<Option<Of>> {
    let last = match call {
        libc::SYS_fgetxattr | libc::SYS_fsetxattr | libc::SYS_flistxattr | libc::SYS_fremovexattr => {
            let file = kernel.files().get(int(argument))?;
            let has = !matches!(file.source(), Some(Source::Proc(_)));
            return Ok(has.then_some(Of::File(file)));
        }
        libc::SYS_lgetxattr | libc::SYS_lsetxattr | libc::SYS_llistxattr | libc::SYS_lremovexattr => {
            Last::Kept
        }
        _ => Last::Followed,
    };
    let name = path(guest, argument)?;
    Ok(match find(kernel, guest, libc::AT_FDCWD, &name, last)? {
        Place::Proc(_) => None,
        place => Some(Of::Path(place, last)),
    })
}

fn name(guest: &mut Guest<'_>, address: Virt) -> Served<CString> {
    let name = path(guest, address)?;
    match name.as_bytes().len() {
        0 => errno(libc::ERANGE),
        length if length > LONGEST_NAME => errno(libc::ERANGE),
        _ => Ok(name),
    }
}

pub(super) fn get(kernel: &Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    let of = bearer(kernel, guest, call, a[0])?;
    let name = name(guest, a[1])?;
    let Some(of) = of else { return errno(libc::EOPNOTSUPP) };
    told(guest, a[2], a[3], |room| of.ask(|of| paths::attribute(of, &name, room)))
}

pub(super) fn list(kernel: &Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    let Some(of) = bearer(kernel, guest, call, a[0])? else { return Ok(0) };
    told(guest, a[1], a[2], |room| of.ask(|of| paths::attributes(of, room)))
}

/// What the host writes to a buffer, which may be said to be longer than it is; without room, how much that would be.
fn told(guest: &mut Guest<'_>, address: Virt, size: u64, mut ask: impl FnMut(&mut [u8]) -> i64) -> Served {
    let size = size.min(LONGEST);
    let usable = guest.accessible(address, size, Access::Write);
    guest.input(&mut || {
        let mut room = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut result = ask(&mut room);
        if size > 0 && u64::try_from(result).is_ok_and(|length| length > usable) {
            result = -i64::from(libc::EFAULT);
        }
        room.truncate(usize::try_from(result).unwrap_or(0));
        Input::Bytes { result, writes: vec![MemoryWrite { address, bytes: room }] }
    })
}

pub(super) fn set(kernel: &Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    let of = bearer(kernel, guest, call, a[0])?;
    let name = name(guest, a[1])?;
    if a[3] > LONGEST {
        return errno(libc::E2BIG);
    }
    let mut value = vec![0; usize::try_from(a[3]).unwrap_or(0)];
    guest.read(a[2], &mut value)?;
    let Some(of) = of else { return errno(libc::EOPNOTSUPP) };
    guest.input_number(|| of.ask(|of| paths::set_attribute(of, &name, &value, int(a[4]))))
}

pub(super) fn remove(kernel: &Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    let of = bearer(kernel, guest, call, a[0])?;
    let name = name(guest, a[1])?;
    let Some(of) = of else { return errno(libc::EOPNOTSUPP) };
    guest.input_number(|| of.ask(|of| paths::remove_attribute(of, &name)))
}
