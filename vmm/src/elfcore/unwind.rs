//! Who called whom: the stack of a core, or of a process that stands in its recording, by the unwind tables of its executable and
//! libraries ([`super::unwind_tables`]).
//!
//! Where the tables say nothing (hand-written assembly, a jump to nowhere), two guesses are allowed, each marked in
//! the frame: the word on top of the stack when the program stands outside all code (a call through a bad pointer
//! pushed it just now), and the frame-pointer chain. When neither holds, the backtrace says why it stops.
//!
//! It goes on through signal handlers: what a signal interrupted stands at an instruction, not behind a call, and the stack
//! that it was on may be another one.

use super::expression::Said;
pub use super::unwind_tables::Tables;
use super::{Core, Module, signal_frame};
use crate::process::Process;
use gimli::{CfaRule, Register, RegisterRule, UnwindExpression, UnwindTableRow, X86_64};
use x86::state::Regs;

/// The memory that a stack is walked in.
pub trait Walked {
    /// Reads memory, whatever its rights are; false where a byte is not known.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;

    /// Whether what is there may be executed.
    fn is_code(&self, address: u64) -> bool;

    /// The 64-bit word there.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_le_bytes(bytes))
    }
}

impl Walked for Core {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        Core::read(self, address, bytes)
    }

    fn is_code(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|segment| segment.rights.execute)
    }
}

impl Walked for Process {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.read_memory(address, bytes)
    }

    fn is_code(&self, address: u64) -> bool {
        self.space().mappings().find(address).is_some_and(|(_, mapping)| mapping.rights.execute)
    }
}

/// A stack deeper than this is shown in part.
const MAX_FRAMES: usize = 256;

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundBy {
    /// It is where the program stands.
    Registers,
    /// The unwind tables say so.
    Tables,
    /// A signal interrupted it: the frame that the kernel built for the handler has its registers.
    Signal,
    /// A guess: the word that a call through a bad pointer has just pushed.
    TopOfStack,
    /// A guess: the chain of saved rbp.
    FramePointer,
}

/// One frame, the innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Where it stands: for all but the innermost, the return address.
    pub rip: u64,
    /// Its stack pointer.
    pub rsp: u64,
    /// How it was found.
    pub by: FoundBy,
    /// Its registers by DWARF number (System V ABI for x86-64, figure 3.36), where they are known; number 16 is `rip`.
    pub registers: [Option<u64>; 17],
}

impl Frame {
    /// Where a program stands.
    fn innermost(regs: &Regs) -> Frame {
        let registers = Registers::of(regs);
        Frame { rip: regs.rip, rsp: registers.rsp(), by: FoundBy::Registers, registers: registers.0 }
    }

    /// An address inside the instruction that the frame is executing: return addresses point behind their call,
    /// which may be the next function.
    #[must_use]
    pub fn lookup_address(&self) -> u64 {
        match self.by {
            FoundBy::Registers | FoundBy::Signal => self.rip,
            FoundBy::Tables | FoundBy::TopOfStack | FoundBy::FramePointer => self.rip.wrapping_sub(1),
        }
    }
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backtrace {
    /// The frames, the innermost first; never empty.
    pub frames: Vec<Frame>,
    /// Why it stops, if not at the program's outermost frame.
    pub stopped: Option<String>,
}

/// What an expression of a table says, if that is known; the second is on its stack.
pub(super) type Evaluate<'a> = &'a dyn Fn(UnwindExpression<usize>, Option<u64>) -> Option<Said>;

/// Registers by DWARF number (System V ABI for x86-64, figure 3.36); number 16 is the return address.
#[derive(Clone, Copy)]
pub(super) struct Registers(pub(super) [Option<u64>; 17]);

/// Hardware numbers of DWARF registers 0 to 7: rax rdx rcx rbx rsi rdi rbp rsp.
const HARDWARE: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];

impl Registers {
    fn of(regs: &Regs) -> Registers {
        let mut all = [None; 17];
        for (n, slot) in all.iter_mut().enumerate().take(16) {
            *slot = Some(regs.gpr[HARDWARE.get(n).copied().unwrap_or(n)]);
        }
        all[16] = Some(regs.rip);
        Registers(all)
    }

    /// One of them, if it is known.
    pub(super) fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied().flatten()
    }

    fn rsp(&self) -> u64 {
        self.get(X86_64::RSP).unwrap_or(0)
    }

    /// The caller's registers by a row of the tables.
    pub(super) fn unwind(
        &self,
        row: &UnwindTableRow<usize>,
        memory: &dyn Walked,
        evaluate: Evaluate<'_>,
    ) -> Result<Registers, String> {
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let base =
                    self.get(*register).ok_or("a register that the unwind table needs is not known")?;
                base.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => evaluate(*expression, None)
                .ok_or("the unwind table has an expression that needs what is not known")?
                .number(),
        };
        let mut caller = *self;
        for (n, slot) in (0_u16..).zip(caller.0.iter_mut()) {
            let saved = |offset: i64| memory.word(cfa.wrapping_add_signed(offset));
            *slot = match row.register(Register(n)) {
                Some(RegisterRule::Offset(offset)) => saved(offset),
                Some(RegisterRule::ValOffset(offset)) => Some(cfa.wrapping_add_signed(offset)),
                Some(RegisterRule::Register(other)) => self.get(other),
                Some(RegisterRule::SameValue) => *slot,
                Some(RegisterRule::Expression(expression)) => match evaluate(expression, Some(cfa)) {
                    Some(Said::Address(address)) => memory.word(address),
                    Some(Said::Value(value)) => Some(value),
                    None => None,
                },
                Some(RegisterRule::ValExpression(expression)) => {
                    evaluate(expression, Some(cfa)).map(Said::number)
                }
                // Callee-saved registers that no rule names keep their value; the others are the callee's.
                None if matches!(n, 3 | 6 | 12..=15) => *slot,
                _ => None,
            };
        }
        // A signal frame says where the stack pointer was; elsewhere it is what the rules are relative to.
        let own = row.register(X86_64::RSP);
        if !matches!(own, Some(RegisterRule::Expression(_) | RegisterRule::ValExpression(_))) {
            caller.0[usize::from(X86_64::RSP.0)] = Some(cfa);
        }
        Ok(caller)
    }
}

/// Walks the stack of `core` with the unwind tables of its executable and libraries; as many frames as people read.
#[must_use]
pub fn backtrace(core: &Core, modules: &[Module<'_>]) -> Backtrace {
    backtrace_of(core, modules, MAX_FRAMES)
}

/// The same, at most so many frames.
#[must_use]
pub fn backtrace_of(core: &Core, modules: &[Module<'_>], most: usize) -> Backtrace {
    let regs = &core.state.regs;
    let mut tables = Vec::new();
    for module in modules {
        match Tables::of(module.bytes, module.bias) {
            Ok(found) => tables.push(found),
            Err(error) => {
                let why = format!("the executable or a library cannot be read: {error}");
                return Backtrace { frames: vec![Frame::innermost(regs)], stopped: Some(why) };
            }
        }
    }
    walk(core, regs, &tables.iter().collect::<Vec<_>>(), most)
}

/// Walks a stack from these registers on, with the unwind tables of the files that are mapped; at most so many frames.
#[must_use]
pub fn walk(memory: &dyn Walked, regs: &Regs, tables: &[&Tables], most: usize) -> Backtrace {
    let mut registers = Registers::of(regs);
    let mut frames = vec![Frame::innermost(regs)];
    let stop = |frames, why: &str| Backtrace { frames, stopped: Some(why.to_owned()) };
    while let Some(frame) = frames.last().copied() {
        if frames.len() >= most {
            return stop(frames, "there are more frames than are shown");
        }
        let (caller, by) = match next(memory, tables, &frame, &registers) {
            Ok(found) => found,
            Err(why) => return stop(frames, &why),
        };
        // A signal may have come anywhere: where a jump through a bad pointer led, and while another stack was in use.
        let is_interrupted = by == FoundBy::Signal;
        // The outermost frame has no return address: its rule is "undefined", or the word is zero.
        let Some(rip) = caller.get(X86_64::RA).filter(|rip| *rip != 0 || is_interrupted) else { break };
        if caller.rsp() <= frame.rsp && !is_interrupted {
            return stop(
                frames,
                &format!("the stack does not grow towards its beginning at {:#x}", frame.rsp),
            );
        }
        if !memory.is_code(rip) && !is_interrupted {
            return stop(
                frames,
                &format!("the return address {rip:#x} is not in code: the stack is overwritten"),
            );
        }
        registers = caller;
        frames.push(Frame { rip, rsp: caller.rsp(), by, registers: caller.0 });
    }
    Backtrace { frames, stopped: None }
}

/// The caller of a frame, and how it was found.
fn next(
    memory: &dyn Walked,
    tables: &[&Tables],
    frame: &Frame,
    registers: &Registers,
) -> Result<(Registers, FoundBy), String> {
    if !memory.is_code(frame.rip) {
        return guess(memory, registers.rsp(), registers, FoundBy::TopOfStack).ok_or_else(|| {
            format!("{:#x} is not code, and no return address is on top of the stack", frame.rip)
        });
    }
    let mut callers = tables.iter().map(|tables| tables.caller(memory, frame.lookup_address(), registers));
    let by_tables = callers.find_map(|caller| caller);
    let is_signal = matches!(by_tables, Some(Ok((_, FoundBy::Signal))));
    if !is_signal && signal_frame::is_restorer(memory, frame.rip) {
        let interrupted = signal_frame::interrupted(memory, frame.rsp);
        return interrupted
            .map(|registers| (registers, FoundBy::Signal))
            .ok_or_else(|| format!("the frame of a signal handler at {:#x} cannot be read", frame.rsp));
    }
    if let Some(result) = by_tables {
        return result;
    }
    // A handler of signals that has not run yet: rbp is still that of what the signal interrupted.
    let is_entered = memory.word(frame.rsp).is_some_and(|to| signal_frame::is_restorer(memory, to));
    if let Some(found) =
        is_entered.then(|| guess(memory, frame.rsp, registers, FoundBy::TopOfStack)).flatten()
    {
        return Ok(found);
    }
    let rbp = registers.get(X86_64::RBP).unwrap_or(0);
    let chained = (rbp >= frame.rsp).then(|| {
        let mut caller = *registers;
        caller.0[usize::from(X86_64::RBP.0)] = memory.word(rbp);
        guess(memory, rbp.wrapping_add(8), &caller, FoundBy::FramePointer)
    });
    chained
        .flatten()
        .ok_or_else(|| format!("no unwind information for {:#x}, and rbp is no frame pointer", frame.rip))
}

/// The caller if the word at `at` is its return address.
fn guess(memory: &dyn Walked, at: u64, registers: &Registers, by: FoundBy) -> Option<(Registers, FoundBy)> {
    let rip = memory.word(at).filter(|rip| memory.is_code(*rip))?;
    let mut caller = *registers;
    caller.0[usize::from(X86_64::RA.0)] = Some(rip);
    caller.0[usize::from(X86_64::RSP.0)] = Some(at.wrapping_add(8));
    Some((caller, by))
}
