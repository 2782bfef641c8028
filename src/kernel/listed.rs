//! What `gretel ls` says of the recording of a machine.

use super::clock::ALWAYS;
use super::{is_one, sentence, word};
use board::journal::{Reader, Record};
use vmm::recording::Recording;

/// What its journal says.
pub(crate) struct Listed {
    /// When it began, in nanoseconds since the epoch; `None` where the machine's time of day at the start was not the host's: a fixed one,
    /// or that of a checkpoint.
    pub(crate) began: Option<u64>,
    /// How it ended, in a word.
    pub(crate) end: &'static str,
    /// And in a sentence.
    pub(crate) sentence: String,
    /// How often something was typed.
    pub(crate) events: u64,
    /// The kernel's command line.
    pub(crate) command_line: String,
}

impl Listed {
    /// Reads the journal; `None` where it is another's, or cannot be read.
    pub(crate) fn of(recording: &Recording) -> Option<Listed> {
        const NANOSECONDS: u64 = 1_000_000_000;
        let mut reader = is_one(recording).then(|| Reader::open(&recording.journal()).ok())??;
        let header = reader.header();
        let is_of_host = header.start != ALWAYS && header.from.is_none();
        let began = is_of_host.then(|| header.start.saturating_mul(NANOSECONDS));
        let command_line = header.command_line.clone();
        let (mut events, mut ended) = (0, None);
        while let Ok(Some(record)) = reader.take() {
            match record {
                Record::Input { .. } => events += 1,
                Record::Check { .. } => {}
                Record::End { end, .. } => ended = Some(end),
            }
        }
        let is_being_recorded = ended.is_none() && recording.is_being_recorded();
        let (end, sentence) = match &ended {
            Some(end) => (word(end), sentence(end)),
            None if is_being_recorded => ("recording", "being recorded".to_owned()),
            None => ("incomplete", "no end".to_owned()),
        };
        Some(Listed { began, end, sentence, events, command_line })
    }
}
