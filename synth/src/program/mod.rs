//! The program of a core: its executable as the search and the reports see it.
//!
//! Example: of the address 0x55555555525b, [`code`] says that the instruction is `add rsi, [rax+0x10]`, [`lines`] that this
//! is `main` at orders.c:28, and [`mod@cfg`] that the `jne` at 0x555555555266, which jumps there, can have run right
//! before.
//!
//! | part | module |
//! | --- | --- |
//! | parsing the file, which is hostile input | [`elf`] |
//! | every instruction, decoded once; extents of functions | [`code`], [`functions`] |
//! | from addresses to source lines | [`lines`] |
//! | the map of predecessors; where indirect jumps and calls lead | [`mod@cfg`], [`tables`] |
//! | how deep the stack is | [`stack`] |
//! | functions that only give up; which branches lead to a place | [`way_back`], [`guards`] |
//! | for who looks at a file without searching in it | [`names`] |
//! | names of C++ functions for people | [`mod@readable`] |
//! | a kernel as it lies in a machine's memory | [`memory`] |
//!
//! All addresses that leave this module are run-time addresses: the load biases are added.

pub mod cfg;
pub(crate) mod code;
mod elf;
mod functions;
mod guards;
mod lines;
mod memory;
mod names;
mod readable;
pub mod stack;
mod tables;
mod way_back;

pub use functions::Function;
pub use guards::Guard;
pub use lines::{Reader, SourceFrame, demangled};
pub use memory::Layout;
pub use names::{Names, Symbol};
pub use readable::readable;

use code::Code;
use elf::{Image, Segment};
use iced_x86::{Instruction, Mnemonic, Register};
use lines::{Debug, Lines};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::OnceLock;
use vmm::elfcore::Module;

/// The number of the system call that ends a signal's handler.
pub(crate) const RT_SIGRETURN: u64 = 15;

/// An executable, and the shared libraries that were loaded beside it, decoded.
pub struct Program {
    image: Image,
    functions: Vec<Function>,
    code: Code,
    /// The line tables, each with the addresses that its file loads.
    lines: Vec<(Range<u64>, Lines)>,
    /// How many files there are.
    modules: usize,
    /// The code of gretel's own vDSO, where it is known.
    vdso: Option<Range<u64>>,
    /// Found when they are first asked for.
    restorers: OnceLock<Vec<u64>>,
    kernel: Option<OfKernel>,
}

/// What a kernel has beside the code of a program.
struct OfKernel {
    /// What the processor enters by itself, and by which way.
    entered: HashMap<u64, &'static str>,
    /// The selectors of ES, CS, SS, DS, FS and GS. No path that is searched changes them.
    selectors: [u16; 6],
    /// What RDTSCP gives beside the time stamp.
    time_stamp_aux: u64,
}

impl Program {
    /// Parses an executable that is loaded `load_bias` above the addresses in the file (zero unless it is a
    /// static PIE).
    ///
    /// # Errors
    /// When the file is not an x86-64 ELF executable, or is damaged.
    pub fn from_bytes(bytes: &[u8], load_bias: u64) -> Result<Program, ProgramError> {
        Program::from_modules(Module { bytes, bias: load_bias, debug: None }, &[], None)
    }

    /// The same with the shared libraries that were loaded, the dynamic linker among them, and the vDSO if it is gretel's own.
    ///
    /// # Errors
    /// When one of the files is not an x86-64 ELF executable, or is damaged.
    pub fn from_modules(
        executable: Module<'_>,
        libraries: &[Module<'_>],
        vdso: Option<Module<'_>>,
    ) -> Result<Program, ProgramError> {
        let (mut image, tables) = elf::parse(executable.bytes, executable.bias)?;
        let (mut symbols, mut lines) = (Vec::new(), Vec::new());
        take_tables(executable, &image, tables, &mut symbols, &mut lines);
        for module in libraries.iter().chain(&vdso) {
            let (library, tables) = elf::parse(module.bytes, module.bias)?;
            take_tables(*module, &library, tables, &mut symbols, &mut lines);
            image.add(library)?;
        }
        let vdso = vdso.map(|module| module.bias..module.bias + module.bytes.len() as u64);
        let mut functions = functions::extents(&symbols, &image.code);
        let code = Code::decode(&image, &functions);
        functions::name_gaps(&mut functions, &image.code, &code);
        Ok(Program {
            image,
            functions,
            code,
            lines,
            modules: 1 + libraries.len(),
            vdso,
            restorers: OnceLock::new(),
            kernel: None,
        })
    }

    /// Whether there are shared libraries: then calls go through tables that the dynamic linker fills while the
    /// program runs.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.modules > 1
    }

    /// Where gretel's own vDSO lies, if its code is known: what it answers is in the clock's page
    /// ([`vmm::memory::layout::TIME_PAGE`]).
    #[must_use]
    pub fn vdso(&self) -> Option<&Range<u64>> {
        self.vdso.as_ref()
    }

    /// Whether it is a kernel, which runs in ring 0.
    #[must_use]
    pub fn is_kernel(&self) -> bool {
        self.kernel.is_some()
    }

    /// By which way the processor enters a kernel at `va`, if it does: an interrupt, a system call.
    #[must_use]
    pub fn entered_by(&self, va: u64) -> Option<&'static str> {
        self.kernel.as_ref()?.entered.get(&va).copied()
    }

    /// What a segment register of a kernel holds wherever its instructions are searched: as in the core, since none of these changes it.
    #[must_use]
    pub fn selector(&self, register: Register) -> Option<u16> {
        let kernel = self.kernel.as_ref().filter(|_| register.is_segment_register())?;
        kernel.selectors.get(register.number()).copied()
    }

    /// What RDTSCP of a kernel gives beside the time stamp (`IA32_TSC_AUX`); zero of a program.
    #[must_use]
    pub fn time_stamp_aux(&self) -> u64 {
        self.kernel.as_ref().map_or(0, |kernel| kernel.time_stamp_aux)
    }

    /// Whether any of the code in `range` is known.
    #[must_use]
    pub fn has_code_in(&self, range: &Range<u64>) -> bool {
        self.image.code.iter().any(|code| code.start < range.end && range.start < code.end())
    }

    /// The load bias of the executable in `bytes`, from the run-time address of its entry point (AT_ENTRY).
    ///
    /// # Errors
    /// When the file is not an x86-64 ELF executable.
    pub fn load_bias(bytes: &[u8], at_entry: u64) -> Result<u64, ProgramError> {
        Ok(at_entry.wrapping_sub(elf::entry(bytes)?))
    }

    /// The entry point.
    #[must_use]
    pub fn entry(&self) -> u64 {
        self.image.entry
    }

    /// All functions by address; their extents do not overlap. Code that no symbol and no unwind entry covers
    /// is in functions named `sub_ADDRESS`.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function that `va` is in.
    #[must_use]
    pub fn function_at(&self, va: u64) -> Option<&Function> {
        let after = self.functions.partition_point(|function| function.start <= va);
        self.functions[..after].last().filter(|function| va < function.end)
    }

    /// The functions in the source that the instruction at `va` belongs to, where the file has debug information for
    /// it: the innermost inlined one first, the one that was compiled last.
    #[must_use]
    pub fn source_frames(&self, va: u64) -> Vec<SourceFrame> {
        let lines = self.lines.iter().find(|(extent, _)| extent.contains(&va));
        lines.map_or_else(Vec::new, |(_, lines)| lines.frames(va))
    }

    /// `len` bytes of executable code at `va`, as the file has them.
    #[must_use]
    pub fn code(&self, va: u64, len: usize) -> Option<&[u8]> {
        self.image.code.iter().find_map(|range| range.bytes(va, len))
    }

    /// `len` bytes at `va` as the file has them (before relocations and before anything was written).
    #[must_use]
    pub fn initial_bytes(&self, va: u64, len: usize) -> Option<&[u8]> {
        self.image.segments.iter().find_map(|segment| segment.bytes(va, len))
    }

    /// The instruction at `va`, if the sweep found an instruction boundary there.
    #[must_use]
    pub fn instruction_at(&self, va: u64) -> Option<Instruction> {
        self.code.at(va).map(|index| *self.code.get(index))
    }

    /// How many instructions were decoded.
    #[must_use]
    pub fn instruction_count(&self) -> usize {
        self.code.len()
    }

    /// Where code begins that returns from a signal's handler, as a C library has it: `mov eax, 15` (rt_sigreturn) and SYSCALL.
    #[must_use]
    pub fn restorers(&self) -> &[u64] {
        self.restorers.get_or_init(|| self.find_restorers().collect())
    }

    fn find_restorers(&self) -> impl Iterator<Item = u64> {
        let is_number = |i: &Instruction| {
            i.mnemonic() == Mnemonic::Mov
                && i.op0_register().full_register() == Register::RAX
                && i.try_immediate(1).is_ok_and(|number| number == RT_SIGRETURN)
        };
        let is_restorer = move |number: &Instruction, call: &Instruction| {
            is_number(number) && call.mnemonic() == Mnemonic::Syscall && number.next_ip() == call.ip()
        };
        self.code.all().windows(2).filter_map(move |pair| match pair {
            [number, call] => is_restorer(number, call).then_some(number.ip()),
            _ => None,
        })
    }

    /// Whether the program cannot write at `va` after its start-up: read-only segments and what is made
    /// read-only after relocation, and the global offset table.
    #[must_use]
    pub fn is_constant(&self, va: u64) -> bool {
        self.image.constant.iter().any(|range| range.contains(&va))
    }

    fn segments(&self) -> &[Segment] {
        &self.image.segments
    }
}

/// Takes a module's symbols and line tables: its own, and those that were taken out of it. What is damaged of the latter is as if it
/// were not installed.
fn take_tables(
    module: Module<'_>,
    image: &Image,
    tables: elf::Tables,
    symbols: &mut Vec<elf::CodeSymbol>,
    lines: &mut Vec<(Range<u64>, Lines)>,
) {
    symbols.extend(tables.symbols);
    let own = tables.debug.iter().any(|(name, _)| name == ".debug_line");
    let debug = match module.debug.filter(|_| !own) {
        Some(separate) => {
            symbols.extend(elf::separate_symbols(separate, module.bias).unwrap_or_default());
            Debug::Separate(separate.into())
        }
        None => Debug::Sections(tables.debug),
    };
    lines.push((image.extent(), Lines::new(debug, module.bias)));
}

/// Why an executable cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It does not parse.
    #[error("not a readable ELF file: {0}")]
    Elf(#[from] object::Error),
    /// It parses, but is for another machine or of another kind.
    #[error("not an x86-64 executable: {0}")]
    Kind(&'static str),
    /// A kernel's page tables do not lead to any of its code.
    #[error("no code of the kernel is mapped there")]
    NoCode,
    /// An address overflows or lies outside the file.
    #[error("damaged executable: {what} at {address:#x}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where, as an address in the file's own terms.
        address: u64,
    },
}
