//! Where a session begins: what `at` and `pid` in the launch configuration say.

use super::debuggee::{Debuggee, elsewhere};
use super::ends::{to_last_moment, to_next_moment};
use crate::ending::death;
use crate::followed::{Subject, no_process};
use crate::replay::failure;
use crate::sight::entry_point;
use vmm::engine::lookout::Lookout;
use vmm::position::Position;
use vmm::recording::Recording;
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};

/// Where to begin.
pub(super) enum Start {
    Begin,
    End,
    At(Position),
    /// At the crash, if there is one.
    Crash,
}

impl Start {
    pub(super) fn parse(at: Option<&str>) -> Result<Start, String> {
        Ok(match at {
            None => Start::Crash,
            Some("start") => Start::Begin,
            Some("end") => Start::End,
            Some(text) => Start::At(text.parse().map_err(|why| format!("at: {why}; or `start`, or `end`"))?),
        })
    }
}

impl Debuggee {
    /// Goes to where the editor is to begin. What there is to say of it is added to `said`.
    pub(super) fn begin(
        &mut self,
        start: &Start,
        pid: Option<i32>,
        recording: &Recording,
        said: &mut Vec<String>,
    ) -> Result<(), String> {
        let failed = |error: ReplayError| failure(error).to_string();
        let Some(pid) = pid else { return self.begin_in_any(start, recording, said).map_err(failed) };
        self.travel.follow(pid);
        match self.begin_in(start, pid, said).map_err(failed)? {
            true => Ok(()),
            false => Err(no_process(&mut self.travel, pid).to_string()),
        }
    }

    /// The same in the process that is loaded there.
    fn begin_in_any(
        &mut self,
        start: &Start,
        recording: &Recording,
        said: &mut Vec<String>,
    ) -> Result<(), ReplayError> {
        let travel = &mut self.travel;
        match start {
            Start::Begin => past_loader(travel)?,
            Start::End => travel.seek_end()?,
            Start::At(position) => {
                let arrived = travel.seek(*position)?;
                said.extend((arrived != *position).then(|| elsewhere(arrived, *position)));
            }
            Start::Crash => {
                travel.seek_end()?;
                if let Some(subject) = Subject::of(travel.process(), recording) {
                    said.push(format!("{subject}: the session is about {}", subject.pid));
                    to_last_moment(travel, subject.pid)?;
                }
                if death(travel.process(), travel.ended()).is_none() {
                    past_loader(travel)?;
                }
            }
        }
        travel.follow(travel.process().pid());
        Ok(())
    }

    /// The same in a process; false where there never was one of this number.
    fn begin_in(&mut self, start: &Start, pid: i32, said: &mut Vec<String>) -> Result<bool, ReplayError> {
        let travel = &mut self.travel;
        match start {
            Start::End | Start::Crash => to_last_moment(travel, pid),
            Start::Begin => {
                travel.seek(travel.begin())?;
                to_next_moment(travel, pid)
            }
            Start::At(position) => {
                let arrived = travel.seek(*position)?;
                said.extend((arrived != *position).then(|| elsewhere(arrived, *position)));
                if to_next_moment(travel, pid)? {
                    return Ok(true);
                }
                said.push(format!("process {pid} does not run behind {position}: this is where it ran last"));
                to_last_moment(travel, pid)
            }
        }
    }
}

/// Goes to the program's first own instruction: before it, its libraries are not loaded.
fn past_loader(travel: &mut Travel) -> Result<(), ReplayError> {
    let begin = travel.begin();
    travel.seek(begin)?;
    let entry = entry_point(travel.process());
    // A window of a flight recorder begins in the midst of the program, which does not come there again.
    if let Some(entry) = entry.filter(|_| begin == Position::default()) {
        travel.follow(travel.process().pid());
        let stop = travel.forward(&Lookout { at: vec![entry], data: Vec::new() })?;
        if !matches!(stop, Stop::Breakpoint(_)) {
            travel.seek(begin)?;
        }
    }
    Ok(())
}
