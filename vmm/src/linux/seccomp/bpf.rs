//! Classic BPF as seccomp takes it: which programs are valid (`bpf_check_classic` of net/core/filter.c, `seccomp_check_filter`
//! of kernel/seccomp.c), and what they answer.

use crate::plain::{In, Out, Plain};
use crate::ram::Virt;

/// Instructions of one program (BPF_MAXINSNS).
pub(super) const LONGEST: usize = 4096;
/// AUDIT_ARCH_X86_64.
const ARCHITECTURE: u32 = 0xc000_003e;
/// The size of `struct seccomp_data`.
const DATA_SIZE: u32 = 64;
/// Words of scratch memory.
const SCRATCH: usize = 16;

/// A system call, as a filter sees it.
pub(super) struct Data {
    pub(super) number: u32,
    /// Behind the call.
    pub(super) address: Virt,
    pub(super) arguments: [u64; 6],
}

impl Data {
    /// The 32-bit word at an offset of `struct seccomp_data`, which is a multiple of four below its size.
    fn word(&self, offset: u32) -> u32 {
        let half = |value: u64| {
            let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
            u32::from_le_bytes(if offset & 4 == 0 { [a, b, c, d] } else { [e, f, g, h] })
        };
        match offset {
            0 => self.number,
            4 => ARCHITECTURE,
            8 | 12 => half(self.address),
            _ => half(self.arguments.get((offset as usize - 16) / 8).copied().unwrap_or(0)),
        }
    }
}

/// An instruction of `struct sock_filter`.
#[derive(Clone, Copy)]
struct Instruction {
    code: u16,
    /// How many instructions are skipped where a condition holds, and where it does not.
    jumps: [u8; 2],
    k: u32,
}

impl Instruction {
    fn of(word: u64) -> Instruction {
        let [c0, c1, if_true, if_false, k @ ..] = word.to_le_bytes();
        Instruction {
            code: u16::from_le_bytes([c0, c1]),
            jumps: [if_true, if_false],
            k: u32::from_le_bytes(k),
        }
    }
}

/// Codes (linux/bpf_common.h), as far as a filter of system calls may have them.
mod code {
    pub(super) const LOAD_WORD: u16 = 0x20;
    pub(super) const LOAD_LENGTH: u16 = 0x80;
    pub(super) const LOAD: u16 = 0x00;
    pub(super) const LOAD_SCRATCH: u16 = 0x60;
    pub(super) const INDEX_LENGTH: u16 = 0x81;
    pub(super) const INDEX: u16 = 0x01;
    pub(super) const INDEX_SCRATCH: u16 = 0x61;
    pub(super) const STORE: u16 = 0x02;
    pub(super) const STORE_INDEX: u16 = 0x03;
    pub(super) const RETURN: u16 = 0x06;
    pub(super) const RETURN_A: u16 = 0x16;
    pub(super) const TO_INDEX: u16 = 0x07;
    pub(super) const FROM_INDEX: u16 = 0x87;
    pub(super) const JUMP: u16 = 0x05;
    pub(super) const NEGATE: u16 = 0x84;
    /// The class of arithmetic, and of conditional jumps, the bit for "with X", and the operation's bits.
    pub(super) const ARITHMETIC: u16 = 0x04;
    pub(super) const CONDITION: u16 = 0x05;
    pub(super) const CLASS: u16 = 0x07;
    pub(super) const WITH_INDEX: u16 = 0x08;
    pub(super) const OPERATION: u16 = 0xf0;
}

/// A valid program.
#[derive(Debug, PartialEq)]
pub(in crate::linux) struct Filter {
    /// Instructions as `struct sock_filter` has them, little-endian.
    words: Vec<u64>,
}

impl Plain for Filter {
    fn put(&self, out: &mut Out) {
        self.words.put(out);
    }

    fn take(from: &mut In<'_>) -> Option<Self> {
        Filter::new(Vec::take(from)?)
    }
}

impl Filter {
    /// A program, if it is valid: each instruction known, each jump inside, a return at the end.
    pub(super) fn new(words: Vec<u64>) -> Option<Filter> {
        let count = words.len();
        let is_valid = |(at, word): (usize, &u64)| is_valid(Instruction::of(*word), count - at - 1);
        let returns = matches!(Instruction::of(*words.last()?).code, code::RETURN | code::RETURN_A);
        (count <= LONGEST && returns && words.iter().enumerate().all(is_valid)).then_some(Filter { words })
    }

    /// How many instructions it has.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Its answer.
    pub(super) fn run(&self, data: &Data) -> u32 {
        let (mut a, mut x, mut scratch, mut at) = (0_u32, 0_u32, [0_u32; SCRATCH], 0);
        while let Some(word) = self.words.get(at) {
            let Instruction { code, jumps, k } = Instruction::of(*word);
            at += 1;
            let cell = k as usize % SCRATCH;
            match code {
                code::LOAD_WORD => a = data.word(k),
                code::LOAD_LENGTH => a = DATA_SIZE,
                code::LOAD => a = k,
                code::LOAD_SCRATCH => a = scratch[cell],
                code::INDEX_LENGTH => x = DATA_SIZE,
                code::INDEX => x = k,
                code::INDEX_SCRATCH => x = scratch[cell],
                code::STORE => scratch[cell] = a,
                code::STORE_INDEX => scratch[cell] = x,
                code::RETURN => return k,
                code::RETURN_A => return a,
                code::TO_INDEX => x = a,
                code::FROM_INDEX => a = x,
                code::JUMP => at += k as usize,
                code::NEGATE => a = a.wrapping_neg(),
                _ => {
                    let operand = if code & code::WITH_INDEX != 0 { x } else { k };
                    if code & code::CLASS == code::CONDITION {
                        let holds = condition(code & code::OPERATION, a, operand).unwrap_or(false);
                        at += usize::from(jumps[usize::from(!holds)]);
                    } else {
                        // A division by X that is zero ends the filter.
                        let Some(value) = arithmetic(code & code::OPERATION, a, operand) else { return 0 };
                        a = value;
                    }
                }
            }
        }
        0
    }
}

/// Whether an instruction is one of a filter's, with so many behind it.
fn is_valid(Instruction { code, jumps, k }: Instruction, behind: usize) -> bool {
    match code {
        code::LOAD_WORD => k.is_multiple_of(4) && k < DATA_SIZE,
        code::LOAD_SCRATCH | code::INDEX_SCRATCH | code::STORE | code::STORE_INDEX => (k as usize) < SCRATCH,
        code::LOAD_LENGTH
        | code::LOAD
        | code::INDEX_LENGTH
        | code::INDEX
        | code::RETURN
        | code::RETURN_A
        | code::TO_INDEX
        | code::FROM_INDEX
        | code::NEGATE => true,
        code::JUMP => (k as usize) < behind,
        _ => {
            let (class, operation) = (code & code::CLASS, code & code::OPERATION);
            let is_plain = code & !(code::CLASS | code::WITH_INDEX | code::OPERATION) == 0;
            let operand = if code & code::WITH_INDEX != 0 { 1 } else { k };
            is_plain
                && match class {
                    code::CONDITION => {
                        condition(operation, 0, 0).is_some()
                            && jumps.iter().all(|jump| usize::from(*jump) < behind)
                    }
                    code::ARITHMETIC => arithmetic(operation, 0, operand).is_some(),
                    _ => false,
                }
        }
    }
}

/// Whether a condition holds; nothing for one that there is not.
fn condition(operation: u16, a: u32, operand: u32) -> Option<bool> {
    match operation {
        0x10 => Some(a == operand),
        0x20 => Some(a > operand),
        0x30 => Some(a >= operand),
        0x40 => Some(a & operand != 0),
        _ => None,
    }
}

/// The result of an operation; nothing for a division by zero, a constant shift by a word's width or more, and for one that
/// there is not. XOR and remainders are not a filter's of system calls but for XOR.
fn arithmetic(operation: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand)?,
        0x70 => a.checked_shr(operand)?,
        0xa0 => a ^ operand,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn instruction(code: u16, if_true: u8, if_false: u8, k: u32) -> u64 {
        let ([c0, c1], [k0, k1, k2, k3]) = (code.to_le_bytes(), k.to_le_bytes());
        u64::from_le_bytes([c0, c1, if_true, if_false, k0, k1, k2, k3])
    }

    fn asked(filter: &Filter, number: u32, arguments: [u64; 6]) -> u32 {
        filter.run(&Data { number, address: 0x1122_3344_5566_7788, arguments })
    }

    /// What libseccomp makes: the architecture, then the number, then the halves of an argument.
    #[test]
    fn a_filter_looks_at_number_and_arguments() {
        let filter = Filter::new(vec![
            instruction(code::LOAD_WORD, 0, 0, 4),
            instruction(0x15, 0, 5, 0xc000_003e),
            instruction(code::LOAD_WORD, 0, 0, 0),
            instruction(0x15, 0, 3, 39),
            instruction(code::LOAD_WORD, 0, 0, 20),
            instruction(0x45, 0, 1, 1),
            instruction(code::RETURN, 0, 0, 0x0005_0026),
            instruction(code::RETURN, 0, 0, 0x7fff_0000),
        ])
        .expect("it is valid");
        assert_eq!(asked(&filter, 39, [1 << 32, 0, 0, 0, 0, 0]), 0x0005_0026);
        assert_eq!(asked(&filter, 39, [1, 0, 0, 0, 0, 0]), 0x7fff_0000);
        assert_eq!(asked(&filter, 40, [1 << 32, 0, 0, 0, 0, 0]), 0x7fff_0000);
    }

    #[test]
    fn what_the_kernel_refuses_is_no_filter() {
        let end = instruction(code::RETURN, 0, 0, 0);
        for wrong in [
            instruction(code::LOAD_WORD, 0, 0, 2),
            instruction(code::LOAD_WORD, 0, 0, 64),
            instruction(0x28, 0, 0, 0),
            instruction(0x15, 1, 0, 0),
            instruction(code::JUMP, 0, 0, 1),
            instruction(0x34, 0, 0, 0),
            instruction(0x64, 0, 0, 32),
            instruction(code::STORE, 0, 0, 16),
            instruction(0x94, 0, 0, 3),
            instruction(0xff15, 0, 0, 0),
        ] {
            assert!(Filter::new(vec![wrong, end]).is_none(), "{wrong:#x}");
        }
        assert!(Filter::new(vec![instruction(code::LOAD, 0, 0, 0)]).is_none(), "it does not return");
        assert!(Filter::new(Vec::new()).is_none());
        assert!(Filter::new(vec![end; LONGEST + 1]).is_none());
    }

    #[test]
    fn a_division_by_zero_ends_the_thread() {
        let by_x = Filter::new(vec![
            instruction(code::INDEX, 0, 0, 0),
            instruction(0x3c, 0, 0, 0),
            instruction(code::RETURN, 0, 0, 0x7fff_0000),
        ]);
        assert_eq!(asked(&by_x.expect("it is valid"), 0, [0; 6]), 0);
    }

    proptest! {
        /// Every program that is taken comes to an end, without a panic.
        #[test]
        fn any_program_that_is_valid_ends(
            codes in prop::collection::vec((prop::sample::select(vec![
                0x20_u16, 0x80, 0, 0x60, 0x81, 1, 0x61, 2, 3, 6, 0x16, 7, 0x87, 5, 0x84, 0x15, 0x1d, 0x25, 0x2d, 0x35, 0x45,
                0x4d, 4, 0xc, 0x14, 0x24, 0x34, 0x3c, 0x44, 0x54, 0x64, 0x6c, 0x74, 0xa4,
            ]), 0_u8..4, 0_u8..4, prop_oneof![0_u32..70, any::<u32>()]), 0..30),
            number in any::<u32>(),
        ) {
            let valid = |(at, word): (usize, &u64)| is_valid(Instruction::of(*word), codes.len() - at);
            let words = codes.iter().map(|(code, t, f, k)| instruction(*code, *t, *f, *k)).collect::<Vec<_>>();
            let all_valid = words.iter().enumerate().all(valid);
            let filter = Filter::new([words, vec![instruction(code::RETURN_A, 0, 0, 0)]].concat());
            prop_assert_eq!(filter.is_some(), all_valid);
            if let Some(filter) = filter {
                let _ = asked(&filter, number, [u64::MAX; 6]);
            }
        }
    }
}
