//! What RFLAGS may be in ring 3.

use x86::state::{RFLAGS_FIXED, RFLAGS_IF};

/// CF, PF, AF, ZF, SF, TF, DF, OF, NT, AC, ID: what a program can change (Intel SDM vol. 1, 3.4.3).
const USER: u64 = 0x24_4dd5;

/// RFLAGS as ring 3 has it: IF and bit 1 set, IOPL 0. RF is not part of the state: processors set it in the
/// image that an exception pushes, so that a debugger's breakpoint does not hit twice, and the two engines would
/// differ.
pub(super) fn user_rflags(rflags: u64) -> u64 {
    rflags & USER | RFLAGS_FIXED | RFLAGS_IF
}
