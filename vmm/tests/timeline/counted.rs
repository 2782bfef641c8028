//! Positions with a counter of branches. No processor that has one for its guests was at hand: the count that it would have given
//! is put into the journal of one that has none.

use crate::harness::{Compiled, compiled, engines, machine};
use crate::journals::{all_records, write_records};
use vmm::engine::EngineKind;
use vmm::gate::Event;
use vmm::journal::Record;
use vmm::position::{Offset, Position};
use vmm::recording::Recording;
use vmm::timeline::Timeline;

/// Two threads that count in memory, so that registers alone say nothing, until both are done.
const COUNTS: &str = r#"
    #include <pthread.h>
    static volatile unsigned long counts[2][16];
    static void *count(void *own) {
        volatile unsigned long *at = own;
        while (*at < 40000000) __asm__ volatile("incq %0" : "+m"(*at));
        return 0;
    }
    int main(void) {
        pthread_t one, other;
        pthread_create(&one, 0, count, (void *)counts[0]);
        pthread_create(&other, 0, count, (void *)counts[1]);
        pthread_join(one, 0);
        pthread_join(other, 0);
        return 0;
    }"#;

/// How many conditional branches retired before each event.
fn branches(recording: &Recording, events: u64) -> Vec<u64> {
    let mut timeline = Timeline::open(recording, machine(EngineKind::Soft)).unwrap();
    let mut at = |event| {
        timeline.seek(Position { event, retired: 0 }).unwrap();
        timeline.replay().process().cpu().counters().unwrap().conditional_branches
    };
    (0..=events).map(&mut at).collect()
}

/// Puts counts into the preemptions, as `counted` makes them of the true ones; gives how many there are.
fn put(records: &mut [Record], branches: &[u64], counted: impl Fn(u64) -> u64) -> usize {
    let (mut event, mut found) = (0, 0);
    for record in records {
        let Record::Begin { event: what, .. } = record else { continue };
        event += 1;
        if let Event::Preempt(Offset::State(target)) = what {
            target.branches = Some(counted(branches[event] - branches[event - 1]));
            found += 1;
        }
    }
    found
}

fn replayed(recording: &Recording) -> Result<u64, String> {
    let _ = std::fs::remove_file(recording.positions());
    let timeline = Timeline::open(recording, machine(EngineKind::Soft));
    let outcome = timeline.and_then(|mut timeline| timeline.run_to_end());
    outcome.map(|outcome| outcome.digest()).map_err(|error| error.to_string())
}

#[test]
fn a_preemption_is_found_near_the_branches_that_were_counted() {
    let Some(program) = compiled("counts", COUNTS, &["-pthread"]) else { return };
    if !engines().contains(&EngineKind::Kvm) {
        return;
    }
    check(&program);
}

/// What a counter says where this is true.
type Counted = fn(u64) -> u64;

fn check(program: &Compiled) {
    let recording = program.record(EngineKind::Kvm, &[]);
    let digest = replayed(&recording).unwrap();
    let (header, mut records) = all_records(&recording.journal());
    let events = records.iter().filter(|record| matches!(record, Record::Begin { .. })).count();
    let branches = branches(&recording, events as u64 - 1);
    let counts: [(&str, Counted); 4] = [
        ("exactly", |true_count| true_count),
        ("some too many", |true_count| true_count + true_count / 1000 + 900),
        ("some too few", |true_count| true_count.saturating_sub(900)),
        ("none", |_| 0),
    ];
    for (how, counted) in counts {
        let found = put(&mut records, &branches, counted);
        assert!(found > 0, "the program is preempted");
        write_records(&recording.journal(), &header, &records);
        assert_eq!(replayed(&recording), Ok(digest), "{how}");
    }
    put(&mut records, &branches, |true_count| 2 * true_count + 1_000_000);
    write_records(&recording.journal(), &header, &records);
    let wrong = replayed(&recording).unwrap_err();
    assert!(wrong.contains("a preemption"), "{wrong}");
}
