//! What editors make of a session, as VS Code and Neovim were seen to ([decision 110](docs/decisions/0110-editors-that-were-run.md)).

use super::children::{FAMILY, launched, process};
use super::{ORDERS, STEPS, recorded};
use crate::editor::Editor;
use crate::{Place, skipped};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

#[test]
fn a_step_where_no_line_is_known_goes_to_the_first() {
    let place = Place::new();
    if !recorded(&place, "steps", STEPS, &["-O0"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    editor.begin();
    let start = editor.position();
    for (command, from) in [("next", start.as_str()), ("stepIn", &start), ("next", "start")] {
        editor.ask("gretel/goto", json!({ "position": from }));
        editor.event("stopped");
        assert_eq!(editor.run(command), "step", "{command} from {from}");
        assert_eq!(editor.at(), ("main".to_owned(), 29), "{command} from {from}");
    }
    // A breakpoint on the way ends it, and nobody returns from there.
    editor.break_in(&["_init"]);
    editor.ask("gretel/goto", json!({ "position": start }));
    editor.event("stopped");
    assert_eq!(editor.run("next"), "function breakpoint");
    editor.ask("gretel/goto", json!({ "position": start }));
    editor.event("stopped");
    editor.said();
    assert_eq!(editor.run("stepOut"), "pause");
    assert!(editor.said().contains("outermost"));
    assert_eq!((editor.position(), editor.leave()), (start, 0));
    // Of what is compiled without lines there is none.
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("rm -rf rec; strip --strip-debug steps; {gretel} record -o rec -- ./steps"));
    assert!(place.path("rec").is_dir(), "{}", ran.err);
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    editor.begin();
    let start = editor.position();
    assert_eq!(editor.run("next"), "pause");
    assert!(editor.said().contains("no line of the program is known"));
    assert_eq!((editor.position(), editor.leave()), (start, 0));
}

/// An editor goes to a frame whose source it has, and its cursor is inside of what it shows in place of others.
#[test]
fn sources_that_are_not_here_are_not_in_the_foreground() {
    let place = Place::new();
    if !recorded(&place, "orders", ORDERS, &["-O0"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
    editor.begin();
    assert!(editor.frames()[0]["source"]["presentationHint"].is_null());
    assert_eq!(editor.leave(), 0);
    std::fs::remove_file(place.path("orders.c")).unwrap();
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
    editor.begin();
    let frame = editor.frames()[0].clone();
    assert_eq!(frame["source"]["presentationHint"], "deemphasize");
    let reference = &frame["source"]["sourceReference"];
    let text = editor.ask("source", json!({ "source": frame["source"], "sourceReference": reference }));
    let lines = text["content"].as_str().expect("a text").lines().count();
    assert_eq!(lines, 24, "{text}");
    assert_eq!(editor.leave(), 0);
}

/// What moves the program without a request to run tells first that what was said of the stop before holds no more.
#[test]
fn what_the_console_moves_has_gone_on() {
    let place = Place::new();
    if !recorded(&place, "orders", ORDERS, &["-O0"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
    let stopped = editor.begin();
    assert_eq!((&stopped["description"], editor.received("continued")), (&"SIGSEGV".into(), None));
    for (line, reason) in [("last-write all->next->next->next", "step"), ("goto end", "goto")] {
        editor.ask("evaluate", json!({ "expression": line, "context": "repl" }));
        let stopped = editor.event("stopped");
        assert_eq!(stopped["reason"], reason, "{line}");
        let continued = editor.received("continued").expect("it comes before the stop");
        assert_eq!(continued["threadId"], stopped["threadId"]);
        assert_eq!(continued["allThreadsContinued"], true);
    }
    editor.run("stepBack");
    editor.ask("evaluate", json!({ "expression": "when", "context": "repl" }));
    assert_eq!(editor.received("continued"), None, "who asked for it knows");
    // Of the session's end it is told once.
    editor.ask("terminate", json!({}));
    let events = editor.last_events();
    assert_eq!(events.iter().filter(|event| *event == "terminated").count(), 1, "{events:?}");
}

/// What editors ask for, and what they show of a refusal.
#[test]
fn a_launch_that_fails_is_shown() {
    let place = Place::new();
    let mut editor = Editor::start(&place);
    editor.ask("initialize", json!({ "adapterID": "gretel" }));
    for (command, arguments, why) in [
        ("launch", json!({ "recording": "nothing" }), "nothing"),
        ("attach", json!({ "recording": "nothing", "at": 3 }), "nothing"),
        ("launch", json!({ "recording": "nothing", "at": 3.5 }), "neither a text nor a number"),
        ("launch", json!({ "recording": "nothing", "at": -1 }), "neither a text nor a number"),
        ("launch", json!({ "recording": "nothing", "pid": "3" }), "the arguments of launch"),
    ] {
        let refused = editor.response(command, arguments);
        assert_eq!(
            (&refused["success"], &refused["body"]["error"]["showUser"]),
            (&false.into(), &true.into())
        );
        assert!(refused["message"].as_str().is_some_and(|it| it.contains(why)), "{refused}");
    }
    let refused = editor.response("threads", json!({}));
    assert_eq!(refused["body"]["error"]["showUser"], false);
    if !recorded(&place, "orders", ORDERS, &["-O0"], "soft") {
        return;
    }
    editor.ask("launch", json!({ "recording": "rec", "at": 7 }));
    editor.begin();
    let mut same = Editor::launch(&place, &json!({ "recording": "rec", "at": "7" }));
    same.begin();
    assert_eq!(editor.position(), same.position());
    assert_eq!((editor.leave(), same.leave()), (0, 0));
}

/// Instructions are shown from before the function that an editor asks about, as they run.
#[test]
fn a_function_is_shown_with_what_lies_before() {
    let place = Place::new();
    if !recorded(&place, "steps", STEPS, &["-O0"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    editor.begin();
    let set = editor.ask("setFunctionBreakpoints", json!({ "breakpoints": [{ "name": "fib" }] }));
    let fib = &set["breakpoints"][0]["instructionReference"];
    let asked = json!({ "memoryReference": fib, "instructionOffset": -100, "instructionCount": 101 });
    let answer = editor.ask("disassemble", asked);
    let list = answer["instructions"].as_array().expect("a list");
    assert_eq!((list.len(), &list[100]["address"]), (101, fib));
    let symbols: BTreeSet<_> = list.iter().filter_map(|it| it["symbol"].as_str()).collect();
    assert!(symbols.contains("fib") && symbols.contains("work"), "{symbols:?}");
    // Each begins where the one before ends.
    let address = |it: &Value| u64::from_str_radix(&it["address"].as_str().expect("an address")[2..], 16);
    for pair in list.windows(2) {
        let bytes = pair[0]["instructionBytes"].as_str().expect("bytes").split(' ').count() as u64;
        assert_eq!(address(&pair[0]).map(|it| it + bytes), address(&pair[1]), "{pair:?}");
    }
    assert_eq!(editor.leave(), 0);
}

/// An adapter that listens serves those that connect while one is there, so that children have sessions, too.
#[test]
fn children_connect_to_an_adapter_that_listens() {
    let place = Place::new();
    if !recorded(&place, "family", FAMILY, &["-O0"], "soft") {
        return;
    }
    let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &["dap", "--listen", "127.0.0.1:0"]);
    let mut adapter = command.stderr(Stdio::piped()).spawn().expect("gretel starts");
    let mut said = BufReader::new(adapter.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("where it listens");
    let address = line.trim().rsplit(' ').next().expect("an address").to_owned();
    let start = json!({ "recording": "rec", "at": "start" });
    let mut parent = launched(Editor::connect(&address), true, &start);
    parent.begin();
    parent.run("continue");
    let asked: Vec<Value> = std::iter::from_fn(|| parent.requested("startDebugging", Ok(()))).collect();
    assert_eq!(asked.len(), 2, "{asked:?}");
    let mut children: Vec<Editor> = Vec::new();
    for (asked, n) in asked.iter().zip(["1", "2"]) {
        let configuration = &asked["configuration"];
        let mut child = launched(Editor::connect(&address), true, configuration);
        child.begin();
        assert_eq!(child.run("continue"), "function breakpoint");
        assert_eq!((child.value("n"), process(&mut child)), (n.to_owned(), configuration["pid"].to_string()));
        children.push(child);
    }
    // It stays for those that are there.
    assert_eq!(parent.leave(), 0);
    let still = children.pop().expect("a child");
    assert_eq!(children.pop().expect("a child").leave(), 0);
    let mut late = Editor::connect(&address);
    late.ask("initialize", json!({ "adapterID": "gretel" }));
    assert_eq!((late.leave(), still.leave()), (0, 0));
    assert_eq!(adapter.wait().expect("it ends").code(), Some(0));
}

/// VS Code's description of the adapter has what the adapter takes, and is packed the same each time.
#[test]
fn the_extension_says_what_a_launch_takes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read(root.join("packaging/vscode/package.json")).expect("the extension");
    let extension: Value = serde_json::from_slice(&text).expect("JSON");
    let debugger = &extension["contributes"]["debuggers"][0];
    let (launch, attach) =
        (&debugger["configurationAttributes"]["launch"], &debugger["configurationAttributes"]["attach"]);
    assert_eq!(launch, attach);
    let mut keys: Vec<_> = launch["properties"].as_object().expect("keys").keys().collect();
    keys.sort();
    assert_eq!(keys, ["at", "children", "pid", "recording", "sourceMap"]);
    assert_eq!(launch["properties"]["at"]["type"], json!(["string", "integer"]));
    assert_eq!(extension["version"], env!("CARGO_PKG_VERSION"));
    let place = Place::new();
    let pack = |name: &str| {
        let script = root.join("scripts/vsix.py");
        place.command("python3", &[]).arg(script).arg(place.path(name)).status()
    };
    let Ok(packed) = pack("a.vsix") else { return skipped("gretel.vsix", "there is no python3") };
    assert!(packed.success() && pack("b.vsix").is_ok_and(|it| it.success()));
    let [package, again] =
        ["a.vsix", "b.vsix"].map(|name| std::fs::read(place.path(name)).expect("a package"));
    assert_eq!(package, again);
    let has = |part: &[u8]| package.windows(part.len()).any(|it| it == part);
    assert!(package.starts_with(b"PK") && has(b"extension/package.json") && has(b"extension.vsixmanifest"));
}
