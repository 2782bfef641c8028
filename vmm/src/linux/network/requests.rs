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
const INTERFACES: [u64; 16] = [
    0x8910, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x891f, 0x8921, 0x8927, 0x8933, 0x8935, 0x8942,
    0x8947, 0x8948, 0x8970,
];
/// SIOCGIFCONF: a list of interfaces that have addresses.
const LIST: u64 = 0x8912;
/// SIOCATMARK, SIOCGSTAMP, SIOCGSTAMPNS.
const TOLD: [(u64, usize); 3] = [(0x8905, 4), (0x8906, 16), (0x8907, 16)];
/// SIOCETHTOOL: what an interface's driver tells of it.
const ETHTOOL: u64 = 0x8946;
/// The questions to drivers whose answers have a fixed size, with that size (linux/ethtool.h): settings, driver, wake-up, link,
/// coalescing, rings, pauses, offloading (0x14 to 0x2b), channels, time stamps, module, energy.
const QUESTIONS: [(u32, usize); 20] = [
    (0x01, 44),
    (0x03, 196),
    (0x05, 20),
    (0x0a, 8),
    (0x0e, 92),
    (0x10, 36),
    (0x12, 16),
    (0x14, 8),
    (0x16, 8),
    (0x18, 8),
    (0x1e, 8),
    (0x21, 8),
    (0x23, 8),
    (0x25, 8),
    (0x27, 8),
    (0x2b, 8),
    (0x3c, 36),
    (0x41, 44),
    (0x42, 44),
    (0x44, 40),
];
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
    if request == ETHTOOL {
        return Some(ask_driver(kernel, guest, file, address));
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

/// SIOCETHTOOL: the `struct ifreq` points to the question, which is replaced by the answer.
fn ask_driver(kernel: &mut Kernel, guest: &mut Guest<'_>, file: &OpenFile, address: Virt) -> Served {
    let [first, second, at] = guest.read_words(address)?;
    let question = u32::from_le_bytes(guest.read_array(at)?);
    let Some((_, size)) = QUESTIONS.iter().find(|(known, _)| *known == question) else {
        return kernel.refuse(&format!("ioctl SIOCETHTOOL with command {question:#x}"), libc::EOPNOTSUPP);
    };
    let mut bytes = vec![0; *size];
    guest.read(at, &mut bytes)?;
    check(guest, at, bytes.len() as u64)?;
    guest.input(&mut || {
        let result = host::sockets::ask_driver(file.host(), [first, second], &mut bytes);
        let writes = (result >= 0).then(|| MemoryWrite { address: at, bytes: bytes.clone() });
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
