//! Steps forward, by lines and instructions.
//!
//! A step over a line looks out for the first instruction of each other statement of the function, and for the return address, and asks
//! at each hit whether the frame is the one that it began in: recursion and other threads come to the same addresses. So it costs what
//! the program runs, and one look for each hit. Statements of the callers are looked out for too, since `longjmp` and exceptions
//! return there.
//!
//! A step into a call looks out for the calls of the line as well; what they call without lines of its own is run to its return. The
//! dynamic linker, which binds some calls when they are first made, is run to the function that it finds.

use super::debuggee::{Debuggee, Reason};
use super::run::Came;
use crate::sight::Known;
use crate::values::{Line, Lines};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::ops::Range;
use std::rc::Rc;
use vmm::elfcore::unwind::FoundBy;
use vmm::process::Process;
use vmm::replay::ReplayError;
use vmm::travel::Stop;

/// Callers whose statements are looked out for.
const MOST_CALLERS: usize = 16;
/// A stub of a dynamic call is no longer.
const LONGEST_STUB: usize = 12;
/// No instruction is longer.
pub(super) const LONGEST_INSTRUCTION: usize = 15;

/// A frame of a thread, as a step needs it.
pub(super) struct Standing {
    pub(super) thread: i32,
    pub(super) rip: u64,
    pub(super) rsp: u64,
    /// What tells the frame from others of its function.
    pub(super) cfa: Option<u64>,
    /// Where it returns to.
    pub(super) returns_to: Option<u64>,
    /// Of the handler of a signal: the instruction that was interrupted, and the stack pointer there.
    pub(super) interrupted: Option<(u64, u64)>,
    /// The function, if it has lines.
    pub(super) lines: Option<Rc<Lines>>,
    /// Where its callers stand.
    callers: Vec<u64>,
}

impl Standing {
    /// The innermost frame of a thread.
    pub(super) fn of(known: &Known, process: &Process, thread: i32) -> Option<Standing> {
        let stack = known.symbols.walk(process, thread, MOST_CALLERS)?;
        let first = stack.frames.first()?;
        Some(Standing {
            thread,
            rip: first.rip,
            rsp: first.rsp,
            cfa: known.cfa(process, thread),
            returns_to: stack.frames.get(1).map(|caller| caller.rip),
            // Between them is the code that the handler returns to.
            interrupted: stack
                .frames
                .iter()
                .take(3)
                .find(|it| it.by == FoundBy::Signal)
                .map(|it| (it.rip, it.rsp)),
            lines: known.lines(first.rip),
            callers: stack.frames.iter().skip(1).map(vmm::elfcore::unwind::Frame::lookup_address).collect(),
        })
    }

    /// The line, and the inlined functions that it is in.
    pub(super) fn place(&self) -> Option<(Option<Line>, Vec<usize>)> {
        let lines = self.lines.as_ref()?;
        Some((lines.line(self.rip), lines.inlined(self.rip)))
    }

    /// Whether a hit is in this frame.
    pub(super) fn is_it(&self, process: &Process, known: &Known) -> bool {
        process.thread() == self.thread && known.cfa(process, self.thread) == self.cfa
    }

    /// Whether it is where this frame's thread has just returned from it to.
    fn has_returned(&self, process: &Process, at: u64) -> bool {
        Some(at) == self.returns_to
            && process.thread() == self.thread
            && Some(process.cpu().regs().gpr[4]) == self.cfa
    }
}

/// What ends a step by lines, beside the return.
struct Ends {
    /// In the frame itself.
    own: Vec<u64>,
    /// In its callers.
    outer: Vec<u64>,
}

impl Debuggee {
    fn standing(&self, thread: i32) -> Result<Standing, String> {
        let standing = Standing::of(&self.known, self.travel.process(), thread);
        standing.ok_or_else(|| format!("there is no thread {thread} at this position of the recording"))
    }

    /// `next`, or, where it goes `into` functions, `stepIn`.
    pub(super) fn step_line(
        &mut self,
        thread: i32,
        into: bool,
    ) -> Result<Result<Reason, ReplayError>, String> {
        let frame = self.standing(thread)?;
        let Some((line, inlined)) = frame.place() else {
            // A function without lines is run to its end, as gdb does, if it has one.
            return match frame.returns_to {
                Some(_) => self.step_out(thread),
                None => self.step_into_source(thread),
            };
        };
        let mut ends = self.ends(&frame, |statement_line, chain| {
            // What is inlined deeper, or beside, is a call.
            (into || inlined.starts_with(chain)) && (Some(statement_line), chain) != (line, &*inlined)
        });
        let calls = if into { self.calls(&frame, line, &inlined) } else { Vec::new() };
        // What is reached by falling into it from this line is reached without a call, whatever it is.
        ends.own.retain(|address| !calls.contains(address));
        Ok(self.run_to_an_end(&frame, &ends, &calls))
    }

    /// Runs to an end of a step, through calls that lead to no lines.
    fn run_to_an_end(&mut self, frame: &Standing, ends: &Ends, calls: &[u64]) -> Result<Reason, ReplayError> {
        let mut places = [&ends.own[..], &ends.outer, calls].concat();
        places.extend(frame.returns_to);
        loop {
            let rip = self.travel.process().cpu().regs().rip;
            let at_call = calls.contains(&rip) && frame.is_it(self.travel.process(), &self.known);
            if !at_call {
                let came = self.forward_to(&places, &|process, known, at| {
                    ends_here(frame, ends, calls, process, known, at)
                })?;
                if let Came::Elsewhere(reason) = came {
                    return Ok(reason);
                }
                let rip = self.travel.process().cpu().regs().rip;
                if !calls.contains(&rip) {
                    return Ok(Reason::Step);
                }
            }
            if let Some(reason) = self.enter_call(frame)? {
                return Ok(reason);
            }
            let rip = self.travel.process().cpu().regs().rip;
            if ends.own.contains(&rip) && frame.is_it(self.travel.process(), &self.known) {
                return Ok(Reason::Step);
            }
        }
    }

    /// Goes into the call where the program stands. `None`, and behind it, where that leads to no lines.
    fn enter_call(&mut self, frame: &Standing) -> Result<Option<Reason>, ReplayError> {
        let caller_rsp = self.travel.process().cpu().regs().gpr[4];
        for _ in 0..LONGEST_STUB {
            if let Some(reason) = self.past_resolver(frame.thread)? {
                return Ok(Some(reason));
            }
            match self.run_instruction()? {
                Reason::Step => {}
                reason => return Ok(Some(reason)),
            }
            let rip = self.travel.process().cpu().regs().rip;
            if frame.lines.as_ref().is_some_and(|lines| lines.ranges.iter().any(|range| range.contains(&rip)))
                && self.travel.process().cpu().regs().gpr[4] >= caller_rsp
            {
                // It was a jump within the function.
                return Ok(None);
            }
            if self.resolver(rip).is_some() {
                continue;
            }
            if let Some(lines) = self.known.lines(rip) {
                return self.enter_body(frame.thread, &lines).map(Some);
            }
            let at = Stop::Breakpoint(rip);
            let hit = self.breakpoints.hit(
                &self.known,
                self.travel.process(),
                at,
                super::breakpoints::Way::Forward,
            );
            if let Some(hit) = hit {
                return Ok(Some(Reason::Hit(hit)));
            }
            if !is_stub(self.travel.process(), rip) {
                break;
            }
        }
        let process = self.travel.process();
        if process.cpu().regs().gpr[4] >= caller_rsp {
            // A jump to what returns in place of this function.
            return Ok(None);
        }
        let mut word = [0; 8];
        process.read_memory(caller_rsp.wrapping_sub(8), &mut word);
        let (back, thread) = (u64::from_le_bytes(word), frame.thread);
        let returned = |process: &Process, _: &Known, _: u64| {
            process.thread() == thread && process.cpu().regs().gpr[4] == caller_rsp
        };
        Ok(match self.forward_to(&[back], &returned)? {
            Came::There => None,
            Came::Elsewhere(reason) => Some(reason),
        })
    }

    /// The code of the dynamic linker that an address is in, if that looks up a function which is called for the first time, and then
    /// jumps to it.
    fn resolver(&self, address: u64) -> Option<Range<u64>> {
        let function = self.known.symbols.module_at(address)?.names().function_at(address)?;
        function.name.starts_with("_dl_runtime_resolve").then_some(function.start..function.end)
    }

    /// Where the program stands in the dynamic linker's look-up, runs it to the jump to what it found.
    fn past_resolver(&mut self, thread: i32) -> Result<Option<Reason>, ReplayError> {
        let Some(code) = self.resolver(self.travel.process().cpu().regs().rip) else { return Ok(None) };
        let jumps = calls_in(self.travel.process(), &code, &[]).into_iter().filter(|at| {
            decoded(self.travel.process(), *at)
                .is_some_and(|it| it.flow_control() == FlowControl::IndirectBranch)
        });
        let jumps: Vec<u64> = jumps.collect();
        Ok(match self.forward_to(&jumps, &|process, _, _| process.thread() == thread)? {
            Came::There => None,
            Came::Elsewhere(reason) => Some(reason),
        })
    }

    /// From a function's first instruction to where its parameters can be read.
    pub(super) fn enter_body(&mut self, thread: i32, lines: &Lines) -> Result<Reason, ReplayError> {
        let process = self.travel.process();
        if process.cpu().regs().rip == lines.body {
            return Ok(Reason::Step);
        }
        let cfa = self.known.cfa(process, thread);
        let is_it = |process: &Process, known: &Known, _: u64| {
            process.thread() == thread && known.cfa(process, thread) == cfa
        };
        Ok(match self.forward_to(&[lines.body], &is_it)? {
            Came::There => Reason::Step,
            Came::Elsewhere(reason) => reason,
        })
    }

    /// `stepOut`: to the caller; of an inlined function, to what is around it.
    pub(super) fn step_out(&mut self, thread: i32) -> Result<Result<Reason, ReplayError>, String> {
        let frame = self.standing(thread)?;
        let inlined = frame.place().map(|(_, inlined)| inlined).unwrap_or_default();
        if frame.returns_to.is_none() && inlined.is_empty() {
            return Err("this is the outermost function, which returns to nobody".to_owned());
        }
        let ends = self.ends(&frame, |_, chain| chain.len() < inlined.len() && inlined.starts_with(chain));
        Ok(self.run_to_an_end(&frame, &ends, &[]))
    }

    /// The statements of a frame's function that are an end, and all of its callers'.
    fn ends(&self, frame: &Standing, is_end: impl Fn(Line, &[usize]) -> bool) -> Ends {
        let own = frame.lines.as_ref().map_or(&[][..], |lines| &lines.statements);
        let own = own.iter().filter(|it| is_end(it.line, &it.inlined)).map(|it| it.address).collect();
        let mut outer: Vec<u64> = Vec::new();
        for lines in frame.callers.iter().filter_map(|caller| self.known.lines(*caller)) {
            outer.extend(lines.statements.iter().map(|it| it.address));
        }
        outer.sort_unstable();
        outer.dedup();
        Ends { own, outer }
    }

    /// The instructions of a line that may lead to another function.
    fn calls(&self, frame: &Standing, line: Option<Line>, inlined: &[usize]) -> Vec<u64> {
        let (Some(lines), Some(line)) = (&frame.lines, line) else { return Vec::new() };
        let process = self.travel.process();
        let code = lines.code(line, inlined);
        code.iter().flat_map(|range| calls_in(process, range, &lines.ranges)).collect()
    }

    /// `next` and `stepIn` by one instruction; `over` a call with what it calls.
    pub(super) fn step_instruction(
        &mut self,
        thread: i32,
        over: bool,
    ) -> Result<Result<Reason, ReplayError>, String> {
        let frame = self.standing(thread)?;
        Ok(self.one_instruction(&frame, over))
    }

    fn one_instruction(&mut self, frame: &Standing, over: bool) -> Result<Reason, ReplayError> {
        let (rip, rsp, thread) = (frame.rip, frame.rsp, frame.thread);
        let stands =
            |process: &Process, rsp: u64| process.thread() == thread && process.cpu().regs().gpr[4] == rsp;
        if self.loaded() != thread
            && let Came::Elsewhere(reason) = self.forward_to(&[rip], &|process, _, _| stands(process, rsp))?
        {
            return Ok(reason);
        }
        let instruction = decoded(self.travel.process(), rip);
        let is_call = instruction.is_some_and(|it| {
            matches!(it.flow_control(), FlowControl::Call | FlowControl::IndirectCall) && !it.is_invalid()
        });
        if let Some(behind) = instruction.filter(|_| over && is_call).map(|it| it.next_ip()) {
            return Ok(match self.forward_to(&[behind], &|process, _, _| stands(process, rsp))? {
                Came::There => Reason::Step,
                Came::Elsewhere(reason) => reason,
            });
        }
        self.run_instruction()
    }
}

/// Whether a hit ends a step.
fn ends_here(
    frame: &Standing,
    ends: &Ends,
    calls: &[u64],
    process: &Process,
    known: &Known,
    at: u64,
) -> bool {
    if process.thread() != frame.thread {
        return false;
    }
    if frame.has_returned(process, at) {
        return true;
    }
    let cfa = known.cfa(process, frame.thread);
    if cfa == frame.cfa {
        return ends.own.contains(&at) || calls.contains(&at);
    }
    // The frame is gone: something returned past its caller.
    cfa > frame.cfa && ends.outer.contains(&at)
}

/// The instruction at an address, if there is one.
pub(super) fn decoded(process: &Process, address: u64) -> Option<Instruction> {
    let mut bytes = [0; LONGEST_INSTRUCTION];
    // At the end of what is mapped, as many as there are.
    let there = (1..=bytes.len()).rev().find(|len| process.read_memory(address, &mut bytes[..*len]))?;
    let instruction = Decoder::with_ip(64, &bytes[..there], address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// The instructions in a range that may leave a function which is in `function`.
fn calls_in(process: &Process, range: &Range<u64>, function: &[Range<u64>]) -> Vec<u64> {
    let mut code = vec![0; usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)];
    if !process.read_memory(range.start, &mut code) {
        return Vec::new();
    }
    let inside = |address: u64| function.iter().any(|range| range.contains(&address));
    let leaves = |it: &Instruction| match it.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall | FlowControl::IndirectBranch => !it.is_invalid(),
        FlowControl::UnconditionalBranch => !inside(it.near_branch_target()),
        _ => false,
    };
    Decoder::with_ip(64, &code, range.start, DecoderOptions::NONE)
        .iter()
        .filter(leaves)
        .map(|it| it.ip())
        .collect()
}

/// Whether an instruction may belong to a stub of a dynamic call: it marks the target of a branch, jumps on, or says to the dynamic linker
/// which function is called.
fn is_stub(process: &Process, address: u64) -> bool {
    decoded(process, address).is_some_and(|it| {
        matches!(it.mnemonic(), iced_x86::Mnemonic::Endbr64 | iced_x86::Mnemonic::Push)
            || matches!(it.flow_control(), FlowControl::IndirectBranch | FlowControl::UnconditionalBranch)
    })
}
