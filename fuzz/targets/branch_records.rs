//! Files of branch records in all forms that `gretel trail` reads: an answer or an error. What is a trail is one again
//! after a turn through its own bytes.

#![no_main]

use lbr::Trail;
use lbr::file::{Known, trails};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for trail in trails(bytes, &Known::default()).unwrap_or_default() {
        assert_eq!(Trail::from_bytes(&trail.to_bytes()).as_ref(), Ok(&trail));
    }
});
