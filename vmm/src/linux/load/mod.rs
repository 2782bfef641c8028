//! Loads a program: its segments, the vDSO ([`vdso`]), and the first stack as Linux lays it out. [`script`] is what a file
//! that begins with `#!` asks for. `prepared` keeps what a program file comes to.

mod prepared;
pub(crate) mod script;
pub mod vdso;

use crate::cpu_model::{FEATURES_EDX, Model};
use crate::elf::{ElfError, Image, Instructions};
use crate::failure::ProcessError;
use crate::memory::Rights;
use crate::memory::access::AccessError;
use crate::memory::layout::{STACK_AT_START, STACK_END, STACK_LIMIT, TIME_PAGE, VDSO};
use crate::memory::object::Object;
use crate::memory::sites::Known;
use crate::memory::space::AddressSpace;
use crate::memory::vma::{Backing, Content, page_of};
use crate::program::Ids;
use crate::ram::{Memory, PAGE, Virt};
use prepared::Prepared;
use std::sync::{Arc, OnceLock};
use x86::state::{RFLAGS_FIXED, RFLAGS_IF, Regs};
use x86::xsave::component;

/// How much of the stack arguments and environment may take (Linux: a quarter of its limit).
const ARGUMENTS_LIMIT: u64 = STACK_LIMIT / 4;
/// Size of a signal frame (AT_MINSIGSTKSZ), rounded up: what is on the stack without an XSAVE image takes a kilobyte.
fn signal_stack(cpu: Model) -> u64 {
    if cpu.components() & component::AVX512 == 0 { 2048 } else { 4096 }
}
/// Ticks per second of `times` (AT_CLKTCK).
const CLOCK_TICKS: u64 = 100;

const DATA: Rights = Rights { read: true, write: true, execute: false };
const CODE: Rights = Rights { read: true, write: false, execute: true };

/// What is loaded.
pub(crate) struct Program<'a> {
    /// The file's path, and the name that the program finds in AT_EXECFN.
    pub(crate) path: &'a str,
    pub(crate) name: &'a [u8],
    pub(crate) executable: &'a Arc<Vec<u8>>,
    /// The dynamic linker's path and bytes.
    pub(crate) interpreter: Option<(&'a str, &'a Arc<Vec<u8>>)>,
    pub(crate) argv: &'a [Vec<u8>],
    pub(crate) envp: &'a [Vec<u8>],
    pub(crate) random: [u8; 16],
    pub(crate) ids: Ids,
    pub(crate) cpu: Model,
    /// The time page.
    pub(crate) time: &'a Arc<Object>,
}

/// Builds the program's address space; gives it with the registers at the first instruction.
///
/// # Errors
/// When the files are no programs, the arguments do not fit, or memory is used up. Nothing is kept then.
pub(crate) fn load(memory: &mut Memory, program: &Program<'_>) -> Result<(AddressSpace, Regs), ProcessError> {
    let prepared = prepared::program(program.path, program.executable).map_err(refused(program.path))?;
    let interpreter = match program.interpreter {
        Some((path, file)) => Some(prepared::interpreter(path, file).map_err(refused(path))?),
        None => None,
    };
    let base = interpreter.as_ref().map_or(0, |interpreter| interpreter.image.bias);
    let stack = Stack::new(program, &prepared.image, base)?;
    let mut space = AddressSpace::new(memory)?;
    match fill(memory, &mut space, program, &prepared, interpreter.as_deref(), &stack) {
        Ok(()) => {}
        Err(error) => {
            space.release(memory);
            return Err(error);
        }
    }
    let entry = interpreter.map_or(prepared.image.entry, |interpreter| interpreter.image.entry);
    let mut regs = Regs { rip: entry, rflags: RFLAGS_FIXED | RFLAGS_IF, ..Regs::default() };
    regs.gpr[4] = stack.pointer;
    Ok((space, regs))
}

/// Why a file is not a program.
fn refused(path: &str) -> impl FnOnce(ElfError) -> ProcessError {
    let path = path.to_owned();
    |error| ProcessError::Program { path, error }
}

/// Maps all that a program begins with.
fn fill(
    memory: &mut Memory,
    space: &mut AddressSpace,
    program: &Program<'_>,
    prepared: &Prepared,
    interpreter: Option<&Prepared>,
    stack: &Stack,
) -> Result<(), ProcessError> {
    map_image(memory, space, prepared, program.executable)?;
    space.set_heap(prepared.image.end());
    map_vdso(memory, space, program.time)?;
    if let (Some(prepared), Some((_, file))) = (interpreter, program.interpreter) {
        map_image(memory, space, prepared, file)?;
    }
    let bottom = page_of(stack.pointer).saturating_sub(STACK_AT_START);
    let rights = Rights { execute: prepared.image.executable_stack, ..DATA };
    space.map(memory, bottom..STACK_END, rights, Backing::Zero("[stack]"))?;
    write(space, memory, stack.pointer, &stack.bytes)
}

/// Maps the segments of a file, and rewrites the machine reads in their code.
fn map_image(
    memory: &mut Memory,
    space: &mut AddressSpace,
    prepared: &Prepared,
    file: &[u8],
) -> Result<(), ProcessError> {
    for part in &prepared.parts {
        // Code is rewritten below, by the sections and symbols, which know better than the segment where it begins.
        let rights = Rights { execute: false, ..part.rights };
        if let Some(content) = &part.content {
            space.map(memory, part.start..part.file_end, rights, Backing::File(Arc::clone(content), 0))?;
        }
        if part.end > part.file_end {
            space.map(memory, part.file_end..part.end, rights, Backing::Zero(""))?;
        }
    }
    match prepared.found(file) {
        Some(found) => space.rewritten_before(found),
        None => {
            let Instructions { code, functions, bodies } = prepared.image.instructions(file);
            for code in code {
                space.rewrite(memory, code, Known { functions: &functions, bodies: &bodies })?;
            }
            prepared.keep(file, space.rewritten_in(prepared.extent()));
        }
    }
    for part in &prepared.parts {
        space.set_loaded_rights(part.start..part.end, part.rights);
    }
    Ok(())
}

fn map_vdso(memory: &mut Memory, space: &mut AddressSpace, time: &Arc<Object>) -> Result<(), ProcessError> {
    space.map(memory, VDSO..VDSO + PAGE, CODE, Backing::File(vdso_content()?, 0))?;
    space.map(memory, TIME_PAGE..VDSO, DATA, Backing::Shared(Arc::clone(time), 0))?;
    Ok(())
}

/// The vDSO, which is the same for all programs: assembled once.
fn vdso_content() -> Result<Arc<Content>, ProcessError> {
    static ASSEMBLED: OnceLock<Arc<Content>> = OnceLock::new();
    if let Some(content) = ASSEMBLED.get() {
        return Ok(Arc::clone(content));
    }
    let bytes = vdso::image().map_err(|error| ProcessError::Vdso(error.to_string()))?;
    let (name, size) = ("[vdso]".to_owned(), bytes.len() as u64);
    let content = Content { name, file_offset: 0, bytes: Arc::new(bytes), size };
    Ok(Arc::clone(ASSEMBLED.get_or_init(|| Arc::new(content))))
}

/// Writes what the loader itself mapped.
fn write(
    space: &mut AddressSpace,
    memory: &mut Memory,
    address: Virt,
    bytes: &[u8],
) -> Result<(), ProcessError> {
    match space.write(memory, address, bytes) {
        Ok(()) => Ok(()),
        Err(AccessError::Space(error)) => Err(error.into()),
        Err(AccessError::Bad) => Err(ProcessError::Launch("its arguments do not fit the stack".to_owned())),
    }
}

/// The first stack, from its pointer to its end.
struct Stack {
    pointer: Virt,
    bytes: Vec<u8>,
}

impl Stack {
    /// From the top down: eight zeroes, the file's name, the environment, the arguments, the platform's name,
    /// the random bytes; then argc and the vectors of pointers.
    fn new(program: &Program<'_>, image: &Image, base: Virt) -> Result<Stack, ProcessError> {
        let texts = || program.argv.iter().chain(program.envp);
        if texts().any(|text| text.contains(&0)) || program.name.contains(&0) {
            return Err(ProcessError::Launch("an argument contains a zero byte".to_owned()));
        }
        let size: u64 = texts().map(|text| text.len() as u64 + 9).sum();
        if size > ARGUMENTS_LIMIT {
            let message =
                format!("arguments and environment are {size} bytes, the limit is {ARGUMENTS_LIMIT}");
            return Err(ProcessError::Launch(message));
        }
        let mut top = Downwards { pointer: STACK_END - 8, bytes: vec![0; 8] };
        let name = top.push_text(program.name);
        let mut environment: Vec<Virt> = program.envp.iter().rev().map(|text| top.push_text(text)).collect();
        let mut arguments: Vec<Virt> = program.argv.iter().rev().map(|text| top.push_text(text)).collect();
        environment.reverse();
        arguments.reverse();
        let platform = top.push_text(b"x86_64");
        let random = top.push(&program.random);

        let mut vectors = vec![arguments.len() as u64];
        vectors.extend(arguments);
        vectors.push(0);
        vectors.extend(environment);
        vectors.push(0);
        let texts = Texts { name, platform, random };
        vectors.extend(auxiliary(program, image, base, &texts).as_flattened());
        let vectors: Vec<u8> = vectors.iter().flat_map(|word| word.to_le_bytes()).collect();
        let pointer = (top.pointer - vectors.len() as u64) & !15;
        let padding = usize::try_from(top.pointer - pointer).expect("less than the stack") - vectors.len();
        let mut bytes = vectors;
        bytes.extend(std::iter::repeat_n(0, padding));
        bytes.extend(top.bytes.iter().rev());
        Ok(Stack { pointer, bytes })
    }
}

/// A stack that is being filled from its end; its bytes are kept in the order of pushing, last byte first.
struct Downwards {
    pointer: Virt,
    bytes: Vec<u8>,
}

impl Downwards {
    fn push(&mut self, bytes: &[u8]) -> Virt {
        self.bytes.extend(bytes.iter().rev());
        self.pointer -= bytes.len() as u64;
        self.pointer
    }

    fn push_text(&mut self, text: &[u8]) -> Virt {
        self.push(&[0]);
        self.push(text)
    }
}

/// Where what the auxiliary vector points to is.
struct Texts {
    name: Virt,
    platform: Virt,
    random: Virt,
}

/// The auxiliary vector: what the kernel tells a program. `base` is where the dynamic linker is, or zero.
fn auxiliary(program: &Program<'_>, image: &Image, base: Virt, texts: &Texts) -> [[u64; 2]; 20] {
    let ids = program.ids;
    [
        [libc::AT_SYSINFO_EHDR, VDSO],
        [libc::AT_HWCAP, u64::from(FEATURES_EDX)],
        [libc::AT_PAGESZ, PAGE],
        [libc::AT_CLKTCK, CLOCK_TICKS],
        [libc::AT_PHDR, image.headers],
        [libc::AT_PHENT, 56],
        [libc::AT_PHNUM, image.header_count],
        [libc::AT_BASE, base],
        [libc::AT_FLAGS, 0],
        [libc::AT_ENTRY, image.entry],
        [libc::AT_UID, u64::from(ids.uid)],
        [libc::AT_EUID, u64::from(ids.euid)],
        [libc::AT_GID, u64::from(ids.gid)],
        [libc::AT_EGID, u64::from(ids.egid)],
        [libc::AT_SECURE, 0],
        [libc::AT_RANDOM, texts.random],
        [libc::AT_MINSIGSTKSZ, signal_stack(program.cpu)],
        [libc::AT_EXECFN, texts.name],
        [libc::AT_PLATFORM, texts.platform],
        [libc::AT_NULL, 0],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    fn stack(argv: &[&str]) -> Result<Stack, ProcessError> {
        let argv: Vec<Vec<u8>> = argv.iter().map(|text| text.as_bytes().to_vec()).collect();
        let program = Program {
            path: "/bin/p",
            name: b"/bin/p",
            executable: &Arc::default(),
            interpreter: None,
            argv: &argv,
            envp: &[b"A=1".to_vec()],
            random: *b"0123456789abcdef",
            ids: Ids::default(),
            cpu: Model::V2,
            time: &Arc::new(Object::new(0, "[vvar]", Vec::new(), PAGE)),
        };
        Stack::new(&program, &image(), 4)
    }

    fn image() -> Image {
        Image {
            entry: 1,
            headers: 2,
            header_count: 3,
            interpreter: None,
            executable_stack: false,
            bias: 0,
            segments: vec![],
        }
    }

    #[test]
    fn the_first_stack_is_as_linux_lays_it_out() {
        let stack = stack(&["p", "xyz"]).expect("it fits");
        assert!(stack.pointer.is_multiple_of(16) && stack.pointer + stack.bytes.len() as u64 == STACK_END);
        let at = |address: Virt| usize::try_from(address - stack.pointer).expect("inside the stack");
        let word =
            |address: Virt| u64::from_le_bytes(stack.bytes[at(address)..][..8].try_into().expect("8 bytes"));
        let text =
            |address: Virt| stack.bytes[at(address)..].split(|&byte| byte == 0).next().expect("a text");
        let p = stack.pointer;
        assert_eq!(word(p), 2);
        assert_eq!((text(word(p + 8)), text(word(p + 16)), word(p + 24)), (&b"p"[..], &b"xyz"[..], 0));
        assert_eq!((text(word(p + 32)), word(p + 40)), (&b"A=1"[..], 0));
        assert_eq!((word(p + 48), word(p + 56)), (libc::AT_SYSINFO_EHDR, VDSO));
        let name = (p + 48..).step_by(16).find(|&entry| word(entry) == libc::AT_EXECFN).expect("AT_EXECFN");
        assert_eq!(text(word(name + 8)), b"/bin/p");
        assert_eq!(word(name + 8) + 7, STACK_END - 8);
        let random = (p + 48..).step_by(16).find(|&entry| word(entry) == libc::AT_RANDOM).expect("AT_RANDOM");
        assert_eq!(&stack.bytes[at(word(random + 8))..][..16], b"0123456789abcdef");
    }

    #[test]
    fn arguments_that_cannot_be_passed_are_refused() {
        assert!(stack(&["a\0b"]).is_err());
        assert!(stack(&[&"x".repeat(3 << 20)]).is_err());
    }
}
