//! How often a repeated string instruction ran, where the code before it tells: a constant that was put into its count.
//!
//! Going back, each iteration is a step, and behind each of them the instruction before is another way. A count of 512 refutes that way
//! 511 times, mostly some instructions further back. Here it is looked up at once, along the one way that leads there, through registers
//! and the call of the function. It decides what is tried first, and refutes nothing.
//!
//! Example: `mov edx, 0x1000; call memset`, and there `mov rcx, rdx; shr rcx, 3; rep stosq`: 512 iterations.

use super::Search;
use super::candidates::Candidate;
use super::context::Context;
use super::length::LONG;
use crate::program::cfg::{Edge, EdgeKind};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::rc::Rc;
use x86::op::{Gpr, Rep};

/// So many instructions are looked at.
const LOOK_BACK: usize = 48;

impl Search<'_> {
    /// Has the iterations of a repeated string instruction come first as long as fewer have run than its count says, and then what was
    /// before it. Of few iterations nothing changes.
    pub(super) fn prefer_told_count(&mut self, found: &mut [Candidate]) {
        let start = self.hypothesis.start();
        if found.len() < 2 || self.prepare(start).is_none_or(|it| it.op.rep == Rep::None || it.op.mem.addr32)
        {
            return;
        }
        let left = self.hypothesis.register(Gpr::RCX);
        let (Some(left), Some(count)) = (self.hypothesis.terms().value(left), self.told_count(start)) else {
            return;
        };
        if count < LONG as u64 {
            return;
        }
        let is_iteration = |c: &Candidate| c.prepared.address() == start && !c.prepared.skips();
        let wants_iteration = left < count;
        found.sort_by_key(|c| is_iteration(c) != wants_iteration);
        if wants_iteration {
            // It is no loop that may be left.
            let iterations = found.iter_mut().filter(|c| is_iteration(c));
            iterations.for_each(|c| (c.rounds, c.is_told) = (0, true));
        }
    }

    /// The count that the instruction at `start` began with, if the code before it tells.
    fn told_count(&mut self, start: u64) -> Option<u64> {
        let context = self.context();
        let called_by = context.as_ref().map(|context| context.call);
        if let Some(known) = self.counts.get(&(start, called_by)) {
            return *known;
        }
        let told = self.count_before(start, context);
        self.counts.insert((start, called_by), told);
        told
    }

    fn count_before(&self, start: u64, mut context: Option<Rc<Context>>) -> Option<u64> {
        let mut sought = Sought::new(Register::RCX);
        let mut at = start;
        for _ in 0..LOOK_BACK {
            at = self.only_way_to(at, &mut context, sought.is_kept_by_calls())?;
            match sought.before(&self.program.instruction_at(at)?) {
                Before::Same => {}
                Before::Constant(value) => return Some(value),
                Before::Unknown => return None,
            }
        }
        None
    }

    /// The instruction that ran before the one at `at`, if there is only one: the call of the function at its entry, and in place of a
    /// function that was called the call itself where that makes no difference.
    fn only_way_to(&self, at: u64, context: &mut Option<Rc<Context>>, over_calls: bool) -> Option<u64> {
        let is_iteration = |edge: &Edge| edge.kind == EdgeKind::RepIteration;
        let edges: Vec<Edge> = self.cfg.predecessors(at).filter(|edge| !is_iteration(edge)).collect();
        if edges.iter().any(|edge| matches!(edge.kind, EdgeKind::Call | EdgeKind::IndirectCall)) {
            let entered = context.take()?;
            context.clone_from(&entered.outer);
            return Some(entered.call);
        }
        if !edges.is_empty() && edges.iter().all(|edge| edge.kind == EdgeKind::Return) {
            return self.cfg.call_before(at).filter(|_| over_calls);
        }
        let [only] = edges[..] else { return None };
        matches!(only.kind, EdgeKind::Fallthrough | EdgeKind::Branch).then_some(only.from)
    }
}

/// What is done to the value before it is the count.
#[derive(Clone, Copy)]
enum Change {
    And(u64),
    Add(u64),
    ShiftLeft(u64),
    ShiftRight(u64),
    /// To the low 32 bits.
    Cut,
}

/// A value that is looked for, on the way back: the register that it is in, and what is done to it behind.
struct Sought {
    register: Register,
    /// Newest first.
    changes: Vec<Change>,
    factory: InstructionInfoFactory,
}

/// What an instruction tells of it.
#[derive(Debug, PartialEq, Eq)]
enum Before {
    /// It was in a register before, too.
    Same,
    Constant(u64),
    Unknown,
}

impl Sought {
    fn new(register: Register) -> Sought {
        Sought { register, changes: Vec::new(), factory: InstructionInfoFactory::new() }
    }

    /// Whether functions leave the register as it was.
    fn is_kept_by_calls(&self) -> bool {
        use Register::{R12, R13, R14, R15, RBP, RBX};
        [RBX, RBP, R12, R13, R14, R15].contains(&self.register)
    }

    fn before(&mut self, instruction: &Instruction) -> Before {
        if !self.is_written_by(instruction) {
            return Before::Same;
        }
        let to = instruction.op0_register();
        let is_long = to == self.register;
        let is_whole = is_long || to == self.register.full_register32();
        let [first, second] = [instruction.op0_kind(), instruction.op1_kind()];
        if instruction.op_count() != 2 || first != OpKind::Register || !is_whole {
            return Before::Unknown;
        }
        if !is_long {
            self.changes.push(Change::Cut);
        }
        let is_same = second == OpKind::Register && instruction.op1_register() == to;
        let constant = is_immediate(second).then(|| instruction.immediate(1));
        let shift = constant.map(|by| by & if is_long { 63 } else { 31 });
        let change = match (instruction.mnemonic(), constant) {
            (Mnemonic::Mov, Some(value)) => return Before::Constant(self.changed(value)),
            (Mnemonic::Xor | Mnemonic::Sub, None) if is_same => return Before::Constant(self.changed(0)),
            (Mnemonic::Mov, None) if second == OpKind::Register => {
                self.register = instruction.op1_register().full_register();
                return Before::Same;
            }
            (Mnemonic::And, Some(with)) => Change::And(with),
            (Mnemonic::Add, Some(by)) => Change::Add(by),
            (Mnemonic::Sub, Some(by)) => Change::Add(by.wrapping_neg()),
            (Mnemonic::Shl, Some(_)) => Change::ShiftLeft(shift.unwrap_or(0)),
            (Mnemonic::Shr, Some(_)) => {
                self.changes.push(Change::ShiftRight(shift.unwrap_or(0)));
                if !is_long {
                    self.changes.push(Change::Cut);
                }
                return Before::Same;
            }
            _ => return Before::Unknown,
        };
        self.changes.push(change);
        Before::Same
    }

    fn is_written_by(&mut self, instruction: &Instruction) -> bool {
        let used = self.factory.info(instruction).used_registers();
        used.iter().any(|used| {
            used.register().full_register() == self.register
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
        })
    }

    /// The value behind all that is done to it.
    fn changed(&self, value: u64) -> u64 {
        self.changes.iter().rev().fold(value, |value, change| match *change {
            Change::And(with) => value & with,
            Change::Add(by) => value.wrapping_add(by),
            Change::ShiftLeft(by) => value << by,
            Change::ShiftRight(by) => value >> by,
            Change::Cut => value & u64::from(u32::MAX),
        })
    }
}

fn is_immediate(kind: OpKind) -> bool {
    use OpKind::{Immediate8, Immediate8to32, Immediate8to64, Immediate32, Immediate32to64, Immediate64};
    [Immediate8, Immediate8to32, Immediate8to64, Immediate32, Immediate32to64, Immediate64].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// What these instructions, in the order of the program, tell of rcx.
    fn told(code: &[u8]) -> Before {
        let instructions: Vec<_> =
            Decoder::with_ip(64, code, 0x1000, DecoderOptions::NONE).into_iter().collect();
        let mut sought = Sought::new(Register::RCX);
        let mut backwards = instructions.iter().rev().map(|instruction| sought.before(instruction));
        backwards.find(|before| *before != Before::Same).unwrap_or(Before::Same)
    }

    #[test]
    fn a_count_is_followed_through_registers_to_a_constant() {
        // mov ecx, 0x200; xor eax, eax
        assert_eq!(told(&[0xb9, 0, 2, 0, 0, 0x31, 0xc0]), Before::Constant(512));
        // mov edx, 0x1007; mov rcx, rdx; and edx, 7; shr rcx, 3
        let of_memset = [0xba, 7, 0x10, 0, 0, 0x48, 0x89, 0xd1, 0x83, 0xe2, 7, 0x48, 0xc1, 0xe9, 3];
        assert_eq!(told(&of_memset), Before::Constant(512));
        // mov rcx, -1; shr ecx, 4
        assert_eq!(
            told(&[0x48, 0xc7, 0xc1, 0xff, 0xff, 0xff, 0xff, 0xc1, 0xe9, 4]),
            Before::Constant(0x0fff_ffff)
        );
        // xor ecx, ecx; sub rcx, -64
        assert_eq!(told(&[0x31, 0xc9, 0x48, 0x83, 0xe9, 0xc0]), Before::Constant(64));
    }

    #[test]
    fn what_is_computed_otherwise_is_not_told() {
        // mov ecx, 5; imul rcx, rdx
        assert_eq!(told(&[0xb9, 5, 0, 0, 0, 0x48, 0x0f, 0xaf, 0xca]), Before::Unknown);
        // mov ecx, 5; mov cl, 3
        assert_eq!(told(&[0xb9, 5, 0, 0, 0, 0xb1, 3]), Before::Unknown);
        // mov ecx, 5; mov rcx, [rax]
        assert_eq!(told(&[0xb9, 5, 0, 0, 0, 0x48, 0x8b, 0x08]), Before::Unknown);
        // mov rcx, rbx
        assert_eq!(told(&[0x48, 0x89, 0xd9]), Before::Same);
    }
}
