//! Debug information that is not in the program: split DWARF, `gcc -gsplit-dwarf`.
//!
//! The program then has skeletons of its units, with the addresses and the line tables. The rest of each is in a file of its own (`.dwo`)
//! that the skeleton names, or all of them are in a package beside the program (`.dwp`).

use super::info::Reader;
use crate::log::say;
use gimli::{Dwarf, DwarfPackage, LittleEndian, Reader as _, SectionId, Unit};
use lbr::regular;
use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a unit has elsewhere.
pub(super) struct Split {
    pub(super) dwarf: Arc<Dwarf<Reader>>,
    pub(super) unit: Unit<Reader>,
}

/// What a skeleton leaves out: `None` for a unit that is whole, and where the rest is missing, which is said.
pub(super) fn of(parent: &Dwarf<Reader>, skeleton: &Unit<Reader>, program: Option<&Path>) -> Option<Split> {
    let name = skeleton.dwo_name().ok().flatten()?;
    let text = |it: &Reader| it.to_string_lossy().ok().map(std::borrow::Cow::into_owned);
    let name = parent.attr_string(skeleton, name).ok().and_then(|it| text(&it)).unwrap_or_default();
    let folder = skeleton.comp_dir.as_ref().and_then(text).unwrap_or_default();
    let file = Path::new(&folder).join(&name);
    let found =
        from_file(parent, skeleton, &file).or_else(|| from_package(parent, skeleton, &package(program?)));
    if found.is_none() {
        let package = program.map(|it| format!(", nor in {}", package(it).display())).unwrap_or_default();
        say!(
            "gretel: the variables of a unit are not known: they are in {}, which is not there{package}",
            file.display()
        );
    }
    found
}

/// `PROGRAM.dwp`.
fn package(program: &Path) -> PathBuf {
    let mut name = program.as_os_str().to_owned();
    name.push(".dwp");
    name.into()
}

fn from_file(parent: &Dwarf<Reader>, skeleton: &Unit<Reader>, file: &Path) -> Option<Split> {
    let bytes = regular::read(file).ok()?;
    let object = object::File::parse(&*bytes).ok()?;
    let mut dwarf = Dwarf::load(|id| section(&object, id)).ok()?;
    dwarf.make_dwo(parent);
    whole(dwarf, skeleton)
}

fn from_package(parent: &Dwarf<Reader>, skeleton: &Unit<Reader>, file: &Path) -> Option<Split> {
    let bytes = regular::read(file).ok()?;
    let object = object::File::parse(&*bytes).ok()?;
    let empty = Reader::new(Arc::from([]), LittleEndian);
    let package = DwarfPackage::load(|id| section(&object, id), empty).ok()?;
    whole(package.find_cu(skeleton.dwo_id?, parent).ok().flatten()?, skeleton)
}

/// The unit that has the skeleton's number: that of an older build has another one.
fn whole(dwarf: Dwarf<Reader>, skeleton: &Unit<Reader>) -> Option<Split> {
    let mut headers = dwarf.units();
    while let Some(header) = headers.next().ok().flatten() {
        let Ok(mut unit) = dwarf.unit(header) else { continue };
        if unit.dwo_id == skeleton.dwo_id {
            unit.copy_relocated_attributes(skeleton);
            return Some(Split { dwarf: Arc::new(dwarf), unit });
        }
    }
    None
}

fn section(object: &object::File<'_>, id: SectionId) -> Result<Reader, gimli::Error> {
    let found = id.dwo_name().and_then(|name| object.section_by_name(name));
    let bytes = found.and_then(|section| section.uncompressed_data().ok()).unwrap_or_default();
    Ok(Reader::new(Arc::from(&*bytes), LittleEndian))
}
