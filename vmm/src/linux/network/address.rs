//! The names of sockets: `struct sockaddr` as programs write and read it, and where the paths of unix sockets lead.

use crate::linux::host::sockets::{self, ADDRESS};
use crate::linux::proc::{Last, Place, find};
use crate::linux::{Guest, Kernel, Served, errno, int};
use crate::ram::Virt;
use std::ffi::CString;
use std::os::fd::RawFd;

/// What tells one unix socket's name from another's: device and number of its file, or the abstract name. Empty for none.
pub(super) type Key = Vec<u8>;

/// Where the paths of a program begin, and its umask.
#[derive(Clone, Copy)]
pub(super) struct Here {
    directory: RawFd,
    umask: u32,
}

impl Here {
    pub(super) fn of(kernel: &Kernel) -> Here {
        let place = kernel.place();
        Here { directory: place.directory.host(), umask: place.umask }
    }

    /// Calls the host with a name. A path begins where the program is, so the call is made there.
    pub(super) fn call(self, name: &[u8], call: impl FnOnce() -> i64 + Send) -> i64 {
        if path(name).is_some() { sockets::in_place(self.directory, self.umask, call) } else { call() }
    }

    /// What a name is compared by.
    pub(super) fn key(self, name: &[u8]) -> Key {
        if let Some(path) = path(name) {
            let file = sockets::file_at(self.directory, &path);
            return file
                .map_or_else(Vec::new, |file| [b"/".to_vec(), file.map(u64::to_le_bytes).concat()].concat());
        }
        match name {
            [1, 0, abstracted @ ..] => abstracted.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The path in the name of a unix socket.
fn path(name: &[u8]) -> Option<CString> {
    match name {
        [1, 0, path @ ..] if path.first().is_some_and(|byte| *byte != 0) => {
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            CString::new(&path[..end]).ok()
        }
        _ => None,
    }
}

/// Reads a name. Those that lead into /proc, where there are no sockets, are not found.
pub(super) fn read(kernel: &Kernel, guest: &mut Guest<'_>, address: Virt, length: u64) -> Served<Vec<u8>> {
    let length = match usize::try_from(int(length)) {
        Ok(length) if length <= ADDRESS => length,
        _ => return errno(libc::EINVAL),
    };
    let mut name = vec![0; length];
    guest.read(address, &mut name)?;
    let Some(path) = path(&name) else { return Ok(name) };
    match find(kernel, guest, libc::AT_FDCWD, &path, Last::Followed)? {
        Place::Host(_, path) if kernel.root().is_some() => within_root(path),
        Place::Host(..) => Ok(name),
        Place::Proc(_) | Place::Open(_) => errno(libc::ENOENT),
    }
}

/// The name by which the host finds the socket of who has another root.
fn within_root(path: CString) -> Served<Vec<u8>> {
    let name = [&[1, 0], path.as_bytes_with_nul()].concat();
    if name.len() > ADDRESS { errno(libc::ENAMETOOLONG) } else { Ok(name) }
}

/// Writes a name as far as there is room, and its length.
pub(super) fn write(guest: &mut Guest<'_>, name: &[u8], address: Virt, length_at: Virt) -> Served<()> {
    let Ok(room) = usize::try_from(i32::from_le_bytes(guest.read_array(length_at)?)) else {
        return errno(libc::EINVAL);
    };
    guest.write(address, &name[..room.min(name.len())])?;
    guest.write(length_at, &u32::try_from(name.len()).unwrap_or(0).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_unix_sockets_are_paths() {
        let name = |bytes: &[u8]| path(bytes).map(CString::into_bytes);
        assert_eq!(name(b"\x01\0a/b\0rest"), Some(b"a/b".to_vec()));
        assert_eq!(name(b"\x01\0a"), Some(b"a".to_vec()), "it needs no zero byte");
        assert_eq!(name(b"\x01\0\0abstract"), None);
        assert_eq!(name(b"\x01\0"), None, "unnamed");
        assert_eq!(name(b"\x02\0abc"), None, "IPv4");
    }

    #[test]
    fn a_file_has_one_key_whatever_path_leads_to_it() {
        let here = Here { directory: libc::AT_FDCWD, umask: 0 };
        let key = here.key(b"\x01\0/dev/null");
        assert_eq!(key, here.key(b"\x01\0/dev/../dev/null"));
        assert!(key.len() == 17 && key != here.key(b"\x01\0/dev/zero"));
        assert_eq!(here.key(b"\x01\0\0name"), b"\0name");
        assert_eq!(here.key(b"\x01\0/no/such/file"), b"");
    }
}
