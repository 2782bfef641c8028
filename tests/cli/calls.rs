//! `gretel calls`: each call of a function, with its arguments and its result.

use crate::{Place, USAGE, engines};
use serde_json::Value;

/// Functions of many kinds. All calls of `work` are counted: 4 threads with 500 each, a signal handler, a coroutine and a child.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdbool.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <ucontext.h>
    #include <unistd.h>
    #define FUNCTION __attribute__((noinline, noclone))
    #define KEEP __asm__ volatile("" ::: "memory")
    enum color { RED, GREEN = 5, BLUE = -1 };
    struct small { long count; double weight; };
    struct big { long words[4]; };
    static jmp_buf out;
    static ucontext_t first, second;
    static char stack[65536];
    FUNCTION int fib(int n) { KEEP; return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    FUNCTION double scale(double x, float by, long plus) { KEEP; return x * by + plus; }
    FUNCTION bool mix(char c, bool b, enum color color, const char *text, void *data, int sixth, long seventh, short eighth) {
        KEEP;
        return text[0] == 'h' && c + b + color + sixth + seventh + eighth + (data != 0) != 0;
    }
    FUNCTION struct big make(int x) { KEEP; struct big big = {{x, x, x, x}}; return big; }
    FUNCTION long take(struct small small, struct big big, int after) { KEEP; return small.count + big.words[1] + after; }
    FUNCTION void deep(int depth) { if (depth == 0) longjmp(out, 1); deep(depth - 1); KEEP; }
    FUNCTION long last(long x) { KEEP; return x * 2; }
    __attribute__((optimize("optimize-sibling-calls"))) FUNCTION long before_last(long x) { KEEP; return last(x + 1); }
    FUNCTION long work(long n) { KEEP; return n + 1; }
    FUNCTION void yielding(int n) { work(n); swapcontext(&second, &first); work(n); }
    static inline __attribute__((always_inline)) long unfolded(long x) { KEEP; return x + 1; }
    static void in_turns(void) { for (int n = 0; n < 3; n++) yielding(n); }
    static void on_signal(int signal) { work(-signal); }
    static void *many(void *start) { long x = (long)start; for (int n = 0; n < 500; n++) x = work(x); return (void *)x; }
    FUNCTION void leave(int status) { exit(status); }
    int main(void) {
        volatile double sink = scale(1.5, 2, -3);
        sink += fib(4) + mix('h', true, GREEN, "hello\n", 0, 6, -7, -8) + mix('a', false, BLUE, 0 ? 0 : "x", &out, 6, 7, 8);
        sink += take((struct small){3, 1.5}, make(7), -4) + before_last(unfolded(19));
        if (!setjmp(out)) { deep(2); sink += 1; }
        signal(SIGUSR1, on_signal);
        pthread_t threads[4];
        for (long n = 0; n < 4; n++) pthread_create(&threads[n], 0, many, (void *)n);
        raise(SIGUSR1);
        for (int n = 0; n < 4; n++) pthread_join(threads[n], 0);
        getcontext(&second);
        second.uc_stack.ss_sp = stack;
        second.uc_stack.ss_size = sizeof stack;
        second.uc_link = &first;
        makecontext(&second, in_turns, 0);
        for (int n = 0; n < 4; n++) swapcontext(&first, &second);
        if (fork() == 0) { work(1000); _exit(0); }
        wait(0);
        leave(3);
    }"#;

/// Records the program; false where it cannot be compiled.
fn record(place: &Place, engine: &str, more: &[&str]) -> bool {
    let made = place.compile("prog", PROGRAM).is_some();
    if made {
        let ran =
            place.gretel(&[&["record", "--engine", engine, "-o", "rec"], more, &["--", "./prog"]].concat());
        assert_eq!(ran.code, 3, "{}", ran.err);
    }
    made
}

/// The calls of a function, one object each.
fn calls(place: &Place, arguments: &[&str]) -> Vec<Value> {
    let ran = place.gretel(&[&["calls", "rec", "--json"], arguments].concat());
    assert_eq!(ran.code, 0, "{}", ran.err);
    ran.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The arguments of a call as text.
fn arguments(call: &Value) -> String {
    let shown = call["arguments"].as_array().unwrap().iter();
    let shown: Vec<String> = shown
        .map(|it| format!("{}={}", it["name"].as_str().unwrap(), it["value"].as_str().unwrap()))
        .collect();
    shown.join(", ")
}

#[test]
fn arguments_and_results_are_as_in_the_source() {
    let place = Place::new();
    for engine in engines() {
        if !record(&place, engine, &[]) {
            return;
        }
        for (function, expected, result) in [
            ("scale", "x=1.5, by=2, plus=-3", "0"),
            ("make", "x=7", "{words = {7, 7, 7, 7}}"),
            ("take", "small={count = 3, weight = 1.5}, big={words = {7, 7, 7, 7}}, after=-4", "6"),
            ("leave", "status=3", ""),
        ] {
            let found = calls(&place, &[function]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(arguments(&found[0]), expected);
            assert_eq!(found[0]["result"].as_str().unwrap_or_default(), result, "{}", found[0]);
            assert_eq!(found[0]["caller"]["function"], "main", "{}", found[0]);
        }
        let found = calls(&place, &["mix"]);
        let shown = arguments(&found[0]);
        assert!(shown.starts_with("c=104 'h', b=true, color=GREEN, text=0x"), "{shown}");
        assert!(shown.ends_with("\"hello\\n\", data=0x0, sixth=6, seventh=-7, eighth=-8"), "{shown}");
        assert_eq!((&found[0]["result"], &found[1]["result"]), (&"true".into(), &"false".into()));
        assert!(arguments(&found[1]).contains("b=false, color=BLUE"), "{found:?}");
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}

#[test]
fn recursion_jumps_threads_and_coroutines_come_out_right() {
    let place = Place::new();
    if !record(&place, "soft", &["--chaos"]) {
        return;
    }
    let fib = calls(&place, &["fib"]);
    let results: Vec<&str> = fib.iter().map(|call| call["result"].as_str().unwrap()).collect();
    // In the order in which they return.
    assert_eq!(results, ["1", "0", "1", "1", "2", "1", "0", "1", "3"]);
    assert_eq!(fib[8]["depth"], 0);
    let ends = |function: &str| -> Vec<String> {
        calls(&place, &[function]).iter().map(|call| call["end"].as_str().unwrap().to_owned()).collect()
    };
    // What is left is noticed at the next stop of the thread; here there is none, so it is open.
    assert_eq!(ends("deep"), ["open"; 3]);
    assert_eq!(ends("leave"), ["open"]);
    // The last call of a function that ends in it returns where that does.
    let (inner, outer) = (calls(&place, &["last"]), calls(&place, &["before_last"]));
    assert_eq!((&inner[0]["result"], &inner[0]["ended_at"]), (&outer[0]["result"], &outer[0]["ended_at"]));
    assert_eq!(outer[0]["result"], "42");
    // Two of the coroutine's are open while it is not on the processor.
    assert_eq!(ends("yielding"), ["returned"; 3]);
    let work = calls(&place, &["work"]);
    assert_eq!(work.len(), 4 * 500 + 1 + 6, "a preemption repeats or hides a call");
    for call in &work {
        let argument: i64 = call["arguments"][0]["value"].as_str().unwrap().parse().unwrap();
        assert_eq!(call["result"], (argument + 1).to_string(), "{call}");
    }
}

#[test]
fn calls_are_chosen_by_process_position_and_number() {
    let place = Place::new();
    if !record(&place, "soft", &[]) {
        return;
    }
    let all = calls(&place, &["work"]);
    let position = |call: &Value| call["position"].as_str().unwrap().to_owned();
    assert_eq!(calls(&place, &["work", "--limit", "7"]).len(), 7);
    let (from, to) = (position(&all[10]), position(&all[20]));
    assert_eq!(calls(&place, &["work", "--from", &from, "--to", &to]), all[10..20]);
    // By the line, by the address, and as the linker has it.
    let line = 1 + PROGRAM.lines().position(|line| line.contains("long work(long n)")).unwrap();
    let address = all[0]["address"].as_str().unwrap();
    for name in [&format!("prog.c:{line}"), address] {
        assert_eq!(calls(&place, &[name, "--limit", "3"]), all[..3], "{name}");
    }
    let child = place.gretel(&["events", "rec", "--json", "--kind", "fork"]).out();
    let child: Value = serde_json::from_str(child.lines().last().unwrap()).unwrap();
    let found = calls(&place, &["work", "--pid", &child["started"].to_string()]);
    assert_eq!((found.len(), arguments(&found[0])), (1, "n=1000".to_owned()));
    assert_eq!(calls(&place, &["work", "--pid", "all"]).len(), all.len() + 1);
    let text = place.gretel(&["calls", "rec", "work", "--limit", "1"]).out();
    assert!(text.contains("work(n=") && text.contains(" until ") && text.contains("prog.c:"), "{text}");
}

#[test]
fn what_is_not_known_is_said() {
    let place = Place::new();
    if !record(&place, "soft", &[]) {
        return;
    }
    for (name, expected) in [
        ("no_such_function", "there is no function no_such_function"),
        ("before_la", "there is before_last"),
        ("unfolded", "unfolded has no code of its own"),
        ("prog.c:1", "no code of prog.c:1 is known"),
        ("0x10", "nothing is mapped at 0x10"),
    ] {
        let ran = place.gretel(&["calls", "rec", name]);
        assert_eq!(ran.code, USAGE, "{}", ran.err);
        assert!(ran.err.contains(expected), "{}", ran.err);
    }
    // Without debug information there are registers; without the file there are no names.
    place.sh("cp prog whole; strip -g prog");
    std::fs::remove_dir_all(place.path("rec")).unwrap();
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
    let ran = place.gretel(&["calls", "rec", "before_last"]);
    assert!(ran.err.contains("before_last: no debug information"), "{}", ran.err);
    assert!(ran.err.contains("whether it takes them or not"), "{}", ran.err);
    assert!(ran.out().contains("before_last(rdi=0x14, ") && ran.out().contains(" = 0x2a "), "{}", ran.out());
}

#[test]
fn functions_of_libc_have_the_arguments_that_it_declares() {
    let place = Place::new();
    let source = r#"
        #include <string.h>
        int main(int argc, char **argv) {
            static char to[64];
            strcpy(to, argv[argc - 1]);
            return (int)strlen(to);
        }"#;
    place.write("copies.c", source);
    // Without optimization and inlining, both are calls; the functions themselves are written by hand and have no types.
    let done = place.command("gcc", &["-O0", "-fno-builtin", "-o", "copies", "copies.c"]).status();
    if !done.is_ok_and(|status| status.success()) {
        crate::skipped("functions of libc", "gcc cannot make a program here");
        return;
    }
    let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./copies", "six words"]);
    assert_eq!(ran.code, 9, "{}", ran.err);
    let ran = place.gretel(&["calls", "rec", "strcpy"]);
    let call = ran.out().lines().last().unwrap_or_default().to_owned();
    assert!(
        call.contains("(dest=0x") && call.contains(", src=0x") && call.contains(" \"six words\") = 0x"),
        "{call}"
    );
    assert!(!call.contains("rcx="), "{call}");
    assert!(ran.err.contains("arguments are shown as libc declares strcpy"), "{}", ran.err);
    let ran = place.gretel(&["calls", "rec", "strlen"]);
    assert!(ran.out().lines().any(|line| line.contains(" \"six words\") = 9 ")), "{}", ran.out());
}

const RUST: &str = r#"
    pub struct Big { a: [u64; 5] }
    pub struct Odd { a: u32, b: f64 }
    #[inline(never)]
    pub fn big(b: Big, n: u32, s: &str, ok: bool) -> u32 { std::hint::black_box(b.a[1]) as u32 + n + s.len() as u32 + ok as u32 }
    #[inline(never)]
    pub fn odd(o: Odd, n: u32) -> Big { Big { a: [o.a as u64 + o.b as u64 + n as u64; 5] } }
    pub struct Stock { limit: Option<Box<u32>> }
    impl Stock {
        #[inline(never)]
        pub fn forget(&mut self) { self.limit = None; }
        #[inline(never)]
        pub fn check(&self, n: u32) -> bool { n <= **self.limit.as_ref().expect("there is always a limit") }
    }
    fn main() {
        std::panic::set_hook(Box::new(|_| {}));
        let count = std::env::args().count() as u32;
        let sum = big(Big { a: [1, 2, 3, 4, 5] }, 40 + count, "hello", true) + odd(Odd { a: 1, b: 2.0 }, 41 + count).a[2] as u32;
        let mut stock = Stock { limit: Some(Box::new(sum)) };
        let first = std::hint::black_box(&stock).check(7);
        std::hint::black_box(&mut stock).forget();
        std::process::exit((first && std::hint::black_box(&stock).check(8)) as i32);
    }"#;

/// rustc optimises what only its own file calls, and has rules of its own for structures: what is not known is not guessed.
#[test]
fn arguments_of_rust_are_true_or_not_known() {
    let place = Place::new();
    place.write("prog.rs", RUST);
    for level in ["0", "2"] {
        let compile = format!("rm -rf rec; rustc -g -C panic=abort -C opt-level={level} -o prog prog.rs");
        if place.sh(&compile).code != 0 {
            crate::skipped("calls of Rust", "there is no compiler for it");
            return;
        }
        let ran = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
        assert_eq!(ran.code, 128 + 6, "{}", ran.err);
        let calls = |function: &str| place.gretel(&["calls", "rec", function]).out();
        let (big, odd, check) = (calls("prog::big"), calls("prog::odd"), calls("prog::Stock::check"));
        let is_known = |text: &str, name: &str, value: &str| {
            let unknown = level != "0" && text.contains(&format!("{name}=?"));
            assert!(unknown || text.contains(&format!("{name}={value}")), "{level}: {text}");
        };
        is_known(&big, "n", "41,");
        is_known(&big, "ok", "true)");
        is_known(&odd, "n", "42)");
        is_known(&check, "n", "7) = true");
        is_known(&check, "n", "8)");
        // What panics was decided outside of what only aborts.
        let why = place.gretel(&["why", "rec"]).out();
        if level == "0" {
            assert!(why.contains("the last decision before it, in core::option::Option<T>::expect"), "{why}");
            assert!(why.contains("from prog::Stock::check") && why.contains("prog::Stock::forget"), "{why}");
            continue;
        }
        assert!(why.contains("the last decision before it, in prog::Stock::check"), "{level}: {why}");
        assert!(why.contains("prog::Stock::forget") || why.contains("in forget"), "{level}: {why}");
    }
}
