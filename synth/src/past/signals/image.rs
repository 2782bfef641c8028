//! The x87 and vector state in a frame: where each part of it lies.

use crate::past::hypothesis::Hypothesis;
use crate::past::snapshot::{CONTROL_WIDTHS, STATUS_TOP, Snapshot};
use crate::term::{Term, Terms};
use vmm::signal_frame::{LARGEST, sizes};
use x86::domain::Bin;
use x86::state::Fpu;
use x86::xsave::{Layout, SOFTWARE, XSTATE_BV, component};

/// A part of the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Eight bytes of a vector register: its number, and which.
    Vector(u8, u8),
    Opmask(u8),
    /// Of a physical x87 register.
    Significand(u8),
    Exponent(u8),
    /// As [`Snapshot::controls`].
    Control(u8),
}

/// The status word among the controls.
const STATUS: u8 = 2;

impl Part {
    /// All of them; the order is that of the snapshot's fields.
    pub(super) fn all() -> impl Iterator<Item = Part> {
        let vector = (0..32).flat_map(|n| (0..8).map(move |p| Part::Vector(n, p)));
        let x87 = (0..8).flat_map(|n| [Part::Significand(n), Part::Exponent(n)]);
        vector.chain((0..8).map(Part::Opmask)).chain(x87).chain((0..4).map(Part::Control))
    }

    pub(super) fn is_x87_register(self) -> bool {
        matches!(self, Part::Significand(_) | Part::Exponent(_))
    }

    /// In bits.
    pub(super) fn width(self) -> u32 {
        match self {
            Part::Vector(..) | Part::Opmask(_) | Part::Significand(_) => 64,
            Part::Exponent(_) => 16,
            Part::Control(n) => CONTROL_WIDTHS[usize::from(n)],
        }
    }

    /// What it is in the state with which a handler begins.
    pub(super) fn initial(self) -> u64 {
        let Fpu { mxcsr, control, .. } = Fpu::default();
        match self {
            Part::Control(0) => mxcsr.into(),
            Part::Control(1) => control.into(),
            _ => 0,
        }
    }

    /// What it is in a snapshot.
    pub(super) fn of(self, at: &Snapshot) -> Term {
        match self {
            Part::Vector(n, p) => at.vector.part(n, p),
            Part::Opmask(n) => at.vector.opmask(n),
            Part::Significand(n) => at.x87[usize::from(n)].0,
            Part::Exponent(n) => at.x87[usize::from(n)].1,
            Part::Control(n) => at.controls[usize::from(n)],
        }
    }

    /// As a snapshot has what memory holds: the status word without TOP.
    pub(super) fn of_memory(self, terms: &Terms, value: Term) -> Term {
        if self != Part::Control(STATUS) {
            return value;
        }
        terms.build_bin(Bin::And, value, terms.lit_term(16, u64::from(!STATUS_TOP)))
    }

    /// As memory has what a snapshot holds.
    pub(super) fn to_memory(self, terms: &Terms, value: Term, top: u8) -> Term {
        if self != Part::Control(STATUS) {
            return value;
        }
        terms.build_bin(Bin::Or, value, terms.lit_term(16, u64::from(top) << 11))
    }
}

/// An image in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Image {
    pub(super) at: u64,
    /// All of it.
    pub(super) bytes: u64,
    /// The components that are not in their initial state.
    held: u64,
    layout: Layout,
    /// TOP.
    pub(super) top: u8,
}

impl Image {
    /// The one at `at` before the oldest step; without one (zero) all is initial. `None` if it is marked as XSAVE's, and the rest of it
    /// is not known. One that was overwritten since is taken for FXSAVE's, with an empty x87 stack.
    pub(super) fn read(hypothesis: &mut Hypothesis<'_>, at: u64) -> Option<Image> {
        let mut known = |at: u64, bytes: u32| {
            let value = hypothesis.memory_value(at, bytes)?;
            hypothesis.terms().value(value)
        };
        if at == 0 {
            return Some(Image { at, bytes: 0, held: 0, layout: Layout::MODEL, top: 0 });
        }
        let status = known(at.checked_add(2)?, 2);
        let top = status.map_or(0, |status| (status >> 11 & 7).to_le_bytes()[0]);
        let legacy =
            Image { at, bytes: Fpu::FXSAVE_SIZE as u64, held: component::LEGACY, layout: Layout::MODEL, top };
        let mut start = [0; Fpu::FXSAVE_SIZE];
        for (word, to) in (at + SOFTWARE as u64..).step_by(8).zip(start[SOFTWARE..][..24].chunks_exact_mut(8))
        {
            let Some(value) = known(word, 8) else { return Some(legacy) };
            to.copy_from_slice(&value.to_le_bytes());
        }
        let Some((whole, size)) = sizes(&start).filter(|(whole, _)| *whole <= LARGEST) else {
            return Some(legacy);
        };
        let held = known(at + XSTATE_BV as u64, 8)?;
        Some(Image { bytes: whole as u64, held, layout: Layout::of_size(size), ..legacy })
    }

    /// Where a part lies, and how many bytes it has; `None` if it is in its initial state.
    pub(super) fn place(&self, part: Part) -> Option<(u64, u32)> {
        let Layout { avx, opmask, zmm_hi256, hi16_zmm } = self.layout;
        let in_stack = |n: u8| 32 + 16 * usize::from(n.wrapping_sub(self.top) & 7);
        let (component, at, bytes) = match part {
            Part::Vector(n @ 0..16, p @ 0..2) => {
                (component::SSE, 160 + 16 * usize::from(n) + 8 * usize::from(p), 8)
            }
            Part::Vector(n @ 0..16, p @ 2..4) => {
                (component::AVX, avx + 16 * usize::from(n) + 8 * usize::from(p - 2), 8)
            }
            Part::Vector(n @ 0..16, p) => {
                (component::ZMM_HI256, zmm_hi256 + 32 * usize::from(n) + 8 * usize::from(p - 4), 8)
            }
            Part::Vector(n, p) => {
                (component::HI16_ZMM, hi16_zmm + 64 * usize::from(n - 16) + 8 * usize::from(p), 8)
            }
            Part::Opmask(n) => (component::OPMASK, opmask + 8 * usize::from(n), 8),
            Part::Significand(n) => (component::X87, in_stack(n), 8),
            Part::Exponent(n) => (component::X87, in_stack(n) + 8, 2),
            // Whatever the image holds.
            Part::Control(0) => return (self.bytes > 0).then_some((self.at + 24, 4)),
            Part::Control(1) => (component::X87, 0, 2),
            Part::Control(2) => (component::X87, 2, 2),
            Part::Control(_) => (component::X87, 4, 1),
        };
        (self.held & component != 0).then(|| (self.at + at as u64, bytes))
    }
}
