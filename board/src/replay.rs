//! Runs a recorded machine again: gives it the same input at the same instructions, and compares digests at each record.

use crate::journal::{Damage, End, Input, Reader, Record};
use crate::machine::happening::Happening;
use crate::machine::{Digests, Machine, Moment, Pause};
use std::io;

/// Why a replay stopped.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It did not come by a moment of the recording.
    #[error(
        "the replay differs: {expected} instructions and {expected_time} ns were recorded, the machine {found}"
    )]
    Elsewhere {
        /// Where the recording was.
        expected: u64,
        /// And when.
        expected_time: u64,
        /// Where the machine is.
        found: String,
    },
    /// It came by, in another state.
    #[error("the replay differs at instruction {at}: {what} had digest {expected:016x}, now {found:016x}")]
    Different {
        /// Where.
        at: u64,
        /// What of the state.
        what: &'static str,
        /// What was recorded.
        expected: u64,
        /// What is.
        found: u64,
    },
    /// What the guest prints cannot be shown.
    #[error("cannot write to stdout: {0}")]
    Shown(#[from] io::Error),
}

/// What was replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// How it ended; `None` where the journal is damaged.
    pub end: Option<End>,
    /// What is wrong with the journal.
    pub damage: Option<Damage>,
    /// The last moment that was compared.
    pub at: Moment,
    /// Its digests.
    pub digests: Digests,
    /// How many bytes were typed.
    pub typed: u64,
    /// How many records were compared.
    pub compared: u64,
}

/// Who watches a replay. An error ends it.
pub trait Watcher {
    /// The guest has printed this.
    ///
    /// # Errors
    /// When it cannot be shown.
    fn printed(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// This has happened, of a machine that is observed ([`Machine::observe`]).
    ///
    /// # Errors
    /// As [`Watcher::printed`].
    fn happened(&mut self, _happening: &Happening) -> io::Result<()> {
        Ok(())
    }

    /// The machine is at this record, which was compared.
    ///
    /// # Errors
    /// As [`Watcher::printed`].
    fn reached(&mut self, _machine: &Machine, _record: &Record) -> io::Result<()> {
        Ok(())
    }

    /// Whether it has seen enough.
    fn is_done(&self) -> bool {
        false
    }
}

/// Who is only shown what the guest prints.
impl<F: FnMut(&[u8]) -> io::Result<()>> Watcher for F {
    fn printed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self(bytes)
    }
}

/// Runs a machine as the journal has it, up to its end or for as long as the watcher wants.
///
/// # Errors
/// Where it differs.
pub fn replay(
    machine: &mut Machine,
    reader: &mut Reader,
    watcher: &mut impl Watcher,
) -> Result<Replayed, ReplayError> {
    let mut replayed = Replayed {
        end: None,
        damage: None,
        at: machine.moment(),
        digests: Digests::default(),
        typed: 0,
        compared: 0,
    };
    while !watcher.is_done() {
        let record = match reader.take() {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(replayed),
            Err(damage) => {
                replayed.damage = Some(damage);
                return Ok(replayed);
            }
        };
        let went = go_to(machine, &record, watcher);
        tell(machine, watcher)?;
        if !went? {
            break;
        }
        replayed.digests = compare(machine, &record)?;
        watcher.reached(machine, &record)?;
        replayed.at = record.at();
        replayed.compared += 1;
        match record {
            Record::Input { input, .. } => {
                if let Input::Typed(bytes) = &input {
                    replayed.typed += bytes.len() as u64;
                }
                machine.take_in(&input);
            }
            Record::Check { .. } => {}
            Record::End { end, .. } => replayed.end = Some(end),
        }
    }
    Ok(replayed)
}

/// Tells what the guest has printed, and what has happened.
fn tell(machine: &mut Machine, watcher: &mut impl Watcher) -> io::Result<()> {
    watcher.printed(&machine.take_printed())?;
    machine.take_happenings().iter().try_for_each(|happening| watcher.happened(happening))
}

/// Runs to the moment of a record; whether it came there, and was not ended by the watcher before.
fn go_to(machine: &mut Machine, record: &Record, watcher: &mut impl Watcher) -> Result<bool, ReplayError> {
    /// Printed bytes are shown after so many instructions.
    const SLICE: u64 = 1 << 22;
    let to = record.at();
    let elsewhere =
        |found: String| ReplayError::Elsewhere { expected: to.retired, expected_time: to.time, found };
    let awaited = match record {
        Record::End { end: End::Machine(end), .. } => Some(end),
        _ => None,
    };
    loop {
        let now = machine.moment();
        if now == to && awaited.is_none() {
            return Ok(true);
        }
        if now.retired > to.retired || now.time > to.time {
            return Err(elsewhere(format!("is at {} and {} ns", now.retired, now.time)));
        }
        // At the instruction, but not at the time: it halts, or ends.
        let until =
            if now.retired == to.retired { now.retired + 1 } else { to.retired.min(now.retired + SLICE) };
        let pause = machine.run(until);
        tell(machine, watcher)?;
        match pause {
            _ if watcher.is_done() => return Ok(false),
            Pause::There | Pause::Seen(_) => {}
            Pause::Idle(due) => {
                wait(machine, due, to).ok_or_else(|| elsewhere("halts for ever".to_owned()))?
            }
            Pause::Ended(end) if awaited == Some(&end) => return Ok(true),
            Pause::Ended(end) => return Err(elsewhere(format!("has ended: {end:?}"))),
        }
    }
}

/// Waits for the machine's timer, or for the record if that comes before.
pub(crate) fn wait(machine: &mut Machine, due: Option<u64>, to: Moment) -> Option<()> {
    let record = Some(to.time).filter(|_| machine.moment().retired == to.retired);
    let until = [due, record].into_iter().flatten().min()?;
    machine.wait_until(until);
    Some(())
}

/// Compares the state with that of a record.
pub(crate) fn compare(machine: &mut Machine, record: &Record) -> Result<Digests, ReplayError> {
    let (expected, now) = (record.digests(), machine.moment());
    if let (Record::End { .. }, true) = (record, now != record.at()) {
        let (expected, expected_time) = (record.at().retired, record.at().time);
        let found = format!("ended at {} and {} ns", now.retired, now.time);
        return Err(ReplayError::Elsewhere { expected, expected_time, found });
    }
    let found = match record {
        Record::End { .. } => machine.digests_of_all(),
        Record::Check { .. } => machine.rest(),
        Record::Input { .. } => machine.digests(),
    };
    let different = |what, expected, found| ReplayError::Different { at: now.retired, what, expected, found };
    if found.state != expected.state {
        return Err(different("registers and devices", expected.state, found.state));
    }
    if found.memory != expected.memory {
        return Err(different("memory", expected.memory, found.memory));
    }
    Ok(found)
}
