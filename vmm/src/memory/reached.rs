//! What is certainly code, where no table says it: what can be reached from an instruction that is executed.

use super::candidates::may_contain;
use crate::ram::Virt;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};
use std::collections::BTreeMap;
use std::ops::Range;

/// The instructions of `code`, which is at `start`, that can be reached from the one at `from` by direct jumps and calls, as ranges in
/// order that do not touch; none where nothing is that would be looked for. Calls are taken to return.
pub(super) fn reached(start: Virt, code: &[u8], from: Virt) -> Vec<Range<Virt>> {
    let all = start..start + code.len() as u64;
    if !may_contain(code, true) {
        return Vec::new();
    }
    let mut known: BTreeMap<Virt, Virt> = BTreeMap::new();
    let mut todo = vec![from];
    while let Some(mut at) = todo.pop() {
        while all.contains(&at) && !known.contains_key(&at) {
            let bytes = usize::try_from(at - start).ok().and_then(|from| code.get(from..)).unwrap_or(&[]);
            let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                break;
            }
            known.insert(at, instruction.next_ip());
            todo.extend(target(&instruction));
            if ends(&instruction) {
                break;
            }
            at = instruction.next_ip();
        }
    }
    let mut bodies: Vec<Range<Virt>> = Vec::new();
    for (at, end) in known {
        match bodies.last_mut() {
            Some(last) if at <= last.end => last.end = last.end.max(end),
            _ => bodies.push(at..end),
        }
    }
    bodies
}

/// Where the first instruction begins that is executed behind `start`, if the one at `rip`, of which these are the bytes, is executed
/// and has its last byte there.
pub(super) fn first_behind(start: Virt, rip: Virt, bytes: &[u8]) -> Virt {
    if rip >= start {
        return rip;
    }
    let instruction = Decoder::with_ip(64, bytes, rip, DecoderOptions::NONE).decode();
    if ends(&instruction) { rip } else { instruction.next_ip() }
}

/// Where a direct jump or call leads.
fn target(instruction: &Instruction) -> Option<Virt> {
    (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch64())
}

/// Whether what follows is not executed next.
fn ends(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Interrupt
            | FlowControl::Exception
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_calls_are_followed_and_data_is_not() {
        // jz cpuid; jmp rdtsc; (data); cpuid; ret; rdtsc; nop
        let code = [0x74, 0x03, 0xeb, 0x04, 0x0f, 0x0f, 0xa2, 0xc3, 0x0f, 0x31, 0x90];
        assert_eq!(reached(0x1000, &code, 0x1000), [0x1000..0x1004, 0x1005..0x100b]);
        assert_eq!(reached(0x1000, &code, 0x1007), std::slice::from_ref(&(0x1007..0x1008)));
        assert_eq!(reached(0x1000, &code, 0x2000), []);
        assert_eq!(reached(0x1000, &[0x90; 8], 0x1000), []);
    }

    #[test]
    fn an_instruction_that_begins_in_the_page_before_says_where_the_next_one_does() {
        // mov eax, 1; jmp
        assert_eq!(first_behind(0x1000, 0x1010, &[]), 0x1010);
        assert_eq!(first_behind(0x1000, 0xffd, &[0xb8, 1, 0, 0, 0, 0x90]), 0x1002);
        assert_eq!(first_behind(0x1000, 0xffd, &[0xe9, 1, 0, 0, 0, 0x90]), 0xffd);
    }
}
