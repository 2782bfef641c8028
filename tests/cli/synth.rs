//! `gretel synth` on what it cannot work with: a clear message, the documented exit code, nothing written; on a
//! crash in the middle of an instruction; and what it found against what was recorded.

use crate::{DAMAGED, PROGRAM, Place, Ran, USAGE, WRITE, engines};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::time::Duration;
use synth::certificate::{Request, Verdict, certify};
use synth::evidence::Anchors;
use synth::program::Program;
use synth::report::Listing;
use synth::report::metrics::{Counts, measure};
use synth::suffix::{Origin, Suffix};
use vmm::elfcore::Core;
use vmm::elfcore::write::{Area, Contents, write};
use vmm::recording::Recording;
use x86::state::State;

const DIVIDES: &str =
    "int main(int argc, char **argv) { volatile int zero = argc - 1; return argc / zero; }\n";

/// Fails with one of gretel's own codes, and writes no suffix.
fn refused(place: &Place, arguments: &[&str]) -> Ran {
    let ran = place.gretel(&[&["synth", "-o", "suffix"], arguments].concat());
    assert!((USAGE..=126).contains(&ran.code), "{arguments:?}: {} {}", ran.code, ran.err);
    assert_eq!(ran.out(), "", "{arguments:?}");
    assert!(!place.path("suffix").exists(), "{arguments:?}");
    ran
}

#[test]
fn what_is_no_crash_is_refused() {
    let place = Place::new();
    place.write("text", "no core at all\n");
    place.write("empty", "");
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "exits", "--", "busybox", "true"]);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    for (input, message) in [
        ("text", "is not an x86-64 ELF core"),
        ("empty", "is not an x86-64 ELF core"),
        ("missing", "missing"),
        ("exits", "did not crash"),
    ] {
        let ran = refused(&place, &[input]);
        let code = if input == "exits" { USAGE } else { DAMAGED };
        assert_eq!(ran.code, code, "{input}: {}", ran.err);
        assert!(ran.err.contains(message), "{input}: {}", ran.err);
    }
}

#[test]
fn a_core_needs_its_program() {
    let place = Place::new();
    let Some(_program) = place.compile("divides", DIVIDES) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./divides"]);
    assert_eq!(recorded.code, 128 + 8, "{}", recorded.err);
    let missing = refused(&place, &["--exe", "gone", "rec"]);
    assert_eq!(missing.code, DAMAGED, "{}", missing.err);
    assert!(missing.err.contains("gone"), "{}", missing.err);
    place.write("text", "no program\n");
    let other = refused(&place, &["--exe", "text", "rec"]);
    assert!([DAMAGED, PROGRAM].contains(&other.code), "{}", other.err);
    assert!(other.err.contains("text"), "{}", other.err);
    fs::create_dir(place.path("alone")).unwrap();
    fs::copy(place.path("rec/core"), place.path("alone/core")).unwrap();
    fs::remove_file(place.path("divides")).unwrap();
    let unnamed = refused(&place, &["alone/core"]);
    assert_eq!(unnamed.code, USAGE, "{}", unnamed.err);
    assert!(unnamed.err.contains("--exe"), "{}", unnamed.err);
}

/// What is left of a cut core either is too little, or is worked with; it is never a panic.
#[test]
fn a_cut_core_is_refused_or_gets_a_verdict() {
    let place = Place::new();
    let Some(_program) = place.compile("divides", DIVIDES) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./divides"]);
    let whole = fs::read(place.path("rec/core")).unwrap();
    let first = refused_when_cut(&place, &whole[..100]);
    assert!(first.err.contains("cut"), "{}", first.err);
    for tenths in [1, 5, 9] {
        fs::write(place.path("rec/core"), &whole[..whole.len() * tenths / 10]).unwrap();
        let ran = place.gretel(&["synth", "rec", "--fuel", "1", "--instructions", "20"]);
        assert!((0..=2).contains(&ran.code) || ran.code == DAMAGED, "{tenths}/10: {} {}", ran.code, ran.err);
        assert!(ran.err.contains("rec/core"), "what is missing is said: {tenths}/10: {}", ran.err);
    }
}

/// Work is counted, not timed: what comes out of a core is the same each time, but for how long it took.
#[test]
fn the_same_core_gives_the_same_answer() {
    let place = Place::new();
    let Some(_program) = place.compile("divides", DIVIDES) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./divides"]);
    let answer = || {
        let ran =
            place.gretel(&["synth", "rec", "--no-kvm", "--fuel", "0.5", "--instructions", "10000", "--json"]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        let mut answer: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
        let search = answer["search"].as_object_mut().unwrap();
        assert!(search.remove("seconds").is_some());
        assert!(search["fuel"].as_f64().is_some_and(|fuel| fuel > 0.0));
        answer
    };
    assert_eq!(answer(), answer());
}

/// Where far branches are recorded, the way back from a system call is among the records. It is no branch of the program:
/// taken for one, it would refute what really happened.
#[test]
fn records_of_the_way_back_from_the_kernel_refute_nothing() {
    let place = Place::new();
    let source = r#"
        #include <unistd.h>
        int main(int argc, char **argv) { write(1, "x", 1); volatile int zero = argc - 1; return argc / zero; }"#;
    let Some(_program) = place.compile("writes", source) else { return };
    let filters = ["0x1", "any"];
    for filter in filters {
        let options = ["--engine", "soft", "--filter", filter, "-o", filter, "--", "./writes"];
        let recorded = place.gretel(&[&["record"], &options[..]].concat());
        assert_eq!(recorded.code, 128 + 8, "{}", recorded.err);
        let ran = place.gretel(&["synth", filter, "--no-kvm", "--instructions", "40", "--fuel", "60"]);
        assert_eq!(ran.code, 0, "{filter}: {}{}", ran.out(), ran.err);
        assert!(ran.out().contains("the last 40 of 40 instructions are the true ones"), "{}", ran.out());
    }
}

/// A core as Linux would have written it, with these other threads and with `marked[1]`, which was 0, being 1.
fn forged(path: &Path, core: &Core, others: Vec<(i32, State)>) {
    let contents = Contents {
        state: core.state,
        others,
        signal: core.signal,
        process: core.process.clone(),
        auxv: core.auxv.clone(),
        files: core.files.clone(),
        ..Contents::default()
    };
    let areas = core.segments.iter().map(|s| Area { start: s.start, end: s.end, rights: s.rights });
    let areas: Vec<Area> = areas.collect();
    let mark = MARK.to_le_bytes();
    write(fs::File::create(path).unwrap(), &contents, &areas, &mut |at, page| {
        let held = core.read(at, page);
        if let Some(found) = page.windows(8).position(|bytes| bytes == mark) {
            page[found + 8] = 1;
        }
        held
    })
    .unwrap();
}

const MARK: u64 = 0x1122_3344_5566_7788;

/// A race: one thread finds a variable to be 0, and before it has crashed another one has made it 1.
#[test]
fn what_another_thread_may_have_stored_refutes_nothing() {
    let place = Place::new();
    let source = r#"
        static volatile long marked[2] = { 0x1122334455667788, 0 };
        int main(void) {
            asm volatile("mov %0, %%rcx; cmp $0, %%rcx; jne 1f; mov 0x10, %%al; 1:" :: "m"(marked[1]) : "rax", "rcx", "cc");
            return marked[0] == 0;
        }"#;
    let Some(_program) = place.compile("race", source) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./race"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let core = Core::open(&place.path("rec/core")).unwrap();
    let synth = |others: Vec<(i32, State)>| {
        forged(&place.path("forged"), &core, others);
        place.gretel(&["synth", "--exe", "race", "--no-kvm", "forged"])
    };
    let alone = synth(Vec::new());
    assert_eq!(alone.code, 1, "{}{}", alone.out(), alone.err);
    assert!(!alone.err.contains("threads"), "{}", alone.err);
    // The one bit that was changed explains the core.
    let explains =
        |line: &str| line.contains("bit 0 of the byte at 0x") && line.contains("turned explains this core");
    assert!(alone.err.lines().any(explains), "{}", alone.err);
    let raced = synth(vec![(core.process.pid + 1, core.state)]);
    assert_eq!(raced.code, 0, "{}{}", raced.out(), raced.err);
    assert!(raced.err.contains("2 threads may have run at the same time"), "{}", raced.err);
}

/// Two ways meet, and neither is refuted: what chose between them is overwritten. The one that was not taken lies right before, and
/// has what it leaves from registers that are lost; what memory and registers hold agrees with the other one.
#[test]
fn of_two_ways_the_one_that_memory_agrees_with_is_taken() {
    let place = Place::new();
    let source = r#"
        static volatile int choice = 1;
        static volatile long x;
        int main(void) {
            asm volatile("mov %0, %%r8d; test %%r8d, %%r8d; jne 1f; mov %%r9, %%rbx; lea 5(%%r10), %%rcx;"
                         "2: xor %%r8d, %%r8d; xor %%r9d, %%r9d; xor %%r10d, %%r10d; movl $7, %0; mov 0x10, %%al;"
                         "1: mov $0x55667788, %%ecx; mov $0x11223344, %%ebx; mov %%rbx, %1; jmp 2b"
                         : "+m"(choice), "+m"(x) :: "rax", "rbx", "rcx", "r8", "r9", "r10", "cc", "memory");
            return 0;
        }"#;
    let Some(_program) = place.compile("meets", source) else { return };
    let recorded = place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./meets"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let ran = place.gretel(&["synth", "rec", "--json", "--no-kvm", "--records", "0", "--crumbs", "none"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out(), ran.err);
    let result: Value = serde_json::from_str(&ran.out()).unwrap();
    let path = &result["metrics"]["path"];
    assert!(path["common"].as_u64() >= Some(10), "the other way was taken: {path}");
}

#[test]
fn a_time_that_no_clock_counts_is_refused() {
    for time in ["1.84e19", "1e9", "-1", "NaN", "inf", "soon"] {
        let ran = refused(&Place::new(), &[&format!("--time={time}"), "core"]);
        assert_eq!(ran.code, USAGE, "{time}: {}", ran.err);
        assert!(ran.err.contains("a year at most"), "{time}: {}", ran.err);
    }
}

fn refused_when_cut(place: &Place, core: &[u8]) -> Ran {
    fs::write(place.path("rec/core"), core).unwrap();
    let ran = refused(place, &["rec"]);
    assert_eq!(ran.code, DAMAGED, "{}", ran.err);
    ran
}

/// A crash inside a repeated string instruction: it does not retire, and some of its iterations are done.
const REPEATS: &str = r#"
#include <string.h>
#include <sys/mman.h>
static char from[4096];
int main(int argc, char **argv) {
    char *to = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(to + 4096, 4096);
    memset(to, 0xaa, 4096);
    for (int i = 0; i < 4096; i++) from[i] = i * argc;
    char *at = to + 4096 - 37, *source = from;
    long count = 100;
    asm volatile("rep movsb" : "+D"(at), "+S"(source), "+c"(count) :: "memory");
    return *at;
}
"#;

#[test]
fn a_crash_inside_a_repeated_string_instruction_is_certified() {
    let place = Place::new();
    let Some(_program) = place.compile("repeats", REPEATS) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./repeats"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        let replays: Vec<_> = engines().iter().map(|replayer| place.replay(engine, replayer)).collect();
        assert!(replays.windows(2).all(|pair| pair[0]["digest"] == pair[1]["digest"]), "{replays:?}");
        let arguments = ["synth", engine, "--records", "16", "--instructions", "100", "--json"];
        let ran = place.gretel(&arguments);
        let result: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
        assert_eq!((ran.code, &result["verdict"]), (0, &"certified".into()), "{result} {}", ran.err);
        let listing = &result["listing"];
        let mut certified: Vec<_> = listing["summary"]["engines"].as_array().unwrap().iter().collect();
        certified.sort_by_key(|name| std::cmp::Reverse(name.as_str()));
        assert_eq!(certified, engines(), "{listing}");
        let last = listing["steps"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["text"], &last["iterations"]),
            (&"rep movsb [rdi], [rsi]".into(), &37.into()),
            "{last}"
        );
        assert!(
            listing["crash"]["cause"].as_str().unwrap().starts_with("cannot use the memory"),
            "{listing}"
        );
        agrees_with_the_listing(&result);
    }
}

/// Runs a repeated string instruction whose count is zero.
const COPIES_NOTHING: &str = r#"
int main(int argc, char **argv) {
    char from[8] = "nothing", to[8];
    char *at = to, *source = from;
    long count = argc - 1;
    volatile int zero = argc - 1;
    asm volatile("rep movsb" : "+D"(at), "+S"(source), "+c"(count) :: "memory");
    return argc / zero;
}
"#;

#[test]
fn a_repeated_string_instruction_with_nothing_to_do_is_gone_past() {
    let place = Place::new();
    let Some(_program) = place.compile("copies", COPIES_NOTHING) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./copies"]);
    let ran = place.gretel(&["synth", "--json", "--records", "0", "--instructions", "12", "rec"]);
    let result: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
    assert_eq!((ran.code, &result["verdict"]), (0, &"certified".into()), "{result} {}", ran.err);
    let steps = result["listing"]["steps"].as_array().unwrap();
    let copy = steps.iter().find(|step| step["text"].as_str().unwrap().starts_with("rep movsb"));
    assert_eq!(copy.expect("the suffix goes past it")["iterations"], 0, "{result}");
    assert_eq!(result["metrics"]["path"]["equal"], true, "{}", result["metrics"]);
}

/// Every value that the listing shows as read is right, wrong or unknown, and here the path is the true one.
fn agrees_with_the_listing(result: &Value) {
    let steps = result["listing"]["steps"].as_array().unwrap();
    let read: usize = steps.iter().map(|step| step["reads"].as_array().unwrap().len()).sum();
    let (metrics, number) = (&result["metrics"], |value: &Value| value.as_u64().unwrap());
    let path = &metrics["path"];
    assert_eq!((&path["length"], &path["common"]), (&steps.len().into(), &steps.len().into()), "{metrics}");
    let uses = &metrics["uses"];
    assert_eq!(number(&uses["right"]) + number(&uses["wrong"]), read as u64, "{metrics}");
    assert_eq!((number(&uses["unknown"]), number(&metrics["start"]["unknown"])), (0, 0), "{metrics}");
    assert!(number(&uses["chosen"]) <= number(&uses["wrong"]), "{metrics}");
    // The last iterations of the copy, and what led to it, are all determined by the core.
    assert!(number(&uses["right"]) > 20, "{metrics}");
}

/// A suffix whose values are all known is right in all of them; one that is changed is wrong in what was changed.
#[test]
fn values_are_measured_against_the_recording() {
    let place = Place::new();
    let Some(_program) = place.compile("divides", DIVIDES) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./divides"]);
    let ran = place.gretel(&["synth", "rec", "--instructions", "3", "-o", "suffix"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let said = "against the recording: the last 3 of 3 instructions are the true ones";
    assert!(ran.out().contains(said), "{}", ran.out());

    let core = Core::open(&place.path("rec/core")).unwrap().with_executable(&place.path("divides")).unwrap();
    let program = Program::from_bytes(&fs::read(place.path("divides")).unwrap(), 0).unwrap();
    let recording = Recording::open(&place.path("rec")).unwrap();
    let suffix = Suffix::load(&place.path("suffix")).unwrap();
    let (records, time) = (&[][..], Duration::from_secs(1));
    let anchors = &Anchors::NONE;
    let request = Request { core: &core, suffix: &suffix, records, recorded: &[], anchors, time, kvm: false };
    let Verdict::Certified(certificate) = certify(&request).unwrap() else { panic!("certified above") };
    let measured = |suffix: &Suffix| {
        let listing = Listing::new(&program, &core, suffix, &certificate).unwrap();
        let soft = vmm::engine::open(vmm::engine::EngineKind::Soft, vmm::ram::for_replay()).unwrap();
        measure(&recording, soft, suffix, &listing).unwrap()
    };
    let truth = measured(&suffix);
    assert!(truth.path.equal && truth.uses.right > 0, "{truth:?}");
    assert_eq!((truth.uses.wrong, truth.uses.unknown), (0, 0), "{truth:?}");

    // r15 is not used in these instructions: the core has it.
    for (origin, chosen) in [(Origin::Core, 0), (Origin::Chosen, 1)] {
        let mut other = suffix.clone();
        other.start.regs.gpr[15] ^= 1;
        other.registers.gpr[15] = origin;
        let expected = Counts {
            right: truth.start.right - 1,
            wrong: truth.start.wrong + 1,
            chosen: truth.start.chosen + chosen,
            unknown: 0,
        };
        assert_eq!(measured(&other).start, expected);
    }
    // What one instruction less knows is not about the same instructions of the truth.
    let mut shorter = suffix.clone();
    shorter.path.pop();
    let measured = measured(&shorter);
    assert_eq!((measured.path.common, measured.path.length), (0, 2), "{measured:?}");
    assert_eq!((measured.uses.right, measured.uses.wrong, measured.start.right), (0, 0, 0), "{measured:?}");
    assert!(measured.uses.unknown > 0 && measured.start.unknown >= 16, "{measured:?}");
}

#[test]
fn a_suffix_that_cannot_be_written_has_its_own_code() {
    let place = Place::new();
    let Some(_program) = place.compile("divides", DIVIDES) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./divides"]);
    let ran = place.gretel(&["synth", "rec", "--instructions", "3", "-o", "no-such-folder/suffix"]);
    assert_eq!(ran.code, WRITE, "{}", ran.err);
    assert!(ran.err.contains("no-such-folder/suffix"), "{}", ran.err);
}

/// Calls an address that is not canonical, and before that other functions at the same depth.
const CALLS_TEXT: &str = r#"
__attribute__((noinline)) static void first(char *text) { for (int n = 0; n < 8; n++) text[n] = 'A'; }
int main(void) {
    static char text[8];
    first(text);
    (*(void (**)(void))text)();
    return 0;
}
"#;

#[test]
fn a_call_of_text_is_certified_without_what_it_stored() {
    let place = Place::new();
    let Some(_program) = place.compile("text", CALLS_TEXT) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./text"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        let replays: Vec<_> = engines().iter().map(|replayer| place.replay(engine, replayer)).collect();
        assert!(replays.windows(2).all(|pair| pair[0]["digest"] == pair[1]["digest"]), "{replays:?}");
        let ran = place.gretel(&["synth", engine, "--instructions", "100", "--json"]);
        let result: Value = serde_json::from_str(&ran.out()).expect("--json prints JSON");
        assert_eq!((ran.code, &result["verdict"]), (0, &"certified".into()), "{result} {}", ran.err);
        let left_out = result["listing"]["summary"]["dont_care"].to_string();
        assert!(left_out.contains("8 bytes of memory at"), "{left_out}");
    }
}

/// Interrupted while it waits, by a handler that ends the wait; then it crashes.
const INTERRUPTED: &str = r"
#include <signal.h>
#include <unistd.h>
static volatile int count;
static void handler(int number) { count += number; }
int main(void) {
    signal(SIGALRM, handler);
    count = 100;
    ualarm(1000, 0);
    while (count < 110) {}
    *(volatile int *)0x10 = 1;
    return 0;
}
";

#[test]
fn a_crash_behind_a_handler_is_not_called_infeasible() {
    let place = Place::new();
    if place.compile("interrupted", INTERRUPTED).is_none() {
        return;
    }
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./interrupted"]);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        for crumbs in ["counts", "none"] {
            let ran = place.gretel(&["synth", engine, "--fuel", "2", "--crumbs", crumbs]);
            assert_ne!(ran.code, 1, "it happened: {engine}, {crumbs}: {}{}", ran.out(), ran.err);
        }
    }
}
