//! The calling contexts of crumbs: what computes a word from a stack, and what decodes it.
//!
//! A word is a hash of the stack. Computed forward from a stack it is the recorder's own computation: where it differs, the stack is
//! another one. Decoded, it is the true stack but for a chance of one in 2^64 a call, and for walks by code without unwind tables,
//! which are right wherever they were compared, and not by proof (decision 92).

use crate::program::cfg::{Callers, Cfg};
use lbr::context::word::{ROOT, called};
use lbr::context::{Decoder, Site, Table, TableError};
use rustc_hash::FxHashMap;
use std::rc::Rc;
use vmm::elfcore::{Core, FileMapping};
use vmm::stack::{MappedFile, Piece, Walker};

/// How many possible calls are looked at to decode one word.
const LIMIT: usize = 20_000;

/// What is known beside the crumbs themselves.
#[derive(Clone, Debug)]
pub struct Contexts {
    executable: Vec<u8>,
    table: Table,
    files: Vec<FileMapping>,
}

impl Contexts {
    /// Those of a core that the program in `executable` left; `None` if it was recorded without.
    ///
    /// # Errors
    /// When its note of them is damaged.
    pub fn of_core(core: &Core, executable: &[u8]) -> Result<Option<Contexts>, TableError> {
        let (executable, files) = (executable.to_vec(), core.files.clone());
        Ok(core.contexts()?.map(|table| Contexts { executable, table, files }))
    }

    /// What walks stacks as the recorder did; `None` if the executable is none that can be run.
    pub(crate) fn walker(&self) -> Option<Walker> {
        Walker::new(&self.executable).ok()
    }

    /// The file that is mapped at an address.
    pub(crate) fn file(&self, address: u64) -> Option<MappedFile<'_>> {
        let after = self.files.partition_point(|file| file.start <= address);
        let at = after.checked_sub(1).filter(|at| address < self.files[*at].end)?;
        let below = self.files[..at].iter().rev().map(piece);
        let above = self.files[after..].iter().map(piece);
        MappedFile::around(piece(&self.files[at]), below, above)
    }
}

fn piece(file: &FileMapping) -> Piece<'_> {
    Piece { range: file.start..file.end, offset: file.offset, name: &file.path }
}

/// The word of a stack, the innermost call first.
pub(crate) fn word(stack: &[Site]) -> u64 {
    stack.iter().rev().fold(ROOT, |word, site| called(word, site.id))
}

/// Decodes words, each once.
pub(crate) struct Decoded<'a> {
    decoder: Decoder<'a, Callers<'a>>,
    known: FxHashMap<(u64, u64), Option<Rc<[u64]>>>,
}

impl<'a> Decoded<'a> {
    pub(crate) fn new(contexts: &'a Contexts, cfg: &'a Cfg<'a>) -> Decoded<'a> {
        let decoder = Decoder::new(Callers::new(cfg), &contexts.table);
        Decoded { decoder, known: FxHashMap::default() }
    }

    /// The return addresses of the calls that a program with this word stood under, the innermost first, if that is found.
    pub(crate) fn calls(&mut self, word: u64, at: u64) -> Option<Rc<[u64]>> {
        let Decoded { decoder, known } = self;
        known.entry((word, at)).or_insert_with(|| Some(decoder.decode(word, at, LIMIT).ok()?.into())).clone()
    }
}
