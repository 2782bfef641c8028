//! Four-level paging: from a linear address to a physical one, with every right on the way (Intel SDM vol. 3, chapter 4).
//!
//! [`walk`] reads the tables as they lie in memory, sets accessed and dirty bits, and says what the processor would: the
//! physical address, or the error code of #PF. Example: a store of a program to a page of the kernel finds the entry present
//! and without U, and is refused with PRESENT | WRITE | USER.

use crate::index;
use x86::bus::{Access, PageFault};

/// Bits of an entry of any level.
mod entry {
    pub(super) const PRESENT: u64 = 1;
    pub(super) const WRITE: u64 = 1 << 1;
    pub(super) const USER: u64 = 1 << 2;
    pub(super) const ACCESSED: u64 = 1 << 5;
    pub(super) const DIRTY: u64 = 1 << 6;
    /// Of levels 2 and 3: it maps a page of 2 MiB or 1 GiB.
    pub(super) const LARGE: u64 = 1 << 7;
    pub(super) const NO_EXECUTE: u64 = 1 << 63;
}

/// Bits of a physical address: what CPUID leaf 8000_0008 has to say, too.
pub const PHYSICAL_BITS: u32 = 40;
/// Where an entry has the address.
const ADDRESS: u64 = (1 << PHYSICAL_BITS) - 4096;
/// Bits of an entry that are zero: between the address and those that software may use.
const RESERVED: u64 = (1 << 52) - (1 << PHYSICAL_BITS);
/// The error code's bit for a reserved bit that is set.
const RESERVED_FAULT: u32 = 8;

/// What of the control registers a walk depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Paging {
    /// CR0.PG.
    pub enabled: bool,
    /// CR3: where the tables begin.
    pub root: u64,
    /// CR0.WP.
    pub write_protect: bool,
    /// CR4.SMEP.
    pub smep: bool,
    /// CR4.SMAP.
    pub smap: bool,
    /// EFER.NXE.
    pub no_execute: bool,
    /// The current privilege level is 3.
    pub user: bool,
    /// RFLAGS.AC, which lifts SMAP.
    pub access: bool,
}

impl Paging {
    /// Whether the kernel runs, and reaches pages of programs although SMAP is on.
    #[must_use]
    pub fn is_lifted(&self) -> bool {
        self.smap && self.access && !self.user
    }
}

/// Where a linear address leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The physical address.
    pub physical: u64,
}

/// Rights along a walk.
#[derive(Clone, Copy)]
struct Rights {
    write: bool,
    user: bool,
    execute: bool,
}

/// Walks the tables of `paging` in `ram` for an access to the canonical address `va`, and gives `marked` the address of each entry in
/// which it has set a bit.
///
/// # Errors
/// The page fault, with the error code as the processor has it.
pub fn walk(
    ram: &mut [u8],
    paging: &Paging,
    va: u64,
    access: Access,
    marked: &mut impl FnMut(u64),
) -> Result<Mapping, PageFault> {
    let (mapping, path) = find(ram, paging, va, access)?;
    mark(ram, path.entries(), access, marked);
    Ok(mapping)
}

/// Where a fetch from the canonical address `va` leads, if it is allowed and would set no bit; none is set here.
#[must_use]
pub fn peek_fetch(ram: &[u8], paging: &Paging, va: u64) -> Option<Mapping> {
    let (mapping, path) = find(ram, paging, va, Access::Execute).ok()?;
    let is_marked = |at: &u64| read(ram, *at).is_some_and(|entry| entry & entry::ACCESSED != 0);
    path.entries().iter().all(is_marked).then_some(mapping)
}

/// The addresses of the entries of a walk by level, the last of which is of level `last`; of no tables it has none.
struct Path {
    by_level: [u64; 4],
    last: usize,
}

impl Path {
    fn entries(&self) -> &[u64] {
        &self.by_level[self.last..]
    }
}

/// Where an access leads, and the entries that say so.
fn find(ram: &[u8], paging: &Paging, va: u64, access: Access) -> Result<(Mapping, Path), PageFault> {
    if !paging.enabled {
        return Ok((Mapping { physical: va }, Path { by_level: [0; 4], last: 4 }));
    }
    let fault = |cause: u32| PageFault { address: va, error_code: cause | request(paging, access) };
    let mut rights = Rights { write: true, user: true, execute: true };
    let mut table = paging.root & ADDRESS;
    let mut by_level = [0; 4];
    for level in (0..4_u32).rev() {
        let shift = 12 + 9 * level;
        let at = table + (va >> shift & 0x1ff) * 8;
        // Where there is no memory, nothing is present.
        let entry = read(ram, at).unwrap_or(0);
        if entry & entry::PRESENT == 0 {
            return Err(fault(0));
        }
        let is_last = level == 0 || entry & entry::LARGE != 0;
        if has_reserved(paging, entry, level, is_last) {
            return Err(fault(PageFault::PRESENT | RESERVED_FAULT));
        }
        rights.write &= entry & entry::WRITE != 0;
        rights.user &= entry & entry::USER != 0;
        rights.execute &= entry & entry::NO_EXECUTE == 0;
        let last = index(u64::from(level));
        by_level[last] = at;
        if is_last {
            if !allows(paging, rights, access) {
                return Err(fault(PageFault::PRESENT));
            }
            let offset = (1 << shift) - 1;
            let physical = entry & ADDRESS & !offset | va & offset;
            return Ok((Mapping { physical }, Path { by_level, last }));
        }
        table = entry & ADDRESS;
    }
    unreachable!("level 0 is the last")
}

/// The bits of the error code that the access alone decides.
fn request(paging: &Paging, access: Access) -> u32 {
    let user = if paging.user { PageFault::USER } else { 0 };
    user | match access {
        Access::Read => 0,
        Access::Write => PageFault::WRITE,
        // Without NX and SMEP a fetch is told as a read (Intel SDM vol. 3, 4.7).
        Access::Execute if paging.no_execute || paging.smep => PageFault::FETCH,
        Access::Execute => 0,
    }
}

fn has_reserved(paging: &Paging, entry: u64, level: u32, is_last: bool) -> bool {
    // Below the address of a large page; bit 12 is PAT's.
    let below = if is_last && level > 0 { (1 << (12 + 9 * level)) - (1 << 13) } else { 0 };
    let no_level_of_pages = level == 3 && entry & entry::LARGE != 0;
    let execute = if paging.no_execute { 0 } else { entry::NO_EXECUTE };
    no_level_of_pages || entry & (RESERVED | below | execute) != 0
}

/// Whether the rights of a walk allow the access (Intel SDM vol. 3, 4.6.1).
fn allows(paging: &Paging, rights: Rights, access: Access) -> bool {
    let execute = rights.execute || !paging.no_execute;
    if paging.user {
        return rights.user
            && match access {
                Access::Read => true,
                Access::Write => rights.write,
                Access::Execute => execute,
            };
    }
    let kept_by_smap = rights.user && paging.smap && !paging.access;
    match access {
        Access::Read => !kept_by_smap,
        Access::Write => !kept_by_smap && (rights.write || !paging.write_protect),
        Access::Execute => execute && !(rights.user && paging.smep),
    }
}

/// Sets the accessed bits along a walk, and the dirty bit of its last entry, which is the first of `path`.
fn mark(ram: &mut [u8], path: &[u64], access: Access, marked: &mut impl FnMut(u64)) {
    for (n, at) in path.iter().enumerate() {
        let dirty = if n == 0 && access == Access::Write { entry::DIRTY } else { 0 };
        if let Some(entry) = read(ram, *at) {
            let now = entry | entry::ACCESSED | dirty;
            if now != entry {
                marked(*at);
                ram[index(*at)..index(*at) + 8].copy_from_slice(&now.to_le_bytes());
            }
        }
    }
}

/// Where `va` leads now, whatever the rights are; nothing is marked.
#[must_use]
pub fn peek(ram: &[u8], paging: &Paging, va: u64) -> Option<u64> {
    if !paging.enabled {
        return Some(va);
    }
    let mut table = paging.root & ADDRESS;
    for level in (0..4_u32).rev() {
        let shift = 12 + 9 * level;
        let entry = read(ram, table + (va >> shift & 0x1ff) * 8)?;
        let is_last = level == 0 || entry & entry::LARGE != 0;
        if entry & entry::PRESENT == 0 || has_reserved(paging, entry, level, is_last) {
            return None;
        }
        if is_last {
            let offset = (1 << shift) - 1;
            return Some(entry & ADDRESS & !offset | va & offset);
        }
        table = entry & ADDRESS;
    }
    None
}

fn read(ram: &[u8], at: u64) -> Option<u64> {
    let bytes = ram.get(index(at)..index(at) + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::entry::*;
    use super::*;

    fn walk(ram: &mut [u8], paging: &Paging, va: u64, access: Access) -> Result<Mapping, PageFault> {
        let peeked = peek(ram, paging, va);
        let mapping = super::walk(ram, paging, va, access, &mut |_| {});
        if let Ok(mapping) = mapping {
            assert_eq!(peeked, Some(mapping.physical));
        }
        mapping
    }

    const VA: u64 = 0x0000_1234_5678_9abc;
    const KERNEL: Paging = Paging {
        enabled: true,
        root: 0x1000,
        write_protect: true,
        smep: false,
        smap: false,
        no_execute: true,
        user: false,
        access: false,
    };
    const USER_MODE: Paging = Paging { user: true, ..KERNEL };
    const ALL: u64 = PRESENT | WRITE | USER;

    /// Tables at 0x1000 to 0x4000 that lead from [`VA`] to the frame 0x5000; `entries` are the rights from the highest
    /// level down. A level with LARGE is the last.
    fn tables(entries: &[u64]) -> Vec<u8> {
        let mut ram = vec![0; 0x6000];
        for (n, rights) in (0_u64..).zip(entries) {
            let level = 3 - n;
            let at = index(0x1000 * (n + 1) + (VA >> (12 + 9 * level) & 0x1ff) * 8);
            let to = if rights & LARGE == 0 { 0x1000 * (n + 2) } else { 0 };
            ram[at..at + 8].copy_from_slice(&(to | rights).to_le_bytes());
        }
        ram
    }

    fn code(paging: &Paging, entries: &[u64], access: Access) -> Option<u32> {
        match walk(&mut tables(entries), paging, VA, access) {
            Ok(_) => None,
            Err(fault) => {
                assert_eq!(fault.address, VA);
                Some(fault.error_code)
            }
        }
    }

    #[test]
    fn each_size_of_page_has_its_offset() {
        let to = |entries: &[u64]| {
            walk(&mut tables(entries), &KERNEL, VA, Access::Read).map(|mapping| mapping.physical)
        };
        assert_eq!(to(&[ALL; 4]), Ok(0x5000 | VA & 0xfff));
        assert_eq!(to(&[ALL, ALL, ALL | LARGE]), Ok(VA & 0x1f_ffff));
        assert_eq!(to(&[ALL, ALL | LARGE]), Ok(VA & 0x3fff_ffff));
    }

    #[test]
    fn faults_have_the_error_codes_of_the_manual() {
        let (read_only, kernel, nx) = (PRESENT | USER, PRESENT | WRITE, ALL | NO_EXECUTE);
        let smep = Paging { smep: true, ..KERNEL };
        let smap = Paging { smap: true, ..KERNEL };
        let lifted = Paging { access: true, ..smap };
        let no_wp = Paging { write_protect: false, ..KERNEL };
        let no_nx = Paging { no_execute: false, ..USER_MODE };
        let leaf = |last: u64| [ALL, ALL, ALL, last];
        let (read, write, fetch) = (Access::Read, Access::Write, Access::Execute);
        let cases: &[(&Paging, [u64; 4], Access, Option<u32>)] = &[
            (&USER_MODE, leaf(ALL), write, None),
            (&USER_MODE, leaf(0), read, Some(0b00100)),
            (&USER_MODE, leaf(0), write, Some(0b00110)),
            (&USER_MODE, leaf(0), fetch, Some(0b10100)),
            (&no_nx, leaf(0), fetch, Some(0b00100)),
            (&KERNEL, leaf(0), read, Some(0b00000)),
            (&KERNEL, leaf(0), write, Some(0b00010)),
            (&USER_MODE, leaf(read_only), write, Some(0b00111)),
            (&USER_MODE, leaf(kernel), read, Some(0b00101)),
            (&USER_MODE, [kernel, ALL, ALL, ALL], read, Some(0b00101)),
            (&USER_MODE, [ALL, read_only, ALL, ALL], write, Some(0b00111)),
            (&USER_MODE, [nx, ALL, ALL, ALL], fetch, Some(0b10101)),
            (&USER_MODE, leaf(nx), fetch, Some(0b10101)),
            (&USER_MODE, leaf(nx), read, None),
            (&no_nx, leaf(nx), read, Some(0b01101)),
            (&KERNEL, leaf(read_only), write, Some(0b00011)),
            (&no_wp, leaf(read_only), write, None),
            (&KERNEL, leaf(ALL), fetch, None),
            (&smep, leaf(ALL), fetch, Some(0b10001)),
            (&smep, leaf(kernel), fetch, None),
            (&smap, leaf(ALL), read, Some(0b00001)),
            (&smap, leaf(ALL), write, Some(0b00011)),
            (&smap, leaf(kernel), write, None),
            (&lifted, leaf(ALL), write, None),
            (&USER_MODE, leaf(ALL | 1 << 45), read, Some(0b01101)),
            (&USER_MODE, [ALL | LARGE, ALL, ALL, ALL], read, Some(0b01101)),
            (&USER_MODE, [ALL, ALL, ALL | LARGE | 1 << 13, ALL], read, Some(0b01101)),
        ];
        for (n, (paging, entries, access, expected)) in cases.iter().enumerate() {
            assert_eq!(code(paging, entries, *access), *expected, "case {n}");
        }
    }

    #[test]
    fn accessed_and_dirty_bits_are_set_by_what_succeeds_alone() {
        let entry = |ram: &[u8], n: u64| {
            super::read(ram, 0x1000 * (n + 1) + (VA >> (12 + 9 * (3 - n)) & 0x1ff) * 8).unwrap()
        };
        let marks = |ram: &[u8]| [0, 1, 2, 3].map(|n| entry(ram, n) & (ACCESSED | DIRTY));
        let mut ram = tables(&[ALL; 4]);
        let mut marked = Vec::new();
        super::walk(&mut ram, &KERNEL, VA, Access::Read, &mut |at| marked.push(at >> 12)).unwrap();
        assert_eq!((marks(&ram), marked), ([ACCESSED; 4], vec![4, 3, 2, 1]));
        walk(&mut ram, &KERNEL, VA, Access::Write).unwrap();
        assert_eq!(marks(&ram), [ACCESSED, ACCESSED, ACCESSED, ACCESSED | DIRTY]);
        let mut ram = tables(&[ALL, ALL, ALL, PRESENT]);
        walk(&mut ram, &USER_MODE, VA, Access::Write).unwrap_err();
        assert_eq!(marks(&ram), [0; 4]);
    }

    #[test]
    fn a_look_needs_no_rights_and_leaves_no_marks() {
        let ram = tables(&[ALL, ALL, PRESENT, PRESENT | NO_EXECUTE]);
        assert_eq!(peek(&ram, &USER_MODE, VA), Some(0x5000 | VA & 0xfff));
        assert_eq!(ram, tables(&[ALL, ALL, PRESENT, PRESENT | NO_EXECUTE]));
        assert_eq!(peek(&tables(&[ALL, ALL, ALL, 0]), &KERNEL, VA), None);
        assert_eq!(peek(&ram, &Paging { root: 0xffff_f000, ..KERNEL }, VA), None);
    }

    #[test]
    fn a_look_at_code_leads_where_a_fetch_would_that_changes_nothing() {
        let looked = |paging: &Paging, entries: &[u64]| {
            peek_fetch(&tables(entries), paging, VA).map(|mapping| mapping.physical)
        };
        const SEEN: u64 = ALL | ACCESSED;
        assert_eq!(looked(&KERNEL, &[SEEN; 4]), Some(0x5000 | VA & 0xfff));
        assert_eq!(looked(&KERNEL, &[SEEN, SEEN, SEEN | LARGE]), Some(VA & 0x1f_ffff));
        // A fetch would set a bit.
        assert_eq!(looked(&KERNEL, &[SEEN, SEEN, SEEN, ALL]), None);
        assert_eq!(looked(&KERNEL, &[SEEN, ALL, SEEN, SEEN]), None);
        // A fetch is not allowed.
        assert_eq!(looked(&KERNEL, &[SEEN, SEEN, SEEN, SEEN | NO_EXECUTE]), None);
        assert_eq!(looked(&USER_MODE, &[SEEN, SEEN, SEEN, PRESENT | ACCESSED]), None);
        assert_eq!(looked(&Paging { smep: true, ..KERNEL }, &[SEEN; 4]), None);
        assert_eq!(looked(&Paging { enabled: false, ..KERNEL }, &[]), Some(VA));
    }

    #[test]
    fn tables_outside_memory_hold_nothing() {
        let paging = Paging { root: 0xffff_f000, ..KERNEL };
        let fault = walk(&mut vec![0; 0x1000], &paging, VA, Access::Read).unwrap_err();
        assert_eq!(fault.error_code, 0);
    }
}
