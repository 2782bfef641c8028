//! The pieces of memory that a request is made of.

use super::dma::Dma;
use crate::saved::saved;

/// The bytes of one request, at most.
pub(in crate::devices) const LONGEST: u64 = 64 << 20;

/// A piece of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::devices) struct Part {
    pub(in crate::devices) at: u64,
    pub(in crate::devices) length: u32,
}

saved!(struct Part { at, length });

/// The bytes of all parts.
pub(in crate::devices) fn total(parts: &[Part]) -> u64 {
    parts.iter().map(|part| u64::from(part.length)).sum()
}

/// What is in all parts; `None` where there is no memory, or too much of it.
pub(in crate::devices) fn gather(memory: &Dma<'_>, parts: &[Part]) -> Option<Vec<u8>> {
    if total(parts) > LONGEST {
        return None;
    }
    let pieces = parts.iter().map(|part| memory.get(part.at, usize::try_from(part.length).ok()?));
    pieces.collect::<Option<Vec<_>>>().map(|pieces| pieces.concat())
}

/// Stores bytes to parts, as many as fit: whether all of these are memory, and how many were stored.
pub(in crate::devices) fn scatter(memory: &mut Dma<'_>, parts: &[Part], mut bytes: &[u8]) -> (bool, u32) {
    let mut stored = 0;
    for part in parts {
        let length = usize::try_from(part.length).unwrap_or(usize::MAX).min(bytes.len());
        let (piece, rest) = bytes.split_at(length);
        if memory.put(part.at, piece).is_none() {
            return (false, stored);
        }
        stored += u32::try_from(length).unwrap_or(0);
        bytes = rest;
    }
    (true, stored)
}
