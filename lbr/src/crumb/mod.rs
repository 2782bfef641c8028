//! Crumbs: one small record for each exit of the guest, in a ring that outlives the process which writes it.
//!
//! [`record`] is a crumb and its bytes, [`ring`] the layout of a ring's file, [`writer`] and [`reader`] its two ends:
//! one writer for each virtual CPU, without system calls; any number of readers, also while it is written.
//! [`note`] is the newest crumbs as a core holds them.

pub mod note;
pub mod reader;
pub mod record;
pub mod ring;
pub mod writer;

pub use note::{Crumbs, CrumbsError};
pub use reader::{Reader, RingError, Snapshot};
pub use record::{Counts, Crumb, Entry, Exit};
pub use ring::Origin;
pub use writer::Writer;
