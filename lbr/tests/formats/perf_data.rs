//! perf.data: what is in it is found, and what is wrong with it is said.

use crate::{entries, perf_data};
use lbr::Filter;
use lbr::file::{Known, trails};
use lbr::format::perf::Stack;
use lbr::format::perf_data::stacks;

fn stack() -> Stack {
    Stack { hw_index: Some(3), entries: entries(), counters: None }
}

#[test]
fn the_samples_are_found_with_the_filter_that_was_asked_for() {
    let shorter = Stack { entries: entries()[..2].to_vec(), ..stack() };
    let file = perf_data(&[stack(), shorter.clone()]);
    let any_user = Filter::from_bits(1).ok();
    assert_eq!(stacks(&file), Ok(vec![(stack(), any_user), (shorter, any_user)]));
    let trails = trails(&file, &Known::default()).unwrap();
    let happened = entries().iter().filter(|entry| entry.spec != 1).count();
    assert_eq!(trails.iter().map(|t| t.records.len()).collect::<Vec<_>>(), [happened, 2]);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let whole = perf_data(&[stack()]);
    let why = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut file = whole.clone();
        change(&mut file);
        stacks(&file).unwrap_err().to_string()
    };
    let len = whole.len();
    assert_eq!(
        why(&|f| f.truncate(12)),
        "offset 0x8: the header of perf.data is cut: 8 bytes, and 4 are left"
    );
    let cut = why(&|f| f.truncate(len - 1));
    assert_eq!(
        cut,
        format!("offset 0x100: the records is cut: {} bytes, and {} are left", len - 256, len - 257)
    );
    assert!(why(&|f| f[8] = 16).starts_with("offset 0x8: a perf.data that went through a pipe"));
    assert_eq!(why(&|f| f[16] = 8), "offset 0x10: an event's attributes cannot have this size");
    assert!(why(&|f| f[112 + 25] = 0).contains("no event of this file has branch stacks"));
    // The first record: a process; the second is the sample.
    assert!(why(&|f| f[256] = 81).starts_with("offset 0x100: the records are compressed"));
    assert!(why(&|f| f[256 + 6] = 3).starts_with("offset 0x100: a record of 3 bytes"));
    assert!(why(&|f| f[256 + 40 + 6] = 32).contains("is cut"));
}
