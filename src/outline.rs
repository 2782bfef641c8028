//! What is known of the time before a suffix: the exits that left crumbs.

use crate::core_file::place;
use serde_json::{Value, json};
use std::fmt::{self, Display, Formatter};
use synth::evidence::{Anchor, Anchors};
use synth::program::Program;
use vmm::linux::call_name;

/// So many exits are shown.
const MOST: usize = 12;

/// An exit before the suffix.
struct Exit {
    /// How many instructions before the crash it retired, if that is known.
    before_crash: Option<u64>,
    /// The system call's number and name; none for an instruction that reads the machine.
    call: Option<(u64, String)>,
    rip: u64,
    rsp: u64,
    place: String,
}

/// The newest exits before the suffix, newest first.
pub(crate) struct Outline(Vec<Exit>);

impl Outline {
    /// The exits before a suffix that has the newest `passed` in it.
    pub(crate) fn new(anchors: &Anchors, passed: usize, program: &Program) -> Outline {
        let mut before_crash = Some(0);
        let mut exits = Vec::new();
        for (n, anchor) in (0..anchors.len().min(passed + MOST)).filter_map(|n| Some((n, anchors.get(n)?))) {
            let &Anchor { call, rip, rsp, retired } = anchor;
            before_crash = before_crash.zip(retired).map(|(sum, retired)| sum + retired.instructions);
            if n < passed {
                continue;
            }
            exits.push(Exit {
                before_crash,
                call: call.map(|number| (number, call_name(number).to_owned())),
                rip,
                rsp,
                place: place(Some(program), rip),
            });
        }
        Outline(exits)
    }

    /// As an array, newest first.
    pub(crate) fn to_json(&self) -> Value {
        let of_exit = |exit: &Exit| {
            let (number, name) = exit.call.clone().unzip();
            json!({
                "before_crash": exit.before_crash, "call": number, "name": name, "place": exit.place,
                "rip": format!("{:#x}", exit.rip), "rsp": format!("{:#x}", exit.rsp),
            })
        };
        self.0.iter().map(of_exit).collect()
    }

    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Display for Outline {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "before the suffix, newest first, as crumbs tell (the ways between them are open):")?;
        for exit in &self.0 {
            let before = exit.before_crash.map_or_else(|| "?".to_owned(), |before| format!("-{before}"));
            let what = match &exit.call {
                Some((number, name)) => format!("system call {number} {name}"),
                None => "reads the machine".to_owned(),
            };
            writeln!(f, "{before:>9}  {what:<32} {}", exit.place)?;
        }
        Ok(())
    }
}
