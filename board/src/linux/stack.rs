//! The kernel's stack: who called whom, by ORC; where that ends, what looks like return addresses.
//!
//! Frames go on over exceptions and interrupts, whose registers the kernel has saved on the stack, up to where a program was. Example:
//! `panic`, `oops_end`, `exc_page_fault`, `asm_exc_page_fault`, then the instruction that faulted, its caller, and so on to
//! `entry_SYSCALL_64_after_hwframe`.

use super::orc::{Base, Entry, Kind, Orc};
use super::space::Space;
use super::symbols::Symbols;
use super::types::Types;
use x86::state::Regs;

/// Frames, at most.
const MOST: usize = 256;
/// The bytes of a stack: what looks like return addresses is looked for up to the next multiple.
const STACK: u64 = 16 << 10;
/// The register of the stack, and that of frames.
const SP: usize = 4;
const BP: usize = 5;

/// How a frame was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The registers of the processor.
    Registers,
    /// The tables of the kernel: a call returns here.
    Tables,
    /// Registers that the kernel has saved: an exception or an interrupt came here.
    Saved,
    /// It is on the stack, and behind a call: it may be left from a call that has returned.
    Likely,
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The instruction, or where a call returns to.
    pub rip: u64,
    /// The stack there.
    pub rsp: u64,
    /// How it was found.
    pub by: By,
}

impl Frame {
    /// An address in the instruction that is meant: of a call, one before it returns.
    #[must_use]
    pub fn lookup(&self) -> u64 {
        match self.by {
            By::Registers | By::Saved => self.rip,
            By::Tables | By::Likely => self.rip.wrapping_sub(1),
        }
    }
}

/// A stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The innermost first.
    pub frames: Vec<Frame>,
    /// Why there are no more, or why these are only likely.
    pub stopped: Option<String>,
}

/// What is known of the registers of a frame.
#[derive(Clone, Copy)]
struct State {
    gpr: [Option<u64>; 16],
    rip: u64,
    by: By,
}

impl State {
    fn frame(&self) -> Frame {
        Frame { rip: self.rip, rsp: self.gpr[SP].unwrap_or(0), by: self.by }
    }
}

/// How a frame leads on.
enum Caller {
    Frame(Box<State>),
    /// A program, at this instruction.
    Program(u64),
    Nobody,
}

/// The stack where nothing is known of the code.
pub(super) fn without_names(regs: &Regs, why: &str) -> Trace {
    let frame = Frame { rip: regs.rip, rsp: regs.gpr[SP], by: By::Registers };
    Trace { frames: vec![frame], stopped: Some(why.to_owned()) }
}

/// The stack from these registers on.
pub(super) fn trace(
    space: &Space<'_>,
    symbols: &Symbols,
    types: Result<&Types, &String>,
    regs: &Regs,
) -> Trace {
    let mut state = State { gpr: regs.gpr.map(Some), rip: regs.rip, by: By::Registers };
    let mut trace = Trace { frames: vec![state.frame()], stopped: None };
    // A kernel that has called an address of programs still has a stack of its own.
    if is_low(regs.rip) && is_low(regs.gpr[SP]) {
        trace.stopped = Some("the processor ran a program, not the kernel".to_owned());
        return trace;
    }
    let orc = types.map_err(Clone::clone).and_then(|types| Orc::of(space, symbols, types));
    let why = loop {
        let next = match &orc {
            Err(why) => break why.clone(),
            Ok(_) if trace.frames.len() >= MOST => break format!("{MOST} frames are enough"),
            Ok(orc) => step(space, symbols, orc, &state),
        };
        match next {
            Ok(Caller::Frame(next)) => {
                trace.frames.push(next.frame());
                state = *next;
            }
            Ok(Caller::Program(rip)) => {
                trace.stopped = Some(format!("a program was at {rip:#x}"));
                return trace;
            }
            Ok(Caller::Nobody) => return trace,
            Err(why) => break why,
        }
    };
    trace.stopped = Some(why);
    if trace.frames.len() < MOST {
        let from = state.gpr[SP].unwrap_or(regs.gpr[SP]);
        trace.frames.extend(likely(space, symbols, from).take(MOST - trace.frames.len()));
    }
    trace
}

/// The half of all addresses that programs have.
const fn is_low(address: u64) -> bool {
    address >> 63 == 0
}

/// The caller of a frame.
fn step(space: &Space<'_>, symbols: &Symbols, orc: &Orc<'_, '_>, state: &State) -> Result<Caller, String> {
    let at = state.frame().lookup();
    let entry = match orc.find(at).filter(|_| symbols.is_code(at)) {
        Some(entry) => entry,
        // A call of what is no code has pushed its return address, and come no further.
        None if is_called(space, symbols, state) => {
            Entry { stack: (Base::Register(SP), 8), frame: (Base::Nowhere, 0), kind: Kind::Call }
        }
        None => return Err(format!("the tables of the kernel have nothing of {:#x}", state.rip)),
    };
    if entry.kind == Kind::Outermost {
        return Ok(Caller::Nobody);
    }
    let off = |base: u64, offset: i16| base.wrapping_add_signed(offset.into());
    let gone = |what: &str| format!("{what} of the frame at {:#x} is not known", state.rip);
    let stack = match entry.stack {
        (Base::Register(n), offset) => state.gpr[n].map(|base| off(base, offset)),
        (Base::AtFrame, offset) => state.gpr[BP].and_then(|base| space.long(off(base, offset))),
        (Base::AtStack, offset) => state.gpr[SP].and_then(|at| space.long(at)).map(|base| off(base, offset)),
        (Base::Nowhere | Base::Caller, _) => None,
    };
    let stack = stack.ok_or_else(|| gone("the stack"))?;
    let mut caller = match entry.kind {
        Kind::Call => called(space, state, stack),
        Kind::Registers => saved(space, stack),
        Kind::Processor => interrupted(space, state, stack),
        Kind::Unknown | Kind::Outermost => None,
    };
    if let Some(Caller::Frame(caller)) = &mut caller {
        caller.gpr[BP] = match entry.frame {
            (Base::Caller, offset) => space.long(off(stack, offset)),
            (Base::Register(BP), offset) => state.gpr[BP].and_then(|base| space.long(off(base, offset))),
            _ => caller.gpr[BP],
        };
    }
    caller.ok_or_else(|| gone("the caller"))
}

/// Whether a processor that has just come to what is no code was called there: a return address is at the top of its stack.
fn is_called(space: &Space<'_>, symbols: &Symbols, state: &State) -> bool {
    let is_newest = matches!(state.by, By::Registers | By::Saved) && !symbols.is_code(state.rip);
    let top = state.gpr[SP].and_then(|at| space.long(at)).filter(|_| is_newest);
    top.is_some_and(|rip| is_return(space, symbols, rip))
}

/// It was called: the return address is below the stack of the caller.
fn called(space: &Space<'_>, state: &State, stack: u64) -> Option<Caller> {
    let rip = space.long(stack.wrapping_sub(8))?;
    // Others than these two may have been used for anything since.
    let mut gpr = [None; 16];
    (gpr[SP], gpr[BP]) = (Some(stack), state.gpr[BP]);
    Some(Caller::Frame(Box::new(State { gpr, rip, by: By::Tables })))
}

/// All registers are there, in the order of `struct pt_regs`.
fn saved(space: &Space<'_>, at: u64) -> Option<Caller> {
    /// The numbers of the registers from its beginning on; the next is the number of the system call.
    const ORDER: [usize; 15] = [15, 14, 13, 12, 5, 3, 11, 10, 9, 8, 0, 1, 2, 6, 7];
    const FRAME: u64 = 8 * 16;
    let (rip, rsp) = match frame_of_processor(space, at.wrapping_add(FRAME))? {
        Interrupted::Kernel(rip, rsp) => (rip, rsp),
        Interrupted::Program(rip) => return Some(Caller::Program(rip)),
    };
    let mut gpr = [None; 16];
    for (n, register) in ORDER.into_iter().enumerate() {
        gpr[register] = Some(space.long(at.wrapping_add(8 * n as u64))?);
    }
    gpr[SP] = Some(rsp);
    Some(Caller::Frame(Box::new(State { gpr, rip, by: By::Saved })))
}

/// Only what the processor has stored is there.
fn interrupted(space: &Space<'_>, state: &State, at: u64) -> Option<Caller> {
    let (rip, rsp) = match frame_of_processor(space, at)? {
        Interrupted::Kernel(rip, rsp) => (rip, rsp),
        Interrupted::Program(rip) => return Some(Caller::Program(rip)),
    };
    let mut gpr = state.gpr;
    gpr[SP] = Some(rsp);
    Some(Caller::Frame(Box::new(State { gpr, rip, by: By::Saved })))
}

/// What an exception or an interrupt came to, by the ring of its code: an address tells nothing of that where a kernel has called one of
/// programs.
enum Interrupted {
    /// The kernel, at an instruction and with this stack.
    Kernel(u64, u64),
    /// A program, at this instruction.
    Program(u64),
}

/// rip, CS and rsp in the frame of an exception.
fn frame_of_processor(space: &Space<'_>, at: u64) -> Option<Interrupted> {
    const RING: u64 = 3;
    let [rip, cs, rsp] = [0, 8, 24].map(|offset| space.long(at.wrapping_add(offset)));
    let (rip, cs, rsp) = (rip?, cs?, rsp?);
    Some(if cs & RING == 0 { Interrupted::Kernel(rip, rsp) } else { Interrupted::Program(rip) })
}

/// What looks like return addresses, from an address on to the end of its stack.
fn likely<'s>(space: &'s Space<'_>, symbols: &'s Symbols, from: u64) -> impl Iterator<Item = Frame> + 's {
    let from = from & !7;
    let end = from.saturating_add(1).checked_next_multiple_of(STACK).unwrap_or(from);
    let words = (from..end).step_by(8).map_while(|at| Some((at, space.long(at)?)));
    words.filter(move |(_, rip)| is_return(space, symbols, *rip)).map(|(at, rip)| Frame {
        rip,
        rsp: at.wrapping_add(8),
        by: By::Likely,
    })
}

/// Whether an address looks like one that a call returns to.
fn is_return(space: &Space<'_>, symbols: &Symbols, rip: u64) -> bool {
    symbols.is_code(rip.wrapping_sub(1)) && is_behind_call(space, rip)
}

/// Whether the instruction before an address is a call: near and relative, or by a register or memory.
fn is_behind_call(space: &Space<'_>, rip: u64) -> bool {
    let mut code = [0; 7];
    if space.read(rip.wrapping_sub(7), &mut code).is_none() {
        return false;
    }
    let indirect = |length: usize| code[7 - length] == 0xff && code[8 - length] >> 3 & 7 == 2;
    code[2] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(indirect)
}
