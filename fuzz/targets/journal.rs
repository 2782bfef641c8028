//! A journal of any header and any records, in frames whose checksums are right, and the same bytes as a file.

#![no_main]

use std::fs;
use vmm::journal::{Reader, frame};

fn read(file: &[u8]) {
    let path = std::env::temp_dir().join(format!("gretel-fuzz-{}", std::process::id()));
    fs::write(&path, file).expect("a file in the temporary directory");
    if let Ok(mut reader) = Reader::open(&path) {
        while let Ok(Some(_)) = reader.take() {}
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    let Some((length, rest)) = bytes.split_at_checked(2) else { return };
    let length = usize::from(u16::from_le_bytes([length[0], length[1]])).min(rest.len());
    let (header, records) = rest.split_at(length);
    let frames = [(0, header), (1, records)].map(|(n, part)| frame::pack(n, part).expect("compresses"));
    read(&[frame::preamble(), frames.concat()].concat());
});
