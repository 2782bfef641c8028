//! sendmsg and recvmsg: messages with a `struct msghdr`, and many at once.

use super::control;
use super::receive::receive;
use super::send::{Message, gather, send};
use super::{Endpoint, address};
use crate::linux::descriptors::OpenFile;
use crate::linux::host::sockets::ADDRESS;
use crate::linux::transfer::{Segment, segments};
use crate::linux::wait::Wait;
use crate::linux::{Guest, Kernel, Served, Stop, errno, int, time};
use crate::ram::Virt;
use std::rc::Rc;

/// `struct msghdr`: its size, and where its fields are.
const HEADER: u64 = 56;
const NAME_LENGTH: u64 = 8;
const CONTROL_LENGTH: u64 = 40;
const FLAGS: u64 = 48;
/// `struct mmsghdr`: a header, and how many bytes were transferred.
const STRIDE: u64 = 64;
/// As many buffers as a message has at most (UIO_MAXIOV), and as many messages as one call takes.
const MOST: u64 = 1024;

/// A `struct msghdr`.
struct Header {
    at: Virt,
    name: Virt,
    name_length: usize,
    segments: Vec<Segment>,
    control: Virt,
    control_length: u64,
}

impl Header {
    fn read(guest: &mut Guest<'_>, at: Virt) -> Served<Header> {
        let [name, name_length, vector, count, control, control_length, _] = guest.read_words::<7>(at)?;
        let name_length = match usize::try_from(int(name_length)) {
            _ if name == 0 => 0,
            Ok(length) => length.min(ADDRESS),
            Err(_) => return errno(libc::EINVAL),
        };
        if count > MOST {
            return errno(libc::EMSGSIZE);
        }
        let segments = segments(guest, vector, count)?;
        Ok(Header { at, name, name_length, segments, control, control_length })
    }
}

pub(super) fn sendmsg(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let socket = kernel.socket(int(a[0]))?;
    let done = kernel.again.done;
    send_one(kernel, guest, (&socket.0, socket.1), a[1], int(a[2]), done)
}

fn send_one(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    (file, endpoint): (&Rc<OpenFile>, Endpoint),
    at: Virt,
    flags: i32,
    done: usize,
) -> Served {
    let header = Header::read(guest, at)?;
    let name = match header.name_length {
        0 => Vec::new(),
        length => address::read(kernel, guest, header.name, length as u64)?,
    };
    let (control, cargo) = match (header.control, header.control_length) {
        (0, _) | (_, 0) => Default::default(),
        (address, length) => control::outgoing(kernel, guest, endpoint, address, length)?,
    };
    let bytes = gather(guest, endpoint, &header.segments)?;
    let message = Message { bytes, name, control, cargo };
    send(kernel, guest, (file, endpoint), &message, flags, done)
}

pub(super) fn recvmsg(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let socket = kernel.socket(int(a[0]))?;
    let done = kernel.again.done;
    receive_one(kernel, guest, (&socket.0, socket.1), a[1], int(a[2]), done)
}

fn receive_one(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    socket: (&Rc<OpenFile>, Endpoint),
    at: Virt,
    flags: i32,
    done: usize,
) -> Served {
    let header = Header::read(guest, at)?;
    let received = receive(kernel, guest, socket, &header.segments, flags, true, done)?;
    let details = received.details;
    if header.name != 0 {
        // The room for it is what the header says, which is where its length goes.
        let room = details.name.len().min(header.name_length);
        guest.write(header.name, &details.name[..room])?;
        let length = u32::try_from(details.name.len()).unwrap_or(0);
        guest.write(header.at + NAME_LENGTH, &length.to_le_bytes())?;
    }
    let room = (header.control, header.control_length);
    let close_on_exec = flags & libc::MSG_CMSG_CLOEXEC != 0;
    let (length, truncated) = control::incoming(kernel, guest, &details, room, close_on_exec)?;
    let told = details.flags | if truncated { libc::MSG_CTRUNC } else { 0 };
    guest.write(header.at + FLAGS, &told.to_le_bytes())?;
    guest.write_words(header.at + CONTROL_LENGTH, &[length])?;
    Ok(received.count as u64)
}

/// Writes how many bytes a message of many has.
fn tell(guest: &mut Guest<'_>, at: Virt, count: u64) -> Served<()> {
    guest.write(at + HEADER, &u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes())
}

/// sendmmsg: as many as go; those behind the first are not waited for.
pub(super) fn sendmmsg(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let flags = int(a[3]);
    let mut sent = 0;
    for number in 0..u64::from(int(a[2]).cast_unsigned()).min(MOST) {
        let at = a[1].wrapping_add(number * STRIDE);
        let (flags, done) =
            if number == 0 { (flags, kernel.again.done) } else { (flags | libc::MSG_DONTWAIT, 0) };
        match send_one(kernel, guest, (&file, endpoint), at, flags, done) {
            Ok(count) => tell(guest, at, count)?,
            Err(Stop::Errno(_)) if sent > 0 => break,
            Err(stop) => return Err(stop),
        }
        sent += 1;
    }
    Ok(sent)
}

/// recvmmsg: waits for all of them, or with MSG_WAITFORONE for the first. The time is for all of them.
pub(super) fn recvmmsg(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (file, endpoint) = kernel.socket(int(a[0]))?;
    let (count, flags) = (u64::from(int(a[2]).cast_unsigned()).min(MOST), int(a[3]));
    let limit = time::optional(guest, a[4])?;
    // The kernel looks at the time behind a message only; here it ends a wait too, as its manual says.
    let deadline = kernel.limit(guest, limit)?;
    let mut got = kernel.again.done;
    while (got as u64) < count {
        let at = a[1].wrapping_add(got as u64 * STRIDE);
        let once = flags & libc::MSG_WAITFORONE != 0 && got > 0;
        let flags =
            flags & !libc::MSG_WAITFORONE & !libc::MSG_WAITALL | if once { libc::MSG_DONTWAIT } else { 0 };
        match receive_one(kernel, guest, (&file, endpoint), at, flags, 0) {
            Ok(bytes) => tell(guest, at, bytes)?,
            Err(Stop::Wait(wait)) => {
                let deadline = wait.deadline.or(deadline);
                return Err(Stop::Wait(Wait { done: got, deadline, ..wait }));
            }
            Err(Stop::Errno(_)) if got > 0 => break,
            Err(stop) => return Err(stop),
        }
        got += 1;
        if deadline.is_some_and(|at| at.left(kernel.now()) == 0) {
            break;
        }
    }
    Ok(got as u64)
}
