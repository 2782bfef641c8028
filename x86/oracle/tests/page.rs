//! The page of instructions is that of the table, and names every instruction there is.

use x86_oracle::generate::encodings;
use x86_oracle::{page, runs};

#[test]
fn the_page_is_up_to_date() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let runs = runs::load(&here.join("runs")).unwrap();
    let written = std::fs::read_to_string(here.join("../../docs/instructions.md")).unwrap();
    let made = page::page(&runs);
    let differs = written.lines().zip(made.lines()).find(|(written, made)| written != made);
    assert!(
        written == made,
        "docs/instructions.md is out of date, run `make page`; the first difference: {differs:?}"
    );
}

#[test]
fn every_encoding_is_in_a_family() {
    let lost: Vec<_> = encodings().filter(|code| page::family(*code).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
