//! Contents of files that were taken before, so that each is in memory once, however often it is mapped or executed.
//!
//! A shell script maps libc once for each of its commands. The file is read each time, since it may have changed, piece by piece, and
//! compared with what it held the last time; where that is the same, the earlier copy is what is mapped, and no other one is made.
//! Whoever keeps what follows from a content ([`crate::memory`]'s search for machine reads, the journal's digests) then knows it by its
//! address.
//!
//! A part that lies in what was read at the event right before is not read: a dynamic linker maps a library whole, and then its code over
//! that. What happens outside between two events is nothing to the program, which hears of the outside at events alone; so a file that
//! has changed since may be taken as it was then.
//!
//! Example: the second `ls` of a script maps the 1.9 MB of libc, is given the content that the first one has, and nothing of it is
//! digested or searched again.

use super::{Kernel, host};
use crate::gate::FileContent;
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;

/// Contents of more bytes than this together are forgotten.
const MOST_BYTES: usize = 128 << 20;
/// A content of more bytes is not kept.
const LARGEST: usize = 32 << 20;
/// So many bytes are read at a time to be compared.
const PIECE: usize = 64 << 10;

/// Which part of which file: its device and number, where the part begins, and how long it was to be.
pub(in crate::linux) type Part = (u64, u64, u64, u64);

/// A part of a file that is open: from `offset` on, so many bytes.
pub(in crate::linux) fn part(file: RawFd, offset: u64, length: u64) -> Option<Part> {
    let [device, number, ..] = host::stat(file).ok()?;
    Some((device, number, offset, length))
}

/// What a part of a file held when it was read, at an event.
#[derive(Debug)]
struct Seen {
    event: u64,
    part: Part,
    content: Arc<FileContent>,
}

impl Seen {
    /// What another part held then, if it lies in this one.
    fn of(&self, (device, number, offset, length): Part) -> Option<&[u8]> {
        let (_, _, from, long) = self.part;
        let start = offset.checked_sub(from)?;
        let end = start.checked_add(length)?;
        let is_inside = (device, number) == (self.part.0, self.part.1) && end <= long;
        let bytes = self.content.bytes.as_slice();
        let at = |place: u64| usize::try_from(place).map_or(bytes.len(), |place| place.min(bytes.len()));
        is_inside.then(|| &bytes[at(start)..at(end)])
    }
}

/// What was taken of files. A copy has none of it: it is of use to who reads files, and no copy does.
#[derive(Debug, Default)]
pub(in crate::linux) struct Taken {
    known: HashMap<Part, Arc<FileContent>>,
    bytes: usize,
    /// How many events have begun, and what was read at the newest at which something was.
    events: u64,
    newest: Option<Seen>,
}

impl Clone for Taken {
    fn clone(&self) -> Taken {
        Taken::default()
    }
}

impl Taken {
    /// An event begins.
    pub(in crate::linux) fn event_begins(&mut self) {
        self.events += 1;
    }

    /// The program may have changed a file since the event before, by what it has mapped shared.
    pub(in crate::linux) fn read_anew(&mut self) {
        self.newest = None;
    }

    /// What this part of a file held the last time, if the file has its name still and holds the same. Where it cannot be read, that is
    /// not known.
    pub(in crate::linux) fn unchanged(
        &mut self,
        part: Option<Part>,
        file: RawFd,
    ) -> Option<Arc<FileContent>> {
        let part = part?;
        let known = Arc::clone(self.known.get(&part)?);
        if host::path_of(&file).ok()? != known.name {
            return None;
        }
        let newest = self.newest.as_ref().filter(|seen| seen.event + 1 == self.events);
        match newest.and_then(|seen| seen.of(part)) {
            Some(bytes) => (bytes == known.bytes.as_slice()).then_some(known),
            None => {
                let is_same = holds(file, part, &known.bytes)?;
                is_same.then(|| self.seen(part, known))
            }
        }
    }

    /// Notes what a part of a file held that was read just now.
    fn seen(&mut self, part: Part, content: Arc<FileContent>) -> Arc<FileContent> {
        self.newest = Some(Seen { event: self.events, part, content: Arc::clone(&content) });
        content
    }

    /// This content; the earlier copy of it, if it is what the part of the file held the last time.
    pub(in crate::linux) fn share(&mut self, part: Option<Part>, content: FileContent) -> Arc<FileContent> {
        let Some(part) = part else { return Arc::new(content) };
        if let Some(known) = self.known.get(&part).filter(|known| ***known == content) {
            let known = Arc::clone(known);
            return self.seen(part, known);
        }
        let content = Arc::new(content);
        if content.bytes.len() <= LARGEST {
            self.keep(part, Arc::clone(&content));
            return self.seen(part, content);
        }
        content
    }

    fn keep(&mut self, part: Part, content: Arc<FileContent>) {
        self.bytes += content.bytes.len();
        if self.bytes > MOST_BYTES {
            self.known.clear();
            self.bytes = content.bytes.len();
        }
        if let Some(before) = self.known.insert(part, content) {
            self.bytes = self.bytes.saturating_sub(before.bytes.len());
        }
    }
}

impl Kernel {
    /// An event begins.
    pub(crate) fn event_begins(&mut self) {
        self.taken.event_begins();
    }
}

/// Whether a part of a file holds just these bytes, as a read of the part would give them; `None` where it fails.
fn holds(file: RawFd, (_, _, offset, length): Part, bytes: &[u8]) -> Option<bool> {
    let mut piece = vec![0; PIECE];
    let mut compared = 0;
    loop {
        let left = length - compared as u64;
        let wanted = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        if wanted == 0 {
            return Some(compared == bytes.len());
        }
        let at = i64::try_from(offset.checked_add(compared as u64)?).ok()?;
        let count = usize::try_from(host::read(file, &mut piece[..wanted], Some(at))).ok()?;
        if count == 0 {
            return Some(compared == bytes.len());
        }
        if bytes.get(compared..compared + count) != Some(&piece[..count]) {
            return Some(false);
        }
        compared += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(bytes: &[u8]) -> FileContent {
        FileContent { name: b"/lib".to_vec(), bytes: Arc::new(bytes.to_vec()) }
    }

    #[test]
    fn the_same_content_is_shared_and_a_changed_one_is_not() {
        let mut taken = Taken::default();
        let part = Some((1, 2, 0, 4096));
        let first = taken.share(part, content(b"abc"));
        assert!(Arc::ptr_eq(&first, &taken.share(part, content(b"abc"))));
        let changed = taken.share(part, content(b"abd"));
        assert_eq!(changed.bytes.as_slice(), b"abd");
        assert!(Arc::ptr_eq(&changed, &taken.share(part, content(b"abd"))));
        assert!(!Arc::ptr_eq(&changed, &taken.share(None, content(b"abd"))));
    }

    #[test]
    fn a_file_is_unchanged_as_long_as_it_holds_the_same() {
        use std::io::Write;
        use std::os::fd::AsRawFd;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let bytes: Vec<u8> = (0..200_000_u32).map(|n| (n % 251) as u8).collect();
        file.write_all(&bytes).expect("it is written");
        let opened = std::fs::File::open(file.path()).expect("it is opened");
        let fd = opened.as_raw_fd();
        let name = host::path_of(&fd).expect("its name");
        let mut taken = Taken::default();
        let all = part(fd, 0, u64::MAX);
        let some = part(fd, 4096, 100_000);
        for (part, range) in [(all, 0..200_000), (some, 4096..104_096)] {
            assert!(taken.unchanged(part, fd).is_none(), "nothing is known of it");
            let bytes = Arc::new(bytes[range].to_vec());
            taken.share(part, FileContent { name: name.clone(), bytes });
        }
        let known = taken.unchanged(all, fd).expect("it is unchanged");
        assert_eq!(*known.bytes, bytes);
        assert!(taken.unchanged(some, fd).is_some());
        file.write_all(b"!").expect("it grows");
        assert!(taken.unchanged(all, fd).is_none() && taken.unchanged(some, fd).is_some());
        file.as_file().set_len(100_000).expect("it is cut");
        assert!(taken.unchanged(some, fd).is_none());
        file.as_file().set_len(104_096).expect("it grows by zeroes");
        assert!(taken.unchanged(some, fd).is_none());
        std::fs::write(file.path(), &bytes).expect("it is written again");
        assert!(taken.unchanged(all, fd).is_some() && taken.unchanged(some, fd).is_some());
        std::fs::rename(file.path(), file.path().with_extension("other")).expect("it is renamed");
        assert!(taken.unchanged(all, fd).is_none());
        let _ = std::fs::remove_file(file.path().with_extension("other"));
    }

    #[test]
    fn what_was_read_at_the_event_before_is_not_read_again() {
        use std::os::fd::AsRawFd;
        let file = tempfile::NamedTempFile::new().expect("a file");
        let opened = std::fs::File::open(file.path()).expect("it is opened");
        let fd = opened.as_raw_fd();
        let name = host::path_of(&fd).expect("its name");
        let write = |bytes: &[u8]| std::fs::write(file.path(), bytes).expect("it is written");
        let mut taken = Taken::default();
        let [whole, code, beyond] = [(0, 100), (1, 2), (2, 101)].map(|(from, long)| part(fd, from, long));
        write(b"abcd");
        for (part, bytes) in [(whole, b"abcd".as_slice()), (code, b"bc"), (beyond, b"cd")] {
            taken.share(part, FileContent { name: name.clone(), bytes: Arc::new(bytes.to_vec()) });
        }
        // What is told by a read of the whole, then by a change outside, and by another event.
        taken.event_begins();
        assert!(taken.unchanged(whole, fd).is_some());
        write(b"xxxx");
        taken.event_begins();
        assert!(taken.unchanged(code, fd).is_some(), "as it was at the event before");
        assert!(taken.unchanged(beyond, fd).is_none(), "a part that ends behind what was read is read");
        taken.event_begins();
        assert!(taken.unchanged(code, fd).is_none(), "two events before is too long ago");
        write(b"abcd");
        assert!(taken.unchanged(whole, fd).is_some());
        write(b"xxxx");
        taken.event_begins();
        taken.read_anew();
        assert!(taken.unchanged(code, fd).is_none());
        write(b"abcdef");
        taken.event_begins();
        assert!(taken.unchanged(whole, fd).is_none());
        taken.share(whole, FileContent { name: name.clone(), bytes: Arc::new(b"aBcdef".to_vec()) });
        taken.event_begins();
        assert!(taken.unchanged(code, fd).is_none(), "it was another at the event before");
    }

    #[test]
    fn many_bytes_are_forgotten() {
        let mut taken = Taken::default();
        let large = vec![7; LARGEST];
        (0..20).for_each(|n| drop(taken.share(Some((1, n, 0, 0)), content(&large))));
        assert!(taken.bytes <= MOST_BYTES && taken.known.len() <= MOST_BYTES / LARGEST);
    }
}
