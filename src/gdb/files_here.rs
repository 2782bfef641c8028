//! gdb reads programs and libraries from this machine: whether they are those that were recorded.

use crate::log::say;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use vmm::process::Process;

/// The headers of a file, its build-id among them, are in so many bytes.
const HEADERS: usize = 4096;

/// Says of each mapped file that is another one here, or none, that its symbols are wrong or missing.
pub(super) fn compare(process: &Process) {
    let mappings = process.mappings();
    let first_parts = mappings.iter().filter(|it| it.name.starts_with('/') && it.file_offset == 0);
    let mut seen = BTreeSet::new();
    for mapping in first_parts.filter(|it| it.rights.execute || !it.rights.write) {
        if !seen.insert(&mapping.name) {
            continue;
        }
        let mut recorded = vec![0; HEADERS];
        if !process.read_memory(mapping.start, &mut recorded) || !recorded.starts_with(b"\x7fELF") {
            continue;
        }
        match headers(&mapping.name) {
            Some(here) if recorded.starts_with(&here) => {}
            Some(_) => say!(
                "gretel: {} is another file here than was recorded: what gdb shows of its symbols is wrong",
                mapping.name
            ),
            None => {
                say!("gretel: {} cannot be read here: gdb shows no symbols of it", mapping.name);
            }
        }
    }
}

/// The beginning of a file; `None` where there is none, or it is no ordinary file.
fn headers(path: &str) -> Option<Vec<u8>> {
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(HEADERS as u64).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
