//! What this host's kernel does with events: software's, which every host has, and refusals.

use lbr::perf::page::Unreadable;
use lbr::perf::ring::{End, Mode};
use lbr::perf::{Event, FlightRecorder, Group, OpenError, Sampling, Scope, SelfCounter, Stream, What};
use std::hint::black_box;
use std::io::Write;
use std::time::Duration;

/// Nanoseconds between two samples.
const PERIOD: u64 = 100_000;

/// The result, or that this host does not let its processes observe themselves.
fn allowed<T>(result: Result<T, OpenError>) -> Option<T> {
    match result {
        Err(why @ (OpenError::NotPermitted { .. } | OpenError::NoPerf)) => {
            // Past the capture of test output, so that it is seen.
            let _ = writeln!(std::io::stderr(), "skipped: perf events, since: {why}");
            None
        }
        other => Some(other.unwrap()),
    }
}

fn sampled(what: What) -> Event {
    let sampling = Some(Sampling { period: PERIOD, branches: 0 });
    Event { sampling, ..Event::counter(what, Scope::User) }
}

/// Computes for so long, by the time that this thread has a processor: the machine may be busy.
fn compute(time: Duration) {
    let clock = Group::open(&[Event::counter(What::TaskClock, Scope::User)], 0).unwrap();
    clock.enable().unwrap();
    let mut n = 1u64;
    while u128::from(clock.read().unwrap().whole().unwrap()[0]) < time.as_nanos() {
        for _ in 0..10_000 {
            n = black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// Four kilobytes hold a hundred samples of forty bytes with their headers: later ones go over earlier ones.
#[test]
fn the_flight_recorder_keeps_the_newest_samples() {
    let Some(recorder) = allowed(FlightRecorder::open(&sampled(What::CpuClock), 0, 4096)) else { return };
    assert_eq!(recorder.samples().unwrap().samples, [], "it is stopped");
    recorder.start().unwrap();
    compute(Duration::from_millis(5));
    let early = recorder.samples().unwrap();
    compute(Duration::from_millis(100));
    recorder.stop().unwrap();
    let late = recorder.samples().unwrap();
    assert!(!early.samples.is_empty());
    assert_eq!(early.end, End::Unwritten);
    assert!(matches!(late.end, End::Overwritten | End::Whole | End::Torn(_)), "{:?}", late.end);
    assert!((100..=128).contains(&late.samples.len()), "{} samples in four kilobytes", late.samples.len());
    assert!(late.samples.is_sorted_by(|newer, older| newer.time >= older.time));
    assert!(late.samples[99].time > early.samples[0].time, "the early ones are gone");
    for sample in &late.samples {
        assert_eq!((sample.mode, sample.process), (Mode::User, std::process::id()));
        assert!(sample.ip != 0 && sample.branches.is_none());
    }
    assert_eq!(recorder.samples().unwrap(), late, "looking does not change it");
}

#[test]
fn a_stream_gives_every_sample_or_says_how_many_are_lost() {
    let Some(mut stream) = allowed(Stream::open(&sampled(What::CpuClock), 0, 4096)) else { return };
    stream.start().unwrap();
    compute(Duration::from_millis(3));
    let first = stream.take().unwrap();
    assert!(!first.samples.is_empty() && first.lost == 0);
    compute(Duration::from_millis(60));
    let full = stream.take().unwrap();
    assert!(full.samples.len() >= 100, "{} samples", full.samples.len());
    assert!(full.samples[0].time > first.samples.last().unwrap().time);
    compute(Duration::from_millis(3));
    stream.stop().unwrap();
    let after = stream.take().unwrap();
    assert!(after.lost > 0, "what did not fit is said with the next that did");
    assert!(after.samples.is_sorted_by(|older, newer| older.time <= newer.time));
    assert_eq!((first.end, full.end, after.end), (End::Whole, End::Whole, End::Whole));
}

#[test]
fn a_group_is_read_as_of_one_moment() {
    let events =
        [What::TaskClock, What::PageFaults, What::Nothing].map(|what| Event::counter(what, Scope::User));
    let Some(group) = allowed(Group::open(&events, 0)) else { return };
    assert_eq!(group.read().unwrap().whole(), Ok(vec![0, 0, 0]), "it is stopped");
    group.enable().unwrap();
    let mut touched = vec![0u8; 64 * 4096];
    touched.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    black_box(&touched);
    group.disable().unwrap();
    let reading = group.read().unwrap();
    let values = reading.whole().unwrap();
    assert!(values[0] > 0 && values[1] >= 60 && values[2] == 0, "{values:?}");
    assert_eq!(group.read().unwrap(), reading, "it stands still");
    let ids: Vec<u64> = reading.counters.iter().map(|counter| counter.id).collect();
    assert!(ids[0] != ids[1] && ids[1] != ids[2]);
}

/// The page of a software event has no counter of the processor behind it.
#[test]
fn a_software_event_is_not_read_without_a_system_call() {
    let Some(counter) = allowed(SelfCounter::open(What::TaskClock)) else { return };
    assert_eq!(counter.read(), Err(Unreadable::NotCounting));
}

/// What the processor counts is counted, or refused with a reason: never zero without one.
#[test]
fn a_processor_without_counters_is_told_from_one_with() {
    match Group::open(&[Event::counter(What::Raw(0xc0), Scope::User)], 0) {
        Ok(group) => {
            group.enable().unwrap();
            compute(Duration::from_millis(1));
            group.disable().unwrap();
            assert!(group.read().unwrap().whole().unwrap()[0] > 10_000);
        }
        Err(why) => assert!(matches!(why, OpenError::NoPmu | OpenError::NotPermitted { .. }), "{why}"),
    }
    let branches = Some(Sampling { period: PERIOD, branches: 1 | 1 << 3 });
    let stacks = Event { sampling: branches, ..Event::counter(What::CpuClock, Scope::User) };
    let refused = FlightRecorder::open(&stacks, 0, 4096).unwrap_err();
    assert!(matches!(refused, OpenError::NoBranchStack | OpenError::NotPermitted { .. }), "{refused}");
}
