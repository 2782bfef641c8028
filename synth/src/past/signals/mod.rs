//! A signal's handler was entered, or has returned: prepended to a path.
//!
//! The kernel saved what the signal interrupted in a frame on the stack ([`vmm::signal_frame`]). So the state before a delivery is what
//! the frame says, and the path goes on where the program was interrupted. What lay in the frame's place before is not known. The state
//! before a return is the other way round: the frame holds what was restored, and all that the handler had in its registers is unknown.
//!
//! Example: the handler of SIGUSR1 stands at its first instruction, with rsp at 0x7fffffffdbb8. There lies the address of
//! `__restore_rt`, and behind it the frame, which has 0x4122bb for rip: the path goes on behind the `syscall` of `tgkill` there.

mod image;

use super::history::Step;
use super::hypothesis::{Call, Hypothesis, Refusal};
use super::kernel::saved_flags;
use super::machine::Access;
use super::prepared::{Prepared, unknown};
use super::snapshot::{CONTROL_WIDTHS, Snapshot, Vectors};
use crate::program::RT_SIGRETURN;
use crate::term::Term;
use image::{Image, Part};
use std::rc::Rc;
use vmm::signal_frame::{Place, SIZE, are_of_program};
use x86::flags::Flag;
use x86::op::Gpr;
use x86::state::RFLAGS_DF;

/// The word that the selectors are in a frame.
const SELECTORS: u64 = 0x33 | 0x2b << 48;
/// Frames that handlers have left are looked for in so many bytes below the stack pointer: red zone, image, and frame.
const NEAR: u64 = 4096;

/// A signal that was delivered on the path.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Its step: the handler's first instruction is the next newer one.
    pub step: Step,
    /// The frame.
    pub place: Place,
    /// What the kernel stored.
    pub writes: Vec<Access>,
}

impl Hypothesis<'_> {
    /// The signals that were delivered on the path, the newest first.
    #[must_use]
    pub fn delivered(&self) -> &[Delivered] {
        &self.delivered
    }

    /// The frame that a handler which begins at the present start would stand on.
    pub fn frame_here(&mut self) -> Option<Place> {
        let frame = self.register(Gpr::RSP);
        let place = Place::of_frame(self.terms.value(frame)?)?;
        are_of_program(self.known_word(place.selectors())?).then_some(place)
    }

    /// Where the signal came whose frame this is, if that is still known.
    pub fn interrupted_at(&mut self, place: Place) -> Option<u64> {
        self.known_word(place.rip())
    }

    /// The frame of a handler that has returned to the present start. A crumb tells where it is, and the frame whether it was here: what
    /// of that was overwritten since speaks for any place, `Some(false)`. Without crumbs it is looked for below the stack.
    pub fn frame_returned(&mut self) -> Option<(Place, bool)> {
        let start = self.start();
        if let Some(anchor) = self.image.anchors().get(self.place.passed) {
            let frame = anchor.rsp.checked_sub(8).filter(|_| anchor.call() == Some(RT_SIGRETURN))?;
            let place = Place::of_frame(frame)?;
            return match self.known_word(place.rip()) {
                Some(rip) => (rip == start).then_some((place, true)),
                None => Some((place, false)),
            };
        }
        let rsp = self.register(Gpr::RSP);
        let rsp = self.terms.value(rsp)?;
        let highest = rsp & !15 | 8;
        let frames = (1..NEAR / 16).filter_map(|n| Place::of_frame(highest.checked_sub(16 * n)?));
        let mut left = frames.filter(|place| {
            let core = |va| self.image.bytes(va).first_chunk().copied().map(u64::from_le_bytes);
            core(place.rip()) == Some(start) && core(place.register(usize::from(Gpr::RSP.0))) == Some(rsp)
        });
        let place = left.next()?;
        let is_whole = self.known_word(place.rip()) == Some(start)
            && self.known_word(place.selectors()).is_some_and(are_of_program);
        is_whole.then_some((place, true))
    }

    /// The word at `va` before the oldest step.
    fn known_word(&mut self, va: u64) -> Option<u64> {
        let word = self.memory_value(va, 8)?;
        self.terms.value(word)
    }

    /// Prepends a delivery: the path goes on at `prepared`, the instruction before which, or at which, the signal came.
    pub(super) fn prepend_delivery(&mut self, prepared: &Prepared) -> Result<(), Refusal> {
        const NO_FRAME: Refusal = Refusal::Barrier("a signal's handler whose frame is not known");
        let place = self.frame_here().ok_or(NO_FRAME)?;
        let address = prepared.address();
        if self.interrupted_at(place) != Some(address) {
            return Err(self.facts.impossible("a signal that did not come there").into());
        }
        let image_at = self.known_word(place.fpstate()).ok_or(NO_FRAME)?;
        let image = Image::read(self, image_at).ok_or(NO_FRAME)?;
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        self.require_entry(&after, place)?;
        let before = self.interrupted(&after, place, &image)?;
        let step = self.step() + 1;
        let mut writes = Vec::new();
        let pieces = [(place.frame, SIZE), (image.at, image.bytes)];
        for (start, bytes) in pieces {
            for at in (start..start + bytes).step_by(8) {
                let left = u32::try_from((start + bytes - at).min(8)).expect("at most 8");
                writes.push(self.kernel_left(step, writes.len(), at, left)?);
            }
        }
        self.snapshots.push(before);
        self.delivered.push(Delivered { step, place, writes });
        Ok(())
    }

    /// A handler begins with these registers; all that are not among them are those of the program that was interrupted.
    fn require_entry(&mut self, after: &Snapshot, place: Place) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let info = self
            .memory_value(place.info(), 4)
            .ok_or(Refusal::Barrier("memory that the core does not hold"))?;
        let known = [
            (Gpr::RAX, terms.lit_term(64, 0)),
            (Gpr::RDI, terms.build_zext(64, info)),
            (Gpr::RSI, terms.lit_term(64, place.info())),
            (Gpr::RDX, terms.lit_term(64, place.context())),
        ];
        for (register, value) in known {
            self.facts.equate(&terms, after.gpr[usize::from(register.0)], value)?;
        }
        self.facts.equate(&terms, after.direction, terms.bool_term(false))?;
        if after.x87_top != 0 {
            return Err(self
                .facts
                .impossible("a handler that begins with an x87 stack that is not empty")
                .into());
        }
        for part in Part::all().filter(|part| !part.is_x87_register()) {
            let initial = terms.lit_term(part.width(), part.initial());
            self.facts.equate(&terms, part.of(after), initial)?;
        }
        Ok(())
    }

    /// The registers that the frame holds. Those that a handler keeps are the same in it.
    fn interrupted(&mut self, after: &Snapshot, place: Place, image: &Image) -> Result<Snapshot, Refusal> {
        const NOT_HELD: Refusal = Refusal::Barrier("memory that the core does not hold");
        let terms = Rc::clone(&self.terms);
        let mut before = after.clone();
        for n in 0..16 {
            before.gpr[n] = self.memory_value(place.register(n), 8).ok_or(NOT_HELD)?;
            if ![Gpr::RAX, Gpr::RDX, Gpr::RSP, Gpr::RSI, Gpr::RDI].map(|r| usize::from(r.0)).contains(&n) {
                self.facts.equate(&terms, after.gpr[n], before.gpr[n])?;
            }
        }
        let flags = self.memory_value(place.flags(), 8).ok_or(NOT_HELD)?;
        before.direction = terms.fresh(0);
        self.equate_saved_flags(flags, &before)?;
        before.flags_observed = true;
        before.x87_top = image.top;
        let mut parts = Vec::new();
        for part in Part::all() {
            parts.push(match image.place(part) {
                Some((at, bytes)) => {
                    let value = self.memory_value(at, bytes).ok_or(NOT_HELD)?;
                    part.of_memory(&terms, value)
                }
                None => terms.lit_term(part.width(), part.initial()),
            });
        }
        put_parts(&mut before, &parts);
        Ok(before)
    }

    /// The saved flags are those of a snapshot.
    fn equate_saved_flags(&mut self, word: Term, at: &Snapshot) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        let resolved = self.facts.resolve(&terms, word);
        let Some(word) = terms.value(resolved) else {
            // Overwritten since: it was as the kernel saves them.
            let low = terms.build_extract(0, 16, resolved);
            let saved = terms.build_extract(0, 16, saved_flags(&terms, at));
            return Ok(self.facts.equate(&terms, low, saved)?);
        };
        for flag in Flag::ALL {
            let saved = terms.bool_term(word >> flag.bit() & 1 == 1);
            self.facts.equate(&terms, at.flags[flag as usize], saved)?;
        }
        Ok(self.facts.equate(&terms, at.direction, terms.bool_term(word & RFLAGS_DF != 0))?)
    }

    /// A store of the kernel's, of what is found there behind it.
    fn kernel_left(&mut self, step: Step, number: usize, at: u64, bytes: u32) -> Result<Access, Refusal> {
        let terms = Rc::clone(&self.terms);
        let value = self.memory.value(&terms, self.image, at, bytes, step - 1);
        let value = value.ok_or(Refusal::Barrier("memory that the core does not hold"))?;
        let access = Access { store: true, by_kernel: true, bytes, address: terms.lit_term(64, at), value };
        self.access(step, u16::try_from(number).unwrap_or(u16::MAX), access)?;
        Ok(access)
    }

    /// Prepends rt_sigreturn, the call at `prepared`, which restored what the path has at its start.
    pub(super) fn prepend_return(&mut self, prepared: &Prepared) -> Result<(), Refusal> {
        const NO_FRAME: Refusal =
            Refusal::Barrier("a return from a signal's handler whose frame is not known");
        let (place, _) = self.frame_returned().ok_or(NO_FRAME)?;
        if let Some(made) = self.image.anchors().get(self.place.passed)
            && made.rip != prepared.op.next
        {
            return Err(self.facts.impossible("a system call that the crumbs do not have there").into());
        }
        let terms = Rc::clone(&self.terms);
        let image_at = self.known_word(place.fpstate()).unwrap_or(place.image);
        let image = Image::read(self, image_at).ok_or(NO_FRAME)?;
        let after = self.snapshots.last().expect("the core's snapshot").clone();
        let mut before = unknown(&terms);
        before.segment_bases = after.segment_bases;
        before.controls = CONTROL_WIDTHS.map(|width| terms.fresh(width));
        before.flags_observed = false;
        before.gpr[usize::from(Gpr::RSP.0)] = terms.lit_term(64, place.context());
        before.gpr[usize::from(Gpr::RAX.0)] = terms.lit_term(64, RT_SIGRETURN);
        self.snapshots.push(before);
        let step = self.step() + 1;
        let mut loads = Loads { step, number: 0 };
        loads.load(self, place.rip(), 8, terms.lit_term(64, self.start()))?;
        for n in 0..16 {
            loads.load(self, place.register(n), 8, after.gpr[n])?;
        }
        if self.known_word(place.selectors()).is_none() {
            loads.load(self, place.selectors(), 8, terms.lit_term(64, SELECTORS))?;
        }
        loads.load(self, place.fpstate(), 8, terms.lit_term(64, image_at))?;
        let flags = terms.fresh(64);
        loads.load(self, place.flags(), 8, flags)?;
        self.equate_saved_flags(flags, &after)?;
        self.restore_parts(&mut loads, &image, &after)?;
        let writes = self.clock_stores(step, usize::from(loads.number))?;
        let result = after.gpr[usize::from(Gpr::RAX.0)];
        self.calls.push(Call { step, number: RT_SIGRETURN, result, writes, late: false });
        Ok(())
    }

    /// The x87 and vector state of `after` came from the image.
    fn restore_parts(&mut self, loads: &mut Loads, image: &Image, after: &Snapshot) -> Result<(), Refusal> {
        let terms = Rc::clone(&self.terms);
        if image.top != after.x87_top {
            return Err(self.facts.impossible("an x87 stack that the frame does not have").into());
        }
        let tags = self.facts.resolve(&terms, after.controls[3]);
        let is_empty = terms.value(tags) == Some(0);
        for part in Part::all() {
            // What empty registers hold is no part of any result.
            if is_empty && part.is_x87_register() {
                continue;
            }
            let now = part.of(after);
            match image.place(part) {
                Some((at, bytes)) => loads.load(self, at, bytes, part.to_memory(&terms, now, image.top))?,
                None => self.facts.equate(&terms, now, terms.lit_term(part.width(), part.initial()))?,
            }
        }
        Ok(())
    }
}

/// The kernel's loads of a step.
struct Loads {
    step: Step,
    number: u16,
}

impl Loads {
    fn load(&mut self, to: &mut Hypothesis<'_>, at: u64, bytes: u32, value: Term) -> Result<(), Refusal> {
        let address = to.terms.lit_term(64, at);
        let access = Access { store: false, by_kernel: true, bytes, address, value };
        self.number += 1;
        to.access(self.step, self.number - 1, access)
    }
}

/// Puts the values of [`Part::all`], in order, into a snapshot.
fn put_parts(at: &mut Snapshot, values: &[Term]) {
    let value = |wanted: Part| {
        let place = Part::all().position(|part| part == wanted).expect("one of all");
        values[place]
    };
    let number = |n: usize| u8::try_from(n).expect("a register");
    at.vector =
        Vectors::new(|n, p| value(Part::Vector(number(n), number(p))), |n| value(Part::Opmask(number(n))));
    at.x87 = std::array::from_fn(|n| (value(Part::Significand(number(n))), value(Part::Exponent(number(n)))));
    at.controls = std::array::from_fn(|n| value(Part::Control(number(n))));
}
