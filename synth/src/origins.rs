//! Where the values of a suffix come from: the core, what its forced end forces, or a choice.
//!
//! Judged where the forced end begins, on a hypothesis of that end alone in which nothing was assumed: a value that follows only from a
//! step or an address that was chosen is a choice itself.

use crate::certificate::CertificateError;
use crate::certificate::forward::Forward;
use crate::past::history::Step;
use crate::past::hypothesis::Hypothesis;
use crate::past::snapshot::{STATUS_TOP, Snapshot};
use crate::smt::{self, Budget};
use crate::suffix::{
    Forced, Origin, OtherThread, RegisterOrigins, StartMemory, Suffix, SuffixAnswer, SuffixInput,
    SuffixSignal,
};
use crate::term::{Term, Terms};
use std::rc::Rc;
use vmm::elfcore::Core;
use vmm::sandbox::SandboxError;
use x86::state::State;

/// Asking whether a value is forced costs up to a millisecond each.
const MOST_QUESTIONS: usize = 200;

/// Sets every origin in `suffix`: the hypothesis is that of its forced end, on which nothing was chosen. What lies before that is one
/// possibility, and counts as chosen.
///
/// # Errors
/// When the suffix does not run, which its certificate excludes.
pub fn judge(
    hypothesis: &mut Hypothesis<'_>,
    core: &Core,
    suffix: &mut Suffix,
) -> Result<(), CertificateError> {
    let terms = Rc::clone(hypothesis.terms());
    let constraints = hypothesis.facts().unsolved(&terms);
    let mut end = end_of(hypothesis, core, suffix)?;
    let mut judge = Judge { hypothesis, terms, constraints, questions: MOST_QUESTIONS };
    (end.registers, end.others) = judge.threads(&end);
    judge.memory(&mut end);
    judge.inputs(&mut end);
    judge.answers(&mut end);
    judge.signals(&mut end);
    apply(end, suffix);
    Ok(())
}

/// The end of a suffix that is as long as the hypothesis, as a suffix of its own: the run of the whole one tells where it begins.
fn end_of(hypothesis: &Hypothesis<'_>, core: &Core, suffix: &Suffix) -> Result<Suffix, CertificateError> {
    let (len, from) = (hypothesis.len(), suffix.len() - hypothesis.instructions());
    let mut run = Forward::new(core, suffix)?;
    while let Some(ahead) = run.ahead().filter(|ahead| ahead.index < from) {
        run.run(&ahead)?;
    }
    let step = Step::try_from(len).expect("paths are shorter than 2^32");
    let parked = run.parked().map(|(thread, state)| OtherThread {
        thread,
        start: *state,
        registers: RegisterOrigins::default(),
        waits: false,
    });
    let others = parked.collect();
    let stage = run.stage();
    let (start, path) = (stage.state()?, suffix.path[from..].to_vec());
    let inactive_gs = stage.inactive_gs();
    let mut end = Suffix { start, inactive_gs, path, others, ..Suffix::default() };
    for va in hypothesis.memory().overwritten(step) {
        let mut byte = [0];
        if !stage.read(va, &mut byte) {
            return Err(SandboxError::NotMapped(va).into());
        }
        match end.memory.last_mut() {
            Some(piece) if piece.address + piece.bytes.len() as u64 == va => {
                piece.bytes.push(byte[0]);
                piece.origins.push(Origin::Chosen);
            }
            _ => end.memory.push(StartMemory {
                address: va,
                bytes: byte.to_vec(),
                origins: vec![Origin::Chosen],
            }),
        }
    }
    // A late answer right where it begins is one of what lies before.
    let inputs =
        suffix.inputs.iter().filter(|input| input.step >= from + usize::from(input.late && from > 0));
    end.inputs = inputs.map(|input| SuffixInput { step: input.step - from, ..input.clone() }).collect();
    let answers = suffix.answers.iter().filter(|answer| answer.step >= from);
    end.answers = answers.map(|answer| SuffixAnswer { step: answer.step - from, ..*answer }).collect();
    let signals = suffix.signals.iter().filter(|signal| signal.step > from);
    end.signals = signals.map(|signal| SuffixSignal { step: signal.step - from, ..signal.clone() }).collect();
    Ok(end)
}

/// Takes over what was found of the forced end.
fn apply(end: Suffix, suffix: &mut Suffix) {
    let from = suffix.len() - end.len();
    for input in &mut suffix.inputs {
        let is_it = |judged: &&SuffixInput| (judged.step + from, judged.late) == (input.step, input.late);
        let judged = end.inputs.iter().find(is_it);
        input.origin = judged.map_or(Origin::Chosen, |judged| judged.origin);
    }
    for answer in &mut suffix.answers {
        let judged = end.answers.iter().find(|judged| judged.step + from == answer.step);
        answer.origin = judged.map_or(Origin::Chosen, |judged| judged.origin);
    }
    let memory: Vec<_> = end.memory.into_iter().map(|piece| (piece.address, piece.origins)).collect();
    for signal in &mut suffix.signals {
        let judged = end
            .signals
            .iter()
            .find(|judged| (judged.step + from, judged.frame) == (signal.step, signal.frame));
        signal.origin = judged.map_or(Origin::Chosen, |judged| judged.origin);
    }
    let is_all = from == 0;
    let of = |va: u64| {
        let piece = memory.iter().rev().find(|(at, origins)| (*at..*at + origins.len() as u64).contains(&va));
        piece.and_then(|(at, origins)| origins.get(usize::try_from(va - at).ok()?).copied())
    };
    for piece in &mut suffix.memory {
        for (va, origin) in (piece.address..).zip(&mut piece.origins) {
            *origin = of(va).filter(|_| is_all).unwrap_or(Origin::Chosen);
        }
    }
    suffix.registers = if is_all { end.registers.clone() } else { RegisterOrigins::all(Origin::Chosen) };
    let others: Vec<_> = end.others.into_iter().map(|other| (other.thread, other.registers)).collect();
    for other in &mut suffix.others {
        let judged = others.iter().find(|(thread, _)| is_all && *thread == other.thread);
        other.registers =
            judged.map_or_else(|| RegisterOrigins::all(Origin::Chosen), |(_, judged)| judged.clone());
    }
    suffix.forced = Forced { steps: end.path.len(), registers: end.registers, others, memory };
}

struct Judge<'h, 'i> {
    hypothesis: &'h mut Hypothesis<'i>,
    terms: Rc<Terms>,
    constraints: Vec<Term>,
    /// How many more times the solver may be asked.
    questions: usize,
}

impl Judge<'_, '_> {
    /// Of the term `then`, which has `value` in the suffix; `now` is the core's term for the same place.
    fn origin(&mut self, then: Term, now: Option<Term>, value: u64) -> Origin {
        if now == Some(then) {
            return Origin::Core;
        }
        let resolved = self.hypothesis.facts().resolve(&self.terms, then);
        if !self.terms.is_open(resolved) || self.is_forced(resolved, value) {
            Origin::Forced
        } else {
            Origin::Chosen
        }
    }

    /// Whether the constraints leave `t` no other value.
    fn is_forced(&mut self, t: Term, value: u64) -> bool {
        let relevant = smt::connected(self.hypothesis.facts(), &self.terms, &self.constraints, &[t]);
        if relevant.is_empty() || self.questions == 0 {
            return false;
        }
        self.questions -= 1;
        smt::is_forced(&self.terms, &relevant, t, value, Budget::SEARCH) == Some(true)
    }

    /// Of the thread that has the processor where the end begins, and of the others.
    fn threads(&mut self, end: &Suffix) -> (RegisterOrigins, Vec<OtherThread>) {
        let image = self.hypothesis.image();
        let crashed = self.hypothesis.snapshot(0).clone();
        let terms = Rc::clone(&self.terms);
        let now = |thread| match image.thread(thread) {
            Some(state) if thread != image.crashed() => Snapshot::of_state(&terms, state),
            _ => crashed.clone(),
        };
        let depth = self.hypothesis.len();
        let runs = self.hypothesis.path().last().map_or_else(|| image.crashed(), |step| step.thread);
        let then = self.hypothesis.snapshot(depth).clone();
        let registers = self.registers(&end.start, end.inactive_gs, &then, &now(runs));
        let stands = self.hypothesis.others_at(depth);
        let judge = |other: &OtherThread| {
            let found = stands.iter().find(|stands| stands.thread == other.thread);
            // Nothing of the end is this thread's: it stands as in the core.
            let origins =
                found.map(|it| self.registers(&other.start, None, &it.registers, &now(other.thread)));
            OtherThread { registers: origins.unwrap_or_default(), ..other.clone() }
        };
        (registers, end.others.iter().map(judge).collect())
    }

    fn registers(
        &mut self,
        start: &State,
        inactive_gs: Option<u64>,
        then: &Snapshot,
        now: &Snapshot,
    ) -> RegisterOrigins {
        let (regs, fpu) = (&start.regs, &start.fpu);
        let mut origins = RegisterOrigins::default();
        for (n, origin) in origins.gpr.iter_mut().enumerate() {
            *origin = self.origin(then.gpr[n], Some(now.gpr[n]), regs.gpr[n]);
        }
        for f in x86::flags::Flag::ALL {
            let (then, now) = (then.flags[f as usize], now.flags[f as usize]);
            origins.flags = origins.flags.max(self.origin(then, Some(now), regs.rflags >> f.bit() & 1));
        }
        for (n, origin) in (0..).zip(&mut origins.vector) {
            for (part, &value) in (0..).zip(&fpu.vector[usize::from(n)]) {
                let (then, now) = (then.vector.part(n, part), now.vector.part(n, part));
                *origin = (*origin).max(self.origin(then, Some(now), value));
            }
        }
        for (n, &value) in (0..).zip(&fpu.opmask) {
            let (then, now) = (then.vector.opmask(n), now.vector.opmask(n));
            origins.opmask = origins.opmask.max(self.origin(then, Some(now), value));
        }
        for n in 0..8 {
            let origin = self.origin(then.x87[n].0, Some(now.x87[n].0), fpu.st[n].0);
            origins.fpu = origins.fpu.max(origin);
        }
        let status = fpu.status & !STATUS_TOP;
        let controls = [u64::from(fpu.mxcsr), u64::from(fpu.control), u64::from(status), u64::from(fpu.tag)];
        for (n, value) in controls.into_iter().enumerate() {
            origins.fpu = origins.fpu.max(self.origin(then.controls[n], Some(now.controls[n]), value));
        }
        let bases = then.segment_bases.iter().zip(now.segment_bases).zip([regs.fs_base, regs.gs_base]);
        for ((&then, now), value) in bases {
            origins.bases = origins.bases.max(self.origin(then, Some(now), value));
        }
        if let (Some(then), Some(value)) = (then.inactive_gs, inactive_gs) {
            origins.bases = origins.bases.max(self.origin(then, now.inactive_gs, value));
        }
        origins
    }

    /// A byte that the hypothesis does not know to be overwritten is at an address that was chosen.
    fn memory(&mut self, suffix: &mut Suffix) {
        let step = Step::try_from(self.hypothesis.len()).expect("paths are shorter than 2^32");
        let image = self.hypothesis.image();
        for piece in &mut suffix.memory {
            for ((va, &value), origin) in (piece.address..).zip(&piece.bytes).zip(&mut piece.origins) {
                let memory = self.hypothesis.memory();
                let known = memory.is_overwritten(va).then(|| memory.byte(&self.terms, image, va, step));
                *origin =
                    known.flatten().map_or(Origin::Chosen, |byte| self.origin(byte, None, u64::from(value)));
            }
        }
    }

    /// What the kernel stored: what lies there still is the core's, and what was overwritten since may be known all the same.
    fn signals(&mut self, suffix: &mut Suffix) {
        let delivered = self.hypothesis.delivered().to_vec();
        for signal in &mut suffix.signals {
            let Some(it) = delivered.iter().find(|it| it.place.frame == signal.frame) else { continue };
            signal.origin = Origin::Core;
            for access in &it.writes {
                let at = self.terms.value(access.address).unwrap_or(0);
                let is_left = |va| !self.hypothesis.memory().is_overwritten_since(va, it.step - 1);
                if !(at..at + u64::from(access.bytes)).all(is_left) {
                    let value = self.hypothesis.facts().resolve(&self.terms, access.value);
                    let is_open = self.terms.is_open(value);
                    signal.origin = signal.origin.max(if is_open { Origin::Chosen } else { Origin::Forced });
                }
            }
        }
    }

    fn answers(&mut self, suffix: &mut Suffix) {
        let terms = self.hypothesis.answers().iter();
        let terms: Vec<_> = terms.map(|answer| (self.index(answer.step), answer.value)).collect();
        for answer in &mut suffix.answers {
            let term = terms.iter().find(|(step, _)| *step == answer.step);
            answer.origin = term.map_or(Origin::Chosen, |(_, term)| self.origin(*term, None, answer.value));
        }
    }

    /// The index in the path of the end's suffix of a step of the hypothesis.
    fn index(&self, step: Step) -> usize {
        let path = self.hypothesis.path();
        path[step as usize..].iter().filter(|step| step.is_instruction()).count()
    }

    fn inputs(&mut self, suffix: &mut Suffix) {
        let calls = self.hypothesis.calls().iter();
        let calls: Vec<_> = calls.map(|call| (self.index(call.step), call.late, call.result)).collect();
        for input in &mut suffix.inputs {
            let call = calls.iter().find(|(step, late, _)| (*step, *late) == (input.step, input.late));
            input.origin =
                call.map_or(Origin::Chosen, |&(_, _, result)| self.origin(result, None, input.result));
        }
    }
}
