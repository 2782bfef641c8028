//! Making sockets: socket, socketpair and accept.

use super::{Endpoint, address, credentials, or_would_wait};
use crate::linux::descriptors::OpenFile;
use crate::linux::files::open_host;
use crate::linux::host::sockets;
use crate::linux::passthrough::check;
use crate::linux::wait::WOULD_WAIT;
use crate::linux::{Guest, Kernel, Served, Stop, errno, int};
use std::os::fd::AsRawFd;

/// What may come with the kind of a socket.
const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
/// The families of netlink that the guest may ask: routes and addresses, sockets, changes of devices, and by name.
const NETLINK: [i32; 4] =
    [libc::NETLINK_ROUTE, libc::NETLINK_SOCK_DIAG, libc::NETLINK_KOBJECT_UEVENT, libc::NETLINK_GENERIC];

pub(super) fn socket(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    family: i32,
    kind: i32,
    protocol: i32,
) -> Served {
    match family {
        libc::AF_UNIX | libc::AF_INET | libc::AF_INET6 => {}
        libc::AF_NETLINK if NETLINK.contains(&protocol) => {}
        libc::AF_NETLINK => {
            return kernel.refuse("netlink beyond routes, sockets, devices", libc::EPROTONOSUPPORT);
        }
        _ => {
            let what = "a socket that is neither unix, IPv4, IPv6 nor netlink";
            return kernel.refuse(what, libc::EAFNOSUPPORT);
        }
    }
    let file = open_host(guest, &mut || sockets::socket(family, kind, protocol))?;
    let endpoint = kernel.endpoint(family, kind & !FLAGS);
    kernel.files_mut().install(OpenFile::of_socket(file, endpoint), kind & libc::SOCK_CLOEXEC != 0, 0)
}

pub(super) fn pair(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [family, kind, protocol] = [a[0], a[1], a[2]].map(int);
    if kind & !FLAGS & !0xf != 0 {
        return errno(libc::EINVAL);
    }
    let first = kernel.files().free(0)?;
    kernel.files().free(first + 1)?;
    check(guest, a[3], 8)?;
    let mut ends = None;
    guest.input_number(|| match sockets::socketpair(family, kind, protocol) {
        Ok(made) => {
            ends = Some(made);
            0
        }
        Err(error) => error,
    })?;
    let ends = ends.map_or([None, None], |ends| ends.map(Some));
    let own = kernel.effective();
    let mut numbers = Vec::with_capacity(2);
    for end in ends {
        let endpoint = kernel.endpoint(family, kind & !FLAGS);
        kernel.network.ends.joined(endpoint, own);
        let file = OpenFile::of_socket(end, endpoint);
        let number = kernel.files_mut().install(file, kind & libc::SOCK_CLOEXEC != 0, 0)?;
        numbers.extend(int(number).to_le_bytes());
    }
    guest.write(a[3], &numbers)?;
    Ok(0)
}

/// accept and accept4.
pub(super) fn accept(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6], flags: i32) -> Served {
    if flags & !FLAGS != 0 {
        return errno(libc::EINVAL);
    }
    let (listener, endpoint) = kernel.socket(int(a[0]))?;
    kernel.files().free(0)?;
    let mut accepted = None;
    let taken = guest.input_number(|| match sockets::accept(listener.host(), flags) {
        Ok(made) => {
            accepted = Some(made);
            0
        }
        Err(error) => or_would_wait(listener.host(), error, 0),
    });
    match taken {
        Err(Stop::Errno(WOULD_WAIT)) => {
            return kernel.wait_for_socket(guest, &listener, libc::POLLIN, 0, libc::EAGAIN);
        }
        taken => taken?,
    };
    let wanted = a[1] != 0;
    let (file, name) = accepted.map_or((None, Vec::new()), |(file, name)| (Some(file), name));
    let new = kernel.endpoint(endpoint.family, endpoint.kind);
    if wanted || endpoint.is_unix() {
        let mut parts = guest.input_parts(&mut || {
            vec![
                name.clone(),
                vec![u8::from(file.as_ref().is_some_and(|file| credentials::is_inside(file.as_raw_fd())))],
            ]
        })?;
        let name = parts.next().unwrap_or_default();
        if parts.next().is_some_and(|inside| inside == [1]) {
            kernel.network.ends.accepted(endpoint, new);
        }
        if wanted {
            address::write(guest, &name, a[1], a[2])?;
        }
    }
    kernel.files_mut().install(OpenFile::of_socket(file, new), flags & libc::SOCK_CLOEXEC != 0, 0)
}

impl Kernel {
    /// A new socket.
    pub(in crate::linux) fn endpoint(&mut self, family: i32, kind: i32) -> Endpoint {
        self.sweep_ends();
        Endpoint { family, kind, object: self.new_object() }
    }
}
