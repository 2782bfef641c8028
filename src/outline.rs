//! What is known of the time before a suffix: the system calls that left crumbs.

use crate::core_file::place;
use serde_json::{Value, json};
use std::fmt::{self, Display, Formatter};
use synth::evidence::{Anchor, Anchors};
use synth::program::Program;
use vmm::linux::call_name;

/// So many are shown.
const MOST: usize = 12;

/// A system call before the suffix.
struct Call {
    /// How many instructions before the crash it retired, if that is known.
    before_crash: Option<u64>,
    /// The system call's number.
    number: u64,
    rip: u64,
    rsp: u64,
    place: String,
}

/// The newest calls before the suffix, newest first.
pub(crate) struct Outline(Vec<Call>);

impl Outline {
    /// The calls before a suffix that has the newest `passed` in it.
    pub(crate) fn new(anchors: &Anchors, passed: usize, program: &Program) -> Outline {
        let mut before_crash = Some(0);
        let mut calls = Vec::new();
        for (n, anchor) in (0..anchors.len().min(passed + MOST)).filter_map(|n| Some((n, anchors.get(n)?))) {
            let &Anchor { rip, rsp, .. } = anchor;
            before_crash =
                before_crash.zip(anchor.retired()).map(|(sum, retired)| sum + retired.instructions);
            let Some(number) = anchor.call().filter(|_| n >= passed) else { continue };
            calls.push(Call { before_crash, number, rip, rsp, place: place(Some(program), rip) });
        }
        Outline(calls)
    }

    /// As an array, newest first.
    pub(crate) fn to_json(&self) -> Value {
        let of_call = |call: &Call| {
            json!({
                "before_crash": call.before_crash, "call": call.number, "name": call_name(call.number), "place": call.place,
                "rip": format!("{:#x}", call.rip), "rsp": format!("{:#x}", call.rsp),
            })
        };
        self.0.iter().map(of_call).collect()
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Display for Outline {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "before the suffix, newest first, as crumbs tell (the ways between them are open):")?;
        for call in &self.0 {
            let before = call.before_crash.map_or_else(|| "?".to_owned(), |before| format!("-{before}"));
            let what = format!("system call {} {}", call.number, call_name(call.number));
            writeln!(f, "{before:>9}  {what:<32} {}", call.place)?;
        }
        Ok(())
    }
}
