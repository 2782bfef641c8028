//! ioctl on sockets: interfaces, and what waits in queues.

use crate::gate::{Input, MemoryWrite};
use crate::linux::descriptors::OpenFile;
use crate::linux::host;
use crate::linux::passthrough::check;
use crate::linux::{Guest, Kernel, Served, errno};
use crate::ram::Virt;

/// `struct ifreq`: a name or a number, and what is asked about it.
const INTERFACE: usize = 40;
/// The requests that take one and give it back (linux/sockios.h): names, flags, addresses, sizes, numbers.
const INTERFACES: [u64; 12] =
    [0x8910, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8933, 0x8942, 0x8970];
/// SIOCGIFCONF: a list of interfaces that have addresses.
const LIST: u64 = 0x8912;
/// SIOCATMARK, SIOCGSTAMP, SIOCGSTAMPNS.
const TOLD: [(u64, usize); 3] = [(0x8905, 4), (0x8906, 16), (0x8907, 16)];
/// FIOASYNC, FIOSETOWN, SIOCSPGRP: signals when something happens.
const ASYNCHRONOUS: [u64; 3] = [libc::FIOASYNC, 0x8901, 0x8902];
/// The longest list.
const LONGEST: usize = 1 << 16;

/// Serves a request, if it is one of sockets.
pub(in crate::linux) fn serve(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &OpenFile,
    request: u64,
    address: Virt,
) -> Option<Served> {
    if ASYNCHRONOUS.contains(&request) {
        kernel.say_once("SIGIO is not sent when something happens on a socket (FIOASYNC, FIOSETOWN)");
        return Some(Ok(0));
    }
    if INTERFACES.contains(&request) {
        return Some(ask(guest, file, request, address, INTERFACE, true));
    }
    if let Some((_, size)) = TOLD.iter().find(|(known, _)| *known == request) {
        return Some(ask(guest, file, request, address, *size, false));
    }
    (request == LIST).then(|| list(guest, file, address))
}

/// Asks the host about so many bytes, which it reads first (`given`) and writes.
fn ask(
    guest: &mut Guest<'_>,
    file: &OpenFile,
    request: u64,
    address: Virt,
    size: usize,
    given: bool,
) -> Served {
    let mut bytes = vec![0; size];
    if given {
        guest.read(address, &mut bytes)?;
    }
    check(guest, address, size as u64)?;
    guest.input(&mut || {
        let result = host::ioctl(file.host(), request, &mut bytes);
        let writes = (result >= 0).then(|| MemoryWrite { address, bytes: bytes.clone() });
        Input::Bytes { result, writes: writes.into_iter().collect() }
    })
}

/// `struct ifconf` has a length, and the address of the list.
fn list(guest: &mut Guest<'_>, file: &OpenFile, address: Virt) -> Served {
    let [length, to] = guest.read_words(address)?;
    let Ok(room) = usize::try_from(crate::linux::int(length)) else { return errno(libc::EINVAL) };
    let room = if to == 0 { None } else { Some(room.min(LONGEST)) };
    let list = guest.input_bytes(&mut || host::sockets::interfaces(file.host(), room))?;
    // Without a list, the host tells how long it would be.
    let (list, length) = match (room, list.first_chunk()) {
        (None, Some(length)) => (&[][..], i32::from_le_bytes(*length)),
        _ => (&list[..], i32::try_from(list.len()).unwrap_or(0)),
    };
    guest.write(to, list)?;
    guest.write(address, &length.to_le_bytes())?;
    Ok(0)
}
