//! What is certainly code, by the unwind tables of programs and libraries; stripped ones have them as well.
//!
//! A library is mapped piece by piece, first from its file's start on and for as long as all segments, so the tables are in what was
//! taken then. They are only a help: what of them is damaged is taken as not there.
//!
//! Example: libc is mapped from 0x7ffff7c00000 on, and then its code over that. The program headers in the first mapping lead to
//! `.eh_frame_hdr`, that to `.eh_frame`, and its 3,000 entries cover 1.4 MB of the code in 3,000 ranges.

use crate::ram::Virt;
use gimli::{BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian as Little, Pointer, UnwindSection};
use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use std::ops::Range;

const ENDIAN: LittleEndian = LittleEndian;

/// What the unwind tables of a file cover whose first bytes these are, with the first of them at `base`: ranges in order, no two of
/// which touch. None where the tables are damaged or not in these bytes.
pub(super) fn bodies(bytes: &[u8], base: Virt) -> Vec<Range<Virt>> {
    read(bytes, base).unwrap_or_default()
}

fn read(bytes: &[u8], base: Virt) -> Option<Vec<Range<Virt>>> {
    let headers = FileHeader64::<LittleEndian>::parse(bytes).ok()?.program_headers(ENDIAN, bytes).ok()?;
    let of_kind = |kind| headers.iter().filter(move |header| header.p_type(ENDIAN) == kind);
    let first = of_kind(elf::PT_LOAD).find(|header| header.p_offset(ENDIAN) == 0)?;
    let bias = base.wrapping_sub(first.p_vaddr(ENDIAN));
    let index = of_kind(elf::PT_GNU_EH_FRAME).next()?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(index.p_vaddr(ENDIAN));
    let parsed = EhFrameHdr::new(data(index, bytes)?, Little).parse(&bases, 8).ok()?;
    let Pointer::Direct(at) = parsed.eh_frame_ptr() else { return None };
    let holds = |header: &&ProgramHeader64<LittleEndian>| {
        let start = header.p_vaddr(ENDIAN);
        (start..start.saturating_add(header.p_filesz(ENDIAN))).contains(&at)
    };
    let segment = of_kind(elf::PT_LOAD).find(holds)?;
    let tables = data(segment, bytes)?.get(usize::try_from(at - segment.p_vaddr(ENDIAN)).ok()?..)?;
    let is_code = |body: &Range<Virt>| {
        of_kind(elf::PT_LOAD).filter(|header| header.p_flags(ENDIAN).contains(elf::PF_X)).any(|header| {
            let start = header.p_vaddr(ENDIAN).wrapping_add(bias);
            start <= body.start && body.end <= start.saturating_add(header.p_filesz(ENDIAN))
        })
    };
    Some(union(covered(tables, at, bias).into_iter().filter(is_code).collect()))
}

/// What the entries of an unwind table cover, which is at `address` by the file's own addresses.
pub(crate) fn covered(bytes: &[u8], address: Virt, bias: u64) -> Vec<Range<Virt>> {
    let tables = EhFrame::new(bytes, Little);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut entries = tables.entries(&bases);
    let mut bodies = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let start = entry.initial_address().wrapping_add(bias);
        bodies.extend(start.checked_add(entry.len()).map(|end| start..end));
    }
    bodies
}

/// The same addresses as ranges in order, no two of which touch.
pub(crate) fn union(mut ranges: Vec<Range<Virt>>) -> Vec<Range<Virt>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut union: Vec<Range<Virt>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match union.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => union.push(range),
        }
    }
    union
}

/// The bytes of a segment.
fn data<'a>(header: &ProgramHeader64<LittleEndian>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let start = usize::try_from(header.p_offset(ENDIAN)).ok()?;
    let length = usize::try_from(header.p_filesz(ENDIAN)).ok()?;
    bytes.get(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The library that this program itself is linked with.
    fn libc() -> Option<Vec<u8>> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
        std::fs::read(path.into_iter().find(|path| path.contains("/libc.so.6"))?).ok()
    }

    #[test]
    fn functions_of_a_library_are_found_by_its_first_bytes() {
        let Some(file) = libc() else { return };
        let found = bodies(&file, 0x7000_0000);
        assert!(found.len() > 1000, "{}", found.len());
        assert!(found.windows(2).all(|pair| pair[0].end < pair[1].start));
        assert!(found[0].start > 0x7000_0000);
    }

    #[test]
    fn what_is_damaged_has_none() {
        let Some(mut file) = libc() else { return };
        for length in [0, 10, 64, 700, 4096, file.len() / 2] {
            let _ = bodies(&file[..length], 0);
        }
        assert!(bodies(&file[..4096], 0).is_empty());
        let mut x = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..200 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let at = usize::try_from(x % 2048).unwrap();
            file[at] ^= x.to_le_bytes()[7];
            let _ = bodies(&file, x);
        }
    }
}
