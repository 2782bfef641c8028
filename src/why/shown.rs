//! A slice as text and as JSON.

use super::folded::{Folded, Step};
use super::question::Question;
use crate::core_file::hex;
use crate::exit::Failure;
use crate::output::{Printed, print};
use crate::symbols::Symbols;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use synth::report::written;
use vmm::elfcore::signal_name;
use vmm::position::Position;
use vmm::slice::{Byte, Made, Node, Origin, Role, Slice};

/// The longest text of bytes that is shown.
const LONGEST: usize = 48;

/// A question and its answer.
pub(super) struct View<'a> {
    pub(super) question: &'a Question,
    pub(super) slice: &'a Slice<Position>,
    pub(super) symbols: &'a Symbols,
}

impl View<'_> {
    pub(super) fn print(&self, all: bool) -> Result<(), Failure> {
        for line in &self.question.words {
            print(format_args!("{line}\n"))?;
        }
        let folded = Folded::of(self.slice, self.symbols, all);
        for (shown, step) in folded.steps.iter().enumerate() {
            if print(format_args!("{}\n", self.step(shown, step)))? == Printed::Closed {
                return Ok(());
            }
        }
        if folded.left_out > 0 {
            let copies = folded.left_out;
            print(format_args!("     {copies} copies within these functions are left out (--all)\n"))?;
        }
        Ok(())
    }

    fn step(&self, shown: usize, step: &Step) -> String {
        let node = &self.slice.nodes[step.nodes[0]];
        let obvious = |role, source| step.sources.len() == 1 && role == Role::Value && source == shown + 1;
        let from = step.sources.iter().filter(|(role, source)| !obvious(*role, *source));
        let from: Vec<String> =
            from.map(|(role, source)| format!("{}#{source}", role_prefix(*role))).collect();
        let from = if from.is_empty() { String::new() } else { format!("   from {}", from.join(", ")) };
        let mut given = BTreeMap::new();
        // Of a register that was written several times it is the last value.
        for number in step.nodes.iter().rev() {
            given.extend(self.slice.nodes[*number].writer.given.clone());
        }
        let times = match step.nodes.len() {
            1 => String::new(),
            times => format!("  ({times} times)"),
        };
        let (head, at) = (format!("#{shown}"), node.writer.at.to_string());
        let values = values(&node.writer.made, &given).join(", ");
        format!("{head:<4} {at:<12} {}{times}\n       {values}{from}", self.what(node))
    }

    /// What wrote, and where.
    fn what(&self, node: &Node<Position>) -> String {
        let writer = &node.writer;
        let place =
            self.symbols.place(writer.rip).map_or_else(|| format!("{:#x}", writer.rip), |it| it.short());
        let other = writer.place != self.question.place;
        let who = if other { format!("thread {}  ", writer.place.thread) } else { String::new() };
        if let (Made::Call { .. } | Made::Unknown(_), Some(Byte::Memory(at))) =
            (&writer.made, writer.given.keys().next())
            && self.symbols.place(*at).is_some_and(|place| place.raw().starts_with("[vvar]"))
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
            Made::Begin(Some(from)) => format!("as it was at the beginning ({from})"),
            Made::Begin(None) => "as it was at the beginning".to_owned(),
            Made::Unknown(why) => format!("{who}not followed: {why}"),
        }
    }

    pub(super) fn print_json(&self) -> Result<(), Failure> {
        let nodes: Vec<Value> = self.slice.nodes.iter().map(|node| self.node_json(node)).collect();
        let object = json!({
            "question": {
                "words": self.question.words,
                "position": self.question.at.to_string(),
                "pid": self.question.place.pid,
                "thread": self.question.place.thread,
                "bytes": self.question.bytes.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "from": self.slice.roots.iter().map(|root| root.node).collect::<std::collections::BTreeSet<_>>(),
            },
            "nodes": nodes,
            "cut": self.slice.cut.is_some(),
        });
        print(format_args!("{object:#}\n")).map(drop)
    }

    fn node_json(&self, node: &Node<Position>) -> Value {
        let writer = &node.writer;
        let place = self.symbols.place(writer.rip);
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
            "pid": writer.place.pid,
            "thread": writer.place.thread,
            "kind": kind,
            "what": self.what(node),
            "rip": hex(writer.rip),
            "function": place.as_ref().and_then(|place| place.function()),
            "file": line.map(|(file, _)| file),
            "line": line.map(|(_, line)| line),
            "read": of_buffer(&writer.made, &writer.given).map(|(first, last)| json!([first, last])),
            "values": stretches(&writer.given).iter().map(Stretch::as_json).collect::<Vec<_>>(),
            "sources": sources,
        })
    }
}

/// What was written of what was asked for.
fn values(made: &Made, given: &BTreeMap<Byte, (u8, Origin)>) -> Vec<String> {
    let mut texts: Vec<String> = stretches(given).iter().map(Stretch::text).collect();
    texts.extend(of_buffer(made, given).map(|(first, last)| match first == last {
        true => format!("byte {first} of what it read"),
        false => format!("bytes {first} to {last} of what it read"),
    }));
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
    bytes: Vec<u8>,
}

/// What was given as stretches of registers and memory.
fn stretches(given: &BTreeMap<Byte, (u8, Origin)>) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    for (byte, (value, _)) in given {
        let follows = all.last().is_some_and(|last| follows(last, *byte));
        match all.last_mut() {
            Some(last) if follows => last.bytes.push(*value),
            _ => all.push(Stretch { first: *byte, bytes: vec![*value] }),
        }
    }
    all
}

fn follows(stretch: &Stretch, byte: Byte) -> bool {
    let n = stretch.bytes.len();
    match (stretch.first, byte) {
        (Byte::Memory(first), Byte::Memory(at)) => first.wrapping_add(n as u64) == at,
        (Byte::Stream(a, first), Byte::Stream(b, at)) => a == b && first.wrapping_add(n as u64) == at,
        (first, byte) => first.register() == byte.register() && !matches!(byte, Byte::Flag(_)),
    }
}

impl Stretch {
    fn text(&self) -> String {
        let value = bytes_text(&self.bytes);
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
        json!({
            "of": self.first.to_string(),
            "bytes": self.bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
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

/// Which bytes of a call's buffer, the first and the last: of read, pread64 and recvfrom, whose second argument it is.
fn of_buffer(made: &Made, given: &BTreeMap<Byte, (u8, Origin)>) -> Option<(u64, u64)> {
    let Made::Call { number, arguments, .. } = made else { return None };
    if ![libc::SYS_read, libc::SYS_pread64, libc::SYS_recvfrom].contains(&number.cast_signed()) {
        return None;
    }
    let at = |byte: &Byte| if let Byte::Memory(at) = byte { at.checked_sub(arguments[1]) } else { None };
    let (first, last) = (at(given.keys().next()?)?, at(given.keys().next_back()?)?);
    (last < arguments[2]).then_some((first, last))
}
