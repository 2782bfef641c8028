//! The recording that is debugged: where it stands, what is known of its program, and why it stopped.

use super::begin::Start;
use super::breakpoints::{Breakpoints, Hit};
use super::children::Children;
use super::protocol::{At, Launch};
use super::sources::{Absent, SourceMap};
use super::stack::Handles;
use crate::ending::death;
use crate::engine::{self, Choice};
use crate::replay::failure;
use crate::sandbox;
use crate::sight::{Known, Sight};
use crate::symbols::Symbols;
use serde_json::{Value, json};
use std::path::Path;
use vmm::elfcore::signal_name;
use vmm::position::Position;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::signal::SI_KERNEL;
use vmm::travel::Travel;

/// A recording that is debugged.
pub(super) struct Debuggee {
    pub(super) travel: Travel,
    pub(super) known: Known,
    pub(super) breakpoints: Breakpoints,
    pub(super) handles: Handles,
    pub(super) sources: SourceMap,
    /// Source files that are not on this machine, by number.
    pub(super) absent: Vec<Absent>,
    /// Whether somebody asked for a stop on a way back.
    pub(super) asked: bool,
    /// Whether it was said that the journal is damaged.
    said_damage: bool,
    /// Where a process runs first, once that was looked for.
    pub(super) first: Option<(i32, Position)>,
    /// Processes that it starts.
    pub(super) children: Children,
}

/// Why the program stopped.
pub(super) enum Reason {
    /// Where the debugging begins.
    Entry,
    /// Where a step ends.
    Step,
    /// Where somebody wanted to go.
    Goto,
    /// Somebody asked for it.
    Pause,
    /// A breakpoint.
    Hit(Hit),
    /// The beginning of the recording, or of the process.
    Begin,
    /// The recording's end, or the signal that ends the process.
    End,
    /// Before the call by which the process exits.
    Exit,
    /// Where the process ran last, since it does not go on behind.
    Last,
}

impl Reason {
    /// What a stop is called, in the protocol's words.
    fn word(&self, crashed: bool) -> &'static str {
        match self {
            Reason::Entry | Reason::End if crashed => "exception",
            Reason::Entry | Reason::Begin => "entry",
            Reason::Step => "step",
            Reason::Goto => "goto",
            Reason::Pause | Reason::End | Reason::Exit | Reason::Last => "pause",
            Reason::Hit(hit) => hit.kind.reason(),
        }
    }
}

impl Debuggee {
    /// Opens a recording, and goes into the sandbox. The second part of the result is what there is to say.
    pub(super) fn open(
        dir: &Path,
        launch: Launch,
        engine: Choice,
    ) -> Result<(Debuggee, Vec<String>), String> {
        let start = Start::parse(launch.at.map(At::text).as_deref())?;
        let recording = Recording::open(dir).map_err(|error| error.to_string())?;
        let machine = engine::open(engine, for_replay()).map_err(|it| it.to_string())?;
        let symbols = Symbols::of(dir);
        sandbox::enter();
        let mut travel = Travel::open(&recording, machine).map_err(|it| failure(it).to_string())?;
        // What an editor offers is to break where a value changes.
        travel.look_for_changes(true);
        let mut said = travel.timeline().replay().shelf().notes().to_vec();
        let mut debuggee = Debuggee {
            travel,
            known: Known::new(symbols),
            breakpoints: Breakpoints::default(),
            handles: Handles::default(),
            sources: SourceMap::new(launch.source_map),
            absent: Vec::new(),
            asked: false,
            said_damage: false,
            first: None,
            children: Children::default(),
        };
        debuggee.begin(&start, launch.pid, &recording, &mut said)?;
        said.extend(debuggee.damage());
        debuggee.look();
        Ok((debuggee, said))
    }

    /// What is to be said once of a journal that has no end.
    pub(super) fn damage(&mut self) -> Option<String> {
        let damage = self.travel.damage()?;
        let said = std::mem::replace(&mut self.said_damage, true);
        (!said).then(|| format!("{damage}; the recording is shown up to there"))
    }

    /// Takes what is loaded where the program stands; what was shown of an earlier stop is no more.
    pub(super) fn look(&mut self) -> Vec<Value> {
        self.known.look(self.travel.process());
        self.handles.clear();
        self.breakpoints.look_again(&self.known, &self.sources)
    }

    /// A thread where it stands.
    pub(super) fn sight(&mut self, thread: i32) -> Sight<'_> {
        // What cannot be read is as if it were not known.
        let fpu = self.travel.process_mut().state().ok().map(|state| state.fpu);
        Sight::new(self.travel.process(), &self.known, thread, fpu)
    }

    /// The thread that is loaded.
    pub(super) fn loaded(&self) -> i32 {
        self.travel.process().thread()
    }

    /// A thread that a request names; the loaded one where it names none.
    pub(super) fn thread(&self, wanted: i32) -> Result<i32, String> {
        let process = self.travel.process();
        match wanted {
            0 => Ok(process.thread()),
            id if id == process.thread() || process.other_threads().any(|(other, _)| other == id) => Ok(id),
            id => Err(format!("there is no thread {id} at this position of the recording")),
        }
    }

    /// `threads`.
    pub(super) fn threads(&self) -> Value {
        let process = self.travel.process();
        let own = process.tasks().filter(|it| it.pid == process.pid());
        let shown = own.map(|it| {
            let runs = if it.id == process.thread() { " (runs)" } else { "" };
            json!({ "id": it.id, "name": format!("{} {}{runs}", String::from_utf8_lossy(&it.name), it.id) })
        });
        json!({ "threads": shown.collect::<Vec<_>>() })
    }

    /// The body of the event that says why the program stopped. Editors show the description in a line, and the text where there is room.
    pub(super) fn stopped(&self, reason: &Reason) -> Value {
        let crash = self.crash().filter(|_| matches!(reason, Reason::Entry | Reason::End));
        let mut body = json!({ "threadId": self.loaded(), "allThreadsStopped": true });
        body["reason"] = reason.word(crash.is_some()).into();
        let (description, text) = match (crash, reason) {
            (Some(crash), _) => (self.signal().unwrap_or_default().to_owned(), crash),
            (None, reason) => (self.place_of(reason), self.details(reason)),
        };
        // Of the others the reason itself says enough.
        if !description.is_empty() {
            body["description"] = description.into();
        }
        if !text.is_empty() {
            body["text"] = text.into();
        }
        if let Reason::Hit(hit) = reason {
            body["hitBreakpointIds"] = hit.ids.clone().into();
        }
        body
    }

    /// What place it is where a way has ended that could go no farther.
    fn place_of(&self, reason: &Reason) -> String {
        let process = self.travel.process();
        let pid = process.pid();
        match reason {
            Reason::Begin if pid == process.first_pid() => "the recording's beginning".to_owned(),
            Reason::Begin => format!("process {pid} begins here"),
            Reason::End => "the recording's end".to_owned(),
            Reason::Exit => format!("process {pid} exits here"),
            Reason::Last => format!("process {pid} ran last here"),
            _ => String::new(),
        }
    }

    /// The same, and what else there is to say of a stop.
    fn details(&self, reason: &Reason) -> String {
        match reason {
            Reason::Step => String::new(),
            Reason::Entry | Reason::Goto | Reason::Pause => self.when(),
            Reason::Hit(hit) => hit.text.clone(),
            Reason::Begin | Reason::End | Reason::Exit | Reason::Last => self.place_of(reason),
        }
    }

    /// The name of the signal that ended the process, if it stands there.
    fn signal(&self) -> Option<&'static str> {
        let death = death(self.travel.process(), self.travel.ended())?;
        Some(signal_name(death.signal).unwrap_or("a signal"))
    }

    /// What ended the process, if it stands there.
    pub(super) fn crash(&self) -> Option<String> {
        let (death, name) = death(self.travel.process(), self.travel.ended()).zip(self.signal())?;
        Some(match death.code {
            // Of a sender, or of the kernel: there is no address.
            SI_KERNEL | i32::MIN..=0 => name.to_owned(),
            _ => format!("{name} at address {:#x}", death.address),
        })
    }

    /// The position, for people.
    pub(super) fn when(&self) -> String {
        let process = self.travel.process();
        let end = if self.travel.ended() { ", the recording's end" } else { "" };
        format!(
            "position {}, process {}, thread {}{end}",
            self.travel.position(),
            process.pid(),
            process.thread()
        )
    }
}

/// What is said where the program does not stand at a position.
pub(super) fn elsewhere(arrived: Position, wanted: Position) -> String {
    match arrived < wanted {
        true => format!("the recording ends at {arrived}, before {wanted}"),
        false => format!("the program does not stand at {wanted}, but at {arrived} behind it"),
    }
}
