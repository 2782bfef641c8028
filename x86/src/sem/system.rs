//! Instructions that read the machine, hints, fences, and the bases of FS and GS.

use super::operand::{Any, AnyWidth, Place, Width, load, set_register, write};
use crate::domain::Domain;
use crate::flags::{Flag, Flags};
use crate::machine::{Bv, Exec, Flow, FlowOf, Machine, MachineRead};
use crate::op::{Gpr, Op, Segment};

/// An instruction that reads the machine: `KIND` is an index into [`READS`].
pub fn read_machine<M: Machine, const KIND: usize>(_m: &mut M, _op: &Op) -> Exec<FlowOf<M>> {
    Ok(Flow::MachineRead(READS[KIND]))
}

/// The kinds of machine reads, for const generics, which take no enums.
pub const READS: [MachineRead; 9] = [
    MachineRead::Cpuid,
    MachineRead::Rdtsc,
    MachineRead::Rdtscp,
    MachineRead::Rdpid,
    MachineRead::Rdrand,
    MachineRead::Rdseed,
    MachineRead::Xgetbv,
    MachineRead::Transaction,
    MachineRead::ExtendedState,
];

/// Writes the results of a machine read where the instruction has them; values are 64 bits wide and cut to fit.
///
/// | instruction | `values` |
/// |---|---|
/// | CPUID | eax, ebx, ecx, edx |
/// | RDTSC, XGETBV | eax, edx |
/// | RDTSCP | eax, edx, ecx |
/// | RDPID | destination |
/// | RDRAND, RDSEED | destination, CF (bit 0) |
/// | XBEGIN and its kin, XSAVE and its kin | none: who serves them writes their effects |
///
/// # Errors
/// None with register destinations, which is all there are.
pub fn supply<M: Machine>(m: &mut M, op: &Op, read: MachineRead, values: [Bv<M>; 4]) -> Exec {
    let registers: &[Gpr] = match read {
        MachineRead::Cpuid => &[Gpr::RAX, Gpr::RBX, Gpr::RCX, Gpr::RDX],
        MachineRead::Rdtsc | MachineRead::Xgetbv => &[Gpr::RAX, Gpr::RDX],
        MachineRead::Rdtscp => &[Gpr::RAX, Gpr::RDX, Gpr::RCX],
        MachineRead::Transaction | MachineRead::ExtendedState => &[],
        MachineRead::Rdpid => return write(m, op, op.a, 64, values[0]),
        MachineRead::Rdrand | MachineRead::Rdseed => {
            let w = AnyWidth::of(op);
            let v = if w == 64 { values[0] } else { m.d().trunc(64, w, values[0]) };
            write(m, op, op.a, w, v)?;
            let mut bits = Flag::ALL.map(|_| m.d().bool(false));
            bits[Flag::Carry as usize] = m.d().bit(64, 0, values[1]);
            let flags = Flags::from_bits(m.d(), bits);
            m.set_flags(flags);
            return Ok(());
        }
    };
    for (&r, v) in registers.iter().zip(values) {
        let v = m.d().trunc(64, 32, v);
        set_register(m, r, 32, v);
    }
    Ok(())
}

/// CLFLUSH, CLFLUSHOPT and CLWB: they change nothing that a program can see, but fault as a load does.
pub fn touch<M: Machine>(m: &mut M, op: &Op) -> Exec {
    load(m, op, 8).map(drop)
}

/// Hints, fences, prefetches and cache-line write-backs: nothing that one thread can see of itself.
pub fn nop<M: Machine>(_m: &mut M, _op: &Op) -> Exec {
    Ok(())
}

const fn segment(gs: bool) -> Segment {
    if gs { Segment::Gs } else { Segment::Fs }
}

/// RDFSBASE, and RDGSBASE where `GS`.
pub fn read_base<M: Machine, const GS: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let base = m.segment_base(segment(GS));
    let v = if w == 64 { base } else { m.d().trunc(64, w, base) };
    Any::<0>::put(m, op, w, v)
}

/// WRFSBASE, and WRGSBASE where `GS`: a non-canonical base is #GP.
pub fn write_base<M: Machine, const GS: bool>(m: &mut M, op: &Op) -> Exec {
    let w = AnyWidth::of(op);
    let v = Any::<0>::get(m, op, w)?;
    let v = m.d().zext(w, 64, v);
    super::control::check_canonical(m, v)?;
    m.set_segment_base(segment(GS), v);
    Ok(())
}
