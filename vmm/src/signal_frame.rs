//! The frame that a signal's handler runs on, as the kernel lays it out on x86-64 (`struct rt_sigframe`): return
//! address, ucontext, siginfo, and above them the FXSAVE image or, where the processor has more state or the program
//! uses more, the XSAVE image (arch/x86/kernel/fpu/signal.c).
//!
//! Here it is plain data: where its parts lie, and what they say. The personality writes and reads it
//! ([`crate::linux`]); whoever follows a program that a signal interrupted does so without one.
//!
//! Example: a signal comes where rsp is 0x7fffffffe000, and the image has 512 bytes. The red zone of 128 bytes is left
//! alone: the image is at 0x7fffffffdd80, the frame at 0x7fffffffdbb8, and the handler begins with that in rsp.

use crate::engine::Exception;
use crate::ram::Virt;
use x86::state::{Fpu, RFLAGS_FIXED, RFLAGS_IF, Regs};
use x86::xsave::{HEADER_END, Layout, SOFTWARE, component};

/// Size of the frame: return address, ucontext, siginfo.
pub const SIZE: u64 = 8 + UCONTEXT + SIGINFO as u64;
const UCONTEXT: u64 = 304;
/// Size of a `siginfo_t`.
pub const SIGINFO: usize = 128;
/// What a program may keep below its stack pointer.
pub const RED_ZONE: u64 = 128;
/// Words of the ucontext, whose mcontext begins at word 5.
pub const WORDS: usize = 38;
const MCONTEXT: usize = 5;
/// `uc_flags`: UC_SIGCONTEXT_SS and UC_STRICT_RESTORE_SS, as every 64-bit kernel sets them.
const UC_FLAGS: u64 = 6;
/// User selectors: CS in bits 0 to 15, SS in bits 48 to 63.
const SELECTORS: u64 = 0x33 | 0x2b << 48;
/// General registers by hardware number, in the order of `struct sigcontext`.
pub const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
/// Where in the ucontext rip, flags, selectors, error, trap, old mask, cr2 and the pointer to the image are.
const RIP: usize = MCONTEXT + 16;
const FPSTATE: usize = MCONTEXT + 23;
/// The signal mask, after the mcontext and its reserved words.
const MASK: usize = WORDS - 1;
/// What a handler may change of the flags: AC, OF, DF, TF, SF, ZF, AF, PF, CF.
pub const USER_FLAGS: u64 = 0x4_0dd5;
/// `uc_flags`: UC_FP_XSTATE, the image is of XSAVE.
const XSTATE: u64 = 1;
/// FP_XSTATE_MAGIC1, the first of software's words in an XSAVE image, and FP_XSTATE_MAGIC2, behind its end.
const MAGIC: u32 = 0x4650_5853;
const END_MAGIC: u32 = 0x4650_5845;
const END_MAGIC_SIZE: u32 = 4;

/// Where the parts of a frame lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The return address; the handler begins with this stack pointer.
    pub frame: Virt,
    /// The x87 and vector state.
    pub image: Virt,
}

impl Place {
    /// That of a frame below `top`, whose image has so many bytes.
    #[must_use]
    pub fn below(top: Virt, image_bytes: u64) -> Place {
        let image = top.saturating_sub(image_bytes) & !63;
        // As at a function's entry: the stack is 8 bytes off a multiple of 16.
        let frame = (image.saturating_sub(SIZE) & !15).saturating_sub(8);
        Place { frame, image }
    }

    /// That of the frame at `frame`, if there can be one: the image is aligned to more than the frame.
    #[must_use]
    pub fn of_frame(frame: Virt) -> Option<Place> {
        let image = frame.checked_add(8 + SIZE)?.checked_next_multiple_of(64)?;
        let again = (image.checked_sub(SIZE)? & !15).checked_sub(8)?;
        (again == frame).then_some(Place { frame, image })
    }

    /// The ucontext.
    #[must_use]
    pub fn context(self) -> Virt {
        self.frame + 8
    }

    /// The `siginfo_t`.
    #[must_use]
    pub fn info(self) -> Virt {
        self.frame + 8 + UCONTEXT
    }

    /// The saved general register of this hardware number.
    #[must_use]
    pub fn register(self, number: usize) -> Virt {
        let place = ORDER.iter().position(|n| *n == number).unwrap_or(0);
        self.word(MCONTEXT + place)
    }

    /// Where the program was interrupted.
    #[must_use]
    pub fn rip(self) -> Virt {
        self.word(RIP)
    }

    /// The saved flags.
    #[must_use]
    pub fn flags(self) -> Virt {
        self.word(RIP + 1)
    }

    /// The selectors.
    #[must_use]
    pub fn selectors(self) -> Virt {
        self.word(RIP + 2)
    }

    /// The pointer to the image.
    #[must_use]
    pub fn fpstate(self) -> Virt {
        self.word(FPSTATE)
    }

    fn word(self, number: usize) -> Virt {
        self.context() + 8 * number as u64
    }
}

/// What a handler begins with: the registers, of those that were interrupted.
#[must_use]
pub fn entered(interrupted: &Regs, place: Place, signal: i32, handler: Virt) -> Regs {
    use x86::state::{RFLAGS_DF, RFLAGS_TF};
    let mut entry = *interrupted;
    entry.gpr[0] = 0;
    entry.gpr[7] = u64::from(signal.unsigned_abs());
    entry.gpr[6] = place.info();
    entry.gpr[2] = place.context();
    entry.gpr[4] = place.frame;
    entry.rip = handler;
    entry.rflags &= !(RFLAGS_DF | RFLAGS_TF);
    entry
}

/// The words of a ucontext.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context(pub [u64; WORDS]);

impl Context {
    /// That of these registers. `image` is where their image is, and how large; `stack` is the alternate stack: start, flags, size.
    #[must_use]
    pub fn new(
        regs: &Regs,
        image: (Virt, usize),
        mask: u64,
        stack: [u64; 3],
        exception: Option<Exception>,
    ) -> Context {
        let (image, size) = image;
        let flags = if size > Fpu::FXSAVE_SIZE { UC_FLAGS | XSTATE } else { UC_FLAGS };
        let mut words = [0; WORDS];
        words[..MCONTEXT].copy_from_slice(&[flags, 0, stack[0], stack[1], stack[2]]);
        for (word, n) in words[MCONTEXT..].iter_mut().zip(ORDER) {
            *word = regs.gpr[n];
        }
        let (error, vector, cr2) = exception.map_or((0, 0, 0), |exception| {
            (u64::from(exception.error_code), u64::from(exception.vector), exception.address)
        });
        words[RIP..=FPSTATE].copy_from_slice(&[
            regs.rip,
            regs.rflags,
            SELECTORS,
            error,
            vector,
            mask,
            cr2,
            image,
        ]);
        words[MASK] = mask;
        Context(words)
    }

    /// Whether it leads back to code of 64 bits: a program of 64 bits returns to nothing else.
    #[must_use]
    pub fn is_of_program(&self) -> bool {
        are_of_program(self.0[RIP + 2])
    }

    /// The general registers that it restores; `regs` has the bases of the segments.
    #[must_use]
    pub fn restored(&self, regs: &Regs) -> Regs {
        let mut regs = *regs;
        for (n, word) in ORDER.into_iter().zip(&self.0[MCONTEXT..]) {
            regs.gpr[n] = *word;
        }
        regs.rip = self.0[RIP];
        regs.rflags = self.0[RIP + 1] & USER_FLAGS | RFLAGS_FIXED | RFLAGS_IF;
        regs
    }

    /// The signals that were blocked.
    #[must_use]
    pub fn mask(&self) -> u64 {
        self.0[MASK]
    }

    /// The alternate stack: start, flags, size.
    #[must_use]
    pub fn stack(&self) -> [u64; 3] {
        [self.0[2], self.0[3], self.0[4]]
    }

    /// The vector of the thread's last exception, and the address that it could not use.
    #[must_use]
    pub fn exception(&self) -> (u64, u64) {
        (self.0[RIP + 4], self.0[RIP + 6])
    }

    /// Where the image is; zero stands for the initial state.
    #[must_use]
    pub fn image(&self) -> Virt {
        self.0[FPSTATE]
    }
}

/// Whether the saved selectors are those of a program of 64 bits.
#[must_use]
pub fn are_of_program(selectors: u64) -> bool {
    selectors & 0xfffc == SELECTORS & 0xfffc
}

/// The image of these components, as the frame has it.
#[must_use]
pub fn image(fpu: &Fpu, components: u64) -> Vec<u8> {
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

/// What the beginning of an image says of the whole: how many bytes it has, and those of XSAVE among them. One that is not marked as
/// XSAVE's holds x87 and SSE alone.
#[must_use]
pub fn sizes(legacy: &[u8; Fpu::FXSAVE_SIZE]) -> Option<(usize, usize)> {
    let word = |n: usize| {
        let at = SOFTWARE + 4 * n;
        u32::from_le_bytes(legacy[at..at + 4].try_into().expect("four bytes"))
    };
    let (magic, whole, size) = (word(0), word(1), word(4));
    let fits = size as usize >= HEADER_END && size.checked_add(END_MAGIC_SIZE) == Some(whole);
    (magic == MAGIC && fits).then_some((whole as usize, size as usize))
}

/// The state in an image. One that is not marked as XSAVE's, or not whole, holds x87 and SSE, and all else is initial.
///
/// # Errors
/// When `read` cannot read it.
pub fn read_image<E>(at: Virt, mut read: impl FnMut(Virt, &mut [u8]) -> Result<(), E>) -> Result<Fpu, E> {
    let mut legacy = [0; Fpu::FXSAVE_SIZE];
    read(at, &mut legacy)?;
    let mut fpu = Fpu::from_fxsave(&legacy);
    if let Some((whole, size)) = sizes(&legacy).filter(|(whole, _)| *whole <= LARGEST) {
        let mut bytes = vec![0; whole];
        read(at, &mut bytes)?;
        let (image, end) = bytes.split_at(size);
        if end == END_MAGIC.to_le_bytes() {
            fpu = Fpu::from_xsave(&Layout::of_size(size), image).unwrap_or(fpu);
        }
    }
    fpu.mxcsr &= x86::state::MxcsrMask::INTEL.0;
    Ok(as_loaded(fpu))
}

/// The components that gretel knows end before this; those of newer processors are behind them.
pub const LARGEST: usize = 1 << 14;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_lies_where_the_stack_pointer_says_and_tells_where_its_image_is() {
        for top in (0x7fff_ffff_e000..0x7fff_ffff_e100).step_by(8) {
            for bytes in [512, 836, 2692, 2700] {
                let place = Place::below(top, bytes);
                assert_eq!(place.frame % 16, 8);
                assert!(place.image + bytes <= top && place.frame + 8 + SIZE <= place.image + 8);
                assert_eq!(Place::of_frame(place.frame), Some(place), "{top:#x} {bytes}");
            }
        }
        let place = Place::below(0x7fff_ffff_e000 - RED_ZONE, 512);
        assert_eq!((place.frame, place.image), (0x7fff_ffff_dbb8, 0x7fff_ffff_dd80));
        assert_eq!(Place::of_frame(place.frame + 8), None);
    }

    #[test]
    fn what_was_interrupted_is_restored() {
        let mut regs = Regs { rip: 0x40_1000, rflags: 0x246, fs_base: 7, ..Regs::default() };
        (0..16).for_each(|n| regs.gpr[n] = n as u64 + 100);
        let exception = Exception { vector: 14, error_code: 6, address: 0x10 };
        let context = Context::new(&regs, (0x5000, 512), 0x200, [1, 2, 3], Some(exception));
        let place = Place::below(0x8000, 512);
        let word = |at: Virt| context.0[usize::try_from((at - place.context()) / 8).unwrap()];
        assert_eq!(
            (word(place.register(4)), word(place.rip()), word(place.flags())),
            (104, 0x40_1000, 0x246)
        );
        assert_eq!((word(place.fpstate()), are_of_program(word(place.selectors()))), (0x5000, true));
        assert_eq!(context.restored(&Regs { fs_base: 7, ..Regs::default() }), regs);
        assert_eq!((context.mask(), context.stack(), context.exception()), (0x200, [1, 2, 3], (14, 0x10)));
    }

    #[test]
    fn an_image_comes_back() {
        let mut fpu = Fpu::default();
        fpu.set_xmm(3, [5, 6]);
        fpu.vector[3][2] = 7;
        for components in [component::LEGACY, component::LEGACY | component::AVX, component::ALL] {
            let bytes = image(&fpu, components);
            let read = |at: Virt, to: &mut [u8]| {
                let at = usize::try_from(at).unwrap() - 0x1000;
                to.copy_from_slice(bytes.get(at..at + to.len()).ok_or(())?);
                Ok::<(), ()>(())
            };
            let found = read_image(0x1000, read).unwrap();
            let wide = if components == component::LEGACY { 0 } else { 7 };
            assert_eq!((found.xmm(3), found.vector[3][2]), ([5, 6], wide));
        }
    }
}
