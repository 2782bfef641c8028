//! Suffixes through signals: into a handler by the frame that its signal left, and back out of one that has returned.

use crate::{Place, engines};
use serde_json::Value;

/// What happens is said by the first argument.
const SIGNALS: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
static volatile int *nobody;
static volatile int values[8] = { 3, 1, 4, 1, 5, 9, 2, 6 };
static volatile int seen, ticks;
__attribute__((noinline)) static int fold(int n) {
    int s = n;
    for (int i = 0; i < 8; i++) s = s * 3 + values[i];
    return s;
}
static void crash(int signal) { seen = fold(signal); *nobody = seen; }
static void count(int signal) { seen = fold(signal); ticks++; }
static void fault(int signal, siginfo_t *info, void *context) {
    (void)context;
    seen = fold(signal);
    ((volatile int *)info->si_addr)[4] = seen;
}
static char other[16384];
static void handle(int signal, void *handler, int flags) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(signal, &action, 0);
}
static void alarm_soon(void) {
    struct itimerval soon = { { 0, 0 }, { 0, 3000 } };
    setitimer(ITIMER_REAL, &soon, 0);
}
int main(int argc, char **argv) {
    char what = argv[1][0];
    int s = fold(argc);
    if (what == 'o') {
        stack_t stack = { .ss_sp = other, .ss_size = sizeof other };
        sigaltstack(&stack, 0);
    }
    if (what == 'r' || what == 'o') { handle(SIGUSR1, crash, what == 'o' ? SA_ONSTACK : 0); s = fold(s); raise(SIGUSR1); }
    if (what == 'k') { handle(SIGUSR1, crash, 0); s = fold(s); kill(getpid(), SIGUSR1); }
    if (what == 's') { handle(SIGSEGV, fault, SA_SIGINFO); s = fold(s); *nobody = s; }
    if (what == 'a') { handle(SIGALRM, crash, 0); alarm_soon(); for (;;) s = fold(argc); }
    if (what == 'b') { handle(SIGUSR1, count, 0); s = fold(s); raise(SIGUSR1); s = fold(s); *nobody = s; }
    if (what == 't') { handle(SIGALRM, count, 0); alarm_soon(); while (!ticks) s = fold(argc); s = fold(s); *nobody = s; }
    return s;
}
"#;

/// The crash of [`SIGNALS`] with this argument, on this engine, and what synth says of it.
fn synthesized(place: &Place, engine: &str, what: &str, records: &str) -> Option<Value> {
    if !place.path("signals").exists() {
        place.compile("signals", SIGNALS)?;
    }
    let recording = format!("{engine}-{what}");
    let recorded = place.gretel(&["record", "--engine", engine, "-o", &recording, "--", "./signals", what]);
    assert_eq!(recorded.code, 128 + 11, "{what} on {engine}: {}", recorded.err);
    let suffix = format!("{recording}.suffix");
    let ran =
        place.gretel(&["synth", "--json", "--records", records, "--fuel", "3", "-o", &suffix, &recording]);
    assert_eq!(ran.code, 0, "{what} on {engine}: {}", ran.err);
    Some(serde_json::from_str(&ran.out()).expect("--json prints JSON"))
}

/// The suffix is of these functions, true for as long as it is forced and beyond, and nothing wrong is without a mark.
fn is_true(found: &Value, functions: &[&str], least: u64) {
    let (listing, metrics) = (&found["listing"], &found["metrics"]);
    let common = metrics["path"]["common"].as_u64().expect("compared with the recording");
    let forced = listing["summary"]["forced"].as_u64().expect("a number");
    assert!(common >= forced.max(least), "{common} true, {forced} forced: {}", listing["summary"]);
    let steps = listing["steps"].as_array().expect("a list");
    let of = |step: &Value| step["function"].as_str().unwrap_or_default().to_owned();
    let from = steps.len() - usize::try_from(common).expect("not more than there are");
    for function in functions {
        assert!(
            steps[from..].iter().any(|step| of(step).starts_with(function)),
            "nothing true is of {function}"
        );
    }
    assert_eq!(metrics["uses"]["wrong"], metrics["uses"]["chosen"], "a wrong value has no mark");
    assert_eq!(listing["summary"]["records"], listing["summary"]["given"], "{}", listing["summary"]);
}

/// The signals that came, with the address of the instruction that each interrupted.
fn came(found: &Value) -> Vec<(String, bool)> {
    let steps = found["listing"]["steps"].as_array().expect("a list");
    let all = steps.iter().chain([&found["listing"]["crash"]]).filter_map(|step| step["came"].as_array());
    let came =
        all.flatten().map(|it| (it["name"].as_str().unwrap_or_default().to_owned(), it["raised"] == true));
    came.collect()
}

fn engines_of(found: &Value) -> Vec<&str> {
    let all = found["listing"]["summary"]["engines"].as_array().expect("a list");
    all.iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_suffix_goes_from_a_handler_to_what_its_signal_interrupted() {
    let place = Place::new();
    for engine in engines() {
        for (what, name, is_raised, function) in [
            ("r", "SIGUSR1", false, "raise"),
            ("k", "SIGUSR1", false, "kill"),
            ("o", "SIGUSR1", false, "raise"),
            ("s", "SIGSEGV", true, "main"),
        ] {
            let Some(found) = synthesized(&place, engine, what, "16") else { return };
            is_true(&found, &["fold", if what == "s" { "fault" } else { "crash" }, function], 90);
            assert_eq!(came(&found), [(name.to_owned(), is_raised)], "{what} on {engine}");
            assert_eq!(engines_of(&found), engines(), "{what} on {engine}");
        }
    }
}

/// The instruction that a timer's signal comes before is told by nothing but its frame.
#[test]
fn a_signal_between_two_instructions_is_delivered_there() {
    let place = Place::new();
    for engine in engines() {
        let Some(found) = synthesized(&place, engine, "a", "16") else { return };
        is_true(&found, &["fold", "crash"], 90);
        assert_eq!(came(&found), [("SIGALRM".to_owned(), false)], "{engine}");
        let summary = &found["listing"]["summary"];
        // The timer may go off where KVM stops.
        let expected = match engines_of(&found).contains(&"kvm") {
            true => (vec!["soft", "kvm"], Value::Null),
            false => (vec!["soft"], Value::from("a signal comes where KVM does not stop")),
        };
        assert_eq!((engines_of(&found), summary["without_kvm"].clone()), expected);
    }
}

#[test]
fn a_suffix_goes_back_into_a_handler_that_has_returned() {
    let place = Place::new();
    for engine in engines() {
        for what in ["b", "t"] {
            let Some(found) = synthesized(&place, engine, what, "32") else { return };
            is_true(&found, &["main", "fold", "__restore_rt", "count"], 80);
            assert_eq!(engines_of(&found)[0], "soft", "{what} on {engine}");
        }
    }
}

/// The frame is checked against the state at which the run stands, and what was not compared is said.
#[test]
fn a_frame_that_says_something_else_is_not_certified() {
    let place = Place::new();
    let Some(found) = synthesized(&place, "soft", "r", "16") else { return };
    let dont_care = found["listing"]["summary"]["dont_care"].to_string();
    assert!(dont_care.contains("of signals: who sent them"), "{dont_care}");
    let file = place.path("soft-r.suffix");
    let verify = |name: &str| place.gretel(&["verify", "--no-kvm", name, "soft-r"]);
    assert_eq!(verify("soft-r.suffix").code, 0);
    let text = std::fs::read_to_string(&file).expect("the suffix was saved");
    let frame = text.find("\"signals\":[{").expect("it has a signal");
    let writes = frame + text[frame..].find("\"writes\":[[\"").expect("what was stored");
    let digits = writes + text[writes..].find("\",\"").expect("the bytes") + 3;
    // The return address, then the ucontext: r8 is its sixth word, and rip the twenty-second.
    for (word, what) in [(1 + 5, "r8"), (1 + 21, "rip")] {
        let at = digits + 16 * word;
        let digit = if &text[at..=at] == "5" { "6" } else { "5" };
        place.write("changed", format!("{}{digit}{}", &text[..at], &text[at + 1..]));
        let verified = verify("changed");
        assert!(
            verified.code == 1 && verified.out().contains(&format!("{what} in the frame of signal 10")),
            "{what}: {}",
            verified.out()
        );
    }
    // Another place for it.
    let at = frame + text[frame..].find("\"frame\":\"0x").expect("its place") + 11;
    place.write("changed", format!("{}1{}", &text[..at], &text[at..]));
    assert_eq!(verify("changed").code, 1);
}
