//! A slice as text and as JSON.

use super::folded::{Folded, Step};
use super::question::Question;
use crate::core_file::hex;
use crate::exit::Failure;
use crate::output::{Printed, print};
use crate::symbols::{Place, Symbols};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use synth::report::written;
use vmm::elfcore::signal_name;
use vmm::slice::{Byte, Made, Origin, Role, Slice, belong};

/// The longest text of bytes that is shown.
const LONGEST: usize = 48;

/// What addresses are in.
pub(super) trait Names {
    /// `None` where nothing is.
    fn place(&self, address: u64) -> Option<Place>;
}

impl Names for Symbols {
    fn place(&self, address: u64) -> Option<Place> {
        Symbols::place(self, address)
    }
}

/// A question and its answer.
pub(super) struct View<'a, At> {
    pub(super) question: &'a Question<At>,
    pub(super) slice: &'a Slice<At>,
    pub(super) names: &'a dyn Names,
    /// Where each node is.
    pub(super) places: &'a [Option<Place>],
    /// Whether what happened at a moment did so in every execution: of a recording all did.
    pub(super) is_sure: &'a dyn Fn(At) -> bool,
    /// By node, the innermost caller that is in no library.
    pub(super) callers: &'a BTreeMap<usize, Place>,
}

impl<At: Copy + Ord + Display> View<'_, At> {
    pub(super) fn print(&self, all: bool) -> Result<(), Failure> {
        for line in &self.question.words {
            print(format_args!("{line}\n"))?;
        }
        let folded = Folded::of(self.slice, self.places, all);
        for (shown, step) in folded.steps.iter().enumerate() {
            if print(format_args!("{}\n", self.step(shown, step)))? == Printed::Closed {
                return Ok(());
            }
        }
        if let Some(words) = folded.left_out.words("--all") {
            print(format_args!("     {words}\n"))?;
        }
        Ok(())
    }

    fn step(&self, shown: usize, step: &Step) -> String {
        let node = &self.slice.nodes[step.nodes[0]];
        let obvious = |role, source| step.sources.len() == 1 && role == Role::Value && source == shown + 1;
        let from = step.sources.iter().filter(|(role, source)| !obvious(*role, *source));
        let from: Vec<String> =
            from.map(|(role, source)| format!("{}#{source}", role_prefix(*role))).collect();
        let is_made = step.sources.iter().any(|(role, _)| *role != Role::Condition);
        let of = if is_made { "of " } else { "" };
        let from = if from.is_empty() { String::new() } else { format!("   {of}{}", from.join(", ")) };
        let given = self.given(step);
        let times = match step.nodes.len() {
            1 => String::new(),
            times => format!("  ({times} times)"),
        };
        let (head, at) = (format!("#{shown}"), node.writer.at.to_string());
        let values = values(&node.writer.made, &given).join(", ");
        let caller = self.callers.get(&step.nodes[0]).map(|place| format!("  from {}", place.short()));
        let caller = caller.unwrap_or_default();
        let sure = if (self.is_sure)(node.writer.at) { "" } else { "  (one possibility)" };
        format!("{head:<4} {at:<12} {}{caller}{times}{sure}\n       {values}{from}", self.what(step.nodes[0]))
    }

    /// What a step wrote, all times together: of a register that was written several times, the last time alone.
    fn given(&self, step: &Step) -> BTreeMap<Byte, (Option<u8>, Origin)> {
        let mut given: BTreeMap<Byte, (Option<u8>, Origin)> = BTreeMap::new();
        for number in &step.nodes {
            let newer: BTreeSet<Option<String>> = given.keys().map(|byte| byte.register()).collect();
            let of_node = self.slice.nodes[*number].writer.given.iter();
            let more = of_node.filter(|(byte, _)| match byte.register() {
                None => !given.contains_key(*byte),
                register => !newer.contains(&register),
            });
            given.extend(more.map(|(byte, of)| (*byte, of.clone())).collect::<Vec<_>>());
        }
        given
    }

    /// What wrote, and where.
    fn what(&self, number: usize) -> String {
        let writer = &self.slice.nodes[number].writer;
        let place = self.places[number].as_ref();
        let place = place.map_or_else(|| format!("{:#x}", writer.rip), Place::short);
        let other = writer.place != self.question.place;
        let who = if other { format!("thread {}  ", writer.place.thread) } else { String::new() };
        if let (Made::Call { .. } | Made::Unknown(_), Some(Byte::Memory(at))) =
            (&writer.made, writer.given.keys().next())
            && self.names.place(*at).is_some_and(|place| place.raw().starts_with("[vvar]"))
        {
            return "the kernel's clock, as it showed it then ([vvar])".to_owned();
        }
        match &writer.made {
            Made::Instruction(instruction) => format!("{who}{}  in {place}", written(instruction)),
            Made::Call { line, .. } => format!("{who}{line}"),
            Made::Machine(instruction) => format!("{who}{instruction}, which asks the processor, in {place}"),
            Made::Signal(signal) => {
                let name = signal_name(*signal).map_or_else(|| format!("signal {signal}"), str::to_owned);
                format!("{who}{name} begins its handler at {place}")
            }
            Made::Started => format!("{who}was started by thread {}", writer.from.thread),
            Made::Executed(path) => format!("{who}{path} was executed"),
            Made::Begin(words) => words.clone(),
            Made::Unknown(why) => format!("{who}not followed: {why}"),
        }
    }

    pub(super) fn print_json(&self) -> Result<(), Failure> {
        let nodes: Vec<Value> = (0..self.slice.nodes.len()).map(|number| self.node_json(number)).collect();
        let folded = Folded::of(self.slice, self.places, false);
        let steps: Vec<Value> = folded.steps.iter().map(|step| self.step_json(step)).collect();
        let object = json!({
            "question": {
                "words": self.question.words,
                "position": self.question.at.to_string(),
                "pid": self.question.place.pid,
                "thread": self.question.place.thread,
                "bytes": self.question.bytes.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "from": self.slice.roots.iter().map(|root| root.node).collect::<BTreeSet<_>>(),
            },
            "nodes": nodes,
            "steps": steps,
            "copies_left_out": folded.left_out.copies,
            "moves_left_out": folded.left_out.moves,
            "hashes_left_out": folded.left_out.hashes,
            "cut": self.slice.cut.is_some(),
        });
        print(format_args!("{object:#}\n")).map(drop)
    }

    /// What is shown of one instruction without `--all`.
    fn step_json(&self, step: &Step) -> Value {
        let node = &self.slice.nodes[step.nodes[0]];
        let from: Vec<Value> = step
            .sources
            .iter()
            .map(|(role, source)| json!({ "step": source, "role": role_name(*role) }))
            .collect();
        let given = self.given(step);
        let place = self.places[step.nodes[0]].as_ref();
        let caller = self.callers.get(&step.nodes[0]);
        let line = caller.or(place).and_then(|place| place.line());
        json!({
            "caller": caller.map(Place::short),
            "file": line.map(|(file, _)| file),
            "line": line.map(|(_, line)| line),
            "nodes": step.nodes,
            "position": node.writer.at.to_string(),
            "sure": (self.is_sure)(node.writer.at),
            "what": self.what(step.nodes[0]),
            "values": values(&node.writer.made, &given),
            "from": from,
        })
    }

    fn node_json(&self, number: usize) -> Value {
        let node = &self.slice.nodes[number];
        let (writer, place) = (&node.writer, &self.places[number]);
        let line = place.as_ref().and_then(|place| place.line());
        let kind = match &writer.made {
            Made::Instruction(_) => "instruction",
            Made::Call { .. } => "system call",
            Made::Machine(_) => "machine read",
            Made::Signal(_) => "signal",
            Made::Started => "started",
            Made::Executed(_) => "executed",
            Made::Begin(_) => "beginning",
            Made::Unknown(_) => "unknown",
        };
        let sources: Vec<Value> = node
            .sources
            .iter()
            .map(|it| json!({ "node": it.node, "byte": it.byte.to_string(), "role": role_name(it.role) }))
            .collect();
        json!({
            "position": writer.at.to_string(),
            "sure": (self.is_sure)(writer.at),
            "pid": writer.place.pid,
            "thread": writer.place.thread,
            "kind": kind,
            "what": self.what(number),
            "rip": hex(writer.rip),
            "function": place.as_ref().and_then(|place| place.function()),
            "file": line.map(|(file, _)| file),
            "line": line.map(|(_, line)| line),
            "read": of_buffer(&writer.made, &writer.given),
            "values": stretches(&writer.given).iter().map(Stretch::as_json).collect::<Vec<_>>(),
            "sources": sources,
        })
    }
}

/// Bytes and their values, stretch by stretch: `rax = 0x0`, `[0x7fffffffe6d8] = "text"`.
pub(super) fn value_texts(given: &BTreeMap<Byte, (Option<u8>, Origin)>) -> Vec<String> {
    stretches(given).iter().map(Stretch::text).collect()
}

/// What was written of what was asked for.
fn values(made: &Made, given: &BTreeMap<Byte, (Option<u8>, Origin)>) -> Vec<String> {
    let mut texts = value_texts(given);
    let read = of_buffer(made, given);
    if !read.is_empty() {
        let parts = read.iter().map(|(first, last)| match first == last {
            true => format!("byte {first}"),
            false => format!("bytes {first} to {last}"),
        });
        texts.push(format!("{} of what it read", parts.collect::<Vec<_>>().join(" and ")));
    }
    texts
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Value => "value",
        Role::Address => "address",
        Role::Condition => "condition",
    }
}

fn role_prefix(role: Role) -> &'static str {
    match role {
        Role::Value => "",
        Role::Address => "address ",
        Role::Condition => "chosen by ",
    }
}

/// Bytes that lie one after the other.
struct Stretch {
    first: Byte,
    last: Byte,
    /// `None` for one whose value is not known.
    bytes: Vec<Option<u8>>,
}

/// What was given as stretches of registers and memory.
fn stretches(given: &BTreeMap<Byte, (Option<u8>, Origin)>) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for (byte, (value, _)) in given {
        match all.last_mut() {
            Some(last) if belong(last.last, *byte) => {
                last.bytes.push(*value);
                last.last = *byte;
            }
            _ => all.push(Stretch { first: *byte, last: *byte, bytes: vec![*value] }),
        }
    }
    all
}

impl Stretch {
    fn text(&self) -> String {
        let known: Option<Vec<u8>> = self.bytes.iter().copied().collect();
        let value = known.map_or_else(|| "?".to_owned(), |bytes| bytes_text(&bytes));
        match (self.first, self.first.register()) {
            (Byte::Memory(at), _) => format!("[{at:#x}] = {value}"),
            (Byte::Stream(stream, first), _) => format!("from byte {first} of stream {stream}: {value}"),
            (_, Some(name)) => format!("{}{name} = {value}", self.part()),
            (_, None) => value,
        }
    }

    /// Which bytes of a register, unless it is all of it.
    fn part(&self) -> String {
        let (first, all) = match self.first {
            Byte::General(_, first) | Byte::Mask(_, first) | Byte::Base(_, first) => (first, 8),
            Byte::Vector(_, first) => (first, 16),
            Byte::X87(_, first) => (first, 10),
            _ => return String::new(),
        };
        match self.bytes.len() {
            n if n >= all => String::new(),
            1 => format!("byte {first} of "),
            n => format!("bytes {first} to {} of ", usize::from(first) + n - 1),
        }
    }

    fn as_json(&self) -> Value {
        let digits = |byte: &Option<u8>| byte.map_or_else(|| "??".to_owned(), |byte| format!("{byte:02x}"));
        json!({
            "of": self.first.to_string(),
            "bytes": self.bytes.iter().map(digits).collect::<String>(),
        })
    }
}

/// Bytes as a text, if they are one; else as the number that they are, lowest byte first.
fn bytes_text(bytes: &[u8]) -> String {
    let printable = bytes.iter().all(|byte| (0x20..0x7f).contains(byte));
    if printable && bytes.len() > 1 {
        let text: String = bytes.iter().take(LONGEST).map(|byte| char::from(*byte)).collect();
        return format!("{text:?}{}", if bytes.len() > LONGEST { "..." } else { "" });
    }
    if bytes.len() <= 8 {
        let number = bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        return format!("{number:#x}");
    }
    let shown: String = bytes.iter().take(LONGEST).map(|byte| format!("{byte:02x}")).collect();
    format!("{shown}{}", if bytes.len() > LONGEST { "..." } else { "" })
}

/// Which bytes of a call's buffer, stretches with their first and last: of read, pread64 and recvfrom, whose second argument it is.
fn of_buffer(made: &Made, given: &BTreeMap<Byte, (Option<u8>, Origin)>) -> Vec<(u64, u64)> {
    let Made::Call { number, arguments, .. } = made else { return Vec::new() };
    if ![libc::SYS_read, libc::SYS_pread64, libc::SYS_recvfrom].contains(&number.cast_signed()) {
        return Vec::new();
    }
    let within = |it: &Stretch| {
        let Byte::Memory(at) = it.first else { return None };
        let first = at.checked_sub(arguments[1])?;
        let last = first + it.bytes.len() as u64 - 1;
        (last < arguments[2]).then_some((first, last))
    };
    stretches(given).iter().filter_map(within).collect()
}
