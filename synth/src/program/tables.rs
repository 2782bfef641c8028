//! Where indirect jumps and calls lead: constant cells and jump tables, by a bounded backward slice.
//!
//! Recognised are the shapes that compilers emit: a cell that does not change after start-up
//! (`jmp [rip + got]`), a table of addresses (`jmp [table + rax*8]`, or through a `mov`), and a table of 32-bit
//! offsets that are added to a base (`lea`, `movsxd`, `add`, `jmp`). Slices follow the order of addresses inside
//! the function; where the base of a table was computed elsewhere (hoisted out of a loop), every table address
//! that the function loads is tried, so the result errs on the side of too many targets.

use super::{Function, Program};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::BTreeSet;

/// No compiler emits a longer table without a bound check in front.
const LONGEST_UNBOUNDED: u64 = 1024;
/// No table is longer than this.
const LONGEST: u64 = 1 << 16;
/// How far back the check of a table's index is looked for.
const BOUND_SLICE: usize = 24;

/// An 8-byte cell of the memory in which the program runs.
pub(super) type Cell<'a> = &'a dyn Fn(u64) -> Option<u64>;

/// What an indirect jump or call takes its target from.
pub(super) enum Source {
    /// A cell at a constant address.
    Cell(u64),
    /// One of these tables.
    Tables(Vec<Table>),
    /// A pointer in a register or in writable memory.
    Pointer,
    /// Something like a table whose address was not found.
    Unknown,
}

/// A table of code addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// The first entry's address.
    pub(super) address: u64,
    /// For tables of 32-bit offsets what is added to each; `None` for 64-bit addresses.
    base: Option<u64>,
    /// The number of entries, where the index is checked right before.
    bound: Option<u64>,
}

/// Finds what `branch`, an indirect jump or call in `function`, takes its target from.
pub(super) fn source(program: &Program, function: &Function, branch: &Instruction) -> Source {
    let slice = Slice { program, function };
    match branch.op0_kind() {
        OpKind::Memory => slice.of_memory(branch),
        OpKind::Register => slice.of_register(branch.ip(), branch.op0_register(), 0),
        _ => Source::Pointer,
    }
}

/// Reads the targets from tables; `starts` are the addresses of all tables, at which another one ends.
pub(super) fn read(
    program: &Program,
    function: &Function,
    tables: &[Table],
    starts: &BTreeSet<u64>,
    cell: Cell<'_>,
) -> Vec<u64> {
    let mut targets = BTreeSet::new();
    for table in tables {
        let width = if table.base.is_some() { 4 } else { 8 };
        for number in 0..table.bound.unwrap_or(LONGEST_UNBOUNDED).min(LONGEST) {
            let at = table.address.wrapping_add(number * width);
            if table.bound.is_none() && number > 0 && starts.contains(&at) {
                break;
            }
            match entry(program, table, at, cell)
                .filter(|target| plausible(program, function, table, *target))
            {
                Some(target) => _ = targets.insert(target),
                None if table.bound.is_some() => {}
                None => break,
            }
        }
    }
    targets.into_iter().collect()
}

fn entry(program: &Program, table: &Table, at: u64, cell: Cell<'_>) -> Option<u64> {
    match table.base {
        Some(base) => {
            let bytes = program.initial_bytes(at, 4)?.try_into().ok()?;
            Some(base.wrapping_add_signed(i64::from(i32::from_le_bytes(bytes))))
        }
        None => cell(at).or_else(|| {
            let bytes = program.initial_bytes(at, 8)?.try_into().ok()?;
            Some(u64::from_le_bytes(bytes))
        }),
    }
}

/// Whether a jump table of `function` can lead to `target`: into itself, its cold part, or to an entry. Where symbols were taken
/// out, nothing says whose cold part a function is; a table of whole addresses is trusted with it.
fn plausible(program: &Program, function: &Function, table: &Table, target: u64) -> bool {
    if program.instruction_at(target).is_none() {
        return false;
    }
    let Some(there) = program.function_at(target) else { return false };
    there.start == function.start
        || there.start == target
        || table.base.is_none() && there.name.starts_with("sub_")
        || there.name.strip_prefix(function.name.as_str()).is_some_and(|rest| rest.starts_with(".cold"))
}

/// Definitions of registers, looked for backwards in one function.
struct Slice<'a> {
    program: &'a Program,
    function: &'a Function,
}

impl Slice<'_> {
    fn before(&self, ip: u64) -> impl Iterator<Item = &Instruction> {
        self.program.code.between(self.function.start, ip).rev()
    }

    /// The nearest instruction before `ip` that writes `register`.
    fn definition(&self, ip: u64, register: Register) -> Option<&Instruction> {
        let mut factory = InstructionInfoFactory::new();
        self.before(ip).find(|instruction| writes(&mut factory, instruction, register))
    }

    /// The target is read from the memory operand of `at`.
    fn of_memory(&self, at: &Instruction) -> Source {
        if at.memory_segment() == Register::FS || at.memory_segment() == Register::GS {
            return Source::Pointer;
        }
        let address = at.memory_displacement64();
        match (at.memory_base(), at.memory_index()) {
            (Register::RIP | Register::None, Register::None) if self.program.is_constant(address) => {
                Source::Cell(address)
            }
            // Any entry whose address is taken: a table of functions holds no others.
            _ if at.flow_control() == FlowControl::IndirectCall => Source::Pointer,
            (_, Register::None) => Source::Pointer,
            (base, index) if at.memory_index_scale() == 8 => {
                let bound = self.bound(at.ip(), index);
                let tables = self.addresses(at.ip(), base);
                let table = |start: u64| Table { address: start.wrapping_add(address), base: None, bound };
                let constant = |table: &Table| self.program.is_constant(table.address);
                let tables: Vec<Table> = tables.into_iter().map(table).filter(constant).collect();
                // A scaled load that is not from a constant table is an array of pointers (atexit's, say).
                if tables.is_empty() { Source::Pointer } else { Source::Tables(tables) }
            }
            _ => Source::Pointer,
        }
    }

    /// The target is in `register` before `ip`.
    fn of_register(&self, ip: u64, register: Register, depth: u32) -> Source {
        let Some(definition) = self.definition(ip, register).filter(|_| depth < 4) else {
            return Source::Pointer;
        };
        let at = definition.ip();
        match (definition.mnemonic(), definition.op1_kind()) {
            (Mnemonic::Mov, OpKind::Memory) if definition.op0_register().size() == 8 => {
                self.of_memory(definition)
            }
            (Mnemonic::Mov, OpKind::Register) => self.of_register(at, definition.op1_register(), depth + 1),
            (Mnemonic::Add, OpKind::Register) => {
                self.sum(at, definition.op0_register(), definition.op1_register())
            }
            (Mnemonic::Lea, _) if definition.memory_index_scale() == 1 => {
                self.sum(at, definition.memory_base(), definition.memory_index())
            }
            _ => Source::Pointer,
        }
    }

    /// The target is `left + right`: one is an offset from a table, the other the base.
    fn sum(&self, ip: u64, left: Register, right: Register) -> Source {
        let (load, base) = match (self.offset_load(ip, left), self.offset_load(ip, right)) {
            (Some(load), _) => (load, right),
            (None, Some(load)) => (load, left),
            (None, None) => return Source::Pointer,
        };
        let starts = self.table_addresses(load);
        let bound = self.bound(load.ip(), load.memory_index());
        let same = load.memory_base() == base;
        let mut tables = Vec::new();
        for base in self.addresses(ip, base) {
            for &address in starts.iter().filter(|address| !same || **address == base) {
                tables.push(Table { address, base: Some(base), bound });
            }
        }
        if tables.is_empty() { Source::Unknown } else { Source::Tables(tables) }
    }

    /// The load of a 32-bit offset that defines `register` before `ip`.
    fn offset_load(&self, ip: u64, register: Register) -> Option<&Instruction> {
        let found = self.definition(ip, register)?;
        match found.mnemonic() {
            Mnemonic::Cdqe => self.definition(found.ip(), Register::RAX).filter(|load| is_offset_load(load)),
            _ => Some(found).filter(|load| is_offset_load(load)),
        }
    }

    /// The addresses that the table of an offset load may have.
    fn table_addresses(&self, load: &Instruction) -> Vec<u64> {
        let displacement = load.memory_displacement64();
        let (base, index) = (load.memory_base(), load.memory_index());
        let found = match load.memory_index_scale() {
            4 => self.addresses(load.ip(), base),
            // Unoptimised code scales the index by itself: either register may hold the address.
            _ => [base, index].iter().filter_map(|r| self.address(load.ip(), *r)).collect(),
        };
        found.into_iter().map(|address| address.wrapping_add(displacement)).collect()
    }

    /// The constants that `register` may hold before `ip`: that of its nearest definition if this is one, else
    /// all that the function ever loads into it, else all addresses of constant data that the function loads.
    fn addresses(&self, ip: u64, register: Register) -> Vec<u64> {
        if register == Register::None {
            return vec![0];
        }
        if let Some(address) = self.address(ip, register) {
            return vec![address];
        }
        let all = || self.program.code.between(self.function.start, self.function.end);
        let data =
            |address: &u64| self.program.is_constant(*address) && self.program.code(*address, 1).is_none();
        let same = all()
            .filter(|i| i.op0_kind() == OpKind::Register && i.op0_register().full_register() == register);
        let found: BTreeSet<u64> = same.filter_map(loaded_constant).filter(data).collect();
        if found.is_empty() {
            return all()
                .filter_map(loaded_constant)
                .filter(data)
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
        }
        found.into_iter().collect()
    }

    /// The constant that the nearest definition before `ip` gives `register`.
    fn address(&self, ip: u64, register: Register) -> Option<u64> {
        let definition = self.definition(ip, register)?;
        if definition.mnemonic() == Mnemonic::Mov && definition.op1_kind() == OpKind::Register {
            return loaded_constant(self.definition(definition.ip(), definition.op1_register())?);
        }
        loaded_constant(definition)
    }

    /// The number of entries, from the check of the index right before the load at `ip`.
    fn bound(&self, ip: u64, index: Register) -> Option<u64> {
        let mut factory = InstructionInfoFactory::new();
        let mut same = vec![index.full_register()];
        let mut branch = None;
        for instruction in self.before(ip).take(BOUND_SLICE) {
            let first = instruction.op0_register().full_register();
            let constant = || u64::try_from(immediate(instruction)?).ok();
            match instruction.mnemonic() {
                Mnemonic::Ja | Mnemonic::Jae => {
                    branch = Some(u64::from(instruction.mnemonic() == Mnemonic::Ja))
                }
                Mnemonic::Cmp if same.contains(&first) => return constant()?.checked_add(branch?),
                Mnemonic::And if same.contains(&first) => return constant()?.checked_add(1),
                Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsxd | Mnemonic::Movsx
                    if same.contains(&first) && instruction.op1_kind() == OpKind::Register =>
                {
                    same.push(instruction.op1_register().full_register());
                }
                _ if instruction.is_jcc_short_or_near() => branch = None,
                _ if ends_slice(instruction) => return None,
                _ if same.iter().any(|register| writes(&mut factory, instruction, *register)) => return None,
                _ => {}
            }
        }
        None
    }
}

fn ends_slice(instruction: &Instruction) -> bool {
    use iced_x86::FlowControl::{Call, Exception, IndirectBranch, IndirectCall, Return, UnconditionalBranch};
    matches!(
        instruction.flow_control(),
        Call | Exception | IndirectBranch | IndirectCall | Return | UnconditionalBranch
    )
}

fn is_offset_load(instruction: &Instruction) -> bool {
    let loads = matches!(instruction.mnemonic(), Mnemonic::Movsxd | Mnemonic::Mov);
    let scaled =
        matches!(instruction.memory_index_scale(), 1 | 4) && instruction.memory_index() != Register::None;
    loads && scaled && instruction.op1_kind() == OpKind::Memory && instruction.memory_size().size() == 4
}

fn writes(factory: &mut InstructionInfoFactory, instruction: &Instruction, register: Register) -> bool {
    let written = |access| {
        matches!(
            access,
            OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
        )
    };
    let full = register.full_register();
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| used.register().full_register() == full && written(used.access()))
}

/// The constant that `lea reg, [rip + x]` or `mov reg, imm` loads.
pub(super) fn loaded_constant(instruction: &Instruction) -> Option<u64> {
    match instruction.mnemonic() {
        Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => Some(instruction.ip_rel_memory_address()),
        Mnemonic::Lea
            if instruction.memory_base() == Register::None
                && instruction.memory_index() == Register::None =>
        {
            Some(instruction.memory_displacement64())
        }
        Mnemonic::Mov if instruction.op0_kind() == OpKind::Register => {
            let wide = instruction.op0_register().size() >= 4;
            immediate(instruction).filter(|_| wide).map(i64::cast_unsigned)
        }
        _ => None,
    }
}

/// The immediate second operand, extended as the instruction does.
pub(super) fn immediate(instruction: &Instruction) -> Option<i64> {
    match instruction.op1_kind() {
        OpKind::Immediate32 => Some(i64::from(instruction.immediate32())),
        OpKind::Immediate8
        | OpKind::Immediate16
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64 => instruction.try_immediate(1).ok().map(u64::cast_signed),
        _ => None,
    }
}
