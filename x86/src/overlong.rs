//! Instructions of more than 15 bytes: #GP, before it matters whether they are instructions at all.

use iced_x86::{Decoder, DecoderError, DecoderOptions};

/// Longest x86 instruction in bytes.
use crate::decode::MAX_INSTRUCTION;
/// The first byte of the EVEX prefix, in 64-bit mode.
const EVEX: u8 = 0x62;

/// Whether the instruction that `bytes` begin with goes on behind the longest that there can be.
pub(crate) fn is_too_long(bytes: &[u8]) -> bool {
    evex_length(bytes).map_or_else(|| needs_more(bytes), |length| length > MAX_INSTRUCTION)
}

/// The same as iced finds it: too many bytes are invalid to it, so that one less must be too few.
fn needs_more(bytes: &[u8]) -> bool {
    let failure = |len: usize| {
        let bytes = &bytes[..bytes.len().min(len)];
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NO_INVALID_CHECK);
        decoder.decode().is_invalid().then(|| decoder.last_error())
    };
    failure(MAX_INSTRUCTION).is_some() && failure(MAX_INSTRUCTION - 1) == Some(DecoderError::NoMoreBytes)
}

/// How long the instruction with an EVEX prefix is that `bytes` begin with, if it is one. To iced it ends where it shows
/// that there is none such: behind LOCK, a mandatory prefix or REX, or with an opcode that is not defined. Processors
/// read it to its end, by the form that all have: EVEX (4), opcode, ModRM, SIB, displacement, and in some maps an
/// immediate. (AMD's stop at an EVEX right behind REX, and at some opcodes.)
fn evex_length(bytes: &[u8]) -> Option<usize> {
    let prefixes = bytes.iter().take_while(|byte| is_prefix(**byte)).count();
    let evex = bytes.get(prefixes..).filter(|rest| rest.first() == Some(&EVEX))?;
    // What is not there any more is behind the end of the longest.
    let at = |n: usize| evex.get(n).copied().unwrap_or(0);
    let (map, opcode, modrm) = (at(1) & 7, at(4), at(5));
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let sib = usize::from(mode != 3 && rm == 4);
    let base = if sib == 1 { at(6) & 7 } else { rm };
    let displacement = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (1, _) => 1,
        _ => 0,
    };
    let immediate = match map {
        1 => matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6),
        map => map & 3 == 3,
    };
    Some(prefixes + 6 + sib + displacement + usize::from(immediate))
}

/// LOCK, REPNE, REP, segments, operand size, address size, REX.
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0xf0 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64..=0x67 | 0x40..=0x4f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_prefixes_are_too_long() {
        let nop = |prefixes: usize| [vec![0x66; prefixes], vec![0x90; 4]].concat();
        assert!(!is_too_long(&nop(14)));
        assert!(is_too_long(&nop(15)));
    }

    /// An Intel Xeon raised #GP for the first eight bytes of the first; an AMD EPYC for the others.
    #[test]
    fn evex_behind_prefixes_is_read_to_its_end() {
        let too_long: [&[u8]; 4] = [
            &[0xf0, 0x66, 0x42, 0x4f, 0x4d, 0x64, 0x4e, 0x62, 0xf1, 0x7c, 0x48, 0x58, 0x84, 0x82, 1, 2, 3, 4],
            &[
                0x64, 0x40, 0x65, 0x2e, 0x40, 0x40, 0x36, 0x62, 0xf9, 0xfd, 0x5e, 0x84, 0x82, 0xd1, 0x51,
                0x45, 0x7e,
            ],
            &[
                0xf0, 0x65, 0x42, 0x26, 0x36, 0x26, 0x67, 0xf0, 0x62, 0xde, 0x54, 0x4e, 0x97, 0x8b, 0xb9,
                0x44, 0xa1, 0x21,
            ],
            &[
                0x67, 0xf3, 0xf2, 0xf3, 0x26, 0x67, 0xf0, 0x2e, 0x26, 0x62, 0x57, 0x3b, 0xca, 0xb3, 0xda,
                0xc9, 0xd5,
            ],
        ];
        for bytes in too_long {
            assert!(is_too_long(bytes), "{bytes:02x?}");
        }
        // One prefix, and vaddps zmm0, zmm0, [r10+rax*4+04030201h].
        assert!(!is_too_long(&[0xf0, 0x62, 0xf1, 0x7c, 0x48, 0x58, 0x84, 0x82, 1, 2, 3, 4]));
    }
}
