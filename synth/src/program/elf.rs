//! Parsing the executable: what is loaded where, what is code, symbols, extents from unwind entries, debug
//! sections. The file is hostile input: every address is checked when the load bias is added.

use super::ProgramError;
use gimli::{BaseAddresses, EhFrame, LittleEndian, UnwindSection};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, SymbolKind, elf};
use std::ops::Range;
use std::sync::Arc;

type File<'data> = ElfFile64<'data, object::LittleEndian>;

/// Executables above this size are refused: addresses within one are indexed with 32 bits.
const LARGEST_CODE: usize = 1 << 30;

/// What is loaded, at run-time addresses.
pub(super) struct Image {
    /// The entry point.
    pub(super) entry: u64,
    /// What the files load.
    pub(super) segments: Vec<Segment>,
    /// Executable sections, or the executable segments of a file without sections; by address.
    pub(super) code: Vec<Segment>,
    /// What does not change after start-up.
    pub(super) constant: Vec<Range<u64>>,
}

impl Image {
    /// From the first to the last address that is loaded.
    pub(super) fn extent(&self) -> Range<u64> {
        let start = self.segments.iter().map(|segment| segment.start).min().unwrap_or(0);
        let end = self.segments.iter().map(|segment| segment.start + segment.size).max().unwrap_or(0);
        start..end
    }

    /// Adds what a library loads. Its addresses must be its own.
    pub(super) fn add(&mut self, library: Image) -> Result<(), ProgramError> {
        self.segments.extend(library.segments);
        self.code.extend(library.code);
        self.constant.extend(library.constant);
        self.segments.sort_by_key(|segment| segment.start);
        self.code.sort_by_key(|range| range.start);
        check_code(&self.code)
    }
}

/// A piece of memory with its contents from the file.
pub(super) struct Segment {
    /// What was added to the addresses in the file.
    pub(super) bias: u64,
    /// The first address.
    pub(super) start: u64,
    /// The contents; what follows up to the segment's size in memory is zero and not kept.
    pub(super) contents: Vec<u8>,
    /// Whether the program may write it.
    pub(super) writable: bool,
    /// The size in memory.
    pub(super) size: u64,
}

impl Segment {
    /// The first address after the contents.
    pub(super) fn end(&self) -> u64 {
        self.start + self.contents.len() as u64
    }

    /// `len` bytes at `va`.
    pub(super) fn bytes(&self, va: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(va.checked_sub(self.start)?).ok()?;
        self.contents.get(at..at.checked_add(len)?)
    }
}

/// A symbol of code, or an unwind entry (without a name), at run-time addresses.
pub(super) struct CodeSymbol {
    /// The first address.
    pub(super) start: u64,
    /// Its size in bytes; zero if the file does not say.
    pub(super) size: u64,
    /// Its name; empty for an unwind entry.
    pub(super) name: String,
    /// Its code only chooses what is called by this name (STT_GNU_IFUNC).
    pub(super) indirect: bool,
}

/// What else the file says.
pub(super) struct Tables {
    /// Symbols and unwind entries, unsorted.
    pub(super) symbols: Vec<CodeSymbol>,
    /// The debug sections by name.
    pub(super) debug: Sections,
}

/// The entry point in the file's own terms.
pub(super) fn entry(bytes: &[u8]) -> Result<u64, ProgramError> {
    Ok(open(bytes)?.entry())
}

/// Parses the file for a load bias.
pub(super) fn parse(bytes: &[u8], bias: u64) -> Result<(Image, Tables), ProgramError> {
    let file = open(bytes)?;
    let place = |address: u64, size: u64, what| {
        let start = address.checked_add(bias);
        match start.and_then(|start| Some((start, start.checked_add(size)?))) {
            Some((start, _)) => Ok(start),
            None => Err(ProgramError::Damaged { what, address }),
        }
    };
    let segments = segments(&file, bias, &place)?;
    let code = code_ranges(&file, bias, &segments, &place)?;
    let constant = constant_ranges(&file, &segments, &place)?;
    let entry = place(file.entry(), 0, "the entry point")?;
    let mut symbols = symbols(&file, bias);
    symbols.extend(unwind_extents(&file, bias));
    symbols.push(CodeSymbol { start: entry, size: 0, name: String::new(), indirect: false });
    let debug = debug_sections(&file);
    Ok((Image { entry, segments, code, constant }, Tables { symbols, debug }))
}

/// The code that the symbols name which were taken out of a file into one of their own.
pub(super) fn separate_symbols(bytes: &[u8], bias: u64) -> Result<Vec<CodeSymbol>, ProgramError> {
    Ok(symbols(&open(bytes)?, bias))
}

/// The debug sections of a file, uncompressed.
pub(super) fn separate_debug(bytes: &[u8]) -> Sections {
    open(bytes).map_or_else(|_| Vec::new(), |file| debug_sections(&file))
}

/// Sections by name.
pub(super) type Sections = Vec<(String, Arc<[u8]>)>;

fn debug_sections(file: &File<'_>) -> Sections {
    let of = |section: object::read::elf::ElfSection64<'_, '_, object::LittleEndian>| {
        let name = section.name().ok().filter(|name| name.starts_with(".debug_"))?.to_owned();
        Some((name, Arc::from(section.uncompressed_data().ok()?)))
    };
    file.sections().filter_map(of).collect()
}

/// Opens an ELF file and checks that it is what we run.
fn open(bytes: &[u8]) -> Result<File<'_>, ProgramError> {
    let header = elf::FileHeader64::<object::LittleEndian>::parse(bytes)?;
    if header.e_ident.class != elf::ELFCLASS64 || header.e_ident.data != elf::ELFDATA2LSB {
        return Err(ProgramError::Kind("not a 64-bit little-endian file"));
    }
    if header.e_machine.get(object::LittleEndian) != elf::EM_X86_64 {
        return Err(ProgramError::Kind("it is for another machine"));
    }
    if !matches!(header.e_type.get(object::LittleEndian), elf::ET_EXEC | elf::ET_DYN) {
        return Err(ProgramError::Kind("it is an object file or a core, not an executable"));
    }
    Ok(File::parse(bytes)?)
}

type Place<'a> = &'a dyn Fn(u64, u64, &'static str) -> Result<u64, ProgramError>;

fn segments(file: &File<'_>, bias: u64, place: Place<'_>) -> Result<Vec<Segment>, ProgramError> {
    let mut found = Vec::new();
    for segment in file.segments() {
        let start = place(segment.address(), segment.size(), "a segment beyond the address space")?;
        let contents = segment.data()?.to_vec();
        if contents.len() as u64 > segment.size() {
            let address = segment.address();
            return Err(ProgramError::Damaged { what: "a segment smaller than its contents", address });
        }
        let writable = segment.permissions().writable();
        found.push(Segment { bias, start, contents, writable, size: segment.size() });
    }
    found.sort_by_key(|segment| segment.start);
    Ok(found)
}

/// Executable sections; a file whose section headers were stripped gives its executable segments.
fn code_ranges(
    file: &File<'_>,
    bias: u64,
    segments: &[Segment],
    place: Place<'_>,
) -> Result<Vec<Segment>, ProgramError> {
    let mut ranges = Vec::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
        if !sh_flags.contains(elf::SHF_EXECINSTR) || section.size() == 0 {
            continue;
        }
        let start = place(section.address(), section.size(), "a section beyond the address space")?;
        let contents = section.data()?.to_vec();
        ranges.push(Segment { bias, start, size: contents.len() as u64, contents, writable: false });
    }
    if ranges.is_empty() {
        let executable = file.segments().filter(|segment| segment.permissions().executable());
        for segment in executable {
            let start = place(segment.address(), segment.size(), "a segment beyond the address space")?;
            let contents = segment.data()?.to_vec();
            ranges.push(Segment { bias, start, size: contents.len() as u64, contents, writable: false });
        }
    }
    ranges.sort_by_key(|range| range.start);
    let loaded = |range: &Segment| segments.iter().any(|segment| segment.bytes(range.start, 1).is_some());
    ranges.retain(loaded);
    check_code(&ranges)?;
    Ok(ranges)
}

/// Pieces of code by address: they must not overlap, and not be too large to be indexed.
pub(super) fn check_code(ranges: &[Segment]) -> Result<(), ProgramError> {
    let overlap = ranges.windows(2).find(|pair| pair[0].end() > pair[1].start);
    if let Some(pair) = overlap {
        return Err(ProgramError::Damaged { what: "overlapping code", address: pair[1].start });
    }
    let size: usize = ranges.iter().map(|range| range.contents.len()).sum();
    if size > LARGEST_CODE {
        return Err(ProgramError::Kind("more than a gigabyte of code"));
    }
    Ok(())
}

/// What cannot change after start-up: segments without write permission, PT_GNU_RELRO, and the sections of
/// the global offset table (in a static program nothing binds lazily).
fn constant_ranges(
    file: &File<'_>,
    segments: &[Segment],
    place: Place<'_>,
) -> Result<Vec<Range<u64>>, ProgramError> {
    let read_only = segments.iter().filter(|segment| !segment.writable);
    let mut ranges: Vec<_> = read_only.map(|segment| segment.start..segment.start + segment.size).collect();
    for header in file.elf_program_headers() {
        if header.p_type(object::LittleEndian) == elf::PT_GNU_RELRO {
            let size = header.p_memsz(object::LittleEndian);
            let start = place(header.p_vaddr(object::LittleEndian), size, "RELRO beyond the address space")?;
            ranges.push(start..start + size);
        }
    }
    for name in [".got", ".got.plt", ".data.rel.ro"] {
        if let Some(section) = file.section_by_name(name) {
            let start = place(section.address(), section.size(), "a section beyond the address space")?;
            ranges.push(start..start + section.size());
        }
    }
    Ok(ranges)
}

/// Named code: functions, and the labels without a type that hand-written assembly leaves.
fn symbols(file: &File<'_>, bias: u64) -> Vec<CodeSymbol> {
    let is_code = |section: Option<object::SectionIndex>| {
        let flags = section.and_then(|index| file.section_by_index(index).ok()).map(|s| s.flags());
        matches!(flags, Some(SectionFlags::Elf { sh_flags, .. }) if sh_flags.contains(elf::SHF_EXECINSTR))
    };
    // Libraries are stripped, but for what they export.
    let named = file.symbols().chain(file.dynamic_symbols()).filter_map(|symbol| {
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        let kind = matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown);
        if !kind || !is_code(symbol.section_index()) {
            return None;
        }
        let start = symbol.address().checked_add(bias)?;
        let indirect = matches!(symbol.flags(),
            object::SymbolFlags::Elf { st_info, .. } if st_info.st_type() == elf::STT_GNU_IFUNC);
        Some(CodeSymbol { start, size: symbol.size(), name: name.to_owned(), indirect })
    });
    named.collect()
}

/// The extents that .eh_frame gives: they survive stripping.
fn unwind_extents(file: &File<'_>, bias: u64) -> Vec<CodeSymbol> {
    let Some(section) = file.section_by_name(".eh_frame") else { return Vec::new() };
    let Ok(data) = section.data() else { return Vec::new() };
    let bases = BaseAddresses::default().set_eh_frame(section.address());
    let frames = EhFrame::new(data, LittleEndian);
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else { continue };
        let Ok(description) = partial.parse(EhFrame::cie_from_offset) else { continue };
        if let Some(start) = description.initial_address().checked_add(bias) {
            let (size, name) = (description.len(), String::new());
            found.push(CodeSymbol { start, size, name, indirect: false });
        }
    }
    found
}
