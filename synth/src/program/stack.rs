//! How far registers are from where the stack pointer was at a function's entry, instruction by instruction.
//!
//! An epilogue that takes the stack pointer from another register (LEAVE) forgets how deep the stack was; the code
//! between the entry and there still says it. Followed forward from the entry: what pushes, pops and constants do is
//! counted, as is that the stack is rounded down to a multiple; a call returns with the stack and the registers that it keeps as
//! they were. What differs between two ways to an instruction, or comes from anywhere else (alloca), is unknown.

use super::Program;
use super::code::direct_target;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;
use x86::op::Gpr;

/// Where the stack pointer is before an epilogue, by the register that the epilogue takes it from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relation {
    /// The register.
    pub frame: Gpr,
    /// The stack pointer is so many bytes above it (below: negative).
    pub above: i64,
    /// That sum, rounded down, is where the stack pointer is counted from.
    pub aligned: Option<Aligned>,
}

/// An address that was rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aligned {
    /// To a multiple of this power of two.
    pub multiple: u64,
    /// So many bytes are added to it then.
    pub offset: i64,
}

/// Where a register points into the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// So many bytes above where the stack pointer was at the entry.
    above_entry: i64,
    /// That, rounded down, is what it is counted from.
    aligned: Option<Aligned>,
}

/// The places that the sixteen general registers have before an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places([Option<Place>; 16]);

/// Those before each instruction of a function.
type Depths = FxHashMap<u64, Places>;

/// The depths of a program's functions, each found when it is first asked for.
pub struct Stack<'p> {
    program: &'p Program,
    functions: RefCell<FxHashMap<u64, Rc<Depths>>>,
}

/// What a call may change (System V ABI, section 3.2.1): rax, rcx, rdx, rsi, rdi and r8 to r11.
const CALLER_SAVED: [usize; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

impl<'p> Stack<'p> {
    /// Those of this program.
    #[must_use]
    pub fn new(program: &'p Program) -> Stack<'p> {
        Stack { program, functions: RefCell::default() }
    }

    /// If the instruction at `va` takes the stack pointer from another register: where the stack pointer is before it.
    #[must_use]
    pub fn before_epilogue(&self, va: u64) -> Option<Relation> {
        let i = self.program.instruction_at(va)?;
        let (frame, up) = new_stack_pointer(&i)?;
        let function = self.program.function_at(va)?;
        let known = self.functions.borrow().get(&function.start).cloned();
        let depths = known.unwrap_or_else(|| {
            let found = Rc::new(self.follow(function.start, function.end));
            self.functions.borrow_mut().insert(function.start, Rc::clone(&found));
            found
        });
        let places = depths.get(&va)?;
        // Functions that realign the stack for vectors keep where it was in memory, until LEA and RET.
        let returns = i.mnemonic() == Mnemonic::Lea
            && self.program.instruction_at(i.next_ip())?.mnemonic() == Mnemonic::Ret;
        let before_return = returns.then_some(Place { above_entry: -up, aligned: None });
        places.of(Register::RSP)?.related(frame, places.of(frame).or(before_return)?)
    }

    fn follow(&self, start: u64, end: u64) -> Depths {
        let mut depths = Depths::default();
        let mut work = vec![(start, Places::at_entry())];
        while let Some((va, places)) = work.pop() {
            let Some(instruction) = self.program.instruction_at(va).filter(|_| (start..end).contains(&va))
            else {
                continue;
            };
            let mut merged = places;
            if let Some(known) = depths.get(&va) {
                merged = known.meet(&places);
                if merged == *known {
                    continue;
                }
            }
            depths.insert(va, merged);
            let mut after = merged;
            after.pass(&instruction);
            let flow = instruction.flow_control();
            if !matches!(
                flow,
                FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
            ) {
                work.push((instruction.next_ip(), after));
            }
            if !instruction.is_call_near() {
                work.extend(direct_target(&instruction).map(|target| (target, after)));
            }
        }
        depths
    }
}

/// The register that an epilogue takes the stack pointer from, and how far above it the stack pointer is then.
fn new_stack_pointer(i: &Instruction) -> Option<(Register, i64)> {
    let of =
        |register: Register, up| (register.is_gpr64() && register != Register::RSP).then_some((register, up));
    match i.mnemonic() {
        Mnemonic::Leave => Some((Register::RBP, 8)),
        Mnemonic::Mov if i.op0_register() == Register::RSP => of(i.op1_register(), 0),
        Mnemonic::Lea if i.op0_register() == Register::RSP && i.memory_index() == Register::None => {
            of(i.memory_base(), i.memory_displacement64().cast_signed())
        }
        _ => None,
    }
}

impl Place {
    fn moved(self, by: i64) -> Place {
        match self.aligned {
            Some(aligned) => {
                Place { aligned: Some(Aligned { offset: aligned.offset + by, ..aligned }), ..self }
            }
            None => Place { above_entry: self.above_entry + by, ..self },
        }
    }

    /// Rounded down with this mask.
    fn masked(self, mask: u64) -> Option<Place> {
        let multiple = mask.wrapping_neg();
        let is_first = self.aligned.is_none() && multiple.is_power_of_two();
        is_first.then_some(Place { aligned: Some(Aligned { multiple, offset: 0 }), ..self })
    }

    /// This place, by a register that is at `frame`.
    fn related(self, register: Register, place: Place) -> Option<Relation> {
        let frame = Gpr(u8::try_from(register.number()).ok()?);
        let multiple = |place: Place| place.aligned.map(|aligned| aligned.multiple);
        match (self.aligned, place.aligned) {
            (aligned, None) => Some(Relation { frame, above: self.above_entry - place.above_entry, aligned }),
            (Some(to), Some(from))
                if self.above_entry == place.above_entry && multiple(self) == multiple(place) =>
            {
                Some(Relation { frame, above: to.offset - from.offset, aligned: None })
            }
            _ => None,
        }
    }
}

impl Places {
    fn at_entry() -> Places {
        let mut places = Places::default();
        places.set(Register::RSP, Some(Place { above_entry: 0, aligned: None }));
        places
    }

    fn of(&self, register: Register) -> Option<Place> {
        if register.is_gpr64() { self.0[register.number()] } else { None }
    }

    fn set(&mut self, register: Register, place: Option<Place>) {
        self.0[register.number()] = place;
    }

    fn meet(&self, other: &Places) -> Places {
        let mut met = *self;
        met.0.iter_mut().zip(other.0).for_each(|(mine, other)| *mine = mine.filter(|_| *mine == other));
        met
    }

    /// Goes on to where they are after `i`.
    fn pass(&mut self, i: &Instruction) {
        let to = i.op0_register();
        let immediate = || i.try_immediate(1).ok();
        let result = match i.mnemonic() {
            Mnemonic::Mov => self.of(i.op1_register()),
            Mnemonic::Lea if i.memory_index() == Register::None => {
                let by = i.memory_displacement64().cast_signed();
                self.of(i.memory_base()).map(|place| place.moved(by))
            }
            Mnemonic::Add => immediate().and_then(|by| Some(self.of(to)?.moved(by.cast_signed()))),
            Mnemonic::Sub => {
                immediate().and_then(|by| Some(self.of(to)?.moved(by.cast_signed().wrapping_neg())))
            }
            Mnemonic::And => immediate().and_then(|mask| self.of(to)?.masked(mask)),
            _ => None,
        };
        let frame = self.of(Register::RBP);
        let is_call = i.is_call_near() || i.is_call_near_indirect();
        let by = if is_call { 0 } else { i64::from(i.stack_pointer_increment()) };
        let stack = self.of(Register::RSP).map(|place| place.moved(by));
        self.forget_written(i);
        if is_call {
            CALLER_SAVED.iter().for_each(|&n| self.0[n] = None);
        }
        match i.mnemonic() {
            Mnemonic::Leave => self.set(Register::RSP, frame.map(|place| place.moved(8))),
            _ if !writes(i, Register::RSP) => self.set(Register::RSP, stack),
            _ => {}
        }
        if result.is_some() && i.op0_kind() == OpKind::Register && to.is_gpr64() {
            self.set(to, result);
        }
    }

    /// What an instruction writes is no longer known.
    fn forget_written(&mut self, i: &Instruction) {
        let mut factory = InstructionInfoFactory::new();
        for used in factory.info(i).used_registers() {
            if is_written(used.access()) && used.register().is_gpr() {
                self.set(used.register().full_register(), None);
            }
        }
    }
}

fn is_written(access: OpAccess) -> bool {
    matches!(access, OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite)
}

/// Whether an explicit operand that the instruction writes is `register`, or a part of it.
fn writes(i: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(i);
    let is_register = |n| i.op_kind(n) == OpKind::Register && i.op_register(n).full_register() == register;
    i.mnemonic() == Mnemonic::Enter
        || (0..i.op_count()).any(|n| is_register(n) && is_written(info.op_access(n)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::code_asm::{CodeAssembler, dword_ptr, eax, r10, rax, rbp, rbx, rsp};

    /// By how much the stack pointer is above a register before each instruction of straight-line code, and how that is rounded.
    fn distances(a: &mut CodeAssembler, frame: Register) -> Vec<Option<(i64, Option<Aligned>)>> {
        let mut places = Places::at_entry();
        let distances = a.instructions().iter().map(|i| {
            let related = |places: &Places| places.of(Register::RSP)?.related(frame, places.of(frame)?);
            let relation = related(&places);
            places.pass(i);
            relation.map(|relation| (relation.above, relation.aligned))
        });
        distances.collect()
    }

    fn plain(above: i64) -> Option<(i64, Option<Aligned>)> {
        Some((above, None))
    }

    #[test]
    fn an_epilogue_is_as_deep_as_the_prologue_made_the_stack() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.push(rbx)?;
        a.sub(rsp, 0x28)?;
        a.mov(eax, dword_ptr(rbp - 4))?;
        a.call(0x1000)?;
        a.lea(rsp, rbp - 8)?;
        a.pop(rbx)?;
        a.leave()?;
        a.ret()?;
        let deep = plain(-0x30);
        assert_eq!(
            distances(&mut a, Register::RBP),
            [None, None, plain(0), plain(-8), deep, deep, deep, plain(-8), plain(0), None]
        );
        Ok(())
    }

    #[test]
    fn an_unknown_amount_of_stack_is_unknown() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.sub(rsp, rax)?;
        a.nop()?;
        a.mov(rsp, rbp)?;
        a.pop(rbp)?;
        assert_eq!(distances(&mut a, Register::RBP), [None, None, plain(0), None, None, plain(0)]);
        Ok(())
    }

    #[test]
    fn an_aligned_stack_is_known_by_what_it_was_before() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.push(rbx)?;
        a.mov(rbx, rsp)?;
        a.and(rsp, -16)?;
        a.sub(rsp, 0x240)?;
        a.call(0x1000)?;
        a.mov(rsp, rbx)?;
        a.ret()?;
        let aligned = |offset| Some((0, Some(Aligned { multiple: 16, offset })));
        let deep = aligned(-0x240);
        assert_eq!(
            distances(&mut a, Register::RBX),
            [None, None, plain(0), aligned(0), deep, deep, plain(0)]
        );
        Ok(())
    }

    #[test]
    fn a_call_keeps_no_register_that_its_caller_saves() -> Result<(), iced_x86::IcedError> {
        let mut a = CodeAssembler::new(64)?;
        a.lea(r10, rsp + 8)?;
        a.call(0x1000)?;
        a.ret()?;
        assert_eq!(distances(&mut a, Register::R10), [None, plain(-8), None]);
        Ok(())
    }
}
