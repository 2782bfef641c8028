//! `gretel heap`: who allocated the memory at an address, who freed it, and who used it after that.

use crate::{Place, USAGE, engines, skipped};
use serde_json::Value;

/// Prints an address, and does with the memory there what its argument says.
const PROGRAM: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    struct session { long id; char user[24]; };
    __attribute__((noinline)) struct session *open_session(long id) {
        struct session *session = calloc(1, sizeof *session);
        session->id = id;
        return session;
    }
    __attribute__((noinline)) void close_session(struct session *session) { free(session); }
    int main(int count, char **words) {
        struct session *session = open_session(7);
        char line[32];
        // No memory is taken for this.
        write(1, line, sprintf(line, "%p\n", (void *)session));
        char *moved = malloc(100);
        for (int n = 1; n < 10; n++) moved = realloc(moved, 1000 * n);
        switch (words[1][0]) {
        case 'k': break;
        case 'f': close_session(session); break;
        case 'u': close_session(session); return session->id != 0;
        case 'd': close_session(session); close_session(session); break;
        case 'i': free(session->user); break;
        case 'a': close_session(session); *(volatile long *)malloc(sizeof *session) = 1; break;
        case 'r': session = realloc(session, 1 << 20); return session->id;
        // There is room for it where it is.
        case 's': return ((struct session *)realloc(session, 20))->id != 7;
        case 'c': { char *large = malloc(4000); write(1, line, sprintf(line, "%p\n", large)); realloc(large, 40); return *(volatile char *)(large + 100); }
        }
        free(moved);
        return 0;
    }"#;

/// Records what the program does, and gives the history of what it has printed the address of.
fn history(place: &Place, program: &str, does: &str, at: u64, engine: &str) -> Value {
    let _ = std::fs::remove_dir_all(place.path("rec"));
    let ran = place.gretel(&["record", "--engine", engine, "-o", "rec", "--", program, does]);
    let printed = ran.out();
    let address = printed.lines().next().and_then(|line| line.strip_prefix("0x"));
    let address = u64::from_str_radix(address.expect("an address"), 16).expect("an address");
    let ran = place.gretel(&["heap", "rec", &format!("{:#x}", address + at), "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("calls of the allocator were looked at"), "{}", ran.err);
    serde_json::from_str(&ran.out()).expect("JSON")
}

fn kinds(history: &Value) -> Vec<&str> {
    history["events"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect()
}

#[test]
fn the_verdict_says_what_became_of_the_memory() {
    let place = Place::new();
    if place.compile("glibc", PROGRAM).is_none() {
        return;
    }
    place.write("prog.c", PROGRAM);
    let mut programs = vec!["./glibc"];
    for (name, command) in [
        ("./dynamic", "gcc -g -O1 -w -o dynamic prog.c"),
        ("./musl", "musl-gcc -g -O1 -w -static -o musl prog.c"),
    ] {
        match place.sh(command).code {
            0 => programs.push(name),
            _ => skipped(name, "that compiler is not here"),
        }
    }
    for program in programs {
        for (does, verdict, expected) in [
            ("keep", "live", &["allocated"][..]),
            ("free", "freed", &["allocated", "freed"]),
            ("use", "use-after-free", &["allocated", "freed", "accessed"]),
            ("double", "double-free", &["allocated", "freed", "freed-again"]),
            ("inside", "invalid-free", &["allocated", "freed-inside"]),
            ("realloc", "freed", &["allocated", "moved"]),
            ("same", "live", &["allocated", "resized"]),
        ] {
            let history = history(&place, program, does, 4, "soft");
            let mut kinds = kinds(&history);
            // musl may have unmapped it.
            kinds.iter_mut().filter(|kind| **kind == "crashed").for_each(|kind| *kind = "accessed");
            assert_eq!(kinds, expected, "{program} {does}: {history}");
            let freed = &history["events"].as_array().unwrap().last().unwrap()["stack"];
            assert!(freed.as_array().unwrap().iter().any(|it| it["function"] == "main"), "{history}");
            assert_eq!(history["verdict"], verdict, "{program} {does}: {history}");
            let allocated = &history["events"][0];
            assert_eq!(allocated["call"], "calloc(32)", "{history}");
            assert_eq!(allocated["stack"][0]["function"], "open_session", "{history}");
            assert_eq!(allocated["stack"][1]["function"], "main", "{history}");
        }
    }
}

#[test]
fn what_is_reallocated_is_said_with_where_it_is_now() {
    let place = Place::new();
    if place.compile("prog", PROGRAM).is_none() {
        return;
    }
    let moved = history(&place, "./prog", "realloc", 4, "soft");
    let to = moved["events"][1]["to"].as_str().unwrap();
    assert_ne!(moved["events"][0]["start"], to, "{moved}");
    let text = moved["text"].as_str().unwrap();
    assert!(text.starts_with(&format!("moved to {to} at ")), "{text}");
    // Its new place has the call that moved it there, with where it was.
    let there = place.gretel(&["heap", "rec", to, "--json"]);
    let there: Value = serde_json::from_str(&there.out()).expect("JSON");
    let call = there["events"][0]["call"].as_str().unwrap();
    let from = moved["events"][0]["start"].as_str().unwrap();
    assert_eq!(call, format!("realloc({from}, 1048576)"), "{there}");
    let same = history(&place, "./prog", "same", 4, "soft");
    assert!(same["text"].as_str().unwrap().ends_with(", never freed"), "{same}");
}

#[test]
fn what_a_smaller_allocation_no_longer_has_is_free() {
    let place = Place::new();
    if place.compile("prog", PROGRAM).is_none() {
        return;
    }
    let _ = history(&place, "./prog", "cut", 0, "soft");
    let printed = place.gretel(&["replay", "rec", "--output"]).out();
    let large = u64::from_str_radix(printed.lines().nth(1).unwrap().trim_start_matches("0x"), 16).unwrap();
    let ran = place.gretel(&["heap", "rec", &format!("{:#x}", large + 100)]);
    let said = ran.out();
    assert!(said.contains("smaller, this part is free") && said.contains("read at "), "{said}");
    assert!(said.lines().last().unwrap().starts_with("use after free: cut off at "), "{said}");
    let json = place.gretel(&["heap", "rec", &format!("{:#x}", large + 100), "--json"]).out();
    assert!(json.contains("\"cut-off\""), "{json}");
}

#[test]
fn memory_that_is_another_s_now_has_both_in_its_history() {
    let place = Place::new();
    if place.compile("prog", PROGRAM).is_none() {
        return;
    }
    for engine in engines() {
        let history = history(&place, "./prog", "again", 0, engine);
        assert_eq!(kinds(&history), ["allocated", "freed", "allocated"], "{history}");
        assert_eq!(history["verdict"], "live", "{history}");
        // Where it was freed, gdb and the others can go.
        let at = history["events"][1]["position"].as_str().unwrap();
        let ran = place.gretel(&["replay", "rec", "--to", at]);
        assert!(
            ran.out().contains("at __libc_free+0x0") || ran.out().contains("at free+0x0"),
            "{}",
            ran.out()
        );
    }
    // Nothing was allocated behind the allocation, and that one is named.
    let history = history(&place, "./prog", "keep", 33, "soft");
    assert_eq!(history["verdict"], "never-allocated", "{history}");
    let text = history["text"].as_str().unwrap();
    assert!(text.contains("1 byte behind the end of 0x") && text.contains("(32 bytes)"), "{text}");
    assert!(text.contains("which was allocated at ") && text.ends_with(" and not freed"), "{text}");
    // Also one that was freed is, with where that was.
    let freed = self::history(&place, "./prog", "free", 33, "soft");
    let text = freed["text"].as_str().unwrap();
    assert!(text.contains("1 byte behind the end of 0x") && text.contains(" and freed at "), "{text}");
    let before = &freed["before"][0];
    assert_eq!((&before["size"], &before["bytes_behind"]), (&32.into(), &1.into()), "{freed}");
    assert!(before["freed"].is_string(), "{freed}");
}

#[test]
fn operators_and_threads_are_followed() {
    let place = Place::new();
    place.write(
        "prog.cc",
        r#"
        #include <cstdio>
        #include <thread>
        #include <unistd.h>
        struct Thing { int words[10]; virtual ~Thing() {} };
        int main() {
            Thing *thing = new Thing;
            char line[32];
            write(1, line, std::sprintf(line, "%p\n", (void *)thing));
            std::thread([&] { delete thing; }).join();
            return ((volatile Thing *)thing)->words[2];
        }"#,
    );
    if place.sh("g++ -g -O1 -w -o prog prog.cc").code != 0 {
        skipped("operators of C++", "g++ is not here");
        return;
    }
    let history = history(&place, "./prog", "", 8, "soft");
    // That glibc gives back what the thread had kept is no second time.
    assert_eq!(kinds(&history), ["allocated", "freed", "accessed"], "{history}");
    assert_eq!(history["events"][0]["call"], "operator new(48)", "{history}");
    assert_ne!(history["events"][0]["thread"], history["events"][1]["thread"], "{history}");
    let ran = place.gretel(&["heap", "rec", history["address"].as_str().unwrap()]);
    let last = ran.out().lines().last().unwrap_or_default().to_owned();
    assert!(last.starts_with("use after free: freed at "), "{}", ran.out());
}

#[test]
fn without_an_allocator_there_is_no_history() {
    let place = Place::new();
    if place.compile("prog", PROGRAM).is_none() {
        return;
    }
    place.sh("strip prog");
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog", "free"]);
    let ran = place.gretel(&["heap", "rec", "0x1000"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
    assert!(ran.err.contains("no function that is called malloc"), "{}", ran.err);
}

#[test]
fn why_of_a_free_that_was_refused_leads_to_the_history() {
    let place = Place::new();
    if place.compile("glibc", PROGRAM).is_none() {
        return;
    }
    for does in ["double", "inside"] {
        let history = history(&place, "./glibc", does, 0, "soft");
        let address = history["address"].as_str().and_then(|it| it.strip_prefix("0x")).expect("an address");
        let address = u64::from_str_radix(address, 16).expect("an address");
        let given = if does == "inside" { address + 8 } else { address };
        let ran = place.gretel(&["why", "rec"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains(&format!("next: gretel heap rec {given:#x},")), "{does}: {}", ran.err);
    }
}
