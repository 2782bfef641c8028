//! Where processors differ and the manuals leave it to them, or one vendor documents what the other does not:
//! the semantics has one behaviour, and the processors of the other kind are forgiven theirs.
//!
//! Two tables: [`FORGIVEN`] (differences that are not counted) and [`NOT_ON_AMD`] (instructions that are compared
//! only on processors that do what the semantics has). A difference is forgiven where the instruction runs alone;
//! [`crate::shrink`] takes a block apart to find out, since what follows in it differs by then for good.

use crate::case::{Case, Ending, Outcome};
use crate::compare::{Difference, instruction_at};
use crate::host;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind};
use x86::op::Gpr;
use x86::state::Fpu;

use Mnemonic as M;

/// One instruction and what became of it.
struct View<'a> {
    instruction: Instruction,
    case: &'a Case,
    native: &'a Outcome,
    found: &'a Outcome,
}

/// A row of [`FORGIVEN`].
pub struct Row {
    /// What differs, and who does what.
    pub reason: &'static str,
    concerns: fn(&Instruction) -> bool,
    forgives: fn(&View<'_>, &Difference) -> bool,
}

/// Differences that are not counted.
pub const FORGIVEN: &[Row] = &[
    Row {
        reason: "the upper halves of rcx, rsi and rdi after a string instruction with 32-bit addresses that made no \
                 iteration: Intel clears them, AMD keeps them",
        concerns: Instruction::is_string_instruction,
        forgives: |view, difference| {
            is_narrow_string(&view.instruction) && only_upper_half_differs(view, difference)
        },
    },
    Row {
        reason: "memory below the stack after an indirect call whose target is not canonical: Intel has pushed",
        concerns: |i| i.is_call_near_indirect(),
        forgives: |view, difference| is_fault(view.native, GENERAL) && is_memory(difference),
    },
    Row {
        reason: "memory after an FSTP of 80 bits or FBSTP that faults on its second page: Intel has stored the first",
        concerns: |i| matches!(i.code(), Code::Fstp_m80fp | Code::Fbstp_m80bcd),
        forgives: |view, difference| is_fault(view.native, PAGE) && is_memory(difference),
    },
    Row {
        reason: "an x87 store that both faults and meets an exception that is not masked: Intel holds it back before \
                 it looks at the page, AMD after",
        concerns: |i| matches!(i.mnemonic(), M::Fst | M::Fstp | M::Fist | M::Fistp | M::Fisttp | M::Fbstp),
        forgives: |view, _| is_access_fault(view.found) && has_summary(&view.native.state.fpu),
    },
    Row {
        reason: "TOP and the tags after an MMX instruction whose store faults, or that meets a SIMD exception that is not \
                 masked: Intel has already made TOP zero, and with the latter the registers valid",
        concerns: |i| (0..i.op_count()).any(|n| i.op_register(n).is_mm()),
        forgives: |view, difference| {
            let has_fault = is_access_fault(view.native) || is_fault(view.native, SIMD);
            has_fault && is_switch(view, difference)
        },
    },
    Row {
        reason: "FSCALE, FPREM and FPREM1 that leave a denormal as it is, underflow not masked: AMD raises it",
        concerns: |i| matches!(i.mnemonic(), M::Fscale | M::Fprem | M::Fprem1),
        forgives: |view, _| {
            const UNDERFLOW: u16 = 1 << 4;
            let before = &view.case.state.fpu;
            let top = usize::from(before.status >> 11 & 7);
            before.control & UNDERFLOW == 0 && view.native.state.fpu.st[top] == before.st[top]
        },
    },
    Row {
        reason: "the last place of FSIN, FCOS, FSINCOS, FPTAN, FPATAN, F2XM1, FYL2X and FYL2XP1, and so C1, and whether a \
                 result next to the smallest normal number underflows: the semantics rounds the exact value, processors \
                 something that is near it",
        concerns: is_transcendental,
        forgives: |view, difference| is_last_place(view, difference) || is_only_rounding(view, difference),
    },
    Row {
        reason: "whether VCVTPS2PH that raises an underflow has set PE as well: Intel does, AMD does not",
        concerns: |i| i.mnemonic() == M::Vcvtps2ph,
        forgives: |view, difference| {
            const PRECISION: u32 = 1 << 5;
            let [native, found] = [view.native, view.found].map(|outcome| outcome.state.fpu.mxcsr);
            is_fault(view.native, SIMD) && difference.place == "mxcsr" && native ^ found == PRECISION
        },
    },
    Row {
        reason: "which NaN DPPS and DPPD keep of several: the manuals want at least one",
        concerns: |i| matches!(i.mnemonic(), M::Dpps | M::Dppd | M::Vdpps | M::Vdppd),
        forgives: only_nans_differ,
    },
    Row {
        reason: "which byte of the page a page fault of a masked access names",
        concerns: is_masked_access,
        forgives: |view, difference| difference.place == "ending" && is_same_page(view),
    },
    Row {
        reason: "what a gather that faults has loaded, and of which element the fault is: Intel keeps what it has, AMD begins \
                 again",
        concerns: is_gather,
        forgives: |view, _| is_access_fault(view.native) && is_access_fault(view.found),
    },
    Row {
        reason: "which of its bytes a fault of MASKMOVDQU, FXSAVE, FXRSTOR, FNSTENV or FNSAVE names: Intel tries the last first",
        concerns: |i| {
            let is_mask = matches!(i.mnemonic(), M::Maskmovdqu | M::Vmaskmovdqu);
            let is_image = matches!(i.mnemonic(), M::Fnstenv | M::Fnsave | M::Fxrstor | M::Fxrstor64);
            is_mask || is_image || is_fxsave(i, &[])
        },
        forgives: |view, _| is_access_fault(view.native) && is_access_fault(view.found),
    },
];

fn is_gather(i: &Instruction) -> bool {
    let floats = matches!(i.mnemonic(), M::Vgatherdps | M::Vgatherdpd | M::Vgatherqps | M::Vgatherqpd);
    floats || matches!(i.mnemonic(), M::Vpgatherdd | M::Vpgatherdq | M::Vpgatherqd | M::Vpgatherqq)
}

/// Whether an instruction of SHA has an operand in memory.
fn is_sha_of_memory(i: &Instruction) -> bool {
    let one = matches!(i.mnemonic(), M::Sha1msg1 | M::Sha1msg2 | M::Sha1nexte | M::Sha1rnds4);
    let sha = one || matches!(i.mnemonic(), M::Sha256msg1 | M::Sha256msg2 | M::Sha256rnds2);
    sha && (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory)
}

/// Whether an instruction accesses the lanes that a vector or an opmask names.
fn is_masked_access(i: &Instruction) -> bool {
    let by_sign = matches!(i.mnemonic(), M::Vmaskmovps | M::Vmaskmovpd | M::Vpmaskmovd | M::Vpmaskmovq);
    by_sign || i.has_op_mask()
}

/// Whether both ended in a page fault of the same page.
fn is_same_page(view: &View<'_>) -> bool {
    let page = |outcome: &Outcome| match outcome.ending {
        Ending::Fault { vector: PAGE, error, address } => Some((error, address >> 12)),
        _ => None,
    };
    page(view.native).is_some_and(|native| page(view.found) == Some(native))
}

/// Whether an instruction, and the code that it begins, is one that a row is about.
pub type Concerns = fn(&Instruction, &[u8]) -> bool;

/// Instructions that mean something else on AMD's processors than the semantics has.
pub const NOT_ON_AMD: &[(&str, Concerns)] = &[
    ("UD0 and UD1: Intel fetches a ModRM byte before it raises #UD, AMD does not", |i, _| {
        matches!(i.mnemonic(), M::Ud0 | M::Ud1)
    }),
    ("RCPPS, RCPSS, RSQRTPS and RSQRTSS: the semantics has Intel's approximations", |i, _| {
        let short = matches!(i.mnemonic(), M::Rcpps | M::Rcpss | M::Rsqrtps | M::Rsqrtss);
        short || matches!(i.mnemonic(), M::Vrcpps | M::Vrcpss | M::Vrsqrtps | M::Vrsqrtss)
    }),
    (
        "near branches with an operand-size prefix: Intel ignores it, AMD cuts rip to 16 bits",
        is_narrow_branch,
    ),
    ("0F 0D with a register operand: Intel runs it as NOP, AMD raises #UD", |i, _| {
        matches!(
            i.code(),
            Code::Reservednop_rm16_r16_0F0D
                | Code::Reservednop_rm32_r32_0F0D
                | Code::Reservednop_rm64_r64_0F0D
        )
    }),
    ("FXSAVE: AMD leaves the pointers of the last x87 instruction in memory as they are", is_fxsave),
    ("MOVSXD to a 16-bit register: Intel reads 16 bits, AMD 32", |i, _| i.code() == Code::Movsxd_r16_rm16),
    ("SYSEXIT: AMD has it not in 64-bit mode, and raises #UD", |i, _| {
        matches!(i.mnemonic(), M::Sysexit | M::Sysexitq)
    }),
    ("SHA with an operand in memory: Intel wants it aligned, AMD does not", |i, _| is_sha_of_memory(i)),
    (
        "VCVTPS2PH to memory: Intel raises exceptions of the numbers before it looks at the page, AMD after",
        |i, _| i.mnemonic() == M::Vcvtps2ph && i.op0_kind() == OpKind::Memory,
    ),
    ("VREDUCEPS and its kin: AMD raises other exceptions for denormal numbers", |i, _| {
        matches!(i.mnemonic(), M::Vreduceps | M::Vreducepd | M::Vreducess | M::Vreducesd)
    }),
    ("PAUSE with more prefixes: with REX.B, AMD takes it for XCHG r8d, eax", |i, _| {
        i.mnemonic() == M::Pause && i.len() > 2
    }),
];

/// What `i`, whose bytes begin `code`, is of [`NOT_ON_AMD`], if this host is AMD's.
pub(crate) fn another_meaning(i: &Instruction, code: &[u8]) -> Option<&'static str> {
    let found = NOT_ON_AMD.iter().find(|(_, concerns)| host::is_amd() && concerns(i, code));
    found.map(|(reason, _)| *reason)
}

/// Takes out the differences that are forgiven, if `case` is a single instruction.
pub(crate) fn forgive(case: &Case, native: &Outcome, found: &Outcome, differences: &mut Vec<Difference>) {
    // VEX and EVEX with bits that are reserved: Intel raises #UD, AMD ignores some.
    let Some(instruction) = instruction_at(case, case.state.regs.rip) else {
        if host::is_amd() && matches!(native.ending, Ending::Completed) {
            differences.clear();
        }
        return;
    };
    if instruction.len() != case.len {
        return;
    }
    let view = View { instruction, case, native, found };
    for row in FORGIVEN.iter().filter(|row| (row.concerns)(&view.instruction)) {
        differences.retain(|difference| !(row.forgives)(&view, difference));
    }
}

const GENERAL: u8 = 13;
const PAGE: u8 = 14;
const SIMD: u8 = 19;

fn is_fault(outcome: &Outcome, vector: u8) -> bool {
    matches!(outcome.ending, Ending::Fault { vector: v, .. } if v == vector)
}

/// Whether it ended in #SS, #GP or #PF.
fn is_access_fault(outcome: &Outcome) -> bool {
    matches!(outcome.ending, Ending::Fault { vector: 12..=14, .. })
}

/// Whether an x87 exception is pending.
fn has_summary(fpu: &Fpu) -> bool {
    u64::from(fpu.status) & x86::opaque::status::SUMMARY != 0
}

/// Whether nothing differs but that natively TOP is zero or all x87 registers are valid.
fn is_switch(view: &View<'_>, difference: &Difference) -> bool {
    const TOP: u64 = x86::opaque::status::TOP;
    let [native, found] = [view.native, view.found].map(|outcome| u64::from(outcome.state.fpu.status));
    match difference.place.as_str() {
        "x87_status" => native == found & !TOP,
        "x87_tag" => view.native.state.fpu.tag == 0xff,
        _ => false,
    }
}

fn is_memory(difference: &Difference) -> bool {
    difference.place.starts_with("data+") || difference.place.starts_with("changed")
}

fn is_narrow_string(i: &Instruction) -> bool {
    use OpKind::{MemoryESEDI, MemorySegEDI, MemorySegESI};
    i.op_kinds().any(|kind| matches!(kind, MemorySegESI | MemorySegEDI | MemoryESEDI))
}

fn only_upper_half_differs(view: &View<'_>, difference: &Difference) -> bool {
    let Some(n) = Gpr::NAMES.iter().position(|name| *name == difference.place) else { return false };
    (view.native.state.regs.gpr[n] ^ view.found.state.regs.gpr[n]) << 32 == 0
}

fn is_fxsave(i: &Instruction, _: &[u8]) -> bool {
    matches!(i.mnemonic(), M::Fxsave | M::Fxsave64)
}

fn is_transcendental(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        M::Fsin | M::Fcos | M::Fsincos | M::Fptan | M::Fpatan | M::F2xm1 | M::Fyl2x | M::Fyl2xp1
    )
}

/// Whether an x87 register differs by one in its last place, which may be what makes one of the two a result that is too
/// small: with that exception unmasked its exponent is larger by 0x6000 (Intel SDM vol. 1, 8.5.5).
fn is_last_place(view: &View<'_>, difference: &Difference) -> bool {
    let register = difference.place.strip_prefix("x87_").and_then(|n| n.parse::<usize>().ok());
    let Some(n) = register.filter(|n| *n < 8) else { return false };
    let unscaled = |outcome: &Outcome| {
        let fpu = &outcome.state.fpu;
        let (significand, sign_exponent) = fpu.st[n];
        let is_scaled = u64::from(fpu.status & !fpu.control) & x86::opaque::exception::UNDERFLOW != 0;
        let exponent = sign_exponent & 0x7fff;
        match exponent.checked_sub(0x6000).filter(|_| is_scaled) {
            Some(exponent) => (significand, sign_exponent & 0x8000 | exponent),
            None => (significand, sign_exponent),
        }
    };
    let [a, b] = [view.native, view.found].map(unscaled);
    // The integer bit is not part of the order: as one number, sign and exponent above the fraction count upwards.
    let key = |(significand, sign_exponent): (u64, u16)| {
        u128::from(sign_exponent) << 63 | u128::from(significand << 1 >> 1)
    };
    key(a).abs_diff(key(b)) <= 1
}

fn is_only_rounding(view: &View<'_>, difference: &Difference) -> bool {
    const ROUNDING: u64 = x86::opaque::status::C1 | x86::opaque::exception::UNDERFLOW;
    let [a, b] = [view.native, view.found].map(|outcome| u64::from(outcome.state.fpu.status));
    difference.place == "x87_status" && (a ^ b) & !ROUNDING == 0
}

/// Whether every lane of the register that differs is a NaN in both.
fn only_nans_differ(view: &View<'_>, difference: &Difference) -> bool {
    let is_double = matches!(view.instruction.mnemonic(), M::Dppd | M::Vdppd);
    let is_nan = |part: u64, lane: u32| match is_double {
        true => part << 1 > 0x7ff0_0000_0000_0000 << 1,
        false => part >> (32 * lane) << 33 > 0x7f80_0000 << 33,
    };
    let Some(n) = difference.place.strip_prefix("zmm").and_then(|n| n.parse::<usize>().ok()) else {
        return false;
    };
    let mut parts = view.native.state.fpu.vector[n].into_iter().zip(view.found.state.fpu.vector[n]);
    parts.all(|(a, b)| {
        (0..2).all(|lane| (a ^ b) >> (32 * lane) & 0xffff_ffff == 0 || is_nan(a, lane) && is_nan(b, lane))
    })
}

/// Whether the bytes are a near branch with an operand-size prefix; iced does not keep it, since Intel ignores it.
pub(crate) fn is_narrow_branch(i: &Instruction, code: &[u8]) -> bool {
    const OTHERS: [u8; 10] = [0x67, 0xf0, 0xf2, 0xf3, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65];
    let is_prefix = |byte: &u8| *byte == 0x66 || OTHERS.contains(byte) || (0x40..0x50).contains(byte);
    i.flow_control() != FlowControl::Next
        && code.iter().take_while(|byte| is_prefix(byte)).any(|byte| *byte == 0x66)
}
