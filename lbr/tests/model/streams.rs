//! Random rows of branches and events, under every filter.

use crate::expected::{Logged, records};
use crate::{KINDS, arm, branches, trail};
use lbr::Filter;
use lbr::model::{Event, Model, Processor, Transfer};
use proptest::prelude::*;
use x86::op::BranchKind;

/// An address in the lower or upper half, never zero.
fn address() -> impl Strategy<Value = u64> {
    (1..1u64 << 47, any::<bool>()).prop_map(|(address, upper)| if upper { !address } else { address })
}

/// A branch of any kind in any ring; only far ones change it.
fn branch() -> impl Strategy<Value = Logged> {
    (address(), address(), 0..KINDS.len(), any::<bool>(), any::<bool>()).prop_map(|(from, to, kind, a, b)| {
        let kind = KINDS[kind];
        let to_ring0 = if kind == BranchKind::Far { b } else { a };
        Logged::Branch(Transfer { from, to, kind, from_ring0: a, to_ring0 })
    })
}

fn event() -> impl Strategy<Value = Logged> {
    (address(), address(), any::<bool>()).prop_map(|(from, to, from_ring0)| {
        Logged::Event(Transfer { from, to, kind: BranchKind::Far, from_ring0, to_ring0: true })
    })
}

/// Calls and returns often, so that call stacks grow and shrink.
fn log() -> impl Strategy<Value = Vec<Logged>> {
    let call = |kind| {
        (address(), address()).prop_map(move |(from, to)| Logged::Branch(Transfer::user(from, to, kind)))
    };
    let one = prop_oneof![
        3 => branch(),
        1 => event(),
        2 => call(BranchKind::RelativeCall),
        1 => call(BranchKind::Return),
    ];
    prop::collection::vec(one, 0..120)
}

fn feed(model: &mut Model, log: &[Logged]) {
    for logged in log {
        match logged {
            Logged::Branch(transfer) => model.branch(transfer),
            Logged::Event(transfer) => model.event(Event::Exception(14), transfer),
        }
    }
}

/// Every value of LBR_SELECT that hardware takes.
fn filters() -> impl Iterator<Item = Filter> {
    (0..0x400).filter_map(|bits| Filter::from_bits(bits).ok())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_processor_keeps_what_every_filter_lets_through(log in log()) {
        let mut filters_taken = [0; Processor::ALL.len()];
        for filter in filters() {
            for (n, processor) in Processor::ALL.into_iter().enumerate() {
                let mut model = Model::new(processor);
                if !arm(&mut model, processor, filter) {
                    continue;
                }
                feed(&mut model, &log);
                let expected = records(processor, filter, &log);
                prop_assert_eq!(branches(&model, processor), expected, "{:?} {:#x}", processor, filter.bits());
                filters_taken[n] += 1;
            }
        }
        // Core 2 and the single record have no filter; call stacks are Haswell's and later; AMD has none.
        prop_assert_eq!(filters_taken, [1, 512, 515, 515, 515, 515, 515, 515, 512, 1]);
    }

    /// The dump of a processor's registers says under which filter they were written.
    #[test]
    fn the_filter_is_read_back(bits in 0..0x200u64) {
        let filter = Filter::from_bits(bits).unwrap();
        for processor in Processor::ALL {
            let mut model = Model::new(processor);
            if arm(&mut model, processor, filter) && processor != Processor::Core2 {
                prop_assert_eq!(trail(&model, processor).filter, Some(filter));
            }
        }
    }
}

/// What the models do not have is zero or not told; what they have is.
#[test]
fn flags_and_kinds_are_as_the_processor_has_them() {
    for processor in Processor::ALL {
        let mut model = Model::new(processor);
        assert!(arm(&mut model, processor, Filter::EVERYTHING));
        KINDS.into_iter().for_each(|kind| model.branch(&Transfer::user(1, 2, kind)));
        let records = trail(&model, processor).records;
        let kinds: Vec<_> = records.iter().filter_map(|r| r.kind).map(|kind| kind.branch_kind()).collect();
        let told = if processor == Processor::GoldenCove { &KINDS[..] } else { &[] };
        assert_eq!(kinds, told, "{processor:?}");
        let said = |flag: Option<bool>| flag != Some(true);
        assert!(records.iter().all(|r| said(r.mispredicted) && said(r.in_transaction) && said(r.aborted)));
        assert!(records.iter().all(|r| r.cycles.unwrap_or(0) == 0), "{processor:?}");
    }
}
