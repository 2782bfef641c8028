//! Rules from the code ahead: how far the stack pointer is from the return address, by going on to the nearest return.
//!
//! For code of which it is not even known where its functions begin (stripped, and without unwind tables). Whatever
//! branches are taken, a function undoes what it did to the stack before it returns; so any way to a return tells, and
//! of several that with the fewest calls on it is taken. Calls that never come back lead nowhere.

use super::code::{Code, is_call, writes};
use super::rule::{Base, Rbp, Rule};
use crate::engine::Virt;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// How many instructions are looked at for one rule, and to see whether a function comes back.
const MOST: usize = 4000;

/// How deep calls are followed to see whether they come back; below that they are taken to.
const DEEPEST: u32 = 8;

/// An address relative to what a register is at the start of the way.
type Sum = (Base, i32);

/// What rbp holds on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// What it held at the start.
    Same,
    /// What was in memory there at the start.
    Slot(Sum),
    /// That address.
    Sum(Sum),
    Unknown,
}

/// A point on a way to a return.
#[derive(Clone, Copy)]
struct Way {
    at: Virt,
    rsp: Sum,
    rbp: Value,
    /// Where rbp was pushed on the way, as it was at the start.
    pushed: Option<Sum>,
}

/// Where an instruction leads.
enum Next {
    On,
    Return(Rule),
    /// Nobody can say what rsp is.
    Lost,
}

/// Which functions come back, as far as was asked.
#[derive(Default)]
pub(super) struct Ahead {
    comes_back: FxHashMap<Virt, bool>,
}

impl Ahead {
    /// The rule before the instruction at `address`.
    pub(super) fn rule(&mut self, code: &Code, address: Virt) -> Rule {
        let mut factory = InstructionInfoFactory::new();
        let mut ways =
            VecDeque::from([Way { at: address, rsp: (Base::Rsp, 0), rbp: Value::Same, pushed: None }]);
        let mut seen = FxHashSet::default();
        while let Some(mut way) = ways.pop_front() {
            if seen.len() == MOST || !seen.insert(way.at) {
                continue;
            }
            let Some(instruction) = code.instruction(way.at) else { continue };
            match way.step(&instruction, &mut factory) {
                Next::On => {}
                Next::Return(rule) => return rule,
                Next::Lost => continue,
            }
            let to = |at| Way { at, ..way };
            match instruction.flow_control() {
                FlowControl::UnconditionalBranch => ways.push_front(to(instruction.near_branch64())),
                FlowControl::ConditionalBranch => {
                    ways.push_front(to(instruction.near_branch64()));
                    ways.push_front(to(instruction.next_ip()));
                }
                _ if is_call(&instruction) => {
                    if self.comes_back(code, &instruction) {
                        ways.push_back(to(instruction.next_ip()));
                    }
                }
                FlowControl::IndirectBranch | FlowControl::Exception => {}
                _ => ways.push_front(to(instruction.next_ip())),
            }
        }
        Rule::Unknown
    }

    /// Whether what `call` calls can return. Calls through pointers are taken to.
    pub(super) fn comes_back(&mut self, code: &Code, call: &Instruction) -> bool {
        self.comes_back_at(code, call, 0)
    }

    fn comes_back_at(&mut self, code: &Code, call: &Instruction, depth: u32) -> bool {
        if !call.is_call_near() || depth == DEEPEST {
            return true;
        }
        let start = call.near_branch64();
        if let Some(known) = self.comes_back.get(&start) {
            return *known;
        }
        self.comes_back.insert(start, true);
        let found = self.reaches_return(code, start, depth);
        self.comes_back.insert(start, found);
        found
    }

    fn reaches_return(&mut self, code: &Code, start: Virt, depth: u32) -> bool {
        let mut work = vec![start];
        let mut seen = FxHashSet::default();
        while let Some(at) = work.pop() {
            if !seen.insert(at) {
                continue;
            }
            let Some(instruction) = code.instruction(at) else { continue };
            match instruction.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch => return true,
                _ if seen.len() == MOST => return true,
                FlowControl::UnconditionalBranch => work.push(instruction.near_branch64()),
                FlowControl::ConditionalBranch => {
                    work.extend([instruction.near_branch64(), instruction.next_ip()]);
                }
                FlowControl::Exception => {}
                _ if is_call(&instruction) && !self.comes_back_at(code, &instruction, depth + 1) => {}
                _ => work.push(instruction.next_ip()),
            }
        }
        false
    }
}

fn add((base, offset): Sum, bytes: i64) -> Option<Sum> {
    Some((base, i32::try_from(i64::from(offset).checked_add(bytes)?).ok()?))
}

impl Way {
    /// Does what the instruction does to rsp and rbp.
    fn step(&mut self, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Next {
        if instruction.flow_control() == FlowControl::Return || is_tail(instruction) {
            return self.returned().map_or(Next::Lost, Next::Return);
        }
        let constant = || instruction.try_immediate(1).ok().map(u64::cast_signed);
        let register = (instruction.op0_kind() == OpKind::Register).then(|| instruction.op0_register());
        let moved = match (instruction.mnemonic(), register) {
            (Mnemonic::Push, register) => {
                let to = add(self.rsp, -8);
                if register == Some(Register::RBP) && self.rbp == Value::Same {
                    self.pushed = to;
                }
                to
            }
            (Mnemonic::Pop, Some(Register::RBP)) => self.pop_rbp(),
            (Mnemonic::Pop, _) => add(self.rsp, 8),
            (Mnemonic::Sub, Some(Register::RSP)) => {
                constant().and_then(|bytes| add(self.rsp, bytes.checked_neg()?))
            }
            (Mnemonic::Add, Some(Register::RSP)) => constant().and_then(|bytes| add(self.rsp, bytes)),
            (Mnemonic::Lea, Some(Register::RSP)) => self.sum(instruction),
            (Mnemonic::Lea, Some(Register::RBP)) => {
                self.rbp = self.sum(instruction).map_or(Value::Unknown, Value::Sum);
                Some(self.rsp)
            }
            (Mnemonic::Mov, Some(Register::RBP)) if instruction.op1_register() == Register::RSP => {
                self.rbp = Value::Sum(self.rsp);
                Some(self.rsp)
            }
            (Mnemonic::Mov, Some(Register::RSP)) if instruction.op1_register() == Register::RBP => {
                self.rbp_plus(0)
            }
            (Mnemonic::Leave, _) => self.rbp_plus(0).and_then(|rsp| {
                self.rsp = rsp;
                self.pop_rbp()
            }),
            _ => {
                if writes(factory, instruction, Register::RBP) {
                    self.rbp = Value::Unknown;
                }
                (is_call(instruction) || !writes(factory, instruction, Register::RSP)).then_some(self.rsp)
            }
        };
        match moved {
            Some(rsp) => {
                self.rsp = rsp;
                Next::On
            }
            None => Next::Lost,
        }
    }

    /// rbp and a displacement.
    fn rbp_plus(&self, displacement: i64) -> Option<Sum> {
        match self.rbp {
            Value::Same => add((Base::Rbp, 0), displacement),
            Value::Sum(sum) => add(sum, displacement),
            Value::Slot(_) | Value::Unknown => None,
        }
    }

    /// What LEA computes of rsp or rbp and a displacement.
    fn sum(&self, instruction: &Instruction) -> Option<Sum> {
        let displacement = instruction.memory_displacement64().cast_signed();
        match (instruction.memory_base(), instruction.memory_index()) {
            (Register::RSP, Register::None) => add(self.rsp, displacement),
            (Register::RBP, Register::None) => self.rbp_plus(displacement),
            _ => None,
        }
    }

    fn pop_rbp(&mut self) -> Option<Sum> {
        self.rbp = if self.pushed == Some(self.rsp) { Value::Same } else { Value::Slot(self.rsp) };
        add(self.rsp, 8)
    }

    /// The rule, if the return address is on top of the stack now.
    fn returned(&self) -> Option<Rule> {
        let (base, offset) = add(self.rsp, 8)?;
        let rbp = match self.rbp {
            Value::Same => Rbp::Same,
            Value::Slot((of, at)) if of == base => Rbp::InFrame(at.checked_sub(offset)?),
            Value::Slot((Base::Rbp, at)) => Rbp::Pointed(at),
            Value::Slot(_) | Value::Sum(_) | Value::Unknown => Rbp::Lost,
        };
        Some(Rule::Frame { base, offset, through: false, rbp })
    }
}

/// A jump through the procedure linkage table or a variable: a tail call, with the return address on top of the stack.
fn is_tail(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::IndirectBranch && instruction.is_ip_rel_memory_operand()
}
