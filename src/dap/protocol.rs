//! Requests, responses and events of the Debug Adapter Protocol, as far as they are used here
//! (microsoft.github.io/debug-adapter-protocol/specification). Unknown fields are left alone.

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// A request of the editor.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Request {
    pub(super) seq: i64,
    pub(super) command: String,
    #[serde(default)]
    pub(super) arguments: Value,
}

impl Asked {
    /// Some editors send an empty text for none.
    pub(super) fn without_empty(mut self) -> Asked {
        for text in [&mut self.condition, &mut self.hit_condition, &mut self.log_message] {
            text.take_if(|text| text.trim().is_empty());
        }
        self
    }
}

impl Request {
    /// A message, if it is a request; otherwise what is wrong with it.
    pub(super) fn parse(text: &[u8]) -> Result<Request, String> {
        let value: Value =
            serde_json::from_slice(text).map_err(|error| format!("a message that is no JSON: {error}"))?;
        if value["type"] != "request" {
            return Err(format!("a message that is no request: its type is {}", value["type"]));
        }
        serde_json::from_value(value).map_err(|error| format!("a request that is not complete: {error}"))
    }

    /// Its arguments.
    pub(super) fn arguments<T: DeserializeOwned>(&self) -> Result<T, String> {
        // Editors leave them out where none is needed.
        let arguments = if self.arguments.is_null() { json!({}) } else { self.arguments.clone() };
        serde_json::from_value(arguments)
            .map_err(|error| format!("the arguments of {}: {error}", self.command))
    }
}

/// `initialize`: what the editor can do, as far as it is used here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Initialize {
    #[serde(rename = "supportsStartDebuggingRequest")]
    pub(super) starts_sessions: bool,
}

/// What became of a request of ours, if the message is the editor's answer to one.
pub(super) fn answered(text: &[u8]) -> Option<Result<(), String>> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let is_answer = value["type"] == "response";
    let why = || {
        let why = value["message"].as_str().unwrap_or("it does not say why");
        format!("the editor did not do {}: {why}", value["command"])
    };
    is_answer.then(|| if value["success"] == true { Ok(()) } else { Err(why()) })
}

/// The answer to a request: a body, or why there is none.
pub(super) type Answer = Result<Value, String>;

/// A response, without its number.
pub(super) fn response(request: &Request, answer: Answer) -> Value {
    let mut message = json!({"type": "response", "request_seq": request.seq, "command": request.command});
    match answer {
        Ok(body) => {
            message["success"] = true.into();
            if !body.is_null() {
                message["body"] = body;
            }
        }
        Err(why) => {
            message["success"] = false.into();
            message["message"] = why.clone().into();
            // What editors show to people; the message above is what older ones do.
            // Where there is no session yet, it has no other place.
            let shown = matches!(request.command.as_str(), "launch" | "attach");
            message["body"] = json!({"error": {"id": 1, "format": escaped(&why), "showUser": shown}});
        }
    }
    message
}

/// In a message, words in braces are variables.
fn escaped(text: &str) -> String {
    text.replace('{', "(").replace('}', ")")
}

/// An event, without its number.
pub(super) fn event(name: &str, body: Value) -> Value {
    json!({"type": "event", "event": name, "body": body})
}

/// A line for the debug console.
pub(super) fn output(text: &str) -> Value {
    event("output", json!({"category": "console", "output": format!("{text}\n")}))
}

/// What this adapter can do.
pub(super) fn capabilities() -> Value {
    json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsConditionalBreakpoints": true,
        "supportsHitConditionalBreakpoints": true,
        "supportsLogPoints": true,
        "supportsDataBreakpoints": true,
        "supportsDataBreakpointBytes": true,
        "supportsInstructionBreakpoints": true,
        "supportsEvaluateForHovers": true,
        "supportsStepBack": true,
        "supportsSteppingGranularity": true,
        "supportsDisassembleRequest": true,
        "supportsReadMemoryRequest": true,
        "supportsLoadedSourcesRequest": true,
        "supportsModulesRequest": true,
        "supportsTerminateRequest": true,
        "supportsDelayedStackTraceLoading": true,
        "supportsExceptionInfoRequest": true,
        "exceptionBreakpointFilters": [],
    })
}

/// `launch` and `attach`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Launch {
    pub(super) recording: Option<String>,
    pub(super) at: Option<At>,
    pub(super) pid: Option<i32>,
    /// Whether processes that it starts have sessions of their own; without it they have.
    pub(super) children: Option<bool>,
    #[serde(default)]
    pub(super) source_map: std::collections::BTreeMap<String, String>,
}

/// Where to begin: an event may be a number.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "`at` is neither a text nor a number of an event")]
pub(super) enum At {
    Event(u64),
    Text(String),
}

impl At {
    /// As a text.
    pub(super) fn text(self) -> String {
        match self {
            At::Event(event) => event.to_string(),
            At::Text(text) => text,
        }
    }
}

/// A source file, as editors name it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Source {
    pub(super) name: Option<String>,
    pub(super) path: Option<String>,
    #[serde(default)]
    pub(super) source_reference: i64,
}

/// A breakpoint that is asked for: each kind has some of these.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Asked {
    pub(super) line: u32,
    pub(super) name: String,
    pub(super) instruction_reference: String,
    pub(super) offset: i64,
    pub(super) data_id: String,
    pub(super) access_type: Option<String>,
    pub(super) condition: Option<String>,
    pub(super) hit_condition: Option<String>,
    pub(super) log_message: Option<String>,
}

/// `set...Breakpoints`.
#[derive(Debug, Deserialize)]
pub(super) struct SetBreakpoints {
    #[serde(default)]
    pub(super) source: Source,
    #[serde(default)]
    pub(super) breakpoints: Vec<Asked>,
}

/// `dataBreakpointInfo`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DataInfo {
    #[serde(default)]
    pub(super) variables_reference: u64,
    pub(super) name: String,
    pub(super) frame_id: Option<u64>,
    #[serde(default)]
    pub(super) as_address: bool,
    pub(super) bytes: Option<u64>,
}

/// What runs: `continue`, `next`, `stepBack` and the like.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Running {
    #[serde(default)]
    pub(super) thread_id: i32,
    pub(super) granularity: Option<String>,
}

impl Running {
    /// Whether single instructions are meant.
    pub(super) fn by_instruction(&self) -> bool {
        self.granularity.as_deref() == Some("instruction")
    }
}

/// `stackTrace`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct StackTrace {
    pub(super) thread_id: i32,
    pub(super) start_frame: usize,
    pub(super) levels: usize,
}

/// `scopes`, `variables` and `evaluate`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Shown {
    pub(super) frame_id: Option<u64>,
    pub(super) variables_reference: u64,
    pub(super) start: u64,
    pub(super) count: u64,
    pub(super) expression: String,
    pub(super) context: String,
}

/// `readMemory` and `disassemble`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Memory {
    pub(super) memory_reference: String,
    pub(super) offset: i64,
    pub(super) count: u64,
    pub(super) instruction_offset: i64,
    pub(super) instruction_count: u64,
}

/// `source`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SourceAsked {
    pub(super) source: Source,
    pub(super) source_reference: i64,
}

/// `gretel/goto`.
#[derive(Debug, Deserialize)]
pub(super) struct Goto {
    pub(super) position: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_request_is_said() {
        for (text, why) in [
            ("{", "no JSON"),
            ("[]", "no request"),
            (r#"{"type": "event", "seq": 1}"#, "no request"),
            (r#"{"type": "request", "seq": 1}"#, "not complete"),
            (r#"{"type": "request", "seq": "x", "command": 3}"#, "not complete"),
        ] {
            let error = Request::parse(text.as_bytes()).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
        let request =
            Request::parse(br#"{"type": "request", "seq": 1, "command": "threads"}"#).expect("a request");
        assert!(request.arguments::<Shown>().is_ok());
    }
}
