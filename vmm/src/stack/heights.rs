//! Rules from code: how high the stack is at each instruction of a function without unwind tables.
//!
//! The function is followed from its first instruction, where the frame's address is rsp + 8. Pushes, pops and constants
//! added to rsp move it, a frame pointer pins it; where two ways meet with different answers, the answer is unknown.
//! Code behind a jump through a table is taken to be the table's targets.

use super::ahead::Ahead;
use super::code::{Code, is_call, writes};
use super::rule::{Base, Rbp, Rule};
use crate::engine::Virt;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Functions of more bytes than this are not looked at.
const LARGEST: u64 = 1 << 16;

/// What is known before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// The frame's address less rsp.
    from_rsp: Option<i32>,
    /// The frame's address less rbp, where rbp is a frame pointer.
    from_rbp: Option<i32>,
    rbp: Rbp,
}

impl State {
    const ENTRY: State = State { from_rsp: Some(8), from_rbp: None, rbp: Rbp::Same };

    fn meet(self, other: State) -> State {
        let same = |a: Option<i32>, b| a.filter(|_| a == b);
        State {
            from_rsp: same(self.from_rsp, other.from_rsp),
            from_rbp: same(self.from_rbp, other.from_rbp),
            rbp: if self.rbp == other.rbp { self.rbp } else { Rbp::Lost },
        }
    }

    fn rule(self) -> Rule {
        let (base, offset) = match (self.from_rsp, self.from_rbp) {
            (Some(offset), _) => (Base::Rsp, offset),
            (None, Some(offset)) => (Base::Rbp, offset),
            (None, None) => return Rule::Unknown,
        };
        Rule::Frame { base, offset, through: false, rbp: self.rbp }
    }

    /// Moves rsp by `bytes`, down if that is positive.
    fn push(&mut self, bytes: i64) {
        let moved = |height: i32| i32::try_from(i64::from(height).checked_add(bytes)?).ok();
        self.from_rsp = self.from_rsp.and_then(moved);
    }

    /// What rbp is where its value lies on top of the stack.
    fn top(self) -> Option<Rbp> {
        Some(Rbp::InFrame(self.from_rsp?.checked_neg()?))
    }

    fn pop_rbp(&mut self) {
        let saved = self.top();
        self.rbp = if saved == Some(self.rbp) { Rbp::Same } else { Rbp::Lost };
        self.from_rbp = None;
        self.push(-8);
    }
}

/// The states of each function that was asked for, by its first address.
#[derive(Default)]
pub(super) struct Heights {
    functions: FxHashMap<Virt, BTreeMap<Virt, (Virt, State)>>,
}

impl Heights {
    /// The rule before the instruction that `address` is in, of a function from `start` to `end`.
    pub(super) fn rule(
        &mut self,
        code: &Code,
        ahead: &mut Ahead,
        (start, end): (Virt, Virt),
        address: Virt,
    ) -> Rule {
        let states = self.functions.entry(start).or_insert_with(|| follow(code, ahead, start, end));
        let around = states.range(..=address).next_back().filter(|(_, (next, _))| address < *next);
        around.map_or(Rule::Unknown, |(_, (_, state))| state.rule())
    }
}

/// The state before each instruction, with the address behind it.
fn follow(code: &Code, ahead: &mut Ahead, start: Virt, end: Virt) -> BTreeMap<Virt, (Virt, State)> {
    let mut factory = InstructionInfoFactory::new();
    let mut states: BTreeMap<Virt, (Virt, State)> = BTreeMap::new();
    if end - start > LARGEST {
        return states;
    }
    let mut work = vec![(start, State::ENTRY)];
    // What the targets of jumps through tables begin with; a jump with nothing on the stack is a tail call, or else has
    // targets with nothing on the stack.
    let mut at_tables: Option<State> = None;
    loop {
        while let Some((address, state)) = work.pop() {
            let Some(instruction) = code.instruction(address).filter(|_| (start..end).contains(&address))
            else {
                continue;
            };
            let met = states.get(&address).map_or(state, |(_, known)| known.meet(state));
            if states.insert(address, (instruction.next_ip(), met)).is_some_and(|(_, known)| known == met) {
                continue;
            }
            let after = step(met, &instruction, &mut factory);
            match instruction.flow_control() {
                FlowControl::Return | FlowControl::Exception => {}
                FlowControl::UnconditionalBranch => work.push((instruction.near_branch64(), after)),
                FlowControl::IndirectBranch => {
                    at_tables = match at_tables {
                        Some(known) if after == State::ENTRY => Some(known),
                        Some(known) if known != State::ENTRY => Some(known.meet(after)),
                        _ => Some(after),
                    };
                }
                FlowControl::ConditionalBranch => {
                    work.push((instruction.near_branch64(), after));
                    work.push((instruction.next_ip(), after));
                }
                _ if is_call(&instruction) && !ahead.comes_back(code, &instruction) => {}
                _ => work.push((instruction.next_ip(), after)),
            }
        }
        let Some(state) = at_tables else { return states };
        let Some(address) = unvisited(code, &states, end) else { return states };
        work.push((address, state));
    }
}

/// The first instruction that was not followed, padding apart.
fn unvisited(code: &Code, states: &BTreeMap<Virt, (Virt, State)>, end: Virt) -> Option<Virt> {
    let first = |(_, (next, _)): (&Virt, &(Virt, State))| {
        let mut at = *next;
        while at < end && !states.contains_key(&at) {
            let instruction = code.instruction(at)?;
            if !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
                return Some(at);
            }
            at = instruction.next_ip();
        }
        None
    };
    states.iter().find_map(first)
}

/// The state behind an instruction.
fn step(before: State, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> State {
    let mut state = before;
    let constant = || instruction.try_immediate(1).ok().map(u64::cast_signed);
    let first = || (instruction.op0_kind() == OpKind::Register).then(|| instruction.op0_register());
    match (instruction.mnemonic(), first()) {
        (Mnemonic::Push, register) => {
            if register == Some(Register::RBP) && state.rbp == Rbp::Same {
                // Until rbp changes the caller's value is in both places.
                state.push(8);
                state.rbp = state.top().unwrap_or(Rbp::Same);
                return state;
            }
            state.push(8);
        }
        (Mnemonic::Pop, Some(Register::RBP)) => state.pop_rbp(),
        (Mnemonic::Pop, _) => state.push(-8),
        (Mnemonic::Sub, Some(Register::RSP)) => match constant() {
            Some(bytes) => state.push(bytes),
            None => state.from_rsp = None,
        },
        (Mnemonic::Add, Some(Register::RSP)) => match constant() {
            Some(bytes) => state.push(-bytes),
            None => state.from_rsp = None,
        },
        (Mnemonic::Lea, Some(Register::RSP)) => {
            let displacement = i32::try_from(instruction.memory_displacement64().cast_signed()).ok();
            let plain = displacement.filter(|_| instruction.memory_index() == Register::None);
            let from = match instruction.memory_base() {
                Register::RSP => state.from_rsp,
                Register::RBP => state.from_rbp,
                _ => None,
            };
            state.from_rsp = from.zip(plain).and_then(|(from, displacement)| from.checked_sub(displacement));
        }
        (Mnemonic::Mov, Some(Register::RBP)) if instruction.op1_register() == Register::RSP => {
            if state.rbp == Rbp::Same {
                state.rbp = Rbp::Lost;
            }
            state.from_rbp = state.from_rsp;
        }
        (Mnemonic::Mov, Some(Register::RSP)) if instruction.op1_register() == Register::RBP => {
            state.from_rsp = state.from_rbp;
        }
        (Mnemonic::Leave, _) => {
            state.from_rsp = state.from_rbp;
            state.pop_rbp();
        }
        _ => {
            // A call leaves rsp as it was, once it has returned.
            if writes(factory, instruction, Register::RSP) && !is_call(instruction) {
                state.from_rsp = None;
            }
            if writes(factory, instruction, Register::RBP) {
                state.from_rbp = None;
                if state.rbp == Rbp::Same {
                    state.rbp = Rbp::Lost;
                }
            }
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::IcedError;
    use iced_x86::code_asm::{CodeAssembler, rbp, rsp};

    /// A program may move its stack pointer as far as it likes.
    #[test]
    fn the_lowest_height_has_no_opposite() -> Result<(), IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.add(rsp, i32::MAX)?;
        a.add(rsp, 9)?;
        a.pop(rbp)?;
        let mut factory = InstructionInfoFactory::new();
        let after = a.instructions().iter().fold(State::ENTRY, |state, i| step(state, i, &mut factory));
        assert_eq!(after, State { from_rsp: None, from_rbp: None, rbp: Rbp::Lost });
        Ok(())
    }
}
