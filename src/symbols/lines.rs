//! Source lines to addresses.

use super::module::Loaded;
use gimli::{AttributeValue, LineProgramHeader, Reader as _, Unit};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use synth::program::Reader;

/// Where the code of a line begins: each address at which a statement of it starts, by address. The file is matched by the end of its
/// path.
pub(super) fn addresses(module: &Loaded, file: &Path, line: u64) -> Vec<u64> {
    let Some(dwarf) = module.dwarf() else { return Vec::new() };
    let mut found = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if let Ok(unit) = dwarf.unit(header) {
            // A unit that is damaged says what precedes the damage.
            let _ = of_unit(dwarf, &unit, file, line, &mut found);
        }
    }
    let extent = module.names().extent();
    let own = found.into_iter().map(|address| address.wrapping_add(module.bias()));
    // Linkers leave the lines of code that they left out, at addresses near zero.
    let mut found: Vec<u64> = own.filter(|address| extent.contains(address)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Those of one unit, in the file's own terms.
fn of_unit(
    dwarf: &gimli::Dwarf<Reader>,
    unit: &Unit<Reader>,
    file: &Path,
    line: u64,
    found: &mut Vec<u64>,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let files = matching(dwarf, unit, program.header(), file);
    if files.is_empty() {
        return Ok(());
    }
    let mut rows = program.rows();
    let mut before = false;
    while let Some((_, row)) = rows.next_row()? {
        let is_it = !row.end_sequence()
            && row.line().is_some_and(|it| it.get() == line)
            && files.contains(&row.file_index());
        if is_it && !before && row.is_stmt() {
            found.push(row.address());
        }
        before = is_it;
    }
    Ok(())
}

/// The numbers of the files whose path ends so.
fn matching(
    dwarf: &gimli::Dwarf<Reader>,
    unit: &Unit<Reader>,
    header: &LineProgramHeader<Reader>,
    file: &Path,
) -> HashSet<u64> {
    let text = |value: AttributeValue<Reader>| {
        let string = dwarf.attr_string(unit, value).ok()?;
        string.to_string_lossy().ok().map(|text| PathBuf::from(text.into_owned()))
    };
    let from = u64::from(header.version() < 5);
    let ends_so = |entry: &gimli::FileEntry<Reader>| {
        let folder = entry.directory(header).and_then(text).unwrap_or_default();
        text(entry.path_name()).is_some_and(|name| folder.join(name).ends_with(file))
    };
    (from..).zip(header.file_names()).filter(|(_, entry)| ends_so(entry)).map(|(number, _)| number).collect()
}
