//! Reading and writing: the bytes are inputs and outputs, the buffers the guest's.

use super::{Guest, Linux, Served, errno, host, int, long, retry};
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite};
use crate::process::space::Access;

/// A buffer of the guest: address and length.
pub(super) type Segment = (Virt, u64);

/// As many buffers as the kernel takes (IOV_MAX).
const SEGMENTS: usize = 1024;
/// The most that one call transfers; more is a short count, which every program must expect.
const LONGEST: u64 = 64 << 20;

/// read and its kin.
pub(super) fn read(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    descriptor: i32,
    segments: &[Segment],
    offset: Option<u64>,
) -> Served {
    let (file, offset) = (linux.files.get(descriptor)?.host(), checked(offset)?);
    let segments = usable(guest, segments, Access::Write)?;
    let total = segments.iter().map(|(_, length)| length).sum();
    let interrupter = linux.interrupter.clone();
    guest.input(&mut || {
        let mut bytes = vec![0; total];
        let result = retry(&interrupter, || host::read(file, &mut bytes, offset));
        bytes.truncate(usize::try_from(result).unwrap_or(0));
        let mut rest = &bytes[..];
        let mut writes = Vec::new();
        for (address, length) in &segments {
            let (part, behind) = rest.split_at(rest.len().min(*length));
            rest = behind;
            if !part.is_empty() {
                writes.push(MemoryWrite { address: *address, bytes: part.to_vec() });
            }
        }
        Input { result, writes }
    })
}

/// write and its kin.
pub(super) fn write(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    descriptor: i32,
    segments: &[Segment],
    offset: Option<u64>,
) -> Served {
    let (file, offset) = (linux.files.get(descriptor)?, checked(offset)?);
    let segments = usable(guest, segments, Access::Read)?;
    let mut bytes = vec![0; segments.iter().map(|(_, length)| length).sum()];
    let mut rest = &mut bytes[..];
    for (address, length) in segments {
        let (part, behind) = rest.split_at_mut(length);
        guest.read(address, part)?;
        rest = behind;
    }
    let interrupter = linux.interrupter.clone();
    let written = guest.input_number(|| retry(&interrupter, || host::write(file.host(), &bytes, offset)));
    match written {
        Ok(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX).min(bytes.len());
            guest.gate.output(file.output_number(), &bytes[..count]);
        }
        Err(super::Stop::Errno(libc::EPIPE)) => linux.signals.raise(libc::SIGPIPE, libc::SI_USER),
        Err(_) => {}
    }
    written
}

/// readv and preadv.
pub(super) fn readv(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6], positioned: bool) -> Served {
    let segments = segments(guest, a[1], a[2])?;
    read(linux, guest, int(a[0]), &segments, positioned.then_some(a[3]))
}

/// writev and pwritev.
pub(super) fn writev(linux: &mut Linux, guest: &mut Guest<'_>, a: &[u64; 6], positioned: bool) -> Served {
    let segments = segments(guest, a[1], a[2])?;
    write(linux, guest, int(a[0]), &segments, positioned.then_some(a[3]))
}

/// A position in a file: not negative.
fn checked(offset: Option<u64>) -> Served<Option<i64>> {
    match offset.map(long) {
        Some(offset) if offset < 0 => errno(libc::EINVAL),
        offset => Ok(offset),
    }
}

/// A vector of buffers, as the guest wrote it.
fn segments(guest: &mut Guest<'_>, address: Virt, count: u64) -> Served<Vec<Segment>> {
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
/// nothing at all can be transferred is EFAULT.
fn usable(guest: &mut Guest<'_>, segments: &[Segment], access: Access) -> Served<Vec<(Virt, usize)>> {
    let mut left = LONGEST;
    let mut usable = Vec::with_capacity(segments.len());
    for &(address, length) in segments {
        let wanted = length.min(left);
        let good = guest.space.accessible(address, wanted, access);
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
