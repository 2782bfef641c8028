//! The notes of a core: crumbs, and the words of call sites. What is read is written as it was.

#![no_main]

use lbr::Crumbs;
use lbr::context::Table;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(crumbs) = Crumbs::from_bytes(bytes) {
        assert_eq!(Crumbs::from_bytes(&crumbs.to_bytes()).ok(), Some(crumbs));
    }
    if let Ok(table) = Table::from_bytes(bytes) {
        assert_eq!(Table::from_bytes(&table.to_bytes()).ok(), Some(table));
    }
});
