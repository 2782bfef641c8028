//! The last branches before a crash that has just happened are those that the recording gives when it is run again.

use crate::harness::{compiled, engines, launch, machine};
use std::time::{Duration, Instant};
use vmm::engine::EngineKind;
use vmm::journal::End;
use vmm::process::Process;
use vmm::record::{Options, Recorded, record};
use vmm::recording::Recording;
use vmm::trail::derive;

/// Computes without a system call for so many rounds of some 10 ms, then crashes below two calls.
const CRASH: &str = r"
    #include <stdlib.h>
    static unsigned table[20000];
    static unsigned seed = 1;
    __attribute__((noinline)) static int inner(volatile int *at) { return table[seed % 20000] & 1 ? *at + 1 : *at; }
    __attribute__((noinline)) static int outer(volatile int *at) { for (int n = 0; n < 40; n++) seed += table[n]; return inner(at) + 2; }
    int main(int argc, char **argv) {
        for (long n = atol(argv[1]); n; n--)
            for (int k = 0; k < 3000000; k++) table[seed % 20000] += seed = seed * 1664525 + 1013904223;
        return outer((int *)8) + 3;
    }";

fn recorded(
    program: &crate::harness::Compiled,
    kind: EngineKind,
    argument: &str,
    near_past: bool,
) -> (Recording, Recorded, Duration) {
    let name = format!("rec-{}-{argument}-{near_past}", kind.name());
    let recording = Recording::create(&program.path().with_file_name(name), true).unwrap();
    let mut launch = launch(program.path());
    launch.argv.push(argument.as_bytes().to_vec());
    let options = Options { near_past, ..Options::default() };
    let before = Instant::now();
    let recorded = record(&recording, machine(kind), &launch, options, &mut |_, _, _| ()).unwrap();
    (recording, recorded, before.elapsed())
}

fn state(process: &mut Process) -> (x86::state::State, u64, usize) {
    (process.state().unwrap(), process.memory_digest(), process.mappings().len())
}

#[test]
fn the_near_past_and_the_whole_recording_give_the_same_branches() {
    let Some(program) = compiled("crash", CRASH, &[]) else { return };
    for kind in engines() {
        let (recording, mut recorded, _) = recorded(&program, kind, "60", true);
        let crash = state(&mut recorded.process);
        let near = recorded.last_branches(32, lbr::Filter::ANY).unwrap();
        assert_eq!(state(&mut recorded.process), crash, "it stands at its crash again");
        let whole = derive(&recording, machine(kind), 32, lbr::Filter::ANY).unwrap();
        assert_eq!(near.trail.records.len(), 32);
        assert_eq!(near.trail, whole.trail, "on {}", kind.name());
        match near.counters {
            Some(counters) => assert_eq!(Some(counters), whole.counters),
            None => assert_eq!(kind, EngineKind::Kvm),
        }
        assert!(recorded.last_branches(32, lbr::Filter::ANY).is_err(), "once");
    }
}

/// A child crashes while its parent waits; a thread computes all the while, so that tasks are preempted.
const CHILD: &str = r"
    #include <pthread.h>
    #include <signal.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile unsigned count, stop;
    static void *work(void *name) { while (!stop) count += count * 7 + 1; return name; }
    static int below(volatile int *at) { return *at + 1; }
    int main(void) {
        pthread_t thread;
        pthread_create(&thread, 0, work, 0);
        pid_t child = fork();
        if (child == 0) {
            for (volatile long n = 0; n < 80000000; n++) count += n;
            return below((int *)16);
        }
        int status;
        waitpid(child, &status, 0);
        stop = 1;
        pthread_join(thread, 0);
        return WTERMSIG(status);
    }";

#[test]
fn a_process_that_dies_has_its_branches_and_the_others_go_on() {
    let Some(program) = compiled("child", CHILD, &["-pthread"]) else { return };
    for kind in engines() {
        let recording = Recording::create(&program.path().with_file_name(kind.name()), true).unwrap();
        let options = Options { near_past: true, ..Options::default() };
        let mut found = Vec::new();
        let recorded = record(
            &recording,
            machine(kind),
            &launch(program.path()),
            options,
            &mut |process, death, recent| {
                let before = state(process);
                let began = Instant::now();
                found.push((
                    recent.last_branches(process, death, 16, lbr::Filter::ANY),
                    process.cpu().regs().rip,
                ));
                println!("{}: a child's branches took {:.2?}", kind.name(), began.elapsed());
                assert_eq!(state(process), before);
            },
        );
        let recorded = recorded.unwrap();
        assert_eq!(recorded.end, End::Exited(11));
        let [(Ok(last), _)] = found.as_slice() else { panic!("{found:?}") };
        assert!(!last.trail.records.is_empty());
        // The recording that was gone on with is one.
        let again = vmm::timeline::Timeline::open(&recording, machine(kind)).unwrap().run_to_end().unwrap();
        assert_eq!(again.end, Some(End::Exited(11)));
    }
}

/// Prints what the near past costs and saves.
#[test]
#[ignore = "a measurement: cargo test -p vmm --test timeline -- --ignored --nocapture cost_of"]
fn cost_of_the_near_past() {
    let Some(program) = compiled("crash", CRASH, &[]) else { return };
    for kind in engines() {
        let rounds = if kind == EngineKind::Kvm { "400" } else { "40" };
        let mut ratios = Vec::new();
        for _ in 0..3 {
            let (_, _, without) = recorded(&program, kind, rounds, false);
            let (_, mut recorded, with) = recorded(&program, kind, rounds, true);
            let before = Instant::now();
            let last = recorded.last_branches(32, lbr::Filter::ANY).unwrap();
            let took = before.elapsed();
            assert_eq!(last.trail.records.len(), 32);
            println!("{}: without {without:.2?}, with {with:.2?}, branches in {took:.2?}", kind.name());
            ratios.push(with.as_secs_f64() / without.as_secs_f64());
        }
        ratios.sort_by(f64::total_cmp);
        println!("{}: median ratio {:.3}", kind.name(), ratios[1]);
    }
}
