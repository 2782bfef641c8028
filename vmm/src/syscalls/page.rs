//! The page that says which calls are supported: `docs/syscalls.md`.

use super::shape::{Call, Served};
use super::{GROUPS, errors};
use std::fmt::Write as _;

const INTRODUCTION: &str = "\
# System calls

Which system calls of Linux on x86-64 a program can make under gretel. `make page` writes this page
from the table in `vmm/src/syscalls`; a test says when it is out of date. [unserved.md](unserved.md)
says why some are not served.

| served by | what that means | when a recording is replayed |
| --- | --- | --- |
| gretel | gretel computes the result from state of its own | it is computed again |
| host | the host's kernel is asked; result and memory go into the journal | the journal answers |
| both | gretel keeps descriptors, waits or mappings, the host is asked for contents and times | as above, part by part |
| always X | the call has this result or error, whatever its arguments | it has the same result |
| - | not yet: ENOSYS, with a warning for the first call of each kind | it has the same result |
";

/// The page.
#[must_use]
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    write(&mut page).expect("a string takes all");
    page
}

fn write(page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## Groups\n\n| group | calls | served | always one answer | not yet |")?;
    writeln!(page, "| --- | ---: | ---: | ---: | ---: |")?;
    let mut sums = [0; 3];
    for (name, calls) in GROUPS {
        let anchor = name.to_lowercase().replace(' ', "-");
        let counts = counts(calls);
        sums = std::array::from_fn(|n| sums[n] + counts[n]);
        write_counts(page, &format!("[{name}](#{anchor})"), counts)?;
    }
    write_counts(page, "all", sums)?;
    for (name, calls) in GROUPS {
        writeln!(page, "\n## {name}\n\n| number | call | served by | note |\n| ---: | --- | --- | --- |")?;
        for call in *calls {
            let (by, note) = served_by(call.served);
            writeln!(page, "| {} | `{}` | {by} | {note} |", call.number, prototype(call))?;
        }
    }
    Ok(())
}

fn write_counts(page: &mut String, name: &str, [served, fixed, missing]: [usize; 3]) -> std::fmt::Result {
    writeln!(page, "| {name} | {} | {served} | {fixed} | {missing} |", served + fixed + missing)
}

/// How many calls are served, have one answer, are not served.
fn counts(calls: &[Call]) -> [usize; 3] {
    let mut counts = [0; 3];
    for call in calls {
        let kind = match call.served {
            Served::Ours | Served::Host | Served::Mixed => 0,
            Served::Fixed(..) => 1,
            Served::Missing => 2,
        };
        counts[kind] += 1;
    }
    counts
}

fn prototype(call: &Call) -> String {
    let arguments: Vec<&str> = call.arguments.iter().map(|argument| argument.name).collect();
    format!("{}({})", call.name, arguments.join(", "))
}

/// Who serves a call, and what there is to say about it.
fn served_by(served: Served) -> (String, &'static str) {
    match served {
        Served::Ours => ("gretel".to_owned(), ""),
        Served::Host => ("host".to_owned(), ""),
        Served::Mixed => ("both".to_owned(), ""),
        Served::Fixed(result, why) => {
            let result = errors::name(result).map_or_else(|| result.to_string(), ToOwned::to_owned);
            (format!("always {result}"), why)
        }
        Served::Missing => ("-".to_owned(), ""),
    }
}
