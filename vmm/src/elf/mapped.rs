//! A program file as it lies in memory: what its own headers say there.

use super::{ENDIAN, ElfError, Image, check_header, damaged, segment};
use crate::memory::layout::USER_END;
use crate::memory::vma::page_of;
use crate::ram::{PAGE_LEN, Virt};
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader};
use std::ops::Range;

/// A file that is mapped, read from memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedImage {
    /// What is loaded of it. Its entry point is zero if it names none, as libraries do.
    pub image: Image,
    /// Where the index of its unwind tables is (PT_GNU_EH_FRAME).
    pub unwind: Option<Range<Virt>>,
}

impl Image {
    /// Reads the headers of the file that is mapped in `range`, from its beginning on.
    ///
    /// # Errors
    /// When its headers are not in memory, or are damaged.
    pub fn mapped(
        range: &Range<Virt>,
        read: &dyn Fn(Virt, &mut [u8]) -> bool,
    ) -> Result<MappedImage, ElfError> {
        let mut page = vec![0; PAGE_LEN];
        if !read(range.start, &mut page) {
            return Err(ElfError::Damaged("its beginning is not in memory".to_owned()));
        }
        let header = check_header(&page)?;
        let programs = header.program_headers(ENDIAN, &*page).map_err(damaged)?;
        let first = programs.iter().find(|program| program.p_type(ENDIAN) == elf::PT_LOAD);
        let first = first.ok_or_else(|| ElfError::Damaged("it has no loadable segment".to_owned()))?;
        let begins = first.p_vaddr(ENDIAN).wrapping_sub(first.p_offset(ENDIAN));
        let bias = range.start.wrapping_sub(page_of(begins));
        let room = 0..USER_END.min(range.end.saturating_add(1 << 32));
        let loadable = programs.iter().filter(|program| program.p_type(ENDIAN) == elf::PT_LOAD);
        let segments: Option<Vec<_>> = loadable.map(|program| segment(program, bias, &room)).collect();
        let segments = segments
            .filter(|segments| segments.iter().all(|segment| segment.file_end <= range.end))
            .ok_or_else(|| ElfError::Damaged("a segment is not where it was mapped".to_owned()))?;
        let unwind = programs.iter().find(|program| program.p_type(ENDIAN) == elf::PT_GNU_EH_FRAME);
        let unwind = unwind.and_then(|program| segment(program, bias, range)).map(|it| it.start..it.file_end);
        let entry = match header.e_entry(ENDIAN) {
            0 => 0,
            entry => entry.wrapping_add(bias),
        };
        let image = Image {
            entry,
            headers: range.start.wrapping_add(header.e_phoff(ENDIAN)),
            header_count: programs.len() as u64,
            interpreter: None,
            executable_stack: false,
            bias,
            segments,
        };
        Ok(MappedImage { image, unwind })
    }
}
