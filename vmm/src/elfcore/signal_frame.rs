//! The frame that Linux builds for a signal handler, where no unwind table says so: musl's `__restore_rt` has none.

use super::unwind::{Registers, Walked};

/// `mov $15, %rax; syscall`, as libcs have it, and `mov $15, %eax; syscall`.
const RESTORERS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];
/// Where the registers are in the ucontext that the stack pointer points to once the handler has returned
/// (arch/x86/include/uapi/asm/sigcontext.h): behind flags, link and stack.
const GREGS: u64 = 40;
/// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp and rip, by their DWARF numbers.
const ORDER: [usize; 17] = [8, 9, 10, 11, 12, 13, 14, 15, 5, 4, 6, 3, 1, 0, 2, 7, 16];

/// Whether the code at `rip` returns from a signal handler.
pub(super) fn is_restorer(memory: &dyn Walked, rip: u64) -> bool {
    RESTORERS.iter().any(|code| {
        let mut found = vec![0; code.len()];
        memory.read(rip, &mut found) && found == **code
    })
}

/// The registers of the code that a signal interrupted, from the frame at `rsp`.
pub(super) fn interrupted(memory: &dyn Walked, rsp: u64) -> Option<Registers> {
    let mut all = [None; 17];
    for (place, register) in (0..).zip(ORDER) {
        all[register] = Some(memory.word(rsp.checked_add(GREGS + 8 * place)?)?);
    }
    Some(Registers(all))
}
