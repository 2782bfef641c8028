//! Compares two outcomes of a case, but for what the table of don't-cares names.

use crate::case::{Case, Ending, Outcome};
use crate::dont_care::{self, COMPARED_FLAGS, Undefined};
use crate::interpreter::{Soft, Step};
use crate::layout::{MAILBOX, PAGE};
use crate::vendor;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
};
use x86::bus::PageFault;
use x86::op::Gpr;
use x86::state::{Fpu, State};

/// A place where two outcomes differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Register, flag set, memory or ending.
    pub place: String,
    /// What this processor did.
    pub native: String,
    /// What the semantics says.
    pub found: String,
}

/// Whether the outcomes can be compared at all.
#[must_use]
pub fn is_comparable(native: &Outcome, found: &Outcome) -> bool {
    let never =
        |outcome: &Outcome| matches!(outcome.ending, Ending::SystemCall | Ending::Lost | Ending::Unsupported);
    // The native half has a page there that the other has not.
    let is_mailbox = |outcome: &Outcome| match outcome.ending {
        Ending::Fault { address, .. } => address.wrapping_sub(MAILBOX) < PAGE as u64,
        _ => false,
    };
    // See the row of LDMXCSR in the table of don't-cares.
    let is_misaligned_mode = native.state.fpu.mxcsr & dont_care::MXCSR_MISALIGNED != 0;
    !never(native) && !never(found) && !is_misaligned_mode && !is_mailbox(found)
}

/// Whether the outcomes are the same without any don't-care; the quick answer for nearly every case.
#[must_use]
pub fn is_same(native: &Outcome, found: &Outcome) -> bool {
    native.ending == found.ending
        && visible(&native.state) == visible(&found.state)
        && native.writes == found.writes
}

/// The state without what is never compared.
fn visible(state: &State) -> State {
    let mut state = *state;
    state.regs.rflags &= COMPARED_FLAGS;
    state.fpu = Fpu { opcode: 0, instruction: 0, data: 0, ..state.fpu };
    state
}

/// The differences that count. `soft` holds the case's image; it runs the case again to see which instructions
/// retired, and so what they left undefined.
#[must_use]
pub fn differences(soft: &mut Soft, case: &Case, native: &Outcome, found: &Outcome) -> Vec<Difference> {
    let mut out = all_differences(soft, case, native, found);
    vendor::forgive(case, native, found, &mut out);
    out
}

/// The same with those that [`crate::vendor`] forgives.
pub(crate) fn all_differences(
    soft: &mut Soft,
    case: &Case,
    native: &Outcome,
    found: &Outcome,
) -> Vec<Difference> {
    let mut retired = soft.trace(case);
    retired.retain(|step| step.retired);
    let mut undefined = undefined_by(case, &retired);
    if is_interrupted_comparison(case, native) {
        undefined.flags = x86::flags::ARITHMETIC;
    }
    let mut out = Vec::new();
    if !endings_agree(case, native, found) {
        push(&mut out, "ending", &native.ending, &found.ending);
    }
    let destination = if undefined.destination { last(case, &retired) } else { None };
    states(&mut out, &visible(&native.state), &visible(&found.state), undefined.flags);
    if let Some(i) = &destination
        && i.op_kind(0) == OpKind::Register
    {
        let name = i.op_register(0).full_register();
        out.retain(|difference| difference.place != format!("{name:?}").to_lowercase());
    }
    let memory_is_undefined =
        destination.is_some_and(|i| i.op_kind(0) == OpKind::Memory) || is_interrupted_enter(case, native);
    if native.writes != found.writes && !memory_is_undefined {
        writes(&mut out, native, found);
    }
    out
}

fn push(
    out: &mut Vec<Difference>,
    place: &str,
    native: &impl core::fmt::Debug,
    found: &impl core::fmt::Debug,
) {
    out.push(Difference {
        place: place.to_owned(),
        native: format!("{native:x?}"),
        found: format!("{found:x?}"),
    });
}

fn states(out: &mut Vec<Difference>, native: &State, found: &State, undefined_flags: u64) {
    let mut number = |place: &str, native: u64, found: u64| {
        if native != found {
            push(out, place, &native, &found);
        }
    };
    for ((name, native), found) in Gpr::NAMES.iter().zip(native.regs.gpr).zip(found.regs.gpr) {
        number(name, native, found);
    }
    let defined = !undefined_flags;
    number("rip", native.regs.rip, found.regs.rip);
    number("rflags", native.regs.rflags & defined, found.regs.rflags & defined);
    number("fs_base", native.regs.fs_base, found.regs.fs_base);
    number("gs_base", native.regs.gs_base, found.regs.gs_base);
    let (native, found) = (&native.fpu, &found.fpu);
    number("mxcsr", native.mxcsr.into(), found.mxcsr.into());
    number("x87_control", native.control.into(), found.control.into());
    number("x87_status", native.status.into(), found.status.into());
    number("x87_tag", native.tag.into(), found.tag.into());
    for (n, (native, found)) in native.vector.iter().zip(&found.vector).enumerate() {
        if native != found {
            push(out, &format!("zmm{n}"), native, found);
        }
    }
    for (n, (native, found)) in native.opmask.iter().zip(&found.opmask).enumerate() {
        if native != found {
            push(out, &format!("k{n}"), native, found);
        }
    }
    for (n, (native, found)) in native.st.iter().zip(&found.st).enumerate() {
        if native != found {
            push(out, &format!("x87_{n}"), native, found);
        }
    }
}

fn writes(out: &mut Vec<Difference>, native: &Outcome, found: &Outcome) {
    let (a, b) = (&native.writes, &found.writes);
    for (a, b) in a.first.iter().zip(&b.first).filter(|(a, b)| a != b) {
        for (k, (x, y)) in (0_u32..).zip(a.bytes.iter().zip(&b.bytes)).filter(|(_, (x, y))| x != y) {
            let offset = a.offset.max(b.offset) + k;
            push(out, &format!("data+{offset:#x}"), x, y);
        }
    }
    if a.first == b.first || a.count != b.count {
        push(out, "changed 64-byte chunks", &(a.count, a.digest), &(b.count, b.digest));
    }
}

/// What the instructions of a run left undefined in the end.
fn undefined_by(case: &Case, retired: &[Step]) -> Undefined {
    let mut undefined = Undefined::default();
    for step in retired {
        let Some(i) = instruction_at(case, step.state.regs.rip) else { continue };
        let rcx = step.state.regs.gpr[usize::from(Gpr::RCX.0)];
        let own = dont_care::undefined(&i, Some(rcx));
        if !dont_care::may_keep_flags(&i) {
            undefined.flags &= !dont_care::rflags(i.rflags_modified());
        }
        undefined.flags |= own.flags;
        undefined.destination = own.destination;
    }
    undefined
}

fn last(case: &Case, retired: &[Step]) -> Option<Instruction> {
    instruction_at(case, retired.last()?.state.regs.rip)
}

/// The instruction of `case` at an address in it.
pub(crate) fn instruction_at(case: &Case, rip: u64) -> Option<Instruction> {
    let at = usize::try_from(rip.checked_sub(case.state.regs.rip)?).ok()?;
    let i = Decoder::with_ip(64, case.bytes().get(at..)?, rip, DecoderOptions::NONE).decode();
    (!i.is_invalid()).then_some(i)
}

/// Endings agree if they are equal but for what [`dont_care::FAULT_LATITUDE`] names.
fn endings_agree(case: &Case, native: &Outcome, found: &Outcome) -> bool {
    let (
        Ending::Fault { vector: v, error: e, address: a },
        Ending::Fault { vector: w, error: f, address: b },
    ) = (native.ending, found.ending)
    else {
        return native.ending == found.ending;
    };
    let i = instruction_at(case, native.state.regs.rip);
    let is_cut = case.end().is_none() && matches!((v, w), (PAGE_FAULT, UNDEFINED) | (UNDEFINED, PAGE_FAULT));
    let is_long = case.len > LONGEST && (v, w) == (GENERAL, UNDEFINED);
    if i.is_none() && (is_cut || is_long) {
        return true;
    }
    if (v, a) != (w, b) {
        let is_at_the_end = (USER_END..=USER_LAST).contains(&a.max(b));
        return is_at_the_end && are_accesses(v, w) || i.is_some_and(|i| both_may_fault(&i, v, w));
    }
    // Only a page fault's error code says something about the access.
    let is_same_access = v != PAGE_FAULT || (e ^ f) & !ignored_error_bits(a) == 0;
    is_same_access || i.is_some_and(|i| i.mnemonic() == Mnemonic::Enter)
}

const UNDEFINED: u8 = 6;
const GENERAL: u8 = 13;
const PAGE_FAULT: u8 = 14;
/// The most bytes that an instruction may have.
const LONGEST: usize = 15;
/// Linux gives no program the last page below the non-canonical addresses.
const USER_END: u64 = 0x7fff_ffff_f000;
/// The last canonical address below.
const USER_LAST: u64 = 0x7fff_ffff_ffff;

/// Whether both vectors are those of faulty accesses: #SS, #GP, #PF.
fn are_accesses(v: u8, w: u8) -> bool {
    let is_access = |vector| matches!(vector, 12 | 13 | PAGE_FAULT);
    is_access(v) && is_access(w)
}

/// Beyond the user's addresses the present bit is the host kernel's business.
fn ignored_error_bits(address: u64) -> u32 {
    if address >= USER_END { PageFault::PRESENT } else { 0 }
}

/// Whether `i` makes two accesses and the vectors are those of accesses.
fn both_may_fault(i: &Instruction, v: u8, w: u8) -> bool {
    let accesses: u32 = InstructionInfoFactory::new()
        .info(i)
        .used_memory()
        .iter()
        .map(|used| match used.access() {
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => 2,
            OpAccess::None | OpAccess::NoMemAccess => 0,
            _ => 1,
        })
        .sum();
    // An indirect call fetches from its target, too, and ENTER tries the new top of the stack.
    let is_more = i.flow_control() == FlowControl::IndirectCall || i.mnemonic() == Mnemonic::Enter;
    let accesses = accesses + u32::from(is_more);
    accesses > 1 && are_accesses(v, w)
}

/// An ENTER that faulted.
fn is_interrupted_enter(case: &Case, native: &Outcome) -> bool {
    let i = instruction_at(case, native.state.regs.rip);
    native.ending != Ending::Completed && i.is_some_and(|i| i.mnemonic() == Mnemonic::Enter)
}

/// A repeated comparison that a fault interrupted.
fn is_interrupted_comparison(case: &Case, native: &Outcome) -> bool {
    let is_comparison = |i: &Instruction| {
        let comparisons = [
            [Mnemonic::Cmpsb, Mnemonic::Cmpsw, Mnemonic::Cmpsd, Mnemonic::Cmpsq],
            [Mnemonic::Scasb, Mnemonic::Scasw, Mnemonic::Scasd, Mnemonic::Scasq],
        ];
        i.is_string_instruction() && comparisons.as_flattened().contains(&i.mnemonic())
    };
    let faulted = matches!(native.ending, Ending::Fault { .. });
    faulted && instruction_at(case, native.state.regs.rip).is_some_and(|i| is_comparison(&i))
}
