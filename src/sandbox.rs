//! The sandbox of gretel itself, while it runs programs or reads recordings that may be hostile.

use crate::log::say;
use vmm::confine::confine;

/// Puts this process into it. Where the kernel lacks a part of it, that is said, and is no reason to stop.
pub(crate) fn enter() {
    for missing in confine().missing() {
        say!("gretel: a part of gretel's own sandbox is missing here: {missing}");
    }
}
