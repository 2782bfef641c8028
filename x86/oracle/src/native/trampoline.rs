//! The way into a case and back: all user-visible registers are loaded, the case runs, all are stored.

use crate::layout::MAILBOX;
use core::arch::naked_asm;
use core::mem::offset_of;

/// The most that an XSAVE image of [`x86::xsave::component::ALL`] takes, on any processor.
pub(super) const XSAVE_SIZE: usize = 2688;

/// What the trampoline loads and stores, at the fixed address [`MAILBOX`]: with an absolute 32-bit address no
/// register is needed to reach it.
#[repr(C, align(64))]
pub(super) struct Mailbox {
    /// XSAVE image.
    pub(super) xsave: [u8; XSAVE_SIZE],
    /// General registers by hardware number.
    pub(super) gpr: [u64; 16],
    /// The frame of IRETQ: rip, cs, rflags, rsp, ss. rflags is stored back here.
    pub(super) frame: [u64; 5],
    /// Base of FS.
    pub(super) fs_base: u64,
    /// Base of GS.
    pub(super) gs_base: u64,
    /// The host's stack pointer and segment bases while the case runs.
    host: [u64; 3],
    /// MXCSR for the host.
    pub(super) host_mxcsr: u32,
    /// The components of the image, as EAX of XSAVE and XRSTOR.
    pub(super) components: u32,
}

const GPR: u64 = MAILBOX + offset_of!(Mailbox, gpr) as u64;
const FRAME: u64 = MAILBOX + offset_of!(Mailbox, frame) as u64;
const XSAVE: u64 = MAILBOX + offset_of!(Mailbox, xsave) as u64;
const COMPONENTS: u64 = MAILBOX + offset_of!(Mailbox, components) as u64;
const FS_BASE: u64 = MAILBOX + offset_of!(Mailbox, fs_base) as u64;
const GS_BASE: u64 = MAILBOX + offset_of!(Mailbox, gs_base) as u64;
const HOST: u64 = MAILBOX + offset_of!(Mailbox, host) as u64;
const HOST_MXCSR: u64 = MAILBOX + offset_of!(Mailbox, host_mxcsr) as u64;
const _: () = assert!(MAILBOX + size_of::<Mailbox>() as u64 <= crate::layout::LEAVE, "the slot is behind it");

/// Runs the case in the mailbox; returns when it leaves through [`leave`] or [`recover`].
///
/// IRETQ loads rip, rsp and rflags at once, and it serializes: the code was just written through another
/// mapping, and the processor must not run stale bytes (Intel SDM vol. 3, "Handling Self- and Cross-Modifying
/// Code").
///
/// # Safety
/// The mailbox is mapped, its frame leads to mapped code, signals are handled on their own stack, and FSGSBASE
/// is enabled. The mailbox holds a valid XSAVE image of components that the system has enabled.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter() {
    naked_asm!(
        "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
        "mov qword ptr [{host}], rsp",
        "rdfsbase rax", "mov qword ptr [{host} + 8], rax",
        "rdgsbase rax", "mov qword ptr [{host} + 16], rax",
        "mov rax, qword ptr [{fs_base}]", "wrfsbase rax",
        "mov rax, qword ptr [{gs_base}]", "wrgsbase rax",
        "mov eax, dword ptr [{components}]", "xor edx, edx",
        "xrstor64 [{xsave}]",
        "mov rax, qword ptr [{gpr}]",
        "mov rcx, qword ptr [{gpr} + 8]",
        "mov rdx, qword ptr [{gpr} + 16]",
        "mov rbx, qword ptr [{gpr} + 24]",
        "mov rbp, qword ptr [{gpr} + 40]",
        "mov rsi, qword ptr [{gpr} + 48]",
        "mov rdi, qword ptr [{gpr} + 56]",
        "mov r8, qword ptr [{gpr} + 64]",
        "mov r9, qword ptr [{gpr} + 72]",
        "mov r10, qword ptr [{gpr} + 80]",
        "mov r11, qword ptr [{gpr} + 88]",
        "mov r12, qword ptr [{gpr} + 96]",
        "mov r13, qword ptr [{gpr} + 104]",
        "mov r14, qword ptr [{gpr} + 112]",
        "mov r15, qword ptr [{gpr} + 120]",
        "mov rsp, {frame}",
        "iretq",
        host = const HOST, fs_base = const FS_BASE, gs_base = const GS_BASE, xsave = const XSAVE,
        components = const COMPONENTS, gpr = const GPR, frame = const FRAME,
    )
}

/// Stores every register, restores the host's and returns from [`enter`].
///
/// # Safety
/// Only to be jumped to from a case that [`enter`] started.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn leave() {
    naked_asm!(
        "mov qword ptr [{gpr}], rax",
        "mov qword ptr [{gpr} + 8], rcx",
        "mov qword ptr [{gpr} + 16], rdx",
        "mov qword ptr [{gpr} + 24], rbx",
        "mov qword ptr [{gpr} + 32], rsp",
        "mov qword ptr [{gpr} + 40], rbp",
        "mov qword ptr [{gpr} + 48], rsi",
        "mov qword ptr [{gpr} + 56], rdi",
        "mov qword ptr [{gpr} + 64], r8",
        "mov qword ptr [{gpr} + 72], r9",
        "mov qword ptr [{gpr} + 80], r10",
        "mov qword ptr [{gpr} + 88], r11",
        "mov qword ptr [{gpr} + 96], r12",
        "mov qword ptr [{gpr} + 104], r13",
        "mov qword ptr [{gpr} + 112], r14",
        "mov qword ptr [{gpr} + 120], r15",
        "mov rsp, {frame} + 24",
        "pushfq",
        "mov eax, dword ptr [{components}]", "xor edx, edx",
        "xsave64 [{xsave}]",
        "jmp {recover}",
        gpr = const GPR, frame = const FRAME, xsave = const XSAVE, components = const COMPONENTS, recover = sym recover,
    )
}

/// Restores the host's registers and returns from [`enter`]: where the signal handler resumes after a fault.
///
/// # Safety
/// Only to be jumped to while a case that [`enter`] started is running.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn recover() {
    naked_asm!(
        "rdfsbase rax", "mov qword ptr [{fs_base}], rax",
        "rdgsbase rax", "mov qword ptr [{gs_base}], rax",
        "mov rsp, qword ptr [{host}]",
        "mov rax, qword ptr [{host} + 8]", "wrfsbase rax",
        "mov rax, qword ptr [{host} + 16]", "wrgsbase rax",
        "push 2", "popfq",
        "fninit",
        "ldmxcsr [{host_mxcsr}]",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
        "ret",
        host = const HOST, fs_base = const FS_BASE, gs_base = const GS_BASE, host_mxcsr = const HOST_MXCSR,
    )
}
