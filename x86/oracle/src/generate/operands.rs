//! Random operands for an encoding, and what the registers must hold for them to make sense.

use crate::case::Image;
use crate::layout::{CODE, DATA, PAGE, WRITABLE};
use crate::random::Random;
use crate::values;
use iced_x86::{
    Code, EncodingKind, Instruction, Mnemonic, OpCodeOperandKind as Kind, OpKind, Register, RoundingControl,
};
use x86::op::Gpr;

/// Every embedded rounding.
const ROUNDINGS: [RoundingControl; 4] = [
    RoundingControl::RoundToNearest,
    RoundingControl::RoundDown,
    RoundingControl::RoundUp,
    RoundingControl::RoundTowardZero,
];

/// What registers must hold when the block starts, and which its instructions have written so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins {
    /// Values of general registers, by hardware number.
    pub(super) gpr: [Option<u64>; 16],
    /// Registers that an earlier instruction wrote: their value is no longer known.
    pub(super) written: [bool; 16],
    /// Vector registers that hold small indices, and the width of these.
    pub(super) indices: Vec<(usize, u32)>,
    /// Base of FS.
    pub(super) fs_base: u64,
    /// Base of GS.
    pub(super) gs_base: u64,
}

impl Pins {
    /// Asks for `value` in `r`, unless it is already bound to something.
    pub(super) fn pin(&mut self, r: Gpr, value: u64) {
        let n = usize::from(r.0);
        if !self.written[n] && self.gpr[n].is_none() {
            self.gpr[n] = Some(value);
        }
    }
}

/// Makes instructions.
pub(super) struct Operands<'a> {
    pub(super) random: &'a mut Random,
    pub(super) pins: &'a mut Pins,
    image: Option<&'a Image>,
    /// Percentage of the addresses that are chosen to be at an edge of a page or beyond.
    pub(super) risk: u64,
    /// Whether the implied addresses of this instruction are 32 bits wide.
    narrow: bool,
    /// How many vector registers this encoding can name.
    pub(super) vectors: u64,
    /// The only registers that operands name, by number: then instructions work on what others have left.
    few: Option<[u64; 3]>,
}

impl<'a> Operands<'a> {
    /// `image` is what memory will hold, where that is known.
    pub(super) fn new(random: &'a mut Random, pins: &'a mut Pins, image: Option<&'a Image>) -> Self {
        Operands { random, pins, image, risk: 18, narrow: false, vectors: 16, few: None }
    }

    /// For blocks: a fault at the first instruction hides the others.
    pub(super) fn mostly_harmless(mut self) -> Self {
        self.risk = 4;
        self
    }

    /// Names no registers but `few`, if there are such.
    pub(super) fn among(mut self, few: Option<[u64; 3]>) -> Self {
        self.few = few;
        self
    }

    /// An instruction of encoding `code` with random operands, to be put at `ip`; `None` if the encoding has
    /// operands that are not known here.
    pub(super) fn instruction(&mut self, code: Code, ip: u64) -> Option<Instruction> {
        let mut i = Instruction::default();
        i.set_code(code);
        self.narrow = self.random.percent(10);
        let info = code.op_code();
        self.vectors = if info.encoding() == EncodingKind::EVEX { 32 } else { 16 };
        i.set_is_broadcast(info.can_broadcast() && self.random.percent(40));
        self.pin_implied(code.mnemonic());
        for (n, &kind) in (0..).zip(code.op_code().op_kinds()) {
            self.operand(&mut i, n, kind, ip)?;
        }
        self.prefixes(&mut i);
        self.evex(&mut i);
        self.pin_to_operands(&i);
        Some(i)
    }

    fn operand(&mut self, i: &mut Instruction, n: u32, kind: Kind, ip: u64) -> Option<()> {
        if let Some(register) = self.register(kind) {
            i.set_op_kind(n, OpKind::Register);
            i.set_op_register(n, register);
            return Some(());
        }
        match kind {
            Kind::mem
            | Kind::mem_offs
            | Kind::r8_or_mem
            | Kind::r16_or_mem
            | Kind::r32_or_mem
            | Kind::r64_or_mem
            | Kind::mm_or_mem
            | Kind::xmm_or_mem
            | Kind::ymm_or_mem
            | Kind::zmm_or_mem
            | Kind::k_or_mem => {
                i.set_op_kind(n, OpKind::Memory);
                self.memory(i, kind == Kind::mem_offs);
            }
            Kind::mem_vsib32x | Kind::mem_vsib64x => self.gathered(i, n, kind, Register::XMM0),
            Kind::mem_vsib32y | Kind::mem_vsib64y => self.gathered(i, n, kind, Register::YMM0),
            Kind::mem_vsib32z | Kind::mem_vsib64z => self.gathered(i, n, kind, Register::ZMM0),
            Kind::seg_rBX_al => {
                i.set_op_kind(n, OpKind::Memory);
                i.set_memory_base(Register::RBX);
                i.set_memory_index(Register::AL);
            }
            Kind::seg_rSI => {
                i.set_op_kind(n, self.wide_or_narrow(OpKind::MemorySegRSI, OpKind::MemorySegESI))
            }
            Kind::es_rDI => i.set_op_kind(n, self.wide_or_narrow(OpKind::MemoryESRDI, OpKind::MemoryESEDI)),
            Kind::seg_rDI => {
                i.set_op_kind(n, self.wide_or_narrow(OpKind::MemorySegRDI, OpKind::MemorySegEDI))
            }
            Kind::br64_1 | Kind::br64_4 => {
                i.set_op_kind(n, OpKind::NearBranch64);
                i.set_near_branch64(ip);
            }
            _ => return self.immediate(i, n, kind),
        }
        Some(())
    }

    fn wide_or_narrow(&self, wide: OpKind, narrow: OpKind) -> OpKind {
        if self.narrow { narrow } else { wide }
    }

    fn immediate(&mut self, i: &mut Instruction, n: u32, kind: Kind) -> Option<()> {
        let value = values::integer(self.random);
        let op_kind = match kind {
            Kind::imm8 if (0..n).any(|m| i.op_kind(m) == OpKind::Immediate16) => OpKind::Immediate8_2nd,
            Kind::imm8 | Kind::imm8_const_1 => OpKind::Immediate8,
            Kind::imm8sex16 => OpKind::Immediate8to16,
            Kind::imm8sex32 => OpKind::Immediate8to32,
            Kind::imm8sex64 => OpKind::Immediate8to64,
            Kind::imm16 => OpKind::Immediate16,
            Kind::imm32 => OpKind::Immediate32,
            Kind::imm32sex64 => OpKind::Immediate32to64,
            Kind::imm64 => OpKind::Immediate64,
            _ => return None,
        };
        i.set_op_kind(n, op_kind);
        let value = match (kind, i.mnemonic()) {
            (Kind::imm8_const_1, _) => 1,
            (_, Mnemonic::Enter) => value & 0x1ff,
            (_, Mnemonic::Ret) => value & 0x3f8,
            _ => value,
        };
        i.try_set_immediate_u64(n, value).ok()
    }

    /// A register for operands that are one, or that are one half of the time.
    fn register(&mut self, kind: Kind) -> Option<Register> {
        let first = match kind {
            Kind::r8_or_mem
            | Kind::r16_or_mem
            | Kind::r32_or_mem
            | Kind::r64_or_mem
            | Kind::mm_or_mem
            | Kind::xmm_or_mem
            | Kind::ymm_or_mem
            | Kind::zmm_or_mem
            | Kind::k_or_mem
                if self.random.percent(50) =>
            {
                return None;
            }
            Kind::r8_or_mem | Kind::r8_reg | Kind::r8_opcode => return Some(self.byte_register()),
            Kind::r16_or_mem | Kind::r16_reg | Kind::r16_reg_mem | Kind::r16_rm | Kind::r16_opcode => {
                Register::AX
            }
            Kind::r32_or_mem
            | Kind::r32_reg
            | Kind::r32_reg_mem
            | Kind::r32_rm
            | Kind::r32_opcode
            | Kind::r32_vvvv => Register::EAX,
            Kind::r64_or_mem
            | Kind::r64_reg
            | Kind::r64_reg_mem
            | Kind::r64_rm
            | Kind::r64_opcode
            | Kind::r64_vvvv => Register::RAX,
            Kind::xmm_or_mem | Kind::xmm_reg | Kind::xmm_rm | Kind::xmm_vvvv | Kind::xmm_is4 => {
                return Some(self.one_of(Register::XMM0, self.vectors));
            }
            Kind::ymm_or_mem | Kind::ymm_reg | Kind::ymm_rm | Kind::ymm_vvvv | Kind::ymm_is4 => {
                return Some(self.one_of(Register::YMM0, self.vectors));
            }
            Kind::zmm_or_mem | Kind::zmm_reg | Kind::zmm_rm | Kind::zmm_vvvv => {
                return Some(self.one_of(Register::ZMM0, self.vectors));
            }
            Kind::k_or_mem | Kind::k_reg | Kind::k_rm | Kind::k_vvvv => {
                return Some(self.one_of(Register::K0, 8));
            }
            Kind::mm_or_mem | Kind::mm_reg | Kind::mm_rm => return Some(self.one_of(Register::MM0, 8)),
            Kind::cr_reg => return Some(self.one_of(Register::CR0, 16)),
            Kind::dr_reg => return Some(self.one_of(Register::DR0, 16)),
            Kind::sti_opcode => return Some(self.one_of(Register::ST0, 8)),
            Kind::seg_reg => return Some(self.one_of(Register::ES, 6)),
            _ => return fixed_register(kind),
        };
        Some(self.one_of(first, 16))
    }

    fn one_of(&mut self, first: Register, count: u64) -> Register {
        let n = match &self.few {
            Some(few) => self.random.pick(few) % count,
            None => self.random.below(count),
        };
        first + u32::try_from(n).unwrap_or(0)
    }

    /// Opmask, broadcast and rounding, where the encoding has them.
    fn evex(&mut self, i: &mut Instruction) {
        let info = i.op_code();
        let in_memory = (0..i.op_count()).any(|n| i.op_kind(n) == OpKind::Memory);
        i.set_is_broadcast(i.is_broadcast() && in_memory);
        if info.require_op_mask_register() || info.can_use_op_mask_register() && self.random.percent(60) {
            let k = Register::K1 + u32::try_from(self.random.below(7)).unwrap_or(0);
            i.set_op_mask(k);
            let can_zero = info.can_use_zeroing_masking() && i.op_kind(0) == OpKind::Register;
            i.set_zeroing_masking(can_zero && self.random.percent(50));
        }
        if in_memory {
            return;
        }
        if info.can_use_rounding_control() && self.random.percent(30) {
            i.set_rounding_control(ROUNDINGS[self.random.index(ROUNDINGS.len())]);
        } else if info.can_suppress_all_exceptions() && self.random.percent(20) {
            i.set_suppress_all_exceptions(true);
        }
    }

    fn byte_register(&mut self) -> Register {
        // AH to BH follow BL in iced's numbering, then SPL to R15L.
        self.one_of(Register::AL, 20)
    }

    fn prefixes(&mut self, i: &mut Instruction) {
        let info = i.op_code();
        let to_memory = i.op_count() > 0 && i.op_kind(0) == OpKind::Memory;
        if info.can_use_lock_prefix() && to_memory && self.random.percent(25) {
            i.set_has_lock_prefix(true);
        }
        if i.is_string_instruction() && self.random.percent(70) {
            match self.random.percent(50) {
                true => i.set_has_rep_prefix(true),
                false => i.set_has_repne_prefix(true),
            }
        }
    }

    /// Registers that an instruction uses without naming them.
    fn pin_implied(&mut self, mnemonic: Mnemonic) {
        use Mnemonic as M;
        let data = self.address(8, 8);
        match mnemonic {
            M::Ret => self.pins.pin(Gpr::RSP, data & !0xff | values::CODE_SLOTS.0),
            M::Popfq | M::Popf => {
                let slot = self.slot(values::FLAG_SLOTS);
                self.pins.pin(Gpr::RSP, slot);
            }
            M::Maskmovq | M::Maskmovdqu | M::Vmaskmovdqu => {
                let target = self.address(16, 1);
                self.pins.pin(Gpr::RDI, target);
            }
            M::Leave | M::Enter => self.pins.pin(Gpr::RBP, data),
            M::Xlatb => self.pins.pin(Gpr::RBX, data),
            M::Div | M::Idiv => {
                let high = [0, 0, 1, 2, u64::MAX][self.random.index(5)];
                self.pins.pin(Gpr::RDX, high);
            }
            M::Loop | M::Loope | M::Loopne | M::Jrcxz | M::Jecxz => {
                let count = self.random.below(3);
                self.pins.pin(Gpr::RCX, count);
            }
            M::Rcl | M::Rcr | M::Rol | M::Ror | M::Sal | M::Sar | M::Shl | M::Shr | M::Shld | M::Shrd => {
                let count = values::integer(self.random) & !0xff | self.random.below(80);
                self.pins.pin(Gpr::RCX, count);
            }
            _ => {}
        }
    }

    /// What the chosen operands ask of the registers.
    fn pin_to_operands(&mut self, i: &Instruction) {
        use Mnemonic as M;
        match i.mnemonic() {
            M::Bt | M::Bts | M::Btr | M::Btc
                if i.op_kind(0) == OpKind::Memory && i.op_kind(1) == OpKind::Register =>
            {
                let bit = self.random.below(0x1000).wrapping_sub(0x800);
                self.pins.pin(gpr(i.op_register(1)), bit);
            }
            M::Cmpxchg => {
                let value = match i.op_kind(0) {
                    OpKind::Memory => self.held_at(i),
                    _ => Some(self.known_or(gpr(i.op0_register()), values::integer)),
                };
                if let (Some(value), true) = (value, self.random.percent(50)) {
                    self.pins.pin(Gpr::RAX, value);
                }
            }
            M::Jmp | M::Call if i.op_kind(0) == OpKind::Register => {
                let target = values::INT3_FROM + self.random.below(values::INT3_LEN);
                self.pins.pin(gpr(i.op0_register()), target);
            }
            _ if i.is_string_instruction() => self.pin_string(i),
            _ => {}
        }
        let stack = self.address(8, 8);
        if self.random.percent(90) {
            self.pins.pin(Gpr::RSP, stack);
        }
    }

    fn pin_string(&mut self, i: &Instruction) {
        let size = i.memory_size().size() as u64;
        for r in [Gpr::RSI, Gpr::RDI] {
            // Not the code page: downwards, the string would reach the case's own code.
            let address = loop {
                let address = self.address(size, 1);
                if address.wrapping_sub(CODE) >= PAGE as u64 {
                    break address;
                }
            };
            self.pins.pin(r, address);
        }
        if i.has_rep_prefix() || i.has_repne_prefix() {
            let count =
                if self.random.percent(95) { self.random.below(20) } else { values::integer(self.random) };
            self.pins.pin(Gpr::RCX, count);
        }
    }

    /// The eight bytes that memory holds at the operand of `i`, where its address is a pinned register's.
    fn held_at(&self, i: &Instruction) -> Option<u64> {
        let address = i.virtual_address(0, 0, |register, _, _| match register {
            Register::FS => Some(self.pins.fs_base),
            Register::GS => Some(self.pins.gs_base),
            r if r.is_segment_register() => Some(0),
            r => self.known(gpr(r)),
        })?;
        let at = usize::try_from(address.checked_sub(DATA)?).ok()?;
        let bytes = self.image?.get(at..at.checked_add(8)?).filter(|_| at < WRITABLE)?;
        Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }
}

fn fixed_register(kind: Kind) -> Option<Register> {
    Some(match kind {
        Kind::es => Register::ES,
        Kind::cs => Register::CS,
        Kind::ss => Register::SS,
        Kind::ds => Register::DS,
        Kind::fs => Register::FS,
        Kind::gs => Register::GS,
        Kind::al => Register::AL,
        Kind::cl => Register::CL,
        Kind::ax => Register::AX,
        Kind::dx => Register::DX,
        Kind::eax => Register::EAX,
        Kind::rax => Register::RAX,
        Kind::st0 => Register::ST0,
        _ => return None,
    })
}

/// The general register that contains `r`.
pub(super) fn gpr(r: Register) -> Gpr {
    Gpr(u8::try_from(r.full_register().number()).unwrap_or(0) & 15)
}
