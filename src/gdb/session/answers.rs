//! Answers that only look: what is supported, registers, memory, documents.

use super::{Answer, NOT_THERE, Session};
use crate::exit::Failure;
use crate::gdb::hex;
use crate::gdb::ids::{Id, Who};
use crate::gdb::packet::LONGEST;
use crate::gdb::registers;
use crate::gdb::reply;
use crate::gdb::request::Document;
use crate::log::say;

/// So much of memory is sent at once: two digits for each byte.
const MOST: u64 = LONGEST as u64 / 2 - 16;

impl Session<'_> {
    /// Takes what the debugger can do, and says what we can.
    pub(super) fn supported(&mut self, features: &[String]) -> String {
        let has = |name: &str| features.iter().any(|feature| feature == name);
        // lldb says the first too, and takes the threads of all processes for those of one.
        self.dialect.several = has("multiprocess+") && has("vContSupported+");
        self.dialect.names_breakpoints = has("swbreak+");
        if self.dialect.several {
            self.wishes.alone = None;
        }
        self.wishes.forks = self.dialect.several && has("fork-events+");
        self.wishes.vforks = self.wishes.forks && has("vfork-events+");
        self.wishes.execs = self.dialect.several && has("exec-events+");
        format!(
            "PacketSize={LONGEST:x};QStartNoAckMode+;vContSupported+;multiprocess+;fork-events+;vfork-events+;exec-events+;\
             swbreak+;hwbreak+;ConditionalBreakpoints+;ReverseStep+;ReverseContinue+;QPassSignals+;\
             qXfer:features:read+;qXfer:exec-file:read+;qXfer:auxv:read+;qXfer:threads:read+;\
             qXfer:siginfo:read+{}",
            if self.target.has_calls() { ";QCatchSyscalls+" } else { "" }
        )
    }

    pub(super) fn registers_text(&mut self) -> Result<Option<String>, Failure> {
        let id = self.shown();
        let shown = self.target.registers(id)?;
        Ok(Some(registers::general(shown.as_ref())))
    }

    pub(super) fn register_text(&mut self, number: u64) -> Result<Option<String>, Failure> {
        let id = self.shown();
        let shown = self.target.registers(id)?;
        Ok(usize::try_from(number).ok().and_then(|number| registers::one(shown.as_ref(), number)))
    }

    /// As much as there is.
    pub(super) fn memory(&self, address: u64, len: u64) -> Answer {
        let mut bytes = vec![0; usize::try_from(len.min(MOST)).unwrap_or(0)];
        match self.target.read(self.shown().pid, address, &mut bytes) {
            0 if !bytes.is_empty() => NOT_THERE.into(),
            len => hex::encode(&bytes[..len]).into(),
        }
    }

    pub(super) fn about(&mut self, who: Who) -> Answer {
        let task = self.tasks().into_iter().find(|task| who.includes(task.id));
        task.map_or_else(
            || NOT_THERE.into(),
            |task| hex::encode(format!("{} {}", task.name, task.about).trim().as_bytes()).into(),
        )
    }

    pub(super) fn part(&mut self, document: &Document, offset: u64, len: u64) -> Result<Answer, Failure> {
        let pid = self.shown().pid;
        let whole = match document {
            Document::Features(annex) if annex == "target.xml" => Some(registers::description().into_bytes()),
            Document::Features(annex) => {
                say!("gretel: the debugger asks for {annex}, which there is not");
                None
            }
            Document::Executable(of) => {
                self.target.program(of.map_or(pid, |of| self.shown_for(Id { pid: of, tid: of }).pid))
            }
            Document::Auxiliary => Some(reply::auxiliary(&self.target.auxiliary(pid))),
            Document::Threads => {
                let tasks = self.tasks();
                Some(reply::threads(&tasks, self.dialect).into_bytes())
            }
            Document::Signal => {
                let handled = self.target.handled(self.shown());
                handled.or_else(|| self.target.death(pid).map(reply::signal_info))
            }
        };
        Ok(match whole {
            Some(whole) => Answer::Bytes(reply::part(&whole, offset, len.min(LONGEST as u64 / 2))),
            None => NOT_THERE.into(),
        })
    }

    pub(super) fn host(&self) -> String {
        format!("triple:{};ptrsize:8;endian:little;", hex::encode(b"x86_64-pc-linux-gnu"))
    }

    /// The process that is looked at.
    pub(super) fn process(&self) -> String {
        format!("pid:{:x};{}", self.general.pid, self.host())
    }
}
