//! Functions of the source that have no code of their own.

use super::module::Loaded;
use gimli::{Unit, constants as dw};
use synth::program::Reader;

/// Whether a function of this name was inlined somewhere, by the module's debug information.
pub(super) fn has(module: &Loaded, name: &str) -> bool {
    let Some(dwarf) = module.dwarf() else { return false };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        if dwarf.unit(header).is_ok_and(|unit| unit_has(dwarf, &unit, name)) {
            return true;
        }
    }
    false
}

fn unit_has(dwarf: &gimli::Dwarf<Reader>, unit: &Unit<Reader>, name: &str) -> bool {
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() != dw::DW_TAG_subprogram || entry.attr_value(dw::DW_AT_inline).is_none() {
            continue;
        }
        let own = entry.attr_value(dw::DW_AT_name).and_then(|own| dwarf.attr_string(unit, own).ok());
        if own.is_some_and(|own| own.bytes() == name.as_bytes()) {
            return true;
        }
    }
    false
}
