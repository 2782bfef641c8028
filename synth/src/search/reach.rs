//! From where the next record leads to: what the path has yet to come to, it must be able to start from.
//!
//! Between two records lie only branches that the filter hides. Where returns and indirect branches are not among them,
//! what can run after a record is what direct branches lead to, and nothing else: an older instruction outside is refuted
//! at once, not when all ways back from it have been tried.

use crate::fuel::Fuel;
use crate::program::Program;
use crate::program::cfg::falls_through;
use crate::program::code::direct_target;
use iced_x86::{FlowControl, Instruction};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use x86::op::BranchKind;

/// The instructions that can run between a record and the next one, by where the older leads to.
pub(super) struct Reach<'p> {
    program: &'p Program,
    /// The direct branches that leave no record; none, where others leave none either.
    hidden: Option<Vec<BranchKind>>,
    known: FxHashMap<u64, FxHashMap<u64, u32>>,
    /// Handlers of signals may come in between, and return.
    interruptions: bool,
}

/// The branches whose targets the code does not tell.
const INDIRECT: [BranchKind; 3] = [BranchKind::Return, BranchKind::IndirectJump, BranchKind::IndirectCall];

impl<'p> Reach<'p> {
    /// Nothing was asked yet. `recorded` are the kinds that leave records.
    pub(super) fn new(program: &'p Program, recorded: &[BranchKind]) -> Reach<'p> {
        Reach { program, hidden: Reach::hidden(recorded), known: FxHashMap::default(), interruptions: false }
    }

    /// Handlers of signals may run between a record and the next one.
    pub(super) fn allow_interruptions(&mut self) {
        self.interruptions = true;
    }

    fn hidden(recorded: &[BranchKind]) -> Option<Vec<BranchKind>> {
        let shown = INDIRECT.iter().all(|kind| recorded.contains(kind));
        shown.then(|| BranchKind::ALL.into_iter().filter(|kind| !recorded.contains(kind)).collect())
    }

    /// How the instruction at `address` can run after a record that leads to `to`, before any other leaves one.
    pub(super) fn way(&mut self, to: u64, address: u64, fuel: &Fuel) -> Way {
        let Some(hidden) = &self.hidden else { return Way::Unknown };
        if self.program.instruction_at(to).is_none() {
            return Way::Unknown;
        }
        let program = self.program;
        let at = |va| program.instruction_at(va);
        let distances = self.known.entry(to).or_insert_with(|| {
            let found = follow(&at, hidden, to);
            fuel.burn(found.len() as u64);
            found
        });
        let other = if self.interruptions { Way::Interrupted } else { Way::None };
        distances.get(&address).map_or(other, |&steps| Way::Shortest(steps))
    }
}

/// What is known of the ways from a record to an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// There is none.
    None,
    /// The shortest has so many instructions before it.
    Shortest(u32),
    /// There is none, unless a signal came.
    Interrupted,
    /// Nothing.
    Unknown,
}

impl Way {
    /// The length of the shortest; 0 if it is not known.
    pub(super) fn steps(self) -> u32 {
        match self {
            Way::Shortest(steps) => steps,
            Way::None | Way::Unknown => 0,
            // After all others.
            Way::Interrupted => u32::MAX,
        }
    }
}

/// All that runs from `start` on through these branches, and how many instructions run before it at least; `at` gives the
/// instruction at an address.
fn follow(at: &dyn Fn(u64) -> Option<Instruction>, hidden: &[BranchKind], start: u64) -> FxHashMap<u64, u32> {
    let (mut found, mut work) = (FxHashMap::default(), VecDeque::from([(start, 0)]));
    while let Some((va, steps)) = work.pop_front() {
        if found.contains_key(&va) {
            continue;
        }
        let Some(instruction) = at(va) else { continue };
        found.insert(va, steps);
        work.extend(falls_through(&instruction).then(|| (instruction.next_ip(), steps + 1)));
        let kind = kind_of(&instruction);
        let target = direct_target(&instruction).filter(|_| kind.is_some_and(|kind| hidden.contains(&kind)));
        work.extend(target.map(|target| (target, steps + 1)));
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

    /// Which of these instructions, by number, run from the first on while these kinds leave no record, and after how many.
    fn reached(a: &mut CodeAssembler, hidden: &[BranchKind]) -> Vec<(usize, u32)> {
        let code = a.assemble(0x1000).expect("code");
        let decoder = iced_x86::Decoder::with_ip(64, &code, 0x1000, 0);
        let all: Vec<Instruction> = decoder.into_iter().collect();
        let at = |va| all.iter().find(|i| i.ip() == va).copied();
        let found = follow(&at, hidden, 0x1000);
        (0..all.len()).filter_map(|n| Some((n, *found.get(&all[n].ip())?))).collect()
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
        assert_eq!(reached(&mut a, &[BranchKind::Conditional]), [(0, 0), (1, 1), (2, 2), (4, 2)]);
        // What is behind the call runs only after a return, which leaves a record.
        let direct = [BranchKind::Conditional, BranchKind::RelativeJump, BranchKind::RelativeCall];
        assert_eq!(reached(&mut a, &direct), [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (6, 4)]);
        assert_eq!(reached(&mut a, &[]), [(0, 0), (1, 1), (2, 2)]);
        Ok(())
    }

    #[test]
    fn what_hides_returns_tells_nothing() {
        assert!(Reach::hidden(&ALL_BUT_JCC).is_some_and(|hidden| hidden.contains(&BranchKind::Conditional)));
        assert!(Reach::hidden(&ALL_BUT_JCC[..4]).is_none());
    }
}
