//! Whole programs: under `gretel record --engine soft` each of `guest-images/programs/list.toml` gives the same output
//! and the same status as natively, and its recording replays to the same end, on every engine.

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

/// Each source of the folder is in the list; there are twenty programs, and all languages have some.
#[test]
fn the_list_is_whole() {
    let list = List::read();
    let named: BTreeSet<_> = list.programs.iter().filter_map(|program| program.source.clone()).collect();
    let files = fs::read_dir(list::folder()).expect("the folder of the programs can be read");
    let sources = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let sources: BTreeSet<_> =
        sources.filter(|name| [".c", ".cpp", ".rs", ".go"].iter().any(|end| name.ends_with(end))).collect();
    assert_eq!(named, sources);
    assert!(list.programs.len() >= 20);
    let used: BTreeSet<_> = list.programs.iter().flat_map(|program| &program.languages).collect();
    assert_eq!(used, list.languages.keys().collect());
}

/// What the software CPU makes of a program is what this processor makes of it.
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

/// What is wrong with a program, under the first CPU model where something is.
fn check(case: &Case<'_>) -> Option<String> {
    let checked = case.build().and_then(|()| {
        let native = run::natively(case)?;
        case.program.models.iter().try_for_each(|model| run::on_software(case, model, &native))
    });
    checked.err().map(|why| format!("{}: {why}", case.name()))
}
