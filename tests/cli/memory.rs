//! Memory that is used up: who is killed for it, and that a replay kills the same at the same place.

use crate::{Place, engines};
use serde_json::Value;
use std::fs;

/// Uses memory up in the way that its argument names.
const USES: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #define MB (1UL << 20)
    static char *map(size_t size, int how) {
        char *at = mmap(0, size, PROT_READ | PROT_WRITE, how | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) _exit(3);
        return at;
    }
    static void touch(char *at, size_t size) { for (size_t n = 0; n < size; n += 4096) at[n] = n >> 12 | 1; }
    static void eat(void) { for (;;) touch(map(MB, MAP_PRIVATE), MB); }
    static void adjust(const char *value) {
        int file = open("/proc/self/oom_score_adj", O_WRONLY);
        if (write(file, value, strlen(value)) < 0) _exit(4);
        close(file);
    }
    static void ended(pid_t child) {
        int status = 0;
        if (waitpid(child, &status, 0) != child) _exit(5);
        printf("signal %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    }
    static int child(void) {
        pid_t one = fork();
        if (one == 0) eat();
        ended(one);
        return 7;
    }
    static int other(void) {
        pid_t one = fork();
        if (one == 0) { adjust("1000"); touch(map(4 * MB, MAP_PRIVATE), 4 * MB); for (;;) pause(); }
        for (int n = 0, status; n < 60; n++) {
            touch(map(MB, MAP_PRIVATE), MB);
            if (waitpid(one, &status, WNOHANG) == one) { printf("signal %d\n", WTERMSIG(status)); return 7; }
        }
        return 6;
    }
    static int copies(void) {
        char *mine = map(40 * MB, MAP_PRIVATE);
        touch(mine, 40 * MB);
        pid_t one = fork();
        if (one == 0) { memset(mine, 5, 40 * MB); _exit(0); }
        ended(one);
        return mine[4096] == 1 ? 7 : 6;
    }
    static int shares(void) {
        char *ours = map(40 * MB, MAP_SHARED);
        for (int n = 0; n < 4; n++) {
            pid_t one = fork();
            if (one == 0) { touch(ours, 40 * MB); _exit(0); }
            ended(one);
        }
        touch(ours, 40 * MB);
        return 7;
    }
    static int reads(void) {
        int zero = open("/dev/zero", O_RDONLY);
        for (int n = 0; n < 3; n++) if (read(zero, map(40 * MB, MAP_PRIVATE), 40 * MB) <= 0) return 6;
        return 7;
    }
    static int repeats(void) {
        for (int n = 0; n < 2; n++) {
            char *at = map(40 * MB, MAP_PRIVATE);
            size_t left = 40 * MB;
            asm volatile("rep stosb" : "+D"(at), "+c"(left) : "a"(9) : "memory");
        }
        return 7;
    }
    int main(int argc, char **argv) {
        int result = 2;
        setvbuf(stdout, 0, _IONBF, 0);
        if (!strcmp(argv[1], "alone")) eat();
        if (!strcmp(argv[1], "child")) result = child();
        if (!strcmp(argv[1], "other")) result = other();
        if (!strcmp(argv[1], "copies")) result = copies();
        if (!strcmp(argv[1], "shares")) result = shares();
        if (!strcmp(argv[1], "reads")) result = reads();
        if (!strcmp(argv[1], "repeats")) result = repeats();
        return result;
    }"#;

/// Records the program in 64 MB on each engine, and replays it on every one; it ends so, prints that, and so many are killed.
fn ends(way: &str, code: i32, out: &str, killed: usize) {
    let place = Place::new();
    let Some(_) = place.compile("uses", USES) else { return };
    for engine in engines() {
        let line = [
            "record", "--engine", engine, "--memory", "64M", "-o", engine, "--json", "json", "--", "./uses",
            way,
        ];
        let recorded = place.gretel(&line);
        assert_eq!(
            (recorded.code, recorded.out().as_str()),
            (code, out),
            "{way} on {engine}: {}",
            recorded.err
        );
        let summary: Value = serde_json::from_slice(&fs::read(place.path("json")).unwrap()).unwrap();
        let told = summary["killed_for_memory"].as_array().unwrap();
        assert_eq!(told.len(), killed, "{way} on {engine}: {summary}");
        assert!(told.iter().all(|it| it["name"] == "uses"), "{summary}");
        // Once when it happens, and once at the end.
        assert_eq!(
            recorded.err.matches("out of memory: killed process").count(),
            2 * killed,
            "{}",
            recorded.err
        );
        assert_eq!(summary["memory_limit"], 64 << 20);
        let digests = engines().into_iter().map(|other| place.replay(engine, other)["digest"].clone());
        let mut digests: Vec<Value> = digests.collect();
        digests.dedup();
        assert_eq!(digests.len(), 1, "{way} of {engine}");
    }
}

#[test]
fn a_program_that_uses_up_memory_is_killed() {
    ends("alone", 128 + 9, "", 1);
}

#[test]
fn a_child_that_uses_up_memory_is_killed_and_its_parent_goes_on() {
    ends("child", 7, "signal 9\n", 1);
}

#[test]
fn who_offers_itself_is_killed_first() {
    ends("other", 7, "signal 9\n", 1);
}

#[test]
fn copies_of_pages_that_a_fork_shares_take_memory() {
    ends("copies", 7, "signal 9\n", 1);
}

#[test]
fn memory_that_processes_share_counts_once() {
    ends("shares", 7, "signal 0\nsignal 0\nsignal 0\nsignal 0\n", 0);
}

#[test]
fn a_call_that_uses_up_memory_is_served_and_then_somebody_is_killed() {
    ends("reads", 128 + 9, "", 1);
}

#[test]
fn a_string_instruction_is_killed_in_its_midst() {
    ends("repeats", 128 + 9, "", 1);
}
