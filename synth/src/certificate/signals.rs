//! Signals on a suffix: their frames are stored, and handlers entered and left, as the kernel does it.
//!
//! What the kernel stores is in the suffix. That it fits is checked: the registers in the frame are those at which the run stands, the
//! frame lies where the stack pointer or the alternate stack says, and an instruction that raised the signal does so again.

use super::CertificateError;
use super::compare::{Undefined, registers};
use super::stage::Stage;
use crate::suffix::SuffixSignal;
use vmm::engine::Exit;
use vmm::sandbox::SandboxError;
use vmm::signal_frame::{Context, Place, RED_ZONE, USER_FLAGS, WORDS, entered, read_image};
use x86::op::Gpr;
use x86::state::{Fpu, RFLAGS_FIXED, RFLAGS_IF, Regs, State};

/// A signal that a run has been given.
pub(crate) struct Delivery<'a> {
    pub(crate) signal: &'a SuffixSignal,
    /// As the program was interrupted.
    pub(crate) interrupted: State,
    /// What the instruction came to that raised it.
    pub(super) raised: Option<Exit>,
}

/// Enters the handler; gives the registers that were interrupted.
pub(super) fn enter(
    stage: &mut Stage<'_>,
    signal: &SuffixSignal,
    handler: u64,
) -> Result<State, CertificateError> {
    let interrupted = stage.state()?;
    for (address, bytes) in &signal.writes {
        stage.write(*address, bytes)?;
    }
    let regs = match signal.place() {
        Some(place) => entered(&interrupted.regs, place, signal.number(), handler),
        // It is refused when it is checked.
        None => Regs { rip: handler, ..interrupted.regs },
    };
    stage.load(&State { regs, fpu: Fpu::default() })?;
    Ok(interrupted)
}

/// Serves rt_sigreturn: the registers come from the frame that the stack pointer leads to.
pub(super) fn leave(stage: &mut Stage<'_>) -> Result<(), CertificateError> {
    let regs = *stage.regs();
    let context = context(regs.gpr[usize::from(Gpr::RSP.0)], &|at, bytes| stage.read(at, bytes));
    let missing = || CertificateError::Sandbox(SandboxError::NotMapped(regs.gpr[usize::from(Gpr::RSP.0)]));
    let context = context.filter(Context::is_of_program).ok_or_else(missing)?;
    let fpu = state_in(&context, &|at, bytes| stage.read(at, bytes)).ok_or_else(missing)?;
    stage.load(&State { regs: context.restored(&regs), fpu })
}

/// What of a delivery is not as the kernel does it: what, expected, found.
pub(super) fn check(delivery: &Delivery<'_>, undefined: &Undefined) -> Option<(String, String, String)> {
    let signal = delivery.signal;
    let what = |text: &str| format!("{text} of signal {}", signal.number());
    let Some((place, context)) = signal.place().and_then(|place| Some((place, signal.context(place)?)))
    else {
        return Some((what("the frame"), "a frame of the kernel's".to_owned(), "another layout".to_owned()));
    };
    let Some(fpu) = state_in(&context, &|at, bytes| signal.read(at, bytes)) else {
        return Some((what("the frame"), "the x87 and vector state".to_owned(), "none".to_owned()));
    };
    let found = &delivery.interrupted;
    let rflags = found.regs.rflags & USER_FLAGS | RFLAGS_FIXED | RFLAGS_IF;
    let expected = State { regs: context.restored(&found.regs), fpu };
    let found = State { regs: Regs { rflags, ..found.regs }, ..*found };
    let differs = registers(&expected, &found, undefined).into_iter().find(|(_, frame, run)| frame != run);
    if let Some((name, frame, run)) = differs {
        return Some((what(&format!("{name} in the frame")), format!("{frame:#x}"), format!("{run:#x}")));
    }
    let [start, _, size] = context.stack();
    let rsp = found.regs.gpr[usize::from(Gpr::RSP.0)];
    let tops = [rsp.wrapping_sub(RED_ZONE), start.wrapping_add(size)];
    if !tops.iter().any(|top| Place::below(*top, signal.image_bytes(place)) == place) {
        let expected = format!("below {rsp:#x} or {:#x}", tops[1]);
        return Some((what("the place of the frame"), expected, format!("{:#x}", place.frame)));
    }
    raised_elsewhere(delivery)
}

/// What differs, if the signal was not raised as the frame says, or came to another instruction.
pub(super) fn raised_elsewhere(delivery: &Delivery<'_>) -> Option<(String, String, String)> {
    let signal = delivery.signal;
    let context = signal.place().and_then(|place| signal.context(place))?;
    let rip = delivery.interrupted.regs.rip;
    let (expected, (vector, address)) =
        (context.restored(&delivery.interrupted.regs).rip, context.exception());
    let is_it = rip == expected
        && match &delivery.raised {
            None => !signal.raised,
            Some(Exit::Exception(exception)) => {
                u64::from(exception.vector) == vector && (vector != 14 || exception.address == address)
            }
            Some(_) => false,
        };
    if is_it {
        return None;
    }
    let found = delivery.raised.as_ref().map_or_else(|| "nothing".to_owned(), super::name);
    let what = format!("the cause of signal {}", signal.number());
    Some((what, format!("exception {vector} at {expected:#x}"), format!("{found} at {rip:#x}")))
}

/// The words of the ucontext at `at`.
fn context(at: u64, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Option<Context> {
    let mut bytes = [0; 8 * WORDS];
    let words = read(at, &mut bytes).then(|| bytes.chunks_exact(8))?;
    let mut context = Context([0; WORDS]);
    for (word, bytes) in context.0.iter_mut().zip(words) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    Some(context)
}

/// The x87 and vector state that a frame restores.
fn state_in(context: &Context, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Option<Fpu> {
    match context.image() {
        0 => Some(Fpu::default()),
        at => read_image(at, |at, bytes| read(at, bytes).then_some(()).ok_or(())).ok(),
    }
}

impl SuffixSignal {
    /// Where the parts of the frame lie.
    pub(crate) fn place(&self) -> Option<Place> {
        Place::of_frame(self.frame)
    }

    /// The ucontext that the kernel stored.
    fn context(&self, place: Place) -> Option<Context> {
        context(place.context(), &|at, bytes| self.read(at, bytes))
    }

    /// How many bytes of image the kernel stored.
    fn image_bytes(&self, place: Place) -> u64 {
        let image = self.writes.iter().find(|(at, _)| *at == place.image);
        image.map_or(0, |(_, bytes)| bytes.len() as u64)
    }
}
