//! A file that is loaded, parsed: its names, its unwind tables, its debug information.

use super::files::Files;
use crate::debug_files::DebugFiles;
use lbr::regular;
use object::elf::{FileHeader64, PT_LOAD, PT_TLS};
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::Path;
use synth::program::{Names, Reader};
use vmm::elfcore::Module;
use vmm::elfcore::unwind::Tables;
use vmm::ram::PAGE;

/// A file that is loaded.
pub(crate) struct Loaded {
    /// Its name where it was mapped.
    path: String,
    bias: u64,
    names: Names,
    tables: Tables,
    thread_local: Option<u64>,
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
        let thread_local = thread_local(bytes);
        Some(Loaded { path: path.to_owned(), bias, names, tables, thread_local })
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
    pub(crate) fn dwarf(&self) -> Option<&gimli::Dwarf<Reader>> {
        self.names.dwarf()
    }

    /// The size of its thread-local variables, rounded up to their alignment: a program's are so far below the base of FS.
    pub(crate) fn thread_local(&self) -> Option<u64> {
        self.thread_local
    }

    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }
}

/// The address, in the file's own terms, at which its first byte is loaded.
fn first_address(bytes: &[u8]) -> Option<u64> {
    let endian = object::LittleEndian;
    let header = FileHeader64::<object::LittleEndian>::parse(bytes).ok()?;
    let headers = header.program_headers(endian, bytes).ok()?;
    let first = headers.iter().find(|it| it.p_type(endian) == PT_LOAD && it.p_offset(endian) < PAGE)?;
    first.p_vaddr(endian).checked_sub(first.p_offset(endian))
}

/// The size of what is thread-local in a program, rounded up to its alignment; `None` for a library, whose own are elsewhere.
fn thread_local(bytes: &[u8]) -> Option<u64> {
    let endian = object::LittleEndian;
    let header = FileHeader64::<object::LittleEndian>::parse(bytes).ok()?;
    let headers = header.program_headers(endian, bytes).ok()?;
    // The program has a loader, or none; libraries are what has no entry point, or is the loader.
    let tls = headers.iter().find(|it| it.p_type(endian) == PT_TLS)?;
    tls.p_memsz(endian).checked_next_multiple_of(tls.p_align(endian).max(1))
}
