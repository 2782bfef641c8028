//! One process of a recording, which is looked through from its last moment on: `gretel last-write`, `memory`, `calls`, `heap`.

use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::index;
use crate::log::say;
use crate::replay::failure;
use crate::sandbox;
use crate::summary::crashed_too;
use crate::symbols::Symbols;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::process::ExitCode;
use vmm::elfcore::signal_name;
use vmm::engine::Machine;
use vmm::process::Process;
use vmm::ram::for_replay;
use vmm::recording::Recording;
use vmm::travel::Travel;

/// A recording where the process that is followed was loaded last, with what was mapped there.
pub(crate) struct Followed {
    pub(crate) travel: Travel,
    pub(crate) symbols: Symbols,
    /// A damaged recording is looked at as far as it goes, and says so here.
    pub(crate) code: ExitCode,
}

/// Opens a recording at its beginning, and says what of it is not used.
pub(crate) fn travel(recording: &Recording, machine: Machine) -> Result<Travel, Failure> {
    let travel = Travel::open(recording, machine).map_err(failure)?;
    travel.timeline().replay().shelf().notes().iter().for_each(|note| say!("gretel: {note}"));
    Ok(travel)
}

/// Says why a recording is not used up to its end; false for one that is still being made, which is not damaged.
pub(crate) fn say_damage(dir: &Path, damage: &dyn Display) -> bool {
    if Recording::open(dir).is_ok_and(|recording| recording.is_being_recorded()) {
        say!("gretel: the recording is still being made: this is what there is so far");
        return false;
    }
    say!("gretel: {damage}");
    true
}

/// So many processes are named where another one is asked for.
const MOST_NAMED: usize = 8;

/// Goes to the last moment of a process.
pub(crate) fn go_to_process(travel: &mut Travel, pid: i32) -> Result<(), Failure> {
    match travel.seek_process(pid).map_err(failure)? {
        true => Ok(()),
        false => Err(no_process(travel, pid)),
    }
}

/// That there is no such process, and which there are.
pub(crate) fn no_process(travel: &mut Travel, pid: i32) -> Failure {
    let there = match travel.processes() {
        Ok(there) => there,
        Err(error) => return failure(error),
    };
    let name = |path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        path.rsplit('/').next().unwrap_or_default().to_owned()
    };
    let mut named: Vec<String> =
        there.iter().take(MOST_NAMED).map(|(pid, path)| format!("{pid} ({})", name(path))).collect();
    if there.len() > MOST_NAMED {
        let more = there.len() - MOST_NAMED;
        named.push(format!("and {more} more, which `gretel events --kind fork` lists"));
    }
    let why = format!("there is no process {pid} in the recording, but {}", named.join(", "));
    Failure::new(Code::Usage, why)
}

/// Whom a question is about that names no process, where it is not the one that is loaded at the recording's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) pid: i32,
    /// Why: what became of it.
    why: String,
}

impl Subject {
    /// For a program that stands at its end: the first process, if it crashed; else another that did, which is how a service ends
    /// whose worker crashed and whose master was told to stop then. Of several it is the one with the highest number.
    pub(crate) fn of(process: &Process, recording: &Recording) -> Option<Subject> {
        // At the end it is the first process's where that died, whichever is loaded.
        let is_firsts = process.is_first() || process.first_died_before();
        let death = process.death().filter(|_| is_firsts);
        let first = || process.first_died_before().then(|| process.first_pid());
        if death.is_some_and(|death| death.leaves_core()) {
            return first()
                .map(|pid| Subject { pid, why: format!("process {pid} crashed, and others went on") });
        }
        let others = recording.others_with_cores();
        if let (Some(pid), Some(why)) = (others.last(), crashed_too(&others)) {
            return Some(Subject { pid: *pid, why });
        }
        let name = death.and_then(|death| signal_name(death.signal)).unwrap_or("a signal");
        first()
            .map(|pid| Subject { pid, why: format!("process {pid} was ended by {name}, and others went on") })
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

/// Whom a question is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whom {
    One(i32),
    /// Whom [`Subject::of`] chooses, else who is loaded at the end.
    Chosen,
    All,
}

impl From<Option<i32>> for Whom {
    fn from(pid: Option<i32>) -> Whom {
        pid.map_or(Whom::Chosen, Whom::One)
    }
}

/// Opens the recording, confines gretel, and goes there: to the last moment of the process that is chosen, else to the end. Who looks back
/// from there, rather than through all from the beginning, has an index made.
pub(crate) fn open(dir: &Path, whom: Whom, choice: Choice, looks_back: bool) -> Result<Followed, Failure> {
    let recording = Recording::open(dir).map_err(|e| Failure::new(Code::Damaged, e))?;
    let machine = engine::open(choice, for_replay())?;
    let mut symbols = Symbols::of(dir);
    sandbox::enter();
    let mut travel = travel(&recording, machine)?;
    if looks_back {
        index::make(&mut travel, &recording)?;
    }
    match whom {
        Whom::One(pid) => go_to_process(&mut travel, pid)?,
        Whom::All => travel.seek_end().map_err(failure)?,
        Whom::Chosen => {
            travel.seek_end().map_err(failure)?;
            if let Some(subject) = Subject::of(travel.process(), &recording) {
                go_to_process(&mut travel, subject.pid)?;
                say!("gretel: {subject}; this is about {} (--pid asks for another)", subject.pid);
            }
        }
    }
    match whom {
        Whom::One(pid) => travel.follow(pid),
        Whom::Chosen => travel.follow(travel.process().pid()),
        Whom::All => travel.follow_all(),
    }
    let damage = travel.damage();
    if let Some(damage) = &damage
        && say_damage(dir, damage)
    {
        say!("gretel: what comes before it is looked at");
    }
    symbols.look(travel.process());
    let code = if damage.is_some() { Code::Damaged.into() } else { ExitCode::SUCCESS };
    Ok(Followed { travel, symbols, code })
}
