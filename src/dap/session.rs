//! The session: each request of the editor gets its answer, in order.
//!
//! Example: `launch` opens the recording, and `initialized` asks the editor for its breakpoints; `configurationDone` ends them, and
//! the first `stopped` says where the program stands. `next` is answered at once, runs, and sends the next `stopped`.

use super::breakpoints::Kind;
use super::children::Children;
use super::debuggee::{Debuggee, Reason};
use super::protocol::{self, Answer, Goto, Initialize, Launch, Request, Running, event, output, response};
use super::repl::Done;
use super::stream::{Connection, Incoming, Outgoing};
use crate::engine::Choice;
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::replay::failure;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use vmm::replay::ReplayError;
use vmm::travel::SILENCE;

/// What is answered to requests that would change the program.
const READ_ONLY: &str =
    "a recording is not changed: with another value it would be another run. Record that run";

/// A session with an editor.
pub(super) struct Session {
    incoming: Incoming,
    outgoing: Outgoing,
    /// The recording that the command line names.
    dir: Option<PathBuf>,
    engine: Choice,
    debuggee: Option<Debuggee>,
    /// The editor starts sessions that it is asked for.
    starts_sessions: bool,
    /// It was said that there is nothing more to be seen.
    has_terminated: bool,
}

/// What follows an answer.
enum Then {
    Nothing,
    /// The editor may now set its breakpoints.
    Initialized(Vec<String>),
    /// The program has stopped.
    Stopped(Reason),
    /// It was said so, and has moved.
    Moved(Reason),
    /// The program runs, as was asked.
    Run(Run),
    /// The session ends.
    End,
}

/// What makes the program run.
enum Run {
    Continue,
    ReverseContinue,
    Next(i32, bool),
    In(i32, bool),
    Out(i32),
    Back(i32, bool),
}

/// What becomes of a request.
type Handled = Result<(Value, Then), String>;

impl Session {
    pub(super) fn new(connection: Connection, dir: Option<PathBuf>, engine: Choice) -> Session {
        let Connection { incoming, outgoing } = connection;
        Session {
            incoming,
            outgoing,
            dir,
            engine,
            debuggee: None,
            starts_sessions: false,
            has_terminated: false,
        }
    }

    /// Answers until the editor leaves.
    pub(super) fn serve(mut self) -> Result<(), Failure> {
        loop {
            if let Err(error) = self.prepare() {
                say!("gretel: the editor has gone: {error}");
                return Ok(());
            }
            let heard = match self.incoming.next() {
                Ok(Some(heard)) => heard,
                Ok(None) => return Ok(()),
                Err(error) => return Err(Failure::new(Code::Other, format!("the editor: {error}"))),
            };
            let goes_on = match heard {
                Ok(request) => self.answer(&request),
                Err(why) => {
                    say!("gretel: {why}");
                    self.outgoing.send(output(&format!("gretel: {why}"))).map(|()| true)
                }
            };
            match goes_on {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                // An editor that is ended says nothing before.
                Err(error) => {
                    say!("gretel: the editor has gone: {error}");
                    return Ok(());
                }
            }
        }
    }

    /// Gets ready for a step back, if the editor says nothing for a while.
    fn prepare(&mut self) -> io::Result<()> {
        let Some(debuggee) = &mut self.debuggee else { return Ok(()) };
        match self.incoming.while_silent(SILENCE, || debuggee.travel.prepare()) {
            Some(Err(error)) => self.no_program(error),
            _ => Ok(()),
        }
    }

    /// Where the replay differs from the recording, there is no program to look at.
    fn no_program(&mut self, error: ReplayError) -> io::Result<()> {
        self.outgoing.send(output(&format!("gretel: {}", failure(error))))?;
        self.terminated()
    }

    /// Says once that there is nothing more to be seen.
    fn terminated(&mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.has_terminated, true) {
            true => Ok(()),
            false => self.outgoing.send(event("terminated", json!({}))),
        }
    }

    /// Answers a request; false when it was the last.
    fn answer(&mut self, request: &Request) -> io::Result<bool> {
        let (answer, then) = match self.handle(request) {
            Ok((body, then)) => (Ok(body), then),
            Err(why) => (Err(why), Then::Nothing),
        };
        self.outgoing.send(response(request, answer))?;
        match then {
            Then::Nothing => {}
            Then::Initialized(said) => {
                said.iter().try_for_each(|line| self.outgoing.send(output(&format!("gretel: {line}"))))?;
                self.outgoing.send(event("initialized", json!({})))?;
            }
            Then::Stopped(reason) => self.stopped(&reason)?,
            Then::Moved(reason) => {
                self.continued()?;
                self.stopped(&reason)?;
            }
            Then::Run(run) => self.run(&run)?,
            Then::End => {
                self.terminated()?;
                return Ok(request.command != "disconnect");
            }
        }
        Ok(true)
    }

    fn handle(&mut self, request: &Request) -> Handled {
        let quiet = |body: Value| Ok((body, Then::Nothing));
        match request.command.as_str() {
            "initialize" => {
                self.starts_sessions = request.arguments::<Initialize>()?.starts_sessions;
                return quiet(protocol::capabilities());
            }
            "launch" | "attach" => return self.launch(request),
            "disconnect" | "terminate" => return Ok((Value::Null, Then::End)),
            "setVariable" | "setExpression" | "writeMemory" => return Err(READ_ONLY.to_owned()),
            "restart" | "restartFrame" | "gotoTargets" | "goto" | "stepInTargets" | "cancel"
            | "completions" => {
                return Err(format!("{} is not offered, as the capabilities say", request.command));
            }
            _ => {}
        }
        let Some(debuggee) = &mut self.debuggee else {
            return Err(format!("{} comes before launch has opened a recording", request.command));
        };
        if let Some(run) = running(request)? {
            let all = json!({ "allThreadsContinued": true });
            return Ok((if matches!(run, Run::Continue) { all } else { Value::Null }, Then::Run(run)));
        }
        match request.command.as_str() {
            "configurationDone" => Ok((Value::Null, Then::Stopped(Reason::Entry))),
            // It has stopped already: this answers a wish that came too late.
            "pause" => quiet(Value::Null),
            "gretel/goto" => {
                let asked: Goto = request.arguments()?;
                let said = debuggee.goto(&asked.position)?;
                Ok((
                    json!({ "position": debuggee.travel.position().to_string(), "message": said }),
                    Then::Moved(Reason::Goto),
                ))
            }
            "evaluate" => evaluate(debuggee, request),
            _ => quiet(look(debuggee, request)?),
        }
    }

    /// Opens the recording.
    fn launch(&mut self, request: &Request) -> Handled {
        if self.debuggee.is_some() {
            return Err("a recording is open: one session is of one recording".to_owned());
        }
        let launch: Launch = request.arguments()?;
        let dir = self.dir.clone().or_else(|| launch.recording.as_ref().map(PathBuf::from));
        let dir = dir.ok_or("the launch configuration names no recording: \"recording\": \"DIR\"")?;
        let has_children = self.starts_sessions && launch.children != Some(false);
        // Before the sandbox, in which no folder is asked for.
        let children =
            if has_children { Children::of(&request.arguments, &dir) } else { Children::default() };
        let (mut debuggee, said) = Debuggee::open(&dir, launch, self.engine)?;
        debuggee.children = children;
        self.incoming.hear(debuggee.travel.asks()).map_err(|error| error.to_string())?;
        self.debuggee = Some(debuggee);
        Ok((Value::Null, Then::Initialized(said)))
    }

    /// Runs the program, and says where it stopped.
    fn run(&mut self, run: &Run) -> io::Result<()> {
        let Some(debuggee) = &mut self.debuggee else { return Ok(()) };
        self.incoming.begin_run();
        let ran = run.run(debuggee);
        let mut said = std::mem::take(&mut debuggee.breakpoints.said);
        said.extend(debuggee.damage());
        let (requests, left_out) = debuggee.children.requests();
        said.extend(left_out);
        said.iter().try_for_each(|line| self.outgoing.send(output(line)))?;
        requests.into_iter().try_for_each(|request| self.outgoing.send(request))?;
        match ran {
            Ok(Ok(reason)) => self.stopped(&reason),
            Ok(Err(error)) => self.no_program(error),
            Err(why) => {
                self.outgoing.send(output(&format!("gretel: {why}")))?;
                self.stopped(&Reason::Pause)
            }
        }
    }

    /// The program has moved without having been asked to run: what was said of the stop before holds no more.
    fn continued(&mut self) -> io::Result<()> {
        let Some(debuggee) = &self.debuggee else { return Ok(()) };
        let body = json!({ "threadId": debuggee.loaded(), "allThreadsContinued": true });
        self.outgoing.send(event("continued", body))
    }

    fn stopped(&mut self, reason: &Reason) -> io::Result<()> {
        let Some(debuggee) = &mut self.debuggee else { return Ok(()) };
        for breakpoint in debuggee.look() {
            self.outgoing
                .send(event("breakpoint", json!({ "reason": "changed", "breakpoint": breakpoint })))?;
        }
        self.outgoing.send(event("stopped", debuggee.stopped(reason)))
    }
}

impl Run {
    fn run(&self, debuggee: &mut Debuggee) -> Result<Result<Reason, ReplayError>, String> {
        let thread = |id: i32| debuggee.thread(id);
        match *self {
            Run::Continue => Ok(debuggee.go_on()),
            Run::ReverseContinue => Ok(debuggee.go_back()),
            Run::Next(id, true) => debuggee.step_instruction(thread(id)?, true),
            Run::Next(id, false) => debuggee.step_line(thread(id)?, false),
            Run::In(id, true) => debuggee.step_instruction(thread(id)?, false),
            Run::In(id, false) => debuggee.step_line(thread(id)?, true),
            Run::Out(id) => debuggee.step_out(thread(id)?),
            Run::Back(id, true) => debuggee.step_back_instruction(thread(id)?),
            Run::Back(id, false) => debuggee.step_back_line(thread(id)?),
        }
    }
}

/// What a request makes run, if it does.
fn running(request: &Request) -> Result<Option<Run>, String> {
    let asked = || request.arguments::<Running>();
    Ok(Some(match request.command.as_str() {
        "continue" => Run::Continue,
        "reverseContinue" => Run::ReverseContinue,
        "next" => asked().map(|it| Run::Next(it.thread_id, it.by_instruction()))?,
        "stepIn" => asked().map(|it| Run::In(it.thread_id, it.by_instruction()))?,
        "stepOut" => asked().map(|it| Run::Out(it.thread_id))?,
        "stepBack" => asked().map(|it| Run::Back(it.thread_id, it.by_instruction()))?,
        _ => return Ok(None),
    }))
}

/// `evaluate`: in the console, there are commands beside expressions.
fn evaluate(debuggee: &mut Debuggee, request: &Request) -> Handled {
    let asked: protocol::Shown = request.arguments()?;
    let said = |text: String| json!({ "result": text, "variablesReference": 0 });
    if asked.context == "repl" {
        match debuggee.console(asked.frame_id, &asked.expression)? {
            Done::Said(text) => return Ok((said(text), Then::Nothing)),
            Done::Moved(text, reason) => return Ok((said(text), Then::Moved(reason))),
            Done::Expression => {}
        }
    }
    Ok((debuggee.evaluate(asked.frame_id, &asked.expression)?, Then::Nothing))
}

/// Requests that look at the program where it stands.
fn look(debuggee: &mut Debuggee, request: &Request) -> Answer {
    let mut set = |kind: Kind, request: &Request| {
        let Debuggee { breakpoints, known, sources, .. } = &mut *debuggee;
        Ok(breakpoints.set(&kind, request.arguments()?, known, sources))
    };
    match request.command.as_str() {
        "setBreakpoints" => {
            let asked: protocol::SetBreakpoints = request.arguments()?;
            let path = asked.source.path.or(asked.source.name).ok_or("a source without a path")?;
            set(Kind::Line(path), request)
        }
        "setFunctionBreakpoints" => set(Kind::Function, request),
        "setInstructionBreakpoints" => set(Kind::Instruction, request),
        "setDataBreakpoints" => set(Kind::Data, request),
        "setExceptionBreakpoints" => Ok(json!({ "breakpoints": [] })),
        "dataBreakpointInfo" => debuggee.data_info(&request.arguments()?),
        "exceptionInfo" => match debuggee.crash() {
            Some(crash) => {
                Ok(json!({ "exceptionId": crash, "description": debuggee.when(), "breakMode": "unhandled" }))
            }
            None => Err("the program does not stand at a crash".to_owned()),
        },
        "threads" => Ok(debuggee.threads()),
        "stackTrace" => debuggee.stack_trace(&request.arguments()?),
        "scopes" => debuggee.scopes(request.arguments::<protocol::Shown>()?.frame_id),
        "variables" => debuggee.variables(&request.arguments()?),
        "readMemory" => debuggee.read_memory(&request.arguments()?),
        "disassemble" => debuggee.disassemble(&request.arguments()?),
        "source" => debuggee.source_text(&request.arguments()?),
        "loadedSources" => Ok(debuggee.loaded_sources()),
        "modules" => Ok(debuggee.modules()),
        other => Err(format!("`{other}` is not known here")),
    }
}
