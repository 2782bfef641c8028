//! The records of the near past, encoded as in the journal: as values they take several times the memory, and a program that
//! lives on small system calls makes three of them a call.
//!
//! Example: a checkpoint is taken, and [`Records::begin_piece`] called. `read(0, p, 8) = 8` is a beginning, an input of 8 bytes and a time:
//! 40 bytes of the newest piece. When that checkpoint goes, so does its piece.

use crate::gate::Input;
use crate::journal::Record;
use crate::journal::schema::{decode_all, encode_input};
use std::collections::VecDeque;

/// All records from a checkpoint on.
#[derive(Default)]
pub(super) struct Records {
    /// The number of the first of them.
    first: usize,
    /// One for each checkpoint, the oldest first: what came behind it and before the next.
    pieces: VecDeque<Piece>,
    /// About how much memory all take as values.
    bytes: usize,
}

#[derive(Default)]
struct Piece {
    count: usize,
    encoded: Vec<u8>,
    /// Those that are not encoded, in order, each behind so many others of the piece: the contents of files, which are shared.
    files: Vec<(usize, Input)>,
    bytes: usize,
}

impl Records {
    /// The number of the next record.
    pub(super) fn next(&self) -> usize {
        self.first + self.pieces.iter().map(|piece| piece.count).sum::<usize>()
    }

    /// About how much memory they take as values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A checkpoint is in front of the next record.
    pub(super) fn begin_piece(&mut self) {
        self.pieces.push_back(Piece::default());
    }

    /// Adds a record, behind the first checkpoint.
    pub(super) fn put(&mut self, record: &Record) {
        match record {
            Record::Input(input) => self.put_input(input),
            _ => self.add(0, |piece| record.encode(&mut piece.encoded)),
        }
    }

    /// Adds an input.
    pub(super) fn put_input(&mut self, input: &Input) {
        let written = match input {
            Input::Bytes { writes, .. } => writes.iter().map(|write| write.bytes.len()).sum(),
            _ => 0,
        };
        self.add(written, |piece| match input {
            Input::File(Ok(_)) => piece.files.push((piece.count, input.clone())),
            _ => encode_input(input, &mut piece.encoded),
        });
    }

    fn add(&mut self, more: usize, put: impl FnOnce(&mut Piece)) {
        let Some(piece) = self.pieces.back_mut() else { return };
        put(piece);
        let bytes = size_of::<Record>() + more;
        piece.count += 1;
        piece.bytes += bytes;
        self.bytes += bytes;
    }

    /// The oldest checkpoint goes, and what came between it and the next.
    pub(super) fn forget_first(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.first += piece.count;
            self.bytes -= piece.bytes;
        }
    }

    /// All records, and the number of the first; then there are none.
    pub(super) fn take(&mut self) -> (Vec<Record>, usize) {
        let (first, next) = (self.first, self.next());
        let all = self.pieces.drain(..).flat_map(Piece::decoded).collect();
        (self.first, self.bytes) = (next, 0);
        (all, first)
    }
}

impl Piece {
    fn decoded(self) -> Vec<Record> {
        let mut records = decode_all(&self.encoded).expect("what was encoded here decodes");
        for (place, input) in self.files {
            records.insert(place, Record::Input(input));
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Event, FileContent, MemoryWrite, Time};
    use crate::journal::End;
    use std::sync::Arc;

    fn records() -> Vec<Record> {
        let content = FileContent { name: b"/lib/x".to_vec(), bytes: Arc::new(vec![1; 5000]) };
        let write = MemoryWrite { address: 0x7fff_0000, bytes: vec![7; 8] };
        vec![
            Record::Begin { event: Event::Syscall(9), task: 5, regs: 1 },
            Record::Input(Input::File(Ok(Arc::new(content)))),
            Record::Time(Time { real: 9, monotonic: 3 }),
            Record::Begin { event: Event::Syscall(0), task: 5, regs: u64::MAX },
            Record::Input(Input::Bytes { result: 8, writes: vec![write] }),
            Record::Input(Input::File(Err(-2))),
            Record::End(End::Interrupted),
        ]
    }

    #[test]
    fn what_is_taken_is_what_was_put_since_the_first_checkpoint() {
        let (all, mut kept) = (records(), Records::default());
        kept.put(&all[0]);
        assert_eq!(kept.next(), 0, "there is no checkpoint before it");
        kept.begin_piece();
        all[..2].iter().for_each(|record| kept.put(record));
        kept.begin_piece();
        all[2..].iter().for_each(|record| kept.put(record));
        assert_eq!((kept.next(), kept.bytes() > 7 * size_of::<Record>()), (7, true));
        assert_eq!(kept.take(), (all, 0));
        assert_eq!((kept.next(), kept.bytes()), (7, 0));
    }

    #[test]
    fn a_checkpoint_takes_what_is_before_the_next_with_it() {
        let (all, mut kept) = (records(), Records::default());
        for part in [&all[..3], &all[3..]] {
            kept.begin_piece();
            part.iter().for_each(|record| kept.put(record));
        }
        kept.forget_first();
        assert_eq!(kept.take(), (all[3..].to_vec(), 3));
    }
}
