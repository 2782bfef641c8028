//! What moves the stack pointer by a constant, as each function does that is called: `push`, `call`, `ret`, `sub rsp, 0x18`.
//!
//! A value that was computed from the stack pointer (an address on the stack, the place that an `alloca` has) is made of all such
//! moves since the program began. They are the compiler's; what came from an input is `sub rsp, rax` among them.

use super::{Byte, Made, Origin, Writer};
use x86::op::Gpr;

/// Whether a byte is one of the stack pointer.
pub(super) fn is_pointer(byte: Byte) -> bool {
    matches!(byte, Byte::General(register, _) if register == Gpr::RSP.0)
}

fn is_frame(byte: Byte) -> bool {
    matches!(byte, Byte::General(register, _) if register == Gpr::RBP.0)
}

impl<At> Writer<At> {
    /// Whether it made the stack pointer of nothing but itself and the frame pointer, or kept it as the frame pointer, and nothing else
    /// that it did is asked for.
    #[must_use]
    pub fn moves_stack(&self) -> bool {
        let is_move = |byte: Byte, origin: &Origin| {
            let mut from = origin.value.iter().copied();
            if is_pointer(byte) {
                return from.all(|from| is_pointer(from) || is_frame(from));
            }
            is_frame(byte) && origin.copied && from.all(is_pointer)
        };
        matches!(self.made, Made::Instruction(_))
            && self.given.iter().all(|(byte, (_, origin))| !origin.value.is_empty() && is_move(*byte, origin))
    }
}
