//! What the core gives to the search.

use crate::evidence::Anchor;
use std::ops::Range;

/// Memory at the moment of the crash.
pub trait Image {
    /// The known bytes from `va` on, as far as they are in one piece; none where nothing is mapped or the core does
    /// not hold it.
    fn bytes(&self, va: u64) -> &[u8];
    /// Whether something is mapped there, though the core may not hold it.
    fn is_mapped(&self, va: u64) -> bool;
    /// Whether the program may write there.
    fn is_writable(&self, va: u64) -> bool;
    /// The address ranges that are mapped, in order.
    fn regions(&self) -> Vec<Range<u64>>;

    /// Whether other threads of the program may write there: on one processor, wherever they can get it.
    fn is_shared(&self) -> bool {
        false
    }

    /// How many of the newest system calls it is known of that no other thread ran behind them.
    fn calls_alone(&self) -> usize {
        0
    }

    /// The `n`th newest system call of the thread, counted from zero, if its crumb is there.
    fn call(&self, _n: usize) -> Option<&Anchor> {
        None
    }

    /// A byte.
    fn byte(&self, va: u64) -> Option<u8> {
        self.bytes(va).first().copied()
    }
}
