//! Program files as they are mapped, kept for the next who executes the same content: each command of a shell script is one.
//!
//! A content is known by where it is in memory, as in `memory/searched.rs`.

use crate::elf::{ElfError, Image};
use crate::memory::vma::{Content, page_of, page_up};
use crate::memory::{Rights, findings};
use crate::ram::Virt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// So many files are kept, the newest, and so many bytes of them.
const MOST_FILES: usize = 64;
const MOST_BYTES: usize = 128 << 20;

/// A program file, or a dynamic linker.
pub(super) struct Prepared {
    pub(super) image: Image,
    pub(super) parts: Vec<Part>,
    /// Where machine reads are, each with the bytes that the file has there, once that was searched.
    found: OnceLock<Vec<(Virt, [u8; 2])>>,
}

/// A segment, in whole pages.
pub(super) struct Part {
    pub(super) start: Virt,
    /// The first address behind what the file holds.
    pub(super) file_end: Virt,
    pub(super) end: Virt,
    pub(super) rights: Rights,
    /// The file's bytes, if there are any.
    pub(super) content: Option<Arc<Content>>,
}

/// What a file was prepared from and as.
struct Kept {
    file: Weak<Vec<u8>>,
    path: String,
    is_interpreter: bool,
    bytes: usize,
    prepared: Arc<Prepared>,
}

static PREPARED: Mutex<Vec<Kept>> = Mutex::new(Vec::new());

/// A program.
pub(super) fn program(path: &str, file: &Arc<Vec<u8>>) -> Result<Arc<Prepared>, ElfError> {
    prepare(path, file, false)
}

/// A dynamic linker.
pub(super) fn interpreter(path: &str, file: &Arc<Vec<u8>>) -> Result<Arc<Prepared>, ElfError> {
    prepare(path, file, true)
}

fn prepare(path: &str, file: &Arc<Vec<u8>>, is_interpreter: bool) -> Result<Arc<Prepared>, ElfError> {
    let lock = || PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_it = |kept: &&Kept| {
        kept.file.as_ptr() == Arc::as_ptr(file) && kept.is_interpreter == is_interpreter && kept.path == path
    };
    if let Some(kept) = lock().iter().find(is_it) {
        return Ok(Arc::clone(&kept.prepared));
    }
    let image = if is_interpreter { Image::parse_interpreter(file)? } else { Image::parse(file)? };
    let prepared = Arc::new(Prepared { parts: parts(path, file, &image), image, found: OnceLock::new() });
    let mut all = lock();
    let bytes = |all: &[Kept]| all.iter().map(|kept| kept.bytes).sum::<usize>() + file.len();
    while !all.is_empty() && (all.len() >= MOST_FILES || bytes(&all) > MOST_BYTES) {
        all.remove(0);
    }
    let (bytes, file, path) = (file.len(), Arc::downgrade(file), path.to_owned());
    all.push(Kept { file, path, is_interpreter, bytes, prepared: Arc::clone(&prepared) });
    Ok(prepared)
}

fn parts(path: &str, file: &[u8], image: &Image) -> Vec<Part> {
    let index = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
    let part = |segment: &crate::elf::Segment| {
        let start = page_of(segment.start);
        let end = page_up(segment.end).unwrap_or(segment.end);
        let from = segment.offset - (segment.start - start);
        let bytes = file.get(index(from)..index(mapped_to(segment, file))).unwrap_or(&[]).to_vec();
        let file_end = page_up(start + bytes.len() as u64).unwrap_or(end).min(end);
        let size = bytes.len() as u64;
        let content = Content { name: path.to_owned(), file_offset: from, bytes: Arc::new(bytes), size };
        let content = (file_end > start).then(|| Arc::new(content));
        Part { start, file_end, end, rights: segment.rights, content }
    };
    image.segments.iter().map(part).collect()
}

/// Up to which byte of the file a segment shows it. Linux maps whole pages, and makes those bytes of the last one zero that are .bss:
/// where the segment has some, and can be written (fs/binfmt_elf.c, `padzero`). All others show what the file has behind the segment.
fn mapped_to(segment: &crate::elf::Segment, file: &[u8]) -> u64 {
    let to = segment.offset + (segment.file_end - segment.start);
    let has_bss = segment.rights.write && segment.end > segment.file_end;
    match page_up(to) {
        Some(whole) if !has_bss => whole.min(file.len() as u64),
        _ => to,
    }
}

impl Prepared {
    /// Where machine reads were found, if the file was searched, in this recording or an earlier one.
    pub(super) fn found(&self, file: &[u8]) -> Option<&[(Virt, [u8; 2])]> {
        if self.found.get().is_none() {
            let numbers = findings::load(self.key_on_disk(file)?)?;
            let site = |pair: &[u64; 2]| {
                let [address, original] = *pair;
                let original = u16::try_from(original).ok()?.to_le_bytes();
                self.extent().contains(&address).then_some((address, original))
            };
            let sites = numbers.as_chunks().0.iter().map(site).collect::<Option<_>>()?;
            // Another thread has read the same.
            let _ = self.found.set(sites);
        }
        self.found.get().map(Vec::as_slice)
    }

    /// Keeps where they were found.
    pub(super) fn keep(&self, file: &[u8], found: Vec<(Virt, [u8; 2])>) {
        if let Some(key) = self.key_on_disk(file) {
            let number = |(at, original): &(Virt, [u8; 2])| [*at, u16::from_le_bytes(*original).into()];
            findings::keep(key, &found.iter().flat_map(number).collect::<Vec<u64>>());
        }
        let _ = self.found.set(found);
    }

    /// What identifies it in other recordings, too.
    fn key_on_disk(&self, file: &[u8]) -> Option<u128> {
        findings::key([b"program".as_slice(), &self.image.bias.to_le_bytes(), file])
    }

    /// From its first address to behind its last.
    pub(super) fn extent(&self) -> Range<Virt> {
        let start = self.parts.first().map_or(0, |part| part.start);
        start..self.parts.last().map_or(start, |part| part.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_prepared_once() {
        let file = std::fs::read("/proc/self/exe").expect("this test");
        let (file, copy) = (Arc::new(file.clone()), Arc::new(file));
        let first = program("/p", &file).expect("a program");
        assert!(Arc::ptr_eq(&first, &program("/p", &file).expect("a program")));
        assert!(!Arc::ptr_eq(&first, &program("/q", &file).expect("a program")), "another path");
        assert!(!Arc::ptr_eq(&first, &program("/p", &copy).expect("a program")), "another place");
        assert!(program("/p", &Arc::new(vec![1])).is_err());
    }

    /// As Linux 6.18 does it: nine programs that wrote the bytes behind their second segment were run under it.
    #[test]
    fn the_last_page_is_zero_where_it_is_bss() {
        let file = [0xaa; 0x1800];
        let shown_to = |write, file_size, size| {
            let start = 0x40_0010;
            let rights = Rights { read: true, write, execute: !write };
            let (file_end, end) = (start + file_size, start + size);
            mapped_to(&crate::elf::Segment { start, file_end, end, offset: 0x10, rights }, &file)
        };
        for (write, size, expected) in [
            (false, 0x100, 0x1000),
            (false, 0x108, 0x1000),
            (false, 0x2000, 0x1000),
            (true, 0x100, 0x1000),
            (true, 0x108, 0x110),
            (true, 0x2000, 0x110),
        ] {
            assert_eq!(shown_to(write, 0x100, size), expected, "{write} {size:#x}");
        }
        assert_eq!(
            shown_to(false, 0x1000, 0x1000),
            0x1800,
            "behind the end of the file there is nothing to show"
        );
    }
}
