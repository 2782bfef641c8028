//! What is mapped: `maps`, `smaps` and `smaps_rollup`.
//!
//! The numbers of files are asked of the host when the text is made. `smaps` is approximate: what is in memory counts as
//! private to the process unless it is shared memory, and as changed unless it is a file's.

use super::super::{Guest, Kernel, Served};
use super::{Of, memory};
use crate::memory::vma::{Backing, Mapping};
use crate::ram::{PAGE, Virt};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::os::unix::fs::MetadataExt;

/// The column at which names begin.
const NAME_AT: usize = 73;

/// A mapping, as the texts need it.
struct Part {
    start: Virt,
    mapping: Mapping,
    name: String,
    offset: u64,
    /// Device and number of its file.
    file: [u64; 2],
}

fn parts(kernel: &Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<Part>> {
    let Some(task) = kernel.shown(of) else { return Ok(Vec::new()) };
    let describe = |(start, mapping): (Virt, &Mapping)| {
        let (name, offset) = match &mapping.backing {
            Backing::Zero(name) => ((*name).to_owned(), 0),
            Backing::File(content, at) => (content.name.clone(), content.file_offset + at),
            Backing::Shared(object, at) | Backing::Copied(object, at) => (object.name.clone(), *at),
        };
        Part { start, mapping: mapping.clone(), name, offset, file: [0; 2] }
    };
    let mut parts: Vec<Part> = guest.spaces.get(task.space).mappings().iter().map(describe).collect();
    let names: BTreeSet<String> =
        parts.iter().map(|part| part.name.clone()).filter(|name| name.starts_with('/')).collect();
    let told = guest.input_bytes(&mut || {
        let ask = |name: &String| {
            let path = name.strip_suffix(" (deleted)").unwrap_or(name);
            std::fs::metadata(path).map_or([0; 2], |it| [it.dev(), it.ino()])
        };
        Ok(names.iter().flat_map(ask).flat_map(u64::to_le_bytes).collect())
    })?;
    for (name, numbers) in names.iter().zip(told.chunks_exact(16)) {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let file = [word(&numbers[..8]), word(&numbers[8..])];
        parts.iter_mut().filter(|part| part.name == *name).for_each(|part| part.file = file);
    }
    Ok(parts)
}

/// The line of a mapping in `maps`.
fn line(part: &Part) -> String {
    let Part { start, mapping, name, offset, file: [device, number] } = part;
    let rights = mapping.rights;
    let flag = |is, letter| if is { letter } else { '-' };
    let mut text = format!(
        "{start:08x}-{:08x} {}{}{}{} {offset:08x} {:02x}:{:02x} {number}",
        mapping.end,
        flag(rights.read, 'r'),
        flag(rights.write, 'w'),
        flag(rights.execute, 'x'),
        if mapping.backing.is_shared() { 's' } else { 'p' },
        libc::major(*device),
        libc::minor(*device),
    );
    text.push(' ');
    if !name.is_empty() {
        while text.len() < NAME_AT {
            text.push(' ');
        }
        text.push_str(&name.replace('\n', "\\012"));
    }
    text.push('\n');
    text
}

pub(super) fn maps(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let parts = parts(kernel, guest, of)?;
    Ok(parts.iter().map(line).collect::<String>().into_bytes())
}

/// Sums over mappings, in bytes.
#[derive(Default)]
struct Sums {
    resident: u64,
    shared: u64,
    clean: u64,
    dirty: u64,
    locked: u64,
}

impl Sums {
    fn add(&mut self, mapping: &Mapping, pages: u64) {
        let bytes = pages * PAGE;
        self.resident += bytes;
        match mapping.backing {
            Backing::Zero(_) => self.dirty += bytes,
            Backing::File(..) | Backing::Copied(..) => self.clean += bytes,
            Backing::Shared(..) => self.shared += bytes,
        }
        if mapping.attributes.locked {
            self.locked += bytes;
        }
    }

    fn write(&self, text: &mut String) {
        let lines = [
            ("Rss", self.resident),
            ("Pss", self.resident),
            ("Pss_Dirty", self.dirty),
            ("Shared_Clean", 0),
            ("Shared_Dirty", self.shared),
            ("Private_Clean", self.clean),
            ("Private_Dirty", self.dirty),
            ("Referenced", self.resident),
            ("Anonymous", self.dirty),
            ("LazyFree", 0),
            ("AnonHugePages", 0),
            ("ShmemPmdMapped", 0),
            ("FilePmdMapped", 0),
            ("Shared_Hugetlb", 0),
            ("Private_Hugetlb", 0),
            ("Swap", 0),
            ("SwapPss", 0),
            ("Locked", self.locked),
        ];
        for (name, bytes) in lines {
            kilobytes(text, name, bytes);
        }
    }
}

fn kilobytes(text: &mut String, name: &str, bytes: u64) {
    let name = format!("{name}:");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name:<16}{:>8} kB", bytes / 1024);
}

pub(super) fn smaps(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let parts = parts(kernel, guest, of)?;
    let resident = memory::resident(kernel, guest, of)?;
    let mut text = String::new();
    for (part, pages) in parts.iter().zip(resident) {
        text.push_str(&line(part));
        kilobytes(&mut text, "Size", part.mapping.end - part.start);
        kilobytes(&mut text, "KernelPageSize", PAGE);
        kilobytes(&mut text, "MMUPageSize", PAGE);
        let mut sums = Sums::default();
        sums.add(&part.mapping, pages);
        sums.write(&mut text);
        text.push_str("THPeligible:           0\nVmFlags:");
        let (rights, attributes) = (part.mapping.rights, part.mapping.attributes);
        for (flag, is) in [
            (" rd", rights.read),
            (" wr", rights.write),
            (" ex", rights.execute),
            (" sh", part.mapping.backing.is_shared()),
            (" mr mw me", true),
            (" gd", attributes.grows_down),
            (" lo", attributes.locked),
            (" dc", attributes.not_forked),
            (" wf", attributes.wiped_on_fork),
        ] {
            text.push_str(if is { flag } else { "" });
        }
        text.push_str(" \n");
    }
    Ok(text.into_bytes())
}

pub(super) fn rollup(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let resident = memory::resident(kernel, guest, of)?;
    let Some(task) = kernel.shown(of) else { return super::gone() };
    let mappings: Vec<_> = guest.spaces.get(task.space).mappings().iter().collect();
    let mut sums = Sums::default();
    for ((_, mapping), pages) in mappings.iter().zip(resident) {
        sums.add(mapping, pages);
    }
    let start = mappings.first().map_or(0, |(start, _)| *start);
    let end = mappings.last().map_or(0, |(_, mapping)| mapping.end);
    let mut text = format!("{start:08x}-{end:08x} ---p 00000000 00:00 0 ");
    while text.len() < NAME_AT {
        text.push(' ');
    }
    text.push_str("[rollup]\n");
    sums.write(&mut text);
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Rights;
    use crate::memory::vma::Attributes;

    #[test]
    fn a_line_is_as_linux_writes_it() {
        let rights = Rights { read: true, write: true, execute: false };
        let attributes = Attributes::default();
        let mapping = Mapping { end: 0x55_5555_7000, rights, backing: Backing::Zero(""), attributes };
        let mut part =
            Part { start: 0x55_5555_5000, mapping, name: String::new(), offset: 0x1000, file: [0, 0] };
        assert_eq!(line(&part), "5555555000-5555557000 rw-p 00001000 00:00 0 \n");
        (part.name, part.file) = ("/bin/a\nb".to_owned(), [libc::makedev(8, 17), 42]);
        let line = line(&part);
        assert!(line.starts_with("5555555000-5555557000 rw-p 00001000 08:11 42 "), "{line}");
        assert_eq!(&line[NAME_AT..], "/bin/a\\012b\n");
    }
}
