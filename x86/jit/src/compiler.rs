//! From a region to machine code: Cranelift, as fast as it compiles.
//!
//! Without its optimizer: what there is to optimize in a run (sums that are asked for again, known operands) is done when the code
//! is written ([`crate::clif`]), and compiling costs more than half of what it would.

use cranelift_codegen::Context as Codegen;
use cranelift_codegen::binemit::Reloc;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, ExternalName, InstBuilder, Signature, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable, SetError};
use cranelift_codegen::{FinalizedMachReloc, FinalizedRelocTarget};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use crate::region::Region;
use crate::translator::{signature, translate};

/// What is made of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    pub(crate) bytes: Vec<u8>,
    /// Where addresses of outcalls are to be written.
    pub(crate) outcalls: Vec<OutcallAt>,
}

/// A place in code for the address of an outcall, which is another one in each run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutcallAt {
    /// Where in the code its eight bytes are.
    pub(crate) at: u32,
    /// Which outcall of the region.
    pub(crate) number: u32,
}

impl OutcallAt {
    /// Whether the code has the place, and there are so many outcalls.
    pub(crate) fn is_in(self, code: &[u8], outcalls: usize) -> bool {
        (self.number as usize) < outcalls && (self.at as usize) + size_of::<u64>() <= code.len()
    }
}

/// What code depends on of the processor it is compiled for; `None` where there is no compiler.
pub(crate) fn host() -> Option<String> {
    let isa = Compiler::new().ok()?.isa;
    let flags = isa.isa_flags();
    let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
    Some(format!("{} {}", isa.triple(), flags.join(" ")))
}

pub(crate) struct Compiler {
    isa: OwnedTargetIsa,
    codegen: Codegen,
    shared: FunctionBuilderContext,
}

/// Why there is no compiler.
#[derive(Debug)]
pub(crate) struct NoCompiler(String);

impl std::fmt::Display for NoCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<SetError> for NoCompiler {
    fn from(error: SetError) -> NoCompiler {
        NoCompiler(error.to_string())
    }
}

impl From<std::io::Error> for NoCompiler {
    fn from(error: std::io::Error) -> NoCompiler {
        NoCompiler(error.to_string())
    }
}

impl Compiler {
    /// A compiler for this processor.
    ///
    /// # Errors
    /// When it is of a kind that Cranelift does not know.
    pub(crate) fn new() -> Result<Compiler, NoCompiler> {
        let mut flags = settings::builder();
        for (name, value) in [
            ("opt_level", "none"),
            ("enable_verifier", if cfg!(debug_assertions) { "true" } else { "false" }),
            ("unwind_info", "false"),
            // Tail calls need them.
            ("preserve_frame_pointers", "true"),
        ] {
            flags.set(name, value)?;
        }
        let isa = cranelift_native::builder()
            .map_err(|why| NoCompiler(why.to_owned()))?
            .finish(settings::Flags::new(flags))
            .map_err(|error| NoCompiler(error.to_string()))?;
        Ok(Compiler { isa, codegen: Codegen::new(), shared: FunctionBuilderContext::new() })
    }

    /// The code of a region; `None` where there can be none.
    pub(crate) fn compile(&mut self, region: &Region) -> Option<Compiled> {
        self.codegen.clear();
        let config = self.isa.frontend_config();
        if translate(region, &mut self.codegen.func, &mut self.shared, config).is_none() {
            // It was left half written, and so was what it shares with the next one.
            self.shared = FunctionBuilderContext::new();
            return None;
        }
        let bytes = self.bytes()?;
        let relocations = self.codegen.compiled_code()?.buffer.relocs();
        let outcalls = relocations.iter().map(|it| self.outcall_at(it)).collect::<Option<_>>()?;
        Some(Compiled { bytes, outcalls })
    }

    /// The code that [`crate::native::Gate`] enters compiled code by: it has the host's calling convention, and its arguments are
    /// the context and the code to call.
    pub(crate) fn gate(&mut self) -> Option<Vec<u8>> {
        self.codegen.clear();
        let mut host = Signature::new(CallConv::SystemV);
        host.params.extend([AbiParam::new(types::I64); 2]);
        host.returns.push(AbiParam::new(types::I64));
        self.codegen.func.signature = host;
        let mut builder = FunctionBuilder::new(&mut self.codegen.func, &mut self.shared);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        builder.seal_block(entry);
        let (context, code) = (builder.block_params(entry)[0], builder.block_params(entry)[1]);
        let signature = builder.import_signature(signature());
        let call = builder.ins().call_indirect(signature, code, &[context]);
        let why = builder.inst_results(call)[0];
        builder.ins().return_(&[why]);
        builder.finalize(self.isa.frontend_config());
        let bytes = self.bytes()?;
        self.codegen.compiled_code()?.buffer.relocs().is_empty().then_some(bytes)
    }

    /// The machine code of what is written.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        let compiled = self.codegen.compile(&*self.isa, &mut ControlPlane::default()).ok()?;
        Some(compiled.code_buffer().to_vec())
    }

    /// What is to be written there; `None` if that is not the address of an outcall.
    fn outcall_at(&self, it: &FinalizedMachReloc) -> Option<OutcallAt> {
        let FinalizedRelocTarget::ExternalName(ExternalName::User(name)) = &it.target else { return None };
        let is_address = it.kind == Reloc::Abs8 && it.addend == 0;
        let number = self.codegen.func.params.user_named_funcs().get(*name)?.index;
        is_address.then_some(OutcallAt { at: it.offset, number })
    }
}
