//! From where the next record leads to: what the path has yet to come to, it must be able to start from.
//!
//! Between two records lie only branches that the filter hides. Where returns and indirect branches are not among them,
//! what can run after a record is what direct branches lead to, and nothing else: an older instruction outside is refuted
//! at once, not when all ways back from it have been tried.

use crate::program::Program;
use crate::program::cfg::falls_through;
use crate::program::code::direct_target;
use iced_x86::{FlowControl, Instruction};
use rustc_hash::{FxHashMap, FxHashSet};
use x86::op::BranchKind;

/// The instructions that can run between a record and the next one, by where the older leads to.
pub(super) struct Reach<'p> {
    program: &'p Program,
    /// The direct branches that leave no record; none, where others leave none either.
    hidden: Option<Vec<BranchKind>>,
    known: FxHashMap<u64, FxHashSet<u64>>,
}

/// The branches whose targets the code does not tell.
const INDIRECT: [BranchKind; 3] = [BranchKind::Return, BranchKind::IndirectJump, BranchKind::IndirectCall];

impl<'p> Reach<'p> {
    /// Nothing was asked yet. `recorded` are the kinds that leave records.
    pub(super) fn new(program: &'p Program, recorded: &[BranchKind]) -> Reach<'p> {
        Reach { program, hidden: Reach::hidden(recorded), known: FxHashMap::default() }
    }

    fn hidden(recorded: &[BranchKind]) -> Option<Vec<BranchKind>> {
        let shown = INDIRECT.iter().all(|kind| recorded.contains(kind));
        shown.then(|| BranchKind::ALL.into_iter().filter(|kind| !recorded.contains(kind)).collect())
    }

    /// Whether the instruction at `address` can run after a record that leads to `to`, before any other leaves one.
    pub(super) fn leads(&mut self, to: u64, address: u64) -> bool {
        let Some(hidden) = &self.hidden else { return true };
        if self.program.instruction_at(to).is_none() {
            return true;
        }
        let program = self.program;
        let at = |va| program.instruction_at(va);
        self.known.entry(to).or_insert_with(|| follow(&at, hidden, to)).contains(&address)
    }
}

/// All that runs from `start` on through these branches; `at` gives the instruction at an address.
fn follow(at: &dyn Fn(u64) -> Option<Instruction>, hidden: &[BranchKind], start: u64) -> FxHashSet<u64> {
    let (mut found, mut work) = (FxHashSet::default(), vec![start]);
    while let Some(va) = work.pop() {
        let Some(instruction) = at(va).filter(|_| found.insert(va)) else { continue };
        work.extend(falls_through(&instruction).then(|| instruction.next_ip()));
        let kind = kind_of(&instruction);
        work.extend(direct_target(&instruction).filter(|_| kind.is_some_and(|kind| hidden.contains(&kind))));
    }
    found
}

/// Which record a direct branch leaves.
fn kind_of(instruction: &Instruction) -> Option<BranchKind> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Some(BranchKind::Conditional),
        FlowControl::UnconditionalBranch => Some(BranchKind::RelativeJump),
        FlowControl::Call if instruction.is_call_near() => Some(BranchKind::RelativeCall),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::{CodeAssembler, eax, rax};

    const ALL_BUT_JCC: [BranchKind; 5] = [
        BranchKind::RelativeJump,
        BranchKind::IndirectJump,
        BranchKind::RelativeCall,
        BranchKind::IndirectCall,
        BranchKind::Return,
    ];

    /// Which of these instructions, by number, run from the first on while these kinds leave no record.
    fn reached(a: &mut CodeAssembler, hidden: &[BranchKind]) -> Vec<usize> {
        let code = a.assemble(0x1000).expect("code");
        let decoder = iced_x86::Decoder::with_ip(64, &code, 0x1000, 0);
        let all: Vec<Instruction> = decoder.into_iter().collect();
        let at = |va| all.iter().find(|i| i.ip() == va).copied();
        let found = follow(&at, hidden, 0x1000);
        (0..all.len()).filter(|&n| found.contains(&all[n].ip())).collect()
    }

    #[test]
    fn what_would_leave_a_record_is_not_followed() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        let (mut behind, mut callee) = (a.create_label(), a.create_label());
        a.test(eax, eax)?;
        a.je(behind)?;
        a.call(callee)?;
        a.inc(eax)?;
        a.set_label(&mut behind)?;
        a.jmp(rax)?;
        a.set_label(&mut callee)?;
        a.dec(eax)?;
        a.ret()?;
        assert_eq!(reached(&mut a, &[BranchKind::Conditional]), [0, 1, 2, 4]);
        // What is behind the call runs only after a return, which leaves a record.
        let direct = [BranchKind::Conditional, BranchKind::RelativeJump, BranchKind::RelativeCall];
        assert_eq!(reached(&mut a, &direct), [0, 1, 2, 4, 5, 6]);
        assert_eq!(reached(&mut a, &[]), [0, 1, 2]);
        Ok(())
    }

    #[test]
    fn what_hides_returns_tells_nothing() {
        assert!(Reach::hidden(&ALL_BUT_JCC).is_some_and(|hidden| hidden.contains(&BranchKind::Conditional)));
        assert!(Reach::hidden(&ALL_BUT_JCC[..4]).is_none());
    }
}
