//! `gretel synth` beside its verdict: why it stopped, what other solvers say of what it refuted, and what a crash may be
//! used for.

use super::{Place, Ran, USAGE, skipped};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use z3::{SatResult, Solver};

/// Where nothing tells an address: it was in a register that was overwritten since.
const FORGETS: &str = r#"
static long cells[64];
int main(int argc, char **argv) {
    long *at = cells + (argc * 37 & 63);
    for (int i = 0; i < 200; i++) argc += i;
    asm volatile("movq $0, (%0); mov $0, %0" : "+r"(at) :: "memory");
    for (int i = 0; i < 40; i++) argc += i * argc;
    return *(volatile int *)(long)(argc - argc);
}
"#;

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out()).unwrap_or_else(|error| panic!("{error}: {}{}", ran.out(), ran.err))
}

#[test]
fn why_it_stopped_is_explained_with_places() {
    let place = Place::new();
    let Some(_program) = place.compile("forgets", FORGETS) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./forgets"]);
    let ran = place.gretel(&["synth", "--no-kvm", "--explain", "--json", "rec"]);
    let result = json(&ran);
    assert_eq!((ran.code, &result["verdict"]), (0, &"certified".into()), "{result} {}", ran.err);
    let explain = &result["explain"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {explain}"));
    assert_eq!(
        number(&explain["certified"]),
        number(&result["listing"]["summary"]["instructions"]),
        "{explain}"
    );
    assert!(number(&explain["searched"]) >= number(&explain["certified"]), "{explain}");
    assert_eq!(explain["searched"], result["search"]["searched"]);
    assert!(!explain["certificates"].as_array().unwrap().is_empty(), "{explain}");
    // What is certified is the newest part of what was searched, so the search is true at least as far.
    let parting = &explain["parting"];
    let is_true = number(&result["metrics"]["path"]["common"]);
    assert!(
        (is_true..=number(&explain["searched"])).contains(&number(&parting["instructions"])),
        "{explain}"
    );
    for side in ["at", "came_from"] {
        assert!(parting[side]["address"].as_str().unwrap().starts_with("0x"), "{side}: {parting}");
    }
    assert_ne!(parting["came_from"], parting["went_to"], "they part there");
    // Each barrier of the summary is at some place, as often.
    let barriers = explain["barriers"].as_array().unwrap();
    for (why, times) in result["search"]["barriers"].as_object().unwrap() {
        let at = barriers.iter().filter(|barrier| barrier["why"] == why.as_str());
        assert_eq!(
            at.map(|barrier| number(&barrier["times"])).sum::<u64>(),
            number(times),
            "{why}: {explain}"
        );
    }
    for barrier in barriers {
        assert!(barrier["at"]["address"].as_str().unwrap().starts_with("0x"), "{barrier}");
        assert!(!barrier["would_help"].as_str().unwrap().is_empty(), "{barrier}");
    }
    // More records of one kind never cover less.
    let windows = explain["windows"].as_array().unwrap();
    assert_eq!(windows.iter().filter(|window| window["used"] == true).count(), 1, "{explain}");
    for pair in windows.windows(2).filter(|pair| pair[0]["filter"] == pair[1]["filter"]) {
        assert!(number(&pair[0]["instructions"]) <= number(&pair[1]["instructions"]), "{explain}");
    }
    let used = windows.iter().find(|window| window["used"] == true).unwrap();
    assert_eq!(
        (&used["instructions"], &explain["windows_of"]),
        (&result["listing"]["summary"]["covered"], &"recording".into()),
        "what the records cover is what the suffix says"
    );
    for phase in ["search", "solver", "addresses", "certificates", "judging", "flips"] {
        assert!(explain["seconds"][phase].is_f64(), "{explain}");
        assert!(result["search"]["seconds"][phase].is_f64(), "{result}");
    }
    let text = place.gretel(&["synth", "--no-kvm", "--explain", "rec"]).out();
    for line in [
        "why it goes no further back:",
        "the suffix begins ",
        "would help: ",
        "of what was searched",
        "certificates tried",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let without = place.gretel(&["synth", "--no-kvm", "--instructions", "3", "--json", "rec"]);
    assert_eq!(json(&without)["explain"], Value::Null);
}

/// Says that a variable is 0 where it is 1: the core cannot be.
const RACE: &str = r#"
static volatile long marked[2] = { 0x1122334455667788, 0 };
int main(void) {
    asm volatile("mov %0, %%rcx; add %%rcx, %%rcx; cmp $0, %%rcx; jne 1f; mov 0x10, %%al; 1:" :: "m"(marked[1]) : "rax", "rcx", "cc");
    return marked[0] == 0;
}
"#;

/// Records a program whose core is then changed: no execution ends in it.
fn impossible(place: &Place) -> Option<()> {
    place.compile("race", RACE)?;
    assert_eq!(place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./race"]).code, 128 + 11);
    let mut core = fs::read(place.path("rec/core")).unwrap();
    let mark = 0x1122_3344_5566_7788_u64.to_le_bytes();
    let at = core.windows(8).position(|bytes| bytes == mark).expect("the variable is in the core");
    core[at + 8] = 1;
    place.write("forged", &core);
    Some(())
}

#[test]
fn another_solver_confirms_what_was_refuted() {
    let place = Place::new();
    if impossible(&place).is_none() {
        return;
    }
    let arguments =
        ["synth", "--exe", "race", "--no-kvm", "--records", "0", "--smt-lib", "smt", "--json", "forged"];
    let ran = place.gretel(&arguments);
    let result = json(&ran);
    assert_eq!((ran.code, &result["verdict"]), (1, &"infeasible".into()), "{result} {}", ran.err);
    let mut scripts = 0;
    for file in fs::read_dir(place.path("smt")).unwrap() {
        let script = fs::read_to_string(file.unwrap().path()).unwrap();
        let solver = Solver::new();
        solver.from_string(script.replace("(check-sat)\n(exit)\n", ""));
        assert!(!solver.get_assertions().is_empty(), "{script}");
        assert_eq!(solver.check(), SatResult::Unsat, "{script}");
        scripts += 1;
    }
    let written = &result["search"]["refutations"];
    let sum: u64 =
        ["propagation", "solver", "addresses"].map(|by| written[by].as_u64().unwrap()).iter().sum();
    assert!(scripts > 0 && sum == scripts, "{scripts} files, {written}");
    let again = place.gretel(&arguments);
    assert_eq!(again.code, USAGE, "{}", again.err);
    assert!(again.err.contains("smt is not empty"), "{}", again.err);
    // Of what happened there is nothing to refute.
    let true_core = place.gretel(&["synth", "--no-kvm", "--instructions", "3", "--smt-lib", "none", "rec"]);
    assert!(true_core.err.contains("nothing is written to none"), "{}", true_core.err);
    assert!(!place.path("none").exists());
}

const TAINTED: &str = r#"
#include <string.h>
#include <unistd.h>
static char input[64];
int main(int argc, char **argv) {
    if (read(0, input, 64) < 16) return 1;
    unsigned long where;
    memcpy(&where, input, 8);
    if (input[8] == 'w') *(volatile long *)(where ^ 0x4141414100000000) = 7;
    if (input[8] == 'r') return *(volatile char *)where;
    if (input[8] == 'j') ((void (*)(void))where)();
    if (input[8] == 'n') *(volatile int *)8 = 1;
    if (input[8] == 'd') return 10 / (input[9] - '0');
    return 0;
}
"#;

#[test]
fn what_input_has_come_to_is_told() {
    let place = Place::new();
    let Some(_program) = place.compile("tainted", TAINTED) else { return };
    for (kind, class, tainted) in [
        ('w', "exploitable", Some("address")),
        ('r', "probably", Some("address")),
        ('j', "exploitable", Some("target")),
        ('n', "probably-not", None),
        ('d', "probably-not", None),
    ] {
        let name = format!("rec-{kind}");
        let arguments = ["record", "--engine", "soft", "-o", &name, "--", "./tainted"];
        let mut record = place.command(env!("CARGO_BIN_EXE_gretel"), &arguments);
        let mut child =
            record.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(format!("AAAAAAAA{kind}0123456").as_bytes()).unwrap();
        assert!(!child.wait().unwrap().success());
        let result = json(&place.gretel(&["synth", "--no-kvm", "--json", &name]));
        let found = &result["exploitability"];
        assert_eq!(found["class"], class, "{kind}: {found}");
        let places = found["tainted"].as_array().unwrap();
        let of_crash = |it: &&Value| ["address", "target"].iter().any(|name| it["place"] == *name);
        let place_of_crash = places.iter().find(of_crash);
        assert_eq!(place_of_crash.map(|it| it["place"].as_str().unwrap()), tainted, "{kind}: {found}");
        let Some(at) = place_of_crash else { continue };
        let source = &found["sources"][usize::try_from(at["from"][0].as_u64().unwrap()).unwrap()];
        assert_eq!(source["name"], "read", "{kind}: {found}");
        // The suffix ends behind the call: that the memory is still what was read is likely, and no more is said.
        assert_eq!(
            (&source["before_crash"], &source["likely"]),
            (&Value::Null, &true.into()),
            "{kind}: {found}"
        );
        assert_ne!(found["certainty"], "forced", "{kind}: {found}");
    }
}

#[test]
fn a_suffix_replaces_no_file() {
    let place = Place::new();
    let Some(_program) = place.compile("forgets", FORGETS) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./forgets"]);
    place.write("kept", "dear");
    let ran = place.gretel(&["synth", "rec", "--instructions", "3", "-o", "kept"]);
    assert_eq!(ran.code, USAGE, "{}", ran.err);
    assert!(ran.err.contains("kept exists already"), "{}", ran.err);
    assert_eq!(fs::read_to_string(place.path("kept")).unwrap(), "dear");
}

/// On a terminal the listing is as wide as that, and coloured; elsewhere it is neither.
#[test]
fn a_listing_fits_its_terminal() {
    let place = Place::new();
    let Some(_program) = place.compile("forgets", FORGETS) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./forgets"]);
    let command = format!("{} synth --no-kvm --instructions 40 rec", env!("CARGO_BIN_EXE_gretel"));
    let on_terminal = |set: &str| {
        let line = format!("stty rows 24 cols 80; {set} {command} 2>/dev/null");
        let ran = place.command("script", &["-qec", &line, "/dev/null"]).env("TERM", "xterm").output();
        ran.ok()
            .filter(|ran| ran.status.success())
            .map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let Some(coloured) = on_terminal("") else { return skipped("a terminal", "script(1) is not here") };
    assert!(coloured.contains("\u{1b}[1;31mcrash: SIGSEGV"), "{coloured}");
    let plain = on_terminal("NO_COLOR=1").unwrap();
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let listed: Vec<&str> = plain.lines().skip_while(|line| !line.starts_with("marks:")).collect();
    let steps = listed.iter().take_while(|line| !line.starts_with("crash:")).map(|line| line.trim_end());
    assert!(steps.clone().count() > 40 && steps.clone().all(|line| line.chars().count() <= 80), "{plain}");
    let piped = place.gretel(&["synth", "--no-kvm", "--instructions", "40", "rec"]).out();
    assert!(!piped.contains('\u{1b}'), "{piped}");
}
