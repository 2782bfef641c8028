//! Breakpoints: of lines, functions, instructions and data, with their conditions.
//!
//! Nothing is written into the program: breakpoints are a [`Lookout`] of the processor. Conditions are evaluated here at each hit. Hit
//! counts and messages are those of going forward; going back, a breakpoint with either stops at nothing, since what it counts or says
//! was counted and said.

use super::protocol::{Asked, SetBreakpoints};
use super::sources::SourceMap;
use crate::sight::{Known, Sight};
use crate::values::{Info, evaluate, is_true, number, show};
use serde_json::{Value, json};
use std::path::Path;
use std::rc::Rc;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::process::Process;
use vmm::slice::shared_at;
use vmm::travel::Stop;

/// What a breakpoint is of: those of a kind, and of a file, are set together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Line(String),
    Function,
    Instruction,
    Data,
}

impl Kind {
    /// What a stop at one is called.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Kind::Line(_) => "breakpoint",
            Kind::Function => "function breakpoint",
            Kind::Instruction => "instruction breakpoint",
            Kind::Data => "data breakpoint",
        }
    }
}

/// A breakpoint.
struct Breakpoint {
    id: u64,
    kind: Kind,
    asked: Asked,
    /// Where it is, if that is known; else why not.
    place: Result<Place, String>,
    hits: u64,
}

/// Where a breakpoint is.
#[derive(Clone, Debug)]
struct Place {
    addresses: Vec<u64>,
    watch: Option<Watch>,
    /// The line that it is on, if that is another than the one that was asked for.
    line: Option<u32>,
}

/// Which way the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Forward,
    Back,
}

/// What was hit.
pub(super) struct Hit {
    pub(super) ids: Vec<u64>,
    pub(super) kind: Kind,
    /// What is said of it.
    pub(super) text: String,
}

/// All breakpoints.
#[derive(Default)]
pub(super) struct Breakpoints {
    all: Vec<Breakpoint>,
    last_id: u64,
    /// What was to be said while the program ran.
    pub(super) said: Vec<String>,
}

impl Breakpoints {
    /// Replaces those of a kind; the answer for each, in order.
    pub(super) fn set(
        &mut self,
        kind: &Kind,
        asked: SetBreakpoints,
        known: &Known,
        sources: &SourceMap,
    ) -> Value {
        self.all.retain(|breakpoint| breakpoint.kind != *kind);
        let mut answers = Vec::new();
        for asked in asked.breakpoints.into_iter().map(Asked::without_empty) {
            self.last_id += 1;
            let place = checked(&asked).and_then(|()| place(kind, &asked, known, sources));
            let breakpoint = Breakpoint { id: self.last_id, kind: kind.clone(), asked, place, hits: 0 };
            answers.push(breakpoint.answer());
            self.all.push(breakpoint);
        }
        json!({ "breakpoints": answers })
    }

    /// Looks again for those that were not found: more may be loaded now. Gives the answers of those that were.
    pub(super) fn look_again(&mut self, known: &Known, sources: &SourceMap) -> Vec<Value> {
        let missing = self.all.iter_mut().filter(|it| it.place.is_err());
        let found = missing.filter_map(|breakpoint| {
            checked(&breakpoint.asked).ok()?;
            breakpoint.place = place(&breakpoint.kind, &breakpoint.asked, known, sources);
            breakpoint.place.is_ok().then(|| breakpoint.answer())
        });
        found.collect()
    }

    /// What to look for: all of them, and these addresses.
    pub(super) fn lookout(&self, others: &[u64]) -> Lookout {
        let places = || self.all.iter().filter_map(|it| it.place.as_ref().ok());
        let mut at: Vec<_> = places().flat_map(|place| &place.addresses).chain(others).copied().collect();
        at.sort_unstable();
        at.dedup();
        Lookout { at, data: places().filter_map(|place| place.watch.clone()).collect() }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.lookout(&[]).is_empty()
    }

    /// Which of them are hit where the program stands, by their conditions. What they have to say is kept.
    pub(super) fn hit(&mut self, known: &Known, process: &Process, stop: Stop, way: Way) -> Option<Hit> {
        let mut hit: Option<Hit> = None;
        let sight = Sight::new(process, known, process.thread(), None);
        for breakpoint in self.all.iter_mut().filter(|it| it.is_at(stop)) {
            if !breakpoint.stops(&sight, way, &mut self.said) {
                continue;
            }
            let found = hit.get_or_insert_with(|| Hit {
                ids: Vec::new(),
                kind: breakpoint.kind.clone(),
                text: breakpoint.text(process, stop),
            });
            found.ids.push(breakpoint.id);
        }
        hit
    }
}

impl Breakpoint {
    fn answer(&self) -> Value {
        let mut answer = json!({ "id": self.id, "verified": self.place.is_ok() });
        match &self.place {
            Ok(place) => {
                if let Some(line) = place.line {
                    answer["line"] = line.into();
                }
                if let Some(first) = place.addresses.first() {
                    answer["instructionReference"] = format!("{first:#x}").into();
                }
            }
            Err(why) => answer["message"] = why.clone().into(),
        }
        answer
    }

    fn is_at(&self, stop: Stop) -> bool {
        let Ok(place) = &self.place else { return false };
        let watches = |address: u64, writes: bool| {
            place.watch.as_ref().is_some_and(|it| it.range.contains(&address) && it.access.includes(writes))
        };
        match stop {
            Stop::Breakpoint(address) => place.addresses.contains(&address),
            Stop::Accessed(accessed) => watches(accessed.address, accessed.writes),
            Stop::Changed(address) => watches(address, true),
            _ => false,
        }
    }

    /// Whether the program is to stop for it. A condition that cannot be evaluated is a reason to, and is said.
    fn stops(&mut self, sight: &Sight<'_>, way: Way, said: &mut Vec<String>) -> bool {
        let counts = self.asked.hit_condition.is_some() || self.asked.log_message.is_some();
        if counts && way == Way::Back {
            return false;
        }
        let function = || sight.function(0, 0);
        if let Some(condition) = &self.asked.condition {
            match is_true(sight, 0, function().as_ref(), condition) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(why) => said.push(format!("the condition `{condition}`: {why}")),
            }
        }
        self.hits += 1;
        if let Some(wanted) = self.asked.hit_condition.as_deref().and_then(hit_count)
            && self.hits != wanted
        {
            return false;
        }
        match &self.asked.log_message {
            Some(message) => {
                said.push(filled(sight, message));
                false
            }
            None => true,
        }
    }

    fn text(&self, process: &Process, stop: Stop) -> String {
        let name = &self.asked.name;
        match stop {
            Stop::Accessed(accessed) => {
                let what = if accessed.writes { "written" } else { "read" };
                format!("{} {what} by the instruction at {:#x}", self.data_name(), accessed.rip)
            }
            // The others run between two instructions of this one.
            Stop::Changed(at) if shared_at(process.space(), at).is_some() => format!(
                "{} changed: by a system call, or by another process that shares it (`gretel last-write` says which)",
                self.data_name()
            ),
            Stop::Changed(_) => format!("{} written by a system call", self.data_name()),
            _ if !name.is_empty() => name.clone(),
            _ => String::new(),
        }
    }

    fn data_name(&self) -> String {
        match self.asked.data_id.split_once(' ') {
            Some((_, name)) => name.to_owned(),
            None => self.asked.data_id.clone(),
        }
    }
}

/// The number of a hit condition, as `5` or `== 5`.
fn hit_count(text: &str) -> Option<u64> {
    text.trim_start_matches(['=', ' ']).trim().parse().ok().filter(|count| *count > 0)
}

/// Whether what is asked for with a breakpoint can be done.
fn checked(asked: &Asked) -> Result<(), String> {
    match &asked.hit_condition {
        Some(text) if hit_count(text).is_none() => {
            Err(format!("the hit condition `{text}` is no number: the breakpoint stops at that hit alone"))
        }
        _ => Ok(()),
    }
}

/// A message with the values of the expressions in braces.
fn filled(sight: &Sight<'_>, message: &str) -> String {
    let function = sight.function(0, 0);
    let mut text = String::new();
    let mut rest = message;
    while let Some((before, behind)) = rest.split_once('{') {
        text += before;
        let Some((expression, after)) = behind.split_once('}') else {
            text.push('{');
            rest = behind;
            break;
        };
        match evaluate(sight, 0, function.as_ref(), expression) {
            Ok(value) => text += &show(&value, sight),
            Err(why) => text += &format!("<{why}>"),
        }
        rest = after;
    }
    text + rest
}

/// Where a breakpoint is.
fn place(kind: &Kind, asked: &Asked, known: &Known, sources: &SourceMap) -> Result<Place, String> {
    let at = |addresses: Vec<u64>| Place { addresses, watch: None, line: None };
    match kind {
        Kind::Line(path) => line(path, asked.line, known, sources),
        Kind::Function => {
            let found = known.symbols.functions(&asked.name);
            // What only chooses a function is not the one that is called by this name.
            let starts = found.into_iter().filter(|(_, symbol)| !symbol.indirect).map(|(start, _)| start);
            let mut bodies: Vec<_> =
                starts.map(|start| known.lines(start).map_or(start, |lines| lines.body)).collect();
            bodies.extend(known.infos().iter().flat_map(|info| info.inlined_copies(&asked.name)));
            bodies.sort_unstable();
            bodies.dedup();
            match bodies.is_empty() {
                true => Err(format!("there is no function `{}` in what is loaded here", asked.name)),
                false => Ok(at(bodies)),
            }
        }
        Kind::Instruction => {
            let text = &asked.instruction_reference;
            let address = number(text).ok_or_else(|| format!("`{text}` is no address"))?;
            Ok(at(vec![address.wrapping_add_signed(asked.offset)]))
        }
        Kind::Data => Ok(Place { watch: Some(watch(asked)?), ..at(Vec::new()) }),
    }
}

fn line(path: &str, line: u32, known: &Known, sources: &SourceMap) -> Result<Place, String> {
    let recorded = sources.recorded(path);
    let infos = known.infos();
    let same = |file: &str| Path::new(file) == Path::new(&recorded);
    let mut found: Vec<_> = infos.iter().filter_map(|info: &Rc<Info>| info.line(&same, line)).collect();
    if found.is_empty() {
        // Compiled elsewhere: where one file alone is called so, it is meant.
        let name = Path::new(&recorded).file_name().ok_or("a source without a name")?;
        let called = |file: &str| Path::new(file).file_name() == Some(name);
        let files: Vec<_> = infos.iter().flat_map(|info| info.files()).filter(|file| called(file)).collect();
        match files.as_slice() {
            [one] => found = infos.iter().filter_map(|info| info.line(&|file| file == one, line)).collect(),
            [] => {
                return Err(format!(
                    "no module that is loaded here was compiled, with debug information, from a file of this name: {recorded}"
                ));
            }
            several => {
                return Err(format!(
                    "compiled from {}: `sourceMap` in the launch configuration says which of them is this one",
                    several.join(", ")
                ));
            }
        }
    }
    let nearest = found.iter().map(|it| it.line).min();
    let nearest = nearest.ok_or_else(|| format!("there is no code of line {line} or soon behind it"))?;
    found.retain(|it| it.line == nearest);
    let addresses = found.into_iter().flat_map(|it| it.addresses).collect();
    Ok(Place { addresses, watch: None, line: Some(nearest) })
}

/// `0x5555555592a0:8 name`, as `dataBreakpointInfo` gives it.
fn watch(asked: &Asked) -> Result<Watch, String> {
    let wrong = || format!("`{}` is not what dataBreakpointInfo gives: ADDRESS:LENGTH", asked.data_id);
    let (place, _) = asked.data_id.split_once(' ').unwrap_or((&asked.data_id, ""));
    let (address, length) = place.split_once(':').ok_or_else(wrong)?;
    let (address, length) = number(address).zip(number(length)).ok_or_else(wrong)?;
    let end = address.checked_add(length).filter(|_| (1..=super::variables::LARGEST_WATCH).contains(&length));
    let access = match asked.access_type.as_deref() {
        None | Some("write") => Access::Write,
        Some("read") => Access::Read,
        Some("readWrite") => Access::Any,
        Some(other) => return Err(format!("`{other}` is no kind of access: write, read or readWrite")),
    };
    Ok(Watch { range: address..end.ok_or_else(wrong)?, access })
}
