//! From the instruction at rip to what it does to the system.

use iced_x86::{Instruction, Mnemonic as N, OpKind, Register};

use super::delivery::Event;
use super::registers::{cr4, debug, segment};
use super::{Failure, Fault, Next, Outside, Part, System, SystemCpu};
use x86::decode;
use x86::machine::Machine;
use x86::op::{Gpr, Loc, Op};
use x86::sem::operand::{effective_address, register, set_register, write};
use x86::state::{RFLAGS_FIXED, RFLAGS_IF};

/// RFLAGS.ZF.
const ZERO: u64 = 1 << 6;
/// RFLAGS.AC.
const ACCESS: u64 = 1 << 18;

/// Whether control has moved already.
enum Done {
    /// No: rip goes behind the instruction.
    Through(Next),
    /// Yes.
    Moved,
}

/// The number of a register that has one, as an index.
fn number(r: Register) -> usize {
    r.number()
}

/// An instruction that a program must not run.
fn is_kernels_alone(m: N, i: &Instruction) -> bool {
    match m {
        N::Mov => i.is_privileged(),
        N::Hlt
        | N::Clts
        | N::Invd
        | N::Wbinvd
        | N::Wbnoinvd
        | N::Invlpg
        | N::Invpcid
        | N::Lgdt
        | N::Lidt
        | N::Lldt
        | N::Ltr
        | N::Lmsw
        | N::Rdmsr
        | N::Wrmsr
        | N::Swapgs
        | N::Sysret
        | N::Sysretq
        | N::Rdpmc => true,
        _ => false,
    }
}

impl System {
    /// Executes the instruction at rip, if it is one of the system. One that is done has retired.
    pub(super) fn execute_at_rip(
        &mut self,
        cpu: &mut SystemCpu,
        outside: &mut impl Outside,
    ) -> Option<Part<Next>> {
        let i = cpu.instruction()?;
        let op = decode::op(&i);
        let m = i.mnemonic();
        if is_kernels_alone(m, &i) && self.registers.privilege != 0 {
            return Some(Err(Fault::general(0).into()));
        }
        let done = self.execute(cpu, &i, &op, outside)?;
        Some(done.map(|done| {
            cpu.retire(1);
            match done {
                Done::Through(next) => {
                    cpu.set_rip(op.next);
                    next
                }
                Done::Moved => Next::Run,
            }
        }))
    }

    fn execute(
        &mut self,
        cpu: &mut SystemCpu,
        i: &Instruction,
        op: &Op,
        outside: &mut impl Outside,
    ) -> Option<Part<Done>> {
        let through = |part: Part| Some(part.map(|()| Done::Through(Next::Run)));
        let moved = |part: Part| Some(part.map(|()| Done::Moved));
        match i.mnemonic() {
            N::Hlt => Some(Ok(Done::Through(Next::Halt))),
            N::Cli => through(self.set_interrupt_flag(cpu, false)),
            N::Sti => through(self.set_interrupt_flag(cpu, true)),
            N::Popf | N::Popfd | N::Popfq => through(self.pop_flags(cpu, i)),
            N::Stac | N::Clac => through(self.set_access_flag(cpu, i.mnemonic() == N::Stac)),
            N::Wbinvd | N::Wbnoinvd | N::Invd => through(Ok(())),
            N::Clts => through(Ok(())),
            N::Swapgs => {
                self.swap_gs(cpu);
                through(Ok(()))
            }
            N::Invlpg => {
                let va = effective_address(cpu, op);
                cpu.invalidate_page(va);
                through(Ok(()))
            }
            N::Rdmsr | N::Wrmsr => through(self.msr(cpu, i.mnemonic() == N::Wrmsr, outside)),
            N::Rdpmc => through(Err(Fault::general(0).into())),
            // The model has neither of them, and CR4.OSXSAVE stays clear.
            N::Invpcid | N::Xsetbv => through(Err(Fault::INVALID_OPCODE.into())),
            N::Iretq | N::Iretd => {
                // Also where it fails (Intel SDM vol. 3, 6.7.1).
                self.registers.blocks_nmi = false;
                moved(self.interrupt_return(cpu, if i.mnemonic() == N::Iretq { 64 } else { 32 }))
            }
            N::Sysretq => moved(self.system_return(cpu, true)),
            N::Sysret => moved(self.system_return(cpu, false)),
            N::Retf => moved(self.far_return(cpu, far_width(i), immediate(i))),
            N::Jmp | N::Call if i.is_jmp_far_indirect() || i.is_call_far_indirect() => {
                let at = effective_address(cpu, op);
                let back = i.is_call_far_indirect().then_some(op.next);
                moved(self.far_branch(cpu, pointer_width(i), at, back))
            }
            N::Jmp | N::Call if i.is_jmp_far() || i.is_call_far() => {
                let back = i.is_call_far().then_some(op.next);
                let (w, to) = match i.op0_kind() {
                    OpKind::FarBranch16 => (16, i.far_branch16().into()),
                    _ => (32, i.far_branch32().into()),
                };
                moved(self.far_branch_to(cpu, w, (i.far_branch_selector(), to), back))
            }
            N::Int => Some(self.software_interrupt(cpu, i)),
            N::In | N::Out => through(self.port(cpu, i, outside)),
            N::Insb | N::Insw | N::Insd | N::Outsb | N::Outsw | N::Outsd => {
                through(Err(Failure::Refused(format!("string port I/O: {i}"))))
            }
            N::Mov if touches(i, Register::is_cr) => through(self.move_control(cpu, i, outside)),
            N::Mov if touches(i, Register::is_dr) => through(self.move_debug(cpu, i)),
            N::Mov | N::Pop | N::Push if touches(i, Register::is_segment_register) => {
                through(self.move_segment(cpu, i, op))
            }
            N::Lss | N::Lfs | N::Lgs => through(self.load_far_pointer(cpu, i, op)),
            _ => self.table_instruction(cpu, i, op).and_then(through),
        }
    }

    /// The instructions about descriptors and their tables.
    fn table_instruction(&mut self, cpu: &mut SystemCpu, i: &Instruction, op: &Op) -> Option<Part> {
        let at = effective_address(cpu, op);
        // What user-mode instruction prevention keeps from programs.
        let is_kept = matches!(i.mnemonic(), N::Sgdt | N::Sidt | N::Sldt | N::Str | N::Smsw);
        if is_kept && self.registers.cr4 & cr4::UMIP != 0 && self.registers.privilege == 3 {
            return Some(Err(Fault::general(0).into()));
        }
        Some(match i.mnemonic() {
            N::Lgdt => self.load_table(cpu, at).map(|table| self.registers.gdtr = table),
            N::Lidt => self.load_table(cpu, at).map(|table| self.registers.idtr = table),
            N::Sgdt => self.store_table(cpu, at, self.registers.gdtr),
            N::Sidt => self.store_table(cpu, at, self.registers.idtr),
            N::Ltr => self.selector(cpu, op).and_then(|selector| self.load_task(cpu, selector)),
            N::Lldt => self.selector(cpu, op).and_then(|selector| self.load_local_table(cpu, selector)),
            N::Str => self.put(cpu, op, self.registers.tr.selector.into()),
            N::Sldt => self.put(cpu, op, self.registers.ldtr.selector.into()),
            N::Smsw => self.put(cpu, op, self.registers.cr0),
            N::Lmsw => self.operand(cpu, op, op.a, 16).and_then(|v| self.load_status_word(cpu, v)),
            N::Lar | N::Lsl => self.look_at_descriptor(cpu, i, op),
            N::Verr | N::Verw => self.selector(cpu, op).and_then(|selector| {
                let holds = self.verify(cpu, selector, i.mnemonic() == N::Verw)?;
                self.set_zero(cpu, holds);
                Ok(())
            }),
            _ => return None,
        })
    }

    fn look_at_descriptor(&mut self, cpu: &mut SystemCpu, i: &Instruction, op: &Op) -> Part {
        let selector = (self.operand(cpu, op, op.b, 16)? & 0xffff) as u16;
        let found = self.look_up(cpu, selector)?;
        if let (Some((rights, limit)), Loc::Reg(r)) = (found, op.a) {
            let value = if i.mnemonic() == N::Lar { rights } else { limit };
            let w = u32::from(op.w);
            set_register(cpu, r, w, if w == 16 { value & 0xffff } else { value });
        }
        self.set_zero(cpu, found.is_some());
        Ok(())
    }

    fn set_zero(&mut self, cpu: &mut SystemCpu, set: bool) {
        let rflags = cpu.regs().rflags;
        self.set_flags(cpu, if set { rflags | ZERO } else { rflags & !ZERO });
    }

    /// Reads `w` bits of an operand.
    fn operand(&self, cpu: &mut SystemCpu, op: &Op, loc: Loc, w: u32) -> Part<u64> {
        match loc {
            Loc::Mem => {
                let at = effective_address(cpu, op);
                self.load(cpu, w, at)
            }
            Loc::Reg(r) => Ok(register(cpu, r, w)),
            _ => Ok(op.imm),
        }
    }

    /// The selector in the first operand.
    fn selector(&self, cpu: &mut SystemCpu, op: &Op) -> Part<u16> {
        Ok((self.operand(cpu, op, op.a, 16)? & 0xffff) as u16)
    }

    /// Writes a value of 16 bits to the first operand: to memory no more than that, to a register as wide as it is.
    fn put(&self, cpu: &mut SystemCpu, op: &Op, value: u64) -> Part {
        if op.a == Loc::Mem {
            let at = effective_address(cpu, op);
            return self.store(cpu, 16, at, value & 0xffff);
        }
        let w = u32::from(op.w);
        let value = if w == 16 { value & 0xffff } else { value };
        write(cpu, op, op.a, w, value).map_err(|trap| super::failed_access(cpu, trap))
    }

    /// CLI and STI: #GP where the level is below IOPL.
    fn set_interrupt_flag(&mut self, cpu: &mut SystemCpu, set: bool) -> Part {
        let flags = cpu.system_flags();
        self.check_io_level(flags)?;
        if set && flags & RFLAGS_IF == 0 {
            // Interrupts come behind the next instruction.
            self.shielded_at = Some(cpu.retired() + 1);
        }
        cpu.set_system_flags(if set { flags | RFLAGS_IF } else { flags & !RFLAGS_IF });
        Ok(())
    }

    fn check_io_level(&self, flags: u64) -> Part {
        match u64::from(self.registers.privilege) <= flags >> 12 & 3 {
            true => Ok(()),
            false => Err(Fault::general(0).into()),
        }
    }

    /// STAC and CLAC: #UD for programs.
    fn set_access_flag(&mut self, cpu: &mut SystemCpu, set: bool) -> Part {
        if self.registers.privilege != 0 {
            return Err(Fault::INVALID_OPCODE.into());
        }
        let rflags = cpu.regs().rflags;
        self.set_flags(cpu, if set { rflags | ACCESS } else { rflags & !ACCESS });
        Ok(())
    }

    /// POPF, by the rules of the level.
    fn pop_flags(&mut self, cpu: &mut SystemCpu, i: &Instruction) -> Part {
        let w = 8 * i.stack_pointer_increment().unsigned_abs();
        let old = cpu.regs();
        let new = self.load(cpu, w, old.gpr[4])?;
        // RF is cleared, VIF and VIP stay.
        const NOT_POPPED: u64 = 1 << 16 | 3 << 19;
        let mut may = self.may_change(old.rflags) & !NOT_POPPED;
        if w == 16 {
            may &= 0xffff;
        }
        cpu.set_reg(Gpr::RSP, old.gpr[4].wrapping_add(u64::from(w / 8)));
        self.set_flags(cpu, old.rflags & !may | new & may | RFLAGS_FIXED);
        Ok(())
    }

    fn msr(&mut self, cpu: &mut SystemCpu, is_write: bool, outside: &mut impl Outside) -> Part {
        let low = |r| cpu.reg(r) & 0xffff_ffff;
        let index = (low(Gpr::RCX) & 0xffff_ffff) as u32;
        if is_write {
            let value = low(Gpr::RDX) << 32 | low(Gpr::RAX);
            return self.write_msr(cpu, index, value, outside);
        }
        let value = self.read_msr(cpu, index, outside)?;
        cpu.set_reg(Gpr::RAX, value & 0xffff_ffff);
        cpu.set_reg(Gpr::RDX, value >> 32);
        Ok(())
    }

    /// INT n; the gate must be open to the level. What fails on the way is a fault of the instruction.
    fn software_interrupt(&mut self, cpu: &mut SystemCpu, i: &Instruction) -> Part<Done> {
        let at = cpu.rip();
        cpu.set_rip(i.next_ip());
        let entered = self.enter_once(cpu, Event::Software(i.immediate8()));
        if entered.is_err() {
            cpu.set_rip(at);
        }
        entered.map(|()| Done::Moved)
    }

    fn port(&mut self, cpu: &mut SystemCpu, i: &Instruction, outside: &mut impl Outside) -> Part {
        // Without a bitmap in the TSS, which no kernel guest has had yet, IOPL alone decides.
        self.check_io_level(cpu.system_flags())?;
        let is_in = i.mnemonic() == N::In;
        let (port_operand, value) = if is_in { (1, i.op0_register()) } else { (0, i.op1_register()) };
        let port = match i.op_kind(port_operand) {
            OpKind::Immediate8 => u16::from(i.immediate8()),
            _ => (cpu.reg(Gpr::RDX) & 0xffff) as u16,
        };
        let w = u32::try_from(value.size() * 8).unwrap_or(32);
        let mask = u64::MAX >> (64 - w);
        if is_in {
            let v = u64::from(outside.port_in(port, w)) & mask;
            set_register(cpu, Gpr::RAX, w, v);
        } else {
            outside.port_out(port, w, (cpu.reg(Gpr::RAX) & mask & 0xffff_ffff) as u32);
        }
        Ok(())
    }

    fn move_control(&mut self, cpu: &mut SystemCpu, i: &Instruction, outside: &mut impl Outside) -> Part {
        if i.op0_register().is_cr() {
            let value = cpu.reg(general(i.op1_register()));
            return self.write_control(cpu, number(i.op0_register()), value, outside);
        }
        let value = self.read_control(number(i.op1_register()), outside)?;
        put_register(cpu, i.op0_register(), value);
        Ok(())
    }

    fn move_debug(&mut self, cpu: &mut SystemCpu, i: &Instruction) -> Part {
        let [.., status, control] = &mut self.registers.debug;
        if *control & debug::GENERAL_DETECT != 0 {
            *control &= !debug::GENERAL_DETECT;
            *status |= debug::DETECTED;
            return Err(Fault { vector: 1, code: 0 }.into());
        }
        if i.op0_register().is_dr() {
            let value = cpu.reg(general(i.op1_register()));
            return self.write_debug(number(i.op0_register()), value);
        }
        let value = self.read_debug(number(i.op1_register()))?;
        put_register(cpu, i.op0_register(), value);
        Ok(())
    }

    /// MOV, PUSH and POP of segment registers.
    fn move_segment(&mut self, cpu: &mut SystemCpu, i: &Instruction, op: &Op) -> Part {
        let rsp = cpu.reg(Gpr::RSP);
        let w = 8 * i.stack_pointer_increment().unsigned_abs();
        let n = segment_number(i);
        match i.mnemonic() {
            N::Push => {
                let to = rsp.wrapping_sub(u64::from(w / 8));
                self.store(cpu, w, to, self.registers.segments[n].selector.into())?;
                cpu.set_reg(Gpr::RSP, to);
            }
            N::Pop => {
                let selector = (self.load(cpu, w, rsp)? & 0xffff) as u16;
                self.load_segment(cpu, n, selector)?;
                cpu.set_reg(Gpr::RSP, rsp.wrapping_add(u64::from(w / 8)));
            }
            _ if i.op0_register().is_segment_register() => {
                let selector = (self.operand(cpu, op, op.b, 16)? & 0xffff) as u16;
                self.load_segment(cpu, n, selector)?;
                if n == segment::SS {
                    self.shielded_at = Some(cpu.retired() + 1);
                    self.stack_loaded_at = Some(cpu.retired() + 1);
                }
            }
            _ => self.put(cpu, op, self.registers.segments[n].selector.into())?,
        }
        Ok(())
    }

    /// LSS, LFS, LGS.
    fn load_far_pointer(&mut self, cpu: &mut SystemCpu, i: &Instruction, op: &Op) -> Part {
        let (at, w) = (effective_address(cpu, op), u32::from(op.w));
        let offset = self.load(cpu, w, at)?;
        let selector = (self.load(cpu, 16, at.wrapping_add(u64::from(w / 8)))? & 0xffff) as u16;
        let n = match i.mnemonic() {
            N::Lss => segment::SS,
            N::Lfs => segment::FS,
            _ => segment::GS,
        };
        self.load_segment(cpu, n, selector)?;
        if let Loc::Reg(r) = op.a {
            set_register(cpu, r, w, offset);
        }
        Ok(())
    }
}

/// Whether one of the first two operands is such a register.
fn touches(i: &Instruction, is_such: impl Fn(Register) -> bool) -> bool {
    (0..i.op_count().min(2)).any(|n| i.op_kind(n) == OpKind::Register && is_such(i.op_register(n)))
}

/// The segment register of an instruction that has one.
fn segment_number(i: &Instruction) -> usize {
    let of = |n| match i.op_kind(n) {
        OpKind::Register if i.op_register(n).is_segment_register() => Some(number(i.op_register(n))),
        _ => None,
    };
    (0..i.op_count().min(2)).find_map(of).unwrap_or(segment::ES)
}

/// Writes a general register, as much of the value as it holds.
fn put_register(cpu: &mut SystemCpu, r: Register, value: u64) {
    let value = if r.is_gpr32() { value & 0xffff_ffff } else { value };
    cpu.set_reg(general(r), value);
}

fn general(r: Register) -> Gpr {
    Gpr(u8::try_from(r.full_register().number()).unwrap_or(0))
}

/// The width of what RETF pops, by its encoding.
fn far_width(i: &Instruction) -> u32 {
    use iced_x86::Code;
    match i.code() {
        Code::Retfq | Code::Retfq_imm16 => 64,
        Code::Retfw | Code::Retfw_imm16 => 16,
        _ => 32,
    }
}

/// The width of the offset in a far pointer in memory, which has a selector behind it.
fn pointer_width(i: &Instruction) -> u32 {
    match i.memory_size().size() {
        10 => 64,
        4 => 16,
        _ => 32,
    }
}

fn immediate(i: &Instruction) -> u64 {
    if i.op_count() > 0 { u64::from(i.immediate16()) } else { 0 }
}
