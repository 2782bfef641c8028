//! How far the stack pointer and the frame pointer are from where they were at a function's entry, instruction by
//! instruction.
//!
//! An epilogue that takes the stack pointer from the frame pointer (LEAVE) forgets how deep the stack was; the code
//! between the entry and there still says it. Followed forward from the entry: what pushes, pops and constants do is
//! counted, a call returns with the stack as it was, and what differs between two ways to an instruction, or comes from
//! anywhere else (alloca, an aligned stack), is unknown.

use super::Program;
use super::code::direct_target;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// Distances in bytes from the stack pointer at the function's entry; `None` where they are not the same on every way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Of the stack pointer.
    pub stack: Option<i64>,
    /// Of the frame pointer.
    pub frame: Option<i64>,
}

/// The depths before each instruction of a function.
type Depths = FxHashMap<u64, Depth>;

/// The depths of a program's functions, each found when it is first asked for.
pub struct Stack<'p> {
    program: &'p Program,
    functions: RefCell<FxHashMap<u64, Rc<Depths>>>,
}

impl<'p> Stack<'p> {
    /// Those of this program.
    #[must_use]
    pub fn new(program: &'p Program) -> Stack<'p> {
        Stack { program, functions: RefCell::default() }
    }

    /// If the instruction at `va` takes the stack pointer from the frame pointer: how far the stack pointer is above
    /// the frame pointer (below: negative) before it.
    #[must_use]
    pub fn above_frame_at_epilogue(&self, va: u64) -> Option<i64> {
        let i = self.program.instruction_at(va)?;
        let moves = i.op_count() > 1
            && i.op0_register() == Register::RSP
            && (i.op1_register() == Register::RBP || i.memory_base() == Register::RBP);
        if i.mnemonic() == Mnemonic::Leave || moves { self.above_frame(va) } else { None }
    }

    fn above_frame(&self, va: u64) -> Option<i64> {
        let function = self.program.function_at(va)?;
        let known = self.functions.borrow().get(&function.start).cloned();
        let depths = known.unwrap_or_else(|| {
            let found = Rc::new(self.follow(function.start, function.end));
            self.functions.borrow_mut().insert(function.start, Rc::clone(&found));
            found
        });
        let depth = depths.get(&va)?;
        Some(depth.stack? - depth.frame?)
    }

    fn follow(&self, start: u64, end: u64) -> Depths {
        let mut depths = Depths::default();
        let mut work = vec![(start, Depth { stack: Some(0), frame: None })];
        while let Some((va, depth)) = work.pop() {
            let Some(instruction) = self.program.instruction_at(va).filter(|_| (start..end).contains(&va))
            else {
                continue;
            };
            let merged = match depths.get(&va) {
                Some(&known) if known.meet(depth) == known => continue,
                Some(known) => known.meet(depth),
                None => depth,
            };
            depths.insert(va, merged);
            let after = merged.after(&instruction);
            let flow = instruction.flow_control();
            if !matches!(
                flow,
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            ) {
                work.push((instruction.next_ip(), after));
            }
            if !instruction.is_call_near() {
                work.extend(direct_target(&instruction).map(|target| (target, after)));
            }
        }
        depths
    }
}

impl Depth {
    fn meet(self, other: Depth) -> Depth {
        let same = |a: Option<i64>, b: Option<i64>| a.filter(|_| a == b);
        Depth { stack: same(self.stack, other.stack), frame: same(self.frame, other.frame) }
    }

    /// The depths after `i`, where it goes on.
    fn after(self, i: &Instruction) -> Depth {
        let Depth { stack, frame } = self;
        let moved = |from: Option<i64>, by: i64| from.map(|depth| depth + by);
        let displacement = i.memory_displacement64().cast_signed();
        match (i.mnemonic(), i.op0_register(), i.op1_register()) {
            (Mnemonic::Leave, ..) => Depth { stack: moved(frame, 8), frame: None },
            (Mnemonic::Mov, Register::RBP, Register::RSP) => Depth { stack, frame: stack },
            (Mnemonic::Mov, Register::RSP, Register::RBP) => Depth { stack: frame, frame },
            (Mnemonic::Lea, to @ (Register::RSP | Register::RBP), _)
                if i.memory_index() == Register::None =>
            {
                let from = match i.memory_base() {
                    Register::RSP => stack,
                    Register::RBP => frame,
                    _ => None,
                };
                let to_stack = to == Register::RSP;
                let found = moved(from, displacement);
                if to_stack { Depth { stack: found, frame } } else { Depth { stack, frame: found } }
            }
            (Mnemonic::Add | Mnemonic::Sub, Register::RSP, _) => {
                let by = i.try_immediate(1).ok().map(u64::cast_signed);
                let by = if i.mnemonic() == Mnemonic::Sub { by.map(i64::wrapping_neg) } else { by };
                Depth { stack: stack.zip(by).map(|(depth, by)| depth + by), frame }
            }
            _ => {
                let by = if i.is_call_near() || i.is_call_near_indirect() {
                    0
                } else {
                    i.stack_pointer_increment()
                };
                let stack = if writes(i, Register::RSP) { None } else { moved(stack, i64::from(by)) };
                Depth { stack, frame: if writes(i, Register::RBP) { None } else { frame } }
            }
        }
    }
}

/// Whether an explicit operand that the instruction writes is `register`, or a part of it.
fn writes(i: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(i);
    let written = |n| {
        matches!(
            info.op_access(n),
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        )
    };
    let is_register = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).full_register() == register;
    i.mnemonic() == Mnemonic::Enter || (0..i.op_count()).any(|n| is_register(n) && written(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, rax, rbp, rbx, rsp};

    /// Distances of the stack pointer from the frame pointer before each instruction of straight-line code.
    fn distances(a: &mut CodeAssembler) -> Vec<Option<i64>> {
        let mut depth = Depth { stack: Some(0), frame: None };
        let distances = a.instructions().iter().map(|i| {
            let distance = depth.stack.zip(depth.frame).map(|(stack, frame)| stack - frame);
            depth = depth.after(i);
            distance
        });
        distances.collect()
    }

    #[test]
    fn an_epilogue_is_as_deep_as_the_prologue_made_the_stack() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.push(rbx)?;
        a.sub(rsp, 0x28)?;
        a.mov(eax, dword_ptr(rbp - 4))?;
        a.call(0x1000)?;
        a.lea(rsp, rbp - 8)?;
        a.pop(rbx)?;
        a.leave()?;
        a.ret()?;
        let deep = Some(-0x30);
        assert_eq!(
            distances(&mut a),
            [None, None, Some(0), Some(-8), deep, deep, deep, Some(-8), Some(0), None]
        );
        Ok(())
    }

    #[test]
    fn an_unknown_amount_of_stack_is_unknown() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.sub(rsp, rax)?;
        a.nop()?;
        a.mov(rsp, rbp)?;
        a.pop(rbp)?;
        assert_eq!(distances(&mut a), [None, None, Some(0), None, None, Some(0)]);
        Ok(())
    }
}
