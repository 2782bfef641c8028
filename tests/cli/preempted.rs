//! Tasks that are preempted: where a replay found it, the next one knows it.

use crate::{Place, engines, finished};
use serde_json::Value;
use std::fs;

const TWO_COMPUTE: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    volatile long *board = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    long passes = 0;
    for (int round = 0; round < 3; round++) {
        board[pid == 0] = round + 1;
        // The count is in a register: a loop whose registers stay the same is searched by its memory, which takes long.
        while (board[pid != 0] <= round) passes++;
    }
    board[2] = passes;
    if (pid == 0) return 0;
    wait(0);
    puts("three rounds");
    return 0;
}"#;

#[test]
fn what_a_replay_found_is_known_to_the_next() {
    let place = Place::new();
    if place.compile("two", TWO_COMPUTE).is_none() {
        return;
    }
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./two"]);
        assert_eq!((recorded.code, recorded.out().as_str()), (0, "three rounds\n"), "{}", recorded.err);
        let crumbs = place.gretel(&["core", "--crumbs", "--json", engine]);
        assert!(
            crumbs.out().contains("\"exit\":\"preempted\""),
            "no preemption left a crumb: {}",
            crumbs.out()
        );
        let file = place.path(engine).join("positions");
        let digests: Vec<_> = (0..3)
            .map(|_| place.replay(engine, "soft")["digest"].clone())
            .chain(engines().into_iter().map(|other| place.replay(engine, other)["digest"].clone()))
            .collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
        // The software CPU's recordings have counts from the start.
        assert_eq!(file.exists(), engine == "kvm");
        if let Ok(found) = fs::read(&file) {
            assert!(found.len() > 32, "no preemption was found");
            let half = &found[..found.len() / 2];
            fs::write(&file, half).unwrap();
            assert_eq!(place.replay(engine, "soft")["digest"], digests[0], "a cut file is as good as none");
            assert_eq!(fs::read(&file).unwrap(), found, "it was found again");
        }
    }
}

const WAITS_AFTER_A_CRASH: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int is_there;
static void *comes(void *unused) { is_there = 1; return unused; }
int main(void) {
    for (int round = 0; round < 8; round++) {
        pthread_t thread;
        pid_t child = fork();
        if (child == 0) abort();
        waitpid(child, 0, 0);
        is_there = 0;
        pthread_create(&thread, 0, comes, 0);
        while (!is_there) {}
        pthread_join(thread, 0);
    }
    puts("eight rounds");
    return 0;
}"#;

/// The crash runs again for its branch records, and that run may have taken the kick that was on its way.
#[test]
fn who_computes_behind_anothers_crash_is_preempted() {
    let place = Place::new();
    if place.compile("waits", WAITS_AFTER_A_CRASH).is_none() {
        return;
    }
    for engine in engines() {
        let start = ["-s", "KILL", "100", env!("CARGO_BIN_EXE_gretel"), "record", "--engine", engine, "-o"];
        let mut command = place.command("timeout", &[&start[..], &[engine, "--", "./waits"]].concat());
        let recorded = finished(&command.output().expect("timeout is there"));
        assert_eq!((recorded.code, recorded.out().as_str()), (0, "eight rounds\n"), "{}", recorded.err);
        assert_eq!(place.replay(engine, "soft")["end"], "exited");
    }
}

/// Another task ends, behind which this one was kicked; then it computes for long, and nobody waits.
const ALONE: &str = r#"
    #include <pthread.h>
    static void *other(void *nothing) { return nothing; }
    int main(void) {
        pthread_t thread;
        pthread_create(&thread, 0, other, 0);
        volatile double x = 1.1;
        for (int n = 0; n < 10000000; n++) x *= 1.0000001;
        return 0;
    }"#;

/// The software CPU is lent to look whether a task waits by looking: not where nothing comes that would stop it.
#[test]
fn a_task_that_is_alone_computes_under_kvm() {
    if !engines().contains(&"kvm") {
        return;
    }
    let place = Place::new();
    let Some(_) = place.compile("alone", ALONE) else { return };
    for engine in ["kvm", "auto"] {
        let recorded =
            place.gretel(&["record", "--profile", "--engine", engine, "-o", engine, "--", "./alone"]);
        assert_eq!(recorded.code, 0, "{}", recorded.err);
        let guest = |processor: &str| -> f64 {
            let lines = recorded.err.lines().filter_map(|line| line.trim().strip_prefix(processor));
            lines.filter_map(|line| line.split_whitespace().rev().nth(1)?.parse::<f64>().ok()).sum()
        };
        assert!(guest("soft: ") < guest("kvm: "), "{engine}: {}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay(engine, replayer)["status_or_signal"], 0);
        }
    }
}

/// The other thread is in a loop without a system call when the first one gets the processor back, and crashes of what it left.
const TAKES_OVER: &str = r"
#include <pthread.h>
static volatile long board[4];
static volatile int *volatile where = (int *)board;
static void *other(void *arg) {
    long n = 1;
    while (board[1] <= 3000) board[2] = ++n;
    where = 0;
    board[0] = n;
    for (;;) board[2] = n++;
    return arg;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, other, 0);
    long passes = 0;
    while (!board[0]) board[1] = ++passes;
    return *where + (int)passes;
}";

/// The crumb of the preemption says who ran, and where it stood: the suffix is the truth beyond it.
#[test]
fn a_suffix_goes_through_a_preemption() {
    let place = Place::new();
    if place.compile("takes-over", TAKES_OVER).is_none() {
        return;
    }
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./takes-over"]);
        assert_eq!(recorded.code, 128 + 11, "{engine}: {}", recorded.err);
        let ran = place.gretel(&["synth", "--json", "--fuel", "1", "--instructions", "300", engine]);
        assert_eq!(ran.code, 0, "{engine}: {}", ran.err);
        let found: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
        let (summary, metrics) = (&found["listing"]["summary"], &found["metrics"]);
        assert!(summary["switches"].as_u64() >= Some(1), "{engine}: {summary}");
        assert_eq!(summary["without_kvm"], "a thread gives way where KVM does not stop", "{engine}");
        let steps = found["listing"]["steps"].as_array().expect("a list");
        let newest =
            steps.iter().rev().take_while(|step| step["task"] == found["listing"]["crash"]["task"]).count();
        let common = metrics["path"]["common"].as_u64().expect("compared with the recording");
        assert!(common > newest as u64, "{engine}: {newest} of the thread that crashed, {common} true");
        assert_eq!(
            metrics["uses"]["wrong"], metrics["uses"]["chosen"],
            "{engine}: a wrong value has no mark"
        );
    }
}
