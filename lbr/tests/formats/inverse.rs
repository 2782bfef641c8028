//! Every encoder is the inverse of its decoder.

use lbr::format::brstack;
use lbr::format::perf::{Entry, Stack};
use lbr::format::{Unencodable, amd_v2, intel_arch, intel_legacy};
use lbr::{BranchRecord, Dump, Family, Filter, Kind, Provenance, Registers, Trail, registers};
use proptest::prelude::*;

/// A record with everything told, and an address in the lower or upper half.
fn full_record() -> impl Strategy<Value = BranchRecord> {
    let address = || (1..1u64 << 47, any::<bool>()).prop_map(|(a, upper)| if upper { !a } else { a });
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (address(), address(), any::<[bool; 4]>(), any::<u16>(), kind).prop_map(
        |(from, to, flags, cycles, kind)| {
            let [mispredicted, in_transaction, aborted, speculative] = flags.map(Some);
            BranchRecord {
                mispredicted,
                in_transaction,
                aborted,
                speculative,
                cycles: Some(cycles),
                kind: Some(kind),
                ..BranchRecord::new(from, to)
            }
        },
    )
}

/// What a family can hold of a record.
fn held(family: Family, full: BranchRecord) -> BranchRecord {
    let bare = BranchRecord::new(full.from, full.to);
    let predicted = BranchRecord { mispredicted: full.mispredicted, ..bare };
    let transaction =
        |record| BranchRecord { in_transaction: full.in_transaction, aborted: full.aborted, ..record };
    let timed = |record| BranchRecord { cycles: full.cycles, ..record };
    match family {
        Family::IntelLegacy { format: 0 } => {
            BranchRecord::new(full.from & 0xffff_ffff, full.to & 0xffff_ffff | 1)
        }
        Family::IntelLegacy { format: 3 } => predicted,
        Family::IntelLegacy { format: 4 } => transaction(predicted),
        Family::IntelLegacy { format: 5 } => timed(transaction(predicted)),
        Family::IntelLegacy { format: 6 | 7 } => timed(predicted),
        Family::IntelLegacy { .. } | Family::AmdSingle | Family::Perf => bare,
        Family::IntelArch => {
            let kind = full.kind.map(|kind| Kind::from(kind.branch_kind()));
            timed(transaction(BranchRecord { kind, ..predicted }))
        }
        Family::AmdV2 => BranchRecord { speculative: full.speculative, ..predicted },
    }
}

fn family() -> impl Strategy<Value = Family> {
    let legacy = (0..8u8).prop_map(|format| Family::IntelLegacy { format });
    prop_oneof![8 => legacy, 2 => Just(Family::IntelArch), 2 => Just(Family::AmdV2), 1 => Just(Family::AmdSingle)]
}

fn trail() -> impl Strategy<Value = Trail> {
    let records = prop::collection::vec(full_record(), 0..65);
    (family(), records, 0..7u32, 0..0x203u64).prop_map(|(family, records, size, bits)| {
        let depth = match family {
            Family::IntelLegacy { .. } => 1 << size.min(5),
            Family::IntelArch => 8 * (size + 1),
            Family::AmdV2 => 9 * size + 1,
            Family::AmdSingle | Family::Perf => 2,
        };
        let bits = if bits < 0x200 { bits } else { 0x3c4 + bits - 0x200 };
        let filter = match family {
            Family::AmdSingle => Filter::EVERYTHING,
            Family::AmdV2 => Filter::from_bits(bits & 0x1ff).unwrap(),
            _ => Filter::from_bits(bits).unwrap(),
        };
        let mut records: Vec<BranchRecord> = records.into_iter().map(|full| held(family, full)).collect();
        records.truncate(depth as usize);
        if let (Family::AmdSingle, [_, last]) = (family, records.as_mut_slice()) {
            last.after_gap = true;
        }
        Trail { records, depth, filter: Some(filter), provenance: Provenance::Hardware, family }
    })
}

fn entry() -> impl Strategy<Value = Entry> {
    any::<[u64; 3]>().prop_map(|words| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Entry::from_bytes(bytes.first_chunk().unwrap())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Through registers, and through the text of a dump of them.
    #[test]
    fn a_trail_survives_registers(trail in trail()) {
        let dump = Dump::of(trail.family);
        let registers = dump.encode(&trail).unwrap();
        prop_assert_eq!(&dump.decode(&registers), &Ok(trail.clone()));
        let (_, parsed) = registers::parse(&registers.to_string()).unwrap();
        prop_assert_eq!(&parsed, &registers);
        prop_assert_eq!(Dump::default().decode(&parsed), Ok(trail), "the family is told from the registers");
    }

    #[test]
    fn a_trail_survives_its_bytes(trail in trail()) {
        prop_assert_eq!(Trail::from_bytes(&trail.to_bytes()), Ok(trail));
    }

    /// Registers as hardware writes them, any flags: what they say, said again, is the same registers.
    #[test]
    fn registers_survive_a_record(from in any::<u64>(), to in any::<u64>(), info in any::<u64>(), format in 0..8u8) {
        let format = intel_legacy::Format::new(format).unwrap();
        let info_bits = match format {
            intel_legacy::Format::INFO => 7 << 61 | 0xffff,
            intel_legacy::Format::INFO_PLAIN => 1 << 63 | 0xffff,
            _ => 0,
        };
        let has_to = format != intel_legacy::Format::OFFSETS_32;
        let raw = intel_legacy::Raw {
            from: from | 1,
            to: if has_to { to } else { 0 },
            info: format.has_info().then_some(info & info_bits),
        };
        let record = intel_legacy::decode_record(format, true, raw).unwrap();
        prop_assert_eq!(intel_legacy::encode_record(format, &record, 0), Ok(raw), "{:?}", format);

        // Bits that are undefined; kinds that are reserved, or of which there are several numbers.
        let info = info & (0xf0 << 56 | 0xffff) | (info >> 56 & 7).min(6) << 56;
        let info = if info >> 60 & 1 == 0 { info & !0xffff } else { info };
        let raw = intel_arch::Raw { from: from | 1, to, info };
        let record = intel_arch::decode_record(true, raw).unwrap();
        prop_assert_eq!(intel_arch::encode_record(&record, 0), Ok(raw));

        // The sign, as AMD writes it, from bit 57 on.
        let sign = |value: u64| (value << 7).cast_signed().cast_unsigned() >> 7;
        let extended = |value: u64| ((value << 7).cast_signed() >> 7).cast_unsigned();
        let (plain_from, plain_to) = (extended(sign(from)), extended(sign(to)));
        let raw = amd_v2::Raw {
            from: plain_from & !(1 << 63) | from & 1 << 63,
            to: plain_to & !(7 << 61) | 1 << 63 | to & 1 << 62,
        };
        let record = amd_v2::decode_record(57, raw).unwrap();
        prop_assert_eq!(amd_v2::encode_record(57, &record, 0), Ok(raw));
    }

    #[test]
    fn an_entry_and_its_bytes_are_the_same(words in any::<[u64; 3]>()) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let bytes = bytes.first_chunk().unwrap();
        prop_assert_eq!(&Entry::from_bytes(bytes).to_bytes(), bytes);
    }

    #[test]
    fn a_stack_survives_its_bytes(
        entries in prop::collection::vec(entry(), 0..40),
        index in any::<Option<u64>>(),
        counters in any::<bool>(),
    ) {
        let counters = counters.then(|| entries.iter().map(|entry| entry.from).collect());
        let stack = Stack { hw_index: index, entries, counters };
        let layout = lbr::format::perf::StackLayout {
            hw_index: stack.hw_index.is_some(),
            counters: stack.counters.is_some(),
        };
        let bytes = stack.to_bytes();
        prop_assert_eq!(Stack::read(&bytes, layout, 0), Ok((stack.clone(), bytes.len())));
        // One branch, and either an index or a word of counters: the length does not tell which. Without a branch,
        // there is nothing to tell whether counters were asked for.
        if stack.entries.len() > 1 {
            prop_assert_eq!(Stack::alone(&bytes, 0), Ok(stack));
        }
    }

    /// What perf's flags can say of a branch.
    #[test]
    fn a_record_survives_an_entry(full in full_record()) {
        let kind = full.kind.filter(|kind| *kind != Kind::Far);
        let cycles = full.cycles.filter(|cycles| *cycles > 0);
        let record = BranchRecord { kind, cycles, ..full };
        prop_assert_eq!(Entry::from(&record).record(), Some(record));
        // Where predictions are not told, what is false is not told either.
        let silent = BranchRecord { mispredicted: None, in_transaction: None, aborted: None, ..record };
        prop_assert_eq!(Entry::from(&silent).record(), Some(silent));
    }

    #[test]
    fn stacks_survive_the_text_of_perf_script(stacks in prop::collection::vec(
        prop::collection::vec(entry(), 1..20), 0..4))
    {
        // What the text does not have: an index, levels of privilege, reserved bits; both predictions at once.
        let printed = |entry: Entry| Entry {
            mispred: entry.mispred && !entry.predicted,
            kind: if entry.new_type >= 8 && entry.kind == 15 { 0 } else { entry.kind },
            new_type: if entry.kind == 15 && entry.new_type < 8 { entry.new_type } else { 0 },
            privilege: 0,
            reserved: 0,
            ..entry
        };
        let stacks: Vec<Stack> = stacks
            .into_iter()
            .map(|entries| Stack { entries: entries.into_iter().map(printed).collect(), ..Stack::default() })
            .collect();
        let text: String = stacks.iter().map(|stack| brstack::print(stack) + "\n").collect();
        prop_assert_eq!(brstack::parse(&text), Ok(stacks));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let encode = |family: Family, depth: u32, records: &[(u64, u64)]| {
        let records = records.iter().map(|(from, to)| BranchRecord::new(*from, *to)).collect();
        let trail = Trail { records, depth, filter: None, provenance: Provenance::Hardware, family };
        Dump::of(family)
            .encode(&trail)
            .map(|registers: Registers| registers.iter().count())
            .map_err(|e| e.to_string())
    };
    let legacy = |format: u8| Family::IntelLegacy { format };
    assert_eq!(encode(legacy(5), 16, &[]), Ok(2 + 48));
    let why = |family, depth, records: &[(u64, u64)]| encode(family, depth, records).unwrap_err();
    assert_eq!(why(legacy(5), 2, &[(1, 1); 3]), "3 records do not fit into 2");
    assert_eq!(why(legacy(5), 12, &[]), "no processor of this family has 12 records");
    assert_eq!(why(Family::IntelArch, 72, &[]), "no processor of this family has 72 records");
    assert_eq!(why(legacy(8), 4, &[]), "record format 0x8 is not known; 0 to 7 are");
    assert_eq!(why(legacy(0), 4, &[(1, 1 << 32)]), "record 0: 0x100000000 does not fit into its register");
    assert_eq!(
        why(legacy(6), 4, &[(1, 2), (1, 1 << 47)]),
        "record 1: 0x800000000000 does not fit into its register"
    );
    assert_eq!(
        why(Family::AmdV2, 16, &[(1 << 47, 1)]),
        "record 0: 0x800000000000 does not fit into its register"
    );
    let zero = "record 0: all of it is zero, as in a register that was never written";
    for family in [legacy(3), Family::IntelArch, Family::AmdSingle] {
        assert_eq!(why(family, 8, &[(0, 0)]), zero);
    }
    assert_eq!(why(Family::Perf, 8, &[]), "records of perf are not in registers");
    for bits in [0, 64, 65] {
        let one = vec![BranchRecord::new(1, 2)];
        let (provenance, family) = (Provenance::Hardware, Family::AmdV2);
        let trail = Trail { records: one, depth: 16, filter: None, provenance, family };
        let dump = Dump { address_bits: Some(bits), ..Dump::of(family) };
        assert_eq!(dump.encode(&trail), Err(Unencodable::AddressBits(bits)));
    }
}
