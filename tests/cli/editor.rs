//! An editor: a small client of the Debug Adapter Protocol.

use crate::Place;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

/// A session with `gretel dap`.
pub(crate) struct Editor {
    /// The adapter, if it was started for this session.
    pub(crate) child: Option<Child>,
    to: Option<Box<dyn Write>>,
    from: BufReader<Box<dyn Read>>,
    sent: i64,
    events: VecDeque<Value>,
}

impl Editor {
    /// Starts the adapter, and launches this recording.
    pub(crate) fn launch(place: &Place, arguments: &Value) -> Editor {
        let mut editor = Editor::start(place);
        let capabilities = editor.ask("initialize", json!({ "adapterID": "gretel" }));
        assert_eq!(capabilities["supportsStepBack"], true);
        editor.ask("launch", arguments.clone());
        editor.event("initialized");
        editor
    }

    pub(crate) fn start(place: &Place) -> Editor {
        let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &["dap"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("gretel starts");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Editor { child: Some(child), ..Editor::over(to, from) }
    }

    /// A session with an adapter that listens.
    pub(crate) fn connect(address: &str) -> Editor {
        let socket = TcpStream::connect(address).expect("the adapter listens");
        Editor::over(socket.try_clone().expect("a socket"), socket)
    }

    fn over(to: impl Write + 'static, from: impl Read + 'static) -> Editor {
        let from = BufReader::new(Box::new(from) as Box<dyn Read>);
        Editor { child: None, to: Some(Box::new(to)), from, sent: 0, events: VecDeque::new() }
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let to = self.to.as_mut().expect("a pipe");
        to.write_all(bytes).and_then(|()| to.flush()).expect("the adapter listens");
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.send_bytes(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes());
    }

    fn send(&mut self, command: &str, arguments: Value) -> i64 {
        self.sent += 1;
        let request =
            json!({ "seq": self.sent, "type": "request", "command": command, "arguments": arguments });
        self.send_text(&request.to_string());
        self.sent
    }

    fn receive(&mut self) -> Value {
        self.try_receive().expect("the adapter has ended")
    }

    /// The next message, if the adapter has not ended.
    fn try_receive(&mut self) -> Option<Value> {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if self.from.read_line(&mut line).expect("a line") == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some((_, value)) => length = value.parse().expect("a length"),
                None => break,
            }
        }
        let mut text = vec![0; length];
        self.from.read_exact(&mut text).expect("a message");
        Some(serde_json::from_slice(&text).expect("JSON"))
    }

    /// The response to a request.
    pub(crate) fn response(&mut self, command: &str, arguments: Value) -> Value {
        let seq = self.send(command, arguments);
        loop {
            let message = self.receive();
            if message["type"] != "response" {
                self.events.push_back(message);
                continue;
            }
            assert_eq!((&message["request_seq"], &message["command"]), (&seq.into(), &command.into()));
            return message;
        }
    }

    /// The answer to a request, or why there is none.
    pub(crate) fn try_ask(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        let response = self.response(command, arguments);
        match response["success"].as_bool() {
            Some(true) => Ok(response["body"].clone()),
            _ => Err(response["message"].as_str().unwrap_or_default().to_owned()),
        }
    }

    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let answer = self.try_ask(command, arguments);
        answer.unwrap_or_else(|why| panic!("{command}: {why}"))
    }

    /// The next event of this name among those that were received, if there is one.
    pub(crate) fn received(&mut self, name: &str) -> Option<Value> {
        let at = self.events.iter().position(|event| event["event"] == name)?;
        Some(self.events.remove(at)?["body"].clone())
    }

    /// The next event of this name.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        loop {
            if let Some(event) = self.received(name) {
                return event;
            }
            let message = self.receive();
            self.events.push_back(message);
        }
    }

    /// The next request of the adapter to the editor, if one has come: its arguments. It is answered.
    pub(crate) fn requested(&mut self, command: &str, answer: Result<(), &str>) -> Option<Value> {
        let at = self.events.iter().position(|it| it["type"] == "request" && it["command"] == command)?;
        let request = self.events.remove(at)?;
        let mut response = json!({
            "seq": 0, "type": "response", "request_seq": request["seq"], "command": command, "success": answer.is_ok(),
        });
        answer.err().into_iter().for_each(|why| response["message"] = why.into());
        self.send_text(&response.to_string());
        Some(request["arguments"].clone())
    }

    /// What was said since the last time.
    pub(crate) fn said(&mut self) -> String {
        let (said, others) = self.events.drain(..).partition(|event: &Value| event["event"] == "output");
        self.events = others;
        let said: VecDeque<Value> = said;
        said.iter().filter_map(|event| event["body"]["output"].as_str()).collect()
    }

    /// Ends the configuration; where the program stands.
    pub(crate) fn begin(&mut self) -> Value {
        self.ask("configurationDone", json!({}));
        self.event("stopped")
    }

    /// Runs, and why it stopped.
    pub(crate) fn run(&mut self, command: &str) -> String {
        self.ask(command, json!({ "threadId": 0 }));
        self.event("stopped")["reason"].as_str().expect("a reason").to_owned()
    }

    pub(crate) fn frames(&mut self) -> Vec<Value> {
        let stack = self.ask("stackTrace", json!({ "threadId": 0 }));
        stack["stackFrames"].as_array().expect("frames").clone()
    }

    /// The innermost function and its line.
    pub(crate) fn at(&mut self) -> (String, i64) {
        let frame = &self.frames()[0];
        (frame["name"].as_str().expect("a name").to_owned(), frame["line"].as_i64().expect("a line"))
    }

    pub(crate) fn position(&mut self) -> String {
        let when = self.ask("evaluate", json!({ "expression": "when", "context": "repl" }));
        let when = when["result"].as_str().and_then(|when| when.strip_prefix("position "));
        when.and_then(|when| when.split(',').next()).expect("a position").to_owned()
    }

    /// The value of an expression in a frame, the innermost is 0.
    pub(crate) fn value_in(&mut self, frame: usize, expression: &str) -> Result<String, String> {
        let id = self.frames()[frame]["id"].clone();
        let answer =
            self.try_ask("evaluate", json!({ "expression": expression, "frameId": id, "context": "watch" }))?;
        Ok(answer["result"].as_str().expect("a result").to_owned())
    }

    pub(crate) fn type_in(&mut self, frame: usize, expression: &str) -> String {
        let id = self.frames()[frame]["id"].clone();
        let answer =
            self.ask("evaluate", json!({ "expression": expression, "frameId": id, "context": "watch" }));
        answer["type"].as_str().expect("a type").to_owned()
    }

    pub(crate) fn value(&mut self, expression: &str) -> String {
        self.value_in(0, expression).unwrap_or_else(|why| panic!("{expression}: {why}"))
    }

    pub(crate) fn break_at(&mut self, place: &Place, file: &str, lines: &[i64]) -> Vec<Value> {
        let breakpoints: Vec<_> = lines.iter().map(|line| json!({ "line": line })).collect();
        let path = place.path(file);
        let answer =
            self.ask("setBreakpoints", json!({ "source": { "path": path }, "breakpoints": breakpoints }));
        answer["breakpoints"].as_array().expect("breakpoints").clone()
    }

    pub(crate) fn break_in(&mut self, functions: &[&str]) {
        let breakpoints: Vec<_> = functions.iter().map(|name| json!({ "name": name })).collect();
        let answer = self.ask("setFunctionBreakpoints", json!({ "breakpoints": breakpoints }));
        assert!(
            answer["breakpoints"].as_array().is_some_and(|all| all.iter().all(|it| it["verified"] == true)),
            "{answer}"
        );
    }

    /// The variables below a number, by name.
    pub(crate) fn variables(&mut self, reference: &Value) -> Vec<(String, String, Value)> {
        let answer = self.ask("variables", json!({ "variablesReference": reference }));
        let all = answer["variables"].as_array().expect("variables").clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter()
            .map(|it| (text(&it["name"]), text(&it["value"]), it["variablesReference"].clone()))
            .collect()
    }

    /// Leaves, and how the adapter ended.
    pub(crate) fn leave(mut self) -> i32 {
        self.ask("disconnect", json!({}));
        drop(self.to.take());
        self.child.as_mut().map_or(0, |child| child.wait().expect("it ends").code().unwrap_or(-1))
    }

    /// Leaves, and the names of all events that come until the adapter has gone.
    pub(crate) fn last_events(mut self) -> Vec<String> {
        self.ask("disconnect", json!({}));
        let rest: Vec<Value> = std::iter::from_fn(|| self.try_receive()).collect();
        let events = self.events.iter().chain(&rest);
        events.filter_map(|it| it["event"].as_str().map(str::to_owned)).collect()
    }
}
