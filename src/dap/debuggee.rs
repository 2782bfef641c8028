//! The recording that is debugged: where it stands, what is known of its program, and why it stopped.

use super::breakpoints::{Breakpoints, Hit};
use super::children::Children;
use super::protocol::Launch;
use super::sight::{Known, Sight, entry_point};
use super::sources::SourceMap;
use super::stack::Handles;
use crate::engine::{self, Choice};
use crate::replay::failure;
use crate::sandbox;
use crate::symbols::Symbols;
use serde_json::{Value, json};
use std::path::Path;
use vmm::elfcore::signal_name;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::replay::ReplayError;
use vmm::signal::SI_KERNEL;
use vmm::travel::{Stop, Travel};

/// A recording that is debugged.
pub(super) struct Debuggee {
    pub(super) travel: Travel,
    pub(super) known: Known,
    pub(super) breakpoints: Breakpoints,
    pub(super) handles: Handles,
    pub(super) sources: SourceMap,
    /// Source files that are not on this machine, by number.
    pub(super) absent: Vec<String>,
    /// Whether somebody asked for a stop on a way back.
    pub(super) asked: bool,
    /// Whether it was said that the journal is damaged.
    said_damage: bool,
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
    /// The recording's beginning.
    Begin,
    /// The recording's end: the crash, if it ends in one.
    End,
}

/// Where to begin.
enum Start {
    Begin,
    End,
    At(Position),
    /// At the crash, if there is one.
    Crash,
}

impl Start {
    fn parse(at: Option<&str>) -> Result<Start, String> {
        Ok(match at {
            None => Start::Crash,
            Some("start") => Start::Begin,
            Some("end") => Start::End,
            Some(text) => Start::At(text.parse().map_err(|why| format!("at: {why}; or `start`, or `end`"))?),
        })
    }
}

impl Debuggee {
    /// Opens a recording, and goes into the sandbox. The second part of the result is what there is to say.
    pub(super) fn open(
        dir: &Path,
        launch: Launch,
        engine: Choice,
    ) -> Result<(Debuggee, Vec<String>), String> {
        let start = Start::parse(launch.at.as_deref())?;
        let recording = Recording::open(dir).map_err(|error| error.to_string())?;
        let machine = engine::open(engine, for_replay()).map_err(|it| it.to_string())?;
        let symbols = Symbols::of(dir);
        sandbox::enter();
        let travel = Travel::open(&recording, machine).map_err(|it| failure(it).to_string())?;
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
            children: Children::default(),
        };
        debuggee.begin(&start, launch.pid, &mut said)?;
        said.extend(debuggee.damage());
        debuggee.look();
        Ok((debuggee, said))
    }

    /// Goes to where the editor is to begin.
    fn begin(&mut self, start: &Start, pid: Option<i32>, said: &mut Vec<String>) -> Result<(), String> {
        let travel = &mut self.travel;
        let failed = |error: ReplayError| failure(error).to_string();
        if let Some(pid) = pid {
            if !travel.seek_process(pid).map_err(failed)? {
                return Err(format!(
                    "there is no process {pid} in the recording: `gretel events --kind fork` shows those that there are"
                ));
            }
            travel.follow(pid);
        }
        match start {
            Start::Begin => {
                let begin = travel.begin();
                travel.seek(begin).map_err(failed)?;
                past_loader(travel).map_err(failed)?;
            }
            Start::End => travel.seek_end().map_err(failed)?,
            Start::At(position) => {
                let arrived = travel.seek(*position).map_err(failed)?;
                said.extend((arrived != *position).then(|| elsewhere(arrived, *position)));
                if let Some(pid) = pid
                    && !runs_from_here(travel, pid).map_err(failed)?
                {
                    said.push(format!("process {pid} does not run behind {position}"));
                }
            }
            Start::Crash if pid.is_some() => {}
            Start::Crash => {
                travel.seek_end().map_err(failed)?;
                if travel.process().death().is_none() {
                    let begin = travel.begin();
                    travel.seek(begin).map_err(failed)?;
                    past_loader(travel).map_err(failed)?;
                }
            }
        }
        if pid.is_none() {
            travel.follow(travel.process().pid());
        }
        Ok(())
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

    /// The body of the event that says why the program stopped.
    pub(super) fn stopped(&self, reason: &Reason) -> Value {
        let mut body = json!({ "threadId": self.loaded(), "allThreadsStopped": true });
        let (word, text) = match reason {
            Reason::Entry if self.crash().is_some() => ("exception", self.crash().unwrap_or_default()),
            Reason::Entry => ("entry", self.when()),
            Reason::Step => ("step", String::new()),
            Reason::Goto => ("goto", self.when()),
            Reason::Pause => ("pause", self.when()),
            Reason::Hit(hit) => {
                body["hitBreakpointIds"] = hit.ids.clone().into();
                (hit.kind.reason(), hit.text.clone())
            }
            Reason::Begin => ("entry", "the recording's beginning".to_owned()),
            Reason::End => match self.crash() {
                Some(crash) => ("exception", crash),
                None => ("pause", "the recording's end".to_owned()),
            },
        };
        body["reason"] = word.into();
        if !text.is_empty() {
            body["description"] = text.clone().into();
            body["text"] = text.into();
        }
        body
    }

    /// What ended the program, if it stands there.
    pub(super) fn crash(&self) -> Option<String> {
        let death = self.travel.process().death().filter(|_| self.travel.ended())?;
        let name = signal_name(death.signal).unwrap_or("a signal");
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

/// Goes on to where a process runs next, if it does.
fn runs_from_here(travel: &mut Travel, pid: i32) -> Result<bool, ReplayError> {
    let here = travel.position();
    while travel.process().pid() != pid {
        if !travel.next_event()? {
            travel.seek(here)?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Goes to the program's first own instruction: before it, its libraries are not loaded.
fn past_loader(travel: &mut Travel) -> Result<(), ReplayError> {
    let entry = entry_point(travel.process());
    // A window of a flight recorder begins in the midst of the program, which does not come there again.
    if let Some(entry) = entry.filter(|_| travel.begin() == Position::default()) {
        travel.follow(travel.process().pid());
        let begin = travel.position();
        let stop = travel.forward(&Lookout { at: vec![entry], data: Vec::new() })?;
        if !matches!(stop, Stop::Breakpoint(_)) {
            travel.seek(begin)?;
        }
    }
    Ok(())
}

/// What is said where the program does not stand at a position.
pub(super) fn elsewhere(arrived: Position, wanted: Position) -> String {
    match arrived < wanted {
        true => format!("the recording ends at {arrived}, before {wanted}"),
        false => format!("the program does not stand at {wanted}, but at {arrived} behind it"),
    }
}
