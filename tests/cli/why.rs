//! `gretel why`: from a crash back to the input, over memory, threads, pipes and processes; and the input that is named is changed,
//! to see the crash change with it.

mod chosen;
mod handled;
mod hashed;

use crate::{Place, USAGE, engines, skipped};
use serde_json::Value;

/// An address comes as a text, by a pipe to another process, and back by a socket.
const RELAY: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <unistd.h>
    struct message { char tag[8]; long *where; };
    static void relay(int from, int to) {
        struct message m;
        size_t n = 0;
        for (;;) {
            ssize_t got = read(from, (char *)&m + n, n < 5 ? 5 - n : sizeof m - n);
            if (got <= 0) _exit(0);
            if ((n += got) == sizeof m) { send(to, &m, sizeof m, 0); n = 0; }
        }
    }
    int main(void) {
        int there[2], back[2];
        pipe(there);
        socketpair(AF_UNIX, SOCK_STREAM, 0, back);
        if (!fork()) { close(there[1]); relay(there[0], back[0]); }
        close(there[0]);
        char line[64];
        long cell = 1, sum = 0;
        while (fgets(line, sizeof line, stdin)) {
            struct message m = {"hello", &cell}, r;
            if (!strncmp(line, "at ", 3)) m.where = (long *)strtol(line + 3, 0, 0);
            write(there[1], &m, sizeof m);
            recv(back[1], &r, sizeof r, MSG_WAITALL);
            sum += *r.where;
        }
        printf("%ld\n", sum);
    }"#;

/// The answer in JSON.
fn why(place: &Place, rest: &[&str]) -> Value {
    let ran = place.gretel(&[&["why", "rec", "--json"], rest].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out()).expect("JSON")
}

fn nodes(answer: &Value) -> &[Value] {
    answer["nodes"].as_array().expect("nodes")
}

/// What the nodes are, in words.
fn whats(answer: &Value) -> Vec<String> {
    nodes(answer).iter().map(|node| node["what"].as_str().expect("words").to_owned()).collect()
}

fn record(place: &Place, engine: &str, command: &str) {
    drop(std::fs::remove_dir_all(place.path("rec")));
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{gretel} record --engine {engine} -o rec -- {command}"));
    assert!(ran.code > 128, "{}", ran.err);
}

#[test]
fn a_pointer_is_followed_through_processes_to_the_bytes_of_the_input() {
    let place = Place::new();
    if place.compile("relay", RELAY).is_none() {
        return;
    }
    for engine in engines() {
        place.write("input", "one\ntwo\nat 0x777\n");
        record(&place, engine, "./relay <input");
        let answer = why(&place, &[]);
        assert!(
            answer["question"]["words"][1]
                .as_str()
                .is_some_and(|it| it.contains("accesses 0x777, where nothing is mapped: ")),
            "{answer}"
        );
        let whats = whats(&answer);
        for call in ["recvfrom", "sendto(", "write("] {
            assert!(whats.iter().any(|what| what.contains(call)), "{call} in {whats:#?}");
        }
        // The child's part is the child's.
        let pids: std::collections::BTreeSet<_> =
            nodes(&answer).iter().map(|node| node["pid"].as_i64()).collect();
        assert_eq!(pids.len(), 2, "{answer}");
        // It ends at the digits, and nowhere else.
        let read = nodes(&answer).iter().rfind(|node| node["kind"] == "system call").expect("a read");
        assert_eq!(read["read"], serde_json::json!([[13, 15]]), "{read}");
        // Which are what makes it crash there: others make it crash elsewhere.
        place.write("input", "one\ntwo\nat 0x6b8\n");
        record(&place, engine, "./relay <input");
        let other = why(&place, &[]);
        assert!(
            other["question"]["words"][1].as_str().is_some_and(|it| it.contains("accesses 0x6b8")),
            "{other}"
        );
    }
}

#[test]
fn every_kind_of_crash_is_led_back_to_its_input() {
    let place = Place::new();
    let assertion = "#include <assert.h>\n#include <stdlib.h>\n__attribute__((noinline)) void check(int n) { assert(n < 10); } \
                     int main(int c, char **v) { for (int i = 1; i < c; i++) check(atoi(v[i])); }";
    let division = "#include <stdlib.h>\nint main(int c, char **v) { return 100 / (atoi(v[1]) - 5); }";
    let jump = "#include <string.h>\nstruct { char name[16]; void (*f)(void); } s; static void ok(void) {} \
                int main(int c, char **v) { s.f = ok; strcpy(s.name, v[1]); s.f(); }";
    let smash = "#include <string.h>\n__attribute__((noinline)) void f(char *t) { char b[16]; strcpy(b, t); asm volatile(\"\" :: \"r\"(b) : \
                 \"memory\"); } int main(int c, char **v) { f(v[1]); return 0; }";
    let clock = "#include <x86intrin.h>\nint main(void) { return *(int *)(__rdtsc() | 1UL << 63); }";
    // As malloc does that finds a size which cannot be: who waits for the lock is the newest branch, and decided nothing.
    let unlocked = "#include <stdlib.h>\nstatic int lock; __attribute__((noinline)) void own_lll_lock_wake(int *l) { asm \
                    volatile(\"\" :: \"r\"(l) : \"memory\"); } __attribute__((noinline)) void check(long n) { \
                    __atomic_store_n(&lock, 1, __ATOMIC_SEQ_CST); int bad = n > 10; if (bad) { if \
                    (__atomic_exchange_n(&lock, 0, __ATOMIC_RELEASE) > 1) own_lll_lock_wake(&lock); abort(); } } int \
                    main(int c, char **v) { for (int i = 1; i < c; i++) check(atol(v[i])); }";
    let cases = [
        ("assertion", assertion, "3 7 12", "in check", "argument 3"),
        ("unlocked", unlocked, "3 17", "in check", "argument 2"),
        (
            "division",
            division,
            "5",
            "`idiv ecx` divides by zero, or its quotient is too large: bytes 0 to 3 of rcx = 0x0",
            "argument 1",
        ),
        (
            "jump",
            jump,
            "AAAAAAAAAAAAAAAABBBBBB",
            "went to 0x424242424242, where there is no code",
            "argument 1",
        ),
        (
            "smash",
            smash,
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "goes to 0x4141414141414141, which is not canonical: [0x",
            "argument 1",
        ),
        ("clock", clock, "", "accesses 0x8", "rdtsc"),
    ];
    for (name, source, arguments, question, origin) in cases {
        if place.compile(name, source).is_none() {
            return;
        }
        for engine in engines() {
            record(&place, engine, &format!("./{name} {arguments}"));
            let answer = why(&place, &[]);
            let words = answer["question"]["words"].to_string();
            assert!(words.contains(question), "{name}: {words}");
            let whats = whats(&answer);
            assert!(whats.iter().any(|what| what.contains(origin)), "{name}: {whats:#?}");
        }
    }
}

#[test]
fn a_value_is_followed_between_threads_and_through_shared_memory() {
    let source = r#"
        #include <pthread.h>
        #include <sys/mman.h>
        #include <sys/wait.h>
        #include <unistd.h>
        static long *volatile pointer;
        static long *shared;
        static void *worker(void *argument) { pointer = (long *)shared[3]; return argument; }
        int main(void) {
            shared = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            if (!fork()) { shared[3] = 0x1230; _exit(0); }
            wait(0);
            pthread_t thread;
            pthread_create(&thread, 0, worker, 0);
            pthread_join(thread, 0);
            return *pointer;
        }"#;
    let place = Place::new();
    if place.compile("shared", source).is_none() {
        return;
    }
    for engine in engines() {
        record(&place, engine, "./shared");
        let answer = why(&place, &[]);
        let main = answer["question"]["thread"].as_i64().expect("a task");
        let tasks: Vec<(i64, i64)> = nodes(&answer)
            .iter()
            .map(|node| (node["pid"].as_i64().unwrap_or(0), node["thread"].as_i64().unwrap_or(0)))
            .collect();
        assert!(tasks.iter().any(|(pid, thread)| *pid == main && *thread != main), "the worker: {answer:#}");
        assert!(tasks.iter().any(|(pid, _)| *pid != main), "the child: {answer:#}");
        assert!(whats(&answer).last().is_some_and(|it| it.contains("0x1230")), "{answer:#}");
    }
}

#[test]
fn any_value_can_be_asked_for() {
    let source = "#include <unistd.h>\nstatic char text[8]; int main(int c, char **v) { read(0, text, 8); asm volatile(\"mov %0, %%r12; nop; \
                  mov $0, %%r12\" :: \"r\"((long)text[2]) : \"r12\"); return *(int *)16L; }";
    let place = Place::new();
    if place.compile("ask", source).is_none() {
        return;
    }
    place.write("input", "abcdefgh");
    record(&place, "soft", "./ask <input");
    let nm = place.sh("nm ask | sed -n 's/^0*\\([0-9a-f]*\\) b text$/\\1/p'");
    let text = u64::from_str_radix(nm.out().trim(), 16).expect("the address of `text`");
    let answer = why(&place, &["--of", &format!("{:#x}:3", text + 1)]);
    assert_eq!(nodes(&answer)[0]["read"], serde_json::json!([[1, 3]]), "{answer:#}");
    // It is headed as it was asked for, also where it is a part of a register with another name.
    for name in ["ah", "ymm0", "eflags"] {
        let ran = place.gretel(&["why", "rec", "--of", name]);
        assert!(ran.out().starts_with(&format!("{name} of thread ")), "{}{}", ran.out(), ran.err);
    }
    let answer = why(&place, &["--of", "r12d"]);
    assert!(whats(&answer)[0].contains("mov r12, 0"), "{answer:#}");
    // Before that, it came from the text; and its address from the program's own code.
    let at = nodes(&answer)[0]["position"].as_str().expect("a position").to_owned();
    let answer = why(&place, &["--of", "r12", "--at", &at]);
    assert_eq!(nodes(&answer).last().expect("a node")["read"], serde_json::json!([[2, 2]]), "{answer:#}");
    let ran = place.gretel(&["why", "rec", "--of", "rxx"]);
    assert!(
        ran.code == USAGE && ran.err.contains("is no register (rax, eax, xmm0, rip), and there"),
        "{}",
        ran.err
    );
    let ran = place.gretel(&["why", "rec", "--steps", "1", "--of", "r12", "--at", &at]);
    assert!(ran.err.contains("there is more"), "{}", ran.err);
}

#[test]
fn what_did_not_crash_has_to_be_asked_for() {
    let place = Place::new();
    if place.compile("fine", "int main(void) { return 0; }").is_none() {
        return;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./fine"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = place.gretel(&["why", "rec"]);
    let said = "did not crash (exited with status 0), and handled no fault before; say with --of";
    assert!(ran.code == USAGE && ran.err.contains(said), "{}", ran.err);
}

#[test]
fn a_core_alone_is_asked_over_a_suffix() {
    let source =
        "static volatile long base = 0x700; int main(int c, char **v) { return *(int *)(base * 2 + c); }";
    let place = Place::new();
    if place.compile("alone", source).is_none() {
        return;
    }
    record(&place, "soft", "./alone");
    let ran = place.gretel(&["why", "rec/core", "--exe", "alone", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("`gretel why rec` goes over what was recorded"), "{}", ran.err);
    let answer: Value = serde_json::from_str(&ran.out()).expect("JSON");
    assert!(
        answer["question"]["words"][1]
            .as_str()
            .is_some_and(|it| it.contains("accesses 0xe01: rax = 0x700, rdi = 0x1")),
        "{answer:#}"
    );
    let base = nodes(&answer).iter().find(|node| node["values"].to_string().contains("00070000"));
    assert!(base.is_some(), "the variable's value: {answer:#}");
    assert!(whats(&answer).iter().any(|it| it.contains("is in the core")), "{answer:#}");
    // The same suffix, kept.
    let ran = place.gretel(&["synth", "-o", "suffix.json", "rec"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = place.gretel(&["why", "--suffix", "suffix.json", "rec"]);
    assert!(ran.code == 0 && ran.out().contains("accesses 0xe01"), "{}{}", ran.out(), ran.err);
    // One of another program's core.
    place.compile("other", "int main(void) { return *(int *)3L; }").expect("a compiler");
    record(&place, "soft", "./other");
    let ran = place.gretel(&["why", "--suffix", "suffix.json", "rec"]);
    assert!(ran.code == crate::DAMAGED || !ran.out().contains("0xe01"), "{}{}", ran.out(), ran.err);
}

/// Where a core stands there is nothing to execute: what is to be explained is the pointer that led there.
#[test]
fn a_core_of_a_call_of_what_is_no_code_is_asked_for_the_pointer() {
    let source =
        "static void (*volatile f)(void) = (void (*)(void))0x41424344; int main(void) { f(); return 1; }";
    let place = Place::new();
    if place.compile("astray", source).is_none() {
        return;
    }
    record(&place, "soft", "./astray");
    let ran = place.gretel(&["why", "rec/core", "--exe", "astray"]);
    for part in ["went to 0x41424344, where there is no code, at main", "is in the core"] {
        assert!(ran.code == 0 && ran.out().contains(part), "no `{part}` in: {}{}", ran.out(), ran.err);
    }
}

#[test]
fn what_is_hard_to_see_is_found_or_said() {
    let backwards = r#"
        #include <unistd.h>
        char b[64];
        int main(void) {
            read(0, b, 64);
            char *s = b + 15, *d = b + 23;
            long n = 16;
            asm volatile("std; rep movsb; cld" : "+S"(s), "+D"(d), "+c"(n) :: "memory");
            *(volatile int *)(((unsigned long)b[9] | b[10] << 8 | b[11] << 16) << 20) = 1;
        }"#;
    let handler = r#"
        #include <signal.h>
        #include <unistd.h>
        char in[16];
        static void handle(int s, siginfo_t *i, void *u) {
            unsigned long v = ((unsigned long *)u)[5 + 4] & 0xffffff;
            *(volatile int *)(v << 20) = s;
        }
        int main(void) {
            struct sigaction a = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
            sigaction(SIGUSR1, &a, 0);
            read(0, in, 16);
            unsigned long v = in[5] | in[6] << 8 | in[7] << 16;
            asm volatile("mov %0, %%r12; mov $39, %%eax; syscall; mov %%eax, %%edi; mov $10, %%esi; mov $62, %%eax; syscall"
                         :: "r"(v) : "rax", "rcx", "rdi", "rsi", "r11", "r12", "memory");
        }"#;
    let place = Place::new();
    place.write("input", "abcdefghijklmnopqrstuvwxyz");
    for (name, source, read) in [("backwards", backwards, (1, 3)), ("handler", handler, (5, 7))] {
        if place.compile(name, source).is_none() {
            return;
        }
        for engine in engines() {
            record(&place, engine, &format!("./{name} <input"));
            let answer = why(&place, &[]);
            let from =
                nodes(&answer).iter().find(|node| node["kind"] == "system call" && !node["read"].is_null());
            let reads: Vec<(u64, u64)> = nodes(&answer)
                .iter()
                .filter_map(|node| serde_json::from_value::<Vec<(u64, u64)>>(node["read"].clone()).ok())
                .flatten()
                .collect();
            assert!(from.is_some() && reads == [read], "{name}: {reads:?} {answer:#}");
        }
    }
}

#[test]
fn an_entry_of_a_table_leads_to_what_chose_it() {
    let source = r#"
        #include <unistd.h>
        static long *const table[4] = { 0, (long *)0x1230, (long *)0x2340, (long *)0x3450 };
        __attribute__((noinline)) static long look(const long *at) { return *at; }
        int main(void) {
            unsigned char text[4];
            read(0, text, sizeof text);
            return look(table[text[2] & 3]);
        }"#;
    let place = Place::new();
    if place.compile("table", source).is_none() {
        return;
    }
    place.write("input", "0123");
    for engine in engines() {
        record(&place, engine, "./table <input");
        let ran = place.gretel(&["why", "rec"]);
        assert!(ran.out().contains("accesses 0x2340, where nothing is mapped"), "{}", ran.out());
        let (_, next) = ran.err.split_once("what chose the entry: gretel ").expect("the next question");
        let next: Vec<&str> = next.lines().next().unwrap_or_default().split(' ').collect();
        let asked = place.gretel(&next);
        assert!(asked.out().contains("byte 2 of what it read"), "{next:?}: {}{}", asked.out(), asked.err);
        // That is an input, of which nothing more is asked.
        assert!(!asked.err.contains("from a table"), "{}", asked.err);
    }
}

#[test]
fn a_table_that_the_dynamic_linker_relocated_is_one_too() {
    let source = r#"
        #include <unistd.h>
        static char data[4];
        static void (*const table[4])(void) =
            { (void *)data, (void *)(data + 1), (void *)(data + 2), (void *)(data + 3) };
        int main(void) {
            unsigned char text[4];
            read(0, text, sizeof text);
            void (*volatile chosen)(void) = table[text[2] & 3];
            chosen();
            return 0;
        }"#;
    let place = Place::new();
    place.write("runs.c", source);
    if place.sh("gcc -g -O1 -fpie -pie -o runs runs.c").code != 0 {
        return skipped("a table of pointers", "gcc cannot make a dynamic program here");
    }
    place.write("input", "0123");
    record(&place, "soft", "./runs <input");
    let ran = place.gretel(&["why", "rec"]);
    assert!(ran.out().contains("where there is no code"), "{}", ran.out());
    let (_, next) = ran.err.split_once("what chose the entry: gretel ").expect("the next question");
    let next: Vec<&str> = next.lines().next().unwrap_or_default().split(' ').collect();
    let asked = place.gretel(&next);
    assert!(asked.out().contains("byte 2 of what it read"), "{next:?}: {}{}", asked.out(), asked.err);
}

#[test]
fn moves_of_the_stack_pointer_and_saved_registers_are_left_out() {
    // By its argument: the size of an array on the stack comes from the input, or an address, which is in a register that others save.
    let source = r#"
        #include <alloca.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        static char text[16];
        __attribute__((noinline)) static void leaf(void) { asm volatile(""); }
        __attribute__((noinline)) static void saves(void) {
            asm volatile("" ::: "rbx", "r12", "r13", "r14", "r15", "rbp");
        }
        __attribute__((noinline)) static int room(long n) {
            for (int i = 0; i < 400; i++) leaf();
            char *p = alloca(n);
            memset(p, 2, 10);
            return p[n / 2];
        }
        int main(int argc, char **argv) {
            read(0, text, sizeof text - 1);
            long n = atol(text);
            if (argc == 1) return room(n);
            for (int i = 0; i < 5; i++) saves();
            return *(volatile char *)(n ^ text[15]);
        }"#;
    let place = Place::new();
    if place.compile("room", source).is_none() {
        return;
    }
    place.write("input", "90000000");
    for (arguments, moves) in [("", true), (" x", false)] {
        record(&place, "soft", &format!("./room{arguments} <input"));
        let out = place.gretel(&["why", "rec"]).out();
        assert!(out.contains("bytes 0 to 7 of what it read"), "{out}");
        let steps = out.lines().filter(|line| line.starts_with('#')).count();
        let saved = [" push ", " pop ", " call ", " ret "];
        let saved = out.lines().filter(|line| saved.iter().any(|it| line.contains(it))).count();
        assert!(steps < 25 && saved == 0, "{steps} steps, {saved} of them move the stack pointer: {out}");
        assert_eq!(out.contains(" moves of the stack pointer are left out (--all)"), moves, "{out}");
    }
    let all = place.gretel(&["why", "rec", "--all"]).out();
    assert!(all.contains(" push ") && all.contains(" pop "), "{all}");
}
