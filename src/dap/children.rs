//! The processes that the program starts on the way forward: the editor is asked for a session of its own for each (`startDebugging`), on
//! the same recording, which begins where the process runs first.
//!
//! Example: `next` over `fork()`. The call starts process 12 at position 40, and before the `stopped` behind it the editor is asked to
//! launch `{"recording": "rec", "pid": 12, "at": "40"}`.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use vmm::position::Position;
use vmm::process::{Noted, Process};

/// More sessions than these are not started by one.
const MOST: usize = 32;

/// A process that was started.
struct Child {
    pid: i32,
    parent: i32,
    at: Position,
}

/// Those of one session.
#[derive(Default)]
pub(super) struct Children {
    /// What the editor launches each with, but for the process; none where no sessions are to be started.
    configuration: Option<Value>,
    told: BTreeSet<i32>,
    new: Vec<Child>,
}

impl Children {
    /// For a session that was launched with these arguments. The editor's own keys are its own affair.
    pub(super) fn of(launch: &Value, recording: &Path) -> Children {
        let mut configuration = launch.as_object().cloned().unwrap_or_default();
        configuration.retain(|key, _| !key.starts_with("__"));
        // The editor may start the other adapter elsewhere.
        let recording = std::path::absolute(recording).unwrap_or_else(|_| recording.to_owned());
        configuration.insert("recording".to_owned(), recording.to_string_lossy().into());
        Children { configuration: Some(configuration.into()), ..Children::default() }
    }

    /// Takes what the kernel has just done: processes that a task of `pid` has started.
    pub(super) fn note(&mut self, process: &Process, pid: i32) {
        if self.configuration.is_none() {
            return;
        }
        let is_its = |task: i32| process.tasks().any(|it| it.id == task && it.pid == pid);
        for noted in process.noted() {
            if let Noted::Forked { by, pid: child, .. } = *noted
                && is_its(by)
                && self.told.insert(child)
            {
                self.new.push(Child { pid: child, parent: pid, at: process.position() });
            }
        }
    }

    /// The requests to the editor for those that it was not told of, and what is to be said of others.
    pub(super) fn requests(&mut self) -> (Vec<Value>, Option<String>) {
        let new = std::mem::take(&mut self.new);
        let Some(configuration) = &self.configuration else { return (Vec::new(), None) };
        let before = self.told.len() - new.len();
        let room = MOST.saturating_sub(before);
        let left_out = new.len().saturating_sub(room);
        let requests = new.iter().take(room).map(|child| request(configuration, child)).collect();
        let said = (left_out > 0).then(|| {
            format!("{left_out} processes have no session of their own, since {MOST} have: `pid` in the launch configuration names one")
        });
        (requests, said)
    }
}

fn request(configuration: &Value, child: &Child) -> Value {
    let mut configuration = configuration.clone();
    configuration["name"] = format!("process {}, started by {}", child.pid, child.parent).into();
    configuration["pid"] = child.pid.into();
    configuration["at"] = child.at.to_string().into();
    let arguments = json!({ "request": "launch", "configuration": configuration });
    json!({ "type": "request", "command": "startDebugging", "arguments": arguments })
}
