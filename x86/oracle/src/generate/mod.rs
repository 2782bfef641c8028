//! Random cases: single instructions and short blocks, and states in which they do something; and [`directed`] ones.
//!
//! [`template`] says which instructions, [`operands`] makes one (with [`memory`] operands), this file puts them
//! together. The same seed makes the same cases for the same table.

mod directed;
mod memory;
mod operands;
mod template;

use crate::case::{Case, Image};
use crate::dont_care;
use crate::layout::{CODE, CODE_MAX, EXIT_JUMP, PAGE, exit_jump};
use crate::native::BATCH;
use crate::random::Random;
use crate::values;
pub use directed::Directed;
use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind};
use operands::{Operands, Pins, gpr};
use template::{Template, decode, encode, is_fit};
pub use template::{encodings, is_in_table, missing};
use x86::state::State;

/// How many states each generated code runs from.
pub const STATES: usize = 4;

/// Cases that start from the same data pages.
#[derive(Debug)]
pub struct Batch {
    /// The data pages.
    pub image: Image,
    /// The cases; [`STATES`] of each code, one after the other.
    pub cases: Vec<Case>,
    /// The encodings in each code.
    pub encodings: Vec<Vec<Code>>,
}

impl Batch {
    fn new(image: Image) -> Batch {
        Batch { image, cases: Vec::with_capacity(BATCH), encodings: Vec::new() }
    }
}

/// Makes random batches.
#[derive(Debug)]
pub struct Generator {
    groups: Vec<(Mnemonic, Vec<Template>)>,
    block_max: usize,
}

/// Instructions and what they ask of the registers.
struct Program {
    code: Vec<u8>,
    encodings: Vec<Code>,
    pins: Pins,
    at: u64,
}

impl Generator {
    /// Makes cases of the given mnemonics (of all that have semantics, if there are none), in blocks of up to
    /// `block_max` instructions.
    #[must_use]
    pub fn new(only: &[Mnemonic], block_max: usize) -> Generator {
        Generator { groups: template::all(only), block_max: block_max.clamp(1, CODE_MAX / 15) }
    }

    /// The mnemonics that are generated.
    pub fn mnemonics(&self) -> impl Iterator<Item = Mnemonic> + '_ {
        self.groups.iter().map(|(mnemonic, _)| *mnemonic)
    }

    /// Batch number `number` of `seed`, of about `size` cases; empty if nothing is to be generated.
    #[must_use]
    pub fn batch(&self, seed: u64, number: u64, size: usize) -> Batch {
        let random = &mut Random::new(seed, number);
        let image = values::image(random);
        let mut batch = Batch::new(image);
        while batch.cases.len() + STATES <= size && !self.groups.is_empty() {
            let Some(program) = self.program(random, &image) else { continue };
            let mut state = State::default();
            state.regs.rip = program.at;
            let Some(case) = Case::new(&program.code, state) else { continue };
            for _ in 0..STATES {
                batch.cases.push(Case { state: state_for(random, &program), ..case });
            }
            batch.encodings.push(program.encodings);
        }
        batch
    }

    fn program(&self, random: &mut Random, image: &Image) -> Option<Program> {
        match random.below(10) {
            0 => self.mutant(random, image),
            1..=5 if self.block_max > 1 => {
                let length = 2 + random.index(self.block_max - 1);
                self.block(random, image, length)
            }
            _ => self.block(random, image, 1),
        }
        .and_then(|program| at_the_end_of_the_page(random, program))
    }

    fn template(&self, random: &mut Random) -> Template {
        let (_, templates) = &self.groups[random.index(self.groups.len())];
        random.pick(templates)
    }

    /// A block of `length` instructions.
    fn block(&self, random: &mut Random, image: &Image, length: usize) -> Option<Program> {
        let at = CODE + random.below(values::INT3_FROM - CODE - (CODE_MAX + EXIT_JUMP) as u64);
        let mut pins =
            Pins { fs_base: segment_base(random), gs_base: segment_base(random), ..Pins::default() };
        let mut block: Vec<Instruction> = Vec::with_capacity(length);
        let few = random.percent(60).then(|| [random.below(32), random.below(32), random.below(32)]);
        let few = few.filter(|_| length > 1);
        let (mut ip, mut undefined, mut tries) = (at, 0, 8 * length);
        while block.len() < length {
            tries = tries.checked_sub(1)?;
            let before = pins.clone();
            let code = self.template(random).code;
            let mut operands = Operands::new(random, &mut pins, Some(image));
            if length > 1 {
                operands = operands.mostly_harmless().among(few);
            }
            let made = operands
                .instruction(code, ip)
                .and_then(|i| encode(&i, ip))
                .and_then(|bytes| decode(&bytes, ip).filter(|i| is_fit(i, &bytes)))
                .filter(|i| may_follow(i, undefined, block.is_empty(), length))
                .filter(|i| !always_faults(i) || block.len() + 1 == length);
            let Some(i) = made else {
                pins = before;
                continue;
            };
            // A branch may skip what defines a flag again.
            let may_be_skipped = block.iter().any(has_target);
            undefined = undefined_after(&i, undefined, may_be_skipped);
            note_writes(&i, &mut pins);
            ip = i.next_ip();
            block.push(i);
        }
        let code = with_targets(random, &block, ip)?;
        Some(Program { code, encodings: block.iter().map(Instruction::code).collect(), pins, at })
    }

    /// A single instruction with prefixes added or a bit flipped; at times it is none any more.
    fn mutant(&self, random: &mut Random, image: &Image) -> Option<Program> {
        const PREFIXES: [u8; 17] = [
            0x66, 0x66, 0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x40, 0x41, 0x44, 0x48,
            0x4f,
        ];
        let mut program = self.block(random, image, 1)?;
        let mnemonic = program.encodings[0].mnemonic();
        for _ in 0..=random.below(2) {
            if random.percent(60) {
                program.code.insert(0, random.pick(&PREFIXES));
            } else {
                let byte = random.index(program.code.len().min(4));
                program.code[byte] ^= 1 << random.below(8);
            }
        }
        let Some(i) = decode(&program.code, program.at) else {
            if calls_a_hypervisor(&program.code) {
                return None;
            }
            program.encodings = vec![Code::INVALID];
            // What it lacks may come behind it.
            let whole = [&program.code[..], &exit_jump(), &[0xcc; 15]].concat();
            return decode(&whole, program.at).is_none().then_some(program);
        };
        if !is_fit(&i, &program.code) {
            return None;
        }
        let same_group = self.groups.iter().any(|(m, _)| *m == i.mnemonic());
        let keeps_flow = i.mnemonic() == mnemonic || !is_popf(&i);
        let leads_somewhere = !has_target(&i) || i.near_branch_target() == i.next_ip();
        program.code.truncate(i.len());
        program.encodings = vec![i.code()];
        (same_group && keeps_flow && leads_somewhere).then_some(program)
    }
}

fn segment_base(random: &mut Random) -> u64 {
    if random.percent(50) { 0 } else { random.below(0x2_0000) }
}

/// Whether `i` may come next in a block: it must not read what an earlier instruction left undefined.
fn may_follow(i: &Instruction, undefined: u64, first: bool, length: usize) -> bool {
    let own = dont_care::undefined(i, None);
    undefined & dont_care::rflags(i.rflags_read()) == 0
        && (length == 1 || !own.destination && !dont_care::stores_pointers(i))
        // Elsewhere the stack may hold anything, such as the flag that traps after each instruction.
        && (first || !is_popf(i))
}

/// An instruction behind one of these would never run.
fn always_faults(i: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(i.mnemonic(), M::Ud0 | M::Ud1 | M::Ud2 | M::Int1 | M::Int3 | M::Cli | M::Sti | M::In | M::Out)
        || i.is_privileged()
        || matches!(i.mnemonic(), M::Insb | M::Insw | M::Insd | M::Outsb | M::Outsw | M::Outsd | M::Ret)
}

/// VMCALL or VMMCALL, with prefixes that make another instruction of it on paper: under a hypervisor it is asked for all
/// of them, and each answers in its own way.
fn calls_a_hypervisor(code: &[u8]) -> bool {
    const CALLS: [[u8; 3]; 2] = [[0x0f, 0x01, 0xc1], [0x0f, 0x01, 0xd9]];
    CALLS.iter().any(|call| code.windows(call.len()).any(|bytes| bytes == call))
}

fn is_popf(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Popf | Mnemonic::Popfq)
}

fn undefined_after(i: &Instruction, before: u64, may_be_skipped: bool) -> u64 {
    let kept = if may_be_skipped || dont_care::may_keep_flags(i) {
        before
    } else {
        before & !dont_care::rflags(i.rflags_modified())
    };
    kept | dont_care::undefined(i, None).flags
}

fn note_writes(i: &Instruction, pins: &mut Pins) {
    for used in InstructionInfoFactory::new().info(i).used_registers() {
        let writes = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        if writes && used.register().is_gpr() {
            pins.written[usize::from(gpr(used.register()).0)] = true;
        }
    }
}

fn has_target(i: &Instruction) -> bool {
    i.op_count() > 0 && i.op_kind(0) == OpKind::NearBranch64
}

/// Encodes the block, with each branch to a later instruction, to its end or to an INT3 behind it.
fn with_targets(random: &mut Random, block: &[Instruction], end: u64) -> Option<Vec<u8>> {
    let mut code = Vec::with_capacity(CODE_MAX);
    for (n, i) in block.iter().enumerate() {
        let mut i = *i;
        if has_target(&i) {
            let behind = end + EXIT_JUMP as u64 + random.below(8);
            let later = block.get(n + 1 + random.index(block.len() - n)).map_or(end, Instruction::ip);
            i.set_near_branch64(if random.percent(20) { behind } else { later });
        }
        let bytes = encode(&i, i.ip())?;
        if bytes.len() != i.len() {
            return None;
        }
        code.extend(bytes);
    }
    Some(code)
}

/// Moves a few programs to where the code page ends, at times cutting the last instruction in two.
fn at_the_end_of_the_page(random: &mut Random, mut program: Program) -> Option<Program> {
    if !random.percent(2) {
        return Some(program);
    }
    if random.percent(50) {
        let kept = program.code.len() - random.index(program.code.len().min(6));
        program.code.truncate(kept);
    }
    let moved = CODE + (PAGE - program.code.len()) as u64;
    // What is relative to rip now leads elsewhere; only programs without are moved.
    let mut ip = program.at;
    let mut rest = &program.code[..];
    while let Some(i) = decode(rest, ip) {
        if i.is_ip_rel_memory_operand() || has_target(&i) {
            return None;
        }
        rest = &rest[i.len()..];
        ip = i.next_ip();
    }
    program.at = moved;
    Some(program)
}

fn state_for(random: &mut Random, program: &Program) -> State {
    let mut state = State { fpu: values::fpu(random), ..State::default() };
    for &(register, width) in &program.pins.indices {
        values::small_indices(random, width, &mut state.fpu.vector[register]);
    }
    let regs = &mut state.regs;
    for (value, pin) in regs.gpr.iter_mut().zip(program.pins.gpr) {
        *value = pin.unwrap_or_else(|| values::integer(random));
    }
    regs.rip = program.at;
    regs.rflags = values::rflags(random);
    (regs.fs_base, regs.gs_base) = (program.pins.fs_base, program.pins.gs_base);
    state
}
