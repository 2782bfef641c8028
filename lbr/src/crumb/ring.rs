//! The layout of a ring's file: a page with the header, then the slots, each with room for one record.
//!
//! Crumb number n is in slot (n - 1) modulo the number of slots. Nothing in the file says which is the newest: the
//! records' own numbers do, so there is nothing that a crash could leave behind the truth.

use super::record::RECORD;
use xxhash_rust::xxh3::xxh3_64;

/// Where the slots begin.
pub(super) const HEADER: usize = 4096;
const MAGIC: &[u8; 8] = b"gtrcrumb";
/// The version of the layout.
pub const VERSION: u32 = 2;
/// The one before: preemptions left no crumbs.
pub(super) const WITHOUT_PREEMPTIONS: u32 = 1;
/// How many crumbs a ring can hold at most.
pub const MAX_SLOTS: u32 = 1 << 20;
/// How many bytes of the header are used, the checksum behind them included.
pub(super) const USED: usize = 48;

/// Where and when a run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Origin {
    /// Which virtual CPU left the crumbs.
    pub vcpu: u32,
    /// CLOCK_REALTIME at the start, in nanoseconds since the epoch.
    pub real: u64,
    /// CLOCK_MONOTONIC at the same moment: what the crumbs' times are compared with.
    pub monotonic: u64,
}

/// Why bytes are not the header of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// They do not begin as one.
    #[error("the first eight bytes are not 'gtrcrumb'")]
    Magic,
    /// Another version of the layout.
    #[error("offset 8: version {0}; this gretel reads version {VERSION}")]
    Version(u32),
    /// The header does not fit its checksum, or there is too little of it.
    #[error("offset 40: the header's checksum is wrong (the writer had not finished it, or it was changed)")]
    Checksum,
    /// A field has a value that it cannot have.
    #[error("offset {offset}: the {field} cannot be {value}")]
    Value {
        /// The field.
        field: &'static str,
        /// Where it is.
        offset: usize,
        /// What is there.
        value: u32,
    },
}

/// The version of crumbs that preemptions left some of, or none.
pub(super) fn version_with(preemptions: bool) -> u32 {
    if preemptions { VERSION } else { WITHOUT_PREEMPTIONS }
}

/// Whether preemptions left crumbs in this version; `None` of one that is not read.
pub(super) fn tells_preemptions(version: u32) -> Option<bool> {
    match version {
        VERSION => Some(true),
        WITHOUT_PREEMPTIONS => Some(false),
        _ => None,
    }
}

/// What a header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// How many slots follow.
    pub(super) slots: u32,
    pub(super) origin: Origin,
    /// Preemptions left crumbs.
    pub(super) preemptions: bool,
}

impl Header {
    /// The used part of the header: magic (8 bytes), version (4), size of a record (4), number of slots (4), virtual
    /// CPU (4), CLOCK_REALTIME (8), CLOCK_MONOTONIC (8), XXH3-64 of all before (8).
    pub(super) fn to_bytes(self) -> [u8; USED] {
        let record = u32::try_from(RECORD).unwrap_or(0);
        let Origin { vcpu, real, monotonic } = self.origin;
        let version = version_with(self.preemptions);
        let mut bytes = [0; USED];
        bytes[..8].copy_from_slice(MAGIC);
        for (n, half) in [version, record, self.slots, vcpu].into_iter().enumerate() {
            bytes[8 + 4 * n..12 + 4 * n].copy_from_slice(&half.to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&real.to_le_bytes());
        bytes[32..40].copy_from_slice(&monotonic.to_le_bytes());
        let checksum = xxh3_64(&bytes[..40]);
        bytes[40..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Header, HeaderError> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err(HeaderError::Magic);
        }
        let Some(bytes) = bytes.first_chunk::<USED>() else { return Err(HeaderError::Checksum) };
        let half = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let word = |at: usize| u64::from(half(at)) | u64::from(half(at + 4)) << 32;
        let preemptions = tells_preemptions(half(8)).ok_or_else(|| HeaderError::Version(half(8)))?;
        if word(40) != xxh3_64(&bytes[..40]) {
            return Err(HeaderError::Checksum);
        }
        let (record, slots) = (half(12), half(16));
        if usize::try_from(record) != Ok(RECORD) {
            return Err(HeaderError::Value { field: "size of a record", offset: 12, value: record });
        }
        if !(1..=MAX_SLOTS).contains(&slots) {
            return Err(HeaderError::Value { field: "number of slots", offset: 16, value: slots });
        }
        let origin = Origin { vcpu: half(20), real: word(24), monotonic: word(32) };
        Ok(Header { slots, origin, preemptions })
    }
}
