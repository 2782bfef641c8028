//! Naming and joining sockets: bind, listen, connect, shutdown, getsockname and getpeername.

use super::address::{self, Here};
use super::or_would_wait;
use crate::linux::host::sockets;
use crate::linux::wait::WOULD_WAIT;
use crate::linux::{Guest, Kernel, Served, Stop, int};

pub(super) fn bind(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let name = address::read(kernel, guest, a[1], a[2])?;
    let (here, socket) = (Here::of(kernel), file.host());
    guest.input_number(|| here.call(&name, || sockets::bind(socket, &name)))?;
    if endpoint.is_unix() {
        // The host may have chosen the name.
        let key = guest.input_bytes(&mut || Ok(here.key(&sockets::name(libc::SYS_getsockname, socket)?)))?;
        kernel.network.ends.named(endpoint, key);
    }
    Ok(0)
}

pub(super) fn listen(kernel: &mut Kernel, guest: &mut Guest<'_>, number: i32, backlog: i32) -> Served {
    let (file, endpoint) = kernel.socket(number)?;
    guest.input_number(|| sockets::listen(file.host(), backlog))?;
    if endpoint.is_unix() {
        let own = kernel.effective();
        kernel.network.ends.listens(endpoint, own);
    }
    Ok(0)
}

/// connect. Asked again, the host says what came of it.
pub(super) fn connect(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let name = address::read(kernel, guest, a[1], a[2])?;
    let (here, socket) = (Here::of(kernel), file.host());
    let connected = guest.input_number(|| {
        let result = here.call(&name, || sockets::connect(socket, &name));
        or_would_wait(socket, result, 0)
    });
    match connected {
        // Its queue is full, and nothing tells when it is not.
        Err(Stop::Errno(WOULD_WAIT)) if endpoint.is_unix() => return kernel.try_later(),
        Err(Stop::Errno(WOULD_WAIT)) => {
            return kernel.wait_for_socket(guest, &file, libc::POLLOUT, 0, libc::EINPROGRESS);
        }
        connected => connected?,
    };
    if endpoint.is_unix() && endpoint.kind != libc::SOCK_DGRAM {
        let key = guest.input_bytes(&mut || Ok(here.key(&name)))?;
        let own = kernel.effective();
        kernel.network.ends.connected(endpoint, &key, own);
    }
    Ok(0)
}

pub(super) fn shutdown(kernel: &mut Kernel, guest: &mut Guest<'_>, number: i32, how: i32) -> Served {
    let (file, _) = kernel.socket(number)?;
    guest.input_number(|| sockets::shutdown(file.host(), how))
}

/// getsockname and getpeername.
pub(super) fn name(kernel: &mut Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    let (file, _) = kernel.socket(int(a[0]))?;
    let name = guest.input_bytes(&mut || sockets::name(call, file.host()))?;
    address::write(guest, &name, a[1], a[2])?;
    Ok(0)
}
