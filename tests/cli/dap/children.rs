//! Processes that a recorded program starts have sessions of their own in an editor that can start some.

use super::recorded;
use crate::Place;
use crate::editor::Editor;
use serde_json::{Value, json};

/// Two children, one of which has a child.
pub(super) const FAMILY: &str = r#"#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) int work(int n) {
    return n * 7;
}
int main(void) {
    for (int n = 1; n < 3; n++) {
        int status = 0;
        if (fork() == 0) {
            if (n == 2 && fork() == 0) return work(30);
            return work(n);
        }
        wait(&status);
        printf("%d\n", WEXITSTATUS(status));
    }
}
"#;

/// A session of an editor that starts sessions, or of one that does not.
fn session(place: &Place, starts_sessions: bool, configuration: &Value) -> Editor {
    launched(Editor::start(place), starts_sessions, configuration)
}

/// The same, by an adapter that was started.
pub(super) fn launched(mut editor: Editor, starts_sessions: bool, configuration: &Value) -> Editor {
    editor.ask(
        "initialize",
        json!({ "adapterID": "gretel", "supportsStartDebuggingRequest": starts_sessions }),
    );
    editor.ask("launch", configuration.clone());
    editor.event("initialized");
    editor.ask("setFunctionBreakpoints", json!({ "breakpoints": [{ "name": "work" }] }));
    editor
}

/// The process where a session stands.
pub(super) fn process(editor: &mut Editor) -> String {
    let when = editor.ask("evaluate", json!({ "expression": "when", "context": "repl" }));
    let when = when["result"].as_str().expect("a text").to_owned();
    when.split(", ").find_map(|part| part.strip_prefix("process ")).expect("a process").to_owned()
}

/// A child's session begins where it was started, stops at its own breakpoints, and tells of its own child.
#[test]
fn a_child_has_a_session_of_its_own() {
    let place = Place::new();
    if !recorded(&place, "family", FAMILY, &["-O0"], "soft") {
        return;
    }
    let start = json!({ "recording": "rec", "at": "start", "custom": 7, "__restart": "the editor's own" });
    let mut parent = session(&place, true, &start);
    parent.begin();
    let own = process(&mut parent);
    assert_eq!(parent.run("continue"), "pause", "its breakpoint is in no code that it runs");
    let asked: Vec<Value> = std::iter::from_fn(|| parent.requested("startDebugging", Ok(()))).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    // What was told of once is not told of again.
    parent.run("reverseContinue");
    parent.run("continue");
    assert_eq!(parent.requested("startDebugging", Ok(())), None);

    let mut positions = Vec::new();
    for (asked, n) in asked.iter().zip(["1", "2"]) {
        let configuration = &asked["configuration"];
        assert_eq!((&asked["request"], &configuration["custom"]), (&"launch".into(), &7.into()), "{asked}");
        assert!(configuration["__restart"].is_null(), "{asked}");
        let mut child = session(&place, true, configuration);
        assert_eq!(child.begin()["reason"], "entry");
        let id = process(&mut child);
        assert_eq!(configuration["pid"].to_string(), id);
        assert_ne!(id, own);
        positions.push(child.position());
        assert_eq!(child.run("continue"), "function breakpoint");
        assert_eq!((child.value("n"), process(&mut child)), (n.to_owned(), id.clone()));
        let grandchild = child.requested("startDebugging", Ok(()));
        assert_eq!(grandchild.is_some(), n == "2", "{grandchild:?}");
        if let Some(asked) = grandchild {
            let name = asked["configuration"]["name"].as_str().expect("a name").to_owned();
            assert!(name.ends_with(&format!("started by {id}")), "{name}");
            let mut session = session(&place, true, &asked["configuration"]);
            session.begin();
            assert_eq!(session.run("continue"), "function breakpoint");
            assert_eq!(session.value("n"), "30");
            assert_eq!(session.leave(), 0);
        }
        assert_eq!(child.leave(), 0);
    }
    assert_ne!(positions[0], positions[1]);
    assert_eq!(parent.leave(), 0);
}

/// Editors that cannot, and configurations that do not want it, are asked for nothing; a refusal is said.
#[test]
fn who_does_not_want_sessions_is_not_asked() {
    let place = Place::new();
    if !recorded(&place, "family", FAMILY, &["-O0"], "soft") {
        return;
    }
    for (starts_sessions, children) in [(false, true), (true, false)] {
        let start = json!({ "recording": "rec", "at": "start", "children": children });
        let mut editor = session(&place, starts_sessions, &start);
        editor.begin();
        assert_eq!(editor.run("continue"), "pause");
        assert_eq!(editor.requested("startDebugging", Ok(())), None);
        assert_eq!(editor.leave(), 0);
    }
    let mut editor = session(&place, true, &json!({ "recording": "rec", "at": "start" }));
    editor.begin();
    editor.run("continue");
    assert!(editor.requested("startDebugging", Err("one is enough")).is_some());
    editor.ask("threads", json!({}));
    let said = editor.said();
    assert!(said.contains("the editor did not do \"startDebugging\": one is enough"), "{said}");
    assert_eq!(editor.leave(), 0);
}

/// What another process stores to memory that both have is seen where this one waited for it.
#[test]
fn what_another_process_changed_stops_where_this_one_waited() {
    let place = Place::new();
    if !recorded(&place, "board", crate::board::BOARD, &["-O1"], "soft") {
        return;
    }
    let mut editor = session(&place, true, &json!({ "recording": "rec" }));
    editor.begin();
    let own = process(&mut editor);
    let frame = editor.frames()[0]["id"].clone();
    let data = editor.ask("dataBreakpointInfo", json!({ "name": "board->next", "frameId": frame }));
    let breakpoint = json!({ "dataId": data["dataId"], "accessType": "write" });
    editor.ask("setDataBreakpoints", json!({ "breakpoints": [breakpoint] }));
    for before in ["2", "1", "0"] {
        editor.ask("reverseContinue", json!({ "threadId": 0 }));
        let stopped = editor.event("stopped");
        assert_eq!(stopped["reason"], "data breakpoint", "{stopped}");
        let text = stopped["text"].as_str().unwrap_or_default().to_owned();
        assert!(text.contains("by another process that shares it"), "{text}");
        assert_eq!((process(&mut editor), editor.value("board->next")), (own.clone(), before.to_owned()));
    }
    assert_eq!(editor.leave(), 0);
}
