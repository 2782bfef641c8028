//! The debug console: what gretel adds to expressions.

use super::debuggee::{Debuggee, Reason, elsewhere};
use crate::accesses::passed_over;
use crate::replay::failure;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Stop;

/// What the console says of itself.
const HELP: &str = "\
when                  the position in the recording, and what runs there
goto POSITION         go there: `start`, `end`, an event by its number, or EVENT+INSTRUCTIONS
last-write EXPR       go to before the last write to what the expression names, such as list->head or *0x55555555a2b0
EXPRESSION            its value: names, . -> * & [] == != < > && || + - numbers, $rax";

/// What a line of the console does.
pub(super) enum Done {
    /// It has an answer.
    Said(String),
    /// The program has moved.
    Moved(String, Reason),
    /// It is an expression.
    Expression,
}

impl Debuggee {
    /// A line of the console.
    pub(super) fn console(&mut self, frame: Option<u64>, line: &str) -> Result<Done, String> {
        let line = line.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, rest.trim()) {
            ("when", "") => Ok(Done::Said(self.when())),
            ("help", "") => Ok(Done::Said(HELP.to_owned())),
            ("goto", place) if !place.is_empty() => {
                let said = self.goto(place)?;
                Ok(Done::Moved(said, Reason::Goto))
            }
            ("last-write", expression) if !expression.is_empty() => self.last_write(frame, expression),
            _ => Ok(Done::Expression),
        }
    }

    /// Goes to a position of the recording; what there is to say of it.
    pub(super) fn goto(&mut self, place: &str) -> Result<String, String> {
        let failed = |error: ReplayError| failure(error).to_string();
        match place {
            "start" => {
                let begin = self.travel.begin();
                self.travel.seek(begin).map_err(failed)?;
            }
            "end" => self.travel.seek_end().map_err(failed)?,
            text => {
                let position: Position = text.parse()?;
                let arrived = self.travel.seek(position).map_err(failed)?;
                if arrived != position {
                    return Ok(elsewhere(arrived, position));
                }
            }
        }
        Ok(self.when())
    }

    fn last_write(&mut self, frame: Option<u64>, expression: &str) -> Result<Done, String> {
        let shown = self.frame_of(frame)?;
        let (address, size) = self.located(shown, expression)?;
        let data = vec![Watch { range: address..address.saturating_add(size), access: Access::Write }];
        let here = self.travel.position();
        let failed = |error: ReplayError| failure(error).to_string();
        let stop = self.travel.backward(&Lookout { at: Vec::new(), data }).map_err(failed)?;
        let note = passed_over(&self.travel).map(|note| format!("; {note}")).unwrap_or_default();
        let said = match stop {
            Stop::Accessed(accessed) => {
                let place = self.known.symbols.place(accessed.rip).map(|place| place.to_string());
                format!("written by the instruction at {:#x} {}", accessed.rip, place.unwrap_or_default())
            }
            Stop::Changed(_) => "written by the system call that comes next".to_owned(),
            Stop::Asked => return Ok(Done::Said("interrupted".to_owned())),
            _ => {
                self.travel.seek(here).map_err(failed)?;
                return Ok(Done::Said(format!("not written since the recording's beginning{note}")));
            }
        };
        Ok(Done::Moved(format!("{} at {}{note}", said.trim_end(), self.when()), Reason::Step))
    }
}
