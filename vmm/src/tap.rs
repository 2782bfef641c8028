//! A TAP interface of this host: whole Ethernet frames, as a file (Linux, networking/tuntap.rst).

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// The bytes of a name of an interface, with a zero behind it.
const NAME: usize = 16;
/// The bytes of `struct ifreq`.
const REQUEST: usize = 40;

/// Opens the TAP interface of this name, which somebody has made. Each read is a frame, as is each write.
///
/// The kernel would make an interface that is not there, for who may do so: one without an address, to which nothing leads, and which is
/// gone with the file. A name with a typing mistake would look like a network on which nobody answers.
///
/// # Errors
/// `NotFound` where there is no such interface, `InvalidInput` where the name is none; else what the kernel says: it has no TAP, the
/// interface is of another kind or in use, or this process may not have it.
pub fn open(name: &OsStr) -> io::Result<File> {
    const TUNSETIFF: u64 = 0x4004_54ca;
    /// `IFF_TAP`, and `IFF_NO_PI`: nothing is in front of frames.
    const FLAGS: u16 = 0x0002 | 0x1000;
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= NAME || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name of an interface has 1 to 15 bytes"));
    }
    if !is_there(bytes) {
        return Err(io::Error::new(io::ErrorKind::NotFound, "there is no such interface"));
    }
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; REQUEST];
    request[..bytes.len()].copy_from_slice(bytes);
    request[NAME..NAME + 2].copy_from_slice(&FLAGS.to_le_bytes());
    // SAFETY: the kernel reads and writes a `struct ifreq`, which has as many bytes as `request`; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
}

/// Whether this network namespace has an interface of this name, which is shorter than `NAME` and has no zero in it.
fn is_there(name: &[u8]) -> bool {
    let mut with_zero = [0_u8; NAME];
    with_zero[..name.len()].copy_from_slice(name);
    // SAFETY: it is a string with a zero at its end, since the name is shorter than the array.
    unsafe { libc::if_nametoindex(with_zero.as_ptr().cast()) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_has_is_refused() {
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            assert_eq!(open(OsStr::new(name)).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn an_interface_that_is_not_there_is_not_made() {
        let name = "gretel-no-such";
        assert_eq!(open(OsStr::new(name)).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!is_there(name.as_bytes()));
        assert!(is_there(b"lo"));
    }
}
