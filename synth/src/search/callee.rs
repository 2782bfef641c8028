//! Where a call through a pointer most likely led.
//!
//! After such a call any function may have returned whose address the program takes. But the pointer came, as a rule, from an
//! object that is still there, through a register that belongs to the caller, so that it is the same after the call; or from
//! a place that the code names. What lies there now is tried first. It is no proof: the callee may have changed it.

use super::Search;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use x86::op::Gpr;

/// So many instructions before the call are looked at, and so many of the function that it leads to.
const LOOK_BACK: usize = 12;
/// So many loads may lie between a known pointer and the function's.
const MOST_LOADS: usize = 4;

/// What a function leaves as it was (System V ABI for x86-64, 3.2.1).
const KEPT: [Register; 7] =
    [Register::RBX, Register::RBP, Register::RSP, Register::R12, Register::R13, Register::R14, Register::R15];

/// The last branch on the way from a call to the function that it led to.
#[derive(Clone, Copy)]
pub(super) struct Way {
    /// The call itself, or a jump through a pointer that it led to.
    pub(super) branch: u64,
    /// The first address of the function.
    pub(super) callee: u64,
}

impl Search<'_> {
    /// How the call before `back` most likely got to where it led, if that is not known.
    pub(super) fn likely_way(&mut self, back: u64) -> Option<Way> {
        let call = self.cfg.call_before(back)?;
        let instruction = self.program.instruction_at(call)?;
        match (instruction.flow_control(), self.cfg.indirect_targets(call)) {
            (FlowControl::IndirectCall, None) => {
                let before = self.straight_before(call);
                self.way(&instruction, &before)
            }
            (FlowControl::IndirectCall, Some(targets)) => self.behind_tail_jump(*targets.first()?),
            _ => self.behind_tail_jump(instruction.near_branch_target()),
        }
    }

    /// Where a function leads that does nothing but jump through a pointer.
    fn behind_tail_jump(&mut self, entry: u64) -> Option<Way> {
        let (mut at, mut before) = (entry, Vec::new());
        for _ in 0..LOOK_BACK {
            let instruction = self.program.instruction_at(at)?;
            match (instruction.flow_control(), self.cfg.indirect_targets(at)) {
                (FlowControl::UnconditionalBranch, _) => at = instruction.near_branch_target(),
                (FlowControl::IndirectBranch, Some(&[target])) => at = target,
                (FlowControl::IndirectBranch, None) => return self.way(&instruction, &before),
                (FlowControl::Next, _) => {
                    before.insert(0, instruction);
                    at = instruction.next_ip();
                }
                _ => return None,
            }
        }
        None
    }

    /// Where a branch through a pointer leads that runs behind `before`.
    fn way(&mut self, branch: &Instruction, before: &[Instruction]) -> Option<Way> {
        let target = self.target_of(branch, before)?;
        let callee = self.program.function_at(target)?.start;
        Some(Way { branch: branch.ip(), callee })
    }

    /// The instructions of straight code before `va`, the nearest first.
    fn straight_before(&self, va: u64) -> Vec<Instruction> {
        let (mut found, mut at) = (Vec::new(), va);
        while found.len() < LOOK_BACK {
            // Of several that end here, the longest has its prefixes.
            let ends_here = (1..=15).rev().find_map(|length| {
                let before = self.program.instruction_at(at.checked_sub(length)?)?;
                (before.next_ip() == at && before.flow_control() == FlowControl::Next).then_some(before)
            });
            let Some(before) = ends_here else { break };
            at = before.ip();
            found.push(before);
        }
        found
    }

    /// Where an indirect branch leads that runs behind `before`.
    fn target_of(&mut self, branch: &Instruction, before: &[Instruction]) -> Option<u64> {
        match branch.op0_kind() {
            OpKind::Memory => {
                let address = self.address(branch, 0, before, 0, MOST_LOADS)?;
                self.known_word(address)
            }
            OpKind::Register => self.value(branch.op0_register(), before, 0, MOST_LOADS),
            _ => None,
        }
    }

    /// The address of operand number `operand` of an instruction that runs behind `before[from..]`.
    fn address(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        before: &[Instruction],
        from: usize,
        loads: usize,
    ) -> Option<u64> {
        if instruction.has_segment_prefix() {
            return None;
        }
        instruction.virtual_address(operand, 0, |register, _, _| match register {
            register if register.is_segment_register() => Some(0),
            register => self.value(register, before, from, loads),
        })
    }

    /// What a register holds behind `before[from..]`.
    fn value(
        &mut self,
        register: Register,
        before: &[Instruction],
        from: usize,
        loads: usize,
    ) -> Option<u64> {
        let mut writes = Writes(InstructionInfoFactory::new());
        if KEPT.contains(&register) && !before[..from].iter().any(|i| writes.to(i, register)) {
            let kept = self.hypothesis.register(Gpr(u8::try_from(register.number()).ok()?));
            return self.hypothesis.terms().value(kept);
        }
        let at = (from..before.len()).find(|&n| writes.to(&before[n], register))?;
        let instruction = &before[at];
        let is_whole = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == register;
        match (instruction.mnemonic(), instruction.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) if is_whole => {
                self.value(instruction.op1_register(), before, at + 1, loads)
            }
            (Mnemonic::Mov, OpKind::Memory) if is_whole => {
                let loads = loads.checked_sub(1)?;
                let address = self.address(instruction, 1, before, at + 1, loads)?;
                self.known_word(address)
            }
            (Mnemonic::Lea, OpKind::Memory) if is_whole => {
                self.address(instruction, 1, before, at + 1, loads)
            }
            _ => None,
        }
    }

    /// The word at `va` at the present start, if it is known.
    fn known_word(&mut self, va: u64) -> Option<u64> {
        let word = self.hypothesis.memory_value(va, 8)?;
        self.hypothesis.terms().value(word)
    }
}

/// Which registers instructions write.
struct Writes(InstructionInfoFactory);

impl Writes {
    /// Whether an instruction writes to a part of `register`, a whole one, or may.
    fn to(&mut self, instruction: &Instruction, register: Register) -> bool {
        let used = self.0.info(instruction).used_registers();
        used.iter().any(|used| {
            used.register().full_register() == register
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        })
    }
}
