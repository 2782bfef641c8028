//! What `gretel core` of a kernel looks at: a core, or a machine at a moment of its recording.

use super::start::{Places, records};
use super::{is_one, sentence};
use crate::exit::{Code, Failure};
use crate::log::say;
use board::journal::{End, Reader, Record};
use board::linux::Memory;
use board::travel::{Travel, TravelError};
use board::vmcore::{Beside, Vmcore, is_one as is_vmcore};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vmm::recording::Recording;
use x86::state::Regs;

/// A kernel in memory.
pub(crate) struct Subject {
    /// The core, or the folder of the recording.
    pub(super) path: PathBuf,
    pub(super) memory: Box<dyn Memory>,
    pub(super) processors: Vec<Regs>,
    /// What Linux says of itself.
    pub(super) description: Option<String>,
    /// What a machine of gretel says of itself.
    pub(super) origin: Option<String>,
    pub(super) damage: Option<String>,
    /// What a core of gretel has of the moment of the crash; what of it is damaged, in words.
    pub(super) crash: Beside,
    pub(super) crash_damage: Vec<String>,
}

/// A moment of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Where so many instructions have retired.
    Instruction(u64),
    /// Its end.
    End,
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        match text {
            "end" => Ok(At::End),
            number => number
                .parse()
                .map(At::Instruction)
                .map_err(|_| format!("`{text}` is neither `end` nor a count of instructions")),
        }
    }
}

impl Subject {
    /// The kernel that is meant; `None` where a program's core is.
    pub(crate) fn of(input: &Path, at: Option<At>) -> Result<Option<Subject>, Failure> {
        let recording = if input.is_dir() { Recording::open(input).ok().filter(is_one) } else { None };
        match (recording, at) {
            (Some(recording), Some(at)) => Subject::at(&recording, at).map(Some),
            (None, Some(_)) => {
                let why = "--at is for the recording of a machine with a kernel";
                Err(Failure::new(Code::Usage, format!("{why}, which {} is not", input.display())))
            }
            (Some(recording), None) if recording.core().exists() => {
                Subject::core(&recording.core()).map(Some)
            }
            (Some(recording), None) => Err(why_none(&recording)),
            (None, None) if !input.is_dir() && is_vmcore(input) => Subject::core(input).map(Some),
            (None, None) => Ok(None),
        }
    }

    fn core(path: &Path) -> Result<Subject, Failure> {
        let mut core = Vmcore::open(path).map_err(|error| Failure::new(Code::Damaged, error))?;
        let mut crash_damage = Vec::new();
        let mut told = |why: String| crash_damage.push(why);
        let crash = Beside {
            crashed: core.crashed().map_err(|why| told(why.to_string())).unwrap_or_default(),
            trail: core.trail().map_err(|why| told(why.to_string())).unwrap_or_default(),
            crumbs: core.crumbs().map_err(|why| told(why.to_string())).unwrap_or_default(),
        };
        Ok(Subject {
            path: path.to_owned(),
            crash,
            crash_damage,
            processors: std::mem::take(&mut core.processors),
            description: core.description.take(),
            origin: core.origin.take(),
            damage: core.damage.take(),
            memory: Box::new(core),
        })
    }

    /// The machine at a moment of its recording, to which that is run again from the checkpoint before.
    fn at(recording: &Recording, at: At) -> Result<Subject, Failure> {
        let at = if let At::Instruction(at) = at { Some(at) } else { None };
        let (travel, damage) = travel(recording, at)?;
        let machine = travel.machine();
        let retired = machine.position().retired;
        let end = match travel.ended() {
            Some(end) => sentence(end),
            None => format!("at {retired} instructions of its recording"),
        };
        if at.is_some_and(|at| at > retired) {
            say!("gretel: the recording ends at {retired} instructions");
        }
        Ok(Subject {
            path: recording.dir().to_owned(),
            processors: vec![machine.regs()],
            description: machine.description(),
            origin: Some(machine.origin(&end)),
            damage,
            memory: Box::new(Standing(travel)),
            crash: Beside::default(),
            crash_damage: Vec::new(),
        })
    }
}

/// A recording where so many instructions have retired, or at its end, and what is wrong with its journal.
pub(crate) fn travel(recording: &Recording, at: Option<u64>) -> Result<(Travel, Option<String>), Failure> {
    let reader = Reader::open(&recording.journal());
    let mut reader = reader.map_err(|error| Failure::new(Code::Damaged, error))?;
    let (records, damage) = records(&mut reader);
    let (places, notes) = Places::of(recording, reader.header());
    let failed = |error: TravelError| {
        let code = if matches!(error, TravelError::Replay(_)) { Code::Diverged } else { Code::Damaged };
        Failure::new(code, error)
    };
    let mut travel = Travel::open(Box::new(places), records, at).map_err(failed)?;
    notes.iter().chain(&travel.take_notes()).for_each(|note| say!("gretel: {note}"));
    Ok((travel, damage))
}

/// A machine that stands in its recording.
struct Standing(Travel);

impl Memory for Standing {
    fn read_physical(&self, at: u64, bytes: &mut [u8]) -> bool {
        self.0.machine().read_physical(at, bytes)
    }
}

/// Why a recording has no core.
fn why_none(recording: &Recording) -> Failure {
    let mut reader = Reader::open(&recording.journal()).ok();
    let records = reader.as_mut().map(|reader| records(reader).0).unwrap_or_default();
    let (code, why) = match records.last() {
        Some(Record::End { end, .. }) if super::has_crashed(end) => {
            (Code::Damaged, format!("{}, but its core was not written, or is lost", sentence(end)))
        }
        Some(Record::End { end, .. }) => (Code::Usage, format!("its kernel did not crash: {}", ended(end))),
        _ => (Code::Damaged, "its journal has no end".to_owned()),
    };
    let dir = recording.dir().display();
    let told = format!("{dir} is the recording of a machine with a kernel and has no core: {why}");
    Failure::new(code, format!("{told}; --at end shows it at its end"))
}

/// How it ended, where that is no crash.
fn ended(end: &End) -> String {
    match end {
        End::Stopped => "the recording was ended".to_owned(),
        end => sentence(end),
    }
}
