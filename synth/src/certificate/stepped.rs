//! The run on the software CPU: along the path, and against the branch records and the crumbs.
//!
//! What it passes through is noted on the way, and compared when it has come to its end: which branches were taken, at which exits and
//! switches it came by, how the stack was there, and what retired in between.

use super::compare::Undefined;
use super::contexts::{Stacks, Walked};
use super::ending::Ending;
use super::exits::{self, Compared, Passed, What};
use super::forward::{self, Ahead, Forward, Outcome};
use super::{CertificateError, Request, SYSCALL_LENGTH, Verdict, name, rejected, signals};
use crate::evidence::Retired;
use crate::past::hypothesis::Kernel;
use crate::program::RT_SIGRETURN;
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::BTreeMap;
use vmm::engine::Exit;
use vmm::stack::Place;
use x86::op::{BranchKind, Gpr};
use x86::state::Regs;

/// The run on the software CPU.
pub(super) struct Stepped<'a> {
    pub(super) forward: Forward<'a>,
    /// What the manual leaves undefined, for each thread that ran.
    pub(super) undefined: BTreeMap<u32, Undefined>,
    /// Taken branches of the recorded kinds since the last switch, oldest first, with the step.
    taken: Vec<(usize, (u64, u64))>,
    /// The exits and switches, oldest first.
    passed: Vec<Passed>,
    /// What retired.
    retired: Retired,
    /// How many branch records were compared.
    pub(super) records: usize,
    /// What of the crumbs was.
    pub(super) compared: Compared,
    /// Walks the stacks, where there are contexts to compare with.
    stacks: Option<Stacks<'a>>,
}

impl<'a> Stepped<'a> {
    /// Follows the path, then the end, then compares the branch records.
    pub(super) fn run(request: &Request<'a>) -> Result<Result<Stepped<'a>, Verdict>, CertificateError> {
        let forward = Forward::new(request.core, request.suffix)?;
        let mut run = Stepped {
            forward,
            undefined: BTreeMap::new(),
            taken: Vec::new(),
            passed: Vec::new(),
            retired: Retired::default(),
            records: 0,
            compared: Compared::default(),
            stacks: Stacks::of(request.anchors),
        };
        run.note_switches(0);
        while let Some(ahead) = run.forward.ahead() {
            let expected = request.suffix.path[ahead.index];
            if run.forward.regs().rip != expected {
                let found = run.forward.regs().rip;
                return Ok(Err(rejected(
                    ahead.index,
                    "rip",
                    format!("{expected:#x}"),
                    format!("{found:#x}"),
                )));
            }
            let (thread, before) = (run.forward.thread(), *run.forward.regs());
            let stack = run.walk_ahead(&ahead, &before);
            match run.forward.run(&ahead)? {
                Outcome::Retired => run.note(request, &ahead, thread, stack),
                Outcome::Answered(_) | Outcome::Waits(_) => {
                    run.note_call(request, ahead.index, (thread, &before), stack)
                }
                Outcome::Stopped(_) if let Some(reason) = run.forward.refusal() => {
                    return Ok(Err(Verdict::Refused { step: ahead.index, reason }));
                }
                Outcome::Stopped(exit) => {
                    let interrupted_repeat = forward::repeats(&ahead.instruction)
                        && ahead.index + ahead.span == request.suffix.len();
                    let step = if interrupted_repeat { request.suffix.len() } else { ahead.index };
                    return Ok(match end(request, step, run.forward.regs().rip, &exit) {
                        Ok(()) if interrupted_repeat => run.check(request),
                        Ok(()) => Err(rejected(
                            ahead.index,
                            "end",
                            "an instruction that retires".into(),
                            name(&exit),
                        )),
                        Err(verdict) => Err(verdict),
                    });
                }
            }
            let behind = ahead.index + ahead.span;
            if let Some((what, expected, found)) = run.misdelivered() {
                return Ok(Err(rejected(behind - 1, &what, expected, found)));
            }
            run.note_switches(behind);
        }
        if Ending::of(request.core) != Ending::Sent {
            let exit = run.forward.step()?;
            if let Some(reason) = run.forward.refusal() {
                return Ok(Err(Verdict::Refused { step: request.suffix.len(), reason }));
            }
            if let Err(verdict) = end(request, request.suffix.len(), run.forward.regs().rip, &exit) {
                return Ok(Err(verdict));
            }
        }
        Ok(run.check(request))
    }

    /// Walks the stack before an exit, and notes what another instruction takes from it.
    fn walk_ahead(&mut self, ahead: &Ahead, regs: &Regs) -> Option<Walked> {
        let Stepped { forward, stacks, .. } = self;
        let stacks = stacks.as_mut()?;
        let place = match ahead.instruction.mnemonic() {
            // As it leaves its crumb: behind it.
            Mnemonic::Syscall => Place { rip: regs.rip + SYSCALL_LENGTH, ..Place::behind(regs) },
            Mnemonic::Pause => Place::before(regs),
            _ => {
                stacks.note(forward, ahead.index, &ahead.instruction, regs);
                return None;
            }
        };
        Some(stacks.walk(forward, place))
    }

    fn passed(&mut self, step: usize, thread: u32, what: What, stack: Option<Walked>) {
        let taken = self.forward.stage().taken_branches();
        self.passed.push(Passed { step, thread, what, retired: self.retired, taken, stack });
    }

    fn note(&mut self, request: &Request<'_>, ahead: &Ahead, thread: u32, stack: Option<Walked>) {
        self.undefined.entry(thread).or_default().retire(&ahead.instruction);
        let ip = ahead.instruction.ip();
        if ahead.instruction.mnemonic() == Mnemonic::Pause {
            let rsp = self.forward.stood(thread).gpr[usize::from(Gpr::RSP.0)];
            let what = What::Pause { rip: ip, rsp };
            self.passed(ahead.index, thread, what, stack);
        }
        self.retired.instructions += 1;
        self.retired.conditional_branches += u64::from(is_conditional(&ahead.instruction));
        let to = self.forward.stood(thread).rip;
        if let Some(kind) = taken_branch(&ahead.instruction, to)
            && request.recorded.contains(&kind)
        {
            self.taken.push((ahead.index, (ip, to)));
        }
    }

    fn note_call(
        &mut self,
        request: &Request<'_>,
        step: usize,
        (thread, before): (u32, &Regs),
        stack: Option<Walked>,
    ) {
        let number = before.gpr[usize::from(Gpr::RAX.0)];
        // As the call leaves them: behind it a handler may have been entered, or returned from.
        let (rip, rsp) = (before.rip + SYSCALL_LENGTH, before.gpr[usize::from(Gpr::RSP.0)]);
        let r11 = self.forward.stood(thread).gpr[usize::from(Gpr::R11.0)];
        let undefined = self.undefined.entry(thread).or_default();
        if number == RT_SIGRETURN {
            *undefined = Undefined::default();
        } else {
            undefined.call(Kernel::of(request.core), r11);
        }
        let what = What::Call { number, rip, rsp };
        self.passed(step, thread, what, stack);
        self.retired.instructions += 1;
    }

    /// What of the signals that were delivered last is not as the kernel does it.
    fn misdelivered(&mut self) -> Option<(String, String, String)> {
        let delivered = self.forward.delivered();
        let check = |it: &signals::Delivery<'_>| signals::check(it, self.undefined_of(it.signal.thread));
        delivered.iter().find_map(check)
    }

    /// Notes the switches before this step.
    fn note_switches(&mut self, step: usize) {
        for switch in self.forward.switches() {
            let what = What::Switch { to: switch.to, stands: switch.stands };
            let Stepped { forward, stacks, .. } = self;
            let place = Place::before(forward.stood(switch.from));
            let stack = stacks.as_mut().map(|stacks| stacks.walk(forward, place));
            self.passed(step, switch.from, what, stack);
            // The records are emptied then.
            self.taken.clear();
        }
    }

    /// What the manual leaves undefined where the run stands.
    pub(super) fn undefined(&self) -> &Undefined {
        self.undefined_of(self.forward.thread())
    }

    /// And for any of the threads.
    pub(super) fn undefined_of(&self, thread: u32) -> &Undefined {
        static NOTHING: Undefined = Undefined::NOTHING;
        self.undefined.get(&thread).unwrap_or(&NOTHING)
    }

    /// The indices in the path of the system calls.
    pub(super) fn calls(&self) -> Vec<usize> {
        let calls = self.passed.iter().filter(|passed| matches!(passed.what, What::Call { .. }));
        calls.map(|passed| passed.step).collect()
    }

    /// Compares what the run passed through with the records and the crumbs.
    fn check(mut self, request: &Request<'_>) -> Result<Stepped<'a>, Verdict> {
        self.check_records(request)?;
        self.check_entered(request)?;
        let taken = self.forward.stage().taken_branches();
        let (retired, forward, stacks) = (self.retired, &self.forward, self.stacks.as_ref());
        let end = exits::End { retired, taken, forward, stacks };
        self.compared = exits::compare(&self.passed, &end, request.anchors)?;
        Ok(self)
    }

    fn check_records(&mut self, request: &Request<'_>) -> Result<(), Verdict> {
        for (record, (step, branch)) in request.records.iter().zip(self.taken.iter().rev()) {
            if record != branch {
                let text = |(from, to): &(u64, u64)| format!("{from:#x} to {to:#x}");
                return Err(rejected(*step, "branch record", text(record), text(branch)));
            }
            self.records += 1;
        }
        Ok(())
    }

    /// Nothing of a path is older than the newest exit or far transfer that is known.
    fn check_entered(&self, request: &Request<'_>) -> Result<(), Verdict> {
        let entered = request.anchors.entered();
        if let Some(back) = entered.back
            && let Some((step, (from, to))) = self.taken.iter().rev().nth(request.records.len())
        {
            let expected = format!("a far transfer to {back:#x}");
            return Err(rejected(*step, "branch record", expected, format!("{from:#x} to {to:#x}")));
        }
        match entered.retired {
            Some(most) if self.retired.instructions > most => {
                let what = "instructions since the newest exit";
                Err(rejected(0, what, most.to_string(), self.retired.instructions.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Whether `exit` with the registers at `rip` is how the program died. `step` is the index in the path of the
/// instruction that did not retire; its length stands for the one that crashed.
fn end(request: &Request<'_>, step: usize, rip: u64, exit: &Exit) -> Result<(), Verdict> {
    match exit {
        Exit::Exception(exception) if Ending::of(request.core).matches(exception) => {
            let expected = request.core.state.regs.rip;
            let same = rip == expected;
            same.then_some(()).ok_or_else(|| {
                rejected(step, "rip of the crash", format!("{expected:#x}"), format!("{rip:#x}"))
            })
        }
        Exit::MachineRead(read) => {
            let reason = format!("{read:?} at {rip:#x} reads the machine, not the program's state");
            Err(Verdict::Refused { step, reason })
        }
        Exit::NoSemantics { bytes, len } => {
            let bytes: String = bytes.iter().take((*len).into()).map(|byte| format!(" {byte:02x}")).collect();
            Err(Verdict::Refused {
                step,
                reason: format!("no semantics for the instruction at {rip:#x}:{bytes}"),
            })
        }
        other => Err(rejected(step, "end", request.core.end_name(), name(other))),
    }
}

/// Whether it counts as a conditional branch: Jcc, JRCXZ and LOOP, taken or not.
fn is_conditional(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::ConditionalBranch
}

/// The kind of the branch if `instruction`, which went on at `to`, took one.
fn taken_branch(instruction: &Instruction, to: u64) -> Option<BranchKind> {
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch => Some(BranchKind::RelativeJump),
        FlowControl::IndirectBranch => Some(BranchKind::IndirectJump),
        FlowControl::IndirectCall => Some(BranchKind::IndirectCall),
        FlowControl::Return => Some(BranchKind::Return),
        FlowControl::Call if instruction.is_call_near() => Some(BranchKind::RelativeCall),
        FlowControl::ConditionalBranch if to != instruction.next_ip() => Some(BranchKind::Conditional),
        _ => None,
    }
}
