//! A soak: all of coreutils and many other ordinary commands, each with harmless arguments in a folder of its own. A
//! command runs natively, then recorded on each engine; its output, status and files must be the same, and each
//! recording must replay on each engine. Nothing is said of speed.
//!
//! `GRETEL_SOAK=find cargo test --test soak` runs only the commands whose text has `find` in it.

#[path = "../support/limited.rs"]
mod limited;
mod list;
mod run;

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, File};
use std::io::{Write, stderr};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use list::{Entry, List};
use run::Place;

/// Commands that run at the same time.
const AT_ONCE: usize = 2;

/// Says something past the capture of test output, so that it is seen.
fn say(text: &str) {
    // A closed stderr only loses the notice.
    let _ = writeln!(stderr(), "{text}");
}

/// The engines that this host has.
fn engines() -> Vec<&'static str> {
    match File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => vec!["soft", "kvm"],
        Err(error) => {
            say(&format!("skipped: engine kvm, since /dev/kvm: {error}"));
            vec!["soft"]
        }
    }
}

/// Whether programs must bind their functions early here: FXSAVE, with which the linker binds them late, stores a mask
/// that has one bit more on processors with misaligned SSE than on the software CPU. No recording with that in memory
/// replays on the other engine.
fn early_binding(engines: &[&str]) -> bool {
    let misaligned = fs::read_to_string("/proc/cpuinfo").is_ok_and(|text| text.contains(" misalignsse"));
    let early = misaligned && engines.len() > 1;
    if early {
        say(
            "skipped: binding functions late, since FXSAVE differs between this processor and the software CPU",
        );
    }
    early
}

/// Every command of coreutils is there once or more, and fifty others.
#[test]
fn the_list_is_whole() {
    let list = List::read();
    let named: BTreeSet<_> = list.coreutils.iter().map(|entry| entry.run[0].as_str()).collect();
    assert!(named.len() >= 105, "{} commands of coreutils: {named:?}", named.len());
    let others: BTreeSet<_> = list.others.iter().map(|entry| entry.run.join(" ")).collect();
    assert_eq!(others.len(), list.others.len(), "one of the others is there twice");
    assert!(others.len() >= 50);
    // A distribution may have more of them than the list.
    if let Ok(output) = Command::new("dpkg").args(["-L", "coreutils"]).output() {
        let files = String::from_utf8_lossy(&output.stdout).into_owned();
        let files = files.lines().filter_map(|path| path.split_once("bin/").map(|(_, name)| name.to_owned()));
        let missing: Vec<_> = files
            .filter(|name| !name.is_empty() && !name.contains('.') && !named.contains(name.as_str()))
            .collect();
        assert!(missing.is_empty(), "not in the list: {missing:?}");
    }
}

/// What an engine makes of a command is what this processor makes of it.
#[test]
fn commands_do_as_they_do_natively() {
    let list = List::read();
    let only = env::var("GRETEL_SOAK").unwrap_or_default();
    let entries: Vec<&Entry> = list.coreutils.iter().chain(&list.others).collect();
    let entries: Vec<_> = entries.into_iter().filter(|entry| entry.name().contains(&only)).collect();
    let (here, missing): (Vec<&Entry>, Vec<&Entry>) =
        entries.into_iter().partition(|entry| entry.missing().is_empty());
    for entry in missing {
        say(&format!("skipped: {}, since there is no {}", entry.name(), entry.missing().join(", ")));
    }
    let engines = engines();
    let early_binding = early_binding(&engines);
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let temporary = tempfile::tempdir().expect("a temporary folder");
                let place = Place::new(temporary.path(), early_binding);
                while let Some(entry) = here.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = check(entry, &place, &engines);
                    results.lock().expect("no command panics while it reports").push((*entry, result));
                }
            });
        }
    });
    let results = results.into_inner().expect("no command panics while it reports");
    for (index, engine) in engines.iter().enumerate() {
        let equal = results.iter().filter(|(_, result)| result.as_ref().is_ok_and(|all| all[index].is_ok()));
        let needy = here.iter().filter(|entry| entry.needs.is_some()).count();
        say(&format!(
            "soak: recorded on {engine}, {} of {} commands do as they do natively and replay; {needy} are known to fail",
            equal.count(),
            here.len()
        ));
    }
    let wrong: Vec<_> = results.iter().filter_map(|(entry, result)| wrong(entry, &engines, result)).collect();
    assert!(wrong.is_empty(), "{} of {} commands:\n{}", wrong.len(), here.len(), wrong.join("\n"));
}

/// What became of a command on each engine, or why it could not even be run natively.
type Checked = Result<Vec<Result<(), String>>, String>;

fn check(entry: &Entry, place: &Place, engines: &[&str]) -> Checked {
    let native = place.natively(entry)?;
    let results =
        engines.iter().map(|engine| place.recorded(entry, engine, engines, &native)).collect::<Vec<_>>();
    if entry.needs.is_none() && results.iter().any(Result::is_err) {
        run::compare(entry, &place.natively(entry)?, &native)
            .map_err(|why| format!("natively one run differs from the next: {why}"))?;
    }
    Ok(results)
}

/// What is wrong with a command. One that is known to fail is wrong when it does not.
fn wrong(entry: &Entry, engines: &[&str], result: &Checked) -> Option<String> {
    let found = match (result, &entry.needs) {
        (Err(why), _) => why.clone(),
        (Ok(results), None) => {
            let results = engines.iter().zip(results);
            let failed = results
                .filter_map(|(engine, result)| Some(format!("on {engine}: {}", result.as_ref().err()?)));
            let failed: Vec<_> = failed.collect();
            if failed.is_empty() {
                return None;
            }
            failed.join("\n")
        }
        (Ok(results), Some(needs)) => {
            if results.iter().any(Result::is_err) {
                return None;
            }
            format!("passes, though the list says `needs = \"{needs}\"`: take that out")
        }
    };
    Some(format!("{}: {found}", entry.name()))
}
