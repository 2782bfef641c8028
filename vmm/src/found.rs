//! Where replays found the preemptions of a recording whose processor did not count: the file `positions` beside the journal.
//!
//! Such a preemption is a state to search for ([`crate::position::Offset::State`]). Once it was found, its count is known; the
//! next replay runs to that count and compares there, once. The file saves time and decides nothing: one that is damaged, or
//! of another recording, is as good as none.
//!
//! Format: magic `GRETELP\n`; the recording's 16 bytes of AT_RANDOM, which no other recording has; for each preemption the
//! ordinal of the event before it and the instructions behind that, eight bytes each, by ordinal; XXH3-64 of all that.
//! Numbers are little-endian.

use crate::recording::{Recording, private_file};
use lbr::regular;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

const MAGIC: &[u8; 8] = b"GRETELP\n";

/// The counts that are known, and a file that gets them when this is dropped.
#[derive(Default)]
pub(crate) struct Found {
    file: Option<PathBuf>,
    random: [u8; 16],
    counts: BTreeMap<u64, u64>,
    /// There are some that the file has not.
    news: bool,
}

impl Found {
    /// What earlier replays of a recording, which was launched with these bytes, found.
    pub(crate) fn load(recording: &Recording, random: [u8; 16]) -> Found {
        let file = recording.positions();
        let bytes = regular::read(&file).unwrap_or_default();
        let counts = decode(&bytes, random).unwrap_or_default();
        Found { file: Some(file), random, counts, news: false }
    }

    /// How many instructions behind this event a preemption comes, if that is known.
    pub(crate) fn count(&self, event: u64) -> Option<u64> {
        self.counts.get(&event).copied()
    }

    /// It comes so many instructions behind it.
    pub(crate) fn put(&mut self, event: u64, count: u64) {
        self.news |= self.counts.insert(event, count) != Some(count);
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &self.random].concat();
        for (event, count) in &self.counts {
            bytes.extend(event.to_le_bytes());
            bytes.extend(count.to_le_bytes());
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Replaces the file at once: another replay may be reading it.
    fn save(&self, file: &Path) -> io::Result<()> {
        let new = file.with_extension(std::process::id().to_string());
        private_file(&new)?.write_all(&self.encode()).and_then(|()| fs::rename(&new, file)).inspect_err(
            |_| {
                // What cannot be written cannot be left either; the error that counts is the first.
                let _ = fs::remove_file(&new);
            },
        )
    }
}

fn decode(bytes: &[u8], random: [u8; 16]) -> Option<BTreeMap<u64, u64>> {
    let (body, digest) = bytes.split_last_chunk()?;
    if u64::from_le_bytes(*digest) != xxh3_64(body) {
        return None;
    }
    let entries = body.strip_prefix(MAGIC)?.strip_prefix(&random)?;
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
    entries.chunks(16).map(|entry| Some((number(entry.get(..8)?)?, number(entry.get(8..)?)?))).collect()
}

impl Drop for Found {
    /// Keeps what is new, however the replay ended. A folder that cannot be written costs later replays time, and no more.
    fn drop(&mut self) {
        if let (true, Some(file)) = (self.news, &self.file)
            && let Err(error) = self.save(file)
        {
            tracing::debug!("{} is not written: {error}", file.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_is_known_to_the_next_and_damage_is_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let recording = Recording::create(dir.path(), false).unwrap();
        let random = [7; 16];
        let mut found = Found::load(&recording, random);
        assert_eq!(found.count(3), None);
        found.put(3, 1000);
        found.put(9, 5);
        drop(found);
        let again = Found::load(&recording, random);
        assert_eq!((again.count(3), again.count(9), again.count(4)), (Some(1000), Some(5), None));
        assert_eq!(Found::load(&recording, [8; 16]).count(3), None, "it is another recording's");

        let bytes = fs::read(recording.positions()).unwrap();
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len], random), None, "cut to {len}");
            let mut flipped = bytes.clone();
            flipped[len] ^= 1;
            assert_eq!(decode(&flipped, random), None, "flipped at {len}");
        }
    }
}
