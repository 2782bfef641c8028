//! Reading and writing: the bytes are inputs and outputs, the buffers the guest's.

use super::descriptors::{OpenFile, Source};
use super::host::AtOnce;
use super::sharing::{self, Inode};
use super::wait::{WOULD_WAIT, Wait, wait};
use super::{Guest, Kernel, Served, Stop, errno, host, int, long, network, proc, retry, sources};
use crate::engine::{Interrupter, Virt};
use crate::gate::{Input, MemoryWrite};
use crate::interrupt;
use crate::memory::layout::USER_END;
use crate::memory::space::Access;
use crate::ram::PAGE_LEN;
use std::os::fd::RawFd;
use std::rc::Rc;

/// A buffer of the guest: address and length.
pub(super) type Segment = (Virt, u64);

/// As many buffers as the kernel takes (IOV_MAX).
const SEGMENTS: usize = 1024;
/// The most that one call transfers; more is a short count, which every program must expect.
pub(super) const LONGEST: u64 = 64 << 20;
/// As many bytes as Linux says at most that a call has written (MAX_RW_COUNT).
const MOST: u64 = 0x7fff_f000;

/// read and its kin.
pub(super) fn read(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    descriptor: i32,
    segments: &[Segment],
    offset: Option<u64>,
) -> Served {
    let open = kernel.files().get(descriptor)?;
    if let Some(Source::Proc(object)) = open.source() {
        return proc::open::read(kernel, guest, object, segments, offset);
    }
    if let Some(source) = open.source() {
        return sources::read(kernel, guest, &open, source, segments, offset);
    }
    if open.queue().is_some() || open.process().is_some() {
        return errno(libc::EINVAL);
    }
    if let Some(endpoint) = open.endpoint() {
        return network::read(kernel, guest, &open, endpoint, segments, offset.is_some());
    }
    kernel.check_reader(&open)?;
    let offset = checked(offset)?;
    let file = open.host();
    let never_waits = offset.is_some() || open.inode().is_some_and(Inode::is_on_block_device);
    let segments = match usable(guest, segments, Access::Write) {
        Err(Stop::Errno(libc::EFAULT)) if is_null(guest, &open, libc::O_WRONLY)? => return Ok(0),
        segments => segments?,
    };
    let total = segments.iter().map(|(_, length)| length).sum();
    kernel.before_read(guest, &open, offset, total)?;
    let interrupter = kernel.interrupter.clone();
    let read = guest.input(&mut || {
        let mut bytes = vec![0; total];
        let at_once = if never_waits { None } else { read_at_once(&open, &mut bytes) };
        if at_once.is_none() && !never_waits && host::would_wait(file, libc::POLLIN) {
            return Input::Bytes { result: -i64::from(WOULD_WAIT), writes: Vec::new() };
        }
        let result = at_once.unwrap_or_else(|| retry(&interrupter, || host::read(file, &mut bytes, offset)));
        bytes.truncate(usize::try_from(result).unwrap_or(0));
        // One buffer, as nearly always, needs no copy.
        if let ([(address, _)], false) = (&segments[..], bytes.is_empty()) {
            return Input::Bytes { result, writes: vec![MemoryWrite { address: *address, bytes }] };
        }
        let mut rest = &bytes[..];
        let mut writes = Vec::new();
        for (address, length) in &segments {
            let (part, behind) = rest.split_at(rest.len().min(*length));
            rest = behind;
            if !part.is_empty() {
                writes.push(MemoryWrite { address: *address, bytes: part.to_vec() });
            }
        }
        Input::Bytes { result, writes }
    });
    match read {
        Err(Stop::Errno(WOULD_WAIT)) => wait(Wait::file(&open, libc::POLLIN, 0)),
        read => read,
    }
}

/// What a read comes to that does not wait; `None` where the host has to be asked first whether it would.
fn read_at_once(file: &OpenFile, bytes: &mut [u8]) -> Option<i64> {
    let most = file.at_once.get().unwrap_or_else(|| host::most_at_once(file.host()));
    let fits = (1..=most).contains(&bytes.len());
    let read = if fits { host::read_at_once(file.host(), bytes) } else { AtOnce::Unknown };
    file.at_once.set(Some(if matches!(read, AtOnce::Never) { 0 } else { most }));
    match read {
        AtOnce::Done(result) => Some(result),
        AtOnce::Unknown | AtOnce::Never => None,
    }
}

/// write and its kin.
pub(super) fn write(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    descriptor: i32,
    segments: &[Segment],
    offset: Option<u64>,
) -> Served {
    let (file, offset) = (kernel.files().get(descriptor)?, checked(offset)?);
    let is_other = file.queue().is_some() || file.process().is_some();
    if is_other || !matches!(file.source(), None | Some(Source::Proc(_))) {
        return errno(libc::EINVAL);
    }
    if let Some(endpoint) = file.endpoint() {
        return network::write(kernel, guest, &file, endpoint, segments, offset.is_some());
    }
    let bytes = match gathered(guest, segments) {
        Err(Stop::Errno(libc::EFAULT)) if is_null(guest, &file, libc::O_RDONLY)? => {
            return Ok(segments
                .iter()
                .fold(0, |sum: u64, (_, length)| sum.saturating_add(*length))
                .min(MOST));
        }
        bytes => bytes?,
    };
    write_bytes(kernel, guest, &file, bytes, offset)
}

/// Whether a file whose buffer is bad is /dev/null, which looks at none. EBADF of one that is open the `other` way alone.
fn is_null(guest: &mut Guest<'_>, file: &OpenFile, other: i32) -> Served<bool> {
    const NULL: u64 = libc::makedev(1, 3);
    let is = guest.input_number(|| {
        let flags = host::fcntl(file.host(), libc::F_GETFL, 0);
        if flags & i64::from(libc::O_PATH) != 0 || flags & i64::from(libc::O_ACCMODE) == i64::from(other) {
            return -i64::from(libc::EBADF);
        }
        let device = host::stat(file.host())
            .ok()
            .filter(|[_, _, mode, ..]| mode & u64::from(libc::S_IFMT) == u64::from(libc::S_IFCHR));
        i64::from(device.is_some_and(|[.., device, _]| device == NULL))
    })?;
    Ok(is == 1)
}

/// The bytes of several buffers, as far as the guest may read them.
pub(super) fn gathered(guest: &mut Guest<'_>, segments: &[Segment]) -> Served<Vec<u8>> {
    let segments = usable(guest, segments, Access::Read)?;
    let mut bytes = vec![0; segments.iter().map(|(_, length)| length).sum()];
    let mut rest = &mut bytes[..];
    for (address, length) in segments {
        let (part, behind) = rest.split_at_mut(length);
        guest.read(address, part)?;
        rest = behind;
    }
    Ok(bytes)
}

/// Writes bytes to a file, at `offset` or at its position.
fn write_bytes(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    mut bytes: Vec<u8>,
    offset: Option<i64>,
) -> Served {
    if let Some(Source::Proc(object)) = file.source() {
        return proc::open::write(kernel, guest, object, &bytes, offset);
    }
    kernel.check_writer(guest, file)?;
    let typing = kernel.before_typing(guest, file)?;
    let room = kernel.room_in_file(guest, file, offset, bytes.len())?;
    bytes.truncate(room);
    let alone = kernel.may_block_in_host();
    let never_waits = alone || offset.is_some() || file.inode().is_some_and(Inode::is_on_block_device);
    let mut done = kernel.again.done.min(bytes.len());
    loop {
        let rest = &bytes[done..];
        let at = offset.map(|offset| offset.saturating_add_unsigned(done as u64));
        match guest.input_number(|| write_some(&kernel.interrupter, file.host(), rest, at, never_waits)) {
            Ok(count) => {
                let count = usize::try_from(count).unwrap_or(usize::MAX).min(rest.len());
                guest.gate.output(file.output_number(), &rest[..count]);
                kernel.after_write(guest, file, at, &rest[..count])?;
                if let Some(settings) = &typing {
                    kernel.after_typing(file, settings, &rest[..count]);
                }
                done += count;
                if alone || count == 0 || done == bytes.len() {
                    return Ok(done as u64);
                }
            }
            Err(Stop::Errno(WOULD_WAIT)) => return wait(Wait::file(file, libc::POLLOUT, done)),
            Err(Stop::Errno(_)) if done > 0 => return Ok(done as u64),
            Err(stop) => {
                if matches!(stop, Stop::Errno(libc::EPIPE)) {
                    kernel.raise_here(libc::SIGPIPE, libc::SI_USER);
                }
                return Err(stop);
            }
        }
    }
}

/// sendfile: what is read of one file is written to another. The first file's position moves by what was written, if it is from
/// there that is read.
pub(super) fn copy(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (to, from) = (kernel.files().get(int(a[0]))?, kernel.files().get(int(a[1]))?);
    let known = if a[2] == 0 { None } else { Some(long(guest.read_words::<1>(a[2])?[0])) };
    let special =
        |file: &OpenFile| file.source().is_some() || file.queue().is_some() || file.process().is_some();
    if special(&to) || special(&from) || known.is_some_and(|offset| offset < 0) {
        return errno(libc::EINVAL);
    }
    let length = usize::try_from(a[3].min(LONGEST)).expect("at most LONGEST");
    kernel.before_read(guest, &from, known, length)?;
    let bytes = guest.input_bytes(&mut || {
        let appends = host::fcntl(to.host(), libc::F_GETFL, 0) & i64::from(libc::O_APPEND) != 0;
        if appends && !host::is_pipe(to.host()) {
            return Err(-i64::from(libc::EINVAL));
        }
        let at = known.unwrap_or_else(|| host::seek(from.host(), 0, libc::SEEK_CUR));
        // What has no position cannot be sent from.
        let at = if at == -i64::from(libc::ESPIPE) { -i64::from(libc::EINVAL) } else { at };
        let mut bytes = vec![0; usize::try_from(at).map_or(0, |_| length)];
        let read = if at < 0 { at } else { host::read(from.host(), &mut bytes, Some(at)) };
        // Nor can a folder.
        let read = if read == -i64::from(libc::EISDIR) { -i64::from(libc::EINVAL) } else { read };
        bytes.truncate(usize::try_from(read).map_err(|_| read)?);
        Ok(bytes)
    })?;
    let written = write_bytes(kernel, guest, &to, bytes, None)?;
    match known {
        Some(offset) => guest.write_words(a[2], &[super::word(offset).saturating_add(written)])?,
        None => {
            guest.input_number(|| host::seek(from.host(), long(written), libc::SEEK_CUR))?;
        }
    }
    Ok(written)
}

/// Writes all of it if the thread is alone or the file never waits, and otherwise as much as the host takes without waiting: to a
/// pipe, which has room for a page when it has any, that much at a time.
fn write_some(
    interrupter: &Interrupter,
    file: RawFd,
    bytes: &[u8],
    at: Option<i64>,
    never_waits: bool,
) -> i64 {
    if never_waits {
        return match retry(interrupter, || host::write(file, bytes, at)) {
            // A signal for the program, which the wait brings.
            result if result == -i64::from(libc::EINTR) && interrupt::is_any_for_program() => {
                -i64::from(WOULD_WAIT)
            }
            result => result,
        };
    }
    if host::would_wait(file, libc::POLLOUT) {
        return -i64::from(WOULD_WAIT);
    }
    let most = if bytes.len() > PAGE_LEN && host::is_pipe(file) { PAGE_LEN } else { bytes.len() };
    retry(interrupter, || host::write(file, &bytes[..most], at))
}

/// readv and preadv.
pub(super) fn readv(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6], positioned: bool) -> Served {
    kernel.files().get(int(a[0]))?;
    let segments = segments(guest, a[1], a[2])?;
    read(kernel, guest, int(a[0]), &segments, positioned.then_some(a[3]))
}

/// writev and pwritev.
pub(super) fn writev(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6], positioned: bool) -> Served {
    kernel.files().get(int(a[0]))?;
    let segments = segments(guest, a[1], a[2])?;
    write(kernel, guest, int(a[0]), &segments, positioned.then_some(a[3]))
}

/// preadv2.
pub(super) fn readv2(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    check_flags(kernel, a)?;
    readv(kernel, guest, a, long(a[3]) != -1)
}

/// pwritev2; where that is asked for, what is written has reached the disk when it returns.
pub(super) fn writev2(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let file = check_flags(kernel, a)?;
    let written = writev(kernel, guest, a, long(a[3]) != -1)?;
    let settles = match int(a[5]) & (libc::RWF_DSYNC | libc::RWF_SYNC) {
        0 => return Ok(written),
        libc::RWF_DSYNC => libc::SYS_fdatasync,
        _ => libc::SYS_fsync,
    };
    if file.inode().is_some() {
        sharing::settled(kernel, guest, settles, a)?;
    }
    Ok(written)
}

/// That the flags of preadv2 and pwritev2 are served; gives the file. What waits for nothing (RWF_NOWAIT) is of a regular file, whose
/// content no call waits for here; RWF_APPEND is not served.
fn check_flags(kernel: &mut Kernel, a: &[u64; 6]) -> Served<Rc<OpenFile>> {
    let file = kernel.files().get(int(a[0]))?;
    let no_wait = if file.inode().is_some() { libc::RWF_NOWAIT } else { 0 };
    match int(a[5]) & !(libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | no_wait) {
        0 => Ok(file),
        _ => kernel.refuse("preadv2 or pwritev2 with RWF_ flags", libc::EOPNOTSUPP).map(|_| file),
    }
}

/// A position in a file: not negative.
fn checked(offset: Option<u64>) -> Served<Option<i64>> {
    match offset.map(long) {
        Some(offset) if offset < 0 => errno(libc::EINVAL),
        offset => Ok(offset),
    }
}

/// A vector of buffers, as the guest wrote it.
pub(super) fn segments(guest: &mut Guest<'_>, address: Virt, count: u64) -> Served<Vec<Segment>> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > SEGMENTS {
        return errno(libc::EINVAL);
    }
    let mut words = vec![[[0; 8]; 2]; count];
    guest.read(address, words.as_flattened_mut().as_flattened_mut())?;
    let segments: Vec<Segment> =
        words.into_iter().map(|words| words.map(u64::from_le_bytes).into()).collect();
    if segments.iter().any(|(_, length)| long(*length) < 0) {
        return errno(libc::EINVAL);
    }
    Ok(segments)
}

/// The buffers as far as the guest may access them: up to the first bad byte, where the transfer ends. That
/// nothing at all can be transferred is EFAULT, and so is a buffer that reaches beyond what programs have.
pub(super) fn usable(
    guest: &mut Guest<'_>,
    segments: &[Segment],
    access: Access,
) -> Served<Vec<(Virt, usize)>> {
    let leaves = |&(address, length): &Segment| address.checked_add(length).is_none_or(|end| end > USER_END);
    if segments.iter().any(leaves) {
        return errno(libc::EFAULT);
    }
    let mut left = LONGEST;
    let mut usable = Vec::with_capacity(segments.len());
    for &(address, length) in segments {
        let wanted = length.min(left);
        let good = guest.accessible(address, wanted, access);
        left -= good;
        usable.push((address, usize::try_from(good).expect("at most LONGEST")));
        if good < length {
            break;
        }
    }
    let wanted: u64 = segments.iter().fold(0, |sum, (_, length)| sum.saturating_add(*length));
    if wanted > 0 && left == LONGEST {
        return errno(libc::EFAULT);
    }
    Ok(usable)
}
