//! A file that is loaded, parsed: its names, its unwind tables, its debug information.

use super::files::Files;
use crate::abort_message;
use crate::debug_files::DebugFiles;
use lbr::regular;
use object::elf::{FileHeader64, PT_LOAD, PT_TLS, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol, ObjectSymbolTable, RelocationFlags, RelocationTarget, SymbolKind};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use synth::program::{Names, Reader};
use vmm::elfcore::Module;
use vmm::elfcore::unwind::Tables;
use vmm::process::Process;
use vmm::ram::PAGE;

/// A file that is loaded.
pub(crate) struct Loaded {
    /// Its name where it was mapped.
    path: String,
    bias: u64,
    names: Names,
    tables: Tables,
    thread_local: Option<u64>,
    /// Where a C library has the pointer to what it said before it aborted.
    abort_message: Option<u64>,
    /// The words that the dynamic linker fills with the addresses of functions, by their names.
    slots: Vec<(String, u64)>,
    /// The variables that the symbol tables name, with the bytes that they are.
    objects: Vec<(String, Range<u64>)>,
}

impl Loaded {
    /// The file that is mapped from `start` on and begins with `mapped`; `None` where it is nowhere, which is said.
    pub(super) fn find(
        path: &str,
        start: u64,
        mapped: &[u8],
        files: &mut Files,
        debug_files: &mut DebugFiles,
    ) -> Option<Loaded> {
        let bytes = files.find(path, mapped, |file| {
            let bytes = regular::read(file).ok()?;
            object::File::parse(&*bytes).is_ok().then_some(bytes)
        })?;
        let debug = debug_files.of(Path::new(path), &bytes);
        Loaded::parse(path, start, &bytes, debug.as_deref())
    }

    /// The file with these bytes, whose beginning is mapped at `start`.
    pub(super) fn parse(path: &str, start: u64, bytes: &[u8], debug: Option<&[u8]>) -> Option<Loaded> {
        let bias = start.wrapping_sub(first_address(bytes)?);
        let names = Names::of(Module { bytes, bias, debug }).ok()?;
        let tables = Tables::of(bytes, bias).ok()?;
        let (thread_local, slots) = (thread_local(bytes), slots(bytes, bias));
        let abort_message = abort_message::pointer(bytes).map(|at| at.wrapping_add(bias));
        let mut objects = objects(bytes, bias);
        objects.extend(debug.iter().flat_map(|debug| self::objects(debug, bias)));
        let path = path.to_owned();
        Some(Loaded { path, bias, names, tables, thread_local, abort_message, slots, objects })
    }

    /// Its name where it was mapped.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// What to add to the addresses in it.
    pub(crate) fn bias(&self) -> u64 {
        self.bias
    }

    /// Its functions and lines.
    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Its debug information, where there is any.
    pub(crate) fn dwarf(&self) -> Option<&Arc<gimli::Dwarf<Reader>>> {
        self.names.dwarf()
    }

    /// The size of its thread-local variables, rounded up to their alignment: a program's are so far below the base of FS.
    pub(crate) fn thread_local(&self) -> Option<u64> {
        self.thread_local
    }

    /// What a C library said before it aborted, if this is one, and it did.
    pub(crate) fn abort_message(&self, process: &Process) -> Option<String> {
        abort_message::text(self.abort_message?, &|at, out| process.read_memory(at, out))
    }

    pub(super) fn slots(&self) -> &[(String, u64)] {
        &self.slots
    }

    /// Variables of this name, with the bytes that they are.
    pub(super) fn objects<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Range<u64>> {
        self.objects.iter().filter(move |(of, _)| of == name).map(|(_, range)| range)
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }
}

/// The words of a file's tables that are to hold the addresses of symbols.
fn slots(bytes: &[u8], bias: u64) -> Vec<(String, u64)> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let symbols = file.dynamic_symbol_table();
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let named = relocations.filter_map(|(offset, relocation)| {
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let RelocationFlags::Elf { r_type: R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT, .. } = relocation.flags()
        else {
            return None;
        };
        let name = symbols.as_ref()?.symbol_by_index(index).ok()?.name().ok()?.to_owned();
        Some((name, offset.wrapping_add(bias)))
    });
    named.collect()
}

/// The variables that a file's symbol tables name and give a size.
fn objects(bytes: &[u8], bias: u64) -> Vec<(String, Range<u64>)> {
    let Ok(file) = object::File::parse(bytes) else { return Vec::new() };
    let objects = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0 && !symbol.is_undefined());
    let named = objects.filter_map(|symbol| {
        let start = symbol.address().wrapping_add(bias);
        Some((symbol.name().ok()?.to_owned(), start..start.checked_add(symbol.size())?))
    });
    named.collect()
}

/// The address, in the file's own terms, at which its first byte is loaded.
fn first_address(bytes: &[u8]) -> Option<u64> {
    let endian = object::LittleEndian;
    let header = FileHeader64::<object::LittleEndian>::parse(bytes).ok()?;
    let headers = header.program_headers(endian, bytes).ok()?;
    let first = headers.iter().find(|it| it.p_type(endian) == PT_LOAD && it.p_offset(endian) < PAGE)?;
    first.p_vaddr(endian).checked_sub(first.p_offset(endian))
}

/// The size of what is thread-local in a file, rounded up to its alignment.
fn thread_local(bytes: &[u8]) -> Option<u64> {
    let endian = object::LittleEndian;
    let header = FileHeader64::<object::LittleEndian>::parse(bytes).ok()?;
    let headers = header.program_headers(endian, bytes).ok()?;
    let tls = headers.iter().find(|it| it.p_type(endian) == PT_TLS)?;
    tls.p_memsz(endian).checked_next_multiple_of(tls.p_align(endian).max(1))
}
