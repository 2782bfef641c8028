//! Takes a journal apart, and puts another one together.

use std::path::Path;
use vmm::journal::{Header, Reader, Record, frame};

pub(crate) fn all_records(path: &Path) -> (Header, Vec<Record>) {
    let mut reader = Reader::open(path).unwrap();
    let header = reader.header().clone();
    (header, std::iter::from_fn(|| reader.take().unwrap()).collect())
}

pub(crate) fn write_records(path: &Path, header: &Header, records: &[Record]) {
    let mut bytes = Vec::new();
    records.iter().for_each(|record| record.encode(&mut bytes));
    let file =
        [frame::preamble(), frame::pack(0, &header.encode()).unwrap(), frame::pack(1, &bytes).unwrap()];
    std::fs::write(path, file.concat()).unwrap();
}
