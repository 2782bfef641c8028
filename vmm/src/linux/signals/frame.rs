//! The frame that a signal's handler runs on, as the kernel lays it out on x86-64 (`struct rt_sigframe`): return
//! address, ucontext, siginfo, and above them the FXSAVE image or, where the processor has more state or the program
//! uses more, the XSAVE image (arch/x86/kernel/fpu/signal.c).

use super::super::{Guest, Served, errno};
use super::{Action, Stack};
use crate::engine::Exception;
use crate::ram::Virt;
use crate::signal::{Cause, Raised};
use x86::state::{Fpu, MxcsrMask, RFLAGS_DF, RFLAGS_FIXED, RFLAGS_IF, RFLAGS_TF, Regs};
use x86::xsave::{HEADER_END, Layout, SOFTWARE, component};

/// Size of the frame: return address, ucontext, siginfo.
const SIZE: u64 = 8 + UCONTEXT + SIGINFO as u64;
const UCONTEXT: u64 = 304;
const SIGINFO: usize = 128;
/// Words of the ucontext, whose mcontext begins at word 5.
const WORDS: usize = 38;
const MCONTEXT: usize = 5;
/// `uc_flags`: UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS, as every 64-bit kernel sets them.
const UC_FLAGS: u64 = 6;
/// User selectors: CS in bits 0 to 15, SS in bits 48 to 63.
const SELECTORS: u64 = 0x33 | 0x2b << 48;
/// General registers by hardware number, in the order of `struct sigcontext`.
const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
/// Where in the mcontext rip, flags, selectors, error, trap, old mask, cr2 and the pointer to the FXSAVE
/// image are.
const RIP: usize = MCONTEXT + 16;
const FPSTATE: usize = MCONTEXT + 23;
/// The signal mask, after the mcontext and its reserved words.
const MASK: usize = WORDS - 1;
/// What a handler may change of the flags: AC, OF, DF, TF, SF, ZF, AF, PF, CF.
const USER_FLAGS: u64 = 0x4_0dd5;
/// `uc_flags`: UC_FP_XSTATE, the image is of XSAVE.
const XSTATE: u64 = 1;
/// FP_XSTATE_MAGIC1, the first of software's words in an XSAVE image, and FP_XSTATE_MAGIC2, behind its end.
const MAGIC: u32 = 0x4650_5853;
const END_MAGIC: u32 = 0x4650_5845;
const END_MAGIC_SIZE: u32 = 4;

/// What comes back at the handler's end besides the registers.
pub(super) struct Saved {
    pub(super) mask: u64,
    pub(super) stack: Stack,
    /// The last exception; a frame that comes back does not say it.
    pub(super) exception: Option<Exception>,
}

/// Pushes a frame below `top` and enters the handler; `other` says that `top` is on the alternate stack, which must hold
/// the frame then (`get_sigframe` of arch/x86/kernel/signal.c).
pub(super) fn push(
    guest: &mut Guest<'_>,
    (top, other): (Virt, bool),
    action: &Action,
    raised: &Raised,
    saved: &Saved,
) -> Served<()> {
    let regs = *guest.cpu.regs();
    let fpu = guest.cpu.fpu()?;
    let bytes = image(&fpu, guest.model.components() | fpu.wide_components());
    let image = top.saturating_sub(bytes.len() as u64) & !63;
    // As at a function's entry: the stack is 8 bytes off a multiple of 16.
    let frame = (image.saturating_sub(SIZE) & !15).saturating_sub(8);
    if other && !saved.stack.holds(frame) {
        return errno(libc::EFAULT);
    }
    let (context, info) = (frame + 8, frame + 8 + UCONTEXT);
    guest.write(image, &bytes)?;
    guest.write_words(frame, &[action.restorer])?;
    guest.write_words(context, &ucontext(&regs, (image, bytes.len()), saved))?;
    guest.write(info, &siginfo(raised))?;

    let mut entry = regs;
    entry.gpr[0] = 0;
    entry.gpr[7] = u64::from(raised.signal().unsigned_abs());
    entry.gpr[6] = info;
    entry.gpr[2] = context;
    entry.gpr[4] = frame;
    entry.rip = action.handler;
    entry.rflags &= !(RFLAGS_DF | RFLAGS_TF);
    Ok(guest.cpu.set_regs(&entry)?)
}

/// Takes the registers back from the frame that the handler's return left the stack pointer above.
pub(super) fn pop(guest: &mut Guest<'_>) -> Served<Saved> {
    let mut regs = *guest.cpu.regs();
    // The return address is already popped, so the stack pointer is at the ucontext.
    let words: [u64; WORDS] = guest.read_words(regs.gpr[4])?;
    // A program of 64 bits returns to nothing else.
    if words[RIP + 2] & 0xfffc != SELECTORS & 0xfffc {
        return errno(libc::EFAULT);
    }
    for (n, word) in ORDER.into_iter().zip(&words[MCONTEXT..]) {
        regs.gpr[n] = *word;
    }
    regs.rip = words[RIP];
    regs.rflags = words[RIP + 1] & USER_FLAGS | RFLAGS_FIXED | RFLAGS_IF;
    let fpu = if words[FPSTATE] == 0 { Fpu::default() } else { read_image(guest, words[FPSTATE])? };
    guest.cpu.set_fpu(&fpu)?;
    guest.cpu.set_regs(&regs)?;
    let stack = Stack { start: words[2], flags: words[3] & 0xffff_ffff, size: words[4] };
    Ok(Saved { mask: words[MASK], stack, exception: None })
}

/// The image of these components, as the frame has it.
fn image(fpu: &Fpu, components: u64) -> Vec<u8> {
    if components == component::LEGACY {
        return fpu.to_fxsave().to_vec();
    }
    let mut bytes = fpu.to_xsave(&Layout::MODEL, components);
    let size = u32::try_from(bytes.len()).unwrap_or(0);
    let whole = size + END_MAGIC_SIZE;
    let mut at = SOFTWARE;
    for field in
        [&MAGIC.to_le_bytes()[..], &whole.to_le_bytes(), &components.to_le_bytes(), &size.to_le_bytes()]
    {
        bytes[at..at + field.len()].copy_from_slice(field);
        at += field.len();
    }
    bytes.extend(END_MAGIC.to_le_bytes());
    bytes
}

/// Reads the image of a frame. One that is not marked as XSAVE's, or not whole, holds x87 and SSE, and all else is
/// initial.
fn read_image(guest: &mut Guest<'_>, at: Virt) -> Served<Fpu> {
    let legacy: [u8; Fpu::FXSAVE_SIZE] = guest.read_array(at)?;
    let word = |n: usize| {
        let at = SOFTWARE + 4 * n;
        u32::from_le_bytes(legacy[at..at + 4].try_into().expect("four bytes"))
    };
    let (magic, whole, size) = (word(0), word(1), word(4));
    let fits = (HEADER_END..=Layout::MODEL.size(component::ALL)).contains(&(size as usize));
    let mut fpu = Fpu::from_fxsave(&legacy);
    if magic == MAGIC && fits && whole == size + END_MAGIC_SIZE {
        let mut bytes = vec![0; whole as usize];
        guest.read(at, &mut bytes)?;
        let (image, end) = bytes.split_at(size as usize);
        if end == END_MAGIC.to_le_bytes() {
            fpu = Fpu::from_xsave(&Layout::MODEL, image).unwrap_or(fpu);
        }
    }
    fpu.mxcsr &= MxcsrMask::INTEL.0;
    Ok(as_loaded(fpu))
}

/// The x87 state as FXRSTOR leaves it, whatever somebody has written to the image: the control word's fixed bits; the summary of
/// exceptions that are not masked; no last instruction.
fn as_loaded(fpu: Fpu) -> Fpu {
    const FIXED: u16 = 0x40;
    const CONTROL: u16 = 0x1f3f;
    const EXCEPTIONS: u16 = 0x3f;
    const SUMMARY: u16 = 0x8080;
    let control = fpu.control & CONTROL | FIXED;
    let summary = if fpu.status & !control & EXCEPTIONS == 0 { 0 } else { SUMMARY };
    let status = fpu.status & !SUMMARY | summary;
    Fpu { control, status, opcode: 0, instruction: 0, data: 0, ..fpu }
}

fn ucontext(regs: &Regs, image: (Virt, usize), saved: &Saved) -> [u64; WORDS] {
    let (image, size) = image;
    let flags = if size > Fpu::FXSAVE_SIZE { UC_FLAGS | XSTATE } else { UC_FLAGS };
    let mut words = [0; WORDS];
    words[..MCONTEXT].copy_from_slice(&[flags, 0, saved.stack.start, saved.stack.flags, saved.stack.size]);
    for (word, n) in words[MCONTEXT..].iter_mut().zip(ORDER) {
        *word = regs.gpr[n];
    }
    let (error, vector, cr2) = saved.exception.map_or((0, 0, 0), |exception| {
        (u64::from(exception.error_code), u64::from(exception.vector), exception.address)
    });
    words[RIP..=FPSTATE].copy_from_slice(&[
        regs.rip,
        regs.rflags,
        SELECTORS,
        error,
        vector,
        saved.mask,
        cr2,
        image,
    ]);
    words[MASK] = saved.mask;
    words
}

/// The `siginfo_t` of a signal (asm-generic/siginfo.h).
pub(super) fn siginfo(raised: &Raised) -> [u8; SIGINFO] {
    let Raised { death, cause } = raised;
    let mut info = [0; SIGINFO];
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &death.signal.to_le_bytes());
    put(8, &death.code.to_le_bytes());
    match *cause {
        Cause::Kernel => put(16, &death.address.to_le_bytes()),
        Cause::Sender { pid, uid } => {
            put(16, &pid.to_le_bytes());
            put(20, &uid.to_le_bytes());
        }
        Cause::Queued { pid, uid, value } => {
            put(16, &pid.to_le_bytes());
            put(20, &uid.to_le_bytes());
            put(24, &value.to_le_bytes());
        }
        Cause::Child { pid, uid, status } => {
            put(16, &pid.to_le_bytes());
            put(20, &uid.to_le_bytes());
            put(24, &status.to_le_bytes());
        }
        Cause::Timer { id, overrun, value } => {
            put(16, &id.to_le_bytes());
            put(20, &overrun.to_le_bytes());
            put(24, &value.to_le_bytes());
        }
        Cause::File { number, band } => {
            put(16, &band.to_le_bytes());
            put(24, &number.to_le_bytes());
        }
        Cause::Syscall { address, number, data } => {
            put(4, &data.to_le_bytes());
            put(16, &address.to_le_bytes());
            put(24, &number.to_le_bytes());
            // AUDIT_ARCH_X86_64
            put(28, &0xc000_003e_u32.to_le_bytes());
        }
    }
    info
}
