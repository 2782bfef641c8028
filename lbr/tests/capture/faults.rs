//! A capture on a kernel that fails at any step: what comes out is the truth, or an error that says which step it was.

use crate::kernel::{Fault, Io, Kernel};
use lbr::capture::host::NotOffered as Why;
use lbr::capture::kvm;
use lbr::model::{Processor, Transfer};
use lbr::{CaptureError, Filter, Provenance, Trail, Unavailable};
use proptest::prelude::*;
use x86::op::BranchKind;

const PROCESSORS: [(Processor, usize); 4] = [
    (Processor::Haswell, 16),
    (Processor::Skylake, 32),
    (Processor::Goldmont, 32),
    (Processor::GoldmontPlus, 32),
];

type Outcome = Result<Trail, CaptureError<Io>>;

/// Arms, runs, captures.
fn capture(processor: Processor, fault: Fault, filter: Filter, branches: &[Transfer]) -> Outcome {
    let mut kernel = Kernel::new(processor, fault);
    let armed = kvm::arm(&mut kernel, &Kernel::host(), filter)?;
    kernel.run(branches);
    armed.capture(&mut kernel, Provenance::Hardware)
}

/// The branches that a record of `depth` holds at the end.
fn truth(branches: &[Transfer], filter: Filter, depth: usize) -> Vec<(u64, u64)> {
    let recorded = branches.iter().filter(|branch| filter.records(branch.kind, branch.to_ring0));
    let recorded: Vec<(u64, u64)> = recorded.map(|branch| (branch.from, branch.to)).collect();
    recorded[recorded.len().saturating_sub(depth)..].to_vec()
}

fn pairs(trail: &Trail) -> Vec<(u64, u64)> {
    trail.records.iter().map(|record| (record.from, record.to)).collect()
}

/// Whether this is the error that belongs to the fault. A fault behind the last step is none.
fn told(fault: Fault, error: &CaptureError<Io>) -> bool {
    use CaptureError::{Access, FilterChanged, Lost, Short, Stopped, Unstable};
    use Unavailable::*;
    let unavailable = match error {
        CaptureError::Unavailable(why) => Some(*why),
        _ => None,
    };
    match fault {
        Fault::None => false,
        Fault::NoPmu => unavailable == Some(NotOffered(Why::Disabled)),
        Fault::NoFormat(_) => unavailable == Some(NotOffered(Why::Unknown)),
        Fault::OtherFormat(format) => unavailable == Some(UnknownFormat(format)),
        Fault::CpuidRefused => unavailable == Some(CpuidRefused),
        Fault::OtherModel => unavailable == Some(FormatRefused),
        Fault::NeverActive => unavailable == Some(Inactive),
        Fault::DebugctlDropped => unavailable == Some(Dropped),
        Fault::IoctlFails(_) => matches!(error, Access(Io)),
        Fault::EvictedAt(_) | Fault::OtherThread => matches!(error, Lost),
        Fault::RecreatedAt(_) => matches!(error, Lost | FilterChanged { found: 0, .. }),
        Fault::StoppedAt(_) => matches!(error, Stopped(0)),
        Fault::EvictedWhileReading(_) => matches!(error, Lost | Unstable | FilterChanged { found: 0, .. }),
        Fault::RegisterRefused(_) => {
            let steps = [FormatRefused, NoFormat, NoRegisters, FilterRefused, Inactive, Dropped];
            matches!(error, Short { .. }) || unavailable.is_some_and(|why| steps.contains(&why))
        }
    }
}

fn branch() -> impl Strategy<Value = Transfer> {
    (1..1u64 << 47, 1..1u64 << 47, 0..BranchKind::ALL.len(), any::<bool>()).prop_map(
        |(from, to, kind, to_ring0)| {
            let kind = BranchKind::ALL[kind];
            Transfer { to_ring0: to_ring0 && kind == BranchKind::Far, ..Transfer::user(from, to, kind) }
        },
    )
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::None),
        Just(Fault::NoPmu),
        any::<bool>().prop_map(Fault::NoFormat),
        (8..=0x3fu8).prop_map(Fault::OtherFormat),
        Just(Fault::CpuidRefused),
        Just(Fault::OtherModel),
        Just(Fault::NeverActive),
        Just(Fault::DebugctlDropped),
        (1..700usize).prop_map(Fault::RegisterRefused),
        (1..24usize).prop_map(Fault::IoctlFails),
        (0..80usize).prop_map(Fault::EvictedAt),
        (0..80usize).prop_map(Fault::RecreatedAt),
        (0..80usize).prop_map(Fault::StoppedAt),
        (1..220usize).prop_map(Fault::EvictedWhileReading),
        Just(Fault::OtherThread),
    ]
}

/// Whether the fault is sure to be met: the others may lie behind the last step.
fn is_met(fault: Fault, branches: usize) -> bool {
    match fault {
        Fault::None | Fault::RegisterRefused(_) | Fault::IoctlFails(_) | Fault::EvictedWhileReading(_) => {
            false
        }
        Fault::EvictedAt(at) | Fault::RecreatedAt(at) | Fault::StoppedAt(at) => at <= branches,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn what_comes_out_is_the_truth_or_the_step_that_failed(
        (processor, depth) in prop::sample::select(&PROCESSORS[..]),
        fault in fault(),
        filter in 1..0x200u64,
        branches in prop::collection::vec(branch(), 0..70),
    ) {
        let filter = Filter::from_bits(filter).unwrap();
        match capture(processor, fault, filter, &branches) {
            Ok(trail) => {
                prop_assert!(!is_met(fault, branches.len()), "{fault:?} was met, and nothing was said");
                prop_assert_eq!(pairs(&trail), truth(&branches, filter, depth));
                prop_assert_eq!((trail.provenance, trail.depth as usize), (Provenance::Hardware, depth));
                prop_assert_eq!(trail.filter, Some(filter));
            }
            Err(error) => prop_assert!(told(fault, &error), "{fault:?}: {error:?}"),
        }
    }

    /// Without a filter, hardware that was given away and back is not noticed; but what it holds then is true.
    #[test]
    fn without_a_filter_it_is_still_never_untrue(
        (processor, depth) in prop::sample::select(&PROCESSORS[..]),
        fault in fault(),
        branches in prop::collection::vec(branch(), 0..70),
    ) {
        match capture(processor, fault, Filter::EVERYTHING, &branches) {
            Ok(trail) => {
                let truth = truth(&branches, Filter::EVERYTHING, depth);
                prop_assert!(!trail.records.is_empty() && truth.ends_with(&pairs(&trail)), "{fault:?}");
                prop_assert!(trail.records.len() == truth.len() || matches!(fault, Fault::RecreatedAt(_)));
            }
            Err(error) => prop_assert!(
                told(fault, &error) || (branches.is_empty() && matches!(error, CaptureError::Lost)),
                "{fault:?}: {error:?}"
            ),
        }
    }
}

/// Every register of every step in turn, so that no step is left out by chance.
#[test]
fn each_register_that_is_refused_is_an_error() {
    let branches: Vec<Transfer> = (1..50).map(|n| Transfer::user(n, n + 1000, BranchKind::Return)).collect();
    let mut refused = 0;
    for n in 1.. {
        match capture(Processor::Skylake, Fault::RegisterRefused(n), Filter::ANY, &branches) {
            Ok(trail) => {
                assert_eq!(pairs(&trail), truth(&branches, Filter::ANY, 32));
                break;
            }
            Err(error) => {
                assert!(told(Fault::RegisterRefused(n), &error), "{n}: {error:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 3 * 96, "clearing, reading twice: {refused}");
}

#[test]
fn each_ioctl_that_fails_is_an_error() {
    let failed =
        (1..).find(|n| capture(Processor::Haswell, Fault::IoctlFails(*n), Filter::ANY, &[]).is_ok()).unwrap();
    assert!(failed > 12, "{failed} ioctls");
}

#[test]
fn a_refused_register_is_named() {
    let mut last = None;
    for n in 1.. {
        match capture(Processor::Skylake, Fault::RegisterRefused(n), Filter::ANY, &[]) {
            Err(error) => last = Some(error.to_string()),
            Ok(_) => break,
        }
    }
    assert_eq!(last.unwrap(), "MSR 0xddf (MSR_LBR_INFO_31) is refused, after 98 of 99 registers");
}
