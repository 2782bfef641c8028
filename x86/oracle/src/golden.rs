//! Outcomes in the terms of x86's golden cases, so that a finding can be kept as one.

use crate::campaign::Finding;
use crate::case::{Ending, Image, Outcome};
use crate::dont_care;
use crate::layout::{CODE, DATA, WRITABLE};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use x86::flags::Flag;
use x86::golden::{self, Situation};
use x86::op::Gpr;
use x86::state::{RFLAGS_FIXED, RFLAGS_IF, State};

/// The situation after a case that started from `image`; `None` if it wrote more than an outcome keeps.
#[must_use]
pub fn situation(image: &Image, outcome: &Outcome) -> Option<Situation> {
    const KNOWN_FLAGS: u64 = dont_care::COMPARED_FLAGS | RFLAGS_FIXED | RFLAGS_IF;
    let mut state = outcome.state;
    state.regs.rflags &= KNOWN_FLAGS;
    (state.fpu.opcode, state.fpu.instruction, state.fpu.data) = (0, 0, 0);
    let mut after = *image;
    for chunk in outcome.writes.first.get(..usize::try_from(outcome.writes.count).ok()?)? {
        let at = usize::try_from(chunk.offset).ok()?;
        after[at..at + chunk.bytes.len()].copy_from_slice(&chunk.bytes);
    }
    Some(Situation { state, memory: bytes(&after) })
}

/// The bytes that are not zero, of the data pages that golden cases have.
fn bytes(image: &Image) -> std::collections::BTreeMap<u64, u8> {
    (DATA..).zip(*image).take(WRITABLE).filter(|(_, byte)| *byte != 0).collect()
}

/// The situation that a golden case starts from where it says nothing.
fn usual() -> Situation {
    let mut state = State::default();
    state.regs.rip = CODE;
    state.regs.rflags = RFLAGS_FIXED | RFLAGS_IF;
    state.regs.gpr[usize::from(Gpr::RSP.0)] = golden::STACK;
    Situation { state, ..Situation::default() }
}

/// The finding as a line of a golden file, this processor's outcome being the expected one; `None` if a golden
/// case cannot say it: code elsewhere, a branch among several instructions, or memory that golden cases do not have.
#[must_use]
pub fn line(finding: &Finding) -> Option<String> {
    let case = &finding.case;
    let code: Vec<Instruction> =
        Decoder::with_ip(64, case.bytes(), CODE, DecoderOptions::NONE).into_iter().collect();
    let (first, branches) = (code.first()?, code.iter().any(|i| i.flow_control() != FlowControl::Next));
    if code.iter().any(Instruction::is_invalid) || code.len() > 1 && branches || case.state.regs.rip != CODE {
        return None;
    }
    if finding.image[WRITABLE..].iter().any(|byte| *byte != 0) {
        return None;
    }
    let before = Situation { state: case.state, memory: bytes(&finding.image) };
    let after = situation(&finding.image, &finding.native)?;
    let (trap, rip) = match finding.native.ending {
        Ending::Completed => (None, CODE + case.len as u64),
        Ending::Fault { vector, .. } => (Some(trap(vector)?), CODE),
        _ => return None,
    };
    let mut start = before.clone();
    start.state.regs.rip = rip;
    let mut words: Vec<String> = trap.into_iter().map(str::to_owned).collect();
    let retired = code.iter().take_while(|i| trap.is_none() || i.ip() < after.state.regs.rip);
    // What rcx is later on is not known here.
    let rcx =
        |i: &Instruction| (i.ip() == first.ip()).then_some(case.state.regs.gpr[usize::from(Gpr::RCX.0)]);
    let undefined = retired.fold(0, |undefined, i| {
        let kept = if dont_care::may_keep_flags(i) { 0 } else { dont_care::rflags(i.rflags_modified()) };
        undefined & !kept | dont_care::undefined(i, rcx(i)).flags
    });
    let mut defined = after;
    defined.state.regs.rflags = defined.state.regs.rflags & !undefined | start.state.regs.rflags & undefined;
    words.push(golden::difference(&start, &defined));
    let open = Flag::ALL.iter().filter(|flag| undefined >> flag.bit() & 1 != 0);
    words.extend(open.map(|flag| format!("{}=?", dont_care::flag_name(*flag).to_lowercase())));
    let hex: Vec<String> = case.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(
        "{} | {} | {} => {}",
        hex.join(" "),
        golden::disassemble(case.bytes()),
        golden::difference(&usual(), &before),
        words.join(" ").trim(),
    ))
}

fn trap(vector: u8) -> Option<&'static str> {
    Some(match vector {
        0 => "#DE",
        3 => "#BP",
        6 => "#UD",
        12 => "#SS",
        13 => "#GP",
        14 => "#PF",
        16 => "#MF",
        19 => "#XM",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Case, Writes};
    use crate::layout::DATA_SIZE;

    #[test]
    fn a_finding_reads_back_as_the_golden_case_that_it_is() {
        let mut before = usual().state;
        before.regs.gpr[0] = 0xf0f;
        before.regs.gpr[1] = DATA;
        let mut image = Box::new([0; DATA_SIZE]);
        image[0] = 0xff;
        let case = Case::new(&[0x23, 0x01], before).unwrap(); // and eax, [rcx]
        let mut state = before;
        state.regs.gpr[0] = 0xf;
        state.regs.rip += 2;
        state.regs.rflags |= 1 << Flag::Parity.bit();
        let native = Outcome { ending: Ending::Completed, state, writes: Writes::default() };
        let line =
            line(&Finding { case, image, native, differences: Vec::new(), kinds: Vec::new() }).unwrap();
        assert_eq!(line, "23 01 | and eax, [rcx] | rax=f0f rcx=10000 [10000]=ff => rax=f pf=1 af=?");
        let read = &golden::parse(&line).unwrap()[0];
        assert_eq!(read.before.state, before);
        assert_eq!(read.after.state, state);
    }
}
