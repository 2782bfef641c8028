//! Compiled code that is kept on disk: the next run takes it, does the same, and does without where it is damaged or not safe.

use crate::{Place, Ran, ran};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Some million rounds of a loop that is hot soon, with an SSE instruction in it; the sum tells whether it did right.
const LOOPS: &str = r#"
#include <stdio.h>
static unsigned long step(unsigned long x) { x ^= x << 13; x ^= x >> 7; return x ^ x << 17; }
int main(void) {
    unsigned long x = 88172645463325252ul, sum = 0;
    double halves = 0;
    for (long n = 0; n < 1500000; n++) { x = step(x); sum += x; if (n % 16 == 0) halves += 0.5; }
    printf("%lx %.1f\n", sum, halves);
    return 0;
}"#;

/// Records the program, and gives how many regions were compiled and how many taken.
fn recorded(place: &Place, caches: &str) -> (u64, u64) {
    let arguments = ["record", "--force", "--engine", "soft", "-o", "rec", "--", "./loops"];
    let run = of_code(place, caches, &arguments);
    assert_eq!((run.0.code, run.0.out().as_str()), (0, "3e5ebdbf20205963 46875.0\n"), "{}", run.0.err);
    (run.1, run.2)
}

/// A command with these caches: what became of code in it.
fn of_code(place: &Place, caches: &str, arguments: &[&str]) -> (Ran, u64, u64) {
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), arguments);
    let run = ran(command.env("XDG_CACHE_HOME", place.path(caches)).env("GRETEL_LOG", "x86_jit=debug"));
    let count = |what: &str| {
        let behind = run.err.split(&format!("{what}: ")).nth(1).unwrap_or_else(|| panic!("{}", run.err));
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().expect("a number")
    };
    let (regions, taken) = (count("regions"), count("taken"));
    (run, regions, taken)
}

#[test]
fn the_next_run_takes_the_code_of_the_first_and_replays_equal() {
    let place = Place::new();
    let Some(_program) = place.compile("loops", LOOPS) else { return };
    let (compiled, taken) = recorded(&place, "caches");
    assert!(compiled > 0 && taken == 0, "{compiled} {taken}");
    let files: Vec<_> = fs::read_dir(place.path("caches/gretel/code")).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let (again, taken) = recorded(&place, "caches");
    assert!(again < compiled && taken > 0, "{again} of {compiled}, {taken} taken");
    let replayed = of_code(&place, "caches", &["replay", "--engine", "soft", "rec"]);
    assert!(replayed.0.code == 0 && replayed.2 > 0, "{}", replayed.0.err);
    let without = of_code(&place, "none", &["replay", "--engine", "soft", "rec"]);
    assert!(without.0.code == 0 && without.2 == 0, "{}", without.0.err);
    assert_eq!(replayed.0.out(), without.0.out(), "the same digest");
}

#[test]
fn the_next_machine_of_a_kernel_takes_the_code_of_the_first_and_replays_equal() {
    let place = Place::new();
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/guest-images/build/bare-kernel");
    let record = ["record", "--kernel", kernel, "--cmdline", "spin", "--force", "-o", "rec"];
    let (first, compiled, taken) = of_code(&place, "caches", &record);
    assert!(first.code == 0 && compiled > 0 && taken == 0, "{compiled} {taken}: {}", first.err);
    let (second, again, taken) = of_code(&place, "caches", &record);
    assert!(second.code == 0 && again < compiled && taken > 0, "{again} of {compiled}, {taken} taken");
    let replayed = of_code(&place, "caches", &["replay", "rec", "--json"]);
    assert!(replayed.0.code == 0 && replayed.2 > 0, "{}", replayed.0.err);
    let without = of_code(&place, "none", &["replay", "rec", "--json"]);
    assert!(without.0.code == 0 && without.2 == 0, "{}", without.0.err);
    assert_eq!(replayed.0.out(), without.0.out(), "the same digest");
}

#[test]
fn what_is_damaged_or_not_safe_is_not_taken() {
    let place = Place::new();
    let Some(_program) = place.compile("loops", LOOPS) else { return };
    recorded(&place, "caches");
    let folder = place.path("caches/gretel/code");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let bytes = fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    fs::write(&file, damaged).unwrap();
    assert_eq!(recorded(&place, "caches").1, 0, "a bit is another one");
    assert!(recorded(&place, "caches").1 > 0, "the damaged file was written anew");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(recorded(&place, "caches").1, 0, "anybody may write there");
}
