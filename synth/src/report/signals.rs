//! A signal in a report: which it was, and where the frame keeps what of each register was known.

use crate::program::RT_SIGRETURN;
use crate::suffix::{Origin, SuffixSignal};
use iced_x86::Register;
use serde::Serialize;
use vmm::elfcore::SignalInfo;
use vmm::signal_frame::Place;
use x86::op::Gpr;
use x86::state::Regs;

/// A signal that came, as the listing shows it before the handler's first instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Came {
    /// Its number.
    pub number: i32,
    /// Its name.
    pub name: String,
    /// The instruction at `interrupted` raised it, and did not retire; else it came before that one.
    pub raised: bool,
    /// Where the program was interrupted.
    #[serde(serialize_with = "super::hex")]
    pub interrupted: u64,
    /// Where the frame lies.
    #[serde(serialize_with = "super::hex")]
    pub frame: u64,
    /// Whether what no register tells of it (the signal, its siginfo, the mask) is forced.
    pub origin: Origin,
}

impl Came {
    /// One that interrupted the program at `interrupted`.
    pub(super) fn new(signal: &SuffixSignal, interrupted: u64) -> Came {
        let info: SignalInfo = signal.info();
        let (number, name) = (info.signo, info.name());
        Came { number, name, raised: signal.raised, interrupted, frame: signal.frame, origin: signal.origin }
    }
}

/// The general registers and the xmm registers, and where the frame at `place` keeps each, with its size.
pub(super) fn kept(place: Place) -> impl Iterator<Item = (Register, u64, usize)> {
    /// Where FXSAVE's image has xmm0.
    const XMM: u64 = 160;
    let general =
        (0..16_u32).zip(0..16).map(move |(n, number)| (Register::RAX + n, place.register(number), 8));
    let vector = (0..16_u32).map(move |n| (Register::XMM0 + n, place.image + XMM + 16 * u64::from(n), 16));
    general.chain(vector)
}

/// The frame that a system call with these registers before it takes them back from.
pub(super) fn returned_from(before: &Regs) -> Option<Place> {
    let is_return = before.gpr[usize::from(Gpr::RAX.0)] == RT_SIGRETURN;
    let frame = before.gpr[usize::from(Gpr::RSP.0)].checked_sub(8).filter(|_| is_return)?;
    Place::of_frame(frame)
}
