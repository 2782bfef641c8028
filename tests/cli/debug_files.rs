//! Symbols and line tables that lie beside programs, and what is told of the wrong file.

use super::{Place, USAGE, skipped};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const CRASHES: &str = "
__attribute__((noinline)) static int hidden(int *p) { return *p + 1; }
int main(int argc, char **argv) { return hidden((int *)(long)(argc * 8)) + 1; }
";

/// A dynamic program whose symbols were taken out of it into `debug`.
fn stripped(place: &Place) -> bool {
    place.write("prog.c", CRASHES);
    let made = place.sh(
        "gcc -g -O1 -Wl,--build-id -o prog prog.c && objcopy --only-keep-debug --compress-debug-sections prog debug && strip prog",
    );
    if made.code != 0 {
        skipped("separate debug information", &made.err);
        return false;
    }
    true
}

fn places(place: &Place, environment: &[(&str, &str)]) -> (Vec<String>, String) {
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &["core", "--json", "rec"]);
    command.env_remove("DEBUGINFOD_URLS");
    environment.iter().for_each(|(name, value)| _ = command.env(name, value));
    let ran = super::ran(&mut command);
    let shown: Value = serde_json::from_str(&ran.out()).unwrap_or_else(|_| panic!("{}", ran.err));
    let stack = shown["stack"].as_array().unwrap().iter();
    (stack.map(|frame| frame["place"].as_str().unwrap().to_owned()).collect(), ran.err)
}

/// debuginfod-find is run where servers are named, and for as long as it is allowed.
#[test]
fn debug_information_is_asked_for_by_build_id() {
    let place = Place::new();
    if !stripped(&place) {
        return;
    }
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
    let (without, _) = places(&place, &[]);
    assert!(without[0].starts_with("sub_"), "{without:?}");
    fs::create_dir(place.path("bin")).unwrap();
    let finder = place.path("bin/debuginfod-find");
    let debug = place.path("debug");
    let id = place.sh("readelf -n prog | sed -n 's/.*Build ID: //p'").out();
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2\" = \"debuginfo {}\" ] && echo '{}' || exit 1\n",
        id.trim(),
        debug.display()
    );
    fs::write(&finder, script).unwrap();
    fs::set_permissions(&finder, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", place.path("bin").display());
    let environment = [("DEBUGINFOD_URLS", "http://localhost:1"), ("PATH", path.as_str())];
    let (with, said) = places(&place, &environment);
    assert!(with[0].starts_with("hidden+") && with[0].contains("prog.c:2"), "{with:?} {said}");
    assert!(with[1].starts_with("main+"), "{with:?}");
    assert!(said.contains("asking for debug information of"), "{said}");
    // What comes for another file is not taken.
    let other = format!("#!/bin/sh\necho '{}'\n", place.path("rec/core").display());
    fs::write(&finder, other).unwrap();
    let (wrong, said) = places(&place, &environment);
    assert!(wrong[0].starts_with("sub_") && said.contains("its build-id is another"), "{wrong:?} {said}");
    // Names without servers ask nobody.
    let (nobody, said) = places(&place, &[("DEBUGINFOD_URLS", ""), ("PATH", path.as_str())]);
    assert!(nobody[0].starts_with("sub_") && !said.contains("asking"), "{said}");
}

/// A file of the program's name that is another build is not taken for it.
#[test]
fn another_build_is_refused_by_its_build_id() {
    let place = Place::new();
    if !stripped(&place) {
        return;
    }
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
    // As Linux writes it: of a program's file no more than its first page.
    place.write("other.c", CRASHES.replace("+ 1; }\nint", "+ 2; }\nint"));
    assert_eq!(place.sh("gcc -g -O1 -Wl,--build-id -o other other.c").code, 0);
    for command in ["core", "synth"] {
        let ran = place.gretel(&[command, "--exe", "other", "rec/core"]);
        assert_eq!(ran.code, USAGE, "{}", ran.err);
        assert!(ran.err.contains("other is not the program that left"), "{}", ran.err);
        assert!(ran.err.contains("its build-id is"), "{}", ran.err);
    }
}

/// Each mapping of a core has its file.
#[test]
fn mappings_have_their_files() {
    let place = Place::new();
    if !stripped(&place) {
        return;
    }
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./prog"]);
    let shown: Value = serde_json::from_str(&place.gretel(&["core", "--json", "rec"]).out()).unwrap();
    let mappings = shown["mappings"].as_array().unwrap();
    let of = |name: &str| {
        let is_it = |it: &&Value| it["file"].as_str().is_some_and(|file| file.ends_with(name));
        mappings.iter().filter(is_it).collect::<Vec<_>>()
    };
    assert!(of("/prog").iter().any(|it| it["offset"] == "0x0"), "{shown}");
    assert!(!of("libc.so.6").is_empty(), "{shown}");
    assert!(mappings.iter().any(|it| it["file"].is_null() && it["offset"].is_null()), "{shown}");
}

#[test]
fn names_of_c_plus_plus_are_as_in_the_source() {
    let place = Place::new();
    place.write(
        "names.cc",
        "struct Cache { __attribute__((noinline)) static int get(const int *p) { return *p; } };\n\
         int main(int c, char **) { return Cache::get((int *)(long)(c * 8)) + 1; }\n",
    );
    if place.sh("g++ -O1 -o names names.cc").code != 0 {
        return skipped("C++ names", "there is no g++");
    }
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./names"]);
    let (stack, _) = places(&place, &[]);
    assert!(stack[0].starts_with("Cache::get(int const*)+"), "{stack:?}");
    let listing = place.gretel(&["synth", "--no-kvm", "--instructions", "5", "rec"]).out();
    assert!(listing.contains(" in Cache::get(int const*)\n"), "{listing}");
}
