//! What is made of the command line: completions and the manual.

use crate::{Place, USAGE, WRITE};
use std::collections::BTreeSet;
use std::fs;

/// The commands that `gretel --help` lists.
fn commands(place: &Place) -> BTreeSet<String> {
    let help = place.gretel(&["--help"]).out();
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    // The rest of a description that was wrapped is indented further.
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_shell_has_completions_of_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.gretel(&["completions", shell]);
        assert_eq!((script.code, script.err.as_str()), (0, ""), "{shell}");
        for command in commands(&place) {
            assert!(script.out().contains(&command), "{shell} has no {command}");
        }
        for hidden in ["run-at-crash", "find-debug"] {
            assert!(!script.out().contains(hidden), "{shell} offers {hidden}");
        }
    }
    place.write("completions", place.gretel(&["completions", "bash"]).out);
    let complete = "source ./completions; COMP_WORDS=(gretel eve); COMP_CWORD=1; _gretel gretel eve gretel; \
        echo ${COMPREPLY[@]}";
    assert_eq!(crate::ran(&mut place.command("bash", &["-c", complete])).out(), "events\n");
    assert_eq!(place.gretel(&["completions", "csh"]).code, USAGE);
    let gretel = env!("CARGO_BIN_EXE_gretel");
    assert_eq!(place.sh(&format!("{gretel} completions bash >/dev/full")).code, WRITE);
    assert_eq!(place.sh(&format!("{gretel} completions bash | head -n 1 | wc -l")).err, "");
}

/// What fish offers behind a command line; `None` where there is no fish.
fn fish_offers(place: &Place, line: &str) -> Option<Vec<String>> {
    let script = format!("source gretel.fish; complete -C '{line}'");
    let Ok(ran) = place.command("fish", &["--no-config", "-c", &script]).output() else {
        crate::skipped("completions of fish", "it is not installed");
        return None;
    };
    let offered = String::from_utf8_lossy(&ran.stdout).into_owned();
    Some(offered.lines().map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect())
}

#[test]
fn fish_completes_commands_options_and_words() {
    let place = Place::new();
    let shells =
        "complete -c gretel -n \"__fish_gretel_using_subcommand completions\" -f -a \"bash elvish fish";
    let script = place.gretel(&["completions", "fish"]).out();
    assert!(script.contains(shells), "{script}");
    place.write("gretel.fish", script);
    for (line, expected) in [
        ("gretel re", &["record", "replay", "report"][..]),
        ("gretel record --engine ", &["auto", "kvm", "soft"]),
        ("gretel completions ", &["bash", "elvish", "fish", "powershell", "zsh"]),
    ] {
        let Some(offered) = fish_offers(&place, line) else { return };
        assert_eq!(offered, expected, "{line}");
    }
}

#[test]
fn the_container_has_every_crate() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let recipe = fs::read_to_string(here.join("packaging/Containerfile")).expect("the recipe");
    let manifest = fs::read_to_string(here.join("Cargo.toml")).expect("the manifest");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("members");
    let folders: BTreeSet<&str> =
        members.split('"').skip(1).step_by(2).filter_map(|it| it.split('/').next()).collect();
    assert!(folders.len() > 3, "{folders:?}");
    for folder in folders {
        assert!(recipe.contains(&format!("\nCOPY {folder} {folder}\n")), "{folder} is not copied");
    }
}

#[test]
fn every_command_has_a_page_with_its_examples() {
    let place = Place::new();
    assert_eq!(place.gretel(&["man", "man1"]).code, 0);
    let entries = fs::read_dir(place.path("man1")).unwrap();
    let found: BTreeSet<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let pages = commands(&place).into_iter().map(|command| format!("gretel-{command}.1"));
    let others = ["gretel.1", "gretel-bench-bare.1", "gretel-bench-record.1", "gretel-bench-synth.1"];
    let others = others.map(str::to_owned);
    let expected: BTreeSet<String> = pages.chain(others).collect();
    assert_eq!(found, expected);
    for page in found {
        let text = fs::read_to_string(place.path("man1").join(&page)).unwrap();
        let has_none = page == "gretel-bench.1";
        assert!(has_none || text.contains(".SH EXAMPLES\n.nf\n  "), "{page} has no examples");
        assert!(!text.contains("\n.nf\n.nf"), "{page}");
    }
    let main = fs::read_to_string(place.path("man1/gretel.1")).unwrap();
    assert!(main.contains(".SH \"EXIT CODES\""), "{main}");
    place.write("file", "");
    let refused = place.gretel(&["man", "file"]);
    assert_eq!(refused.code, WRITE);
    assert!(refused.err.contains("cannot write file"), "{}", refused.err);
}
