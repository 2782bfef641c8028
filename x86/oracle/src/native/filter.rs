//! A system call filter for the worker: a random jump may land on the bytes of SYSCALL, and must not reach the
//! kernel with random arguments.

use crate::layout::{CODE, PAGE};
use core::ffi::c_ulong;

/// `struct seccomp_data`: the low half of the address after the instruction that makes the call.
const CALLER_LOW: u32 = 8;
/// `struct seccomp_data`: its high half.
const CALLER_HIGH: u32 = 12;

/// Makes system calls from the code page raise SIGSYS instead. Says whether it worked.
pub(super) fn install() -> bool {
    let Ok(page) = u32::try_from(CODE) else { return false };
    let Ok(end) = u32::try_from(CODE + PAGE as u64) else { return false };
    let (equal, above) = (libc::BPF_JEQ, libc::BPF_JGT);
    let mut program = [
        load(CALLER_HIGH),
        jump_if(equal, 0, 0, 4),
        load(CALLER_LOW),
        jump_if(above, end, 2, 0),
        jump_if(above, page, 0, 1),
        give(libc::SECCOMP_RET_TRAP),
        give(libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap_or(u16::MAX),
        filter: program.as_mut_ptr(),
    };
    let (none, one): (c_ulong, c_ulong) = (0, 1);
    let mode = c_ulong::from(libc::SECCOMP_MODE_FILTER);
    // SAFETY: the filter program outlives the call; both calls only restrict this process.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, none, none, none) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) == 0
    }
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

fn give(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action)
}

/// Skips `yes` statements if the loaded value compares so with `k`, else `no`.
fn jump_if(comparison: u32, k: u32, yes: u8, no: u8) -> libc::sock_filter {
    let jump = statement(libc::BPF_JMP | comparison | libc::BPF_K, k);
    libc::sock_filter { jt: yes, jf: no, ..jump }
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).unwrap_or(u16::MAX), jt: 0, jf: 0, k }
}
