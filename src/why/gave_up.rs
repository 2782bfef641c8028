//! What made a program give up at the end of a suffix: no value made it crash.
//!
//! Example: `BUG_ON(sum != job->want)` is a branch to an UD2, and what the branch compared is the question. A kernel prints before it
//! gives up, and no suffix goes past the port that it prints to: then the branch is named that leads there by the code, and how to go
//! to it in the recording.

use super::blamed::Values;
use super::question::Question;
use super::shown::Names;
use super::suffix::Crashed;
use crate::exit::{Code, Failure};
use crate::shell;
use iced_x86::Mnemonic;
use std::path::Path;
use synth::program::{Guard, Program};
use synth::report::slice::{Decision, Moment, Synthesized};
use synth::report::written;

/// Functions of Linux that say what is wrong with a counter, and go on: their callers found it.
const REPORTING: [&str; 1] = ["refcount_warn_saturate"];
/// Of more branches than that none is the one.
const MOST_GUARDS: usize = 3;

/// The last decision before the program gave up, at an instruction that faults whatever the values are, or in the kernel's `panic`.
pub(super) fn question(
    crashed: &Crashed,
    history: &Synthesized<'_>,
    input: &Path,
) -> Result<Question<Moment>, Failure> {
    let program = &crashed.program;
    let at = crashed.core.state.regs.rip;
    let trap = program.instruction_at(at).filter(|it| it.mnemonic() == Mnemonic::Ud2);
    let gave_up = match trap {
        Some(trap) => format!("`{}` always faults: the program put it there to give up", written(&trap)),
        None if is_panic(crashed) => "no exception came: the kernel gave up by itself".to_owned(),
        None => {
            let why = "no value made it crash: say with --of what is to be explained";
            return Err(Failure::new(Code::Usage, why));
        }
    };
    let head = [format!("it crashed at {}", place(program, at)), gave_up];
    match history.decision(&|at| only_carries_out(program, at)) {
        Some(decision) => Ok(of_decision(program, decision, head)),
        None => Err(unreached(crashed, &head, input)),
    }
}

fn of_decision(program: &Program, decision: Decision, head: [String; 2]) -> Question<Moment> {
    let way = way(decision.is_taken);
    let (branch, at) = (written(&decision.branch), place(program, decision.branch.ip()));
    let mut words = Vec::from(head);
    words.push(format!("the last decision before it: `{branch}` at {at}, {way}"));
    let values = Values::of(&decision.bytes, &decision.values);
    words.extend(decision.comparison.map(|it| format!("decided by `{}`: {values}", written(&it))));
    Question { at: decision.at, place: decision.place, bytes: decision.bytes, words }
}

/// What is said where the suffix begins behind the decision.
fn unreached(crashed: &Crashed, head: &[String; 2], input: &Path) -> Failure {
    let (program, at) = (&crashed.program, crashed.core.state.regs.rip);
    let stands = [at];
    let calls = if crashed.calls.is_empty() { &stands[..] } else { &crashed.calls[..] };
    let deciding = calls.iter().filter(|&&at| !only_carries_out(program, at));
    let guards = deciding.map(|&at| program.guards(at)).find(|guards| !guards.is_empty()).unwrap_or_default();
    let head = head.join("; ");
    let why = "the suffix begins behind what was decided before it";
    if guards.is_empty() || guards.len() > MOST_GUARDS {
        return Failure::new(Code::Usage, format!("{head}; {why}: say with --of what is to be explained"));
    }
    let named: Vec<String> = guards.iter().map(|guard| named(program, guard)).collect();
    let mut words = format!("{head}; {why}, which is {} by the code", named.join(", or "));
    if input.is_dir() {
        let breaks: Vec<String> =
            guards.iter().map(|guard| format!(" -ex 'break *{:#x}'", guard.branch.ip())).collect();
        let (dir, breaks) = (shell::word(input), breaks.concat());
        words += &format!(
            "\nnext: gretel gdb {dir} --at end --{breaks} -ex reverse-continue -ex 'info registers'"
        );
    }
    Failure::new(Code::Usage, words)
}

fn named(program: &Program, guard: &Guard) -> String {
    let at = place(program, guard.branch.ip());
    let behind = guard.comparison.map(|it| format!(" behind `{}`", written(&it))).unwrap_or_default();
    format!("`{}` at {at}, {}{behind}", written(&guard.branch), way(guard.is_taken))
}

fn way(is_taken: bool) -> &'static str {
    if is_taken { "taken" } else { "not taken" }
}

fn place(program: &Program, at: u64) -> String {
    program.place(at).map_or_else(|| format!("{at:#x}"), |it| it.to_string())
}

/// Whether the function around `at` does what was decided where it was called.
fn only_carries_out(program: &Program, at: u64) -> bool {
    let function = program.function_at(at);
    program.only_gives_up(at) || function.is_some_and(|it| REPORTING.contains(&it.name.as_str()))
}

/// Whether a kernel stands where it begins to panic, and nothing was raised.
fn is_panic(crashed: &Crashed) -> bool {
    let is_quiet = crashed.core.machine.as_ref().is_some_and(|machine| machine.raised.is_none());
    let function = crashed.program.function_at(crashed.core.state.regs.rip);
    is_quiet && function.is_some_and(|it| it.name == "panic")
}
