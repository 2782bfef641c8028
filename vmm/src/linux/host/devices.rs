//! Devices to which one writes the addresses of buffers, which the kernel then reads and fills: in gretel, whose addresses they would be.
//!
//! Nearly all drivers take pointers by ioctl alone, of which only those that are known are passed on. By the kernel's source, three
//! kinds take them by write: SCSI's generic devices, RDMA's (verbs and connection manager), and input devices of user space. The
//! program is told that it may not open them: EACCES.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};

/// The numbers of drivers (admin-guide/devices.txt): SCSI's generic devices, and RDMA's that have fixed numbers.
const DRIVERS: [u32; 2] = [21, 231];
/// Names of devices in /dev: RDMA's others, and those of user space.
const NAMES: [&str; 2] = ["infiniband/", "uhid"];

/// The file, unless it is such a device.
pub(super) fn plain(file: OwnedFd) -> Result<OwnedFd, i64> {
    let Some(device) = character_device(&file) else { return Ok(file) };
    if !takes_addresses(device, &name_of(device)) {
        return Ok(file);
    }
    let [major, minor] = device;
    tracing::warn!(
        "the device {major}:{minor} is not the program's to open, since it takes addresses by write: EACCES"
    );
    Err(-i64::from(libc::EACCES))
}

/// The numbers of the character device that is open, if it is one.
fn character_device(file: &OwnedFd) -> Option<[u32; 2]> {
    let [_, _, mode, device, _] = super::stat(file.as_raw_fd()).ok()?;
    let is_one = mode & u64::from(libc::S_IFMT) == u64::from(libc::S_IFCHR);
    is_one.then(|| [libc::major(device), libc::minor(device)])
}

/// The device's name in /dev, as the kernel tells it; empty where it does not.
fn name_of([major, minor]: [u32; 2]) -> String {
    let told = fs::read_to_string(format!("/sys/dev/char/{major}:{minor}/uevent")).unwrap_or_default();
    told.lines().find_map(|line| line.strip_prefix("DEVNAME=")).unwrap_or_default().to_owned()
}

fn takes_addresses([major, _]: [u32; 2], name: &str) -> bool {
    DRIVERS.contains(&major) || NAMES.iter().any(|known| name.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_take_addresses_by_write_are_known() {
        for (device, name) in
            [([21, 3], "sg3"), ([231, 192], ""), ([10, 58], "infiniband/rdma_cm"), ([10, 239], "uhid")]
        {
            assert!(takes_addresses(device, name), "{name}");
        }
        for (device, name) in [([1, 3], "null"), ([10, 232], "kvm"), ([5, 2], "ptmx")] {
            assert!(!takes_addresses(device, name), "{name}");
        }
    }

    #[test]
    fn an_ordinary_device_has_its_name() {
        let null = OwnedFd::from(fs::File::open("/dev/null").expect("a device of every Linux"));
        assert_eq!(character_device(&null), Some([1, 3]));
        assert!(plain(null).is_ok());
        assert_eq!(character_device(&OwnedFd::from(fs::File::open("/").expect("a folder"))), None);
    }
}
