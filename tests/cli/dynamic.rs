//! Dynamic programs: the linker is loaded beside them and recorded, and what is shown of a crash goes through libraries.

use crate::{DAMAGED, PROGRAM, Place, engines, skipped};
use serde_json::Value;
use std::fs;

/// Crashes in the list after a call into libc.
const CRASHES: &str = r#"
#include <stdio.h>
#include <stdlib.h>
struct node { int value; struct node *next; };
__attribute__((noinline)) static int sum(struct node *list, int n) {
    int s = 0;
    while (n--) { s += list->value; list = list->next; }
    return s;
}
int main(int argc, char **argv) {
    struct node *list = 0;
    for (int i = 0; i < 10; i++) {
        struct node *node = malloc(sizeof *node);
        *node = (struct node){ i * 3, list };
        list = node;
    }
    printf("%d\n", sum(list, 10));
    fflush(stdout);
    return sum(list, 12 + argc);
}
"#;

/// Compiles a program that needs its C library at run time.
fn link(place: &Place, name: &str, options: &[&str], source: &str) -> Option<()> {
    let file = place.write(&format!("{name}.c"), source);
    let file = file.to_str().expect("temporary directories have plain names");
    let done = place.command("gcc", &[&["-g", "-O1", "-o", name, file], options].concat()).status();
    if !done.is_ok_and(|status| status.success()) {
        skipped(name, "gcc cannot make a program here");
        return None;
    }
    Some(())
}

#[test]
fn a_crash_beside_libraries_is_recorded_replayed_shown_and_synthesized() {
    let place = Place::new();
    let Some(()) = link(&place, "crashes", &[], CRASHES) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./crashes"]);
        assert_eq!((recorded.code, recorded.out()), (128 + 11, "135\n".to_owned()), "{}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay(engine, replayer)["status_or_signal"], 11);
        }
        let shown = place.gretel(&["core", "--json", engine]);
        let shown: Value = serde_json::from_str(&shown.out()).expect("--json prints JSON");
        let places: Vec<&str> =
            shown["stack"].as_array().unwrap().iter().map(|f| f["place"].as_str().unwrap()).collect();
        let at = |function: &str| places.iter().position(|place| place.starts_with(&format!("{function}+")));
        // Between main and _start lie frames of libc.
        assert_eq!((at("sum"), at("main")), (Some(0), Some(1)), "{places:?}");
        assert!(at("_start").is_some_and(|outermost| outermost > 2), "{places:?}");
        let suffix = place.gretel(&["synth", "--json", engine]);
        assert_eq!(suffix.code, 0, "{}", suffix.err);
        let suffix: Value = serde_json::from_str(&suffix.out()).expect("--json prints JSON");
        assert_eq!(suffix["verdict"], "certified");
        assert!(suffix["metrics"].is_object(), "compared with the recording");
    }
}

/// Their functions are found at the first call, by a resolver that saves the x87 state to memory, in which processors
/// differ; and seq computes with x87 instructions.
#[test]
fn programs_that_are_bound_lazily_replay_on_the_other_engine() {
    let place = Place::new();
    for (n, program) in [&["/usr/bin/seq", "3"][..], &["/usr/bin/dd", "if=/dev/zero", "bs=1", "count=3"]]
        .into_iter()
        .enumerate()
    {
        if !std::path::Path::new(program[0]).exists() {
            skipped(program[0], "it is not installed");
            continue;
        }
        for engine in engines() {
            let recording = format!("{engine}-{n}");
            let start = ["record", "--engine", engine, "-o", &recording, "--"];
            let recorded = place.gretel(&[&start[..], program].concat());
            assert_eq!(recorded.code, 0, "{}", recorded.err);
            for replayer in engines() {
                place.replay(&recording, replayer);
            }
        }
    }
}

/// Calls a function for the first time shortly before the crash.
const BINDS: &str = "\
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    volatile int zero = argc - 1;
    write(1, \"begin\", 5);
    return (rand() & 0xff) / zero;
}
";

/// The records lead through the linker, which finds the function, as it was bound lazily.
#[test]
fn a_suffix_goes_through_the_resolver_of_the_dynamic_linker() {
    let place = Place::new();
    let Some(()) = link(&place, "binds", &["-Wl,-z,lazy"], BINDS) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./binds"]);
    assert_eq!(recorded.code, 128 + 8, "{}", recorded.err);
    let ran = place.gretel(&["synth", "--json", "--records", "32", "--instructions", "300", "rec"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let result: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
    let path = &result["metrics"]["path"];
    assert!(path["common"].as_u64() > Some(150) && path["common"] == path["length"], "{path} {}", ran.err);
}

/// Asks for the time right before the crash, so often as its argument says; with 0 by a system call of its own.
const CLOCKS: &str = "\
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    volatile int *nobody = 0;
    struct timespec now;
    int times = atoi(argv[1]);
    if (times == 0) syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    for (int n = times; n > 0; n--) clock_gettime(CLOCK_MONOTONIC, &now);
    return *nobody + (int)now.tv_nsec;
}
";

/// What `synth` says of a crash of [`CLOCKS`].
fn synthesized(place: &Place, engine: &str, calls: &str) -> Value {
    let recording = format!("{engine}-{calls}");
    let recorded = place.gretel(&["record", "--engine", engine, "-o", &recording, "--", "./clocks", calls]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let ran = place.gretel(&["synth", "--json", "--fuel", "2", &recording]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out()).expect("--json prints JSON")
}

/// Three calls are answered by the vDSO; the sixty-fourth is a system call, which leaves another time in the clock's page.
#[test]
fn a_suffix_goes_through_the_vdso_and_its_call() {
    let place = Place::new();
    let Some(()) = link(&place, "clocks", &[], CLOCKS) else { return };
    for (engine, calls) in engines().into_iter().flat_map(|engine| [(engine, "3"), (engine, "64")]) {
        let result = synthesized(&place, engine, calls);
        let (path, uses) = (&result["metrics"]["path"], &result["metrics"]["uses"]);
        // The way back from the vDSO is sixteen instructions before the crash, its call some seventy.
        assert!(path["common"].as_u64() > Some(60), "{engine} {calls}: {path}");
        assert_eq!(uses["wrong"], uses["chosen"], "{engine} {calls}: {uses}");
    }
}

#[test]
fn the_clocks_page_is_nothing_that_a_call_wrote_for_the_program() {
    let place = Place::new();
    let Some(()) = link(&place, "clocks", &[], CLOCKS) else { return };
    for engine in engines() {
        let result = synthesized(&place, engine, "0");
        let steps = result["listing"]["steps"].as_array().expect("steps");
        let written: Vec<_> = steps.iter().filter_map(|step| step["call"]["written"].as_u64()).collect();
        assert_eq!(written.last(), Some(&16), "{engine}: the structure alone");
    }
}

/// As where the program has written there.
#[test]
fn a_damaged_vdso_is_left_out_and_said_to_be() {
    let place = Place::new();
    let Some(()) = link(&place, "clocks", &[], CLOCKS) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./clocks", "3"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let mut core = fs::read(place.path("rec/core")).unwrap();
    let find = |what: &[u8], from: usize, to: usize| {
        core[from..to].windows(what.len()).rposition(|bytes| bytes == what).map(|at| from + at)
    };
    let name = find(b"linux-vdso.so.1", 0, core.len()).expect("the core has the vDSO");
    let header = find(b"\x7fELF", name.saturating_sub(4096), name).expect("it has a header");
    // The kind of processor.
    core[header + 18] ^= 0xff;
    place.replace("rec/core", &core);
    let ran = place.gretel(&["synth", "--json", "--fuel", "1", "rec"]);
    assert!(ran.err.contains("the vDSO in the core") && ran.err.contains("left out"), "{}", ran.err);
    let result: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
    assert_eq!((ran.code, &result["verdict"]), (0, &Value::from("certified")), "{}", ran.err);
}

#[test]
fn a_recording_needs_the_linker_that_it_was_made_with() {
    let place = Place::new();
    let Some(()) = link(&place, "crashes", &[], CRASHES) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./crashes"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let copy = place.path("rec/interpreter");
    let bytes = fs::read(&copy).unwrap();
    place.replace("rec/interpreter", &bytes[1..]);
    let changed = place.gretel(&["replay", "rec"]);
    assert_eq!(changed.code, DAMAGED, "{}", changed.err);
    assert!(changed.err.contains("rec/interpreter"), "{}", changed.err);
    fs::remove_file(&copy).unwrap();
    let missing = place.gretel(&["replay", "rec"]);
    assert_eq!(missing.code, DAMAGED, "{}", missing.err);
    assert!(missing.err.contains("rec/interpreter"), "{}", missing.err);
}

#[test]
fn a_program_whose_linker_is_missing_is_refused() {
    let place = Place::new();
    let file = place.write("empty.c", "int main(void) { return 0; }\n");
    let file = file.to_str().expect("temporary directories have plain names");
    let linker = place.path("no-linker");
    let option = format!("-Wl,--dynamic-linker={}", linker.display());
    if !place.command("gcc", &["-o", "lost", &option, file]).status().is_ok_and(|status| status.success()) {
        return skipped("a program with another linker", "gcc cannot make it");
    }
    let refused = place.gretel(&["record", "-o", "rec", "--", "./lost"]);
    assert_eq!(refused.code, PROGRAM, "{}", refused.err);
    assert!(refused.err.contains("lost") && refused.err.contains("no-linker"), "{}", refused.err);
    fs::write(&linker, b"text").unwrap();
    let refused = place.gretel(&["record", "-o", "rec", "--", "./lost"]);
    assert_eq!(refused.code, PROGRAM, "{}", refused.err);
    assert!(refused.err.contains("no-linker is not an ELF program"), "{}", refused.err);
    assert!(!place.path("rec").exists(), "nothing is left behind");
}

/// Asks for the processor's name among instructions that are rare where there are constants: by the unwind tables alone it is code.
const NAMES: &str = r#"
#include <string.h>
__attribute__((noinline)) void name(char *to) {
    unsigned a = 0, b, c, d;
    __asm__ volatile("cld; std; cld; fninit; emms; sfence; lfence; cpuid; sfence; lfence; emms; fninit"
        : "+a"(a), "=b"(b), "=c"(c), "=d"(d));
    memcpy(to, &a, 4); memcpy(to + 4, &b, 4); memcpy(to + 8, &d, 4); memcpy(to + 12, &c, 4);
}
"#;

#[test]
fn a_library_sees_the_processor_that_the_program_sees() {
    let place = Place::new();
    let Some(()) = link(&place, "libnames.so", &["-shared", "-fPIC", "-s"], NAMES) else { return };
    let source = r#"
        #include <stdio.h>
        void name(char *);
        int main(void) { char it[16]; name(it); fwrite(it, 16, 1, stdout); }
    "#;
    let Some(()) = link(&place, "asks", &["-L.", "-lnames", "-Wl,-rpath,$ORIGIN"], source) else { return };
    let said: Vec<Vec<u8>> = engines()
        .into_iter()
        .map(|engine| {
            let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./asks"]);
            assert_eq!(recorded.code, 0, "{}", recorded.err);
            for replayer in engines() {
                place.replay(engine, replayer);
            }
            recorded.out
        })
        .collect();
    assert!(said.iter().all(|name| *name == said[0] && name.len() == 16), "{said:?}");
}
