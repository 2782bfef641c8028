//! The line table: where statements begin, in a function and in a source file.
//!
//! Example: `for (i = 0; i < 3; i++) f(i);` on line 7, compiled without optimization, begins at three addresses, of the beginning, the
//! body and the condition. Stepping over it ends at the first statement of another line; a breakpoint on it is at the first address.

use super::info::{Die, Info, Reader};
use gimli::{AttributeValue, LineProgramHeader, Reader as _, Unit};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// A line of a source file of one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Line {
    /// The file's place in [`Table::files`].
    file: usize,
    /// The line, from 1; 0 for code that no line has.
    pub(crate) number: u32,
}

/// Where the code of a line begins.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// In the file's own terms.
    address: u64,
    line: Line,
    /// A place to stop at.
    statement: bool,
    prologue_end: bool,
    /// The end of the rows that belong together.
    end: bool,
}

/// The line table of a unit.
#[derive(Default)]
pub(super) struct Table {
    /// The source files, as paths.
    files: Vec<String>,
    /// By address.
    rows: Vec<Row>,
}

/// A statement of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Where it begins.
    pub(crate) address: u64,
    /// Its line.
    pub(crate) line: Line,
    /// The inlined functions that it is in, the outermost first.
    pub(crate) inlined: Vec<usize>,
}

/// A compiled function, by its lines.
pub(crate) struct Lines {
    /// Its code.
    pub(crate) ranges: Vec<Range<u64>>,
    /// Its first instruction.
    pub(crate) entry: u64,
    /// Where its frame is set up and its parameters can be read.
    pub(crate) body: u64,
    /// Its statements, by address; those before the body are not among them.
    pub(crate) statements: Vec<Statement>,
    /// All beginnings of lines, also in the midst of statements, by address, with the end of each.
    pieces: Vec<(Range<u64>, Line)>,
    /// The inlined functions in it: their code, and the entry.
    inlined: Vec<(Range<u64>, usize)>,
}

impl Lines {
    /// The function that contains an address; `None` where the debug information has no lines of it.
    pub(crate) fn at(info: &Rc<Info>, address: u64) -> Option<Lines> {
        let own = address.wrapping_sub(info.bias);
        let die = info.function_at(own)?;
        let table = info.table(die.unit)?;
        let ranges = info.ranges_of(die.unit, &info.entry(die)?);
        let entry = ranges.first()?.start;
        let rows: Vec<_> = ranges.iter().flat_map(|range| table.between(range)).collect();
        let body = body(info, die, &rows, entry);
        let inlined = inlined(info, die);
        let moved = |address: u64| address.wrapping_add(info.bias);
        let within = |address: u64| {
            let around = inlined.iter().filter(|(range, _)| range.contains(&address));
            around.map(|(_, die)| *die).collect::<Vec<_>>()
        };
        let mut statements: Vec<Statement> = Vec::new();
        for (range, row) in rows.iter().filter(|(_, row)| row.statement && row.line.number > 0) {
            if range.start < body && ranges[0].contains(&range.start) {
                continue;
            }
            let statement =
                Statement { address: moved(range.start), line: row.line, inlined: within(range.start) };
            // Of several at an address, the last is what is executed there.
            match statements.last_mut().filter(|last| last.address == statement.address) {
                Some(last) => *last = statement,
                None => statements.push(statement),
            }
        }
        let pieces = pieces(&rows).into_iter();
        let pieces = pieces.map(|(range, line)| (moved(range.start)..moved(range.end), line)).collect();
        let moved_range = |range: &Range<u64>| moved(range.start)..moved(range.end);
        let lines = Lines {
            entry: moved(entry),
            body: moved(body),
            statements,
            pieces,
            inlined: inlined.iter().map(|(range, die)| (moved_range(range), *die)).collect(),
            ranges: ranges.iter().map(moved_range).collect(),
        };
        (!lines.statements.is_empty()).then_some(lines)
    }

    /// The line at an address.
    pub(crate) fn line(&self, address: u64) -> Option<Line> {
        self.pieces.iter().find(|(range, _)| range.contains(&address)).map(|(_, line)| *line)
    }

    /// The inlined functions that an address is in, the outermost first.
    pub(crate) fn inlined(&self, address: u64) -> Vec<usize> {
        self.inlined.iter().filter(|(range, _)| range.contains(&address)).map(|(_, die)| *die).collect()
    }

    /// The code of a line that is in these inlined functions.
    pub(crate) fn code(&self, line: Line, inlined: &[usize]) -> Vec<Range<u64>> {
        let of_line = self.pieces.iter().filter(|(_, it)| *it == line);
        of_line.filter(|(range, _)| self.inlined(range.start) == inlined).map(|it| it.0.clone()).collect()
    }
}

/// What each line covers. Of several rows at an address, it is the last that is a statement, as in gdb; else the last.
fn pieces(rows: &[(Range<u64>, Row)]) -> Vec<(Range<u64>, Line)> {
    let mut pieces = Vec::new();
    let mut statement: Option<(u64, Line)> = None;
    for (range, row) in rows {
        if row.statement {
            statement = Some((range.start, row.line));
        }
        if !range.is_empty() {
            let here = statement.filter(|(address, _)| *address == range.start);
            pieces.push((range.clone(), here.map_or(row.line, |(_, line)| line)));
        }
    }
    pieces
}

/// Where the frame of a function is set up: where the compiler says; of optimized code, at the beginning; else at the second row.
fn body(info: &Info, function: Die, rows: &[(Range<u64>, Row)], entry: u64) -> u64 {
    if let Some((range, _)) = rows.iter().find(|(range, row)| row.prologue_end && range.start >= entry) {
        return range.start;
    }
    if info.is_optimized(function.unit) {
        return entry;
    }
    let second = rows.iter().map(|(range, _)| range.start).find(|start| *start > entry);
    second.unwrap_or(entry)
}

/// The code of all functions that are inlined into one, the outer ones first.
fn inlined(info: &Info, function: Die) -> Vec<(Range<u64>, usize)> {
    let mut found = Vec::new();
    let Some(Ok(mut cursor)) = info.unit(function.unit).map(|unit| unit.entries_at_offset(function.offset))
    else {
        return found;
    };
    let Some(root) = cursor.next_dfs().ok().flatten().map(|entry| entry.depth()) else { return found };
    while let Ok(Some(entry)) = cursor.next_dfs() {
        if entry.depth() <= root {
            break;
        }
        if entry.tag() == gimli::DW_TAG_inlined_subroutine {
            let offset = entry.offset().0;
            found.extend(info.ranges_of(function.unit, entry).into_iter().map(|range| (range, offset)));
        }
    }
    found
}

impl Info {
    /// Where the copies of a function of this name begin that were inlined into others. They are in its own unit; where that has no code,
    /// because code is generated when all units are linked (LTO), in any.
    pub(crate) fn inlined_copies(&self, name: &str) -> Vec<u64> {
        let functions = self.named(name).iter().filter(|(tag, _)| *tag == gimli::DW_TAG_subprogram);
        let abstracts: Vec<Die> = functions.map(|(_, die)| *die).collect();
        let mut units: Vec<usize> = abstracts.iter().map(|die| die.unit).collect();
        if units.iter().any(|unit| !self.has_code(*unit)) {
            units = (0..self.units()).collect();
        }
        units.sort_unstable();
        units.dedup();
        let mut found: Vec<u64> =
            units.into_iter().flat_map(|unit| self.copies_in(unit, &abstracts)).collect();
        found.sort_unstable();
        found
    }

    fn has_code(&self, unit: usize) -> bool {
        let root = self.root(unit).and_then(|root| self.entry(root));
        root.is_some_and(|root| !self.ranges_of(unit, &root).is_empty())
    }

    fn copies_in(&self, unit: usize, of: &[Die]) -> Vec<u64> {
        let mut found = Vec::new();
        let Some(mut cursor) = self.unit(unit).map(|it| it.entries()) else { return found };
        while let Ok(Some(entry)) = cursor.next_dfs() {
            if entry.tag() != gimli::DW_TAG_inlined_subroutine {
                continue;
            }
            let here = Die { unit, offset: entry.offset() };
            let origin = entry.attr_value(gimli::DW_AT_abstract_origin);
            if origin.and_then(|it| self.referred(here, &it)).is_some_and(|it| of.contains(&it)) {
                let start = self.ranges_of(unit, entry).first().map(|range| range.start);
                found.extend(start.map(|it| it.wrapping_add(self.bias)));
            }
        }
        found
    }
}

/// Where the code of a line of a file begins.
pub(crate) struct Found {
    /// The line: the one that was asked for, or the next that has code.
    pub(crate) line: u32,
    /// One address for each function, and inlined copy of it, that has code of it; behind the prologue.
    pub(crate) addresses: Vec<u64>,
}

/// Lines without code are passed over to the next that has some, at most so many.
const NEAR: u32 = 40;

impl Info {
    /// The first line from `line` on that has code in files for whose path `is_it`.
    pub(crate) fn line(self: &Rc<Info>, is_it: &dyn Fn(&str) -> bool, line: u32) -> Option<Found> {
        let mut best: Option<Found> = None;
        for unit in 0..self.units() {
            let Some(table) = self.table(unit) else { continue };
            let wanted: Vec<_> = (0..table.files.len()).filter(|file| is_it(&table.files[*file])).collect();
            let there = table.rows.iter().filter(|row| {
                row.statement && !row.end && wanted.contains(&row.line.file) && row.line.number >= line
            });
            let Some(nearest) = there.clone().map(|row| row.line.number).min() else { continue };
            if nearest - line > NEAR || best.as_ref().is_some_and(|best| best.line < nearest) {
                continue;
            }
            let rows = there.filter(|row| row.line.number == nearest).map(|row| row.address);
            let addresses = self.first_of_each(rows);
            match best.as_mut().filter(|best| best.line == nearest) {
                Some(best) => best.addresses.extend(addresses),
                None => best = Some(Found { line: nearest, addresses }),
            }
        }
        best.filter(|best| !best.addresses.is_empty())
    }

    /// Of addresses of the file, the lowest of each function and inlined copy; moved to where the program has them.
    fn first_of_each(self: &Rc<Info>, addresses: impl Iterator<Item = u64>) -> Vec<u64> {
        let mut first: HashMap<(Die, Vec<usize>), u64> = HashMap::new();
        for address in addresses {
            let Some(function) = self.function_at(address) else { continue };
            let Some(lines) = Lines::at(self, address.wrapping_add(self.bias)) else { continue };
            let moved = address.wrapping_add(self.bias);
            let moved = if (lines.entry..lines.body).contains(&moved) { lines.body } else { moved };
            let lowest = first.entry((function, lines.inlined(moved))).or_insert(moved);
            *lowest = moved.min(*lowest);
        }
        let mut found: Vec<_> = first.into_values().collect();
        found.sort_unstable();
        found
    }

    /// The file and the line of an address.
    pub(crate) fn source_line(&self, address: u64) -> Option<(String, u32)> {
        let own = address.wrapping_sub(self.bias);
        let table = self.table(self.unit_at(own)?)?;
        let behind = table.rows.partition_point(|row| row.address <= own);
        let start = table.rows[..behind].last()?.address;
        let rows = table.between(&(start..start.saturating_add(1)));
        let line = pieces(&rows).pop().map(|(_, line)| line).filter(|line| line.number > 0)?;
        Some((table.files.get(line.file)?.clone(), line.number))
    }

    /// Where the statements of the files begin for whose path `is_it`.
    pub(crate) fn statements(&self, is_it: &dyn Fn(&str) -> bool) -> Vec<u64> {
        let mut found = Vec::new();
        for table in (0..self.units()).filter_map(|unit| self.table(unit)) {
            let wanted: Vec<bool> = table.files.iter().map(|file| is_it(file)).collect();
            let is_wanted = |row: &&Row| {
                row.statement
                    && !row.end
                    && row.line.number > 0
                    && wanted.get(row.line.file).is_some_and(|it| *it)
            };
            let rows = table.rows.iter().filter(is_wanted);
            found.extend(rows.map(|row| row.address.wrapping_add(self.bias)));
        }
        found
    }

    /// The source files of all units.
    pub(crate) fn files(&self) -> Vec<String> {
        let tables = (0..self.units()).filter_map(|unit| self.table(unit));
        let mut files: Vec<_> = tables.flat_map(|table| table.files.iter().cloned()).collect();
        files.sort();
        files.dedup();
        files
    }
}

impl Table {
    /// Reads the table of a unit, as far as it is not damaged.
    pub(super) fn read(dwarf: &gimli::Dwarf<Reader>, unit: &Unit<Reader>) -> Table {
        let Some(program) = unit.line_program.clone() else { return Table::default() };
        let (files, numbers) = files(dwarf, unit, program.header());
        let mut table = Table { files, rows: Vec::new() };
        let mut rows = program.rows();
        let mut sequence = Vec::new();
        while let Ok(Some((_, row))) = rows.next_row() {
            let file = numbers.get(&row.file_index()).copied().unwrap_or(usize::MAX);
            let number = row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0);
            sequence.push(Row {
                address: row.address(),
                line: Line { file, number },
                statement: row.is_stmt(),
                prologue_end: row.prologue_end(),
                end: row.end_sequence(),
            });
            if row.end_sequence() {
                // What the linker left out begins at zero.
                if sequence.first().is_some_and(|first: &Row| first.address > 0) {
                    table.rows.append(&mut sequence);
                }
                sequence.clear();
            }
        }
        // An end stands before what begins at the same address.
        table.rows.sort_by_key(|row| (row.address, !row.end));
        table
    }

    /// The rows in a range, with what each covers.
    fn between(&self, range: &Range<u64>) -> Vec<(Range<u64>, Row)> {
        let first = self.rows.partition_point(|row| row.address < range.start);
        let rows = self.rows[first..].iter().zip(self.rows[first..].iter().skip(1));
        let inside = rows.take_while(|(row, _)| row.address < range.end).filter(|(row, _)| !row.end);
        inside.map(|(row, next)| (row.address..next.address.min(range.end), *row)).collect()
    }
}

/// The files of a table, each path once, and which of them a number of the table means.
fn files(
    dwarf: &gimli::Dwarf<Reader>,
    unit: &Unit<Reader>,
    header: &LineProgramHeader<Reader>,
) -> (Vec<String>, HashMap<u64, usize>) {
    let text = |value: AttributeValue<Reader>| {
        let string = dwarf.attr_string(unit, value).ok()?;
        string.to_string_lossy().ok().map(|text| text.into_owned())
    };
    let root = unit.comp_dir.as_ref().and_then(|dir| dir.to_string_lossy().ok()).unwrap_or_default();
    let mut files: Vec<String> = Vec::new();
    let mut numbers = HashMap::new();
    let from = u64::from(header.version() < 5);
    for (number, entry) in (from..).zip(header.file_names()) {
        let folder = entry.directory(header).and_then(text).unwrap_or_default();
        let name = text(entry.path_name()).unwrap_or_default();
        let path = std::path::Path::new(&*root).join(folder).join(name);
        let path = path.to_string_lossy().into_owned();
        let place = files.iter().position(|known| *known == path).unwrap_or_else(|| {
            files.push(path);
            files.len() - 1
        });
        numbers.insert(number, place);
    }
    (files, numbers)
}
