//! Copies that the kernel makes between files: splice, tee and copy_file_range are the host's own, where nobody here has to see the bytes;
//! what goes to a standard stream, a terminal or a file that is mapped shared is read and written. vmsplice copies.
//!
//! The host never waits: where it would, the call waits here for the side that is not ready.

use super::descriptors::OpenFile;
use super::host::{self, pipes};
use super::transfer::{self, LONGEST};
use super::wait::{WOULD_WAIT, Wait, wait};
use super::{Guest, Kernel, Served, Stop, errno, int, word};
use crate::ram::{PAGE_LEN, Virt};
use std::rc::Rc;

/// Stands in the journal for a call that waits for room, as [`WOULD_WAIT`] does for one that waits for bytes: ERESTARTNOINTR.
const NO_ROOM: i32 = 513;
const KNOWN_FLAGS: u32 =
    libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;

/// One side of a copy.
struct Side {
    file: Rc<OpenFile>,
    /// Where the program keeps the offset, and what it is; without one, the file's position.
    offset: Option<(Virt, i64)>,
}

impl Side {
    fn of(kernel: &Kernel, guest: &mut Guest<'_>, descriptor: u64, offset: Virt) -> Served<Side> {
        let file = kernel.files().get(int(descriptor))?;
        let offset = match offset {
            0 => None,
            at => Some((at, i64::from_le_bytes(guest.read_array(at)?))),
        };
        if offset.is_some_and(|(_, offset)| offset < 0) {
            return errno(libc::EINVAL);
        }
        Ok(Side { file, offset })
    }

    fn at(&self) -> Option<i64> {
        self.offset.map(|(_, offset)| offset)
    }

    /// Moves the program's offset.
    fn advance(&self, guest: &mut Guest<'_>, moved: u64) -> Served<()> {
        match self.offset {
            Some((at, offset)) => guest.write_words(at, &[word(offset.saturating_add_unsigned(moved))]),
            None => Ok(()),
        }
    }

    /// Whether its content is computed here, so that the host has none.
    fn is_computed(&self) -> bool {
        self.file.source().is_some() || self.file.queue().is_some()
    }
}

pub(super) fn splice(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    if a[4] == 0 {
        return Ok(0);
    }
    let from = Side::of(kernel, guest, a[0], a[1])?;
    let to = Side::of(kernel, guest, a[2], a[3])?;
    let (count, flags) = (a[4].min(LONGEST), flags(a[5])?);
    if from.is_computed() || to.is_computed() {
        return errno(libc::EINVAL);
    }
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
    moved(kernel, guest, &from, &to, count, waits, |[mut from_at, mut to_at]| {
        pipes::splice((from.file.host(), &mut from_at), (to.file.host(), &mut to_at), count, flags)
    })
}

pub(super) fn copy_file_range(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let from = Side::of(kernel, guest, a[0], a[1])?;
    let to = Side::of(kernel, guest, a[2], a[3])?;
    if a[5] != 0 {
        return errno(libc::EINVAL);
    }
    if from.is_computed() || to.is_computed() {
        // As between two file systems that know nothing of each other: the program reads and writes.
        return errno(libc::EXDEV);
    }
    if is_seen(kernel, &to.file) && from.file.inode().is_none() {
        return errno(libc::EINVAL);
    }
    let asked = a[4].min(LONGEST);
    let room = kernel.room_in_file(guest, &to.file, to.at(), usize::try_from(asked).unwrap_or(usize::MAX))?;
    let count = asked.min(room as u64);
    moved(kernel, guest, &from, &to, count, true, |[mut from_at, mut to_at]| {
        pipes::copy_file_range((from.file.host(), &mut from_at), (to.file.host(), &mut to_at), count)
    })
}

/// Has the host copy, or copies what has to be seen here; then moves the offsets.
fn moved(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    from: &Side,
    to: &Side,
    count: u64,
    waits: bool,
    copy: impl Fn([Option<i64>; 2]) -> i64,
) -> Served {
    kernel.check_reader(&from.file)?;
    kernel.before_read(guest, &from.file, from.at(), usize::try_from(count).unwrap_or(usize::MAX))?;
    let moved = if is_seen(kernel, &to.file) {
        by_hand(kernel, guest, from, to, count)
    } else {
        guest.input_number(|| or_wait(copy([from.at(), to.at()]), from, to, waits))
    };
    let moved = kernel.or_waits(moved, from, to)?;
    from.advance(guest, moved)?;
    to.advance(guest, moved)?;
    Ok(moved)
}

/// Whether what is written to a file is told to others: the gate, a terminal's keys, those who have mapped it.
fn is_seen(kernel: &Kernel, file: &Rc<OpenFile>) -> bool {
    file.standard.is_some() || file.terminal().is_some() || kernel.mapped_shared(file).is_some()
}

/// What stands in the journal for a result: which side is waited for, if one is.
fn or_wait(result: i64, from: &Side, to: &Side, waits: bool) -> i64 {
    if result != -i64::from(libc::EAGAIN) || !waits {
        return result;
    }
    if host::would_wait(from.file.host(), libc::POLLIN) {
        -i64::from(WOULD_WAIT)
    } else if host::would_wait(to.file.host(), libc::POLLOUT) {
        -i64::from(NO_ROOM)
    } else {
        result
    }
}

/// Reads and writes, as much as goes at once.
fn by_hand(kernel: &mut Kernel, guest: &mut Guest<'_>, from: &Side, to: &Side, count: u64) -> Served {
    let most = usize::try_from(count).unwrap_or(PAGE_LEN).min(PAGE_LEN);
    kernel.check_writer(guest, &to.file)?;
    let typing = kernel.before_typing(guest, &to.file)?;
    let bytes = guest.input_bytes(&mut || {
        let mut bytes = vec![0; most];
        if host::would_wait(from.file.host(), libc::POLLIN) {
            return Err(-i64::from(WOULD_WAIT));
        }
        if host::would_wait(to.file.host(), libc::POLLOUT) {
            return Err(-i64::from(NO_ROOM));
        }
        let read = host::read(from.file.host(), &mut bytes, from.at());
        bytes.truncate(usize::try_from(read).map_err(|_| read)?);
        Ok(bytes)
    })?;
    let written = guest.input_number(|| host::write(to.file.host(), &bytes, to.at()))?;
    let done = &bytes[..usize::try_from(written).unwrap_or(usize::MAX).min(bytes.len())];
    guest.gate.output(to.file.output_number(), done);
    kernel.after_write(guest, &to.file, to.at(), done)?;
    if let Some(settings) = &typing {
        kernel.after_typing(&to.file, settings, done);
    }
    Ok(written)
}

impl Kernel {
    /// Waits for the side that a copy's result says, or gives the result.
    fn or_waits(&mut self, result: Served, from: &Side, to: &Side) -> Served {
        match result {
            Err(Stop::Errno(WOULD_WAIT)) => wait(Wait::file(&from.file, libc::POLLIN, 0)),
            Err(Stop::Errno(NO_ROOM)) => wait(Wait::file(&to.file, libc::POLLOUT, 0)),
            Err(Stop::Errno(libc::EPIPE)) => {
                self.raise_here(libc::SIGPIPE, libc::SI_USER);
                errno(libc::EPIPE)
            }
            other => other,
        }
    }
}

pub(super) fn tee(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    if a[2] == 0 {
        flags(a[3])?;
        return Ok(0);
    }
    let (from, to) = (Side::of(kernel, guest, a[0], 0)?, Side::of(kernel, guest, a[1], 0)?);
    let (count, flags) = (a[2].min(LONGEST), flags(a[3])?);
    let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
    let result = guest.input_number(|| {
        let result = pipes::tee(from.file.host(), to.file.host(), count, flags);
        or_wait(result, &from, &to, waits)
    });
    kernel.or_waits(result, &from, &to)
}

/// vmsplice: pages are copied, not given away. To a pipe goes what it has room for, so that a program can fill and empty one by itself.
pub(super) fn vmsplice(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let waits = flags(a[3])? & libc::SPLICE_F_NONBLOCK == 0;
    let pipe = kernel.files().get(int(a[0]))?;
    let mode = guest.input_number(|| match host::is_pipe(pipe.host()) {
        true => host::fcntl(pipe.host(), libc::F_GETFL, 0),
        false => -i64::from(libc::EBADF),
    })?;
    if int(mode) & libc::O_ACCMODE != libc::O_RDONLY {
        let segments = transfer::segments(guest, a[1], a[2])?;
        let bytes = transfer::gathered(guest, &segments)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        return fill(kernel, guest, &pipe, &bytes, waits);
    }
    if !waits && guest.input_number(|| i64::from(host::would_wait(pipe.host(), libc::POLLIN)))? == 1 {
        return errno(libc::EAGAIN);
    }
    transfer::readv(kernel, guest, a, false)
}

/// Writes to a pipe what it has room for; only one that is full is waited for.
fn fill(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    pipe: &Rc<OpenFile>,
    bytes: &[u8],
    waits: bool,
) -> Served {
    let written = guest.input_number(|| match pipes::fill(pipe.host(), bytes) {
        0 if waits && host::would_wait(pipe.host(), libc::POLLOUT) => -i64::from(WOULD_WAIT),
        0 if !bytes.is_empty() => -i64::from(libc::EAGAIN),
        result => result,
    });
    match written {
        Ok(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
            guest.gate.output(pipe.output_number(), &bytes[..count]);
            Ok(count as u64)
        }
        Err(Stop::Errno(WOULD_WAIT)) => wait(Wait::file(pipe, libc::POLLOUT, 0)),
        Err(stop) => {
            if matches!(stop, Stop::Errno(libc::EPIPE)) {
                kernel.raise_here(libc::SIGPIPE, libc::SI_USER);
            }
            Err(stop)
        }
    }
}

fn flags(flags: u64) -> Served<u32> {
    match u32::try_from(flags) {
        Ok(flags) if flags & !KNOWN_FLAGS == 0 => Ok(flags),
        _ => errno(libc::EINVAL),
    }
}
