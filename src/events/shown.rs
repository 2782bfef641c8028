//! Something that happened, as a line of text and as JSON.

use crate::ending;
use serde_json::{Value, json};
use std::fmt;
use vmm::gate::Time;
use vmm::journal::End;
use vmm::position::{Offset, Position};
use vmm::process::happening::{Call, Happening, Stage, What};
use vmm::signal::{Cause, Death, Raised};
use vmm::syscalls::show::signal;
use vmm::syscalls::show::text::quoted;
use vmm::syscalls::{self, call_error};

/// Numbers up to this are exact in every reader of JSON.
const EXACT: u64 = 1 << 53;
/// The kernel's own errors begin here: calls that begin again, which are no failures.
const FIRST_OF_KERNEL: i32 = 512;

/// What kind of thing happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A system call
    Syscall,
    /// A signal is delivered
    Signal,
    /// Another task gets the processor
    Switch,
    /// A task is interrupted between two instructions
    Preempt,
    /// All tasks wait
    Wait,
    /// An instruction reads the machine: RDTSC, CPUID and their like
    Read,
    /// A process or thread is started
    Fork,
    /// A process runs another program
    Exec,
    /// A process or thread ends, or a signal ends it without a core
    Exit,
    /// A signal ends a process, with a core
    Crash,
    /// Memory is used up, and a process is killed
    Memory,
    /// A machine: bytes are typed
    Typed,
    /// A machine: its disk does a request
    Disk,
    /// A machine: a frame comes to its network card, or is sent
    Frame,
    /// A machine: random bytes come that it has asked for
    Random,
    /// A machine: the terminal of its console has another size
    Size,
    /// A machine: a packet comes to its vsock, or is sent
    Vsock,
    /// A machine: the processor takes an interrupt
    Interrupt,
    /// The recording's end
    End,
}

impl Kind {
    /// The kind of something that happened.
    pub(crate) fn of(what: &What) -> Kind {
        match what {
            What::Call(_) => Kind::Syscall,
            What::MachineRead { .. } => Kind::Read,
            What::Signal { .. } => Kind::Signal,
            What::Preempted(_) => Kind::Preempt,
            What::Waited => Kind::Wait,
            What::OutOfMemory(_) => Kind::Memory,
            What::Switched { .. } => Kind::Switch,
            What::Started { .. } => Kind::Fork,
            What::Executed { .. } => Kind::Exec,
            What::Died(death) if death.leaves_core() => Kind::Crash,
            What::TaskEnded | What::Exited(_) | What::Died(_) => Kind::Exit,
        }
    }

    /// Its name, as `--kind` takes it.
    pub(crate) fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self);
        value.map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Whether a call has returned an error to the program.
pub(crate) fn failed(stage: Stage) -> bool {
    stage.result().and_then(call_error).is_some_and(|(error, _)| error < FIRST_OF_KERNEL)
}

/// A number, or a string in hexadecimal where readers of JSON would round it.
pub(crate) fn number(value: u64) -> Value {
    if value <= EXACT { value.into() } else { format!("{value:#x}").into() }
}

/// The same of a result: errors are negative.
pub(crate) fn result(value: u64) -> Value {
    match value.cast_signed() {
        small if small.unsigned_abs() <= EXACT => small.into(),
        _ => number(value),
    }
}

/// A line of the list.
pub(super) struct Line {
    position: Position,
    /// The process and the task; none for the recording's end.
    who: Option<(i32, i32)>,
    kind: Kind,
    text: String,
    /// What JSON has besides.
    more: Value,
}

impl Line {
    /// The line of something that happened.
    pub(super) fn of(happening: &Happening) -> Line {
        let Happening { position, pid, task, time, instructions, what } = happening;
        let mut more = details(what);
        let Time { real, monotonic } = *time;
        more["time"] = format!("{}.{:09}", real / 1_000_000_000, real % 1_000_000_000).into();
        more["monotonic"] = number(monotonic);
        more["instructions"] = instructions.map_or(Value::Null, number);
        Line { position: *position, who: Some((*pid, *task)), kind: Kind::of(what), text: text(what), more }
    }

    /// The line of the recording's end.
    pub(super) fn of_end(position: Position, end: &End) -> Line {
        let (word, number) = ending::word(Some(end));
        let more = json!({ "end": word, "status_or_signal": number });
        Line { position, who: None, kind: Kind::End, text: ending::sentence(end), more }
    }

    /// The same for scripts.
    pub(super) fn as_json(&self) -> Value {
        let mut object = json!({ "event": number(self.position.event), "kind": self.kind.name() });
        if let Some((pid, task)) = self.who {
            (object["pid"], object["task"]) = (pid.into(), task.into());
        }
        if let (Value::Object(object), Value::Object(more)) = (&mut object, &self.more) {
            object.extend(more.clone());
        }
        object["text"] = self.text.as_str().into();
        object
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.who {
            Some((pid, task)) if pid == task => pid.to_string(),
            Some((pid, task)) => format!("{pid}/{task}"),
            None => String::new(),
        };
        write!(f, "{:>8}  {who:<11}  {:<8} {}", self.position.to_string(), self.kind.name(), self.text)
    }
}

/// What happened, for people.
pub(crate) fn text(what: &What) -> String {
    match what {
        What::Call(call) => call.line.clone(),
        What::MachineRead { instruction, value: Some(value) } => format!("{instruction} = {value:#x}"),
        What::MachineRead { instruction, value: None } => instruction.clone(),
        What::Signal { raised, handler } => {
            let becomes = handler.map_or("not handled".to_owned(), |at| format!("handler at {at:#x}"));
            format!("{}, {becomes}", reason(raised))
        }
        What::Preempted(Offset::Retired(count)) => format!("after {count} instructions"),
        What::Preempted(Offset::State(target)) => format!("at {:#x}", target.regs.rip),
        What::Waited => "until the host has something for a task, or time has passed".to_owned(),
        What::OutOfMemory(pid) => format!("used up: process {pid} is killed"),
        What::Switched { from } => format!("from task {from}"),
        What::Started { task, pid } if task == pid => format!("process {pid}"),
        What::Started { task, .. } => format!("thread {task}"),
        What::Executed { path, arguments } => {
            let arguments: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
            format!("{} [{}]", quoted(path), arguments.join(", "))
        }
        What::TaskEnded => "the thread ends, its process goes on".to_owned(),
        What::Exited(status) => format!("with status {}", status & 0xff),
        What::Died(death) => ended_by(death),
    }
}

/// How a signal ended a process.
fn ended_by(death: &Death) -> String {
    format!("ended by {}{}", signal_name(death.signal), address(death))
}

/// The signal, and why it came.
fn reason(raised: &Raised) -> String {
    let why = match raised.cause {
        Cause::Kernel => address(&raised.death),
        // As Linux tells of a sender in another PID namespace.
        Cause::Sender { pid: 0, .. } | Cause::Queued { pid: 0, .. } => " from outside".to_owned(),
        Cause::Sender { pid, .. } | Cause::Queued { pid, .. } => format!(" from process {pid}"),
        Cause::Child { pid, status, .. } => format!(" of child {pid} (status {status})"),
        Cause::Timer { id, .. } => format!(" of timer {id}"),
        Cause::File { number, .. } => format!(" of descriptor {number}"),
        Cause::Syscall { number, .. } => {
            format!(" of a filter, for system call {}", syscalls::name(number.into()))
        }
    };
    signal_name(raised.signal()) + &why
}

/// The address of a fault.
fn address(death: &Death) -> String {
    if death.exception.is_some() && death.code > 0 && death.code != vmm::signal::SI_KERNEL {
        format!(" (address {:#x})", death.address)
    } else {
        String::new()
    }
}

fn signal_name(number: i32) -> String {
    signal(number.unsigned_abs().into())
}

/// What happened, for scripts.
pub(crate) fn details(what: &What) -> Value {
    match what {
        What::Call(call) => of_call(call),
        What::MachineRead { instruction, value } => {
            json!({ "instruction": instruction, "value": value.map(number) })
        }
        What::Signal { raised, handler } => json!({
            "signal": signal_name(raised.signal()),
            "code": raised.death.code,
            "address": raised.death.exception.map(|_| number(raised.death.address)),
            "handler": handler.map(number),
        }),
        What::Preempted(Offset::Retired(count)) => json!({ "after_instructions": number(*count) }),
        What::Preempted(Offset::State(target)) => json!({ "rip": number(target.regs.rip) }),
        What::OutOfMemory(pid) => json!({ "killed": pid }),
        What::Switched { from } => json!({ "from": from }),
        What::Started { task, pid } => json!({ "started": task, "of_process": pid }),
        What::Executed { path, arguments } => {
            let lossy = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
            json!({ "path": lossy(path), "arguments": arguments.iter().map(lossy).collect::<Vec<_>>() })
        }
        What::Exited(status) => json!({ "status": status & 0xff }),
        What::Died(death) => json!({
            "signal": signal_name(death.signal),
            "code": death.code,
            "address": death.exception.map(|_| number(death.address)),
        }),
        What::Waited | What::TaskEnded => json!({}),
    }
}

fn of_call(call: &Call) -> Value {
    let stage = match call.stage {
        Stage::Whole(_) => "whole",
        Stage::Begun => "begun",
        Stage::Again => "again",
        Stage::Resumed(_) => "resumed",
        Stage::Never => "never",
    };
    let error = call.stage.result().and_then(call_error).map(|(_, name)| name);
    json!({
        "name": syscalls::name(call.number),
        "number": number(call.number),
        "arguments": call.arguments.map(number),
        "stage": stage,
        "result": call.stage.result().map(result),
        "error": error,
    })
}
