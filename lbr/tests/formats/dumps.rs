//! Dumps of each family, written by hand from the manuals' layouts, in the ways that tools print them.

use lbr::file::{Known, trails};
use lbr::{BranchRecord, Dump, Family, Filter, Kind, Provenance, Trail};

fn decoded(text: &str) -> Trail {
    let mut found = trails(text.as_bytes(), &Known::default()).unwrap_or_else(|error| panic!("{error}"));
    let trail = found.pop().unwrap();
    assert_eq!((found.len(), trail.provenance), (0, Provenance::Hardware));
    trail
}

/// A record of a processor that tells predictions.
fn predicted(from: u64, to: u64) -> BranchRecord {
    BranchRecord { mispredicted: Some(false), ..BranchRecord::new(from, to) }
}

/// A record of a processor that tells transactions as well.
fn outside(from: u64, to: u64) -> BranchRecord {
    BranchRecord { in_transaction: Some(false), aborted: Some(false), ..predicted(from, to) }
}

#[test]
fn core_solo() {
    let trail = decoded(include_str!("dumps/core-solo.txt"));
    let expected = (0..8).map(|n| BranchRecord::new(0x0804_8000 + 16 * n, 0x0804_9000 + n));
    assert_eq!(trail.records, expected.collect::<Vec<_>>());
    assert_eq!((trail.family, trail.depth), (Family::IntelLegacy { format: 0 }, 8));
}

#[test]
fn core_2() {
    let trail = decoded(include_str!("dumps/core2.txt"));
    let expected = [(0x40_1120, 0x40_1128), (0x40_112a, 0x40_1200), (0x40_1200, 0x40_112f)];
    assert_eq!(trail.records, expected.map(|(from, to)| BranchRecord::new(from, to)));
    assert_eq!((trail.family, trail.depth, trail.filter), (Family::IntelLegacy { format: 2 }, 4, None));
}

#[test]
fn nehalem() {
    let trail = decoded(include_str!("dumps/nehalem.txt"));
    let mut expected: Vec<BranchRecord> =
        (1..15).map(|n| predicted(0x40_0000 + 16 * n, 0x40_0008 + 16 * n)).collect();
    expected.push(BranchRecord { mispredicted: Some(true), ..predicted(0x40_0700, 0xffff_ffff_8180_1230) });
    expected.push(predicted(0xffff_ffff_8180_1234, 0x40_0500));
    assert_eq!(trail.records, expected);
    assert_eq!((trail.family, trail.depth), (Family::IntelLegacy { format: 3 }, 16));
    assert_eq!(trail.filter, Some(Filter::EVERYTHING));
}

#[test]
fn haswell() {
    let trail = decoded(include_str!("dumps/haswell.txt"));
    let expected = [
        outside(0x40_1000, 0x40_1100),
        BranchRecord { in_transaction: Some(true), ..outside(0x40_1110, 0x40_1200) },
        BranchRecord { in_transaction: Some(true), aborted: Some(true), ..outside(0x40_1210, 0x40_1300) },
        BranchRecord { mispredicted: Some(true), ..outside(0xffff_ffff_8100_0010, 0xffff_ffff_8100_0100) },
    ];
    assert_eq!((trail.records.as_slice(), trail.depth), (&expected[..], 16));
    // Without transactions the same bits are none.
    let known = Known { dump: Dump { tsx: Some(false), ..Dump::default() }, ..Known::default() };
    let without = trails(include_bytes!("dumps/haswell.txt"), &known).unwrap();
    let expected = expected.map(|r| BranchRecord { in_transaction: Some(false), aborted: Some(false), ..r });
    assert_eq!(without[0].records, expected);
}

#[test]
fn skylake() {
    let trail = decoded(include_str!("dumps/skylake.txt"));
    let expected = [
        BranchRecord { cycles: Some(0x11), ..outside(0x7ff6_1234_1005, 0x7ff6_1234_2000) },
        BranchRecord {
            mispredicted: Some(true),
            cycles: Some(0xffff),
            ..outside(0x7ff6_1234_2010, 0x7ff6_1234_3000)
        },
    ];
    assert_eq!(trail.records, expected);
    assert_eq!((trail.depth, trail.filter), (32, Filter::from_bits(0x3c5).ok()));
}

#[test]
fn goldmont() {
    let trail = decoded(include_str!("dumps/goldmont.txt"));
    let expected = [
        BranchRecord { cycles: Some(0x100), ..predicted(0xffff_ffff_8100_0000, 0xffff_ffff_8100_0040) },
        BranchRecord { cycles: Some(0xffff), ..predicted(0x40_1ff0, 0x40_2000) },
        BranchRecord { cycles: Some(7), mispredicted: Some(true), ..predicted(0x40_2000, 0x40_3000) },
    ];
    assert_eq!((trail.records.as_slice(), trail.depth), (&expected[..], 4));
}

#[test]
fn tremont() {
    let trail = decoded(include_str!("dumps/tremont.txt"));
    let expected = [
        BranchRecord { mispredicted: Some(true), cycles: Some(0), ..predicted(0x40_0ff0, 0x40_1000) },
        BranchRecord { cycles: Some(3), ..predicted(0x40_1000, 0x40_2000) },
    ];
    assert_eq!((trail.records.as_slice(), trail.family), (&expected[..], Family::IntelLegacy { format: 7 }));
}

#[test]
fn sapphire_rapids() {
    let trail = decoded(include_str!("dumps/sapphire-rapids.txt"));
    let record = |from, to, kind, cycles| BranchRecord { kind: Some(kind), cycles, ..outside(from, to) };
    let expected = [
        BranchRecord {
            in_transaction: Some(true),
            aborted: Some(true),
            ..record(0x40_10d0, 0x40_1500, Kind::Far, None)
        },
        record(0x40_10e0, 0x40_10f0, Kind::IndirectCall, Some(2)),
        record(0x40_10f0, 0x40_1120, Kind::IndirectJump, Some(2)),
        record(0x40_1168, 0x40_1125, Kind::Return, Some(0xffff)),
        record(0x40_1120, 0x40_1160, Kind::RelativeCall, Some(1)),
        record(BranchRecord::HIDDEN, 0x40_1130, Kind::Far, None),
        BranchRecord {
            mispredicted: Some(true),
            ..record(0x40_1130, 0x40_1138, Kind::RelativeJump, Some(0x100))
        },
        record(0x40_113a, 0x40_1126, Kind::Conditional, Some(4)),
    ];
    assert_eq!(trail.records, expected);
    assert_eq!((trail.family, trail.depth), (Family::IntelArch, 32));
    assert_eq!(trail.filter, Filter::from_bits(1).ok(), "user, every kind");
}

#[test]
fn zen_4() {
    let trail = decoded(include_str!("dumps/zen4.txt"));
    let record =
        |from, to, speculative| BranchRecord { speculative: Some(speculative), ..predicted(from, to) };
    let expected = [
        record(0x40_0f00, 0x40_1000, false),
        record(0xffff_ffff_8100_0000, 0xffff_ffff_8100_0010, false),
        record(0xffff_ffff_8100_0020, 0xffff_ffff_8100_0040, false),
        BranchRecord { mispredicted: Some(true), ..record(0x40_1120, 0x40_1130, true) },
        record(0x40_1136, 0x40_1126, false),
    ];
    assert_eq!(trail.records, expected);
    assert_eq!((trail.family, trail.depth, trail.filter), (Family::AmdV2, 16, Filter::from_bits(1).ok()));
}

#[test]
fn zen_2() {
    let trail = decoded(include_str!("dumps/zen.txt"));
    let fault = BranchRecord { after_gap: true, ..BranchRecord::new(0x40_1136, 0xffff_ffff_81e0_0b40) };
    assert_eq!(trail.records, [BranchRecord::new(0x40_1120, 0x40_1130), fault]);
    assert_eq!((trail.family, trail.filter), (Family::AmdSingle, Some(Filter::EVERYTHING)));
}
