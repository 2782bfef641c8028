//! Which instructions can run right before a given one.
//!
//! Direct edges are tabulated when the map is built; the returns of a function are found by following its
//! instructions forward (through tail jumps) when first asked for.
//!
//! What the map assumes, and where it would miss an edge:
//! * Code pointers are not forged: an indirect call reaches an entry whose address the program takes, a return
//!   goes to the instruction after the call. A smashed return address or a corrupted pointer is the
//!   business of whoever looks at the crash itself.
//! * `longjmp` returns after a call of a function that looks like `setjmp`: it stores r12 to r15 through rdi.
//! * The kernel's own edges, to signal handlers and back, are not in the map.
//! * The tables that the dynamic linker fills hold what they hold at the end, or lead to the instruction behind the jump, which
//!   has the linker look for the function that is called for the first time.

mod callers;
mod taken;

pub use callers::Callers;

use super::code::direct_target;
use super::tables::{self, Cell, Source};
use super::{Function, Program};
use iced_x86::{FlowControl, Instruction, Mnemonic, Register};
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap, HashSet};
use taken::Taken;

/// How many instructions of a function are looked at to see whether it is a `setjmp`.
const CONTEXT_SLICE: usize = 40;

/// How control passes from one instruction to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EdgeKind {
    /// To the next instruction; of a conditional branch: not taken.
    Fallthrough,
    /// A direct jump, or a conditional branch that is taken (tail calls among them).
    Branch,
    /// A direct call, to the function's entry.
    Call,
    /// From a `ret` to the instruction after the call.
    Return,
    /// A call through a pointer.
    IndirectCall,
    /// A jump through a table or a pointer (tail calls and `longjmp` among them).
    IndirectJump,
    /// From SYSCALL to the next instruction, after the kernel has served the call.
    AfterSyscall,
    /// A repeated string instruction to itself.
    RepIteration,
}

/// An edge of the control flow, seen from where it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// The address of the instruction before.
    pub from: u64,
    /// How it got here.
    pub kind: EdgeKind,
}

/// The predecessors of every instruction of a program.
pub struct Cfg<'p> {
    program: &'p Program,
    /// Tabulated edges, by the number of the instruction at which they arrive.
    edges: Vec<Edge>,
    /// Where each instruction's edges begin in `edges`; one more than there are instructions.
    first: Vec<u32>,
    /// Targets of the indirect jumps and calls that could be resolved.
    resolved: HashMap<u64, Vec<u64>>,
    /// Where jumps lead instead that have not found out yet where they lead.
    lazy: HashMap<u64, u64>,
    /// Calls through pointers.
    pointer_calls: Vec<u64>,
    /// Jumps through pointers.
    pointer_jumps: Vec<u64>,
    /// Entries whose address the program takes.
    address_taken: BTreeSet<u64>,
    /// Places within functions whose address the program's data hold: where interpreters with computed goto jump to.
    labels: BTreeSet<u64>,
    /// Starts of functions with a jump whose targets are unknown.
    doubtful: HashSet<u64>,
    /// The extent of each function that is called directly, when first asked for.
    extents: HashMap<u64, OnceCell<Extent>>,
    /// The extent of everything that a pointer can lead to.
    pointer_extent: OnceCell<Extent>,
}

/// What can run between the call of a function and its return, what it calls apart.
#[derive(Default)]
struct Extent {
    /// The `ret` instructions by which it can come back.
    rets: Vec<u64>,
    /// The numbers of its instructions, those behind tail jumps among them, ascending.
    instructions: Vec<u32>,
    /// It also ends in a jump through a pointer.
    through_pointer: bool,
}

impl<'p> Cfg<'p> {
    /// Builds the map. `cell` reads 8 bytes of the memory in which the program ran (its core): the targets of
    /// the indirect functions that start-up code resolved, and relocated tables.
    #[must_use]
    pub fn build(program: &'p Program, cell: &dyn Fn(u64) -> Option<u64>) -> Cfg<'p> {
        let Taken { entries, labels } = Taken::by(program, cell);
        let mut cfg = Cfg {
            program,
            edges: Vec::new(),
            first: Vec::new(),
            resolved: HashMap::new(),
            lazy: HashMap::new(),
            pointer_calls: Vec::new(),
            pointer_jumps: Vec::new(),
            address_taken: entries,
            labels,
            doubtful: HashSet::new(),
            extents: HashMap::new(),
            pointer_extent: OnceCell::new(),
        };
        cfg.resolve_indirect(cell);
        cfg.tabulate();
        cfg
    }

    /// The edges by which control can arrive at `va`, those within the function first.
    pub fn predecessors(&self, va: u64) -> impl Iterator<Item = Edge> {
        let number = self.program.code.at(va);
        let after_calls = number.into_iter().flat_map(|number| self.calls_before(number));
        let taken = self.address_taken.contains(&va);
        let (calls, jumps): (&[u64], &[u64]) =
            if taken { (&self.pointer_calls, &self.pointer_jumps) } else { (&[], &[]) };
        let pointers = edges_of(calls, EdgeKind::IndirectCall).chain(edges_of(jumps, EdgeKind::IndirectJump));
        let to_label = edges_of(self.jumps_to_label(va), EdgeKind::IndirectJump);
        self.tabulated(va)
            .iter()
            .copied()
            .chain(after_calls.flat_map(|call| self.returns_after(call)))
            .chain(pointers)
            .chain(to_label)
    }

    /// The jumps through pointers of the function around `va`, if it is one of its labels.
    fn jumps_to_label(&self, va: u64) -> &[u64] {
        let function = self.program.function_at(va).filter(|_| self.labels.contains(&va));
        function.map_or(&[], |function| {
            let place = |address| self.pointer_jumps.partition_point(|&jump| jump < address);
            &self.pointer_jumps[place(function.start)..place(function.end)]
        })
    }

    /// The edges to `va` that do not depend on who called.
    fn tabulated(&self, va: u64) -> &[Edge] {
        self.program
            .code
            .at(va)
            .map_or(&[], |number| &self.edges[self.first[number] as usize..self.first[number + 1] as usize])
    }

    /// The call that returns to `va`; `None` where there is none, or where it could be either of two.
    #[must_use]
    pub fn call_before(&self, va: u64) -> Option<u64> {
        let mut calls = self.calls_before(self.program.code.at(va)?);
        calls.next().filter(|_| calls.next().is_none()).map(Instruction::ip)
    }

    /// Whether the instruction at `va` can run between `call` and its return, other than in what the called function
    /// calls in turn.
    #[must_use]
    pub fn is_inside(&self, va: u64, call: u64) -> bool {
        let code = &self.program.code;
        let (Some(number), Some(call)) = (code.at(va), code.at(call)) else { return true };
        let holds = |extent: &Extent| {
            u32::try_from(number).is_ok_and(|number| extent.instructions.binary_search(&number).is_ok())
        };
        let targets = self.targets_of(code.get(call));
        let known: Vec<&Extent> = targets.into_iter().map(|target| self.extent_of(target)).collect();
        let through_pointer = known.is_empty() || known.iter().any(|extent| extent.through_pointer);
        known.into_iter().any(holds) || through_pointer && holds(self.pointer_extent())
    }

    /// Whether [`Cfg::predecessors`] of `va` are all that there can be, under the assumptions above.
    #[must_use]
    pub fn is_complete(&self, va: u64) -> bool {
        let Some(function) = self.program.function_at(va) else { return false };
        self.program.code.at(va).is_some() && !self.doubtful.contains(&function.start)
    }

    /// Where the indirect jump or call at `va` can lead, if that is known.
    #[must_use]
    pub fn indirect_targets(&self, va: u64) -> Option<&[u64]> {
        self.resolved.get(&va).map(Vec::as_slice)
    }

    /// The entries whose address the program takes: what a call through a pointer can reach.
    pub fn address_taken(&self) -> impl Iterator<Item = u64> {
        self.address_taken.iter().copied()
    }

    fn resolve_indirect(&mut self, cell: Cell<'_>) {
        let program = self.program;
        let mut found: Vec<(u64, &Function, Vec<tables::Table>)> = Vec::new();
        for branch in program.code.all().iter().filter(|branch| is_indirect(branch)) {
            let Some(function) = program.function_at(branch.ip()) else { continue };
            match tables::source(program, function, branch) {
                Source::Cell(address) => match cell(address).filter(|to| program.code.at(*to).is_some()) {
                    Some(target) => {
                        self.resolved.insert(branch.ip(), vec![target]);
                        self.lazy.extend(binds_lazily(program, branch).map(|next| (branch.ip(), next)));
                    }
                    None => self.add_pointer(branch),
                },
                Source::Tables(tables) => found.push((branch.ip(), function, tables)),
                Source::Pointer => self.add_pointer(branch),
                Source::Unknown => _ = self.doubtful.insert(function.start),
            }
        }
        let starts =
            found.iter().flat_map(|(_, _, tables)| tables.iter().map(|table| table.address)).collect();
        for (ip, function, tables) in &found {
            let targets = tables::read(program, function, tables, &starts, cell);
            if targets.is_empty() {
                self.doubtful.insert(function.start);
            }
            self.resolved.insert(*ip, targets);
        }
    }

    fn add_pointer(&mut self, branch: &Instruction) {
        if branch.flow_control() == FlowControl::IndirectCall {
            self.pointer_calls.push(branch.ip());
        } else {
            self.pointer_jumps.push(branch.ip());
        }
    }

    /// Sorts all edges that do not depend on who called.
    fn tabulate(&mut self) {
        let mut arriving: Vec<(usize, Edge)> = Vec::new();
        for instruction in self.program.code.all() {
            let from = instruction.ip();
            let mut add = |to: u64, kind| {
                if let Some(number) = self.program.code.at(to) {
                    arriving.push((number, Edge { from, kind }));
                }
            };
            if instruction.mnemonic() == Mnemonic::Syscall {
                add(instruction.next_ip(), EdgeKind::AfterSyscall);
            } else if falls_through(instruction) {
                add(instruction.next_ip(), EdgeKind::Fallthrough);
            }
            let call = instruction.is_call_near() || instruction.is_call_near_indirect();
            if let Some(target) = direct_target(instruction) {
                add(target, if call { EdgeKind::Call } else { EdgeKind::Branch });
                if call {
                    self.extents.entry(target).or_default();
                }
            }
            for &target in self.resolved.get(&from).into_iter().flatten() {
                add(target, if call { EdgeKind::IndirectCall } else { EdgeKind::IndirectJump });
                if call {
                    self.extents.entry(target).or_default();
                }
            }
            if let Some(&next) = self.lazy.get(&from) {
                add(next, EdgeKind::IndirectJump);
            }
            if repeats(instruction) {
                add(from, EdgeKind::RepIteration);
            }
        }
        arriving.sort_unstable();
        let total = self.program.code.len();
        let position = |number| arriving.partition_point(|(to, _)| *to < number);
        self.first = (0..=total).map(|number| u32::try_from(position(number)).unwrap_or(u32::MAX)).collect();
        self.edges = arriving.into_iter().map(|(_, edge)| edge).collect();
    }

    /// The calls that end right where instruction `number` starts.
    fn calls_before(&self, number: usize) -> impl Iterator<Item = &'p Instruction> {
        let code = &self.program.code;
        let va = code.get(number).ip();
        let near = (0..number).rev().map(|before| code.get(before)).take_while(move |i| va - i.ip() <= 15);
        near.filter(move |i| i.next_ip() == va && (i.is_call_near() || i.is_call_near_indirect()))
    }

    /// The edges from the returns of what `call` calls.
    fn returns_after(&self, call: &Instruction) -> impl Iterator<Item = Edge> {
        let targets = self.targets_of(call);
        let mut pointer = targets.is_empty();
        let mut rets: Vec<u64> = Vec::new();
        let mut twice = false;
        for target in targets {
            let extent = self.extent_of(target);
            rets.extend(&extent.rets);
            pointer |= extent.through_pointer;
            twice |= saves_context(self.program, target);
        }
        if pointer {
            rets.extend(&self.pointer_extent().rets);
        }
        rets.sort_unstable();
        rets.dedup();
        let jumps: &[u64] = if twice { &self.pointer_jumps } else { &[] };
        let rets = rets.into_iter().map(|from| Edge { from, kind: EdgeKind::Return });
        rets.chain(edges_of(jumps, EdgeKind::IndirectJump))
    }

    /// The functions that `call` calls, if that is known.
    fn targets_of(&self, call: &Instruction) -> Vec<u64> {
        let direct = direct_target(call);
        direct.as_slice().iter().chain(self.resolved.get(&call.ip()).into_iter().flatten()).copied().collect()
    }

    fn extent_of(&self, entry: u64) -> &Extent {
        static NONE: Extent = Extent { rets: Vec::new(), instructions: Vec::new(), through_pointer: false };
        self.extents.get(&entry).map_or(&NONE, |extent| extent.get_or_init(|| self.find_extent([entry])))
    }

    fn pointer_extent(&self) -> &Extent {
        self.pointer_extent.get_or_init(|| self.find_extent(self.address_taken.iter().copied()))
    }

    /// Follows the code from `entries`, stepping over calls, to the returns.
    fn find_extent(&self, entries: impl IntoIterator<Item = u64>) -> Extent {
        let code = &self.program.code;
        let mut found = Extent::default();
        let mut seen = vec![false; code.len()];
        let lazy = self.follow(entries.into_iter().collect(), &mut seen, &mut found);
        // What the dynamic linker finds for a jump is what the jump leads to by now, so it comes back by the same returns.
        self.follow(lazy, &mut seen, &mut Extent::default());
        found.rets.sort_unstable();
        let numbers = (0..).zip(&seen).filter(|(_, seen)| **seen);
        found.instructions = numbers.map(|(number, _)| number).collect();
        found
    }

    /// Follows the code from `work` as far as it is not seen yet; gives where jumps lead that have not found out yet where they
    /// lead.
    fn follow(&self, mut work: Vec<u64>, seen: &mut [bool], found: &mut Extent) -> Vec<u64> {
        let (code, mut lazy) = (&self.program.code, Vec::new());
        while let Some(va) = work.pop() {
            let Some(number) = code.at(va).filter(|number| !seen[*number]) else { continue };
            seen[number] = true;
            let instruction = code.get(number);
            match instruction.flow_control() {
                FlowControl::Return => found.rets.push(va),
                FlowControl::IndirectBranch => {
                    lazy.extend(self.lazy.get(&va));
                    found.through_pointer |= self.follow_jump(va, &mut work);
                }
                FlowControl::Call | FlowControl::IndirectCall
                    if instruction.mnemonic() != Mnemonic::Syscall =>
                {
                    work.extend(self.continues_after(instruction));
                }
                _ => {
                    work.extend(falls_through(instruction).then(|| instruction.next_ip()));
                    work.extend(direct_target(instruction));
                }
            }
        }
        lazy
    }

    /// Adds to `work` where the indirect jump at `va` leads; whether it leads through a pointer.
    fn follow_jump(&self, va: u64, work: &mut Vec<u64>) -> bool {
        let function = self.program.function_at(va);
        let targets = self.resolved.get(&va);
        match targets {
            Some(targets) => work.extend(targets),
            None => work.extend(function.into_iter().flat_map(|it| self.labels.range(it.start..it.end))),
        }
        // Where a jump leads is not known: to anywhere in its function.
        let function = function.filter(|function| self.doubtful.contains(&function.start));
        let whole = function.map(|function| self.program.code.between(function.start, function.end));
        work.extend(whole.into_iter().flatten().map(Instruction::ip));
        targets.is_none()
    }

    /// The instruction after a call, unless the call is the last of its function: then it does not return.
    fn continues_after(&self, call: &Instruction) -> Option<u64> {
        let function = self.program.function_at(call.ip())?;
        (call.next_ip() < function.end).then(|| call.next_ip())
    }
}

fn edges_of(froms: &[u64], kind: EdgeKind) -> impl Iterator<Item = Edge> {
    froms.iter().map(move |&from| Edge { from, kind })
}

fn is_indirect(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall)
}

/// Whether the next instruction can be the next to run, calls apart.
pub(crate) fn falls_through(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => true,
        FlowControl::Call => instruction.mnemonic() == Mnemonic::Syscall,
        FlowControl::Interrupt => true,
        _ => false,
    }
}

/// Where a jump of the procedure linkage table leads before the dynamic linker has found its function: to the next instruction,
/// which pushes the function's number (System V ABI, AMD64 supplement, 5.2).
fn binds_lazily(program: &Program, jump: &Instruction) -> Option<u64> {
    let next = program.instruction_at(jump.next_ip())?;
    let pushes_number = next.mnemonic() == Mnemonic::Push && next.try_immediate(0).is_ok();
    (jump.flow_control() == FlowControl::IndirectBranch && pushes_number).then_some(next.ip())
}

fn repeats(instruction: &Instruction) -> bool {
    instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repe_prefix() || instruction.has_repne_prefix())
}

/// Whether `longjmp` may come back to the instruction after a call of `entry`: it saves the registers that
/// belong to the caller into the buffer that its first argument points to, as `setjmp` does.
fn saves_context(program: &Program, entry: u64) -> bool {
    let saved = [Register::R12, Register::R13, Register::R14, Register::R15];
    let mut stored = HashSet::new();
    let mut at = entry;
    for _ in 0..CONTEXT_SLICE {
        let Some(instruction) = program.instruction_at(at) else { break };
        let into_buffer =
            instruction.mnemonic() == Mnemonic::Mov && instruction.memory_base() == Register::RDI;
        if into_buffer && saved.contains(&instruction.op1_register()) {
            stored.insert(instruction.op1_register());
        }
        at = match instruction.flow_control() {
            FlowControl::UnconditionalBranch => instruction.near_branch64(),
            FlowControl::Return => break,
            _ => instruction.next_ip(),
        };
    }
    stored.len() == saved.len()
}
