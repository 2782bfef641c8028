//! From a region to machine code: Cranelift, as fast as it compiles.
//!
//! Without its optimizer: what there is to optimize in a run (sums that are asked for again, known operands) is done when the code
//! is written ([`crate::clif`]), and compiling costs more than half of what it would.

use cranelift_codegen::Context as Codegen;
use cranelift_codegen::control::ControlPlane;
use cranelift_codegen::ir::{AbiParam, InstBuilder, Signature, types};
use cranelift_codegen::isa::{CallConv, OwnedTargetIsa};
use cranelift_codegen::settings::{self, Configurable, SetError};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext};

use crate::exits::Need;
use crate::region::Region;
use crate::translator::{signature, translate};

/// What is made of a region.
pub(crate) struct Compiled {
    pub(crate) bytes: Vec<u8>,
    /// What it needs of the flags where it is entered.
    pub(crate) need: Need,
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
        let Some(need) = translate(region, &mut self.codegen.func, &mut self.shared, config) else {
            // It was left half written, and so was what it shares with the next one.
            self.shared = FunctionBuilderContext::new();
            return None;
        };
        Some(Compiled { bytes: self.bytes()?, need })
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
        self.bytes()
    }

    /// The machine code of what is written, if it can lie anywhere.
    fn bytes(&mut self) -> Option<Vec<u8>> {
        let compiled = self.codegen.compile(&*self.isa, &mut ControlPlane::default()).ok()?;
        compiled.buffer.relocs().is_empty().then(|| compiled.code_buffer().to_vec())
    }
}
