//! What gretel's other commands say, each run as one of its own: so each has its own sandbox, and one that fails costs a section.

use super::html::list;
use super::{Args, Other, memory};
use crate::exit::{Code, Failure};
use crate::kernel;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

/// An answer, or why there is none.
pub(super) struct Answer<T>(Result<T, String>);

impl<T> Answer<T> {
    pub(super) fn ok(&self) -> Option<&T> {
        self.0.as_ref().ok()
    }

    fn why_not(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }
}

/// All answers.
pub(super) struct Asked {
    pub(super) core: Answer<Value>,
    pub(super) why: Answer<Value>,
    /// The history of heap memory that the slice leads to, if any of it was freed.
    pub(super) heap: Option<Value>,
    pub(super) synth: Answer<Value>,
    /// The newest ones, and how many there were before these.
    pub(super) events: Answer<(Vec<Value>, usize)>,
    pub(super) doctor: Answer<Value>,
}

/// So many events are shown.
const MOST_EVENTS: usize = 4000;

impl Asked {
    /// Asks everything, as much at once as there are questions: each waits for its own replay.
    pub(super) fn ask(args: &Args, other: Option<&Other>) -> Result<Asked, Failure> {
        let is_recording = args.input.is_dir();
        let ask = |command: &str, rest: &[&OsStr]| start(&args.input, command, rest);
        let core_path = other.map_or(&args.input, |other| &other.core);
        let of_core = |command: &str, rest: &[&OsStr]| start(core_path, command, rest);
        let pid = other.map(|other| other.pid.to_string());
        let pid: Vec<&OsStr> = pid.iter().flat_map(|pid| [OsStr::new("--pid"), OsStr::new(pid)]).collect();
        let exe: Vec<&OsStr> = match &args.exe {
            Some(exe) => vec![OsStr::new("--exe"), exe.as_os_str()],
            None => Vec::new(),
        };
        // A kernel's core names itself.
        let is_kernels = kernel::Source::of(&args.input).is_some();
        let core = of_core("core", if is_kernels { &[] } else { &exe })?;
        let fuel = [OsStr::new("--fuel"), OsStr::new(args.fuel())];
        let has_fuel = args.fuel().parse::<f64>().is_ok_and(|fuel| fuel > 0.0);
        let synth = has_fuel.then(|| of_core("synth", &[&fuel[..], &exe].concat())).transpose()?;
        // Of a core alone it goes back over a suffix, which it searches itself.
        let why = (is_recording || has_fuel)
            .then(|| ask("why", if is_recording { &pid } else { &exe }))
            .transpose()?;
        let events = is_recording.then(|| ask("events", &[])).transpose()?;
        let doctor = spawn(Command::new(this()?).args(["doctor", "--json"]).stdin(Stdio::null()))?;
        let no_recording = || Answer(Err("a core alone does not tell".to_owned()));
        let wait = |child: Child| thread::spawn(move || finish(child));
        let [core, doctor] = [core, doctor].map(wait);
        let [synth, why, events] = [synth, why, events].map(|child| child.map(wait));
        let object = |handle: thread::JoinHandle<Answer<String>>| joined(handle).and_then_parse();
        let why = why.map_or_else(no_recording, object);
        let heap = why.ok().filter(|_| is_recording && !is_kernels);
        let heap = heap.and_then(|why| {
            let histories = memory::candidates(why).into_iter().filter_map(|address| {
                let address = format!("{address:#x}");
                let child = ask("heap", &[&pid[..], &[OsStr::new(&address)]].concat()).ok()?;
                finish(child).and_then_parse().0.ok()
            });
            histories.into_iter().find(|history| memory::tells(why, history))
        });
        Ok(Asked {
            heap,
            why,
            core: object(core),
            doctor: object(doctor),
            synth: synth.map_or_else(|| Answer(Err("--fuel 0 leaves it out".to_owned())), object),
            events: events
                .map_or_else(|| Answer(Err("a core alone does not tell".to_owned())), |it| lines(joined(it))),
        })
    }

    /// Whether anything is known but of this host.
    pub(super) fn has_anything(&self) -> bool {
        self.core.ok().is_some() || self.events.ok().is_some()
    }

    /// What is not on the page, and why.
    pub(super) fn missing(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("crash", self.core.why_not()),
            ("slice", self.why.why_not()),
            ("suffix", self.synth.why_not()),
            ("list of what happened", self.events.why_not()),
            ("word about this host", self.doctor.why_not()),
        ];
        all.into_iter().filter_map(|(what, why)| Some((what, why?)))
    }

    /// What of the core is damaged, in words.
    pub(super) fn damage(&self) -> &[Value] {
        self.core.ok().map_or(&[], |core| list(&core["damage"]))
    }
}

fn this() -> Result<std::path::PathBuf, Failure> {
    std::env::current_exe().map_err(|e| Failure::new(Code::Other, format!("where gretel is: {e}")))
}

fn start(input: &Path, command: &str, rest: &[&OsStr]) -> Result<Child, Failure> {
    let mut asked = Command::new(this()?);
    asked.arg(command).arg("--json").arg(input).args(rest).stdin(Stdio::null());
    spawn(&mut asked)
}

fn spawn(command: &mut Command) -> Result<Child, Failure> {
    let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    started.map_err(|error| Failure::new(Code::Host, format!("gretel cannot be started again: {error}")))
}

/// What a command has printed. One that found something wrong may have printed its result all the same.
fn finish(child: Child) -> Answer<String> {
    let output = match child.wait_with_output() {
        Ok(output) => output,
        Err(error) => return Answer(Err(error.to_string())),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if text.trim().is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or("it said nothing").trim_start_matches("gretel: ").to_owned();
        return Answer(Err(said));
    }
    Answer(Ok(text))
}

fn joined(handle: thread::JoinHandle<Answer<String>>) -> Answer<String> {
    handle.join().unwrap_or_else(|_| Answer(Err("it could not be waited for".to_owned())))
}

impl Answer<String> {
    fn and_then_parse(self) -> Answer<Value> {
        Answer(self.0.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())))
    }
}

/// The newest of the lines.
fn lines(answer: Answer<String>) -> Answer<(Vec<Value>, usize)> {
    Answer(answer.0.map(|text| {
        let all: Vec<&str> = text.lines().collect();
        let before = all.len().saturating_sub(MOST_EVENTS);
        (all[before..].iter().filter_map(|line| serde_json::from_str(line).ok()).collect(), before)
    }))
}
