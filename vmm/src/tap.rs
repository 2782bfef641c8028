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

/// Opens the TAP interface of this name, which is made if there is none and this process may do so. Each read is a frame, as is each write.
///
/// # Errors
/// Where the kernel has no TAP, the name is none, or this process may not have it.
pub fn open(name: &OsStr) -> io::Result<File> {
    const TUNSETIFF: u64 = 0x4004_54ca;
    /// `IFF_TAP`, and `IFF_NO_PI`: nothing is in front of frames.
    const FLAGS: u16 = 0x0002 | 0x1000;
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= NAME || bytes.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a name of an interface has 1 to 15 bytes"));
    }
    let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
    let mut request = [0_u8; REQUEST];
    request[..bytes.len()].copy_from_slice(bytes);
    request[NAME..NAME + 2].copy_from_slice(&FLAGS.to_le_bytes());
    // SAFETY: the kernel reads and writes a `struct ifreq`, which has as many bytes as `request`; the descriptor is open.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(file) }
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
}
