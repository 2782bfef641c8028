//! The listing for people.

use super::style::{Colour, Style};
use super::{Came, Crash, Listing, Place, Step, Summary, Value};
use crate::suffix::Origin;
use std::fmt::{self, Display, Formatter};

/// The indentation of values that did not fit.
const CONTINUED: usize = 24;

impl Display for Listing {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.summary.fmt(f)?;
        let mut previous: Option<&Step> = None;
        for step in &self.steps {
            if previous.map_or(self.summary.switches > 0, |previous| previous.task != step.task) {
                thread(f, step.task)?;
            }
            came(f, &step.came)?;
            heading(f, previous, step)?;
            if step.covered && previous.is_some_and(|previous| !previous.covered) {
                let records = self.summary.records;
                let mark = format!(
                    "        -- oldest branch record here: the {records} records cover what follows --"
                );
                line(f, &mark, Colour::Plain)?;
            }
            if step.forced && previous.is_some_and(|previous| !previous.forced) {
                let mark = "        -- below: forced; above: one possibility of several --";
                line(f, mark, Colour::Sure)?;
            }
            instruction(f, step)?;
            previous = Some(step);
        }
        if previous.is_some_and(|previous| previous.task != self.crash.task) {
            thread(f, self.crash.task)?;
        }
        came(f, &self.crash.came)?;
        self.crash.fmt(f)
    }
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let length =
            format!("certified on {}: {} instructions", self.engines.join(" and "), self.instructions);
        let records = match (self.reach, self.given) {
            (Some(reach), given) => {
                let records = if given > self.records {
                    format!("{} of {given}", self.records)
                } else {
                    given.to_string()
                };
                format!("{reach:.1} times the {} that the {records} branch records cover", self.covered)
            }
            (None, 0) => "without branch records".to_owned(),
            (None, given) => format!("which cover {} of the {given} branch records", self.records),
        };
        wrapped(f, "", &format!("{length}, {records}"))?;
        let [calls, counted] = self.crumbs;
        if calls > 0 {
            let calls = match (calls, self.switches) {
                (1, 0) => "its system call is".to_owned(),
                (calls, 0) => format!("its {calls} system calls are"),
                (calls, switches) => format!("its exits ({calls}) and switches of threads ({switches}) are"),
            };
            let contexts = match self.contexts {
                0 => String::new(),
                contexts => format!(", and the stack with calling contexts: {contexts}"),
            };
            let text = format!(
                "{calls} as the crumbs say; of these, what retires behind was compared with counts: {counted}{contexts}"
            );
            wrapped(f, "", &text)?;
        }
        if self.signals > 0 {
            let text = match self.signals {
                1 => "a signal is delivered as its frame on the stack says".to_owned(),
                signals => format!("{signals} signals are delivered as their frames on the stack say"),
            };
            wrapped(f, "", &text)?;
        }
        let forced = match self.forced {
            all if all == self.instructions => {
                "all of them are forced: nothing else leads to the core".to_owned()
            }
            forced => {
                format!(
                    "the last {forced} are forced: nothing else leads to the core; the rest is one possibility"
                )
            }
        };
        wrapped(f, "", &forced)?;
        if let Some(reason) = &self.without_kvm {
            wrapped(f, "not run under KVM: ", reason)?;
        }
        let bytes = self.compared_bytes;
        wrapped(
            f,
            "",
            &format!("equal to the core: all registers and {bytes} bytes of memory; not compared:"),
        )?;
        for entry in &self.dont_care {
            wrapped(f, "  - ", &format!("{}: {}", entry.what, entry.why))?;
        }
        let [core, forced, chosen] = self.origins;
        let origins = format!(
            "where the forced part begins, of general registers and listed bytes: {core} in the core, {forced} inferred, {chosen} \
             chosen"
        );
        wrapped(f, "", &origins)?;
        wrapped(
            f,
            "marks: ",
            "value* inferred (no other leads here), value? chosen (others would do), else known",
        )
    }
}

/// Names the thread where it changes.
fn thread(f: &mut Formatter<'_>, task: u32) -> fmt::Result {
    writeln!(f)?;
    line(f, &format!("        -- thread {task} --"), Colour::Plain)
}

/// Names the signals that came.
fn came(f: &mut Formatter<'_>, all: &[Came]) -> fmt::Result {
    for Came { name, raised, interrupted, origin, .. } in all {
        let mark = match origin {
            Origin::Core => "",
            Origin::Forced => "*",
            Origin::Chosen => "?",
        };
        let how = if *raised { "raised by the instruction at" } else { "came before the instruction at" };
        writeln!(f)?;
        line(f, &format!("        -- {name}{mark} {how} {interrupted:x}: its handler --"), Colour::Plain)?;
    }
    Ok(())
}

/// Names the function and the source line where they change.
fn heading(f: &mut Formatter<'_>, previous: Option<&Step>, step: &Step) -> fmt::Result {
    let (place, before) = (&step.place, previous.map(|previous| &previous.place));
    let same_function =
        before.is_some_and(|before| (&before.function, &before.inlined) == (&place.function, &place.inlined));
    let same_line = same_function && before == Some(place);
    if !same_function {
        writeln!(f)?;
        line(f, &place.to_string(), Colour::Bold)?;
    }
    match (&place.file, place.line) {
        (Some(file), Some(number)) if !same_line => {
            line(f, &format!("  {}:{number}", short(file)), Colour::Plain)
        }
        _ => Ok(()),
    }
}

/// The function, and what is inlined in it.
impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for inlined in &self.inlined {
            write!(f, "{inlined}, inlined in ")?;
        }
        f.write_str(self.function.as_deref().unwrap_or("(no function)"))
    }
}

fn instruction(f: &mut Formatter<'_>, step: &Step) -> fmt::Result {
    let mut text = format!("{:>7}  {:<10x}  {}", format!("-{}", step.before_crash), step.address, step.text);
    if step.iterations != 1 {
        text.push_str(&format!("  x{}", step.iterations));
    }
    let of = |value: &Value| (value.to_string(), Colour::from(value.origin));
    let mut values: Vec<(String, Colour)> = step.reads.iter().map(of).collect();
    let mut push = |text: String, colour| values.push((text, colour));
    match step.taken {
        Some(true) => push("taken".to_owned(), Colour::Plain),
        Some(false) => push("not taken".to_owned(), Colour::Plain),
        None => {}
    }
    if let Some(call) = &step.call {
        push(format!("system call {}", call.number), Colour::Plain);
        match &call.result {
            Some(result) if call.late => push(format!("-> later {result}"), result.origin.into()),
            Some(result) => push(format!("-> {result}"), result.origin.into()),
            None => push("waits".to_owned(), Colour::Plain),
        }
        if call.written > 0 {
            push(format!("{} bytes written", call.written), Colour::Plain);
        }
    }
    let mut arrow = "-> ";
    for value in &step.writes {
        push(format!("{arrow}{value}"), value.origin.into());
        arrow = "";
    }
    with_values(f, &text, &values)
}

/// Writes `text`, and the values in their column, broken into lines that fit.
fn with_values(f: &mut Formatter<'_>, text: &str, values: &[(String, Colour)]) -> fmt::Result {
    let style = Style::of(f);
    let mut now: String = cut(text, style.columns);
    // Colours take no place.
    let mut len = now.chars().count();
    let mut empty = true;
    for (value, colour) in values {
        let value = cut(value, style.columns - CONTINUED);
        let start = if empty { style.values().max(len + 2) } else { len + 2 };
        if start + value.chars().count() > style.columns {
            writeln!(f, "{}", now.trim_end())?;
            (now, len) = (" ".repeat(CONTINUED), CONTINUED);
        } else {
            now.push_str(&" ".repeat(start - len));
            len = start;
        }
        now.push_str(&style.paint(&value, *colour));
        len += value.chars().count();
        empty = false;
    }
    writeln!(f, "{}", now.trim_end())
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mark = match self.origin {
            Origin::Core => "",
            Origin::Forced => "*",
            Origin::Chosen => "?",
        };
        write!(f, "{}={}{mark}", self.place, self.value)
    }
}

impl Display for Crash {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut text = format!("crash: {} at {:#x}", self.signal, self.address);
        if self.place.function.is_some() {
            text.push_str(&format!(" in {}", self.place));
        }
        if let (Some(file), Some(number)) = (&self.place.file, self.place.line) {
            text.push_str(&format!(" ({}:{number})", short(file)));
        }
        writeln!(f)?;
        line(f, &text, Colour::Crash)?;
        if let Some(text) = &self.text {
            line(f, &format!("         {:<10x}  {text}", self.address), Colour::Plain)?;
        }
        if let Some(cause) = &self.cause {
            line(f, &format!("         {cause}"), Colour::Plain)?;
        }
        Ok(())
    }
}

/// A line that fits.
fn line(f: &mut Formatter<'_>, text: &str, colour: Colour) -> fmt::Result {
    let style = Style::of(f);
    writeln!(f, "{}", style.paint(&cut(text, style.columns), colour))
}

/// Text broken at spaces into lines that fit, with a hanging indentation.
fn wrapped(f: &mut Formatter<'_>, first: &str, text: &str) -> fmt::Result {
    let columns = Style::of(f).columns;
    let indentation = " ".repeat(first.len());
    let mut now = first.to_owned();
    let mut empty = true;
    for word in text.split_whitespace() {
        if !empty && now.chars().count() + 1 + word.chars().count() > columns {
            writeln!(f, "{now}")?;
            now = indentation.clone();
            empty = true;
        }
        if !empty {
            now.push(' ');
        }
        now.push_str(&cut(word, columns - indentation.len()));
        empty = false;
    }
    writeln!(f, "{now}")
}

/// The first `columns` characters.
fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

/// A file name without its folders.
fn short(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}
