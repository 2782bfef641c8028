//! The session: each request of the debugger gets its answer, in order, until it leaves.
//!
//! A debugger never forgets a process unless it is told that it has ended, which is a stop. Going back and forth would be full of these;
//! so a process that was shown once stays in the list where it does not live, as one thread without registers ([`Session::tasks`]).
//!
//! Example: `Hgp2.2`, `g` and `m401000,40` are one look at the innermost frame of process 2. `Z0,401136,1` sets a breakpoint of the process
//! that is looked at, and `bc` runs back to where it was hit last: `T05...thread:p2.2;swbreak:;`.

mod answers;

use super::hex;
use super::ids::{Id, Who};
use super::packet::Heard;
use super::reply::{self, Dialect};
use super::request::{Action, Do, FileRequest, Request};
use super::stream::Stream;
use super::target::{Stopped, Target, Task, Way, Why, Wishes};
use crate::exit::{Code, Failure};
use crate::log::say;
use std::collections::BTreeMap;
use vmm::travel::SILENCE;

/// What cannot be done (EROFS), and what is not there (EFAULT).
const READ_ONLY: &str = "E1e";
const NOT_THERE: &str = "E0e";
/// More is watched than can be (EINVAL).
const TOO_LONG: &str = "E16";
/// A file that is not there, or a number of one (ENOENT, EBADF), as the debugger's own host numbers them.
const NO_FILE: &str = "F-1,2";
const NO_NUMBER: &str = "F-1,9";

/// A session with a debugger.
pub(super) struct Session<'a> {
    stream: Stream,
    target: &'a mut dyn Target,
    dialect: Dialect,
    wishes: Wishes,
    /// Whom the debugger looks at, and whom it makes run.
    general: Id,
    steered: Who,
    /// What it has open, by number.
    files: BTreeMap<u64, Vec<u8>>,
    /// Where the program stands, and why.
    stopped: Stopped,
    /// Whose wait in a vfork is over for the debugger, which is to be told.
    passed_wait: Option<Id>,
    /// A process that was told of on the way back, before the call that starts it, and the thread that calls. A debugger that follows it
    /// from there reads its registers at once: it is shown as the copy that it will be.
    unborn: Option<(i32, Id)>,
    said_read_only: bool,
}

/// An answer, and whether it is the last.
enum Answer {
    Text(String),
    Bytes(Vec<u8>),
    Last(String),
}

impl From<&str> for Answer {
    fn from(text: &str) -> Answer {
        Answer::Text(text.to_owned())
    }
}

impl From<String> for Answer {
    fn from(text: String) -> Answer {
        Answer::Text(text)
    }
}

impl<'a> Session<'a> {
    /// A session that begins with what is shown of a target, and why it stands there. A debugger that knows only one process is
    /// shown that one.
    pub(super) fn new(stream: Stream, target: &'a mut dyn Target, stopped: Stopped) -> Session<'a> {
        let wishes = Wishes { alone: Some(stopped.id.pid), ..Wishes::default() };
        Session {
            stream,
            target,
            dialect: Dialect::default(),
            wishes,
            general: stopped.id,
            steered: Who::default(),
            files: BTreeMap::new(),
            stopped,
            passed_wait: None,
            unborn: None,
            said_read_only: false,
        }
    }

    /// Answers until the debugger leaves.
    pub(super) fn serve(mut self) -> Result<(), Failure> {
        self.stream.hear().map_err(|error| Failure::new(Code::Other, error))?;
        loop {
            if self.stream.is_silent(SILENCE) {
                let Session { stream, target, .. } = &mut self;
                stream.while_running(target.asks(), || target.prepare())?;
            }
            let goes_on = match self.stream.next() {
                Ok(Some(Heard::Packet(packet))) => {
                    let answer = self.answer(&Request::parse(&packet))?;
                    self.send(answer)
                }
                // A Ctrl-C where nothing runs has come too late.
                Ok(Some(_)) => Ok(true),
                Ok(None) => Ok(false),
                Err(error) => Err(error),
            };
            match goes_on {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // A debugger that is killed says nothing before.
                Err(error) => {
                    say!("gretel: the debugger has gone: {error}");
                    return Ok(());
                }
            }
        }
    }

    /// False when it was the last.
    fn send(&mut self, answer: Answer) -> std::io::Result<bool> {
        match answer {
            Answer::Text(text) => self.stream.send(text.as_bytes())?,
            Answer::Bytes(bytes) => self.stream.send(&bytes)?,
            Answer::Last(text) => {
                if !text.is_empty() {
                    self.stream.send(text.as_bytes())?;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn answer(&mut self, request: &Request) -> Result<Answer, Failure> {
        Ok(match request {
            Request::Supported(features) => self.supported(features).into(),
            Request::LeaveOutAcknowledgements => {
                self.stream.leave_out_acknowledgements();
                "OK".into()
            }
            Request::Extended | Request::Noted => "OK".into(),
            Request::WhyStopped => {
                self.tasks();
                self.why_stopped()?
            }
            Request::Look(who) => self.look(*who),
            Request::Steer(who) => {
                self.steered = *who;
                "OK".into()
            }
            Request::IsAlive(who) => self.found(*who).map_or(NOT_THERE, |_| "OK").into(),
            Request::Current => format!("QC{}", self.general.text(self.dialect.several)).into(),
            Request::Threads => {
                let names = self.tasks().into_iter().map(|task| task.id.text(self.dialect.several));
                format!("m{}", names.collect::<Vec<_>>().join(",")).into()
            }
            Request::MoreThreads => "l".into(),
            Request::About(who) => self.about(*who),
            Request::StopOf(who) => self.stop_of(*who)?,
            Request::Registers => reply_or(self.registers_text()?),
            Request::Register(number) => reply_or(self.register_text(*number)?),
            Request::Read(address, len) => self.memory(*address, *len),
            Request::Change { registers } => self.refuse(*registers),
            Request::Insert(point) if point.is_too_long() => TOO_LONG.into(),
            Request::Insert(point) => {
                self.wishes.points.insert(self.general.pid, point.clone());
                "OK".into()
            }
            Request::Remove(point) => {
                self.wishes.points.remove(self.general.pid, point);
                "OK".into()
            }
            Request::Actions => "vCont;c;C;s;S;r".into(),
            Request::Resume(actions) => self.run(self.way(actions))?,
            Request::Back { step: false } => self.run(Way::Back)?,
            Request::Back { step: true } => self.run(Way::StepBack(self.steered_thread()))?,
            Request::Part(document, offset, len) => self.part(document, *offset, *len)?,
            Request::Monitor(command) => self.monitor(command)?,
            Request::File(request) => self.file(request),
            Request::Attached => "1".into(),
            Request::PassSignals(signals) => {
                self.wishes.passed = signals.iter().filter_map(|it| i32::try_from(*it).ok()).collect();
                "OK".into()
            }
            Request::CatchCalls(_) if !self.target.has_calls() => "".into(),
            Request::CatchCalls(calls) => {
                let number = |it: &u64| i64::try_from(*it).unwrap_or(-1);
                self.wishes.calls = calls.as_ref().map(|calls| calls.iter().map(number).collect());
                "OK".into()
            }
            Request::Detach(None) => Answer::Last("OK".to_owned()),
            Request::Kill(None) => Answer::Last(String::new()),
            Request::Detach(Some(pid)) | Request::Kill(Some(pid)) => self.hide(*pid),
            Request::Attach(pid) => self.show(*pid)?,
            Request::Restart => self.restart()?,
            Request::Host => self.host().into(),
            Request::Process => self.process().into(),
            Request::Region(address) => {
                reply::region(&self.target.mappings(self.shown().pid), *address).into()
            }
            Request::Unknown => "".into(),
        })
    }

    /// The threads that the debugger is shown: those that live, and one for each process that it has seen and that does not live here.
    fn tasks(&mut self) -> Vec<Task> {
        let mut tasks = self.target.tasks();
        tasks.retain(|task| self.wishes.includes(task.id.pid));
        for (pid, id) in &self.wishes.seen {
            if self.wishes.includes(*pid) && !tasks.iter().any(|task| task.id.pid == *pid) {
                let about = "does not live at this position".to_owned();
                tasks.push(Task { id: *id, name: String::new(), about });
            }
        }
        for task in &tasks {
            self.wishes.seen.entry(task.id.pid).or_insert(task.id);
        }
        tasks
    }

    /// Whose registers and memory stand for a thread's.
    fn shown_for(&self, id: Id) -> Id {
        self.unborn.filter(|(pid, _)| *pid == id.pid).map_or(id, |(_, parent)| parent)
    }

    /// The same of the thread that is looked at.
    fn shown(&self) -> Id {
        self.shown_for(self.general)
    }

    /// The first thread that is meant.
    fn found(&mut self, who: Who) -> Option<Id> {
        let tasks = self.tasks();
        let is_meant = |id: &Id| who.includes(*id) && self.wishes.includes(id.pid);
        let stopped = Some(self.stopped.id).filter(is_meant);
        stopped.or_else(|| tasks.iter().map(|task| task.id).find(|id| who.includes(*id)))
    }

    fn look(&mut self, who: Who) -> Answer {
        match (self.found(who), who.pid) {
            (Some(id), _) => self.general = id,
            // Whoever is meant has breakpoints, where it does not live yet.
            (None, Some(pid)) => self.general = Id { pid, tid: who.tid.unwrap_or(pid) },
            (None, None) => return NOT_THERE.into(),
        }
        "OK".into()
    }

    /// Who steps where no thread is named: the one that stopped. The one that is looked at need not be meant, since gdb looks at all
    /// to list them.
    fn steered_thread(&self) -> Id {
        let Id { pid, tid } = self.stopped.id;
        Id { pid: self.steered.pid.unwrap_or(pid), tid: self.steered.tid.unwrap_or(tid) }
    }

    /// Where threads are to do different things, the one that steps says how far: who runs meanwhile is in the recording.
    fn way(&self, actions: &[Action]) -> Way {
        let steps = |action: &&Action| action.what != Do::Continue;
        let Some(Action { what, who }) = actions.iter().find(steps) else { return Way::Forward };
        let steered = self.steered_thread();
        let id = Id { pid: who.pid.unwrap_or(steered.pid), tid: who.tid.unwrap_or(steered.tid) };
        let range = if let Do::StepIn(start, end) = what { Some((*start, *end)) } else { None };
        Way::Step(id, range)
    }

    fn run(&mut self, way: Way) -> Result<Answer, Failure> {
        if matches!(way, Way::Back | Way::StepBack(_)) {
            self.wait_is_passed();
        }
        if let Some(id) = self.passed_wait.take() {
            self.stopped = Stopped { id, why: Why::Released };
            return self.why_stopped();
        }
        self.tasks();
        self.unborn = None;
        let Session { stream, target, wishes, .. } = self;
        self.stopped = stream.while_running(target.asks(), || target.run(way, wishes))?;
        if matches!(way, Way::Forward | Way::Step(..)) {
            self.hide_strangers();
        }
        match &self.stopped.why {
            // Whether it is looked at is decided anew.
            Why::Forked { pid, waits } => {
                self.wishes.hidden.remove(pid);
                let held = waits.then_some(self.stopped.id);
                if way == Way::Back {
                    // Who has the child as a process of his own has it where it does not live, too. Nobody waits here for it.
                    self.wishes.seen.insert(*pid, Id { pid: *pid, tid: *pid });
                    self.unborn = Some((*pid, self.stopped.id));
                    self.passed_wait = held;
                } else {
                    self.wishes.held = held;
                }
                if *waits && way != Way::Back {
                    self.wishes.points.share(*pid, self.stopped.id.pid);
                }
            }
            Why::Released => self.wishes.held = None,
            // What was in its memory is no more.
            Why::Executed(_) => {
                self.wishes.points.forget(self.stopped.id.pid);
                self.wishes.points.part(self.stopped.id.pid);
            }
            _ => {}
        }
        self.tasks();
        self.why_stopped()
    }

    /// A stop of a process that is not looked at is told as one of another.
    fn why_stopped(&mut self) -> Result<Answer, Failure> {
        if !self.wishes.includes(self.stopped.id.pid) {
            let other = self.found(Who::default());
            self.stopped.id = other.unwrap_or(self.stopped.id);
        }
        self.general = self.stopped.id;
        let shown = self.target.registers(self.general)?;
        Ok(reply::stop(&self.stopped, shown.as_ref(), self.dialect).into())
    }

    fn stop_of(&mut self, who: Who) -> Result<Answer, Failure> {
        let Some(id) = self.found(who) else { return Ok(NOT_THERE.into()) };
        let why = if id == self.stopped.id { self.stopped.why.clone() } else { Why::Along };
        let shown = self.target.registers(self.shown_for(id))?;
        Ok(reply::stop(&Stopped { id, why }, shown.as_ref(), self.dialect).into())
    }

    /// A process is not looked at any more. Without any, the session is over.
    fn hide(&mut self, pid: i32) -> Answer {
        self.wishes.hidden.insert(pid);
        self.wishes.points.forget(pid);
        self.wishes.points.part(pid);
        self.wishes.seen.remove(&pid);
        // Nobody waits for news of it.
        self.wishes.held.take_if(|held| held.pid == pid);
        self.passed_wait.take_if(|held| held.pid == pid);
        "OK".into()
    }

    /// Who has come to live on the way forward and was not told of as a fork was started by a process that is not looked at.
    fn hide_strangers(&mut self) {
        if self.wishes.forks {
            let living = self.target.tasks().into_iter().map(|task| task.id.pid);
            let strangers: Vec<i32> = living.filter(|pid| !self.wishes.seen.contains_key(pid)).collect();
            self.wishes.hidden.extend(strangers);
        }
    }

    /// The program goes, or went, elsewhere than to the end of a vfork's wait that the debugger waits for. It is told of it before
    /// anything runs: it sets no breakpoints in that process before.
    fn wait_is_passed(&mut self) {
        self.passed_wait = self.passed_wait.or_else(|| self.wishes.held.take());
    }

    fn show(&mut self, pid: i32) -> Result<Answer, Failure> {
        self.wishes.hidden.remove(&pid);
        let Some(id) = self.found(Who { pid: Some(pid), tid: None }) else { return Ok(NOT_THERE.into()) };
        self.stopped = Stopped { id, why: Why::There };
        self.why_stopped()
    }

    fn restart(&mut self) -> Result<Answer, Failure> {
        self.wishes.hidden.clear();
        self.wishes.seen.clear();
        self.unborn = None;
        self.wait_is_passed();
        self.stopped = self.target.restart()?;
        self.tasks();
        self.why_stopped()
    }

    fn refuse(&mut self, registers: bool) -> Answer {
        if !std::mem::replace(&mut self.said_read_only, true) {
            say!("gretel: what was recorded is not changed: with another value it would be another run");
        }
        match registers {
            true => "E.what was recorded is not changed".into(),
            false => READ_ONLY.into(),
        }
    }

    fn file(&mut self, request: &FileRequest) -> Answer {
        match request {
            FileRequest::Of => "F0".into(),
            FileRequest::Open(name) => self.open(name),
            FileRequest::Close(number) => self.files.remove(number).map_or(NO_NUMBER, |_| "F0").into(),
            FileRequest::Read { file, len, offset } => {
                let Some(file) = self.files.get(file) else { return NO_NUMBER.into() };
                let part = reply::part(file, *offset, *len).split_off(1);
                Answer::Bytes([format!("F{:x};", part.len()).as_bytes(), &part].concat())
            }
            FileRequest::Other => "".into(),
        }
    }

    /// Those of /proc that say what is mapped, by which gdb chooses what a core needs (`generate-core-file`); all others are this
    /// machine's, and the debugger reads them there.
    fn open(&mut self, name: &[u8]) -> Answer {
        let name = String::from_utf8_lossy(name);
        let asked = name.strip_prefix("/proc/").and_then(|rest| rest.split_once('/'));
        // Some versions ask for /proc/PID/task/TID/maps.
        let asked = asked.and_then(|(pid, rest)| Some((pid.parse().ok()?, rest.rsplit('/').next()?)));
        let Some((pid, what @ ("maps" | "smaps"))) = asked else { return NO_FILE.into() };
        // Who does not know several processes names this one by any number.
        let id = if self.dialect.several { Id { pid, tid: pid } } else { self.general };
        let pid = self.shown_for(id).pid;
        let mappings = self.target.mappings(pid);
        let text = match what {
            "maps" => reply::maps(&mappings),
            _ => reply::smaps(&mappings, &|mapping| self.target.anonymous(pid, mapping)),
        };
        let text = text.into_bytes();
        let number = (0..).find(|number| !self.files.contains_key(number)).unwrap_or(u64::MAX);
        self.files.insert(number, text);
        format!("F{number:x}").into()
    }

    fn monitor(&mut self, command: &str) -> Result<Answer, Failure> {
        let Session { stream, target, general, .. } = self;
        let text = stream.while_running(target.asks(), || target.monitor(command, general.pid))?;
        self.unborn = None;
        self.wait_is_passed();
        let id = self.target.loaded();
        self.stopped = Stopped { id, why: Why::There };
        // An empty answer would say that there are no such commands.
        Ok(if text.is_empty() { "OK".into() } else { hex::encode(text.as_bytes()).into() })
    }
}

fn reply_or(text: Option<String>) -> Answer {
    text.map_or_else(|| NOT_THERE.into(), Answer::Text)
}
