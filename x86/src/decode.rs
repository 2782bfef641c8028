//! From iced's instruction to [`Op`]: all that depends on the bytes alone, settled once.

use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind, Register, RoundingControl};

use crate::machine::MachineRead;
use crate::op::{Condition, Embedded, Encoding, Gpr, Loc, Mem, Numbers, Op, Opmask, Rep, Segment, Vector};

/// Bytes of an instruction at most (Intel SDM vol. 2, 2.3.11).
pub const MAX_INSTRUCTION: usize = 15;
/// Selector of CS in 64-bit Linux programs, the value that `mov eax, cs` reads.
const USER_CODE_SELECTOR: u64 = 0x33;
/// Selector of SS in 64-bit Linux programs. DS, ES, FS and GS are 0.
const USER_STACK_SELECTOR: u64 = 0x2b;

/// The operand places, width, memory operand and immediate of `i`, which must be a valid instruction.
#[must_use]
pub fn op(i: &Instruction) -> Op {
    let (w, a, b, mem) = (width(i), place(i, 0), place(i, 1), memory(i));
    Op {
        a,
        b,
        c: place(i, 2),
        d: if i.is_vsib() { register_place(i.memory_index()) } else { place(i, 3) },
        vector: vector(i),
        w,
        len: small(i.len()),
        cc: condition(i),
        rep: rep(i),
        numbers: Numbers::new([a, b], &mem),
        mem,
        imm: immediate(i, w),
        next: i.next_ip(),
    }
}

/// What `i` reads, if it is one that reads the machine.
#[must_use]
pub fn machine_read(i: &Instruction) -> Option<MachineRead> {
    Some(match i.mnemonic() {
        Mnemonic::Cpuid => MachineRead::Cpuid,
        Mnemonic::Rdtsc => MachineRead::Rdtsc,
        Mnemonic::Rdtscp => MachineRead::Rdtscp,
        Mnemonic::Rdpid => MachineRead::Rdpid,
        Mnemonic::Rdrand => MachineRead::Rdrand,
        Mnemonic::Rdseed => MachineRead::Rdseed,
        Mnemonic::Xgetbv => MachineRead::Xgetbv,
        Mnemonic::Xbegin | Mnemonic::Xend | Mnemonic::Xabort | Mnemonic::Xtest => MachineRead::Transaction,
        Mnemonic::Xsave
        | Mnemonic::Xsave64
        | Mnemonic::Xsaveopt
        | Mnemonic::Xsaveopt64
        | Mnemonic::Xsavec
        | Mnemonic::Xsavec64
        | Mnemonic::Xrstor
        | Mnemonic::Xrstor64 => MachineRead::ExtendedState,
        _ => return None,
    })
}

/// Whether `i` stores the address, operand and opcode of the last x87 instruction: Intel's processors keep them always,
/// AMD's only after an exception, and here they are zero.
#[must_use]
pub fn stores_x87_pointers(i: &Instruction) -> bool {
    matches!(
        i.code(),
        Code::Fnstenv_m14byte
            | Code::Fnstenv_m28byte
            | Code::Fnsave_m94byte
            | Code::Fnsave_m108byte
            | Code::Fxsave_m512byte
            | Code::Fxsave64_m512byte
    )
}

/// Whether processors give different results for `i`: approximations, and the last place of the x87's functions
/// (docs/decisions/0014-approximations.md and 0015-where-processors-differ.md).
#[must_use]
pub fn differs_between_processors(i: &Instruction) -> bool {
    use iced_x86::Mnemonic as N;
    matches!(
        i.mnemonic(),
        N::Rcpps
            | N::Rcpss
            | N::Vrcpps
            | N::Vrcpss
            | N::Rsqrtps
            | N::Rsqrtss
            | N::Vrsqrtps
            | N::Vrsqrtss
            | N::Vrcp14ps
            | N::Vrcp14pd
            | N::Vrcp14ss
            | N::Vrcp14sd
            | N::Vrsqrt14ps
            | N::Vrsqrt14pd
            | N::Vrsqrt14ss
            | N::Vrsqrt14sd
            | N::Fsin
            | N::Fcos
            | N::Fsincos
            | N::Fptan
            | N::Fpatan
            | N::F2xm1
            | N::Fyl2x
            | N::Fyl2xp1
    )
}

/// Whether the table describes `i` as a program under Linux sees it, and a kernel sees something else: POPF and the
/// interrupt flag, selectors that are constants of the Linux ABI.
#[must_use]
pub fn depends_on_the_system(i: &Instruction) -> bool {
    matches!(i.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq)
        || (0..i.op_count().min(2))
            .any(|n| i.op_kind(n) == OpKind::Register && i.op_register(n).is_segment_register())
}

/// A number that the instruction set keeps below 256: a length, a register number, an operand width.
fn small(n: usize) -> u8 {
    u8::try_from(n).unwrap_or(0)
}

/// The general register that contains `r`, for any general register.
fn gpr(r: Register) -> Option<Gpr> {
    r.is_gpr().then(|| Gpr(small(r.full_register().number())))
}

fn place(i: &Instruction, n: u32) -> Loc {
    if n >= i.op_count() {
        return Loc::None;
    }
    match i.op_kind(n) {
        OpKind::Register => register_place(i.op_register(n)),
        OpKind::Immediate8
        | OpKind::Immediate8_2nd
        | OpKind::Immediate16
        | OpKind::Immediate32
        | OpKind::Immediate64
        | OpKind::Immediate8to16
        | OpKind::Immediate8to32
        | OpKind::Immediate8to64
        | OpKind::Immediate32to64
        | OpKind::NearBranch16
        | OpKind::NearBranch32
        | OpKind::NearBranch64 => Loc::Imm,
        OpKind::FarBranch16 | OpKind::FarBranch32 => Loc::None,
        _ => Loc::Mem,
    }
}

fn register_place(r: Register) -> Loc {
    match r {
        Register::AH | Register::CH | Register::DH | Register::BH => gpr(r).map_or(Loc::None, Loc::RegHigh),
        _ if r.is_gpr() => gpr(r).map_or(Loc::None, Loc::Reg),
        _ if r.is_vector_register() => Loc::Vector(small(r.number())),
        _ if r.is_k() => Loc::Mask(small(r.number())),
        _ if r.is_mm() => Loc::Mmx(small(r.number())),
        _ if r.is_st() => Loc::X87(small(r.number())),
        // A selector is a constant of the Linux ABI; only reads of it have semantics.
        _ if r.is_segment_register() => Loc::Imm,
        _ => Loc::None,
    }
}

fn vector(i: &Instruction) -> Vector {
    let encoding = match i.encoding() {
        EncodingKind::VEX => Encoding::Vex,
        EncodingKind::EVEX => Encoding::Evex,
        _ => return Vector::LEGACY,
    };
    let embedded = match i.rounding_control() {
        _ if i.is_broadcast() => Embedded::Broadcast,
        RoundingControl::RoundToNearest => Embedded::RoundNearest,
        RoundingControl::RoundDown => Embedded::RoundDown,
        RoundingControl::RoundUp => Embedded::RoundUp,
        RoundingControl::RoundTowardZero => Embedded::RoundZero,
        RoundingControl::None if i.suppress_all_exceptions() => Embedded::Suppress,
        RoundingControl::None => Embedded::None,
    };
    let number = if i.has_op_mask() { small(i.op_mask().number()) } else { 0 };
    // An encoding whose length is ignored counts as 128 bits.
    let parts = 2 << i.op_code().l().min(2);
    Vector { parts, encoding, mask: Opmask::new(number, i.zeroing_masking()), embedded }
}

/// Width in bits of the first operand that has one: register, memory, or implied string operand. More than a
/// byte holds is zero, and the business of [`Vector`].
fn width(i: &Instruction) -> u8 {
    if i.op_count() == 0 {
        return 0;
    }
    match i.op_kind(0) {
        OpKind::Register if i.op_register(0).is_segment_register() => 16,
        OpKind::Register => small(i.op_register(0).size() * 8),
        OpKind::Immediate8 | OpKind::Immediate16 | OpKind::NearBranch64 => 64,
        OpKind::Immediate8to16 => 16,
        OpKind::Immediate8to64 | OpKind::Immediate32to64 => 64,
        _ => small(i.memory_size().size() * 8),
    }
}

/// iced numbers the condition codes as the encoding does, from 1.
fn condition(i: &Instruction) -> Condition {
    Condition(small(i.condition_code() as usize).saturating_sub(1))
}

/// INS and OUTS: user mode is refused the port.
pub(crate) fn is_port_string(i: &Instruction) -> bool {
    use Mnemonic::{Insb, Insd, Insw, Outsb, Outsd, Outsw};
    matches!(i.mnemonic(), Insb | Insw | Insd | Outsb | Outsw | Outsd)
}

/// INS and OUTS count as having none: the port is refused before the count is looked at.
fn rep(i: &Instruction) -> Rep {
    if !i.is_string_instruction() || is_port_string(i) {
        Rep::None
    } else if i.has_repne_prefix() {
        Rep::Repne
    } else if i.has_rep_prefix() {
        Rep::Repe
    } else {
        Rep::None
    }
}

fn memory(i: &Instruction) -> Mem {
    let segment = match i.memory_segment() {
        Register::FS => Segment::Fs,
        Register::GS => Segment::Gs,
        _ => Segment::Flat,
    };
    if let Some(addr32) = implied_memory(i) {
        return Mem { segment, addr32, ..Mem::default() };
    }
    if !(0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory) {
        return Mem::default();
    }
    let (base, index) = (i.memory_base(), i.memory_index());
    let registers_are_32 = base.is_gpr32() || index.is_gpr32() || base == Register::EIP;
    let has_no_register = base == Register::None && !index.is_gpr();
    let absolute_is_32 = has_no_register && i.memory_displ_size() == 4;
    Mem {
        base: gpr(base),
        // The indices of a gather or scatter are a vector: the fourth operand.
        index: gpr(index),
        scale: small(i.memory_index_scale().trailing_zeros() as usize),
        disp: i.memory_displacement64(),
        segment,
        addr32: registers_are_32 || absolute_is_32,
    }
}

/// For string instructions and XLAT-like operands: whether the implied addresses are 32 bits wide.
fn implied_memory(i: &Instruction) -> Option<bool> {
    (0..i.op_count()).find_map(|n| match i.op_kind(n) {
        OpKind::MemorySegRSI | OpKind::MemorySegRDI | OpKind::MemoryESRDI => Some(false),
        OpKind::MemorySegESI | OpKind::MemorySegEDI | OpKind::MemoryESEDI => Some(true),
        _ => None,
    })
}

fn immediate(i: &Instruction, w: u8) -> u64 {
    let cut = |value: u64| if (1..64).contains(&w) { value & (u64::MAX >> (64 - w)) } else { value };
    for n in 0..i.op_count() {
        match i.op_kind(n) {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                return i.near_branch_target();
            }
            // ENTER: the frame size, and the nesting level above it.
            OpKind::Immediate16 if i.op_count() == 2 && i.op_kind(1) == OpKind::Immediate8_2nd => {
                return u64::from(i.immediate16()) | u64::from(i.immediate8_2nd()) << 16;
            }
            OpKind::Register if i.op_register(n).is_segment_register() => {
                return match i.op_register(n) {
                    Register::CS => USER_CODE_SELECTOR,
                    Register::SS => USER_STACK_SELECTOR,
                    _ => 0,
                };
            }
            _ => {}
        }
        if let Ok(value) = i.try_immediate(n) {
            return cut(value);
        }
    }
    0
}
