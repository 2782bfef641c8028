//! From a path to a suffix: every unknown at its start gets a value.
//!
//! The constraints that propagation left are given to the solver as one question, with the core's present
//! content as the preferred answer: memory and registers that nothing determines then stay as they are. Where the
//! values come from is judged elsewhere ([`crate::origins`]); here all count as chosen.

use crate::past::history::Step;
use crate::past::hypothesis::Hypothesis;
use crate::past::signals::Delivered;
use crate::past::snapshot::{STATUS_TOP, Snapshot};
use crate::past::turns::Stands;
use crate::smt::{self, Answer, Budget, Effort, Preference};
use crate::suffix::{
    Coverage, Forced, Origin, OtherThread, RegisterOrigins, StartMemory, Suffix, SuffixAnswer, SuffixInput,
    SuffixSignal, Turn,
};
use crate::term::{Assignment, Node, Term, Terms, Var};
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::rc::Rc;
use vmm::linux::vdso::TIME_BYTES;
use vmm::memory::layout::TIME_PAGE;
use x86::flags::Flag;
use x86::op::Gpr;
use x86::state::{Fpu, RFLAGS_AC, RFLAGS_DF, RFLAGS_FIXED, RFLAGS_IF, Regs, State};

/// Why a path has no start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unrealizable {
    /// The constraints contradict each other: the path did not lead to this core.
    #[error("the path contradicts the core")]
    Infeasible,
    /// The solver could not find values within its budget.
    #[error("the solver found no values within its budget")]
    Unknown,
}

/// Gives every unknown of the oldest `depth` steps' start a value: those of the last solution, if it still fits.
///
/// # Errors
/// When the solver says that there is none, or does not say.
pub fn realize(
    hypothesis: &mut Hypothesis<'_>,
    depth: usize,
    core: &State,
    coverage: Coverage,
) -> Result<Suffix, Unrealizable> {
    let mut realizer = Realizer::new(hypothesis, depth, core);
    realizer.choose()?;
    Ok(realizer.suffix(coverage))
}

struct Realizer<'h, 'i> {
    hypothesis: &'h mut Hypothesis<'i>,
    terms: Rc<Terms>,
    depth: usize,
    core: &'h State,
    constraints: Vec<Term>,
    values: Assignment,
    memo: FxHashMap<Term, Term>,
}

impl<'h, 'i> Realizer<'h, 'i> {
    fn new(hypothesis: &'h mut Hypothesis<'i>, depth: usize, core: &'h State) -> Self {
        let terms = Rc::clone(hypothesis.terms());
        let constraints = hypothesis.facts().unsolved(&terms);
        Realizer {
            hypothesis,
            terms,
            depth,
            core,
            constraints,
            values: Assignment::default(),
            memo: FxHashMap::default(),
        }
    }

    fn step(&self) -> Step {
        Step::try_from(self.depth).expect("paths are shorter than 2^32")
    }

    fn resolve(&mut self, t: Term) -> Term {
        self.hypothesis.facts().resolve(&self.terms, t)
    }

    /// The bytes that the suffix overwrites, as terms: what they were at its start.
    fn start_bytes(&mut self) -> Vec<(u64, Term)> {
        let step = self.step();
        let overwritten = self.hypothesis.memory().overwritten(step);
        let image = self.hypothesis.image();
        overwritten
            .into_iter()
            .filter_map(|va| {
                let byte = self.hypothesis.memory().byte(&self.terms, image, va, step)?;
                Some((va, self.resolve(byte)))
            })
            .collect()
    }

    /// Finds values for all variables.
    fn choose(&mut self) -> Result<(), Unrealizable> {
        let preferences = self.preferences();
        // Where no small change makes it fit, the solver is asked.
        self.hypothesis.witness().prefer(&preferences);
        self.hypothesis.fit_witness(0, Effort::Persistent).ok();
        let known = self.hypothesis.witness().solution(&self.terms, &self.constraints, &preferences);
        if let Some(values) = known {
            self.values = values;
        } else if !self.constraints.is_empty() {
            match smt::solve(&self.terms, &self.constraints, &preferences, Budget::FINAL, Effort::Persistent)
            {
                Answer::Infeasible => return Err(Unrealizable::Infeasible),
                Answer::Unknown => return Err(Unrealizable::Unknown),
                Answer::Satisfiable(model) => self.values = model,
            }
        }
        for p in preferences {
            if self.values.get(p.var).is_none() {
                self.values.set(p.var, p.value);
            }
        }
        Ok(())
    }

    /// The core's present content, as wishes for the variables that stand for the start's content.
    fn preferences(&mut self) -> Vec<Preference> {
        let mut wishes: FxHashMap<Var, u64> = FxHashMap::default();
        let image = self.hypothesis.image();
        for (va, term) in self.start_bytes() {
            wish(&self.terms, term, u64::from(image.byte(va).unwrap_or(0)), &mut wishes);
        }
        let runs = (self.runs(), self.hypothesis.snapshot(self.depth).clone());
        let others = self.hypothesis.others_at(self.depth);
        let others = others.into_iter().map(|stands| (stands.thread, stands.registers));
        for (thread, then) in std::iter::once(runs).chain(others) {
            let now = match image.is_kernel() {
                true => Snapshot::of_kernel(&self.terms, self.core, image.inactive_gs()),
                false => Snapshot::of_state(&self.terms, self.now(thread)),
            };
            for (now, then) in now.values().into_iter().zip(then.values()) {
                let then = self.resolve(then);
                let value = self.terms.value(now).or_else(|| self.terms.truth(now).map(u64::from));
                wish(&self.terms, then, value.unwrap_or(0), &mut wishes);
            }
        }
        let mut wishes: Vec<Preference> =
            wishes.into_iter().map(|(var, value)| Preference { var, value }).collect();
        wishes.sort_unstable_by_key(|p| p.var);
        wishes
    }

    fn value(&mut self, t: Term) -> u64 {
        let t = self.resolve(t);
        let t = self.terms.evaluate(t, &self.values, &mut self.memo);
        self.terms
            .value(t)
            .or_else(|| self.terms.truth(t).map(u64::from))
            .expect("every variable has a value")
    }

    fn suffix(&mut self, coverage: Coverage) -> Suffix {
        let then = self.hypothesis.snapshot(self.depth).clone();
        let rip = self.hypothesis.path()[self.depth - 1].address;
        let start = self.registers(&then, rip, self.runs());
        let inactive_gs = then.inactive_gs.map(|inactive| self.value(inactive));
        let memory = self.memory();
        let (inputs, answers) = (self.inputs(), self.answers());
        let steps = self.hypothesis.path()[..self.depth].iter().rev();
        let path = steps.filter(|step| step.is_instruction()).map(|step| step.address).collect();
        let (registers, forced) = (RegisterOrigins::default(), Forced::default());
        let (turns, others, signals) = (self.turns(), self.others(), self.signals());
        Suffix {
            start,
            inactive_gs,
            registers,
            memory,
            path,
            inputs,
            signals,
            coverage,
            forced,
            turns,
            others,
            answers,
        }
    }

    /// The thread that runs at the start.
    fn runs(&self) -> u32 {
        self.hypothesis.path()[self.depth - 1].thread
    }

    /// The registers that the core has for a thread.
    fn now(&self, thread: u32) -> &'h State
    where
        'i: 'h,
    {
        self.hypothesis.image().thread(thread).unwrap_or(self.core)
    }

    /// Who runs when; none if nobody else does.
    fn turns(&self) -> Vec<Turn> {
        let mut turns = vec![Turn { step: 0, thread: self.runs() }];
        for n in (1..=self.depth).rev() {
            let left = self.hypothesis.path()[n - 1].left;
            turns.extend(left.map(|thread| Turn { step: self.older_instructions(n), thread }));
        }
        if turns.len() == 1 { Vec::new() } else { turns }
    }

    /// How many instructions of the suffix are older than step `step`: its index in the path, if it is one.
    fn older_instructions(&self, step: usize) -> usize {
        self.hypothesis.path()[step..self.depth].iter().filter(|step| step.is_instruction()).count()
    }

    fn others(&mut self) -> Vec<OtherThread> {
        let others = self.hypothesis.others_at(self.depth);
        let start = |Stands { thread, rip, registers, waits }: Stands| {
            let mut start = self.registers(&registers, rip, thread);
            if let Some(number) = waits {
                start.regs.gpr[usize::from(Gpr::RAX.0)] = self.value(number);
            }
            let (registers, waits) = (RegisterOrigins::default(), waits.is_some());
            OtherThread { thread, start, registers, waits }
        };
        others.into_iter().map(start).collect()
    }

    fn registers(&mut self, then: &Snapshot, rip: u64, thread: u32) -> State {
        let mut regs = Regs { rip, ..Regs::default() };
        regs.gpr = then.gpr.map(|t| self.value(t));
        let interrupts = then.interrupts.is_none_or(|interrupts| self.value(interrupts) == 1);
        let access = then.access.is_some_and(|access| self.value(access) == 1);
        regs.rflags = RFLAGS_FIXED | if interrupts { RFLAGS_IF } else { 0 };
        regs.rflags |= if access { RFLAGS_AC } else { 0 };
        for f in Flag::ALL {
            regs.rflags |= self.value(then.flags[f as usize]) << f.bit();
        }
        if self.value(then.direction) == 1 {
            regs.rflags |= RFLAGS_DF;
        }
        regs.fs_base = self.value(then.segment_bases[0]);
        regs.gs_base = self.value(then.segment_bases[1]);
        State { regs, fpu: self.fpu(then, thread) }
    }

    fn fpu(&mut self, then: &Snapshot, thread: u32) -> Fpu {
        let mut fpu = self.now(thread).fpu;
        for (n, register) in (0..).zip(&mut fpu.vector) {
            for (part, value) in (0..).zip(register) {
                *value = self.value(then.vector.part(n, part));
            }
        }
        for (n, value) in (0..).zip(&mut fpu.opmask) {
            *value = self.value(then.vector.opmask(n));
        }
        for n in 0..8 {
            let (significand, exponent) = then.x87[n];
            fpu.st[n] = (self.value(significand), low16(self.value(exponent)));
        }
        let controls = then.controls.map(|c| self.value(c));
        fpu.mxcsr = u32::try_from(controls[0] & 0xffff_ffff).unwrap_or(0);
        fpu.control = low16(controls[1]);
        fpu.status = low16(controls[2]) & !STATUS_TOP | u16::from(then.x87_top) << 11;
        fpu.tag = controls[3].to_le_bytes()[0];
        fpu
    }

    fn memory(&mut self) -> Vec<StartMemory> {
        let mut pieces: Vec<StartMemory> = Vec::new();
        for (va, term) in self.start_bytes() {
            let byte = self.value(term).to_le_bytes()[0];
            match pieces.last_mut() {
                Some(p) if p.address.wrapping_add(p.bytes.len() as u64) == va => {
                    p.bytes.push(byte);
                    p.origins.push(Origin::Chosen);
                }
                _ => {
                    pieces.push(StartMemory { address: va, bytes: vec![byte], origins: vec![Origin::Chosen] })
                }
            }
        }
        pieces
    }

    fn answers(&mut self) -> Vec<SuffixAnswer> {
        let depth = self.step();
        let answers: Vec<_> = self.hypothesis.answers().iter().rev().copied().collect();
        let answers = answers.into_iter().filter(|answer| answer.step <= depth);
        let given = answers.map(|answer| SuffixAnswer {
            step: self.older_instructions(answer.step as usize),
            value: self.value(answer.value),
            origin: Origin::Chosen,
        });
        given.collect()
    }

    fn inputs(&mut self) -> Vec<SuffixInput> {
        let depth = self.step();
        let calls: Vec<_> = self.hypothesis.calls().iter().filter(|c| c.step <= depth).cloned().collect();
        let mut inputs: Vec<SuffixInput> = calls
            .into_iter()
            .map(|call| {
                let (mut writes, mut clock) = (Vec::<(u64, Vec<u8>)>::new(), Vec::new());
                for access in call.writes {
                    let va = self.value(access.address);
                    if !self.hypothesis.image().is_writable(va) {
                        continue;
                    }
                    let value = self.value(access.value).to_le_bytes();
                    let value = &value[..access.bytes as usize];
                    if let Some(at) = place_in_clock(va, value.len()) {
                        clock.resize(TIME_BYTES, 0);
                        clock[at].copy_from_slice(value);
                        continue;
                    }
                    match writes.last_mut() {
                        Some((start, bytes)) if start.wrapping_add(bytes.len() as u64) == va => {
                            bytes.extend_from_slice(value);
                        }
                        _ => writes.push((va, value.to_vec())),
                    }
                }
                SuffixInput {
                    step: self.older_instructions(call.step as usize),
                    late: call.late,
                    result: self.value(call.result),
                    writes,
                    origin: Origin::Chosen,
                    clock,
                }
            })
            .collect();
        inputs.sort_by_key(|input| (input.step, !input.late));
        inputs
    }
}

impl Realizer<'_, '_> {
    /// The signals that are delivered, the oldest first.
    fn signals(&mut self) -> Vec<SuffixSignal> {
        let depth = self.step();
        let delivered = self.hypothesis.delivered().iter().rev().filter(|it| it.step <= depth);
        let delivered: Vec<_> = delivered.cloned().collect();
        delivered.into_iter().map(|delivered| self.signal(&delivered)).collect()
    }

    fn signal(&mut self, delivered: &Delivered) -> SuffixSignal {
        let mut writes: Vec<(u64, Vec<u8>)> = Vec::new();
        for access in &delivered.writes {
            let (va, value) = (self.value(access.address), self.value(access.value).to_le_bytes());
            let value = &value[..access.bytes as usize];
            match writes.last_mut() {
                Some((start, bytes)) if *start + bytes.len() as u64 == va => bytes.extend_from_slice(value),
                _ => writes.push((va, value.to_vec())),
            }
        }
        let step = delivered.step as usize;
        let mut signal = SuffixSignal {
            step: self.older_instructions(step),
            thread: self.hypothesis.path()[step - 1].thread,
            raised: false,
            frame: delivered.place.frame,
            writes,
            origin: Origin::Chosen,
        };
        let info = signal.info();
        // `si_code` above zero says that the kernel made it, of these for an exception.
        signal.raised = info.code > 0 && RAISED.contains(&info.signo);
        signal
    }
}

/// The signals that an instruction raises which does not retire: SIGILL, SIGBUS, SIGFPE, SIGSEGV.
const RAISED: [i32; 4] = [4, 7, 8, 11];

/// Where so many bytes at `va` lie in what the kernel writes of the clock's page.
fn place_in_clock(va: u64, bytes: usize) -> Option<Range<usize>> {
    let at = usize::try_from(va.checked_sub(TIME_PAGE)?).ok()?;
    (at + bytes <= TIME_BYTES).then_some(at..at + bytes)
}

/// The low half-word of a value that has no more.
fn low16(v: u64) -> u16 {
    let [a, b, ..] = v.to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Wishes that `term`, if it is a variable or a part of one, be `value`.
fn wish(terms: &Terms, term: Term, value: u64, wishes: &mut FxHashMap<Var, u64>) {
    match terms.node(term) {
        Node::Var(var) => _ = wishes.insert(var, value),
        Node::Extract { low, of } => {
            if let Node::Var(var) = terms.node(of) {
                *wishes.entry(var).or_default() |= value << low;
            }
        }
        _ => {}
    }
}
