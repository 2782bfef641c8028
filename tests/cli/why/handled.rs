//! Faults that a handler of signals was called for.

use crate::{Place, USAGE, skipped};

#[test]
fn a_fault_that_was_handled_is_explained_where_its_handler_runs() {
    let source = r#"
        #include <setjmp.h>
        #include <signal.h>
        #include <unistd.h>
        static long where;
        static int faults;
        static sigjmp_buf back;
        static void handle(int s) { if (++faults == 2) _exit(3); siglongjmp(back, 1); }
        int main(void) {
            signal(SIGSEGV, handle);
            sigsetjmp(back, 1);
            while (read(0, &where, sizeof where) == sizeof where) *(volatile char *)where = 1;
            return 0;
        }"#;
    let place = Place::new();
    if place.compile("handles", source).is_none() {
        return;
    }
    place.write("input", [0x1230_u64, 0x4560].map(u64::to_le_bytes).concat());
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{gretel} record --engine soft -o rec -- ./handles <input"));
    assert_eq!(ran.code, 3, "{}", ran.err);
    let signals = place.gretel(&["events", "rec", "--kind", "signal"]).out();
    let first = signals.split_whitespace().next().expect("a signal").to_owned();
    for (at, address) in [(&[][..], "0x4560"), (&["--at", &first], "0x1230")] {
        let out = place.gretel(&[&["why", "rec"], at].concat()).out();
        let head = "a handler of signals runs there; what it was called for is at main+";
        assert!(out.starts_with(head), "{out}");
        assert!(out.contains(&format!("accesses {address}, where nothing is mapped")), "{out}");
        assert!(out.contains("bytes 0 to 7 of what it read"), "{out}");
    }
    let ran = place.gretel(&["why", "rec", "--at", "start"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
}

/// Go's runtime, and others, leave the handler to make an exception of the fault: at the end no handler runs.
#[test]
fn a_fault_that_was_handled_long_ago_is_named() {
    let source = r#"
        #define _GNU_SOURCE
        #include <signal.h>
        #include <stdlib.h>
        #include <ucontext.h>
        #include <unistd.h>
        static long where;
        static void give_up(void) { exit(2); }
        static void handle(int s, siginfo_t *info, void *context) {
            ucontext_t *at = context;
            at->uc_mcontext.gregs[REG_RSP] &= ~15L;
            at->uc_mcontext.gregs[REG_RSP] -= 8;
            at->uc_mcontext.gregs[REG_RIP] = (long)give_up;
        }
        int main(void) {
            struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO };
            sigaction(SIGSEGV, &action, 0);
            read(0, &where, sizeof where);
            *(volatile char *)where = 1;
        }"#;
    let place = Place::new();
    place.write("gives.c", source);
    // As Go compiles: without unwind tables, and with frame pointers.
    let options = "-O1 -fno-omit-frame-pointer -fno-asynchronous-unwind-tables -fno-unwind-tables";
    if place.sh(&format!("gcc {options} -static -o gives gives.c")).code != 0 {
        return skipped("a handler without tables", "gcc cannot make a static program here");
    }
    place.write("input", 0x4560_u64.to_le_bytes());
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{gretel} record --engine soft -o rec -- ./gives <input"));
    assert_eq!(ran.code, 2, "{}", ran.err);
    let ran = place.gretel(&["why", "rec"]);
    let said = "did not crash (exited with status 2). But it handled a fault, SIGSEGV at ";
    assert!(ran.code == USAGE && ran.err.contains(said), "{}", ran.err);
    let at = ran.err.split("--at ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a position");
    let out = place.gretel(&["why", "rec", "--at", at]).out();
    assert!(out.contains("accesses 0x4560, where nothing is mapped"), "{at}: {out}");
    assert!(out.contains("bytes 0 to 7 of what it read"), "{out}");
}
