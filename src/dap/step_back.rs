//! Steps back, by lines and instructions.
//!
//! A *beginning* is a statement of a frame that is of another line than the statement before it in the same frame: that is where steps
//! forward stop. A step back goes to the last beginning before. It takes three looks back, however much the functions that were called
//! on the way have run:
//!
//! 1. the last statement before, in this frame: its line is the one to go to;
//! 2. the last statement of another line before that, or the function's first instruction;
//! 3. from there forward, the first statement of the line: its beginning.
//!
//! Checkpoints are kept shortly before where the step begins, what the first look finds, and the goal, so that the other looks and the next
//! steps are short.
//!
//! Where there is no statement before in this frame, the step goes to the caller, to the beginning of the line of the call; from the
//! handler of a signal, to what that interrupted. Breakpoints
//! that were passed on the way are looked for last, between the goal and where the step began: the last of them ends it.

use super::debuggee::{Debuggee, Reason};
use super::step::Standing;
use crate::values::{Line, Lines, Statement};
use std::rc::Rc;
use vmm::position::Position;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::travel::Stop;

/// Who steps back does so again: checkpoints are kept so many instructions before where a step came to. A look back passes all statements
/// behind the nearest; from one that is farther, the next near one is not far.
const KEPT: [u64; 3] = [1 << 20, 1 << 15, 1 << 10];

/// The length of a system call's instruction.
const SYSCALL: u64 = 2;

impl Debuggee {
    /// `stepBack` by lines.
    pub(super) fn step_back_line(&mut self, thread: i32) -> Result<Result<Reason, ReplayError>, String> {
        let frame = Standing::of(&self.known, self.travel.process(), thread)
            .ok_or_else(|| format!("there is no thread {thread} at this position of the recording"))?;
        let from = self.travel.position();
        let first = match self.first() {
            Ok(first) => first,
            Err(error) => return Ok(Err(error)),
        };
        if frame.lines.is_none() && frame.returns_to.is_none() {
            return Err("no line is known here, nor a caller: step back by instructions".to_owned());
        }
        let found = self.keep_near().and_then(|()| self.go_to_beginning(&frame));
        // A window of a flight recorder, and a process that another has started, begin in the midst of functions: they go back to there.
        if matches!(found, Ok(false)) && !self.asked && first == Position::default() {
            return match self.travel.seek(from) {
                Ok(_) => Err("nothing is known that led here: step back by instructions".to_owned()),
                Err(error) => Ok(Err(error)),
            };
        }
        Ok(found.and_then(|found| self.end_back(found, from)))
    }

    /// Ends a step back at its goal, or at a breakpoint that was passed on the way; where somebody asked for a stop, where it began.
    fn end_back(&mut self, found: bool, from: Position) -> Result<Reason, ReplayError> {
        if std::mem::take(&mut self.asked) {
            self.travel.seek(from)?;
            return Ok(Reason::Pause);
        }
        if !found {
            let first = self.first()?;
            self.travel.seek(first)?;
            return Ok(Reason::Begin);
        }
        self.keep_near()?;
        let goal = self.travel.position();
        Ok(self.hit_between(goal, from)?.unwrap_or(Reason::Step))
    }

    fn keep_near(&mut self) -> Result<(), ReplayError> {
        KEPT.iter().try_for_each(|distance| self.travel.keep_before(*distance))
    }

    /// Goes to the last beginning before, in this frame or its caller. False where there is none.
    fn go_to_beginning(&mut self, frame: &Standing) -> Result<bool, ReplayError> {
        let Some(lines) = frame.lines.clone() else { return self.go_to_call(frame) };
        let inlined = lines.inlined(frame.rip);
        let statements: Vec<Statement> =
            lines.statements.iter().filter(|it| inlined.starts_with(&it.inlined)).cloned().collect();
        let here = self.travel.position();
        if frame.rip == lines.entry {
            return self.go_to_call(frame);
        }
        let mut places: Vec<u64> = statements.iter().map(|it| it.address).collect();
        places.push(lines.entry);
        if !self.back_in(frame, &lines, &places)? {
            return Ok(false);
        }
        self.keep_near()?;
        let rip = self.travel.process().cpu().regs().rip;
        let Some(found) = statements.iter().find(|it| it.address == rip) else {
            // The first instruction: nothing of the body ran before in this frame.
            self.travel.seek(here)?;
            return self.go_to_call(frame);
        };
        let (line, inlined) = (found.line, found.inlined.clone());
        self.go_to_beginning_of(frame, &lines, &statements, (line, &inlined))?;
        Ok(true)
    }

    /// From a statement of a line to where the program came to the line.
    fn go_to_beginning_of(
        &mut self,
        frame: &Standing,
        lines: &Rc<Lines>,
        statements: &[Statement],
        of: (Line, &[usize]),
    ) -> Result<(), ReplayError> {
        let here = self.travel.position();
        let is_same = |it: &Statement| (it.line, &*it.inlined) == of;
        let others = statements.iter().filter(|it| !is_same(it)).map(|it| it.address);
        let others: Vec<u64> = others.chain([lines.entry]).collect();
        let same: Vec<u64> = statements.iter().filter(|it| is_same(it)).map(|it| it.address).collect();
        let rip = self.travel.process().cpu().regs().rip;
        // It is the function's first instruction.
        if rip == lines.entry || !self.back_in(frame, lines, &others)? {
            return Ok(());
        }
        let rip = self.travel.process().cpu().regs().rip;
        if rip == lines.entry && same.contains(&rip) {
            return Ok(());
        }
        let is_it = |process: &Process, known: &crate::sight::Known, _: u64| frame.is_it(process, known);
        if !self.forward_within(&same, here, &is_it)? {
            self.travel.seek(here)?;
        }
        Ok(())
    }

    /// Goes back to the last of these places in a frame.
    fn back_in(&mut self, frame: &Standing, lines: &Rc<Lines>, places: &[u64]) -> Result<bool, ReplayError> {
        let entry = lines.entry;
        self.back_to(places, &|process, known, at| {
            if process.thread() != frame.thread {
                return false;
            }
            // At the first instruction, only the return address is on the stack.
            match at == entry {
                true => Some(process.cpu().regs().gpr[4].wrapping_add(8)) == frame.cfa,
                false => frame.is_it(process, known),
            }
        })
    }

    /// Goes to the beginning of the line of the call of a frame, or of what a signal interrupted; if that has no lines, to the call.
    fn go_to_call(&mut self, frame: &Standing) -> Result<bool, ReplayError> {
        if let Some(interrupted) = frame.interrupted {
            return Ok(
                self.back_to_interrupted(frame.thread, interrupted)? && self.go_to_line_of_call(frame)?
            );
        }
        let (Some(returns_to), Some(cfa)) = (frame.returns_to, frame.cfa) else {
            // The outermost function: its first instruction is as far as it goes.
            return match frame.lines.clone() {
                Some(lines) if frame.rip != lines.entry => self.back_in(frame, &lines, &[lines.entry]),
                _ => Ok(false),
            };
        };
        let calls = self.calls_before(returns_to);
        let is_it = |process: &Process, _: &crate::sight::Known, _: u64| {
            process.thread() == frame.thread && process.cpu().regs().gpr[4] == cfa
        };
        Ok(self.back_to(&calls, &is_it)? && self.go_to_line_of_call(frame)?)
    }

    /// Goes to the instruction that a signal interrupted, or to the system call that it interrupted, which the program stands behind.
    fn back_to_interrupted(&mut self, thread: i32, (rip, rsp): (u64, u64)) -> Result<bool, ReplayError> {
        let mut places = vec![rip];
        let before = rip.wrapping_sub(SYSCALL);
        let is_syscall = super::step::decoded(self.travel.process(), before)
            .is_some_and(|it| it.mnemonic() == iced_x86::Mnemonic::Syscall);
        places.extend(is_syscall.then_some(before));
        self.back_to(&places, &|process, _, _| {
            process.thread() == thread && process.cpu().regs().gpr[4] == rsp
        })
    }

    /// Goes from a call, or what a signal interrupted, to the beginning of its line, if it has one.
    fn go_to_line_of_call(&mut self, frame: &Standing) -> Result<bool, ReplayError> {
        self.keep_near()?;
        let caller = Standing::of(&self.known, self.travel.process(), frame.thread);
        let Some((caller, lines)) = caller.and_then(|it| it.lines.clone().map(|lines| (it, lines))) else {
            return Ok(true);
        };
        let Some((line, inlined)) = caller.place().and_then(|(line, inlined)| Some((line?, inlined))) else {
            return Ok(true);
        };
        let statements: Vec<Statement> =
            lines.statements.iter().filter(|it| inlined.starts_with(&it.inlined)).cloned().collect();
        // The call itself may be where its line begins.
        let begins = statements
            .iter()
            .any(|it| it.address == caller.rip && (it.line, &*it.inlined) == (line, &*inlined));
        let same: Vec<u64> = statements
            .iter()
            .filter(|it| (it.line, &*it.inlined) == (line, &*inlined))
            .map(|it| it.address)
            .collect();
        let call = self.travel.position();
        if !begins && !self.back_in(&caller, &lines, &same)? {
            self.travel.seek(call)?;
            return Ok(true);
        }
        self.go_to_beginning_of(&caller, &lines, &statements, (line, &inlined))?;
        Ok(true)
    }

    /// The instructions that may be the call behind which an address is: calls have two to seven bytes, with prefixes more.
    fn calls_before(&self, returns_to: u64) -> Vec<u64> {
        let starts = (2..=super::step::LONGEST_INSTRUCTION as u64).map(|len| returns_to.wrapping_sub(len));
        let is_call = |at: &u64| {
            super::step::decoded(self.travel.process(), *at).is_some_and(|it| {
                use iced_x86::FlowControl;
                matches!(it.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
                    && it.next_ip() == returns_to
            })
        };
        starts.filter(is_call).collect()
    }

    /// `stepBack` by one instruction of the thread that is loaded.
    pub(super) fn step_back_instruction(
        &mut self,
        thread: i32,
    ) -> Result<Result<Reason, ReplayError>, String> {
        if thread != self.loaded() {
            return Err(format!(
                "thread {thread} does not run here: step back in thread {}, or by lines",
                self.loaded()
            ));
        }
        Ok(self.back_instruction())
    }

    fn back_instruction(&mut self) -> Result<Reason, ReplayError> {
        let first = self.first()?;
        if self.travel.position() > first && self.travel.step_back()? != Stop::Begin {
            return Ok(Reason::Step);
        }
        self.travel.seek(first)?;
        Ok(Reason::Begin)
    }
}
