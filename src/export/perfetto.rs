//! The Trace Event Format, which Perfetto and Chrome read: one JSON object, with an event a line.
//!
//! A call is a `B` and an `E` on its task's lane, a mark an `i`, a name an `M`. Example: a `read` that waits is `B` at its event,
//! and `E` at the one at which it returns; between them the lane of the processor has another task's slice.

use super::axis::{Scale, Span};
use crate::events::shown::{Kind, details, number, result, text};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use vmm::process::Process;
use vmm::process::happening::{Call, Happening, Stage, What};
use vmm::syscalls;

/// The number of the process and of the lane of the processor: above all that a program may have (`pid_max`).
const PROCESSOR: i32 = 4_194_304;

/// A process and a task of it.
type Lane = (i32, i32);

/// Writes a trace.
pub(super) struct Writer<'a> {
    out: &'a mut dyn Write,
    scale: Scale,
    /// Whether an event was written, behind which the next needs a comma.
    follows: bool,
    /// The first error.
    error: Option<io::Error>,
    /// Calls that wait: those of a task are one at most.
    waits: BTreeSet<Lane>,
    /// The task that runs, if one does.
    runs: Option<Lane>,
    /// Of each process its program, of each task its name.
    programs: BTreeMap<i32, String>,
    tasks: BTreeMap<Lane, String>,
    /// The lanes that have something.
    lanes: BTreeSet<Lane>,
}

impl<'a> Writer<'a> {
    /// Begins the trace of a program that stands at its start.
    pub(super) fn begin(out: &'a mut dyn Write, scale: Scale, process: &Process) -> Writer<'a> {
        let (path, _) = process.command();
        let programs = BTreeMap::from([(process.pid(), file_name(path.to_bytes()))]);
        let (waits, tasks, lanes) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
        let mut writer =
            Writer { out, scale, follows: false, error: None, waits, runs: None, programs, tasks, lanes };
        let about = json!({ "axis": writer.scale.axis().description() });
        writer.write(&format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[\n"));
        writer.name_task(process);
        writer
    }

    /// Whether all could be written.
    pub(super) fn written(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Takes the names of the task that is loaded and of its program.
    pub(super) fn name_task(&mut self, process: &Process) {
        let name = String::from_utf8_lossy(process.task_name()).into_owned();
        self.tasks.insert((process.pid(), process.thread()), name);
        // One that ran before the trace begins was never seen to begin.
        let program = || file_name(process.command().0.to_bytes());
        self.programs.entry(process.pid()).or_insert_with(program);
    }

    /// Writes something that happened.
    pub(super) fn put(&mut self, happening: &Happening) {
        let span = self.scale.advance(happening);
        let lane = (happening.pid, happening.task);
        self.lanes.insert(lane);
        self.run(happening, lane, span);
        let args = |more: Value| {
            let mut args = json!({ "event": number(happening.position.event) });
            args["monotonic_ns"] = number(happening.time.monotonic);
            if let (Value::Object(args), Value::Object(more)) = (&mut args, more) {
                args.extend(more);
            }
            args
        };
        match &happening.what {
            What::Call(call) => return self.call(call, lane, span, &args),
            // The lane of the processor shows these.
            What::Switched { .. } | What::Waited => return,
            What::Started { task, pid } => self.inherit(lane, (*pid, *task)),
            What::Executed { path, .. } => {
                self.programs.insert(lane.0, file_name(path));
                self.end_process(lane.0, span.end);
            }
            What::Exited(_) | What::Died(_) => self.end_process(lane.0, span.end),
            _ => {}
        }
        let name = match &happening.what {
            What::MachineRead { instruction, .. } => instruction.clone(),
            what => format!("{}: {}", Kind::of(what).name(), text(what)),
        };
        let kind = Kind::of(&happening.what).name();
        let args = args(details(&happening.what));
        self.event("i", lane, span.here, json!({ "name": name, "cat": kind, "s": "t", "args": args }));
    }

    /// A system call at one of its stages.
    fn call(&mut self, call: &Call, lane: Lane, span: Span, args: &dyn Fn(Value) -> Value) {
        let name = syscalls::name(call.number);
        let begin = json!({
            "name": name, "cat": "syscall",
            "args": args(json!({ "arguments": call.arguments.map(number) })),
        });
        let mut end = args(json!({ "call": call.line }));
        if let Some(value) = call.stage.result() {
            end["result"] = result(value);
        }
        let end = json!({ "name": name, "cat": "syscall", "args": end });
        match call.stage {
            Stage::Begun => {
                self.waits.insert(lane);
                self.event("B", lane, span.here, begin);
            }
            Stage::Again => {}
            Stage::Resumed(_) if self.waits.remove(&lane) => {
                self.event("E", lane, span.end, end);
            }
            Stage::Whole(_) | Stage::Never | Stage::Resumed(_) => {
                self.event("B", lane, span.begin, begin);
                self.event("E", lane, span.end, end);
            }
        }
    }

    /// Keeps the lane of the processor: whose task runs up to here.
    fn run(&mut self, happening: &Happening, lane: Lane, span: Span) {
        match &happening.what {
            What::Waited => return self.stop(span.before),
            What::Switched { .. } => self.stop(span.before),
            What::Executed { .. } if self.runs.is_some_and(|runs| runs != lane) => self.stop(span.before),
            _ => {}
        }
        if self.runs.is_none() {
            self.runs = Some(lane);
            let (pid, task) = lane;
            let program = self.programs.get(&pid).map_or("task", String::as_str);
            let slice = json!({
                "name": format!("{program} {task}"), "cat": "run", "args": { "pid": pid, "task": task },
            });
            self.event("B", (PROCESSOR, PROCESSOR), span.before, slice);
        }
    }

    /// The task that runs stops.
    fn stop(&mut self, at: u64) {
        if self.runs.take().is_some() {
            self.event("E", (PROCESSOR, PROCESSOR), at, json!({}));
        }
    }

    /// A new task has its creator's names.
    fn inherit(&mut self, creator: Lane, new: Lane) {
        if let Some(name) = self.tasks.get(&creator).cloned() {
            self.tasks.entry(new).or_insert(name);
        }
        if let Some(program) = self.programs.get(&creator.0).cloned() {
            self.programs.entry(new.0).or_insert(program);
        }
    }

    /// The calls in which other tasks of the process waited do not return.
    fn end_process(&mut self, pid: i32, at: u64) {
        let waiting: Vec<Lane> = self.waits.iter().copied().filter(|(of, _)| *of == pid).collect();
        for lane in waiting {
            self.waits.remove(&lane);
            self.event("E", lane, at, json!({}));
        }
    }

    /// Ends all slices that are open, writes the names, and ends the trace.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let last = self.scale.last();
        self.stop(last);
        for lane in std::mem::take(&mut self.waits) {
            self.event("E", lane, last, json!({}));
        }
        self.name("process_name", (PROCESSOR, PROCESSOR), "processor");
        self.name("thread_name", (PROCESSOR, PROCESSOR), "processor");
        let first = json!({ "name": "process_sort_index", "args": { "sort_index": -1 } });
        self.event("M", (PROCESSOR, PROCESSOR), 0, first);
        for (pid, task) in std::mem::take(&mut self.lanes) {
            self.programs.entry(pid).or_insert_with(|| format!("process {pid}"));
            self.tasks.entry((pid, task)).or_insert_with(|| format!("task {task}"));
        }
        for (pid, program) in std::mem::take(&mut self.programs) {
            self.name("process_name", (pid, pid), &program);
        }
        for (lane, name) in std::mem::take(&mut self.tasks) {
            self.name("thread_name", lane, &name);
        }
        self.write("\n]}\n");
        self.written()
    }

    fn name(&mut self, what: &str, lane: Lane, name: &str) {
        self.event("M", lane, 0, json!({ "name": what, "args": { "name": name } }));
    }

    /// Writes an event of a phase, on a lane, at a place of the axis.
    #[expect(clippy::cast_precision_loss, reason = "exact up to a hundred days")]
    fn event(&mut self, phase: &str, (pid, task): Lane, at: u64, mut event: Value) {
        event["ph"] = phase.into();
        (event["pid"], event["tid"]) = (pid.into(), task.into());
        event["ts"] = (at as f64 / 1000.0).into();
        let comma = if std::mem::replace(&mut self.follows, true) { ",\n" } else { "" };
        self.write(&format!("{comma}{event}"));
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none() {
            self.error = self.out.write_all(text.as_bytes()).err();
        }
    }
}

/// The last part of a path.
fn file_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
