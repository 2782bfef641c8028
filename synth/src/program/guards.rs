//! Which conditional branches decide that an instruction of a function is come to, by the code alone.
//!
//! Example: `cmp rdx, 0x10` and `ja` to a block that prints, and ends in UD2: of that UD2 the `ja` is the guard, taken. Where the block
//! is for the first time alone (`WARN_ONCE`), the byte that says so is looked at in between, and is not what is asked for.

use super::Program;
use super::cfg::falls_through;
use super::code::direct_target;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet};

/// A conditional branch that leads to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The branch.
    pub branch: Instruction,
    /// It leads there if it is taken.
    pub is_taken: bool,
    /// What sets the flags that it looks at, if that stands right before it.
    pub comparison: Option<Instruction>,
}

impl Program {
    /// The last conditional branches on the ways to the instruction around `at`, within its function, by address.
    #[must_use]
    pub fn guards(&self, at: u64) -> Vec<Guard> {
        /// No instruction is longer.
        const LONGEST: u64 = 15;
        let mut near = self.code.between(at.saturating_sub(LONGEST - 1), at.saturating_add(1)).rev();
        let Some(at) = near.find(|it| it.next_ip() > at).map(Instruction::ip) else { return Vec::new() };
        let parts = self.parts_of(at);
        let code = parts.iter().flat_map(|part| self.code.between(part.start, part.end));
        guards(&code.copied().collect::<Vec<_>>(), at)
    }
}

fn guards(code: &[Instruction], at: u64) -> Vec<Guard> {
    let code: BTreeMap<u64, Instruction> = code.iter().map(|it| (it.ip(), *it)).collect();
    let mut before: BTreeMap<u64, Vec<(u64, bool)>> = BTreeMap::new();
    for instruction in code.values() {
        let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
        if falls_through(instruction) || is_call {
            before.entry(instruction.next_ip()).or_default().push((instruction.ip(), false));
        }
        if let Some(target) = direct_target(instruction).filter(|_| !is_call) {
            before.entry(target).or_default().push((instruction.ip(), true));
        }
    }
    let (mut found, mut seen, mut todo) = (BTreeMap::new(), BTreeSet::new(), vec![at]);
    while let Some(at) = todo.pop() {
        for &(from, is_taken) in before.get(&at).into_iter().flatten() {
            let branch = code[&from];
            let comparison = comparison(&code, from);
            let decides = branch.flow_control() == FlowControl::ConditionalBranch
                && !comparison.is_some_and(|it| is_of_first_time(&it));
            if decides {
                found.insert(from, Guard { branch, is_taken, comparison });
            } else if seen.insert(from) {
                todo.push(from);
            }
        }
    }
    found.into_values().collect()
}

/// What sets flags right before a branch.
fn comparison(code: &BTreeMap<u64, Instruction>, branch: u64) -> Option<Instruction> {
    /// Compilers put little in between.
    const NEAR: usize = 6;
    let mut end = branch;
    for (_, instruction) in code.range(..branch).rev().take(NEAR) {
        if instruction.next_ip() != end || instruction.flow_control() != FlowControl::Next {
            return None;
        }
        if instruction.rflags_modified() != 0 {
            return Some(*instruction);
        }
        end = instruction.ip();
    }
    None
}

/// Whether an instruction compares a byte at a constant address with zero: whether something was said before.
fn is_of_first_time(comparison: &Instruction) -> bool {
    comparison.mnemonic() == Mnemonic::Cmp
        && comparison.op0_kind() == OpKind::Memory
        && comparison.memory_size().size() == 1
        && matches!(comparison.memory_base(), Register::None | Register::RIP)
        && comparison.memory_index() == Register::None
        && comparison.try_immediate(1).is_ok_and(|number| number == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::*;
    use iced_x86::{Decoder, DecoderOptions};

    const CODE: u64 = 0xffff_ffff_c000_0000;

    /// `if (n > 16 && !said) { said = 1; report(); trap(); }` behind a call that is always made.
    #[test]
    fn what_is_said_once_is_guarded_by_what_it_says() {
        let mut a = CodeAssembler::new(64).expect("64-bit");
        let (mut rare, mut on) = (a.create_label(), a.create_label());
        let assembled = (|| {
            a.test(rdi, rdi)?;
            a.call(CODE + 0x1000)?;
            a.cmp(rdx, 0x10)?;
            a.mov(rax, rdx)?;
            a.ja(rare)?;
            a.set_label(&mut on)?;
            a.ret()?;
            a.set_label(&mut rare)?;
            a.cmp(byte_ptr(0x2000), 0)?;
            a.jne(on)?;
            a.mov(byte_ptr(0x2000), 1)?;
            a.call(CODE + 0x1000)?;
            a.ud2()?;
            a.assemble(CODE)
        })();
        let code = assembled.expect("it assembles");
        let code: Vec<Instruction> =
            Decoder::with_ip(64, &code, CODE, DecoderOptions::NONE).into_iter().collect();
        let found = guards(&code, code[code.len() - 1].ip());
        let [Guard { branch, is_taken: true, comparison: Some(comparison) }] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((branch.mnemonic(), comparison.mnemonic()), (Mnemonic::Ja, Mnemonic::Cmp));
        assert_eq!(guards(&code, code[1].ip()), [], "it is always come to");
    }
}
