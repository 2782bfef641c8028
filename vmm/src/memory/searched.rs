//! What was found in the code of files ([`super::search`]), by the contents themselves: whoever maps the same content again, as each
//! command of a shell script does with libc, has its instructions without a look at it.
//!
//! Contents are told apart by where they are in memory, which is enough as long as they are kept from going: a content that is taken
//! anew and is the same has the same place (`linux/memory/taken.rs`).

use super::findings;
use rustc_hash::FxHashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A part of a file that becomes executable, and all that decides what is found in it.
pub(super) struct Part {
    /// The file from its start on, as far as that is known; it has the tables.
    pub(super) file: Option<Arc<Vec<u8>>>,
    /// How far behind the file's start the part is mapped.
    pub(super) distance: u64,
    /// What is mapped, and where in it the part begins; behind its end are zeroes.
    pub(super) code: Arc<Vec<u8>>,
    pub(super) at: usize,
    /// How long the part is.
    pub(super) length: usize,
}

/// The addresses of file and code, and the numbers of a [`Part`].
type Key = (usize, u64, usize, usize, usize);

/// What was found: distances from the part's start. That the contents are known here keeps others from their addresses.
struct Found {
    distances: Arc<[u32]>,
    _contents: [Weak<Vec<u8>>; 2],
}

static SEARCHED: Mutex<Option<FxHashMap<Key, Found>>> = Mutex::new(None);
/// The results for more parts than this are forgotten.
const MOST_PARTS: usize = 4096;
/// Less code than this is searched sooner than a file is read.
const WORTH_A_FILE: usize = 1 << 16;

impl Part {
    fn key(&self) -> Key {
        let file = self.file.as_ref().map_or(0, |file| Arc::as_ptr(file).addr());
        (file, self.distance, Arc::as_ptr(&self.code).addr(), self.at, self.length)
    }

    /// Where machine reads were found when it was searched, in this recording or an earlier one.
    pub(super) fn found_before(&self) -> Option<Arc<[u32]>> {
        let known = || {
            let searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
            searched.as_ref()?.get(&self.key()).map(|found| Arc::clone(&found.distances))
        };
        known().or_else(|| {
            let inside = |number: u64| u32::try_from(number).ok().filter(|at| (*at as usize) < self.length);
            let numbers = findings::load(self.key_on_disk()?)?;
            let distances: Arc<[u32]> = numbers.into_iter().map(inside).collect::<Option<_>>()?;
            self.keep_here(Arc::clone(&distances));
            Some(distances)
        })
    }

    /// Keeps where they were found.
    pub(super) fn keep(&self, distances: Option<Arc<[u32]>>) {
        let Some(distances) = distances else { return };
        if let Some(key) = self.key_on_disk() {
            let numbers: Vec<u64> = distances.iter().map(|distance| u64::from(*distance)).collect();
            findings::keep(key, &numbers);
        }
        self.keep_here(distances);
    }

    /// What identifies it in other recordings, too.
    fn key_on_disk(&self) -> Option<u128> {
        if self.length < WORTH_A_FILE {
            return None;
        }
        let file = self.file.as_ref().map_or(&[][..], |file| file.as_slice());
        let (distance, length) = (self.distance.to_le_bytes(), (self.length as u64).to_le_bytes());
        let code = &self.code[self.at..];
        let code = &code[..code.len().min(self.length)];
        findings::key([file, &distance, &length, code])
    }

    fn keep_here(&self, distances: Arc<[u32]>) {
        let file = self.file.as_ref().map_or_else(Weak::new, Arc::downgrade);
        let found = Found { distances, _contents: [file, Arc::downgrade(&self.code)] };
        let mut searched = SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
        let searched = searched.get_or_insert_default();
        if searched.len() >= MOST_PARTS {
            searched.clear();
        }
        searched.insert(self.key(), found);
    }
}
