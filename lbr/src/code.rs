//! What the program's code says of its branch records: their kinds, and where a branch is that the processor fused
//! with the instruction before it.

use crate::kind::Kind;
use crate::trail::Trail;
use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic};

/// The longest instruction.
const MAX_INSTRUCTION: usize = 15;

/// Corrects records of AMD's stack whose FROM is an instruction that was fused with the conditional branch behind
/// it (AMD64 APM vol. 2, 13.1.1.9). `code` fills a buffer with the bytes at an address and gives their number.
/// Gives the number of records that were corrected.
///
/// As Linux does it (arch/x86/events/utils.c, `get_branch_type`), a branch is looked for in the next fifteen bytes;
/// here it must be one that leads to where the record went.
pub fn correct_fusion(trail: &mut Trail, code: impl Fn(u64, &mut [u8]) -> usize) -> usize {
    let mut corrected = 0;
    for record in &mut trail.records {
        let mut bytes = [0; MAX_INSTRUCTION];
        let len = code(record.from, &mut bytes).min(bytes.len());
        let mut decoder = Decoder::with_ip(64, &bytes[..len], record.from, DecoderOptions::NONE);
        let branch =
            decoder.iter().take_while(|i| !i.is_invalid()).find(|i| i.flow_control() != FlowControl::Next);
        if let Some(branch) = branch
            && branch.ip() != record.from
            && branch.flow_control() == FlowControl::ConditionalBranch
            && branch.near_branch_target() == record.to
        {
            record.from = branch.ip();
            corrected += 1;
        }
    }
    corrected
}

/// Tells the kinds of records that have none, from the instruction where the branch is. What leaves the program for
/// its kernel and is no instruction that does is an interrupt, as for Linux.
pub fn name_kinds(trail: &mut Trail, code: impl Fn(u64, &mut [u8]) -> usize) {
    for record in trail.records.iter_mut().filter(|record| record.kind.is_none()) {
        let mut bytes = [0; MAX_INSTRUCTION];
        let len = code(record.from, &mut bytes).min(bytes.len());
        let mut decoder = Decoder::with_ip(64, &bytes[..len], record.from, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let is_kernel = |address: u64| address >> 63 != 0;
        let enters_kernel = !is_kernel(record.from) && is_kernel(record.to);
        record.kind = match (decoder.last_error(), kind(&instruction)) {
            (DecoderError::None, Some(kind @ (Kind::Syscall | Kind::Far))) => Some(kind),
            _ if enters_kernel => Some(Kind::Interrupt),
            (DecoderError::None, kind) => kind,
            _ => None,
        };
    }
}

/// The kind of branch that an instruction is, if it is one.
#[must_use]
pub fn kind(instruction: &Instruction) -> Option<Kind> {
    use Mnemonic::{
        Int, Int1, Int3, Into, Iret, Iretd, Iretq, Syscall, Sysenter, Sysexit, Sysexitq, Sysret, Sysretq,
    };
    let far = instruction.is_call_far()
        || instruction.is_call_far_indirect()
        || instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect();
    match (instruction.mnemonic(), instruction.flow_control()) {
        (Syscall | Sysenter, _) => Some(Kind::Syscall),
        (Sysret | Sysretq | Sysexit | Sysexitq, _) => Some(Kind::Sysret),
        (Iret | Iretd | Iretq, _) => Some(Kind::Iret),
        (Int | Int1 | Int3 | Into | Mnemonic::Retf, _) => Some(Kind::Far),
        _ if far => Some(Kind::Far),
        (_, FlowControl::ConditionalBranch) => Some(Kind::Conditional),
        (_, FlowControl::UnconditionalBranch) => Some(Kind::RelativeJump),
        (_, FlowControl::IndirectBranch) => Some(Kind::IndirectJump),
        (_, FlowControl::Call) => Some(Kind::RelativeCall),
        (_, FlowControl::IndirectCall) => Some(Kind::IndirectCall),
        (_, FlowControl::Return) => Some(Kind::Return),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trail::{BranchRecord, Family, Provenance};

    /// cmp eax, ebx; je +0x10; call rax; ret; syscall; int3; jmp far [rax]; jmp rax; jmp +0; iretq; bad.
    const CODE: &[u8] = &[
        0x39, 0xd8, 0x74, 0x10, 0xff, 0xd0, 0xc3, 0x0f, 0x05, 0xcc, 0xff, 0x28, 0xff, 0xe0, 0xeb, 0x00, 0x48,
        0xcf, 0x06,
    ];

    fn code(address: u64, buffer: &mut [u8]) -> usize {
        let rest = usize::try_from(address.wrapping_sub(0x1000))
            .ok()
            .and_then(|at| CODE.get(at..))
            .unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        len
    }

    fn trail(branches: &[(u64, u64)]) -> Trail {
        Trail {
            records: branches.iter().map(|(from, to)| BranchRecord::new(*from, *to)).collect(),
            depth: 16,
            filter: None,
            provenance: Provenance::Hardware,
            family: Family::AmdV2,
        }
    }

    #[test]
    fn a_fused_comparison_is_followed_to_its_branch() {
        // The comparison that was fused; the branch itself; one that leads elsewhere; a fault at the comparison.
        let mut found = trail(&[(0x1000, 0x1014), (0x1002, 0x1014), (0x1000, 0x2000), (0x1000, u64::MAX)]);
        assert_eq!(correct_fusion(&mut found, code), 1);
        assert_eq!(
            found.records.iter().map(|r| r.from).collect::<Vec<_>>(),
            [0x1002, 0x1002, 0x1000, 0x1000]
        );
        assert_eq!(correct_fusion(&mut trail(&[(0x9000, 0x1014)]), code), 0, "no code there");
    }

    #[test]
    fn kinds_are_those_of_the_instructions() {
        use Kind::*;
        let kernel = 0xffff_ffff_8100_0000;
        let cases = [
            (0x1000, 0x1014, None),
            (0x1002, 0x1014, Some(Conditional)),
            (0x1004, 0x2000, Some(IndirectCall)),
            (0x1006, 0x2000, Some(Return)),
            (0x1007, kernel, Some(Syscall)),
            (0x1009, kernel, Some(Far)),
            (0x100a, 0x2000, Some(Far)),
            (0x100c, 0x2000, Some(IndirectJump)),
            (0x100e, 0x1010, Some(RelativeJump)),
            (0x1010, 0x2000, Some(Iret)),
            (0x1000, kernel, Some(Interrupt)),
            (0x1012, 0x2000, None),
            (0x9000, kernel, Some(Interrupt)),
        ];
        let mut found = trail(&cases.map(|(from, to, _)| (from, to)));
        name_kinds(&mut found, code);
        for (record, (from, _, kind)) in found.records.iter().zip(cases) {
            assert_eq!(record.kind, kind, "{from:#x}");
        }
    }
}
