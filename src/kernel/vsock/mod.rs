//! `--vsock`: connections between the guest and programs of this host, in the manner of Firecracker.
//!
//! A program of the host connects to the Unix socket PATH, says `CONNECT 52` and a line feed, and gets `OK` and a number back if a program
//! of the guest listens on port 52. A program of the guest that connects to port 52 of the host (address 2) comes to whoever listens at
//! the Unix socket `PATH_52`. `peers` is what the device of the guest is answered, `threads` carries bytes to and from the sockets.

mod peers;
mod threads;

pub(super) use peers::Peers;
pub(super) use threads::{News, Tell};

use crate::exit::{Code, Failure};
use crate::shell;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket at which programs of this host ask for connections.
pub(super) struct Socket {
    path: PathBuf,
    listener: UnixListener,
}

impl Socket {
    /// Listens at a path where nothing is yet.
    pub(super) fn open(path: &Path) -> Result<Socket, Failure> {
        let listener = UnixListener::bind(path).map_err(|error| {
            let help = help(path, &error);
            Failure::new(Code::Host, format!("--vsock {}: {error}{help}", path.display()))
        })?;
        Ok(Socket { path: path.to_owned(), listener })
    }
}

/// What to do where nobody can listen.
fn help(path: &Path, error: &io::Error) -> String {
    /// What the address of a Unix socket has room for.
    const LONGEST: usize = 107;
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match error.kind() {
        io::ErrorKind::AddrInUse => taken(path),
        io::ErrorKind::NotFound => {
            format!("; there is no folder {}: make it first", folder.display())
        }
        io::ErrorKind::PermissionDenied => {
            format!("; this user may make nothing in {}: name another folder", folder.display())
        }
        io::ErrorKind::InvalidInput => {
            format!("; a socket's path has at most {LONGEST} bytes: name a shorter one")
        }
        _ => String::new(),
    }
}

/// What to do about what is at the path.
fn taken(path: &Path) -> String {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if !is_socket {
        return "; something is there that is no socket: name another path".to_owned();
    }
    match UnixStream::connect(path) {
        Ok(_) => "; another program listens there, perhaps another recording: name another path".to_owned(),
        Err(_) => format!("; nobody listens there any more: `rm {}`", shell::word(path)),
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // There is nobody to tell; the next recording says that it is there.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests;
