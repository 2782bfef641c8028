//! Bytes, registers and texts that nobody wrote: an answer or an error that says something, never a panic.

use crate::{entries, perf_data};
use lbr::file::{Known, trails};
use lbr::format::perf::Stack;
use lbr::format::perf_sample::SampleLayout;
use lbr::{Dump, Family, Filter, Registers, Trail, msr, registers};
use proptest::prelude::*;

fn dump() -> impl Strategy<Value = Dump> {
    let family = prop_oneof![
        any::<u8>().prop_map(|format| Family::IntelLegacy { format: format % 10 }),
        Just(Family::IntelArch),
        Just(Family::AmdV2),
        Just(Family::AmdSingle),
        Just(Family::Perf),
    ];
    let number = || prop::option::of(prop_oneof![0..70u32, any::<u32>()]);
    let bits = prop::option::of(prop_oneof![Just(48u32), Just(57u32), any::<u32>()]);
    (prop::option::of(family), number(), number(), prop::option::of(any::<bool>()), bits).prop_map(
        |(family, depth, top, tsx, address_bits)| Dump {
            family,
            depth,
            top,
            filter: None,
            tsx,
            address_bits,
        },
    )
}

/// Banks with the values of their first registers, some of them missing.
fn dumped() -> impl Strategy<Value = Registers> {
    let bank = |first: u32| {
        prop::collection::vec((any::<bool>(), any::<u64>()), 0..70).prop_map(move |values| {
            let registers = (first..).zip(values).filter(|(_, (there, _))| *there);
            registers.map(|(index, (_, value))| (index, value)).collect::<Vec<_>>()
        })
    };
    let firsts =
        [msr::OLD_FROM, msr::OLD_TO, msr::FROM, msr::TO, msr::INFO, 0x1200, 0x1500, 0x1600, msr::AMD_FROM];
    let singles = [0x345, 0x1c8, 0x1c9, 0x1d9, 0x1db, 0x1dc, 0x1dd, 0x1de, 0x14ce, 0x14cf, 0xc000_010e];
    let banks = prop::sample::select(firsts.to_vec()).prop_flat_map(bank);
    let values = prop_oneof![any::<u64>(), 0..0x400u64];
    let single = prop::collection::vec((prop::sample::select(singles.to_vec()), values), 0..8);
    (prop::collection::vec(banks, 0..4), single)
        .prop_map(|(banks, singles)| banks.into_iter().flatten().chain(singles).collect())
}

/// A word that may turn up in a dump or in perf script's text.
fn word() -> impl Strategy<Value = String> {
    let known = [
        "0x680",
        "MSR_LASTBRANCH_3_TO_IP",
        "depth",
        "family",
        "intel-legacy:5",
        "filter",
        "=",
        ":",
        "#",
        "[",
    ];
    prop_oneof![
        prop::sample::select(known.to_vec()).prop_map(str::to_owned),
        "0x[0-9a-f]{0,17}",
        "0x[0-9a-f]{1,4}/0x[0-9a-f]{1,4}/[PM-]/[X-]/[A-]/[0-9]{1,6}(/[A-Z]{0,4}(/[A-Z-]{0,3}){0,2})?",
        "\\PC{0,12}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    let blank = prop::sample::select(vec![" ", "\n", "\t", "/"]);
    prop::collection::vec((word(), blank), 0..40)
        .prop_map(|words| words.into_iter().flat_map(|(word, blank)| [word, blank.to_owned()]).collect())
}

/// Something that is right, and what is done to it.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let stack = Stack { hw_index: Some(3), entries: entries(), counters: None };
    let trail = stack.trail(Some(Filter::ANY));
    let files = vec![perf_data(&[stack.clone(), stack.clone()]), stack.to_bytes(), trail.to_bytes()];
    let flips = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (prop::sample::select(files), flips, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(mut file, flips, cut, cuts)| {
            // Every other time in the headers, which are at the beginning.
            for (n, (at, value)) in flips.iter().enumerate() {
                let len = if n % 2 == 0 { file.len() } else { file.len().min(300) };
                file[at.index(len)] = *value;
            }
            if cuts {
                file.truncate(cut.index(file.len()));
            }
            file
        },
    )
}

/// What came of it is a trail that keeps its own rules, or an error that says something.
fn check(found: Result<Vec<Trail>, impl std::fmt::Display>) -> Result<(), TestCaseError> {
    match found {
        Ok(trails) => {
            for trail in trails {
                prop_assert!(trail.records.len() <= trail.depth as usize);
                prop_assert_eq!(Trail::from_bytes(&trail.to_bytes()), Ok(trail));
            }
        }
        Err(error) => prop_assert!(error.to_string().len() > 8, "{error}"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn registers_of_any_kind(dump in dump(), registers in dumped()) {
        check(dump.decode(&registers).map(|trail| vec![trail]))?;
    }

    #[test]
    fn bytes_of_any_kind(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(trails(&bytes, &Known::default()))?;
    }

    #[test]
    fn files_that_were_damaged(bytes in damaged()) {
        check(trails(&bytes, &Known::default()))?;
    }

    #[test]
    fn samples_of_any_layout(layout in any::<[u64; 3]>(), words in prop::collection::vec(0..20u64, 0..40)) {
        let [sample_type, read_format, branch_sample_type] = layout;
        let layout = SampleLayout { sample_type: sample_type | 1 << 11, read_format, branch_sample_type };
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = layout.stack(&body, 0).map(|stack| vec![stack.unwrap().trail(None)]);
        check(found)?;
    }

    #[test]
    fn texts_of_any_kind(text in text()) {
        check(trails(text.as_bytes(), &Known::default()))?;
        if let Ok((dump, registers)) = registers::parse(&text) {
            check(dump.decode(&registers).map(|trail| vec![trail]))?;
        }
    }
}
