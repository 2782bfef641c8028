//! What the registers take and refuse, and what stops the recording.

use crate::{arm, branches, dump, is_on, user};
use lbr::model::{Event, Model, Processor, Transfer};
use lbr::{Filter, msr};
use proptest::prelude::*;

fn armed(processor: Processor) -> Model {
    let mut model = Model::new(processor);
    assert!(arm(&mut model, processor, Filter::EVERYTHING), "{processor:?}");
    model
}

/// Registers of branch records and their neighbours.
fn index() -> impl Strategy<Value = u32> {
    prop_oneof![
        0x1c0..0x1e4u32,
        0x30..0x70u32,
        0x680..0x6e8u32,
        0xdc0..0xde4u32,
        Just(0x345u32),
        0x38e..0x392u32,
        0x14cc..0x14d1u32,
        0x1200..0x1224u32,
        0x1500..0x1524u32,
        0x1600..0x1624u32,
        0xc000_010d..0xc000_0111u32,
        0xc000_02ff..0xc000_0304u32,
        0xc001_02fe..0xc001_0324u32,
    ]
}

/// Values with few bits, with flags above, addresses, and any.
fn value() -> impl Strategy<Value = u64> {
    let address = (0..1u64 << 47, any::<bool>()).prop_map(|(a, upper)| if upper { !a } else { a });
    prop_oneof![
        any::<u64>(),
        0..0x800u64,
        (0..64u32).prop_map(|n| 1 << n),
        address.clone(),
        (address, 0..8u64).prop_map(|(address, flags)| address & (u64::MAX >> 3) | flags << 61),
    ]
}

/// The bits that the register keeps of what is written to it.
fn kept(processor: Processor, index: u32) -> u64 {
    match (processor, index) {
        // Reserved bits that read as zero whatever is written.
        (Processor::Zen, msr::DEBUGCTL) | (Processor::Zen4, msr::AMD_DEBUG_EXTN_CTL) => 0x41,
        (Processor::Zen4, msr::DEBUGCTL) => 0x801,
        (Processor::Zen4, msr::AMD_SELECT) => 0x1ff,
        // Its bit for the other family's records; undefined bits of INFO; ones that clear.
        (Processor::GoldenCove, msr::DEBUGCTL) => 0x800,
        (Processor::GoldenCove, 0x1200..=0x123f) => 0xff00_0000_0000_ffff,
        (_, msr::GLOBAL_STATUS_RESET | msr::AMD_GLOBAL_STATUS_RESET) => 0,
        _ => u64::MAX,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever is written to whatever register: a refused write changes nothing, a taken one reads back.
    #[test]
    fn a_write_is_taken_or_refused_as_a_whole(
        processor in 0..Processor::ALL.len(),
        index in index(),
        value in value(),
    ) {
        let processor = Processor::ALL[processor];
        let mut model = armed(processor);
        (1..40).for_each(|n| model.branch(&user(n, n + 0x100)));
        let before = dump(&model);
        match model.write(index, value) {
            true => prop_assert_eq!(model.read(index), Some(value & kept(processor, index))),
            false => prop_assert_eq!(dump(&model), before),
        }
    }

    /// What hardware has recorded, software may write again, as when it restores a saved task; for Haswell without
    /// transactions with the correction that its registers ask for.
    #[test]
    fn what_was_recorded_can_be_restored(branches in prop::collection::vec((1..1u64 << 47, any::<bool>()), 1..40)) {
        // The single record is read-only.
        for processor in Processor::ALL.into_iter().filter(|processor| *processor != Processor::Zen) {
            let mut model = armed(processor);
            for (address, upper) in &branches {
                let address = if *upper { !address } else { *address };
                model.branch(&user(address, !address));
            }
            let saved = dump(&model);
            let mut fresh = armed(processor);
            for (index, value) in saved.iter().filter(|(index, _)| is_record(*index)) {
                let sign = if processor == Processor::HaswellWithoutTsx && (0x680..0x6a0).contains(&index) {
                    (value & 3 << 59) << 2
                } else {
                    0
                };
                prop_assert!(fresh.write(index, value | sign), "{processor:?} {index:#x} {value:#x}");
            }
            prop_assert_eq!(crate::branches(&fresh, processor), crate::branches(&model, processor), "{:?}", processor);
        }
    }
}

/// Registers of records, and the index of the newest.
fn is_record(index: u32) -> bool {
    let name = msr::name(index).unwrap_or_default();
    name.contains("_IP") || name.contains("INFO") || name.contains("Ip") || index == msr::TOP
}

#[test]
fn what_hardware_refuses_is_refused() {
    let refuses = |processor: Processor, index: u32, value: u64| {
        let refused = !Model::new(processor).write(index, value);
        assert!(refused, "{processor:?} takes {value:#x} in {index:#x}");
    };
    // Reserved bits.
    refuses(Processor::Skylake, msr::DEBUGCTL, 1 << 16);
    refuses(Processor::Skylake, msr::SELECT, 1 << 10);
    refuses(Processor::Nehalem, msr::SELECT, 0x3c5);
    refuses(Processor::Skylake, msr::INFO, 1 << 16);
    refuses(Processor::GoldenCove, msr::ARCH_CTL, 1 << 4);
    refuses(Processor::Zen4, msr::AMD_DEBUG_EXTN_CTL, 1);
    refuses(Processor::Zen, msr::DEBUGCTL, 1 << 3);
    // Depths that there are not, and registers beyond the depth.
    refuses(Processor::GoldenCove, msr::ARCH_DEPTH, 24);
    refuses(Processor::GoldenCove, msr::ARCH_DEPTH, 8 | 1 << 32);
    refuses(Processor::GoldenCove, msr::ARCH_FROM + 32, 0);
    refuses(Processor::Nehalem, msr::FROM + 16, 0);
    refuses(Processor::Skylake, msr::TOP, 32);
    // Addresses without their sign.
    refuses(Processor::Skylake, msr::FROM, 1 << 63);
    refuses(Processor::Nehalem, msr::FROM, 1 << 62);
    refuses(Processor::Haswell, msr::FROM, 1 << 60);
    refuses(Processor::HaswellWithoutTsx, msr::FROM, 0x1fff_ffff_8100_0000);
    refuses(Processor::GoldenCove, msr::ARCH_TO, 1 << 47);
    // Registers that are read-only, or another family's.
    refuses(Processor::Zen, msr::LAST_BRANCH_FROM, 0);
    refuses(Processor::Skylake, msr::GLOBAL_STATUS, 0);
    refuses(Processor::Core2, msr::SELECT, 0);
    refuses(Processor::Goldmont, msr::INFO, 0);
    refuses(Processor::Zen, msr::AMD_SELECT, 0);
    refuses(Processor::Skylake, msr::ARCH_CTL, 1);
    refuses(Processor::GoldenCove, msr::SELECT, 0);
    assert!(Model::new(Processor::Haswell).write(msr::FROM, 7 << 61));
    assert!(Model::new(Processor::HaswellWithoutTsx).write(msr::FROM, 0x7fff_ffff_8100_0000));
    // Reserved bits that read as zero are no reason to refuse.
    let mut zen4 = Model::new(Processor::Zen4);
    assert!(zen4.write(msr::AMD_SELECT, u64::MAX) && zen4.read(msr::AMD_SELECT) == Some(0x1ff));
}

#[test]
fn nothing_is_recorded_while_it_is_off() {
    for processor in Processor::ALL {
        let mut model = Model::new(processor);
        model.branch(&user(1, 2));
        assert!(!model.is_enabled() && branches(&model, processor).is_empty(), "{processor:?}");
    }
}

#[test]
fn a_debug_exception_switches_it_off_and_makes_no_record() {
    for processor in Processor::ALL {
        let mut model = armed(processor);
        model.branch(&user(1, 2));
        model.event(Event::Exception(1), &Transfer::to_kernel(3, 4));
        assert!(!is_on(&model, processor) && !model.is_enabled(), "{processor:?}");
        model.branch(&user(5, 6));
        assert_eq!(branches(&model, processor), [(1, 2)], "{processor:?}");
    }
}

/// Intel records whatever is injected, and stays on; to AMD it is as if it happened in the guest.
#[test]
fn an_injected_event_is_recorded() {
    for processor in Processor::ALL {
        let mut model = armed(processor);
        model.branch(&user(1, 2));
        model.event(Event::Injected(14), &Transfer::to_kernel(2, 0x100));
        assert_eq!(branches(&model, processor), [(1, 2), (2, 0x100)], "{processor:?}");
        model.event(Event::Injected(1), &Transfer::to_kernel(3, 0x200));
        let is_amd = matches!(processor, Processor::Zen | Processor::Zen4);
        assert_eq!(is_on(&model, processor), !is_amd, "{processor:?}");
        assert_eq!(branches(&model, processor).last() == Some(&(3, 0x200)), !is_amd, "{processor:?}");
    }
}

#[test]
fn a_machine_check_leaves_the_record_of_the_last_interrupt() {
    let mut model = armed(Processor::Zen);
    model.branch(&user(1, 2));
    model.event(Event::Interrupt, &Transfer::to_kernel(2, 0x100));
    model.branch(&user(3, 4));
    model.event(Event::Exception(18), &Transfer::to_kernel(4, 0x200));
    assert_eq!(branches(&model, Processor::Zen), [(1, 2), (4, 0x200)]);
}

/// An interrupt of the counters stops the recording only where that was asked for: before version 4 by switching it
/// off, since then until the bit in the status is cleared.
#[test]
fn recording_freezes_where_it_was_asked_to() {
    for processor in Processor::ALL {
        let mut model = armed(processor);
        model.branch(&user(1, 2));
        model.performance_interrupt();
        assert!(model.is_enabled(), "{processor:?}: nobody asked");
        if processor == Processor::Zen {
            continue;
        }
        let debugctl = model.read(msr::DEBUGCTL).unwrap();
        assert!(model.write(msr::DEBUGCTL, debugctl | 1 << 11), "{processor:?}");
        model.performance_interrupt();
        model.branch(&user(3, 4));
        assert_eq!(branches(&model, processor), [(1, 2)], "{processor:?}");
        let (status, reset) = match processor {
            Processor::Zen4 => (0xc000_0300, 0xc000_0302),
            _ => (0x38e, 0x390),
        };
        let by_switch = matches!(
            processor,
            Processor::Core2 | Processor::Nehalem | Processor::Haswell | Processor::HaswellWithoutTsx
        );
        assert_eq!(is_on(&model, processor), !by_switch, "{processor:?}");
        if by_switch {
            assert!(model.write(msr::DEBUGCTL, 1 | 1 << 11), "{processor:?}");
        } else {
            assert_eq!(model.read(status), Some(1 << 58), "{processor:?}");
            assert!(model.write(reset, 1 << 58), "{processor:?}");
            assert_eq!(model.read(status), Some(0), "{processor:?}");
        }
        model.branch(&user(5, 6));
        assert_eq!(branches(&model, processor), [(1, 2), (5, 6)], "{processor:?}");
    }
}

#[test]
fn the_index_of_the_newest_rises_before_a_record_is_written() {
    for processor in [Processor::Core2, Processor::Nehalem, Processor::Skylake] {
        let mut model = armed(processor);
        assert_eq!(model.read(msr::TOP), Some(0));
        model.branch(&user(1, 2));
        assert_eq!(model.read(msr::TOP), Some(1));
        let from = if processor == Processor::Core2 { msr::OLD_FROM } else { msr::FROM };
        assert_eq!((model.read(from), model.read(from + 1)), (Some(0), Some(1)));
    }
}

#[test]
fn a_write_of_the_depth_empties_the_records() {
    let mut model = armed(Processor::GoldenCove);
    (1..20).for_each(|n| model.branch(&user(n, n + 0x100)));
    assert_eq!(branches(&model, Processor::GoldenCove).len(), 16);
    assert!(model.write(msr::ARCH_DEPTH, 16), "the same depth");
    assert!(branches(&model, Processor::GoldenCove).is_empty());
    assert!(model.write(msr::ARCH_DEPTH, 8));
    assert_eq!((model.read(msr::ARCH_FROM + 7), model.read(msr::ARCH_FROM + 8)), (Some(0), None));
}

/// The architectural records alone hide where a branch came from, if it came from a ring that is not recorded.
#[test]
fn the_way_back_from_the_kernel_hides_where_it_began() {
    let user_only = Filter::from_bits(1).unwrap();
    for processor in Processor::ALL {
        let mut model = Model::new(processor);
        if arm(&mut model, processor, user_only) {
            model.branch(&Transfer::to_user(0xffff_ffff_8100_0000, 0x40_1000));
            let from = if processor == Processor::GoldenCove { u64::MAX } else { 0xffff_ffff_8100_0000 };
            assert_eq!(branches(&model, processor), [(from, 0x40_1000)], "{processor:?}");
        }
    }
}
