//! Mappings without a segment. Linux writes a segment for each, an empty one where the bytes are those of a file. gdb's `gcore` writes
//! none for what nobody changed: of a library's code nothing is said but its place, in the note of the mapped files.
//!
//! Example: libc's code is at 0x7ffff7dfb000 by the note, no segment has that address, and the file has code at that offset: it was
//! mapped readable and executable, and its bytes are the file's.

use super::parse::rights_in_file;
use super::{Bytes, FileMapping, Segment};
use std::path::Path;

/// Adds an empty segment for each mapping of a program or library that has none, and that nobody writes to. Both are in order.
pub(super) fn add(segments: &mut Vec<Segment>, files: &[FileMapping]) {
    let is_said = |file: &FileMapping| {
        let next = segments.partition_point(|it| it.end <= file.start);
        segments.get(next).is_some_and(|it| it.start < file.end)
    };
    let mut unsaid: Vec<Segment> = Vec::new();
    for file in files.iter().filter(|file| file.start < file.end && !is_said(file)) {
        let is_behind = unsaid.last().is_none_or(|last| last.end <= file.start);
        if let Some(rights) = rights_in_file(Path::new(&file.path), file.offset).filter(|_| is_behind) {
            let (start, end, data) = (file.start, file.end, Bytes::from(Vec::new()));
            unsaid.push(Segment { start, end, dumped: start, rights, data });
        }
    }
    segments.extend(unsaid);
    segments.sort_by_key(|it| it.start);
}
