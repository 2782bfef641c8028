//! Seeking: at a position there is one state, however one came there.

use crate::harness::{Compiled, compiled, engines, machine};
use std::time::{Duration, Instant};
use vmm::engine::EngineKind;
use vmm::position::Position;
use vmm::process::comparable;
use vmm::timeline::{Pace, Timeline};
use x86::state::Regs;

/// A parent and a child with shared and private memory, two threads that take turns, a file that is read, random bytes.
const BUSY: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/random.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static unsigned *shared, own[5000];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned hash(unsigned seed, long rounds) {
        while (rounds--) own[seed % 5000] += seed = seed * 1664525 + 1013904223;
        return seed;
    }
    static void *work(void *name) {
        for (int n = 0; n < 40; n++) {
            unsigned seed;
            getrandom(&seed, sizeof seed, 0);
            pthread_mutex_lock(&lock);
            shared[n] += hash(seed, 20000);
            pthread_mutex_unlock(&lock);
            if (n % 10 == 0) usleep(100);
        }
        return name;
    }
    int main(void) {
        shared = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        char text[4000];
        FILE *file = fopen("/proc/self/exe", "r");
        while (file && fread(text, 1, sizeof text, file) == sizeof text && own[1]++ < 50) own[2] += text[7];
        pid_t child = fork();
        if (child == 0) { hash(7, 300000); shared[100] = own[9]; mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); _exit(3); }
        pthread_t one, other;
        pthread_create(&one, 0, work, 0);
        pthread_create(&other, 0, work, 0);
        int status;
        waitpid(child, &status, 0);
        pthread_join(one, 0);
        pthread_join(other, 0);
        return (shared[100] + shared[3]) % 100;
    }"#;

/// Everything that a program is, as far as engines agree.
pub(crate) fn state(timeline: &Timeline) -> (Position, i32, Regs, u64) {
    let process = timeline.replay().process();
    (timeline.position(), process.thread(), comparable(process.cpu().regs()), process.memory_digest())
}

pub(crate) const OFTEN: Pace = Pace { nearest: Duration::from_micros(500), share: 0 };

pub(crate) fn busy() -> Option<Compiled> {
    compiled("busy", BUSY, &["-pthread"])
}

#[test]
fn a_position_is_one_state_however_one_comes_there() {
    let Some(program) = busy() else { return };
    for recorder in engines() {
        let recording = program.record(recorder, &[]);
        for replayer in engines() {
            let mut forward = Timeline::with_pace(&recording, machine(replayer), OFTEN).unwrap();
            let mut states = Vec::new();
            while !forward.ended() {
                let next = forward.position().event + 7;
                forward.seek(Position { event: next, retired: 0 }).unwrap();
                states.push(state(&forward));
            }
            assert!(states.len() > 10, "{}", states.len());
            let end = forward.run_to_end().unwrap();
            assert!(end.end.is_some() && end.damage.is_none());
            states.pop();
            // Backwards, and then back and forth.
            let order = (0..states.len()).rev().chain((0..states.len()).map(|n| n * 37 % states.len()));
            for (n, expected) in order.map(|n| (n, &states[n])) {
                forward.seek(expected.0).unwrap();
                assert_eq!(
                    state(&forward),
                    *expected,
                    "number {n} on {} of {}",
                    replayer.name(),
                    recorder.name()
                );
            }
            assert!(forward.checkpoints().count() > 3);
            let again = forward.run_to_end().unwrap();
            assert_eq!(
                (again.digest(), again.events, again.comparisons),
                (end.digest(), end.events, end.comparisons)
            );
            let used = forward.replay().process().memory().frames().used();
            let replay = forward.into_replay();
            assert!(replay.process().memory().frames().used() < used);
        }
    }
}

#[test]
fn an_offset_behind_an_event_is_exact_on_each_engine() {
    let Some(program) = busy() else { return };
    let recording = program.record(EngineKind::Soft, &[]);
    let mut seen: Option<Vec<_>> = None;
    for replayer in engines() {
        let mut timeline = Timeline::with_pace(&recording, machine(replayer), OFTEN).unwrap();
        let last = timeline.run_to_end().unwrap().events;
        let mut states = Vec::new();
        for (event, retired) in
            [(last / 2, 1), (last / 3, 1), (last / 2, 2), (0, 1000), (0, 2000), (last / 3, 1), (0, 10)]
        {
            let arrived = timeline.seek(Position { event, retired }).unwrap();
            assert!(arrived == Position { event, retired } || arrived.event > event, "{arrived}");
            states.push(state(&timeline));
        }
        assert_eq!(states[1], states[5]);
        assert_eq!(*seen.get_or_insert_with(|| states.clone()), states, "{}", replayer.name());
    }
}

/// Computes for about a second, also as compiled code, with a call now and then.
pub(crate) const LONG: &str = r"
    #include <unistd.h>
    #include <sys/syscall.h>
    static unsigned table[20000];
    int main(void) {
        unsigned seed = 1;
        for (int n = 0; n < 300; n++) {
            for (int k = 0; k < 2400000; k++) table[seed % 20000] += seed = seed * 1664525 + 1013904223;
            syscall(SYS_getppid);
        }
        return table[5] % 100;
    }";

#[test]
fn going_back_costs_a_part_of_the_way() {
    let Some(program) = compiled("long", LONG, &[]) else { return };
    let recording = program.record(EngineKind::Soft, &[]);
    let mut plain =
        Timeline::with_pace(&recording, machine(EngineKind::Soft), Pace { nearest: Duration::MAX, share: 0 })
            .unwrap();
    let before = Instant::now();
    let last = plain.run_to_end().unwrap().events;
    let without = before.elapsed();
    let mut timeline = Timeline::open(&recording, machine(EngineKind::Soft)).unwrap();
    let before = Instant::now();
    timeline.run_to_end().unwrap();
    let with = before.elapsed();
    let goal = Position { event: last / 2, retired: 1000 };
    let before = Instant::now();
    assert_eq!(timeline.seek(goal).unwrap(), goal);
    let back = before.elapsed();
    println!(
        "without checkpoints {without:.2?}, with {} {with:.2?} ({:.3}), back to the middle {back:.2?} ({:.4})",
        timeline.checkpoints().count(),
        with.as_secs_f64() / without.as_secs_f64(),
        back.as_secs_f64() / without.as_secs_f64()
    );
    assert!(back * 4 < without, "{back:?} of {without:?}");
}
