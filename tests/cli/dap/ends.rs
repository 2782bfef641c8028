//! A session goes no farther than its process: forward to the signal that ends it, or to its exit; back to where it runs first.

use super::children::process;
use super::recorded;
use crate::editor::Editor;
use crate::{Place, engines};
use serde_json::{Value, json};

/// Two children, of which the second crashes.
const JOBS: &str = r#"#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static long done;
__attribute__((noinline)) static void work(long job) {
    long *where = job == 2 ? NULL : &done;
    done += 10;
    *where = job;
    exit(0);
}
int main(void) {
    for (long job = 1; job < 3; job++) {
        int status;
        if (fork() == 0) work(job);
        wait(&status);
        printf("%d\n", status);
    }
}
"#;

/// A parent that ends as `END` says before its child, which then does as `CHILD` says.
const ORPHAN: &str = r#"#include <stdlib.h>
#include <unistd.h>
int main(void) {
    int ends[2];
    char byte;
    if (pipe(ends)) return 1;
    if (fork() == 0) {
        close(ends[1]);
        read(ends[0], &byte, 1);
        CHILD;
        return 0;
    }
    END;
}
"#;

/// What the sessions of a recording's children are launched with, as its own session asks for them.
fn children(place: &Place) -> Vec<Value> {
    let mut parent = Editor::start(place);
    parent.ask("initialize", json!({ "adapterID": "gretel", "supportsStartDebuggingRequest": true }));
    parent.ask("launch", json!({ "recording": "rec", "at": "start" }));
    parent.begin();
    parent.run("continue");
    let asked = std::iter::from_fn(|| parent.requested("startDebugging", Ok(())));
    let asked: Vec<Value> = asked.map(|asked| asked["configuration"].clone()).collect();
    assert_eq!(parent.leave(), 0);
    asked
}

/// What the editor is told of the exception where the program stands.
fn exception(editor: &mut Editor) -> Result<String, String> {
    let info = editor.try_ask("exceptionInfo", json!({ "threadId": 0 }))?;
    Ok(info["exceptionId"].as_str().expect("a text").to_owned())
}

fn threads(editor: &mut Editor) -> Vec<String> {
    let threads = editor.ask("threads", json!({}));
    threads["threads"].as_array().expect("threads").iter().map(|it| it["id"].to_string()).collect()
}

#[test]
fn a_session_stops_where_its_process_crashes() {
    let place = Place::new();
    for engine in engines() {
        if !recorded(&place, "jobs", JOBS, &["-O0"], engine) {
            return;
        }
        let configurations = children(&place);
        let [_, crashing] = &configurations[..] else { panic!("{configurations:?}") };
        let pid = crashing["pid"].to_string();
        let mut editor = Editor::launch(&place, crashing);
        assert_eq!(editor.begin()["reason"], "entry");
        let first = editor.position();
        assert!(exception(&mut editor).is_err());
        // It stays there, however it is made to go on.
        for command in ["continue", "continue", "next", "stepIn", "stepOut"] {
            editor.ask(command, json!({ "threadId": 0 }));
            let stopped = editor.event("stopped");
            assert_eq!(
                (&stopped["reason"], &stopped["description"]),
                (&"exception".into(), &"SIGSEGV".into())
            );
            assert_eq!(stopped["text"], "SIGSEGV at address 0x0");
            assert_eq!((editor.at(), process(&mut editor)), (("work".to_owned(), 9), pid.clone()));
            assert_eq!(threads(&mut editor), std::slice::from_ref(&pid));
            assert_eq!(exception(&mut editor), Ok("SIGSEGV at address 0x0".to_owned()));
        }
        let crash = editor.position();
        for (command, reason) in
            [("stepBack", "step"), ("next", "step"), ("next", "exception"), ("next", "exception")]
        {
            editor.ask(command, json!({ "threadId": 0, "granularity": "instruction" }));
            assert_eq!(editor.event("stopped")["reason"], reason, "{command}");
        }
        assert_eq!(editor.position(), crash);
        // Back to where it runs first, and no farther.
        for command in ["reverseContinue", "reverseContinue", "stepBack"] {
            editor.ask(command, json!({ "threadId": 0 }));
            let stopped = editor.event("stopped");
            assert_eq!(stopped["description"], format!("process {pid} begins here"), "{command}");
            assert_eq!((editor.position(), process(&mut editor)), (first.clone(), pid.clone()));
        }
        editor.ask("stepBack", json!({ "threadId": 0, "granularity": "instruction" }));
        assert_eq!(
            (editor.event("stopped")["reason"].clone(), editor.position()),
            ("entry".into(), first.clone())
        );
        assert_eq!(editor.run("continue"), "exception");
        assert_eq!(editor.leave(), 0);
        // Without a position, and with those that are words.
        for (at, reason) in
            [(Value::Null, "exception"), ("end".into(), "exception"), ("start".into(), "entry")]
        {
            let arguments = json!({ "recording": "rec", "pid": crashing["pid"], "at": at });
            let mut editor = Editor::launch(&place, &arguments);
            assert_eq!(editor.begin()["reason"], reason, "{at}");
            let place = if reason == "entry" { &first } else { &crash };
            assert_eq!((&editor.position(), process(&mut editor)), (place, pid.clone()), "{at}");
            assert_eq!(exception(&mut editor).is_ok(), reason == "exception");
            assert_eq!(editor.leave(), 0);
        }
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}

#[test]
fn a_session_stops_before_its_process_exits() {
    let place = Place::new();
    if !recorded(&place, "jobs", JOBS, &["-O0"], "soft") {
        return;
    }
    let configuration = &children(&place)[0];
    let pid = configuration["pid"].to_string();
    let mut editor = Editor::launch(&place, configuration);
    editor.begin();
    let mut positions = Vec::new();
    for command in ["continue", "continue", "stepOut"] {
        editor.ask(command, json!({ "threadId": 0 }));
        let stopped = editor.event("stopped");
        assert_eq!(
            (&stopped["reason"], &stopped["description"]),
            (&"pause".into(), &format!("process {pid} exits here").into())
        );
        assert_eq!((process(&mut editor), threads(&mut editor)), (pid.clone(), vec![pid.clone()]));
        assert!(exception(&mut editor).is_err());
        positions.push(editor.position());
    }
    positions.dedup();
    assert_eq!(positions.len(), 1, "{positions:?}");
    // From where other processes run, which only a command of the console comes to.
    editor.ask("evaluate", json!({ "expression": "goto end", "context": "repl" }));
    editor.event("stopped");
    assert_ne!(process(&mut editor), pid);
    assert_eq!((editor.run("continue"), editor.position()), ("pause".to_owned(), positions[0].clone()));
    assert_eq!(editor.leave(), 0);
    // Behind its end it does not run.
    let mut editor =
        Editor::launch(&place, &json!({ "recording": "rec", "pid": configuration["pid"], "at": 100_000 }));
    editor.begin();
    let said = editor.said();
    assert!(said.contains(&format!("process {pid} does not run behind 100000")), "{said}");
    assert_eq!(editor.position(), positions[0]);
    assert_eq!(editor.leave(), 0);
    let mut editor = Editor::start(&place);
    let refused = editor.try_ask("launch", json!({ "recording": "rec", "pid": 4, "at": "start" }));
    assert!(refused.is_err_and(|why| why.contains("there is no process 4")));
}

/// A parent that ends first does not take its child's session along, nor the other way round.
#[test]
fn a_process_that_ends_before_others_has_its_end() {
    let place = Place::new();
    let orphan = |end: &str, child: &str| ORPHAN.replace("END", end).replace("CHILD", child);
    if !recorded(&place, "orphan", &orphan("return 3", "*(volatile int *)8 = 1"), &["-O0"], "soft") {
        return;
    }
    let mut parent = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    parent.begin();
    let own = process(&mut parent);
    parent.ask("continue", json!({ "threadId": 0 }));
    assert_eq!(parent.event("stopped")["description"], format!("process {own} exits here"));
    assert_eq!(process(&mut parent), own);
    assert_eq!(parent.leave(), 0);
    let child = &children(&place)[0];
    for configuration in [child, &json!({ "recording": "rec", "pid": child["pid"] })] {
        let mut editor = Editor::launch(&place, configuration);
        let stopped = editor.begin();
        assert_eq!((stopped["reason"] == "exception"), configuration["at"].is_null(), "{stopped}");
        assert_eq!(editor.run("continue"), "exception");
        assert_eq!(exception(&mut editor), Ok("SIGSEGV at address 0x8".to_owned()));
        assert_eq!(editor.at(), ("main".to_owned(), 10));
        assert_eq!(editor.leave(), 0);
    }
    // The first process crashes, and its child goes on.
    std::fs::remove_dir_all(place.path("rec")).unwrap();
    assert!(recorded(&place, "orphan", &orphan("*(volatile int *)16 = 1", "byte = 2"), &["-O0"], "soft"));
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
    assert_eq!(editor.begin()["text"], "SIGSEGV at address 0x10");
    assert_eq!(editor.at(), ("main".to_owned(), 13));
    assert_eq!(editor.run("reverseContinue"), "entry");
    assert_eq!(editor.run("continue"), "exception");
    let child = &children(&place)[0];
    assert_eq!(editor.leave(), 0);
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "pid": child["pid"] }));
    assert_eq!(editor.begin()["reason"], "entry", "the child has not crashed");
    assert!(exception(&mut editor).is_err());
    assert_eq!(editor.run("continue"), "pause");
    assert_eq!(editor.leave(), 0);
}
