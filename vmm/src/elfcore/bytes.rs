//! Bytes of a file: a copy, or seen where the file is mapped.

use lbr::View;
use std::fmt::{self, Debug, Formatter};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Bytes that a core, or a program's file, holds. Cores have gigabytes, of which little is looked at.
#[derive(Clone)]
pub struct Bytes(Kind);

#[derive(Clone)]
enum Kind {
    Copied(Arc<[u8]>),
    Seen(Arc<View>, Range<usize>),
}

impl Bytes {
    /// A part of a mapped file, which must have it.
    pub(super) fn seen(view: &Arc<View>, range: Range<usize>) -> Bytes {
        debug_assert!(range.start <= range.end && range.end <= view.len(), "it is in the file");
        Bytes(Kind::Seen(Arc::clone(view), range))
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes(Kind::Copied(bytes.into()))
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Copied(bytes) => bytes,
            Kind::Seen(view, range) => &view[range.clone()],
        }
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl Debug for Bytes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
