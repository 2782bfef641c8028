//! The vDSO: a small shared object that answers for the clock without leaving the guest.
//!
//! It reads the time page, which the personality writes at exits only, so what it answers is a function of the
//! recording. Every call counts a tick of one nanosecond, so that time never stands still; every
//! [`CALLS_PER_EXIT`]th call makes the real system call, so that a program which waits for a time gets there. So does
//! an earlier one, if the time page says so: the next one where the program has computed for long, or while replaying the
//! one that did while recording ([`crate::gate::Event::Clock`]).
//! The code is assembled here at start-up: no compiler or linker is needed, and its source is in the tree.

use crate::gate::Time;
use crate::memory::layout::TIME_PAGE;
use crate::ram::PAGE;
use iced_x86::code_asm::{
    CodeAssembler, CodeLabel, dword_ptr, eax, ecx, edi, edx, qword_ptr, r8, rax, rcx, rdi, rdx, rsi,
};
use iced_x86::{BlockEncoderOptions, IcedError};
use object::elf;

/// The vDSO makes the real system call at the call of this ordinal behind an exit, if no earlier one is to.
pub const CALLS_PER_EXIT: u64 = 64;

/// Where things are in the time page: CLOCK_REALTIME and CLOCK_MONOTONIC as seconds and nanoseconds, the ticks, and the
/// tick at which the real call is due.
const REAL: u64 = 0;
const MONOTONIC: u64 = 16;
const TICKS: u64 = 32;
const DUE: u64 = 40;
/// Size of what [`time_page`] makes.
pub const TIME_BYTES: usize = 48;

const NANOSECONDS: u64 = 1_000_000_000;
const SONAME: &str = "linux-vdso.so.1";
const VERSION: &str = "LINUX_2.6";
/// Version index of [`VERSION`]; 1 is the object itself.
const VERSION_INDEX: u16 = 2;

/// The start of the time page for a moment, with no ticks counted yet.
#[must_use]
pub fn time_page(time: Time) -> [u8; TIME_BYTES] {
    let mut page = [0; TIME_BYTES];
    let words = [
        time.real / NANOSECONDS,
        time.real % NANOSECONDS,
        time.monotonic / NANOSECONDS,
        time.monotonic % NANOSECONDS,
        0,
        CALLS_PER_EXIT,
    ];
    for (slot, word) in page.chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    page
}

/// The ticks that the guest has counted in the time page.
#[must_use]
pub fn ticks(page: &[u8; TIME_BYTES]) -> u64 {
    page[index(TICKS)..index(DUE)].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// From now on the real call is due at this tick.
pub fn set_due(page: &mut [u8; TIME_BYTES], tick: u64) {
    page[index(DUE)..].copy_from_slice(&tick.to_le_bytes());
}

/// The shared object, one page, position-independent but for the address of the time page.
pub fn image() -> Result<Vec<u8>, IcedError> {
    let functions = [
        "__vdso_clock_gettime",
        "__vdso_gettimeofday",
        "__vdso_time",
        "__vdso_clock_getres",
        "__vdso_getcpu",
    ];
    // The code's place depends on the tables' size, which does not depend on the code.
    let draft = Tables::new(&functions, &[0; 5], 0);
    let code_start = draft.code_start();
    let (code, entries) = assemble(code_start)?;
    let mut bytes = Tables::new(&functions, &entries, code.len() as u64).bytes;
    bytes.resize(index(code_start), 0);
    bytes.extend(code);
    debug_assert!(bytes.len() as u64 <= PAGE, "the vDSO is one page");
    bytes.resize(index(PAGE), 0);
    Ok(bytes)
}

/// An offset inside the page as an index.
fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("an offset inside one page")
}

/// Everything before the code: headers and what a dynamic linker reads.
struct Tables {
    bytes: Vec<u8>,
}

impl Tables {
    /// Lays the tables out one after the other behind the headers, and then writes the headers.
    fn new(functions: &[&str], entries: &[u64], code_size: u64) -> Tables {
        let mut strings = vec![0];
        let mut name = |text: &str| {
            let at = u32::try_from(strings.len()).expect("a few names");
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let (soname, version) = (name(SONAME), name(VERSION));
        let (dynstr, dynsym, text) = (name(".dynstr"), name(".dynsym"), name(".text"));
        let names: Vec<u32> = functions.iter().map(|function| name(function)).collect();

        let mut tables = Tables { bytes: vec![0; HEADERS] };
        let symbols = tables.add(&symbols(&names, entries, code_size));
        let hash = tables.add(&hash(names.len()));
        let versions = tables.add(&versions(names.len()));
        let definitions = tables.add(&definitions(soname, version));
        let strings_at = tables.add(&strings);
        let dynamic = tables.add(&words(&[
            tag(elf::DT_SONAME),
            u64::from(soname),
            tag(elf::DT_HASH),
            hash,
            tag(elf::DT_STRTAB),
            strings_at,
            tag(elf::DT_STRSZ),
            strings.len() as u64,
            tag(elf::DT_SYMTAB),
            symbols,
            tag(elf::DT_SYMENT),
            24,
            tag(elf::DT_VERSYM),
            versions,
            tag(elf::DT_VERDEF),
            definitions,
            tag(elf::DT_VERDEFNUM),
            2,
            tag(elf::DT_NULL),
            0,
        ]));
        // They follow here, and the code follows them.
        let sections_at = tables.bytes.len() as u64;
        let code = (sections_at + SECTIONS * SECTION).next_multiple_of(16);
        let mut sections = vec![0; index(SECTION)];
        sections.extend(section(
            dynstr,
            (elf::SHT_STRTAB.0, elf::SHF_ALLOC.0),
            (strings_at, strings.len() as u64),
            (0, 0, 0),
        ));
        let symbols_size = 24 * (names.len() as u64 + 1);
        let of_symbols = (elf::SHT_DYNSYM.0, elf::SHF_ALLOC.0);
        sections.extend(section(dynsym, of_symbols, (symbols, symbols_size), (DYNSTR, 1, 24)));
        let of_code = (elf::SHT_PROGBITS.0, elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0);
        sections.extend(section(text, of_code, (code, code_size), (0, 0, 0)));
        tables.add(&sections);
        debug_assert_eq!(tables.code_start(), code, "the code follows the section headers");
        tables.bytes[..HEADERS].copy_from_slice(&headers(dynamic, code + code_size, sections_at));
        tables
    }

    /// Appends a table, aligned to 8; gives its offset.
    fn add(&mut self, table: &[u8]) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let at = self.bytes.len() as u64;
        self.bytes.extend_from_slice(table);
        at
    }

    fn code_start(&self) -> u64 {
        (self.bytes.len() as u64).next_multiple_of(16)
    }
}

/// Size of the file header and two program headers.
const HEADERS: usize = 64 + 2 * 56;
/// Size of the dynamic table: ten entries.
const DYNAMIC_SIZE: u64 = 160;
/// How many sections there are, the null section with them, and the size of each one's header.
const SECTIONS: u64 = 4;
const SECTION: u64 = 64;
/// Their numbers: the strings, which are the sections' names, too; the symbols are 2; the code.
const DYNSTR: u32 = 1;
const TEXT: u16 = 3;

/// A tag of the dynamic table as it is stored.
fn tag(tag: elf::DynamicTag) -> u64 {
    u64::from_le_bytes(tag.0.to_le_bytes())
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A section's header: name, kind and flags, offset (and address) and size, and the section that it refers to, how many of
/// its symbols are local, and the size of an entry.
fn section(name: u32, kind: (u32, u64), place: (u64, u64), refers: (u32, u32, u64)) -> Vec<u8> {
    let mut bytes = [name, kind.0].map(u32::to_le_bytes).concat();
    bytes.extend(words(&[kind.1, place.0, place.0, place.1]));
    bytes.extend([refers.0, refers.1].map(u32::to_le_bytes).concat());
    bytes.extend(words(&[8, refers.2]));
    bytes
}

/// The file header, a segment that is the whole file, and the pointer to the dynamic table.
///
/// A dynamic linker needs no sections; dietlibc finds the functions by them and by nothing else.
fn headers(dynamic: u64, end: u64, sections: u64) -> Vec<u8> {
    let mut bytes =
        vec![0x7f, b'E', b'L', b'F', elf::ELFCLASS64.0, elf::ELFDATA2LSB.0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(elf::ET_DYN.0.to_le_bytes());
    bytes.extend(elf::EM_X86_64.0.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(words(&[0, 64, sections])); // entry, program headers, section headers
    bytes.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 2, 64, 4, 1] {
        bytes.extend(half.to_le_bytes()); // sizes and counts
    }
    let mut program = |kind: u32, flags: u32, offset: u64, size: u64, align: u64| {
        bytes.extend(kind.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(words(&[offset, offset, offset, size, size, align]));
    };
    program(elf::PT_LOAD.0, (elf::PF_R | elf::PF_X).0, 0, end, PAGE);
    program(elf::PT_DYNAMIC.0, elf::PF_R.0, dynamic, DYNAMIC_SIZE, 8);
    bytes
}

/// The symbol table: the null symbol, then the functions, each of which ends where the next one begins.
fn symbols(names: &[u32], entries: &[u64], code_size: u64) -> Vec<u8> {
    let mut bytes = vec![0; 24];
    let ends = entries.iter().skip(1).copied().chain(entries.first().map(|first| first + code_size));
    for ((name, entry), end) in names.iter().zip(entries).zip(ends) {
        bytes.extend(name.to_le_bytes());
        bytes.push(elf::STB_GLOBAL.0 << 4 | elf::STT_FUNC.0);
        bytes.push(elf::STV_DEFAULT.0);
        bytes.extend(TEXT.to_le_bytes());
        bytes.extend(words(&[*entry, end - entry]));
    }
    bytes
}

/// A SysV hash table with one bucket: a chain of all symbols.
fn hash(functions: usize) -> Vec<u8> {
    let count = u32::try_from(functions).expect("a few functions");
    let chain = (0..=count).map(|n| if n == 0 || n == count { 0 } else { n + 1 });
    [1, count + 1, 1].into_iter().chain(chain).flat_map(u32::to_le_bytes).collect()
}

/// The version of each symbol.
fn versions(functions: usize) -> Vec<u8> {
    std::iter::once(0)
        .chain(std::iter::repeat_n(VERSION_INDEX, functions))
        .flat_map(u16::to_le_bytes)
        .collect()
}

/// The version definitions: the object, and the one version that its functions have.
fn definitions(soname: u32, version: u32) -> Vec<u8> {
    const SIZE: u32 = 20;
    let mut bytes = Vec::new();
    for (flags, ndx, name, text, next) in
        [(elf::VER_FLG_BASE.0, 1_u16, soname, SONAME, SIZE + 8), (0, VERSION_INDEX, version, VERSION, 0)]
    {
        for half in [1, flags, ndx, 1] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [elf::hash(text.as_bytes()), SIZE, next, name, 0] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes
}

/// Assembles the functions at offset `start`; gives the code and their offsets, in the order of [`image`].
fn assemble(start: u64) -> Result<(Vec<u8>, [u64; 5]), IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let mut labels: [CodeLabel; 5] = std::array::from_fn(|_| a.create_label());
    let [gettime, gettimeofday, time, getres, getcpu] = &mut labels;
    clock_gettime(&mut a, gettime)?;
    get_time_of_day(&mut a, gettimeofday)?;
    seconds(&mut a, time)?;
    clock_getres(&mut a, getres)?;
    get_cpu(&mut a, getcpu)?;
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let result = a.assemble_options(start, options)?;
    let mut entries = [0; 5];
    for (entry, label) in entries.iter_mut().zip(&labels) {
        *entry = result.label_ip(label)?;
    }
    Ok((result.inner.code_buffer, entries))
}

/// Counts a tick into rax and points r8 at the time page; goes to `exit` when the real call is due.
fn count(a: &mut CodeAssembler, exit: CodeLabel) -> Result<(), IcedError> {
    a.mov(r8, TIME_PAGE)?;
    a.mov(rax, qword_ptr(r8 + TICKS))?;
    a.inc(rax)?;
    a.mov(qword_ptr(r8 + TICKS), rax)?;
    a.cmp(rax, qword_ptr(r8 + DUE))?;
    a.jae(exit)
}

/// With a clock's seconds in rcx and its nanoseconds in rdx: adds the ticks in rax.
fn add_ticks(a: &mut CodeAssembler) -> Result<(), IcedError> {
    let mut done = a.create_label();
    a.add(rdx, rax)?;
    a.cmp(rdx, 1_000_000_000)?;
    a.jb(done)?;
    a.sub(rdx, 1_000_000_000)?;
    a.inc(rcx)?;
    a.set_label(&mut done)?;
    a.nop()
}

/// The real system call, as the end of a function.
fn real_call(a: &mut CodeAssembler, exit: &mut CodeLabel, number: i64) -> Result<(), IcedError> {
    a.set_label(exit)?;
    a.mov(eax, i32::try_from(number).expect("a system call's number"))?;
    a.syscall()?;
    a.ret()
}

/// `int clock_gettime(clockid_t edi, struct timespec *rsi)`
fn clock_gettime(a: &mut CodeAssembler, entry: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut real, mut monotonic, mut store, mut exit) =
        (a.create_label(), a.create_label(), a.create_label(), a.create_label());
    a.set_label(entry)?;
    count(a, exit)?;
    for clock in [libc::CLOCK_REALTIME, libc::CLOCK_REALTIME_COARSE] {
        a.cmp(edi, clock)?;
        a.je(real)?;
    }
    for clock in
        [libc::CLOCK_MONOTONIC, libc::CLOCK_MONOTONIC_COARSE, libc::CLOCK_MONOTONIC_RAW, libc::CLOCK_BOOTTIME]
    {
        a.cmp(edi, clock)?;
        a.je(monotonic)?;
    }
    a.jmp(exit)?;
    a.set_label(&mut real)?;
    a.mov(rcx, qword_ptr(r8 + REAL))?;
    a.mov(rdx, qword_ptr(r8 + REAL + 8))?;
    a.jmp(store)?;
    a.set_label(&mut monotonic)?;
    a.mov(rcx, qword_ptr(r8 + MONOTONIC))?;
    a.mov(rdx, qword_ptr(r8 + MONOTONIC + 8))?;
    a.set_label(&mut store)?;
    add_ticks(a)?;
    a.mov(qword_ptr(rsi), rcx)?;
    a.mov(qword_ptr(rsi + 8), rdx)?;
    a.xor(eax, eax)?;
    a.ret()?;
    real_call(a, &mut exit, libc::SYS_clock_gettime)
}

/// `int gettimeofday(struct timeval *rdi, struct timezone *rsi)`
fn get_time_of_day(a: &mut CodeAssembler, entry: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut zone, mut done, mut exit) = (a.create_label(), a.create_label(), a.create_label());
    a.set_label(entry)?;
    count(a, exit)?;
    a.test(rdi, rdi)?;
    a.je(zone)?;
    a.mov(rcx, qword_ptr(r8 + REAL))?;
    a.mov(rdx, qword_ptr(r8 + REAL + 8))?;
    add_ticks(a)?;
    a.mov(qword_ptr(rdi), rcx)?;
    a.mov(rax, rdx)?;
    a.xor(edx, edx)?;
    a.mov(ecx, 1000)?;
    a.div(rcx)?;
    a.mov(qword_ptr(rdi + 8), rax)?;
    a.set_label(&mut zone)?;
    a.test(rsi, rsi)?;
    a.je(done)?;
    a.mov(qword_ptr(rsi), 0)?;
    a.set_label(&mut done)?;
    a.xor(eax, eax)?;
    a.ret()?;
    real_call(a, &mut exit, libc::SYS_gettimeofday)
}

/// `time_t time(time_t *rdi)`
fn seconds(a: &mut CodeAssembler, entry: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut done, mut exit) = (a.create_label(), a.create_label());
    a.set_label(entry)?;
    count(a, exit)?;
    a.mov(rax, qword_ptr(r8 + REAL))?;
    a.test(rdi, rdi)?;
    a.je(done)?;
    a.mov(qword_ptr(rdi), rax)?;
    a.set_label(&mut done)?;
    a.ret()?;
    real_call(a, &mut exit, libc::SYS_time)
}

/// `int clock_getres(clockid_t edi, struct timespec *rsi)`
fn clock_getres(a: &mut CodeAssembler, entry: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut done, mut exit) = (a.create_label(), a.create_label());
    a.set_label(entry)?;
    a.cmp(edi, libc::CLOCK_MONOTONIC)?;
    a.ja(exit)?;
    a.test(rsi, rsi)?;
    a.je(done)?;
    a.mov(qword_ptr(rsi), 0)?;
    a.mov(qword_ptr(rsi + 8), 1)?;
    a.set_label(&mut done)?;
    a.xor(eax, eax)?;
    a.ret()?;
    real_call(a, &mut exit, libc::SYS_clock_getres)
}

/// `int getcpu(unsigned *rdi, unsigned *rsi)`: there is one.
fn get_cpu(a: &mut CodeAssembler, entry: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut node, mut done) = (a.create_label(), a.create_label());
    a.set_label(entry)?;
    a.test(rdi, rdi)?;
    a.je(node)?;
    a.mov(dword_ptr(rdi), 0)?;
    a.set_label(&mut node)?;
    a.test(rsi, rsi)?;
    a.je(done)?;
    a.mov(dword_ptr(rsi), 0)?;
    a.set_label(&mut done)?;
    a.xor(edx, edx)?;
    a.xor(eax, eax)?;
    a.ret()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSection, ObjectSymbol};

    #[test]
    fn a_dynamic_linker_finds_its_functions() {
        let image = image().expect("it assembles");
        assert_eq!(image.len() as u64, PAGE);
        let file = object::File::parse(&*image).expect("an ELF file");
        // By sections, and by the dynamic table.
        let found: Vec<_> = file.dynamic_symbols().filter(ObjectSymbol::is_definition).collect();
        assert_eq!(found.len(), 5);
        let text = file.section_by_name(".text").expect("the code");
        let mut end = text.address();
        for symbol in found {
            assert_eq!((symbol.address(), symbol.section_index()), (end, Some(text.index())));
            end += symbol.size();
        }
        assert_eq!(end, text.address() + text.size(), "all code is some function's");
        let (hash, symbols, strings) =
            (entry(&image, elf::DT_HASH), entry(&image, elf::DT_SYMTAB), entry(&image, elf::DT_STRTAB));
        let u32_at =
            |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().expect("four bytes")) as usize;
        let mut symbol = u32_at(hash + 8);
        let mut names = Vec::new();
        while symbol != 0 {
            let name = &image[strings + u32_at(symbols + 24 * symbol)..];
            names.push(name.split(|&byte| byte == 0).next().expect("a name"));
            let entry = u32_at(symbols + 24 * symbol + 8);
            assert!(entry > strings && entry < image.len(), "a function in the code");
            symbol = u32_at(hash + 12 + 4 * symbol);
        }
        assert_eq!(names.len(), 5);
        assert_eq!(names[0], b"__vdso_clock_gettime");
    }

    /// The value of a tag in the dynamic table.
    fn entry(image: &[u8], wanted: elf::DynamicTag) -> usize {
        let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().expect("eight bytes"));
        let table = index(word(64 + 56 + 8));
        let at = (table..).step_by(16).find(|&at| word(at) == tag(wanted)).expect("the tag is there");
        index(word(at + 8))
    }

    #[test]
    fn the_time_page_splits_seconds() {
        let page = time_page(Time { real: 3_000_000_007, monotonic: 5 });
        assert_eq!((page[0], page[8], page[24]), (3, 7, 5));
        assert_eq!(ticks(&page), 0);
        assert_eq!(u64::from(page[40]), CALLS_PER_EXIT);
    }
}
