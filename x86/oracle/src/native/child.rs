//! The worker process: maps the pages of [`crate::layout`] and runs one batch after another.
//!
//! It is forked from a process that may have other threads, so it calls nothing but system calls, allocates
//! nothing and never returns.

use super::shared::{Raw, Shared};
use super::trampoline::{self, Mailbox};
use crate::case::{Case, Writes};
use crate::layout::{CODE, CODE_MAX, DATA, EXIT_JUMP, LEAVE, MAILBOX, PAGE, READ_ONLY, WRITABLE, exit_jump};
use core::ffi::{c_int, c_void};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use x86::op::Gpr;
use x86::state::{Fpu, State};
use x86::xsave::Layout;

/// The state components of this host, and where it puts them.
#[derive(Clone, Copy)]
pub(super) struct Extended {
    pub(super) layout: Layout,
    pub(super) components: u64,
}

/// Exit statuses of the worker, so that a failure to start says where.
pub(super) mod status {
    /// The parent went away.
    pub(in super::super) const DONE: i32 = 0;
    /// The pages could not be mapped.
    pub(in super::super) const NO_PAGES: i32 = 10;
    /// The signal handlers could not be installed.
    pub(in super::super) const NO_SIGNALS: i32 = 11;
    /// The system call filter could not be installed.
    pub(in super::super) const NO_FILTER: i32 = 12;
    /// A fault outside a case.
    pub(in super::super) const OWN_FAULT: i32 = 13;
}

/// What the signal handler found; read back once the case is over.
struct Caught {
    signal: AtomicI32,
    vector: AtomicU64,
    error: AtomicU64,
    address: AtomicU64,
    rip: AtomicU64,
    rflags: AtomicU64,
}

static CAUGHT: Caught = Caught {
    signal: AtomicI32::new(0),
    vector: AtomicU64::new(0),
    error: AtomicU64::new(0),
    address: AtomicU64::new(0),
    rip: AtomicU64::new(0),
    rflags: AtomicU64::new(0),
};
static IN_CASE: AtomicBool = AtomicBool::new(false);
static CS: AtomicU32 = AtomicU32::new(0);
static SS: AtomicU32 = AtomicU32::new(0);
/// Size of the XSAVE image.
static IMAGE_SIZE: AtomicUsize = AtomicUsize::new(0);

fn exit(status: c_int) -> ! {
    // SAFETY: _exit takes any status and runs nothing of this process.
    unsafe { libc::_exit(status) }
}

fn mailbox() -> *mut Mailbox {
    with_exposed_provenance_mut(address(MAILBOX))
}

fn address(at: u64) -> usize {
    usize::try_from(at).unwrap_or_else(|_| exit(status::NO_PAGES))
}

/// Runs batches until the parent closes its end of the socket.
pub(super) fn main(shared: *mut Shared, parent: c_int, extended: Extended) -> ! {
    // A case that never ends must not outlive the parent either.
    // SAFETY: the call only says which signal the end of the parent sends to this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as core::ffi::c_ulong) };
    let Some(code) = map_pages() else { exit(status::NO_PAGES) };
    if !catch_signals() {
        exit(status::NO_SIGNALS);
    }
    prepare_mailbox(&extended);
    if !super::filter::install() {
        exit(status::NO_FILTER);
    }
    let mut byte = 0_u8;
    // SAFETY: one byte is read into and written from a live local.
    while unsafe { libc::read(parent, (&raw mut byte).cast(), 1) } == 1 {
        // SAFETY: the parent does not touch the batch between its byte and ours.
        run_batch(unsafe { &mut *shared }, code, &extended);
        // SAFETY: as above.
        if unsafe { libc::write(parent, (&raw const byte).cast(), 1) } != 1 {
            break;
        }
    }
    exit(status::DONE)
}

fn run_batch(shared: &mut Shared, code: *mut u8, extended: &Extended) {
    // SAFETY: the data pages are mapped for as long as the process lives, and while no case runs nothing else
    // refers to them. The last page is read-only; it is written through its alias below.
    let data = unsafe {
        core::slice::from_raw_parts_mut(with_exposed_provenance_mut::<u8>(address(DATA)), WRITABLE)
    };
    data.copy_from_slice(&shared.image[..WRITABLE]);
    // SAFETY: the alias of the read-only page is the page after the alias of the code page.
    let read_only = unsafe { core::slice::from_raw_parts_mut(code.add(PAGE), PAGE) };
    read_only.copy_from_slice(&shared.image[WRITABLE..]);
    let first = shared.progress.load(Relaxed) as usize;
    for n in first..shared.count.min(shared.cases.len()) {
        shared.progress.store(u32::try_from(n).unwrap_or(u32::MAX), Relaxed);
        let case = shared.cases[n];
        // SAFETY: the alias of the code page is writable and as long as a page.
        let page = unsafe { core::slice::from_raw_parts_mut(code, PAGE) };
        write_code(page, &case);
        run_case(&case, extended, &mut shared.outcomes[n]);
        shared.outcomes[n].writes = Writes::take(&shared.image, data);
        erase_code(page, &case);
    }
    shared.progress.store(u32::try_from(shared.count).unwrap_or(u32::MAX), Relaxed);
}

fn write_code(page: &mut [u8], case: &Case) {
    let Some(offset) = case.offset() else { return };
    let end = offset + case.len;
    page[offset..end].copy_from_slice(case.bytes());
    if case.end().is_some() {
        page[end..end + EXIT_JUMP].copy_from_slice(&exit_jump());
    }
}

fn erase_code(page: &mut [u8], case: &Case) {
    let Some(offset) = case.offset() else { return };
    page[offset..PAGE.min(offset + CODE_MAX + EXIT_JUMP)].fill(0xcc);
}

fn run_case(case: &Case, extended: &Extended, out: &mut Raw) {
    let State { regs, fpu } = case.state;
    // SAFETY: the mailbox is mapped, and while no case runs only this function uses it.
    let mail = unsafe { &mut *mailbox() };
    fpu.write_xsave(&extended.layout, extended.components, &mut mail.xsave);
    mail.gpr = regs.gpr;
    mail.frame = [
        regs.rip,
        CS.load(Relaxed).into(),
        regs.rflags,
        regs.gpr[usize::from(Gpr::RSP.0)],
        SS.load(Relaxed).into(),
    ];
    (mail.fs_base, mail.gs_base) = (regs.fs_base, regs.gs_base);
    CAUGHT.signal.store(0, Relaxed);
    IN_CASE.store(true, Relaxed);
    // SAFETY: the mailbox is filled in, the code is in its page, signals have their own stack, and the parent
    // checked that FSGSBASE is enabled.
    unsafe { trampoline::enter() };
    IN_CASE.store(false, Relaxed);
    // SAFETY: as above; taken anew because the case wrote to it behind the compiler's back.
    let mail = unsafe { &mut *mailbox() };
    out.signal = CAUGHT.signal.load(Relaxed);
    out.vector = CAUGHT.vector.load(Relaxed);
    out.error = CAUGHT.error.load(Relaxed);
    out.address = CAUGHT.address.load(Relaxed);
    out.state.fpu = Fpu::from_xsave(&extended.layout, &mail.xsave).unwrap_or_default();
    let regs = &mut out.state.regs;
    regs.gpr = mail.gpr;
    (regs.fs_base, regs.gs_base) = (mail.fs_base, mail.gs_base);
    (regs.rip, regs.rflags) = match out.signal {
        0 => (case.end().unwrap_or(0), mail.frame[2]),
        _ => (CAUGHT.rip.load(Relaxed), CAUGHT.rflags.load(Relaxed)),
    };
}

/// Takes the case's registers from the signal frame and has the kernel resume in `recover`.
extern "C" fn on_signal(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if !IN_CASE.load(Relaxed) {
        exit(status::OWN_FAULT);
    }
    // SAFETY: the kernel passes a ucontext that lives until the handler returns.
    let machine = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    let greg = |n: c_int| machine.gregs[slot(n)].cast_unsigned();
    CAUGHT.signal.store(signal, Relaxed);
    CAUGHT.vector.store(greg(libc::REG_TRAPNO), Relaxed);
    CAUGHT.error.store(greg(libc::REG_ERR), Relaxed);
    CAUGHT.address.store(greg(libc::REG_CR2), Relaxed);
    CAUGHT.rip.store(greg(libc::REG_RIP), Relaxed);
    CAUGHT.rflags.store(greg(libc::REG_EFL), Relaxed);
    let gpr = GREGS.map(greg);
    // SAFETY: a case is running, so nothing but its trampoline uses the mailbox, and that is interrupted. The
    // frame's floating-point state is an XSAVE image, whose size is that of the components that the system has enabled:
    // not less than those of the mailbox.
    unsafe {
        let mail = &mut *mailbox();
        mail.gpr = gpr;
        let image = core::slice::from_raw_parts(machine.fpregs.cast::<u8>(), IMAGE_SIZE.load(Relaxed));
        mail.xsave[..image.len()].copy_from_slice(image);
    }
    machine.gregs[slot(libc::REG_RIP)] = trampoline::recover as *const () as i64;
    machine.gregs[slot(libc::REG_EFL)] = x86::state::RFLAGS_FIXED.cast_signed();
}

/// libc numbers the registers of a signal frame with a C `int`, never negative.
fn slot(register: c_int) -> usize {
    usize::try_from(register).unwrap_or(0)
}

/// The general registers of a signal frame by hardware number.
const GREGS: [c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

fn catch_signals() -> bool {
    const STACK: usize = 16 * PAGE;
    // SAFETY: a fresh anonymous mapping becomes the signal stack; the structures are plain data, and the handler
    // has the signature that SA_SIGINFO asks for.
    unsafe {
        let Some(base) = map(0, STACK, libc::PROT_READ | libc::PROT_WRITE, None) else { return false };
        let stack = libc::stack_t { ss_sp: base.cast(), ss_flags: 0, ss_size: STACK };
        if libc::sigaltstack(&raw const stack, core::ptr::null_mut()) != 0 {
            return false;
        }
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS]
            .into_iter()
            .all(|signal| libc::sigaction(signal, &raw const action, core::ptr::null_mut()) == 0)
    }
}

fn prepare_mailbox(extended: &Extended) {
    let (cs, ss): (u32, u32);
    // SAFETY: reading the segment selectors has no effect.
    unsafe {
        core::arch::asm!("mov {0:e}, cs", "mov {1:e}, ss", out(reg) cs, out(reg) ss,
            options(nomem, nostack, preserves_flags));
    }
    CS.store(cs, Relaxed);
    SS.store(ss, Relaxed);
    // SAFETY: the mailbox is mapped and nothing else uses it yet.
    let mail = unsafe { &mut *mailbox() };
    // SAFETY: the slot is behind the mailbox in its page.
    unsafe { *with_exposed_provenance_mut(address(LEAVE)) = trampoline::leave as *const () as u64 };
    mail.host_mxcsr = x86::state::MXCSR_RESET;
    mail.components = u32::try_from(extended.components).unwrap_or(0);
    IMAGE_SIZE.store(extended.layout.size(extended.components), Relaxed);
}

/// Maps all fixed pages; returns the writable alias of the code page, with that of the read-only page behind it.
fn map_pages() -> Option<*mut u8> {
    let (rw, rx) = (libc::PROT_READ | libc::PROT_WRITE, libc::PROT_READ | libc::PROT_EXEC);
    // SAFETY: the calls make a file that only this process has.
    let file = unsafe {
        let file = libc::memfd_create(c"code".as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 || libc::ftruncate(file, 2 * PAGE as libc::off_t) != 0 {
            return None;
        }
        file
    };
    map(CODE, PAGE, rx, Some((file, 0)))?;
    map(DATA, WRITABLE, rw, None)?;
    map(READ_ONLY, PAGE, libc::PROT_READ, Some((file, PAGE)))?;
    map(MAILBOX, PAGE, rw, None)?;
    let alias = map(0, 2 * PAGE, rw, Some((file, 0)))?;
    // SAFETY: the first page of the new mapping, to which nothing else refers.
    unsafe { core::slice::from_raw_parts_mut(alias, PAGE) }.fill(0xcc);
    Some(alias)
}

/// Maps `size` bytes at `at` (anywhere if 0), anonymous or of a file.
fn map(at: u64, size: usize, protection: c_int, file: Option<(c_int, usize)>) -> Option<*mut u8> {
    let fixed = if at == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let (flags, fd, offset) = match file {
        Some((fd, offset)) => (libc::MAP_SHARED, fd, offset),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    let hint = with_exposed_provenance_mut(address(at));
    // SAFETY: a new mapping that replaces none.
    let got = unsafe {
        libc::mmap(hint, size, protection, flags | fixed | libc::MAP_POPULATE, fd, offset as libc::off_t)
    };
    if got == libc::MAP_FAILED {
        return None;
    }
    let got = got.cast::<u8>();
    (at == 0 || got.expose_provenance() as u64 == at).then_some(got)
}
