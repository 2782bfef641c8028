//! Instructions that compiled code has the CPU run: strings, some vectors, x87 and whatever else the integer table has not.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::immediates::Imm64;
use cranelift_codegen::ir::{
    AbiParam, ExternalName, GlobalValueData, InstBuilder, Signature, UserExternalName, Value, types,
};
use cranelift_codegen::isa::CallConv;
use iced_x86::{Instruction, InstructionInfoFactory, InstructionInfoOptions, OpAccess, RflagsBits};
use x86::bus::Bus;
use x86::cpu::Cpu;
use x86::flags::Flags;
use x86::machine::{Body, Last, Machine};
use x86::op::Op;

use crate::clif::{Clif, own};
use crate::context::{Context, Stored};

/// The arithmetic flags, as the decoder names them.
const ARITHMETIC: u32 =
    RflagsBits::CF | RflagsBits::PF | RflagsBits::AF | RflagsBits::ZF | RflagsBits::SF | RflagsBits::OF;

/// What compiled code calls: the context, then an [`Outcall`]. Not zero where the instruction trapped: it is to be run again.
pub(crate) type Entry = unsafe extern "C" fn(*mut Context, *const u8) -> u64;

/// An instruction to run on the CPU.
#[repr(C)]
pub(crate) struct Outcall<B: Bus> {
    /// What compiled code calls.
    entry: Entry,
    does: Does<B>,
    op: Op,
    touches_flags: bool,
}

/// What an instruction does.
#[derive(Clone, Copy)]
pub(crate) enum Does<B: Bus> {
    Body(Body<Cpu<B>>),
    /// All iterations of a string instruction. One that traps between two of them leaves a trace in registers and memory: the
    /// interpreter goes on from there, as the guest's program does behind a page fault.
    String(Last<Cpu<B>>),
}

impl<B: Bus> Outcall<B> {
    pub(crate) fn new(entry: Entry, i: &Instruction, does: Does<B>, op: Op) -> Outcall<B> {
        Outcall { entry, does, op, touches_flags: touches_flags(i) }
    }

    /// Runs it; `flags` are the arithmetic flags before and after. Whether it trapped, or is left to the interpreter, which ends the
    /// run behind it.
    pub(crate) fn run(&self, cpu: &mut Cpu<B>, flags: &mut Stored) -> bool {
        if self.touches_flags {
            cpu.set_flags(flags.flags());
        }
        let has_trapped = match self.does {
            Does::Body(body) => body(cpu, &self.op).is_err(),
            Does::String(_) if cpu.strings_are_over() => true,
            Does::String(iteration) => !matches!(cpu.run_string(&self.op, iteration), Ok(true)),
        };
        if self.touches_flags {
            let now: Flags<u64, bool> = cpu.flags();
            *flags = Stored::bits_of(&now);
        }
        has_trapped
    }
}

/// Those of a region, by number. Its code has their addresses.
#[expect(clippy::vec_box, reason = "an address holds while others are added")]
pub(crate) struct Outcalls<B: Bus>(Vec<Box<Outcall<B>>>);

impl<B: Bus> Outcalls<B> {
    pub(crate) const fn new() -> Outcalls<B> {
        Outcalls(Vec::new())
    }

    /// Adds the next one.
    pub(crate) fn add(&mut self, outcall: Outcall<B>) {
        self.0.push(Box::new(outcall));
    }

    /// The address of one.
    pub(crate) fn address(&self, number: u32) -> Option<u64> {
        let outcall = self.0.get(usize::try_from(number).ok()?)?;
        Some(std::ptr::from_ref(&**outcall).addr() as u64)
    }
}

/// Whether an instruction reads or writes arithmetic flags.
pub(crate) fn touches_flags(i: &Instruction) -> bool {
    (i.rflags_read() | i.rflags_modified()) & ARITHMETIC != 0
}

/// The general registers that an instruction writes, a bit for each.
pub(crate) fn written_registers(i: &Instruction) -> u16 {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info_options(i, InstructionInfoOptions::NO_MEMORY_USAGE);
    let written = info.used_registers().iter().filter(|used| {
        used.register().is_gpr()
            && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
    });
    written.fold(0, |all, used| all | 1 << used.register().full_register().number())
}

/// Writes the call of the [`Outcall`] of this number: whether it trapped. Its address is left open
/// ([`crate::compiler::OutcallAt`]).
pub(crate) fn write(d: &Clif<'_>, number: u32) -> Value {
    let trapped = {
        let mut builder = d.builder.borrow_mut();
        let name = builder.func.declare_imported_user_function(UserExternalName::new(0, number));
        let symbol = GlobalValueData::Symbol {
            name: ExternalName::user(name),
            offset: Imm64::new(0),
            colocated: false,
            tls: false,
        };
        let symbol = builder.create_global_value(symbol);
        let argument = builder.ins().symbol_value(types::I64, symbol);
        let mut signature = Signature::new(CallConv::SystemV);
        signature.params.extend([AbiParam::new(types::I64); 2]);
        signature.returns.push(AbiParam::new(types::I64));
        let signature = builder.import_signature(signature);
        let entry = builder.ins().load(types::I64, own(), argument, 0);
        let call = builder.ins().call_indirect(signature, entry, &[d.context, argument]);
        builder.inst_results(call)[0]
    };
    d.compare(IntCC::NotEqual, trapped, d.constant(64, 0))
}
