//! What a program file says: its segments, its code, its functions. The file is hostile until proven otherwise.

use crate::memory::Rights;
use crate::memory::layout::{INTERPRETER_BASE, PIE_BASE, PROGRAM_END, TIME_PAGE, USER_START};
use crate::memory::vma::{page_of, page_up};
use crate::ram::Virt;
use functions::Functions;
mod functions;
mod mapped;
pub use mapped::MappedImage;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable};
use object::{LittleEndian, elf::FileHeader64};
use std::ops::Range;

pub(super) const ENDIAN: LittleEndian = LittleEndian;
/// The section headers of a program file.
pub(super) type Sections<'a> = SectionTable<'a, FileHeader64<LittleEndian>>;

/// A program as it is to be loaded, with its addresses final.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The first instruction.
    pub entry: Virt,
    /// Address of the program headers in memory (AT_PHDR); zero if no segment holds them.
    pub headers: Virt,
    /// How many program headers there are (AT_PHNUM).
    pub header_count: u64,
    /// The dynamic linker that it names.
    pub interpreter: Option<String>,
    /// The stack is to be executable (PT_GNU_STACK with PF_X); without that header it is not.
    pub executable_stack: bool,
    /// What was added to the file's addresses.
    pub bias: u64,
    /// The loadable segments, in address order, no two on one page.
    pub segments: Vec<Segment>,
}

/// Where a program has its instructions, at its final addresses: what its section headers and tables say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instructions {
    /// By the section headers, else the executable segments: ranges of addresses.
    pub code: Vec<Range<Virt>>,
    /// Where functions start, by the symbol table, in order; empty for a stripped program.
    pub functions: Vec<Virt>,
    /// What functions cover, by the symbol table and the unwind tables: ranges in order, no two of which touch.
    pub bodies: Vec<Range<Virt>>,
}

/// A part of the file that is to be in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address.
    pub start: Virt,
    /// First address after the bytes of the file.
    pub file_end: Virt,
    /// First address after it.
    pub end: Virt,
    /// Where in the file it begins.
    pub offset: u64,
    /// What the program may do with it.
    pub rights: Rights,
}

/// Why a file cannot be run.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// It begins with `#!`.
    #[error("is a script where a program is needed ({0})")]
    Script(String),
    /// It is something else altogether.
    #[error("is not an ELF program")]
    NotElf,
    /// For another kind of processor.
    #[error("is a program for another machine ({0}); only 64-bit x86-64 programs can be run")]
    OtherMachine(String),
    /// An object file, a core, a kernel module.
    #[error("is an ELF file but not a program (e_type {0})")]
    NotProgram(u16),
    /// A header contradicts itself or the file.
    #[error("is damaged: {0}")]
    Damaged(String),
}

impl Image {
    /// Reads a program file.
    pub fn parse(file: &[u8]) -> Result<Image, ElfError> {
        Image::parse_for(file, PIE_BASE, &(USER_START..PROGRAM_END))
    }

    /// Reads the file of a dynamic linker.
    pub fn parse_interpreter(file: &[u8]) -> Result<Image, ElfError> {
        Image::parse_for(file, INTERPRETER_BASE, &(INTERPRETER_BASE..TIME_PAGE))
    }

    /// Reads a file that is to be loaded into `room`, at `base` if it can be anywhere.
    fn parse_for(file: &[u8], base: Virt, room: &Range<Virt>) -> Result<Image, ElfError> {
        let header = check_header(file)?;
        let programs = header.program_headers(ENDIAN, file).map_err(damaged)?;
        let interpreter = interpreter(programs, file)?;
        let bias = if header.e_type(ENDIAN) == elf::ET_DYN { base } else { 0 };
        let segments = segments(programs, file, bias, room)?;
        let entry = header.e_entry(ENDIAN).wrapping_add(bias);
        if !segments
            .iter()
            .any(|segment| segment.rights.execute && (segment.start..segment.end).contains(&entry))
        {
            return Err(ElfError::Damaged(format!(
                "its entry point {entry:#x} is not in an executable segment"
            )));
        }
        Ok(Image {
            entry,
            headers: headers_address(header, &segments),
            header_count: programs.len() as u64,
            interpreter,
            executable_stack: executable_stack(programs),
            bias,
            segments,
        })
    }

    /// Where the instructions of the file are that this was read from. Takes some milliseconds for a large one.
    #[must_use]
    pub fn instructions(&self, file: &[u8]) -> Instructions {
        let Ok(header) = check_header(file) else { return Instructions::default() };
        let (code, functions) = code(header, file, self.bias, &self.segments);
        Instructions { code, functions: functions.starts, bodies: functions.bodies }
    }

    /// The first address after the last segment, a multiple of the page size.
    #[must_use]
    pub fn end(&self) -> Virt {
        self.segments.last().and_then(|segment| page_up(segment.end)).unwrap_or(USER_START)
    }
}

fn damaged(error: impl std::fmt::Display) -> ElfError {
    ElfError::Damaged(error.to_string())
}

/// The file header of a static x86-64 program.
fn check_header(file: &[u8]) -> Result<&FileHeader64<LittleEndian>, ElfError> {
    if let Some(rest) = file.strip_prefix(b"#!") {
        let line = rest.split(|&byte| byte == b'\n').next().unwrap_or(&[]);
        let shown = String::from_utf8_lossy(&line[..line.len().min(100)]);
        return Err(ElfError::Script(shown.trim().to_owned()));
    }
    if !file.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    if file.get(4..6) != Some(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0]) {
        return Err(ElfError::OtherMachine("not 64-bit little-endian".to_owned()));
    }
    let header = FileHeader64::<LittleEndian>::parse(file).map_err(damaged)?;
    match header.e_machine(ENDIAN) {
        elf::EM_X86_64 => {}
        elf::EM_AARCH64 => return Err(ElfError::OtherMachine("AArch64".to_owned())),
        elf::EM_RISCV => return Err(ElfError::OtherMachine("RISC-V".to_owned())),
        other => return Err(ElfError::OtherMachine(format!("e_machine {other}"))),
    }
    match header.e_type(ENDIAN) {
        elf::ET_EXEC | elf::ET_DYN => Ok(header),
        other => Err(ElfError::NotProgram(other.0)),
    }
}

fn executable_stack(programs: &[elf::ProgramHeader64<LittleEndian>]) -> bool {
    let stack = programs.iter().rfind(|program| program.p_type(ENDIAN) == elf::PT_GNU_STACK);
    stack.is_some_and(|stack| stack.p_flags(ENDIAN).contains(elf::PF_X))
}

/// The path of the dynamic linker, which may be relative: the last byte is zero, and the first zero ends it, as of any text.
fn interpreter(
    programs: &[elf::ProgramHeader64<LittleEndian>],
    file: &[u8],
) -> Result<Option<String>, ElfError> {
    let Some(program) = programs.iter().find(|program| program.p_type(ENDIAN) == elf::PT_INTERP) else {
        return Ok(None);
    };
    let path = program.data(ENDIAN, file).ok().filter(|bytes| bytes.ends_with(&[0]));
    let path = path.and_then(|bytes| std::ffi::CStr::from_bytes_until_nul(bytes).ok()?.to_str().ok());
    match path {
        Some(path) => Ok(Some(path.to_owned())),
        None => Err(ElfError::Damaged("the path of its dynamic linker (PT_INTERP) is none".to_owned())),
    }
}

/// The loadable segments, checked: inside the file, inside `room`, in order, no two on one page.
fn segments(
    programs: &[elf::ProgramHeader64<LittleEndian>],
    file: &[u8],
    bias: u64,
    room: &Range<Virt>,
) -> Result<Vec<Segment>, ElfError> {
    let mut segments: Vec<Segment> = Vec::new();
    let loadable = programs.iter().enumerate().filter(|(_, program)| program.p_type(ENDIAN) == elf::PT_LOAD);
    for (index, program) in loadable {
        let Some(segment) = segment(program, bias, room) else {
            return Err(ElfError::Damaged(format!("segment {index} lies outside the user's address space")));
        };
        let wrong = |what: &str| Err(ElfError::Damaged(format!("segment {index} {what}")));
        let in_file = segment.offset.checked_add(segment.file_end - segment.start);
        if in_file.is_none_or(|end| end > file.len() as u64) {
            return wrong("reaches behind the end of the file (is the file truncated?)");
        }
        if segment.file_end > segment.end {
            return wrong("is larger in the file than in memory");
        }
        if segment.start.wrapping_sub(segment.offset) != page_of(segment.start.wrapping_sub(segment.offset)) {
            return wrong("is not aligned to its place in the file");
        }
        if segments
            .last()
            .is_some_and(|last| page_up(last.end).is_none_or(|end| end > page_of(segment.start)))
        {
            return wrong("overlaps the one before it, or is out of order");
        }
        if segment.end > segment.start {
            segments.push(segment);
        }
    }
    if segments.is_empty() {
        return Err(ElfError::Damaged("it has no loadable segment".to_owned()));
    }
    Ok(segments)
}

/// A segment with its final addresses, or none if they are not all in `room`.
fn segment(program: &elf::ProgramHeader64<LittleEndian>, bias: u64, room: &Range<Virt>) -> Option<Segment> {
    let start = program.p_vaddr(ENDIAN).checked_add(bias)?;
    let file_end = start.checked_add(program.p_filesz(ENDIAN))?;
    let end = start.checked_add(program.p_memsz(ENDIAN))?;
    let flags = program.p_flags(ENDIAN);
    let rights = Rights {
        read: (flags & elf::PF_R).0 != 0,
        write: (flags & elf::PF_W).0 != 0,
        execute: (flags & elf::PF_X).0 != 0,
    };
    let inside = start >= room.start && end.max(file_end) <= room.end;
    inside.then_some(Segment { start, file_end, end, offset: program.p_offset(ENDIAN), rights })
}

/// Where the program headers are in memory.
fn headers_address(header: &FileHeader64<LittleEndian>, segments: &[Segment]) -> Virt {
    let offset = header.e_phoff(ENDIAN);
    let holds = |segment: &&Segment| {
        offset >= segment.offset && offset - segment.offset < segment.file_end - segment.start
    };
    segments.iter().find(holds).map_or(0, |segment| segment.start + (offset - segment.offset))
}

/// Where instructions and functions are. Section headers are only a help, so damaged ones are taken as none.
fn code(
    header: &FileHeader64<LittleEndian>,
    file: &[u8],
    bias: u64,
    segments: &[Segment],
) -> (Vec<Range<Virt>>, Functions) {
    let executable = |range: &Range<Virt>| {
        segments.iter().any(|segment| {
            segment.rights.execute && range.start >= segment.start && range.end <= segment.file_end
        })
    };
    let mut code = Vec::new();
    let mut functions = Functions::default();
    if let Ok(sections) = header.sections(ENDIAN, file) {
        for section in sections.iter() {
            let start = section.sh_addr(ENDIAN).wrapping_add(bias);
            let range = start..start.saturating_add(section.sh_size(ENDIAN));
            let flags = section.sh_flags(ENDIAN);
            if (flags & elf::SHF_EXECINSTR).0 != 0 && !range.is_empty() && executable(&range) {
                code.push(range);
            }
        }
        functions = Functions::read(&sections, file, bias, &code);
    }
    if code.is_empty() {
        let executable = segments.iter().filter(|segment| segment.rights.execute);
        code.extend(executable.map(|segment| segment.start..segment.file_end));
    }
    (code, functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with one executable segment of its own 0x100 bytes at 0x400000, whose entry is at 0x4000b0.
    fn program() -> Vec<u8> {
        let mut file = vec![0; 0x100];
        file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        put(&mut file, 16, &[2, 0, 62, 0, 1, 0, 0, 0]);
        put(&mut file, 24, &0x40_00b0_u64.to_le_bytes());
        put(&mut file, 32, &64_u64.to_le_bytes());
        put(&mut file, 52, &[64, 0, 56, 0, 1, 0, 64, 0]);
        put(&mut file, 64, &[1, 0, 0, 0, 5, 0, 0, 0]);
        put(&mut file, 80, &0x40_0000_u64.to_le_bytes());
        put(&mut file, 96, &0x100_u64.to_le_bytes());
        put(&mut file, 104, &0x2345_u64.to_le_bytes());
        file
    }

    fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// What is said of the program after a change.
    fn refused(at: usize, bytes: &[u8]) -> String {
        let mut file = program();
        put(&mut file, at, bytes);
        Image::parse(&file).expect_err("it is refused").to_string()
    }

    #[test]
    fn a_program_is_read() {
        let image = Image::parse(&program()).expect("a program");
        assert_eq!((image.entry, image.headers, image.bias), (0x40_00b0, 0x40_0040, 0));
        assert_eq!(image.end(), 0x40_3000);
        let code = image.instructions(&program()).code;
        assert_eq!((code.len(), code[0].clone()), (1, 0x40_0000..0x40_0100));
        let segment = &image.segments[0];
        assert_eq!((segment.file_end, segment.end, segment.offset), (0x40_0100, 0x40_2345, 0));
        assert!(segment.rights.execute && !segment.rights.write);
    }

    #[test]
    fn what_is_no_program_is_named() {
        let said = |file: &[u8]| Image::parse(file).expect_err("no program").to_string();
        assert!(said(b"hello\n").contains("not an ELF"));
        assert!(said(b"").contains("not an ELF"));
        assert!(said(b"#!/bin/sh\necho").contains("script") && said(b"#!/bin/sh\necho").contains("/bin/sh"));
        assert!(refused(4, &[1]).contains("another machine"));
        assert!(refused(18, &[183, 0]).contains("AArch64"));
        assert!(refused(16, &[1, 0]).contains("not a program"));
        let mut unended = program();
        put(&mut unended, 64, &[3]);
        put(&mut unended, 0xff, b"x");
        assert!(said(&unended).contains("PT_INTERP"));
    }

    #[test]
    fn damaged_headers_are_errors() {
        assert!(refused(32, &u64::MAX.to_le_bytes()).contains("damaged"));
        assert!(refused(56, &[0xff, 0xff]).contains("damaged"));
        assert!(refused(56, &[0, 0]).contains("no loadable segment"));
        assert!(refused(24, &7_u64.to_le_bytes()).contains("entry point"));
        assert!(refused(80, &(u64::MAX - 0xfff).to_le_bytes()).contains("outside"));
        assert!(refused(80, &0_u64.to_le_bytes()).contains("outside"));
        assert!(refused(104, &u64::MAX.to_le_bytes()).contains("outside"));
        assert!(refused(96, &0x101_u64.to_le_bytes()).contains("truncated"));
        assert!(refused(104, &1_u64.to_le_bytes()).contains("larger in the file"));
        assert!(refused(80, &0x40_0001_u64.to_le_bytes()).contains("aligned"));
    }

    #[test]
    fn no_prefix_of_a_program_panics() {
        let file = program();
        assert!((0..file.len()).all(|length| Image::parse(&file[..length]).is_err()));
    }
}
