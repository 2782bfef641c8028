//! What the core gives to the search.

use crate::evidence::Anchors;
use std::ops::Range;
use x86::state::State;

/// Memory at the moment of the crash.
pub trait Image {
    /// The known bytes from `va` on, as far as they are in one piece; none where nothing is mapped or the core does
    /// not hold it.
    fn bytes(&self, va: u64) -> &[u8];
    /// Whether something is mapped there, though the core may not hold it.
    fn is_mapped(&self, va: u64) -> bool;
    /// Whether the program may write there.
    fn is_writable(&self, va: u64) -> bool;
    /// The address ranges that are mapped, in order; of a kernel, those in which data are looked for.
    fn regions(&self) -> Vec<Range<u64>>;

    /// Whether other threads of the program may write there: on one processor, wherever they can get it.
    fn is_shared(&self) -> bool {
        false
    }

    /// Whether it is a kernel's, which runs in ring 0.
    fn is_kernel(&self) -> bool {
        false
    }

    /// Whether the kernel runs under SMAP.
    fn guards_programs(&self) -> bool {
        false
    }

    /// Of a kernel: the base of GS that SWAPGS would bring.
    fn inactive_gs(&self) -> u64 {
        0
    }

    /// Bytes that the crash itself may have stored: what was there before it is not known.
    fn stored_by_crash(&self) -> Range<u64> {
        0..0
    }

    /// The thread that crashed; zero where nothing has a name for it.
    fn crashed(&self) -> u32 {
        0
    }

    /// The registers of another thread, where it waits or could go on.
    fn thread(&self, _id: u32) -> Option<&State> {
        None
    }

    /// The system calls that the thread made, as far as crumbs tell.
    fn anchors(&self) -> &Anchors {
        static NONE: Anchors = Anchors::NONE;
        &NONE
    }

    /// A byte.
    fn byte(&self, va: u64) -> Option<u8> {
        self.bytes(va).first().copied()
    }
}
