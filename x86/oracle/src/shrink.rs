//! Makes a case that differs small: fewer instructions, plainer registers, less memory.

use crate::campaign::Finding;
use crate::case::{Case, Ending, Image, Outcome};
use crate::compare::{self, Difference, instruction_at};
use crate::interpreter::Soft;
use crate::layout::{CODE, DATA_SIZE};
use crate::native::{Error, Worker};
use iced_x86::{Decoder, DecoderOptions};
use x86::op::Gpr;
use x86::state::{Fpu, RFLAGS_FIXED, RFLAGS_IF, State};

/// Runs single cases on both halves.
struct Trial<'a> {
    worker: &'a mut Worker,
    soft: &'a mut Soft,
}

/// What became of a trial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Same,
    /// It differs as processors do.
    Forgiven,
    Different,
}

impl Trial<'_> {
    /// The outcome on this processor and where the semantics differs from it.
    fn run(&mut self, image: &Image, case: &Case) -> Result<Option<(Outcome, Vec<Difference>)>, Error> {
        self.soft.load_image(image);
        let native = self.worker.run(image, core::slice::from_ref(case), || ())?;
        let found = self.soft.run(case);
        let Some(native) = native.first().filter(|native| compare::is_comparable(native, &found)) else {
            return Ok(None);
        };
        let differences = compare::differences(self.soft, case, native, &found);
        Ok(Some((*native, differences)))
    }

    fn differs(&mut self, image: &Image, case: &Case) -> Result<bool, Error> {
        Ok(self.verdict(image, case)? == Verdict::Different)
    }

    fn verdict(&mut self, image: &Image, case: &Case) -> Result<Verdict, Error> {
        let Some((native, differences)) = self.run(image, case)? else { return Ok(Verdict::Same) };
        if !differences.is_empty() {
            return Ok(Verdict::Different);
        }
        let found = self.soft.run(case);
        let raw = compare::all_differences(self.soft, case, &native, &found);
        Ok(if raw.is_empty() { Verdict::Same } else { Verdict::Forgiven })
    }
}

/// The case with as few instructions as still differ, and the data pages before it: one instruction from the
/// state it ran in, where that is enough; else without those that are not needed. `None` where an instruction did
/// what [`crate::vendor`] forgives, so that all that follows it differs for good.
///
/// # Errors
/// If the native half fails.
pub(crate) fn shorten(
    worker: &mut Worker,
    soft: &mut Soft,
    image: &Image,
    case: &Case,
) -> Result<Option<(Case, Box<Image>)>, Error> {
    soft.load_image(image);
    let steps = soft.trace(case);
    let mut trial = Trial { worker, soft };
    for step in steps {
        let Some(single) = single(case, step.state) else { continue };
        match trial.verdict(&step.image, &single)? {
            Verdict::Same => {}
            Verdict::Forgiven => return Ok(None),
            Verdict::Different => return Ok(Some((single, step.image))),
        }
    }
    let mut case = *case;
    drop_instructions(&mut trial, image, &mut case)?;
    Ok(Some((case, Box::new(*image))))
}

/// The instruction of `case` at the rip of `state`; all that is left of the code, if that is half of one. Not a
/// branch: alone, it would lead behind the code, where the two halves do not have the same bytes.
fn single(case: &Case, state: State) -> Option<Case> {
    let at = usize::try_from(state.regs.rip.checked_sub(case.state.regs.rip)?).ok()?;
    let rest = case.bytes().get(at..)?;
    match instruction_at(case, state.regs.rip) {
        Some(i) if i.near_branch_target() != 0 => None,
        Some(i) => Case::new(&rest[..i.len()], state),
        None => Case::new(rest, state),
    }
}

/// The kinds of places where `case` differs: registers without their numbers, memory without the address.
///
/// # Errors
/// If the native half fails.
pub(crate) fn kinds(
    worker: &mut Worker,
    soft: &mut Soft,
    image: &Image,
    case: &Case,
) -> Result<Vec<String>, Error> {
    let differences = Trial { worker, soft }.run(image, case)?.map(|(_, differences)| differences);
    let kind =
        |place: &str| place.split(|c: char| c.is_ascii_digit() || c == '+').next().unwrap_or("").to_owned();
    let mut kinds: Vec<String> = differences.iter().flatten().map(|d| kind(&d.place)).collect();
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// The case with as little in registers and memory as still differs.
///
/// # Errors
/// If the native half fails.
pub(crate) fn simplify(
    worker: &mut Worker,
    soft: &mut Soft,
    image: &Image,
    case: &Case,
    kinds: Vec<String>,
) -> Result<Finding, Error> {
    let mut trial = Trial { worker, soft };
    let (mut case, mut image) = (*case, Box::new(*image));
    plain_state(&mut trial, &image, &mut case)?;
    clear_memory(&mut trial, &mut image, &case)?;
    let (native, differences) = match trial.run(&image, &case)? {
        Some(result) => result,
        None => (Outcome { ending: Ending::Lost, ..trial.soft.run(&case) }, Vec::new()),
    };
    Ok(Finding { case, image, native, differences, kinds })
}

/// Leaves out one instruction after the other, as long as the rest differs.
fn drop_instructions(trial: &mut Trial<'_>, image: &Image, case: &mut Case) -> Result<(), Error> {
    let mut at = 0;
    while at < case.len {
        let length = Decoder::new(64, &case.bytes()[at..], DecoderOptions::NONE).decode().len();
        let mut shorter = case.bytes().to_vec();
        shorter.drain(at..(at + length.max(1)).min(case.len));
        let mut state = case.state;
        if case.end().is_none() {
            // What runs off the end of the page must still do so.
            state.regs.rip += (case.len - shorter.len()) as u64;
        }
        match Case::new(&shorter, state) {
            Some(less) if !shorter.is_empty() && trial.differs(image, &less)? => *case = less,
            _ => at += length.max(1),
        }
    }
    Ok(())
}

fn plain_state(trial: &mut Trial<'_>, image: &Image, case: &mut Case) -> Result<(), Error> {
    let mut attempt = |change: &dyn Fn(&mut State)| {
        let mut plainer = *case;
        change(&mut plainer.state);
        if is_possible(&plainer.state.fpu) && trial.differs(image, &plainer)? {
            *case = plainer;
        }
        Ok::<(), Error>(())
    };
    attempt(&|state| state.regs.rip = CODE)?;
    attempt(&|state| state.fpu = Fpu::default())?;
    attempt(&|state| state.fpu.vector = [[0; 8]; 32])?;
    attempt(&|state| state.fpu.opmask = [0; 8])?;
    attempt(&|state| state.fpu.mxcsr = Fpu::default().mxcsr)?;
    attempt(&|state| {
        let Fpu { vector, opmask, mxcsr, .. } = state.fpu;
        state.fpu = Fpu { vector, opmask, mxcsr, ..Fpu::default() };
    })?;
    for n in 0..32 {
        attempt(&|state| state.fpu.vector[n] = [0; 8])?;
        attempt(&|state| state.fpu.vector[n][2..].fill(0))?;
    }
    for n in 0..16 {
        attempt(&|state| state.regs.gpr[n] = 0)?;
        attempt(&|state| state.fpu.opmask[n & 7] = 0)?;
        attempt(&|state| state.fpu.st[n & 7] = (0, 0))?;
    }
    attempt(&|state| state.regs.gpr[usize::from(Gpr::RSP.0)] = x86::golden::STACK)?;
    attempt(&|state| state.fpu.status &= 0x3800)?;
    attempt(&|state| state.fpu.control = Fpu::default().control)?;
    for bit in 0..8 {
        attempt(&|state| state.fpu.tag &= !(1 << bit))?;
    }
    attempt(&|state| (state.regs.fs_base, state.regs.gs_base) = (0, 0))?;
    attempt(&|state| state.regs.rflags = RFLAGS_FIXED | RFLAGS_IF)
}

/// Whether the summary bits of the x87 status agree with the exceptions, as they do after every FXRSTOR.
fn is_possible(fpu: &Fpu) -> bool {
    const SUMMARY: u16 = 0x8080;
    let is_pending = fpu.status & !fpu.control & 0x3f != 0;
    fpu.status & SUMMARY == if is_pending { SUMMARY } else { 0 }
}

/// Zeroes memory in ever smaller pieces.
fn clear_memory(trial: &mut Trial<'_>, image: &mut Image, case: &Case) -> Result<(), Error> {
    for piece in [DATA_SIZE, 1024, 64, 8] {
        for at in (0..DATA_SIZE).step_by(piece) {
            if image[at..at + piece].iter().all(|&byte| byte == 0) {
                continue;
            }
            let before = *image;
            image[at..at + piece].fill(0);
            if !trial.differs(image, case)? {
                *image = before;
            }
        }
    }
    Ok(())
}
