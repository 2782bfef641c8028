//! getsockopt and setsockopt: the host's, for the options whose values are plain bytes. Those with pointers or descriptors in
//! them are refused, but for the ones that are ours.

use super::credentials::{Ucred, is_inside};
use crate::linux::host::sockets;
use crate::linux::passthrough::check;
use crate::linux::{Guest, Kernel, Served, errno, int};
use std::ops::RangeInclusive;

/// The options that are passed on: a level, and numbers (asm-generic/socket.h and the files of linux/ for the others).
const PLAIN: &[(i32, &[RangeInclusive<i32>])] = &[
    // Not filters (26, 27, 50 to 52), buffers that the kernel reads later (60), descriptors (76, 77), memory of devices.
    (libc::SOL_SOCKET, &[1..=25, 28..=49, 53..=59, 61..=75, 81..=82]),
    // Not the tables of filters (64 and up).
    (libc::SOL_IP, &[1..=52]),
    // Not memory that the kernel maps (35).
    (libc::SOL_TCP, &[1..=34, 36..=37]),
    (libc::SOL_UDP, &[1..=104]),
    (libc::SOL_IPV6, &[1..=63, 66..=67, 70..=78]),
    (libc::SOL_ICMPV6, &[1..=1]),
    (libc::SOL_RAW, &[1..=1]),
    (libc::SOL_NETLINK, &[1..=12]),
];

/// The numbers that a level may have: all protocols', and those of SOL_* (linux/socket.h).
const LEVELS: RangeInclusive<i32> = 0..=300;

/// The longest value.
const LONGEST: usize = 1 << 16;
/// Options of SOL_SOCKET have smaller numbers.
const LAST: i32 = 128;
/// SO_ZEROCOPY: the kernel would read our buffers later.
const ZERO_COPY: i32 = 60;

fn is_plain(level: i32, option: i32) -> bool {
    PLAIN
        .iter()
        .any(|(known, options)| *known == level && options.iter().any(|range| range.contains(&option)))
}

/// What is said of an option that is not passed on; `no_level`: what the call says where there is no such level.
fn refuse(kernel: &mut Kernel, level: i32, option: i32, no_level: i32) -> Served {
    if !LEVELS.contains(&level) {
        return errno(no_level);
    }
    let what = match (level, option) {
        // No kernel has it.
        (libc::SOL_SOCKET, LAST..) => return errno(libc::ENOPROTOOPT),
        (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER | libc::SO_ATTACH_BPF) => "SO_ATTACH_FILTER",
        (libc::SOL_SOCKET, ZERO_COPY) => "SO_ZEROCOPY",
        (libc::SOL_SOCKET, _) => "an option of sockets",
        (libc::SOL_IP | libc::SOL_IPV6, _) => "an option of IP that has pointers in it",
        _ => "an option of a protocol",
    };
    kernel.refuse(what, libc::ENOPROTOOPT)
}

pub(super) fn set(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let (level, option) = (int(a[1]), int(a[2]));
    let Ok(length) = usize::try_from(int(a[4])) else { return errno(libc::EINVAL) };
    if endpoint.is_unix() && level != libc::SOL_SOCKET {
        return errno(libc::EOPNOTSUPP);
    }
    if !is_plain(level, option) {
        return refuse(kernel, level, option, libc::ENOPROTOOPT);
    }
    let mut bytes = vec![0; length.min(LONGEST)];
    guest.read(a[3], &mut bytes)?;
    guest.input_number(|| sockets::set_option(file.host(), level, option, &bytes))?;
    if endpoint.is_unix() && (level, option) == (libc::SOL_SOCKET, libc::SO_PASSCRED) {
        kernel.network.ends.senders_wanted |= bytes.iter().take(4).any(|byte| *byte != 0);
    }
    Ok(0)
}

pub(super) fn get(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let (level, option) = (int(a[1]), int(a[2]));
    let Ok(room) = usize::try_from(i32::from_le_bytes(guest.read_array(a[4])?)) else {
        return errno(libc::EINVAL);
    };
    if endpoint.is_unix() && level != libc::SOL_SOCKET {
        return errno(libc::EOPNOTSUPP);
    }
    if !is_plain(level, option) {
        return refuse(kernel, level, option, libc::EOPNOTSUPP);
    }
    check(guest, a[4], 4)?;
    let socket = file.host();
    let mut bytes = if endpoint.is_unix() && (level, option) == (libc::SOL_SOCKET, libc::SO_PEERCRED) {
        let mut parts = guest.input_parts(&mut || {
            let told = sockets::option(socket, level, option, Ucred::SIZE).unwrap_or_default();
            vec![vec![u8::from(is_inside(socket))], told]
        })?;
        match parts.next().is_some_and(|inside| inside == [1]) {
            true => kernel.network.ends.peer(endpoint).bytes(),
            false => parts.next().unwrap_or_default(),
        }
    } else {
        guest.input_bytes(&mut || sockets::option(socket, level, option, room.min(LONGEST)))?
    };
    bytes.truncate(room);
    guest.write(a[3], &bytes)?;
    guest.write(a[4], &u32::try_from(bytes.len()).unwrap_or(0).to_le_bytes())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_pointers_or_descriptors_are_not_passed_on() {
        for (level, option) in [
            (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER),
            (libc::SOL_SOCKET, libc::SO_ATTACH_BPF),
            (libc::SOL_SOCKET, ZERO_COPY),
            // SO_PASSPIDFD, SO_PEERPIDFD
            (libc::SOL_SOCKET, 76),
            (libc::SOL_SOCKET, 77),
            // IPT_SO_SET_REPLACE, IP6T_SO_SET_REPLACE
            (libc::SOL_IP, 64),
            (libc::SOL_IPV6, 64),
            // TCP_ZEROCOPY_RECEIVE
            (libc::SOL_TCP, 35),
            (-1, 1),
        ] {
            assert!(!is_plain(level, option), "{level} {option}");
        }
        assert!(is_plain(libc::SOL_SOCKET, libc::SO_ERROR) && is_plain(libc::SOL_TCP, libc::TCP_NODELAY));
    }
}
