//! `gretel events` of a machine: what came from outside, what its disk did, what it sent, its interrupts, its end.

use super::replay::failure;
use super::start::first;
use super::{seconds, sentence, word};
use crate::Outcome;
use crate::events::WantedOfMachine;
use crate::events::shown::{Kind, number};
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::output::written;
use crate::sandbox;
use board::happening::{Happening, Request, Status, What};
use board::journal::{Input, JournalError, Reader, Record};
use board::replay::{ReplayError, Watcher, replay};
use board::vsock::{Header, op};
use board::{Machine, Size};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use vmm::recording::Recording;
use vmm::syscalls::show::text::quoted;

/// Lists what happens in a replay, as JSON if `as_json`.
pub(crate) fn run(recording: &Recording, wanted: &WantedOfMachine, as_json: bool) -> Outcome {
    let unusable = |error: JournalError| Failure::new(Code::Damaged, error);
    let mut reader = Reader::open(&recording.journal()).map_err(unusable)?;
    let mut machine = first(recording, reader.header())?;
    sandbox::enter();
    machine.observe();
    let before = machine.position().delivered;
    let out = BufWriter::new(io::stdout().lock());
    let mut list = List { wanted, as_json, out, interrupts: BTreeMap::new(), is_behind: false };
    let replayed = replay(&mut machine, &mut reader, &mut list);
    let listed = replayed.as_ref().map_or(Ok(()), |_| list.finish(machine.position().delivered - before));
    written(listed.and_then(|()| list.out.flush()))?;
    let replayed = match replayed {
        // Who closes the pipe has seen enough.
        Err(ReplayError::Shown(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(ExitCode::SUCCESS);
        }
        replayed => replayed.map_err(|error| failure(&error))?,
    };
    let Some(damage) = &replayed.damage else { return Ok(ExitCode::SUCCESS) };
    say!("gretel: {damage}");
    say!("gretel: the {} records before it are as recorded", replayed.compared);
    Ok(Code::Damaged.into())
}

/// The list, as it is printed.
struct List<'l, W> {
    wanted: &'l WantedOfMachine,
    as_json: bool,
    out: W,
    /// How many there were of each vector.
    interrupts: BTreeMap<u8, u64>,
    /// What comes now is behind all that is wanted.
    is_behind: bool,
}

impl<W: Write> List<'_, W> {
    /// A line, if it is wanted: where, when, and what.
    fn line(&mut self, (at, time): (u64, u64), kind: Kind, text: &str, more: Value) -> io::Result<()> {
        self.is_behind |= self.wanted.is_behind(at);
        if !self.wanted.has_kind(kind) || !self.wanted.has_place(at) {
            return Ok(());
        }
        if !self.as_json {
            return writeln!(self.out, "{at:>13}  {:>9} s  {:<9} {text}", seconds(time), kind.name());
        }
        let mut object =
            json!({ "instructions": number(at), "nanoseconds": number(time), "kind": kind.name() });
        if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
            object.extend(more);
        }
        object["text"] = text.into();
        writeln!(self.out, "{object}")
    }

    /// What came from outside.
    fn input(&mut self, moment: (u64, u64), input: &Input) -> io::Result<()> {
        match input {
            Input::Typed(bytes) => {
                let lossy = String::from_utf8_lossy(bytes);
                let more = json!({ "bytes": bytes.len(), "typed": lossy });
                self.line(moment, Kind::Typed, &quoted(bytes), more)
            }
            Input::Frame(bytes) => {
                let more = json!({ "bytes": bytes.len(), "direction": "in" });
                self.line(moment, Kind::Frame, &format!("receives {} bytes", bytes.len()), more)
            }
            Input::Random(bytes) => {
                let text = format!("{} random bytes", bytes.len());
                self.line(moment, Kind::Random, &text, json!({ "bytes": bytes.len() }))
            }
            Input::Resized(Size { columns, rows }) => {
                let more = json!({ "columns": columns, "rows": rows });
                self.line(
                    moment,
                    Kind::Size,
                    &format!("the terminal has {columns} columns, {rows} rows"),
                    more,
                )
            }
            Input::Packet(bytes) => match Header::of(bytes) {
                Some(header) => self.packet(moment, "receives", &header),
                None => Ok(()),
            },
            Input::Severed => {
                let text = "all connections are gone";
                self.line(moment, Kind::Vsock, text, json!({ "op": "transport-reset", "direction": "in" }))
            }
        }
    }

    /// A packet of the vsock.
    fn packet(&mut self, moment: (u64, u64), verb: &str, header: &Header) -> io::Result<()> {
        let Header { from_port, to_port, length, op, .. } = *header;
        let name = match op {
            op::REQUEST => "request".to_owned(),
            op::RESPONSE => "response".to_owned(),
            op::RESET => "reset".to_owned(),
            op::SHUTDOWN => "shutdown".to_owned(),
            op::DATA => "data".to_owned(),
            op::CREDIT_UPDATE => "credit-update".to_owned(),
            op::CREDIT_REQUEST => "credit-request".to_owned(),
            other => format!("operation {other}"),
        };
        let bytes = if op == op::DATA { format!(", {length} bytes") } else { String::new() };
        let text = format!("{verb} {name}{bytes}, port {from_port} to {to_port}");
        let direction = if verb == "sends" { "out" } else { "in" };
        let more = json!({
            "op": name, "direction": direction, "bytes": length, "from_port": from_port, "to_port": to_port,
        });
        self.line(moment, Kind::Vsock, &text, more)
    }

    /// How many interrupts there were, and exceptions, which are the rest of all that was delivered.
    fn finish(&mut self, delivered: u64) -> io::Result<()> {
        if !self.wanted.is_all() {
            return Ok(());
        }
        let exceptions = delivered.saturating_sub(self.interrupts.values().sum());
        if self.as_json {
            let vectors = self.interrupts.iter().map(|(vector, count)| (vector.to_string(), (*count).into()));
            let vectors: serde_json::Map<String, Value> = vectors.collect();
            let counts = json!({ "kind": "counts", "interrupts": vectors, "exceptions": exceptions });
            return writeln!(self.out, "{counts}");
        }
        writeln!(self.out, "interrupts taken, by vector:")?;
        for (vector, count) in &self.interrupts {
            writeln!(self.out, "{count:>13}  {vector:#04x}")?;
        }
        writeln!(self.out, "{exceptions:>13}  exceptions and software interrupts")
    }
}

impl<W: Write> Watcher for List<'_, W> {
    fn printed(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn happened(&mut self, happening: &Happening) -> io::Result<()> {
        let moment = (happening.at.retired, happening.time);
        match happening.what {
            What::Interrupt(vector) => {
                *self.interrupts.entry(vector).or_default() += 1;
                self.line(
                    moment,
                    Kind::Interrupt,
                    &format!("vector {vector:#04x}"),
                    json!({ "vector": vector }),
                )
            }
            What::Sent(bytes) => {
                let more = json!({ "bytes": bytes, "direction": "out" });
                self.line(moment, Kind::Frame, &format!("sends {bytes} bytes"), more)
            }
            What::Packet(header) => self.packet(moment, "sends", &header),
            What::Disk(request) => self.line(moment, Kind::Disk, &text(&request), details(&request)),
        }
    }

    fn reached(&mut self, _machine: &Machine, record: &Record) -> io::Result<()> {
        let moment = (record.at().retired, record.at().time);
        match record {
            Record::Input { input, .. } => self.input(moment, input),
            Record::Check { .. } => Ok(()),
            Record::End { end, .. } => {
                self.line(moment, Kind::End, &sentence(end), json!({ "end": word(end) }))
            }
        }
    }

    fn is_done(&self) -> bool {
        self.is_behind
    }
}

/// What the disk did.
fn text(request: &Request) -> String {
    let Request { kind, sector, bytes, status } = request;
    let what = match kind {
        Some(0) => format!("reads {bytes} bytes from sector {sector}"),
        Some(1) => format!("writes {bytes} bytes to sector {sector}"),
        Some(4) => "flushes".to_owned(),
        Some(8) => "tells its name".to_owned(),
        Some(kind) => format!("request of kind {kind}"),
        None => "request without a header".to_owned(),
    };
    match status {
        Status::Done => what,
        Status::Failed => format!("{what}: failed"),
        Status::Unsupported => format!("{what}: not supported"),
    }
}

fn details(request: &Request) -> Value {
    let Request { kind, sector, bytes, status } = request;
    json!({
        "request": kind, "sector": number(*sector), "bytes": number(*bytes), "status": *status as u8,
    })
}
