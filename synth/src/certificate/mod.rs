//! The proof of a suffix: run forward from its start image, it must end in the core.
//!
//! Example: a suffix has 86 instructions, and the core 16 branch records. [`stage`] maps the core's memory with the
//! suffix's own bytes over it. [`forward`] runs 86 instructions on the software CPU and compares each address with the path
//! and the taken branches with the 14 records that it covers; then `add rsi, [rax+0x10]` faults as the program did.
//! [`compare`] finds 2,514,944 bytes and all registers equal, and lists what it left out, such as AF behind `test`.
//! [`native`] runs the same whole under KVM.
//!
//! | part | module |
//! | --- | --- |
//! | the start image on an engine | [`stage`] |
//! | instruction by instruction on the software CPU, along the path and the branch records | [`forward`] |
//! | which thread has the processor, and where the others stand; signals | [`threads`]; [`signals`] |
//! | the exits and switches, against the crumbs; their stacks, against the contexts | [`exits`]; [`contexts`] |
//! | how the program died | [`ending`] |
//! | whole under KVM | [`native`] |
//! | a kernel's suffix, on the machine's software CPU | [`ring0`] |
//! | the end: every dumped byte and every register of every thread that took part, but for an explicit list | [`compare`] |
//! | a certified suffix to walk about in | [`walk`] |
//!
//! The search and the software CPU share one semantics of instructions; KVM runs on the processor itself, and so is the
//! independent witness where there is one.

mod compare;
mod contexts;
mod ending;
mod exits;
pub(crate) mod forward;
mod native;
mod ring0;
pub(crate) mod signals;
pub(crate) mod stage;
pub(crate) mod threads;
pub mod walk;

use crate::evidence::{Anchors, Retired};
use crate::past::hypothesis::Kernel;
use crate::program::RT_SIGRETURN;
use crate::suffix::Suffix;
use compare::Undefined;
use contexts::{Stacks, Walked};
use ending::Ending;
use exits::{Compared, Passed, What};
use forward::{Ahead, Forward, Outcome};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use vmm::elfcore::Core;
use vmm::engine::{EngineError, EngineKind, Exit};
use vmm::sandbox::SandboxError;
use vmm::stack::Place;
use x86::op::{BranchKind, Gpr};
use x86::state::Regs;

/// The length of SYSCALL in bytes: at its exit rip is behind it.
const SYSCALL_LENGTH: u64 = 2;

/// What to certify against what.
pub struct Request<'a> {
    /// Where the suffix must end.
    pub core: &'a Core,
    /// The suffix.
    pub suffix: &'a Suffix,
    /// The branch records, (from, to), newest first.
    pub records: &'a [(u64, u64)],
    /// The kinds of branches that the records' filter lets through.
    pub recorded: &'a [BranchKind],
    /// The exits of the thread that crashed.
    pub anchors: &'a Anchors,
    /// How long the run under KVM may take.
    pub time: Duration,
    /// Whether KVM may be used.
    pub kvm: bool,
}

/// Something that was not compared.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct DontCare {
    /// What.
    pub what: String,
    /// Why not.
    pub why: String,
}

/// Where a run first left the path, or how its end differs from the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The engine that ran it.
    pub engine: EngineKind,
    /// The index in the path; `None` at the end.
    pub step: Option<usize>,
    /// What differs.
    pub what: String,
    /// What it should have been.
    pub expected: String,
    /// What it was.
    pub found: String,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.step {
            Some(step) => write!(f, "at instruction {step} on {}: ", self.engine.name())?,
            None => write!(f, "at the end on {}: ", self.engine.name())?,
        }
        write!(f, "{}: expected {}, found {}", self.what, self.expected, self.found)
    }
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The suffix ends in the core.
    Certified(Box<Certificate>),
    /// It does not.
    Rejected(Difference),
    /// It cannot be judged: the path has an instruction that is not a function of the start image.
    Refused {
        /// The index in the path of that instruction; the path's length for the one that crashed.
        step: usize,
        /// Why.
        reason: String,
    },
}

/// What was proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The engines on which the suffix ended in the core.
    pub engines: Vec<EngineKind>,
    /// Why KVM is not among them.
    pub without_kvm: Option<String>,
    /// How many branch records the run reproduced.
    pub records: usize,
    /// How many exits it made as the crumbs have them, and between how many of them as much retired as was counted.
    pub crumbs: [usize; 2],
    /// Between how many of them as many branches were taken as was counted.
    pub taken_branches: usize,
    /// At how many of them the stack was the one of their calling context.
    pub contexts: usize,
    /// How many switches of threads it made as the crumbs have them.
    pub switches: usize,
    /// How many signals were delivered as their frames say.
    pub signals: usize,
    /// How many bytes of memory are equal.
    pub compared_bytes: u64,
    /// What was not compared.
    pub dont_care: Vec<DontCare>,
}

/// Why no verdict could be reached.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The engine, or its memory.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The suffix starts with other code or constants than the core.
    #[error("the suffix changes memory at {address:#x}, where the program cannot write")]
    ConstantMemory {
        /// Where.
        address: u64,
    },
    /// The core is no longer what it was.
    #[error("{} was truncated while it was read: nothing can be said of it", .0.display())]
    CutCore(PathBuf),
    /// A system call without an answer.
    #[error("the suffix has no result for the system call at instruction {step}")]
    NoInput {
        /// The index in the path.
        step: usize,
    },
    /// A turn of a thread that has none.
    #[error("the suffix does not say how the thread stands that runs from instruction {step} on")]
    NoThread {
        /// The index in the path.
        step: usize,
    },
}

/// Runs the suffix on the software CPU, and under KVM where that is possible, and compares.
///
/// # Errors
/// When an engine fails, or the suffix contradicts itself. A suffix that merely does not end in the core is
/// no error but [`Verdict::Rejected`].
pub fn certify(request: &Request<'_>) -> Result<Verdict, CertificateError> {
    let mut run = match Stepped::run(request)? {
        Ok(run) => run,
        Err(verdict) => return Ok(verdict),
    };
    let undefined = run.undefined().clone();
    let compared = compare::with_core(EngineKind::Soft, run.forward.stage(), request.core, &undefined)?;
    let compared_bytes = match compared {
        Ok(bytes) => bytes,
        Err(difference) => return Ok(Verdict::Rejected(difference)),
    };
    let mut parked = run.forward.parked();
    let differs = parked.find_map(|(thread, found)| {
        compare::parked(EngineKind::Soft, (thread, found), request.core, run.undefined_of(thread))
    });
    if let Some(difference) = differs {
        return Ok(Verdict::Rejected(difference));
    }
    let mut engines = vec![EngineKind::Soft];
    let without_kvm = match native::run(request, &run)? {
        native::Native::Same => {
            engines.push(EngineKind::Kvm);
            None
        }
        native::Native::Different(difference) => return Ok(Verdict::Rejected(difference)),
        native::Native::Unavailable(reason) => Some(reason),
    };
    if request.core.was_cut() {
        return Err(CertificateError::CutCore(request.core.path.clone()));
    }
    let has_signals = !request.suffix.signals.is_empty();
    let mut dont_care =
        compare::dont_care(request.core, compared_bytes, run.undefined(), has_signals, run.records);
    dont_care.extend(compare::not_of_crumbs(request, &run.compared));
    Ok(Verdict::Certified(Box::new(Certificate {
        engines,
        without_kvm,
        records: run.records,
        crumbs: run.compared.crumbs,
        taken_branches: run.compared.taken,
        contexts: run.compared.contexts,
        switches: run.compared.switches,
        signals: request.suffix.signals.len(),
        compared_bytes,
        dont_care,
    })))
}

/// The run on the software CPU.
struct Stepped<'a> {
    forward: Forward<'a>,
    /// What the manual leaves undefined, for each thread that ran.
    undefined: BTreeMap<u32, Undefined>,
    /// Taken branches of the recorded kinds since the last switch, oldest first, with the step.
    taken: Vec<(usize, (u64, u64))>,
    /// The exits and switches, oldest first.
    passed: Vec<Passed>,
    /// What retired.
    retired: Retired,
    /// How many branch records were compared.
    records: usize,
    /// What of the crumbs was.
    compared: Compared,
    /// Walks the stacks, where there are contexts to compare with.
    stacks: Option<Stacks<'a>>,
}

impl<'a> Stepped<'a> {
    /// Follows the path, then the end, then compares the branch records.
    fn run(request: &Request<'a>) -> Result<Result<Stepped<'a>, Verdict>, CertificateError> {
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
    fn undefined(&self) -> &Undefined {
        self.undefined_of(self.forward.thread())
    }

    /// And for any of the threads.
    fn undefined_of(&self, thread: u32) -> &Undefined {
        static NOTHING: Undefined = Undefined::NOTHING;
        self.undefined.get(&thread).unwrap_or(&NOTHING)
    }

    /// The indices in the path of the system calls.
    fn calls(&self) -> Vec<usize> {
        let calls = self.passed.iter().filter(|passed| matches!(passed.what, What::Call { .. }));
        calls.map(|passed| passed.step).collect()
    }

    /// Compares what the run passed through with the records and the crumbs.
    fn check(mut self, request: &Request<'_>) -> Result<Stepped<'a>, Verdict> {
        self.check_records(request)?;
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

fn rejected(step: usize, what: &str, expected: String, found: String) -> Verdict {
    let what = what.to_owned();
    Verdict::Rejected(Difference { engine: EngineKind::Soft, step: Some(step), what, expected, found })
}

/// An exit in a message.
fn name(exit: &Exit) -> String {
    match exit {
        Exit::Exception(e) if e.vector == 14 => format!("a page fault at {:#x}", e.address),
        Exit::Exception(e) => format!("exception {}", e.vector),
        Exit::Syscall => "a system call".to_owned(),
        Exit::Budget => "an instruction that retires".to_owned(),
        Exit::Interrupted => "no end in the time allowed".to_owned(),
        other => format!("{other:?}"),
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
