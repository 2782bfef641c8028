//! Every form of address at every edge of the data pages and of the address space.

use super::super::operands::gpr;
use super::{fit, plain_state};
use crate::layout::{DATA, PAGE, READ_ONLY, WRITABLE};
use crate::random::Random;
use iced_x86::{Instruction, Register};
use x86::state::State;

/// A form of address.
struct Form {
    base: bool,
    /// The factor of the index; 0 if there is none.
    scale: u32,
    /// Size of the displacement in bytes.
    displacement: u32,
    segment: Register,
    /// The 67 prefix.
    narrow: bool,
    rip: bool,
}

const PLAIN: Form =
    Form { base: true, scale: 0, displacement: 0, segment: Register::None, narrow: false, rip: false };

const FORMS: [Form; 19] = [
    PLAIN,
    Form { displacement: 1, ..PLAIN },
    Form { displacement: 8, ..PLAIN },
    Form { scale: 1, ..PLAIN },
    Form { scale: 2, displacement: 1, ..PLAIN },
    Form { scale: 4, displacement: 8, ..PLAIN },
    Form { scale: 8, displacement: 1, ..PLAIN },
    Form { base: false, scale: 1, displacement: 8, ..PLAIN },
    Form { base: false, scale: 8, displacement: 8, ..PLAIN },
    Form { base: false, displacement: 8, ..PLAIN },
    Form { base: false, displacement: 8, rip: true, ..PLAIN },
    Form { displacement: 1, segment: Register::FS, ..PLAIN },
    Form { scale: 4, segment: Register::GS, ..PLAIN },
    Form { base: false, displacement: 8, segment: Register::FS, ..PLAIN },
    Form { displacement: 1, narrow: true, ..PLAIN },
    Form { scale: 4, displacement: 4, narrow: true, ..PLAIN },
    Form { base: false, scale: 2, displacement: 4, narrow: true, ..PLAIN },
    Form { base: false, displacement: 4, narrow: true, ..PLAIN },
    Form { displacement: 0, segment: Register::GS, narrow: true, ..PLAIN },
];

/// The lowest addresses of accesses of `size` bytes.
fn places(size: u64) -> [u64; 18] {
    let page = PAGE as u64;
    let end = DATA + WRITABLE as u64;
    let read_only_end = READ_ONLY + page;
    [
        DATA + 0x400,
        DATA + 0x401,
        DATA + page - size / 2,
        DATA + 2 * page - 1,
        end - size,
        end - size + 1,
        end - 1,
        end,
        DATA - 1,
        DATA - size,
        READ_ONLY + 0x40,
        read_only_end - size,
        read_only_end - 1,
        READ_ONLY - 1,
        0x8000_0000_0000_0000,
        0x0000_8000_0000_0000 - size / 2 - 1,
        0u64.wrapping_sub(size / 2 + 1),
        0,
    ]
}

/// How many cases there are.
pub(super) const COUNT: u64 = (FORMS.len() * 18) as u64;

/// Makes the memory operand one register and nothing else.
pub(super) fn set_plain(i: &mut Instruction, base: Register) {
    i.set_memory_base(base);
    i.set_memory_index(Register::None);
    i.set_memory_index_scale(1);
    i.set_memory_displacement64(0);
    i.set_memory_displ_size(0);
    i.set_segment_prefix(Register::None);
}

/// Case `number` of the instruction, if its form of address reaches its place. A 32-bit one reaches another, where the
/// place is above 4 GiB.
pub(super) fn at(random: &mut Random, i: &Instruction, number: u64) -> Option<(State, Vec<u8>)> {
    let number = usize::try_from(number).ok()?;
    let form = &FORMS[number % FORMS.len()];
    let places = places((i.memory_size().size() as u64).max(1));
    let target = places[number / FORMS.len() % places.len()];
    let (mut i, mut state) = (*i, plain_state(random));
    state.regs.gpr[4] = DATA + 0x2800;
    let segment_base = random.below(0x2_0000);
    let mut rest = target;
    match form.segment {
        Register::FS => (state.regs.fs_base, rest) = (segment_base, rest.wrapping_sub(segment_base)),
        Register::GS => (state.regs.gs_base, rest) = (segment_base, rest.wrapping_sub(segment_base)),
        _ => {}
    }
    i.set_segment_prefix(form.segment);
    i.set_memory_base(Register::None);
    i.set_memory_displ_size(form.displacement);
    let width = if form.narrow { Register::EAX } else { Register::RAX };
    if form.scale > 0 {
        const INDICES: [Register; 3] = [Register::RSI, Register::R12, Register::RBP];
        let index = random.pick(&INDICES);
        let value = random.below(0x4000).wrapping_sub(0x2000);
        state.regs.gpr[usize::from(gpr(index).0)] = with_junk(random, form, value);
        i.set_memory_index(width + u32::from(gpr(index).0));
        i.set_memory_index_scale(form.scale);
        rest = rest.wrapping_sub(value.wrapping_mul(form.scale.into()));
    }
    let displacement = match form.displacement {
        0 => 0,
        _ if form.rip || !form.base => rest,
        1 => random.below(0x100).wrapping_sub(0x80),
        _ => random.below(0x1_0000_0000).wrapping_sub(0x8000_0000),
    };
    rest = rest.wrapping_sub(displacement);
    if form.base {
        const BASES: [Register; 5] =
            [Register::RBX, Register::RDI, Register::R13, Register::R9, Register::RSP];
        let base = random.pick(&BASES);
        state.regs.gpr[usize::from(gpr(base).0)] = with_junk(random, form, rest);
        i.set_memory_base(width + u32::from(gpr(base).0));
    } else if form.rip {
        i.set_memory_base(Register::RIP);
    }
    i.set_memory_displacement64(if form.narrow { displacement & 0xffff_ffff } else { displacement });
    let (_, bytes) = fit(&i)?;
    Some((state, bytes))
}

/// The upper half of a register is ignored by 32-bit addressing.
fn with_junk(random: &mut Random, form: &Form, value: u64) -> u64 {
    if form.narrow { value & 0xffff_ffff | random.next() << 32 } else { value }
}
