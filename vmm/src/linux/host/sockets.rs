//! The host's calls on sockets. None of them waits: what would is EAGAIN, or EINPROGRESS from connect.

use super::{both, fcntl, fd, owned, pointer, poll, raw};
use crate::linux::{long, word};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// Room for any address: `struct sockaddr_storage`.
pub(in crate::linux) const ADDRESS: usize = 128;
/// As many descriptors as one message may carry (SCM_MAX_FD).
pub(in crate::linux) const MOST_FILES: usize = 253;
/// The size of `struct cmsghdr`, and what messages and their data are aligned to.
pub(in crate::linux) const HEADER: usize = 16;
const ALIGNMENT: usize = 8;

/// A control message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::linux) struct Control {
    pub(in crate::linux) level: i32,
    pub(in crate::linux) kind: i32,
    pub(in crate::linux) data: Vec<u8>,
}

impl Control {
    /// As it stands in memory, with what aligns the next one.
    pub(in crate::linux) fn bytes(&self) -> Vec<u8> {
        let length = HEADER + self.data.len();
        let mut bytes = (length as u64).to_le_bytes().to_vec();
        bytes.extend(self.level.to_le_bytes());
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(&self.data);
        bytes.resize(length.next_multiple_of(ALIGNMENT), 0);
        bytes
    }

    /// The messages in a buffer; `None` if a length is none that there can be.
    pub(in crate::linux) fn parse(mut bytes: &[u8]) -> Option<Vec<Control>> {
        let mut messages = Vec::new();
        while let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() {
            let [length, rights] =
                [0, 8].map(|at| u64::from_le_bytes(header[at..at + 8].try_into().unwrap_or([0; 8])));
            let data = usize::try_from(length).ok()?.checked_sub(HEADER)?;
            let [level, kind] = [rights, rights >> 32].map(crate::linux::int);
            messages.push(Control { level, kind, data: rest.get(..data)?.to_vec() });
            bytes = rest.get(data.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        }
        Some(messages)
    }
}

/// What is sent.
pub(in crate::linux) struct Outgoing<'a> {
    pub(in crate::linux) bytes: &'a [u8],
    /// To whom; empty for the peer.
    pub(in crate::linux) name: &'a [u8],
    pub(in crate::linux) control: Vec<u8>,
}

/// Room for what is received, and then that.
pub(in crate::linux) struct Incoming {
    pub(in crate::linux) bytes: Vec<u8>,
    pub(in crate::linux) name: Vec<u8>,
    pub(in crate::linux) control: Vec<Control>,
    /// The descriptors among the control messages, which are ours now.
    pub(in crate::linux) files: Vec<OwnedFd>,
    pub(in crate::linux) flags: i32,
}

impl Incoming {
    pub(in crate::linux) fn new(room: usize) -> Incoming {
        Incoming { bytes: vec![0; room], name: Vec::new(), control: Vec::new(), files: Vec::new(), flags: 0 }
    }
}

fn number(value: i32) -> u64 {
    word(i64::from(value))
}

/// socket; the descriptor is closed on exec.
pub(in crate::linux) fn socket(family: i32, kind: i32, protocol: i32) -> Result<OwnedFd, i64> {
    let arguments = [number(family), number(kind | libc::SOCK_CLOEXEC), number(protocol), 0, 0, 0];
    // SAFETY: it takes no pointer.
    owned(unsafe { raw(libc::SYS_socket, arguments) })
}

/// socketpair; the descriptors are closed on exec.
pub(in crate::linux) fn socketpair(family: i32, kind: i32, protocol: i32) -> Result<[OwnedFd; 2], i64> {
    let mut ends: [RawFd; 2] = [-1; 2];
    let kind = number(kind | libc::SOCK_CLOEXEC);
    let arguments = [number(family), kind, number(protocol), pointer(ends.as_mut_ptr()), 0, 0];
    // SAFETY: the kernel writes two descriptors into `ends`.
    match unsafe { raw(libc::SYS_socketpair, arguments) } {
        0.. => both(ends),
        error => Err(error),
    }
}

/// bind.
pub(in crate::linux) fn bind(socket: RawFd, name: &[u8]) -> i64 {
    // SAFETY: the kernel reads the name, which has the length that is told.
    unsafe { raw(libc::SYS_bind, [fd(socket), pointer(name.as_ptr()), name.len() as u64, 0, 0, 0]) }
}

/// connect.
pub(in crate::linux) fn connect(socket: RawFd, name: &[u8]) -> i64 {
    let arguments = [fd(socket), pointer(name.as_ptr()), name.len() as u64, 0, 0, 0];
    // SAFETY: the kernel reads the name, which has the length that is told.
    without_waiting(socket, || unsafe { raw(libc::SYS_connect, arguments) })
}

/// listen.
pub(in crate::linux) fn listen(socket: RawFd, backlog: i32) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_listen, [fd(socket), number(backlog), 0, 0, 0, 0]) }
}

/// shutdown.
pub(in crate::linux) fn shutdown(socket: RawFd, how: i32) -> i64 {
    // SAFETY: it takes no pointer.
    unsafe { raw(libc::SYS_shutdown, [fd(socket), number(how), 0, 0, 0, 0]) }
}

/// accept4; the descriptor is closed on exec. With the address of the peer.
pub(in crate::linux) fn accept(socket: RawFd, flags: i32) -> Result<(OwnedFd, Vec<u8>), i64> {
    let mut name = vec![0; ADDRESS];
    let mut length = ADDRESS as u64;
    let flags = number(flags | libc::SOCK_CLOEXEC);
    let arguments = [fd(socket), pointer(name.as_mut_ptr()), pointer(&raw mut length), flags, 0, 0];
    // SAFETY: the kernel writes at most as many bytes of a name as the length says, and the low half of the length.
    let accepted = owned(without_waiting(socket, || unsafe { raw(libc::SYS_accept4, arguments) }))?;
    name.truncate(usize::try_from(length).unwrap_or(0));
    Ok((accepted, name))
}

/// getsockname (`libc::SYS_getsockname`) or getpeername.
pub(in crate::linux) fn name(call: i64, socket: RawFd) -> Result<Vec<u8>, i64> {
    assert!(matches!(call, libc::SYS_getsockname | libc::SYS_getpeername), "one of the two");
    let mut name = vec![0; ADDRESS];
    let mut length = ADDRESS as u64;
    // SAFETY: the kernel writes at most as many bytes of a name as the length says, and the low half of the length.
    let result =
        unsafe { raw(call, [fd(socket), pointer(name.as_mut_ptr()), pointer(&raw mut length), 0, 0, 0]) };
    name.truncate(usize::try_from(length).unwrap_or(0));
    if result < 0 { Err(result) } else { Ok(name) }
}

/// getsockopt of an option that has no pointers in it, as many bytes as there are and as there is room for.
pub(in crate::linux) fn option(socket: RawFd, level: i32, option: i32, room: usize) -> Result<Vec<u8>, i64> {
    let mut bytes = vec![0; room];
    let mut length = room as u64;
    let at = pointer(bytes.as_mut_ptr());
    // SAFETY: the kernel writes at most as many bytes as the length says, and the low half of the length.
    let result = unsafe {
        raw(
            libc::SYS_getsockopt,
            [fd(socket), number(level), number(option), at, pointer(&raw mut length), 0],
        )
    };
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    if result < 0 { Err(result) } else { Ok(bytes) }
}

/// setsockopt of an option that has no pointers in it.
pub(in crate::linux) fn set_option(socket: RawFd, level: i32, option: i32, bytes: &[u8]) -> i64 {
    let at = pointer(bytes.as_ptr());
    // SAFETY: the kernel reads as many bytes as the length says.
    unsafe {
        raw(libc::SYS_setsockopt, [fd(socket), number(level), number(option), at, bytes.len() as u64, 0])
    }
}

/// An option that is a number.
pub(in crate::linux) fn number_option(socket: RawFd, level: i32, name: i32) -> Option<i32> {
    let bytes = option(socket, level, name, 4).ok()?;
    Some(i32::from_le_bytes(bytes.try_into().ok()?))
}

/// How long a call waits at most (SO_RCVTIMEO, SO_SNDTIMEO), in nanoseconds; 0 is for ever.
pub(in crate::linux) fn time_limit(socket: RawFd, name: i32) -> i64 {
    let bytes = option(socket, libc::SOL_SOCKET, name, 16).unwrap_or_default();
    let word = |at: usize| {
        bytes.get(at..at + 8).map_or(0, |word| long(u64::from_le_bytes(word.try_into().unwrap_or([0; 8]))))
    };
    word(0).saturating_mul(1_000_000_000).saturating_add(word(8).saturating_mul(1000))
}

/// The process at the other end of a unix socket, as the host knows it (SO_PEERCRED).
pub(in crate::linux) fn peer(socket: RawFd) -> Option<i32> {
    let bytes = option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, 12).ok()?;
    Some(i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?))
}

fn header(name: (u64, usize), vector: &mut [u64; 2], control: (u64, usize)) -> libc::msghdr {
    // SAFETY: all zero is a `struct msghdr`.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = std::ptr::with_exposed_provenance_mut(usize::try_from(name.0).unwrap_or(0));
    header.msg_namelen = u32::try_from(name.1).unwrap_or(0);
    header.msg_iov = vector.as_mut_ptr().cast();
    header.msg_iovlen = 1;
    header.msg_control = std::ptr::with_exposed_provenance_mut(usize::try_from(control.0).unwrap_or(0));
    header.msg_controllen = control.1;
    header
}

/// sendmsg. It raises no signal.
pub(in crate::linux) fn send(socket: RawFd, message: &Outgoing<'_>, flags: i32) -> i64 {
    let mut vector = [pointer(message.bytes.as_ptr()), message.bytes.len() as u64];
    let part = |bytes: &[u8]| (if bytes.is_empty() { 0 } else { pointer(bytes.as_ptr()) }, bytes.len());
    let header = header(part(message.name), &mut vector, part(&message.control));
    let flags = number(flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    // SAFETY: the header's pointers are null, or to as many readable bytes as it says; all outlive the call.
    unsafe { raw(libc::SYS_sendmsg, [fd(socket), pointer(&raw const header), flags, 0, 0, 0]) }
}

/// recvmsg, with so much room for control messages; without `details`, name and control messages are not asked for.
pub(in crate::linux) fn receive(socket: RawFd, to: &mut Incoming, flags: i32, details: bool) -> i64 {
    const CONTROL: usize = 4096;
    let mut vector = [pointer(to.bytes.as_mut_ptr()), to.bytes.len() as u64];
    let mut name = vec![0_u8; if details { ADDRESS } else { 0 }];
    let mut control = vec![0_u64; if details { CONTROL / 8 } else { 0 }];
    let part = |at: u64, length: usize| if length == 0 { (0, 0) } else { (at, length) };
    let mut header = header(
        part(pointer(name.as_mut_ptr()), name.len()),
        &mut vector,
        part(pointer(control.as_mut_ptr()), control.len() * 8),
    );
    let flags = number(flags | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC);
    // SAFETY: the header's pointers are null, or to as many writable bytes as it says; all outlive the call.
    let result = unsafe { raw(libc::SYS_recvmsg, [fd(socket), pointer(&raw mut header), flags, 0, 0, 0]) };
    if result < 0 {
        return result;
    }
    to.flags = header.msg_flags;
    name.truncate(usize::try_from(header.msg_namelen).unwrap_or(0));
    to.name = name;
    let bytes: Vec<u8> =
        control.iter().flat_map(|word| word.to_le_bytes()).take(header.msg_controllen).collect();
    to.control = Control::parse(&bytes).unwrap_or_default();
    let rights = |it: &Control| (it.level, it.kind) == (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    for message in to.control.extract_if(.., |it| rights(it)) {
        let numbers = message.data.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        to.files.extend(numbers.filter_map(|number| owned(i64::from(number)).ok()));
    }
    result
}

/// sendfile, from a position or from where the file stands; the position behind what was sent.
pub(in crate::linux) fn sendfile(to: RawFd, from: RawFd, offset: &mut Option<i64>, count: u64) -> i64 {
    let at = offset.as_mut().map_or(0, |offset| pointer(std::ptr::from_mut(offset)));
    // SAFETY: the kernel reads and writes one 64-bit number, or there is none.
    without_waiting(to, || unsafe { raw(libc::SYS_sendfile, [fd(to), fd(from), at, count, 0, 0]) })
}

/// SIOCGIFCONF: the interfaces that have addresses, as far as there is room; without room, how many bytes they are.
pub(in crate::linux) fn interfaces(socket: RawFd, room: Option<usize>) -> Result<Vec<u8>, i64> {
    const SIOCGIFCONF: u64 = 0x8912;
    let mut list = vec![0_u8; room.unwrap_or(0)];
    let at = if room.is_some() { pointer(list.as_mut_ptr()) } else { 0 };
    let mut asked = [list.len() as u64, at];
    // SAFETY: the kernel reads a `struct ifconf`, a length and a pointer; it writes at most as many bytes of a list, and the
    // length.
    let result =
        unsafe { raw(libc::SYS_ioctl, [fd(socket), SIOCGIFCONF, pointer(asked.as_mut_ptr()), 0, 0, 0]) };
    let length = crate::linux::int(asked[0]);
    list.truncate(usize::try_from(length).unwrap_or(0));
    match (result, room) {
        (..0, _) => Err(result),
        (_, None) => Ok(length.to_le_bytes().to_vec()),
        (_, Some(_)) => Ok(list),
    }
}

/// SIOCETHTOOL about an interface of this name.
pub(in crate::linux) fn ask_driver(socket: RawFd, name: [u64; 2], question: &mut [u8]) -> i64 {
    const SIOCETHTOOL: u64 = 0x8946;
    let mut request = [name[0], name[1], pointer(question.as_mut_ptr()), 0, 0];
    // SAFETY: the kernel reads a `struct ifreq`, five words with the pointer in the third. Only the questions of
    // `network::requests::QUESTIONS` are asked, with a buffer of the size that is listed there.
    unsafe { raw(libc::SYS_ioctl, [fd(socket), SIOCETHTOOL, pointer(request.as_mut_ptr()), 0, 0, 0]) }
}

/// Whether calls on a file wait.
pub(in crate::linux) fn waits(file: RawFd) -> bool {
    fcntl(file, libc::F_GETFL, 0) & i64::from(libc::O_NONBLOCK) == 0
}

/// Calls while nothing that is done on a file waits.
pub(super) fn without_waiting(file: RawFd, call: impl FnOnce() -> i64) -> i64 {
    let flags = fcntl(file, libc::F_GETFL, 0);
    let waits = flags >= 0 && flags & i64::from(libc::O_NONBLOCK) == 0;
    if waits {
        fcntl(file, libc::F_SETFL, word(flags | i64::from(libc::O_NONBLOCK)));
    }
    let result = call();
    if waits {
        fcntl(file, libc::F_SETFL, word(flags));
    }
    result
}

/// Calls with another working directory and umask. Both are the process's own: a thread that has them for itself calls.
pub(in crate::linux) fn in_place(directory: RawFd, umask: u32, call: impl FnOnce() -> i64 + Send) -> i64 {
    let there = move || {
        // SAFETY: none of them takes a pointer.
        let moved = unsafe {
            match raw(libc::SYS_unshare, [number(libc::CLONE_FS), 0, 0, 0, 0, 0]) {
                0 => {
                    raw(libc::SYS_umask, [umask.into(), 0, 0, 0, 0, 0]);
                    raw(libc::SYS_fchdir, [fd(directory), 0, 0, 0, 0, 0])
                }
                error => error,
            }
        };
        if moved < 0 { moved } else { call() }
    };
    std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, there) {
        Ok(thread) => thread.join().unwrap_or_else(|_| -i64::from(libc::EIO)),
        Err(_) => -i64::from(libc::EAGAIN),
    })
}

/// The device and the number of what a path in a directory names.
pub(in crate::linux) fn file_at(directory: RawFd, path: &std::ffi::CStr) -> Option<[u64; 2]> {
    let file = super::open(directory, path, libc::O_PATH, 0).ok()?;
    super::stat(file.as_raw_fd()).ok().map(|[device, number, ..]| [device, number])
}

/// A pipe, of which one end tells whether there are still copies of the other.
pub(in crate::linux) fn lifeline() -> Result<[OwnedFd; 2], i64> {
    super::pipe(libc::O_NONBLOCK)
}

/// Whether no copy of the other end is left.
pub(in crate::linux) fn is_cut(lifeline: RawFd) -> bool {
    let mut polled = [libc::pollfd { fd: lifeline, events: 0, revents: 0 }];
    poll(&mut polled) > 0 && polled[0].revents & libc::POLLHUP != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_read_as_they_are_written() {
        let one = Control { level: 1, kind: 2, data: vec![1, 2, 3, 4] };
        let other = Control { level: 0, kind: 8, data: vec![7; 12] };
        let bytes = [one.bytes(), other.bytes()].concat();
        assert_eq!(bytes.len(), 24 + 32);
        assert_eq!(Control::parse(&bytes), Some(vec![one.clone(), other]));
        assert_eq!(Control::parse(&bytes[..20]), Some(vec![one]), "the end needs no alignment");
        assert_eq!(Control::parse(&bytes[..19]), None, "less than its length says");
        assert_eq!(Control::parse(&[0; 16]), None, "less than a header");
        assert_eq!(Control::parse(&[1; 15]), Some(vec![]));
    }

    #[test]
    fn a_lifeline_is_cut_with_the_last_copy_of_its_end() {
        let [kept, sent] = lifeline().expect("a pipe");
        let copy = sent.try_clone().expect("a copy");
        drop(sent);
        assert!(!is_cut(kept.as_raw_fd()));
        drop(copy);
        assert!(is_cut(kept.as_raw_fd()));
    }
}
