//! The suffix run whole under KVM: the processor's own word on it.

use super::compare;
use super::ending::Ending;
use super::forward::{decode, handler_of};
use super::signals::{self, Delivery};
use super::stage::{self, Stage};
use super::stepped::Stepped;
use super::threads::Threads;
use super::{CertificateError, Difference, Request, SYSCALL_LENGTH, name};
use crate::suffix::SuffixSignal;
use std::sync::mpsc;
use std::time::Duration;
use vmm::engine::kvm::KvmCpu;
use vmm::engine::{EngineKind, Exit, Interrupter, Until};
use x86::decode::stores_x87_pointers as stores_pointers;

/// What came of the run.
pub(super) enum Native {
    /// It ended in the core.
    Same,
    /// It did not.
    Different(Difference),
    /// KVM cannot judge it.
    Unavailable(String),
}

/// Runs the suffix under KVM.
pub(super) fn run(request: &Request<'_>, stepped: &Stepped<'_>) -> Result<Native, CertificateError> {
    let ending = Ending::of(request.core);
    let (suffix, calls) = (request.suffix, stepped.calls());
    if request.core.machine.is_some() {
        return Ok(Native::Unavailable("it is a kernel's, with a machine around it".to_owned()));
    }
    if !request.kvm {
        return Ok(Native::Unavailable("not asked for".to_owned()));
    }
    let behind_call = |step: usize| calls.iter().any(|call| call + 1 == step);
    if ending == Ending::Sent && !behind_call(suffix.len()) {
        return Ok(Native::Unavailable("the signal came between two instructions".to_owned()));
    }
    if suffix.switches().any(|turn| !behind_call(turn.step)) {
        return Ok(Native::Unavailable("a thread gives way where KVM does not stop".to_owned()));
    }
    if suffix.signals.iter().any(|signal| !signal.raised && !behind_call(signal.step)) {
        return Ok(Native::Unavailable("a signal comes where KVM does not stop".to_owned()));
    }
    let machine = match KvmCpu::machine(stage::memory_needed(request.core)) {
        Ok(machine) => machine.any(),
        Err(error) => return Ok(Native::Unavailable(error.to_string())),
    };
    let mut stage = Stage::new(machine, request.core, request.suffix)?;
    if stores_x87_pointers(request, &stage) {
        return Ok(Native::Unavailable(
            "a processor stores the address of the last x87 instruction, and programs are shown zero"
                .to_owned(),
        ));
    }
    let interrupter = stage.interrupter();
    let mut threads = Threads::new(request.core, suffix);
    let run = || to_the_end(request, ending, &calls, &mut stage, &mut threads);
    if let Some(difference) = within(request.time, interrupter, run)? {
        return Ok(Native::Different(difference));
    }
    let differs = threads.parked().find_map(|(thread, found)| {
        compare::parked(EngineKind::Kvm, (thread, found), request.core, stepped.undefined_of(thread))
    });
    if let Some(difference) = differs {
        return Ok(Native::Different(difference));
    }
    Ok(match compare::with_core(EngineKind::Kvm, &mut stage, request.core, stepped.undefined())? {
        Ok(_) => Native::Same,
        Err(difference) => Native::Different(difference),
    })
}

/// Whether an instruction on the path stores what processors differ in: where the program runs, it is rewritten
/// (`vmm::process::sites`), and here it is not.
fn stores_x87_pointers(request: &Request<'_>, stage: &Stage<'_>) -> bool {
    let mut path = request.suffix.path.clone();
    path.sort_unstable();
    path.dedup();
    let at = |rip| decode(rip, |va, bytes| stage.read(va, bytes));
    path.into_iter().any(|rip| stores_pointers(&at(rip)))
}

/// Runs to the crash, serving system calls, behind which another thread may get the processor.
fn to_the_end(
    request: &Request<'_>,
    ending: Ending,
    calls: &[usize],
    stage: &mut Stage<'_>,
    threads: &mut Threads<'_>,
) -> Result<Option<Difference>, CertificateError> {
    let mut signals = &request.suffix.signals[..];
    for stop in stops(calls, signals) {
        let call = match stop {
            Stop::Call(call) => call,
            Stop::Raised(step) => {
                if let Some(difference) = raise(request, stage, &mut signals, step)? {
                    return Ok(Some(difference));
                }
                continue;
            }
        };
        let exit = stage.run(Until::Exit)?;
        let expected = request.suffix.path[call];
        let found = stage.regs().rip.wrapping_sub(SYSCALL_LENGTH);
        if exit != Exit::Syscall || found != expected {
            let found = format!("{} before {:#x}", name(&exit), stage.regs().rip);
            return Ok(Some(different(call, format!("a system call at {expected:#x}"), found)));
        }
        threads.serve(stage, call)?;
        loop {
            if let Some((signal, rest)) = signals.split_first()
                && !signal.raised
                && (signal.step, signal.thread) == (call + 1, threads.runs())
            {
                signals = rest;
                signals::enter(stage, signal, handler_of(request.core, request.suffix, signal))?;
            } else if threads.switch(stage, call + 1)?.is_none() {
                break;
            }
        }
    }
    if ending == Ending::Sent {
        return Ok(None);
    }
    let exit = stage.run(Until::Exit)?;
    let died = matches!(&exit, Exit::Exception(exception) if ending.matches(exception));
    let expected = || request.core.signal.name();
    Ok((!died).then(|| different(request.suffix.len(), expected(), name(&exit))))
}

/// Where the processor stops on its own.
enum Stop {
    /// Behind this system call.
    Call(usize),
    /// At an instruction that raises a signal; the handler begins with this step.
    Raised(usize),
}

/// All of them in order.
fn stops(calls: &[usize], signals: &[SuffixSignal]) -> Vec<Stop> {
    let raised = signals.iter().filter(|signal| signal.raised).map(|signal| signal.step);
    let mut all: Vec<Stop> =
        calls.iter().map(|call| Stop::Call(*call)).chain(raised.map(Stop::Raised)).collect();
    // Behind a call the next instruction may raise one.
    all.sort_by_key(|stop| match *stop {
        Stop::Call(call) => (call + 1, false),
        Stop::Raised(step) => (step, true),
    });
    all
}

/// Runs to the instruction that raises the next signal, and enters its handler.
fn raise(
    request: &Request<'_>,
    stage: &mut Stage<'_>,
    signals: &mut &[SuffixSignal],
    step: usize,
) -> Result<Option<Difference>, CertificateError> {
    let exit = stage.run(Until::Exit)?;
    let Some((signal, rest)) = signals.split_first().filter(|(signal, _)| signal.step == step) else {
        return Ok(Some(different(step, "a signal".to_owned(), name(&exit))));
    };
    *signals = rest;
    let interrupted = signals::enter(stage, signal, handler_of(request.core, request.suffix, signal))?;
    let delivery = Delivery { signal, interrupted, raised: Some(exit) };
    let differs = signals::raised_elsewhere(&delivery);
    Ok(differs.map(|(_, expected, found)| different(step, expected, found)))
}

fn different(step: usize, expected: String, found: String) -> Difference {
    Difference { engine: EngineKind::Kvm, step: Some(step), what: "end".to_owned(), expected, found }
}

/// Calls `run`, and interrupts the engine if it takes longer than `time`.
fn within<T>(time: Duration, interrupter: Interrupter, run: impl FnOnce() -> T) -> T {
    let (done, wait) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if wait.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout) {
                interrupter.interrupt();
            }
        });
        let result = run();
        drop(done);
        result
    })
}
