//! The executable's code, at the addresses where it runs: its instructions, and what its parts are.

use crate::elf::{ElfError, Image, Segment};
use crate::engine::Virt;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};
use object::{Object, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The lengths that calls have: E8 with a displacement has 5; through registers and memory from 2 on, with prefixes to 9.
const CALL_LENGTHS: std::ops::RangeInclusive<u64> = 2..=9;
/// Start-up code by hand has no size, and is shorter than this.
const ENTRY_LENGTH: u64 = 64;
/// How a signal handler returns: `mov eax, SYS_rt_sigreturn; syscall`, in the two encodings that C libraries use.
const SIGNAL_RETURNS: [&[u8]; 2] =
    [&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05], &[0xb8, 15, 0, 0, 0, 0x0f, 0x05]];

/// What begins at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// What the kernel starts.
    Entry,
    /// A function that is called.
    Function,
    /// In a program without symbols: most likely a function.
    Likely,
    /// Code of which nothing is known. Also the cold part of a function, which is jumped to with a stack of any height.
    Other,
}

pub(super) struct Code {
    file: Vec<u8>,
    image: Image,
    /// Where instructions are.
    ranges: Vec<Range<Virt>>,
    /// The parts of the code by their first address.
    parts: BTreeMap<Virt, Part>,
}

impl Code {
    pub(super) fn parse(executable: &[u8]) -> Result<Code, ElfError> {
        let image = Image::parse(executable)?;
        let instructions = image.instructions(executable);
        let mut parts: BTreeMap<Virt, Part> =
            instructions.functions.iter().map(|start| (*start, Part::Function)).collect();
        let file = object::File::parse(executable).ok();
        for symbol in file.iter().flat_map(|file| file.symbols()) {
            if symbol.name().is_ok_and(|name| name.contains(".cold")) {
                parts.insert(symbol.address().wrapping_add(image.bias), Part::Other);
            }
        }
        let stripped = parts.is_empty();
        let mut code = Code { file: executable.to_vec(), image, ranges: instructions.code, parts };
        code.add_entry();
        if stripped {
            code.add_likely();
        }
        Ok(code)
    }

    /// The code of a file as it lies in memory: nothing is known of its functions but the entry point. `None` if it is not all there.
    pub(super) fn mapped(mut image: Image, read: &dyn Fn(Range<Virt>) -> Option<Vec<u8>>) -> Option<Code> {
        let mut file = Vec::new();
        image.segments.retain(|segment| segment.rights.execute);
        for segment in &mut image.segments {
            segment.offset = file.len() as u64;
            file.extend(read(segment.start..segment.file_end)?);
        }
        let ranges = image.segments.iter().map(|segment| segment.start..segment.file_end).collect();
        let mut code = Code { file, image, ranges, parts: BTreeMap::new() };
        if code.image.entry != 0 {
            code.add_entry();
        }
        Some(code)
    }

    /// Adds what the kernel starts. It ends where it does not go on, or where a function begins.
    fn add_entry(&mut self) {
        let entry = self.image.entry;
        let mut end = entry.saturating_add(ENTRY_LENGTH);
        let bytes = self.bytes(entry, ENTRY_LENGTH);
        for i in Decoder::with_ip(64, bytes, entry, DecoderOptions::NONE) {
            // musl's calls what lies right behind it.
            if i.is_call_near() && (i.next_ip()..end).contains(&i.near_branch64()) {
                end = i.near_branch64();
            }
            let goes_on = !matches!(
                i.flow_control(),
                FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
            );
            if i.is_invalid() || i.mnemonic() == Mnemonic::Hlt || !goes_on {
                end = end.min(i.next_ip());
                break;
            }
        }
        if self.parts.range(entry.saturating_add(1)..end).next().is_none() {
            self.parts.entry(end).or_insert(Part::Other);
        }
        self.parts.insert(entry, Part::Entry);
    }

    /// What the kernel starts; zero if that is not said.
    pub(super) fn entry(&self) -> Virt {
        self.image.entry
    }

    /// Whether there is code at `address`.
    pub(super) fn covers(&self, address: Virt) -> bool {
        self.executable().any(|segment| (segment.start..segment.file_end).contains(&address))
    }

    /// Whether all of the code is in memory.
    pub(super) fn is_as(&self, read: &dyn Fn(Virt, &mut [u8]) -> bool) -> bool {
        self.executable().all(|segment| {
            let own = self.file_bytes(segment, segment.start, segment.file_end - segment.start);
            let mut there = vec![0; own.len()];
            read(segment.start, &mut there) && there == own
        })
    }

    fn executable(&self) -> impl Iterator<Item = &Segment> {
        self.image.segments.iter().filter(|segment| segment.rights.execute)
    }

    /// Adds what is called directly, and the addresses in code that instructions load and that data holds, but for the
    /// targets of jumps through tables.
    fn add_likely(&mut self) {
        let (mut found, mut tables) = (BTreeSet::new(), BTreeSet::new());
        for range in &self.ranges {
            let bytes = self.bytes(range.start, range.end - range.start);
            for i in Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
                match i.mnemonic() {
                    Mnemonic::Call if i.is_call_near() => _ = found.insert(i.near_branch64()),
                    Mnemonic::Lea if i.is_ip_rel_memory_operand() => {
                        _ = found.insert(i.ip_rel_memory_address())
                    }
                    Mnemonic::Mov if i.op0_kind() == OpKind::Register => {
                        found.extend(i.try_immediate(1).ok())
                    }
                    Mnemonic::Jmp if i.memory_index_scale() == 8 => {
                        _ = tables.insert(i.memory_displacement64())
                    }
                    _ => {}
                }
            }
        }
        let is_code = |address: &Virt| self.ranges.iter().any(|range| range.contains(address));
        for segment in self.image.segments.iter().filter(|segment| !segment.rights.execute) {
            let mut in_table = false;
            for at in (segment.start.next_multiple_of(8)..segment.file_end).step_by(8) {
                let word = self.file_bytes(segment, at, 8).try_into().map_or(0, u64::from_le_bytes);
                in_table = is_code(&word) && (in_table || tables.contains(&at));
                if !in_table {
                    found.insert(word);
                }
            }
        }
        for start in found.into_iter().filter(is_code) {
            self.parts.entry(start).or_insert(Part::Likely);
        }
    }

    /// What was added to the file's addresses.
    pub(super) fn bias(&self) -> u64 {
        self.image.bias
    }

    /// The instruction at `address`.
    pub(super) fn instruction(&self, address: Virt) -> Option<Instruction> {
        let bytes = self.bytes(address, 15);
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// The part around `address`: what it is, its first address, and the first behind it.
    pub(super) fn part(&self, address: Virt) -> Option<(Part, Virt, Virt)> {
        let range = self.ranges.iter().find(|range| range.contains(&address))?;
        let (start, part) = self.parts.range(range.start..=address).next_back()?;
        let end = self.parts.range(address + 1..range.end).next().map_or(range.end, |(next, _)| *next);
        Some((*part, *start, end))
    }

    /// The call that ends right before `address`, if there is one.
    pub(super) fn call_before(&self, address: Virt) -> Option<Instruction> {
        CALL_LENGTHS.rev().find_map(|length| {
            let call = self.instruction(address.checked_sub(length)?)?;
            (is_call(&call) && call.next_ip() == address).then_some(call)
        })
    }

    /// Whether a signal handler returns to `address`.
    pub(super) fn is_signal_return(&self, address: Virt) -> bool {
        SIGNAL_RETURNS.iter().any(|code| self.bytes(address, code.len() as u64) == *code)
    }

    /// Whether a jump through memory is at `address`: an entry of a procedure linkage table, with nothing on the stack.
    pub(super) fn is_linkage(&self, address: Virt) -> bool {
        let jumps =
            |i: Instruction| i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand();
        self.instruction(address).is_some_and(jumps)
    }

    /// At most `length` bytes at `address`.
    fn bytes(&self, address: Virt, length: u64) -> &[u8] {
        let holds = |(start, end): (Virt, Virt)| (start..end).contains(&address);
        let segment = self.executable().find(|s| holds((s.start, s.file_end)));
        let Some(segment) = segment else { return &[] };
        self.file_bytes(segment, address, length)
    }

    /// At most `length` bytes at `address`, which is in `segment`.
    fn file_bytes(&self, segment: &Segment, address: Virt, length: u64) -> &[u8] {
        let end = address.saturating_add(length).min(segment.file_end);
        let offset = |va: Virt| usize::try_from((va - segment.start).checked_add(segment.offset)?).ok();
        offset(address).zip(offset(end)).and_then(|(from, to)| self.file.get(from..to)).unwrap_or(&[])
    }
}

/// Whether an instruction is a call of a function (for the decoder SYSCALL is one, too).
pub(super) fn is_call(instruction: &Instruction) -> bool {
    instruction.is_call_near() || instruction.is_call_near_indirect()
}

/// Whether an instruction writes a general register, or a part of it.
pub(super) fn writes(
    factory: &mut InstructionInfoFactory,
    instruction: &Instruction,
    register: Register,
) -> bool {
    let used = factory.info(instruction).used_registers();
    used.iter().any(|used| {
        used.register().full_register() == register
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
    })
}
