//! The debug information of one module (a program or a library): units, entries, and where to find a function or a name.

use super::lines::Table;
use super::split::{self, Split};
use gimli::{
    AttributeValue, DebugInfoOffset, DebuggingInformationEntry, DwAt, DwTag, EndianArcSlice, LittleEndian,
    Reader as _, Unit, UnitHeader, UnitOffset,
};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a debug section.
pub(crate) type Reader = EndianArcSlice<LittleEndian>;
/// An entry, with its attributes.
pub(super) type Entry = DebuggingInformationEntry<Reader>;

/// Entries refer to others, which refer to others: in damaged information in a circle.
const MOST_REFERENCES: usize = 16;
/// Namespaces and classes within each other.
const DEEPEST: isize = 24;

/// An entry's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Die {
    pub(super) unit: usize,
    pub(super) offset: UnitOffset<usize>,
}

/// What the debug information of a module says.
pub(crate) struct Info {
    dwarf: Arc<gimli::Dwarf<Reader>>,
    /// The program's or library's file, where it has one: beside it may be what it leaves out ([`split`]).
    file: Option<PathBuf>,
    /// What was added to the addresses in it.
    pub(super) bias: u64,
    /// How far below the base of FS the thread-local variables of the program begin; `None` for a library.
    tls: Option<u64>,
    headers: Vec<UnitHeader<Reader>>,
    units: Vec<OnceCell<Option<Parsed>>>,
    ranges: OnceCell<Vec<(Range<u64>, usize)>>,
    names: OnceCell<BTreeMap<String, Vec<(DwTag, Die)>>>,
}

/// A unit that was looked at.
struct Parsed {
    /// In the module itself: of a skeleton, the addresses and the line table.
    unit: Unit<Reader>,
    /// Of a skeleton, the rest.
    split: Option<Split>,
    /// The functions in it, by their addresses in the file.
    functions: OnceCell<Vec<(Range<u64>, UnitOffset<usize>)>>,
    table: OnceCell<Table>,
}

impl Info {
    /// Of a module whose addresses were moved by `bias`. For the program itself, `tls` is the size of its thread-local variables, rounded
    /// up to their alignment.
    pub(crate) fn new(dwarf: Arc<gimli::Dwarf<Reader>>, bias: u64, tls: Option<u64>) -> Info {
        let mut headers = Vec::new();
        let mut all = dwarf.units();
        // What follows a damaged header cannot be found.
        while let Ok(Some(header)) = all.next() {
            headers.push(header);
        }
        let units = headers.iter().map(|_| OnceCell::new()).collect();
        let (ranges, names) = (OnceCell::new(), OnceCell::new());
        Info { dwarf, file: None, bias, tls, headers, units, ranges, names }
    }

    /// The same of a module that is this file.
    pub(crate) fn of_file(self, file: &Path) -> Info {
        Info { file: Some(file.to_owned()), ..self }
    }

    /// The information that a unit is in, with its strings and lists.
    pub(super) fn dwarf(&self, unit: usize) -> &gimli::Dwarf<Reader> {
        let split = self.parsed(unit).and_then(|parsed| parsed.split.as_ref());
        split.map_or(&self.dwarf, |split| &split.dwarf)
    }

    pub(super) fn unit(&self, unit: usize) -> Option<&Unit<Reader>> {
        let parsed = self.parsed(unit)?;
        Some(parsed.split.as_ref().map_or(&parsed.unit, |split| &split.unit))
    }

    /// The first entry of a unit.
    pub(super) fn root(&self, unit: usize) -> Option<Die> {
        Some(Die { unit, offset: self.unit(unit)?.header.root_offset() })
    }

    fn parsed(&self, unit: usize) -> Option<&Parsed> {
        let parse = || {
            let unit = self.dwarf.unit(self.headers.get(unit)?.clone()).ok()?;
            let split = split::of(&self.dwarf, &unit, self.file.as_deref());
            Some(Parsed { unit, split, functions: OnceCell::new(), table: OnceCell::new() })
        };
        self.units.get(unit)?.get_or_init(parse).as_ref()
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        self.headers.len()
    }

    /// The line table of a unit.
    pub(super) fn table(&self, unit: usize) -> Option<&Table> {
        let parsed = self.parsed(unit)?;
        Some(parsed.table.get_or_init(|| Table::read(&self.dwarf, &parsed.unit)))
    }

    pub(super) fn entry(&self, die: Die) -> Option<Entry> {
        self.unit(die.unit)?.entry(die.offset).ok()
    }

    /// The entries directly below one.
    pub(super) fn children(&self, die: Die) -> Vec<(Die, Entry)> {
        let mut found = Vec::new();
        let Some(Ok(mut cursor)) = self.unit(die.unit).map(|unit| unit.entries_at_offset(die.offset)) else {
            return found;
        };
        match cursor.next_dfs() {
            Ok(Some(entry)) if entry.has_children() => {}
            _ => return found,
        }
        let mut next = cursor.next_dfs().ok().flatten().cloned();
        while let Some(entry) = next {
            found.push((Die { unit: die.unit, offset: entry.offset() }, entry));
            next = cursor.next_sibling().ok().flatten().cloned();
        }
        found
    }

    /// The entry that an attribute refers to.
    pub(super) fn referred(&self, from: Die, value: &AttributeValue<Reader>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(offset) => Some(Die { unit: from.unit, offset: *offset }),
            AttributeValue::DebugInfoRef(offset) => self.die(*offset),
            _ => None,
        }
    }

    /// The entry at a place in .debug_info.
    pub(super) fn die(&self, offset: DebugInfoOffset<usize>) -> Option<Die> {
        let start = |header: &UnitHeader<Reader>| header.debug_info_offset().map_or(usize::MAX, |it| it.0);
        let unit = self.headers.partition_point(|header| start(header) <= offset.0).checked_sub(1)?;
        let offset = UnitOffset(offset.0.checked_sub(start(&self.headers[unit]))?);
        Some(Die { unit, offset })
    }

    /// An attribute of an entry, or of the one that it completes or is an instance of; with the entry that has it.
    pub(super) fn attribute(&self, die: Die, name: DwAt) -> Option<(Die, AttributeValue<Reader>)> {
        let mut die = die;
        for _ in 0..MOST_REFERENCES {
            let entry = self.entry(die)?;
            if let Some(value) = entry.attr_value(name) {
                return Some((die, value));
            }
            let of = entry.attr_value(gimli::DW_AT_abstract_origin);
            let of = of.or_else(|| entry.attr_value(gimli::DW_AT_specification))?;
            die = self.referred(die, &of)?;
        }
        None
    }

    /// A name, or another string.
    pub(super) fn string(&self, die: Die, name: DwAt) -> Option<String> {
        let (at, value) = self.attribute(die, name)?;
        let bytes = self.dwarf(at.unit).attr_string(self.unit(at.unit)?, value).ok()?;
        Some(bytes.to_string_lossy().ok()?.into_owned())
    }

    pub(super) fn name_of(&self, die: Die) -> Option<String> {
        self.string(die, gimli::DW_AT_name)
    }

    /// Whether a unit is written in C, where structures have names of their own kind.
    pub(super) fn is_c(&self, unit: usize) -> bool {
        let language = self
            .root(unit)
            .and_then(|root| self.entry(root))
            .and_then(|root| root.attr_value(gimli::DW_AT_language));
        matches!(
            language,
            Some(AttributeValue::Language(
                gimli::DW_LANG_C
                    | gimli::DW_LANG_C89
                    | gimli::DW_LANG_C99
                    | gimli::DW_LANG_C11
                    | gimli::DW_LANG_C17
            ))
        )
    }

    /// Whether a unit was compiled with optimization, as far as its producer tells (GCC does).
    pub(super) fn is_optimized(&self, unit: usize) -> bool {
        let producer = self.root(unit).and_then(|root| self.string(root, gimli::DW_AT_producer));
        producer.is_some_and(|it| {
            ["-O1", "-O2", "-O3", "-Os", "-Og", "-Ofast", "-Oz"].iter().any(|o| it.contains(o))
        })
    }

    /// The addresses that an entry covers, as the file has them.
    pub(super) fn ranges_of(&self, unit: usize, entry: &Entry) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let Some(Ok(mut ranges)) = self.unit(unit).map(|of| self.dwarf(unit).die_ranges(of, entry)) else {
            return found;
        };
        while let Ok(Some(range)) = ranges.next() {
            if range.begin < range.end {
                found.push(range.begin..range.end);
            }
        }
        found
    }

    /// The unit whose code an address of the file is.
    pub(super) fn unit_at(&self, address: u64) -> Option<usize> {
        let ranges = self.ranges.get_or_init(|| {
            let mut all = Vec::new();
            for unit in 0..self.headers.len() {
                // Of a skeleton it is in the module itself.
                let Some(parsed) = self.parsed(unit) else { continue };
                let Ok(mut ranges) = self.dwarf.unit_ranges(&parsed.unit) else { continue };
                while let Ok(Some(range)) = ranges.next() {
                    all.extend((range.begin < range.end).then_some((range.begin..range.end, unit)));
                }
            }
            all.sort_by_key(|(range, _)| range.start);
            all
        });
        let before = ranges.partition_point(|(range, _)| range.start <= address);
        ranges[..before]
            .iter()
            .rev()
            .take(MOST_REFERENCES)
            .find(|(it, _)| it.contains(&address))
            .map(|it| it.1)
    }

    /// The compiled function that contains an address of the file.
    pub(super) fn function_at(&self, address: u64) -> Option<Die> {
        let unit = self.unit_at(address)?;
        let parsed = self.parsed(unit)?;
        let functions = parsed.functions.get_or_init(|| self.functions_of(unit));
        let found = functions.iter().find(|(range, _)| range.contains(&address));
        found.map(|(_, offset)| Die { unit, offset: *offset })
    }

    fn functions_of(&self, number: usize) -> Vec<(Range<u64>, UnitOffset<usize>)> {
        let mut found = Vec::new();
        let Some(mut cursor) = self.unit(number).map(Unit::entries) else { return found };
        while let Ok(Some(entry)) = cursor.next_dfs() {
            if entry.tag() == gimli::DW_TAG_subprogram {
                let ranges = self.ranges_of(number, entry);
                found.extend(ranges.into_iter().map(|range| (range, entry.offset())));
            }
        }
        found
    }

    /// The entries of a name outside functions, as `name` or `space::name`: variables, functions, and types.
    pub(super) fn named(&self, name: &str) -> &[(DwTag, Die)] {
        self.names.get_or_init(|| self.index()).get(name).map_or(&[], Vec::as_slice)
    }

    fn index(&self) -> BTreeMap<String, Vec<(DwTag, Die)>> {
        let mut names: BTreeMap<String, Vec<(DwTag, Die)>> = BTreeMap::new();
        for unit in 0..self.headers.len() {
            for (tag, die, name) in self.outside_functions(unit) {
                // `geo::Rect::made` is also `Rect::made` and `made`.
                for (at, _) in name.match_indices("::") {
                    names.entry(name[at + 2..].to_owned()).or_default().push((tag, die));
                }
                names.entry(name).or_default().push((tag, die));
            }
        }
        names
    }

    /// What a unit defines outside functions, by qualified name.
    pub(super) fn outside_functions(&self, unit: usize) -> Vec<(DwTag, Die, String)> {
        let mut found = Vec::new();
        let Some(mut cursor) = self.unit(unit).map(Unit::entries) else { return found };
        // The names of the spaces and types that the next entry is in, by depth.
        let mut outer: Vec<(isize, String)> = Vec::new();
        let mut declared: BTreeMap<Die, String> = BTreeMap::new();
        let mut next = cursor.next_dfs().ok().flatten().cloned();
        while let Some(entry) = next {
            let (tag, depth) = (entry.tag(), entry.depth());
            let die = Die { unit, offset: entry.offset() };
            outer.retain(|(of, _)| *of < depth);
            let into = is_space(tag) && depth < DEEPEST;
            if let Some(name) = self.name_of(die).filter(|_| depth > 0) {
                let qualified = outer.iter().map(|(_, name)| name.as_str()).chain([name.as_str()]);
                let qualified = qualified.collect::<Vec<_>>().join("::");
                if into {
                    outer.push((depth, name));
                }
                // A definition outside its space completes a declaration in it.
                let of = entry.attr_value(gimli::DW_AT_specification).and_then(|of| self.referred(die, &of));
                let qualified = of.and_then(|of| declared.get(&of).cloned()).unwrap_or(qualified);
                if entry.attr_value(gimli::DW_AT_declaration).is_none() {
                    found.push((tag, die, qualified));
                } else {
                    declared.insert(die, qualified);
                }
            }
            let next_entry = if into { cursor.next_dfs() } else { next_outside(&mut cursor, depth) };
            next = next_entry.ok().flatten().cloned();
        }
        found
    }

    /// The address of a thread-local variable of the program, if this is its information.
    pub(super) fn thread_local(&self, offset: u64, fs_base: u64) -> Option<u64> {
        Some(fs_base.wrapping_sub(self.tls?).wrapping_add(offset))
    }
}

/// Whether names are qualified by an entry's, and what is in it is no function's own.
fn is_space(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_compile_unit
            | gimli::DW_TAG_partial_unit
            | gimli::DW_TAG_namespace
            | gimli::DW_TAG_structure_type
            | gimli::DW_TAG_class_type
            | gimli::DW_TAG_union_type
    )
}

/// The next entry that is not below the current one, which may be one of an outer entry.
fn next_outside<'c>(
    cursor: &'c mut gimli::EntriesCursor<'_, Reader>,
    depth: isize,
) -> gimli::Result<Option<&'c Entry>> {
    loop {
        match cursor.next_dfs()? {
            None => return Ok(None),
            Some(entry) if entry.depth() <= depth => break,
            Some(_) => {}
        }
    }
    Ok(cursor.current())
}
