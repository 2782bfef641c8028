//! Whole programs: under `gretel record` each of `guest-images/programs/list.toml` gives the same output and the same
//! status as natively, and its recording replays to the same end, on every engine.

#[path = "../support/limited.rs"]
mod limited;
mod list;
mod run;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Write, stderr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use list::{Case, List};

/// Cases that run at the same time.
const AT_ONCE: usize = 2;

/// Says that something is skipped and why: past the capture of test output, so that it is seen.
fn skipped(what: &str, why: &str) {
    // A closed stderr only loses the notice.
    let _ = writeln!(stderr(), "skipped: {what}, since {why}");
}

/// The sources in a folder below that of the list, as the list names them.
fn sources(below: &str) -> Vec<String> {
    let files = fs::read_dir(list::folder().join(below)).expect("the folder of the programs can be read");
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let names = names.filter(|name| [".c", ".cpp", ".rs", ".go"].iter().any(|end| name.ends_with(end)));
    names.map(|name| format!("{below}{name}")).collect()
}

/// Each source of the folders is in the list; there are twenty programs, and all languages have some.
#[test]
fn the_list_is_whole() {
    let list = List::read();
    let named: BTreeSet<_> = list.programs.iter().filter_map(|program| program.source.clone()).collect();
    assert_eq!(named, ["", "processes/", "sockets/"].into_iter().flat_map(sources).collect());
    assert!(list.programs.len() >= 20);
    let used: BTreeSet<_> = list.programs.iter().flat_map(|program| &program.languages).collect();
    assert_eq!(used, list.languages.keys().collect());
}

/// What an engine makes of a program is what this processor makes of it.
#[test]
fn end_as_they_do_natively() {
    let list = List::read();
    let mut cases = Vec::new();
    for (name, language) in &list.languages {
        match language.missing() {
            Some(why) => skipped(&format!("programs in {name}"), &why),
            None => cases.extend(list.cases(name, language)),
        }
    }
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check(case);
                    wrong.lock().expect("no case panics while it reports").extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no case panics while it reports");
    assert!(wrong.is_empty(), "{} of {} programs:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// What is wrong with a program. One that is known to fail is wrong when it does not.
fn check(case: &Case<'_>) -> Option<String> {
    let native = case.build().and_then(|()| run::natively(case));
    let found = match (native, &case.program.pending) {
        (Err(why), _) => Some(why),
        (Ok(native), None) => recorded(case, &native).err(),
        (Ok(native), Some(reason)) => match recorded(case, &native) {
            Ok(()) => {
                Some(format!("passes, though the list says `pending = \"{reason}\"`: take that line out"))
            }
            Err(_) => None,
        },
    };
    found.map(|why| format!("{}: {why}", case.name()))
}

/// Records it on each of its engines under each CPU model, up to the first where something is wrong.
fn recorded(case: &Case<'_>, native: &run::Outcome) -> Result<(), String> {
    case.program.engines.iter().try_for_each(|engine| {
        case.program.models.iter().try_for_each(|model| run::recorded(case, engine, model, native))
    })
}
