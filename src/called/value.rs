//! Values of arguments and results as people read them.

use crate::symbols::Symbols;
use crate::values::{Frame, Info, Signature, World, show_within};
use std::rc::Rc;
use vmm::engine::EngineError;
use vmm::process::{Process, ProcessError};
use x86::op::Gpr;
use x86::state::Fpu;

/// An argument that is longer is cut: a call is a line.
const LONGEST: usize = 160;
/// The hardware numbers of the registers that DWARF numbers 0 to 7: rax rdx rcx rbx rsi rdi rbp rsp.
const HARDWARE: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
/// rdi, rsi, rdx, rcx, r8, r9: the registers of integers and pointers.
const GENERAL: [usize; 6] = [7, 6, 2, 1, 8, 9];

/// An argument or a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// The parameter, or the register where that is not known.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A call that begins.
pub(crate) struct Begun {
    /// Its arguments; without a signature, the registers that hold the first integers and pointers.
    pub(crate) arguments: Vec<Shown>,
    /// Where its result is to be put, if its caller says that.
    pub(crate) result_at: Option<u64>,
}

/// The call of a function that begins where the program stands.
pub(crate) fn begun(
    process: &mut Process,
    symbols: &Symbols,
    signature: Option<&Signature>,
) -> Result<Begun, ProcessError> {
    let Some(signature) = signature else {
        let regs = process.cpu().regs();
        let shown = |number: usize| Shown {
            name: Gpr::NAMES[number].to_owned(),
            text: format!("{:#x}", regs.gpr[number]),
        };
        return Ok(Begun { arguments: GENERAL.into_iter().map(shown).collect(), result_at: None });
    };
    let here = Here::new(process, symbols, signature.takes_vectors())?;
    let mut arguments = Vec::new();
    for parameter in &signature.parameters {
        let value = parameter.value(&here);
        let text = match value.missing() {
            Some(_) => "?".to_owned(),
            None => show_within(&value, &here, LONGEST),
        };
        arguments.push(Shown { name: parameter.name.clone(), text });
    }
    if signature.variadic {
        arguments.push(Shown { name: String::new(), text: "...".to_owned() });
    }
    Ok(Begun { arguments, result_at: signature.result_address(&here) })
}

/// The result of a function that has just returned; `None` of one that gives nothing, or where it is not known.
pub(crate) fn result(
    process: &mut Process,
    symbols: &Symbols,
    signature: Option<&Signature>,
    address: Option<u64>,
) -> Result<Option<String>, ProcessError> {
    let Some(signature) = signature else {
        return Ok(Some(format!("{:#x}", process.cpu().regs().gpr[usize::from(Gpr::RAX.0)])));
    };
    let here = Here::new(process, symbols, signature.gives_vectors())?;
    let result = signature.result(&here, address);
    Ok(result.map(|value| match value.missing() {
        Some(_) => "?".to_owned(),
        None => show_within(&value, &here, LONGEST),
    }))
}

/// The program where a function begins or has returned.
struct Here<'a> {
    process: &'a Process,
    symbols: &'a Symbols,
    frame: Frame,
}

impl<'a> Here<'a> {
    fn new(process: &'a mut Process, symbols: &'a Symbols, vectors: bool) -> Result<Here<'a>, ProcessError> {
        let fpu = match vectors {
            true => Some(process.cpu_mut().fpu().map_err(|error: EngineError| ProcessError::from(error))?),
            false => None,
        };
        let regs = *process.cpu().regs();
        let rsp = regs.gpr[usize::from(Gpr::RSP.0)];
        let general = |n: usize| match n {
            16 => None,
            n => Some(regs.gpr[HARDWARE.get(n).copied().unwrap_or(n)]),
        };
        let low = |fpu: &Fpu, n: usize| {
            let [low, high] = fpu.xmm(n);
            u128::from(high) << 64 | u128::from(low)
        };
        let frame = Frame {
            rip: regs.rip,
            pc: regs.rip,
            // The return address was pushed last.
            cfa: Some(rsp.wrapping_add(8)),
            general: std::array::from_fn(general),
            vector: fpu.map(|fpu| std::array::from_fn(|n| low(&fpu, n))),
            fs_base: regs.fs_base,
        };
        Ok(Here { process, symbols, frame })
    }
}

impl World for Here<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.process.read_memory(address, bytes)
    }

    fn frame(&self, n: usize) -> Option<Frame> {
        (n == 0).then(|| self.frame.clone())
    }

    fn info(&self, _: u64) -> Option<Rc<Info>> {
        None
    }

    fn infos(&self) -> Vec<Rc<Info>> {
        Vec::new()
    }

    fn name(&self, address: u64) -> Option<String> {
        let function = self.symbols.module_at(address)?.names().function_at(address)?;
        (function.start == address).then(|| synth::program::readable(&function.name))
    }
}
