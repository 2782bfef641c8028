//! `gretel dap`: an editor goes through a recording, forwards and backwards.

mod children;
mod ends;
mod services;
mod sessions;
mod silence;

use crate::editor::Editor;
use crate::{Place, engines, skipped};
use serde_json::json;

/// The list of docs/tutorial.md, whose third link is overwritten by a name that is too long.
const ORDERS: &str = r#"#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct order { char name[16]; long amount; struct order *next; };
static struct order *all;
static void add(const char *name, long amount) {
    struct order *order = malloc(sizeof *order);
    strcpy(order->name, name);
    order->amount = amount;
    order->next = all;
    all = order;
}
static void rename_order(struct order *order, const char *name) {
    strcpy(order->name, name);
}
int main(void) {
    char line[100], name[80];
    long amount;
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "add %15s %ld", name, &amount) == 2) add(name, amount);
        else if (sscanf(line, "rename %79s", name) == 1 && all && all->next) rename_order(all->next, name);
    }
    long total = 0;
    for (struct order *order = all; order; order = order->next) total += order->amount;
    printf("%ld\n", total);
}
"#;

/// Compiles a program without optimization, and records it; false where there is no compiler.
fn recorded(place: &Place, name: &str, source: &str, options: &[&str], engine: &str) -> bool {
    place.write(&format!("{name}.c"), source);
    let file = place.path(&format!("{name}.c"));
    let mut compiler = place.command("gcc", options);
    let done = compiler.args(["-g", "-static", "-o", name]).arg(file).status();
    if !done.is_ok_and(|status| status.success()) {
        skipped(name, "gcc cannot make a static program here");
        return false;
    }
    place.write("input", "add tea 3\nadd coffee 5\nrename a-very-long-name-for-an-order\nadd milk 2\n");
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{gretel} record --engine {engine} -o rec -- ./{name} <input"));
    assert!(place.path("rec").is_dir(), "{}", ran.err);
    true
}

#[test]
fn a_corrupted_list_is_taken_back_to_the_write_that_did_it() {
    let place = Place::new();
    for engine in engines() {
        if !recorded(&place, "orders", ORDERS, &["-O0"], engine) {
            return;
        }
        let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
        let stopped = editor.begin();
        assert_eq!(stopped["reason"], "exception", "{stopped}");
        assert_eq!(stopped["text"], "SIGSEGV at address 0x726564727f", "{stopped}");
        assert_eq!(editor.at(), ("main".to_owned(), 24));
        assert_eq!(editor.value("order"), "0x726564726f");
        assert_eq!(
            editor.value("*all"),
            "{name = \"milk\", amount = 2, next = ".to_owned() + &editor.value("all->next") + "}"
        );
        assert_eq!(editor.value("all->next->amount == 5 && all->next->name[0] == 'c'"), "1");
        assert!(editor.value_in(0, "order->amount").is_ok_and(|it| it.starts_with("<not mapped")));
        // Its locals, and what is in them.
        let frame = editor.frames()[0]["id"].clone();
        let scopes = editor.ask("scopes", json!({ "frameId": frame }));
        let locals = editor.variables(&scopes["scopes"][1]["variablesReference"]);
        let names: Vec<_> = locals.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["line", "name", "amount", "total", "order"]);
        assert_eq!(locals[2].1, "2");
        let letters = editor.variables(&locals[0].2);
        assert_eq!((letters.len(), letters[4].1.as_str()), (100, "109 'm'"), "{letters:?}");
        // Back to who wrote the link.
        let link = json!({ "name": "all->next->next->next", "frameId": frame });
        let data = editor.ask("dataBreakpointInfo", link);
        let breakpoint = json!({ "dataId": data["dataId"], "accessType": "write" });
        let set = editor.ask("setDataBreakpoints", json!({ "breakpoints": [breakpoint] }));
        assert_eq!(set["breakpoints"][0]["verified"], true, "{set}");
        assert_eq!(editor.run("reverseContinue"), "data breakpoint");
        let frames = editor.frames();
        let copying = frames.iter().position(|it| it["name"] == "rename_order").expect("it is on the stack");
        assert_eq!((&frames[copying]["line"], &frames[copying + 1]["line"]), (&14.into(), &21.into()));
        let name = editor.value_in(copying, "name").expect("a name");
        assert!(name.ends_with("\"a-very-long-name-for-an-order\""), "{name}");
        assert_eq!(editor.value_in(copying, "order->next"), Ok("0x0".to_owned()));
        // The write before made the list; there may be others, of malloc.
        assert_eq!(editor.run("reverseContinue"), "data breakpoint");
        assert_eq!(editor.at(), ("add".to_owned(), 10));
        let mut before = 0;
        while editor.run("reverseContinue") == "data breakpoint" {
            before += 1;
        }
        for _ in 0..before + 2 {
            assert_eq!(editor.run("continue"), "data breakpoint");
        }
        editor.ask("setDataBreakpoints", json!({ "breakpoints": [] }));
        assert_eq!(editor.run("continue"), "exception");
        let said = editor
            .ask("evaluate", json!({ "expression": "last-write all->next->next->next", "context": "repl" }));
        assert!(
            said["result"].as_str().is_some_and(|it| it.starts_with("written by the instruction")),
            "{said}"
        );
        editor.event("stopped");
        assert_eq!(editor.leave(), 0);
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}

/// Calls, recursion, a loop, an inlined function, and `longjmp` past a frame.
const STEPS: &str = r#"#include <setjmp.h>
#include <stdio.h>
static jmp_buf back;
static volatile long sink;
__attribute__((noinline)) long work(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) sum += i ^ (sum >> 3);
    sink = sum;
    return sum;
}
__attribute__((noinline)) long fib(long n) {
    if (n < 2)
        return n;
    long a = fib(n - 1);
    long b = fib(n - 2);
    return a + b;
}
__attribute__((noinline)) void leave(long n) {
    if (n == 3)
        longjmp(back, 1);
    sink = n;
}
static inline __attribute__((always_inline)) long twice(long n) {
    long two = n * 2;
    sink = two;
    return two;
}
int main(int argc, char **argv) {
    long total = 0;
    total += work(argc * 100000L);
    long f = fib(9 + argc);
    total += f;
    if (setjmp(back) == 0) {
        for (long i = 0; i < 5; i++)
            leave(i);
    }
    total += twice(total);
    for (int i = 0; i < 4; i++) {
        total += i;
        total ^= 5;
    }
    printf("%ld\n", total);
    return 0;
}
"#;

/// All steps over lines in `main`, with their positions.
fn steps_over(editor: &mut Editor) -> Vec<(String, String, i64)> {
    editor.break_in(&["main"]);
    editor.begin();
    assert_eq!(editor.run("continue"), "function breakpoint");
    editor.break_in(&[]);
    let mut steps = Vec::new();
    loop {
        let (position, (name, line)) = (editor.position(), editor.at());
        if name != "main" {
            return steps;
        }
        steps.push((position, name, line));
        assert_eq!(editor.run("next"), "step");
    }
}

#[test]
fn steps_back_come_to_where_steps_forward_did() {
    let place = Place::new();
    for (engine, level) in engines().into_iter().flat_map(|engine| [(engine, "-O0"), (engine, "-O2")]) {
        if !recorded(&place, "steps", STEPS, &[level], engine) {
            return;
        }
        let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
        let steps = steps_over(&mut editor);
        let lines: Vec<_> = steps.iter().map(|(.., line)| *line).collect();
        if level == "-O0" {
            let all = [
                29, 30, 31, 32, 33, 34, 35, 34, 35, 34, 35, 34, 35, 33, 37, 38, 39, 40, 38, 39, 40, 38, 39,
                40,
            ];
            assert!(lines.starts_with(&all), "{lines:?}");
        }
        let last = steps.last().map(|(position, ..)| position).expect("a step");
        editor.ask("gretel/goto", json!({ "position": last }));
        assert_eq!(editor.event("stopped")["reason"], "goto");
        for step in steps.iter().rev().skip(1) {
            assert_eq!(editor.run("stepBack"), "step");
            let (position, (name, line)) = (editor.position(), editor.at());
            assert_eq!(*step, (position, name, line), "{level}");
        }
        assert_eq!(editor.leave(), 0);
        std::fs::remove_dir_all(place.path("rec")).unwrap();
    }
}

#[test]
fn steps_go_into_calls_and_out_and_stop_at_breakpoints_on_the_way() {
    let place = Place::new();
    if !recorded(&place, "steps", STEPS, &["-O0"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    let set = editor.break_at(&place, "steps.c", &[31, 27, 4000]);
    assert_eq!((&set[0]["verified"], &set[0]["line"]), (&true.into(), &31.into()), "{set:?}");
    assert_eq!((&set[1]["verified"], &set[1]["line"]), (&true.into(), &28.into()), "{set:?}");
    assert!(
        set[2]["verified"] == false && set[2]["message"].as_str().is_some_and(|it| it.contains("4000")),
        "{set:?}"
    );
    editor.begin();
    assert_eq!(editor.run("continue"), "breakpoint");
    assert_eq!(editor.run("continue"), "breakpoint");
    assert_eq!(editor.at(), ("main".to_owned(), 31));
    editor.break_at(&place, "steps.c", &[]);
    // Into the recursion: over both calls, each time in the same frame.
    for (command, line) in [("stepIn", 12), ("next", 14), ("next", 15), ("next", 16), ("next", 17)] {
        assert_eq!(editor.run(command), "step");
        assert_eq!(editor.at(), ("fib".to_owned(), line), "{command}");
        assert_eq!(editor.value("n"), "10", "{command} to line {line}");
    }
    assert_eq!(editor.value("a + b"), "55");
    for line in [16, 15, 14, 12] {
        assert_eq!(editor.run("stepBack"), "step");
        assert_eq!((editor.at(), editor.value("n")), (("fib".to_owned(), line), "10".to_owned()));
    }
    // Back over the beginning is the caller's line.
    assert_eq!(editor.run("stepBack"), "step");
    assert_eq!(editor.at(), ("main".to_owned(), 31));
    // A breakpoint in what is stepped over ends the step, in both directions.
    let condition = json!({ "line": 13, "condition": "n == 1" });
    let source = json!({ "path": place.path("steps.c") });
    editor.ask("setBreakpoints", json!({ "source": source, "breakpoints": [condition] }));
    assert_eq!(editor.run("next"), "breakpoint");
    assert_eq!((editor.at(), editor.value("n")), (("fib".to_owned(), 13), "1".to_owned()));
    let first = editor.position();
    editor.break_at(&place, "steps.c", &[]);
    while editor.at().0 == "fib" {
        assert_eq!(editor.run("stepOut"), "step");
    }
    assert_eq!(editor.at(), ("main".to_owned(), 31));
    assert_eq!(editor.run("next"), "step");
    editor.ask("setBreakpoints", json!({ "source": source, "breakpoints": [condition] }));
    assert_eq!(editor.run("stepBack"), "breakpoint");
    assert_eq!(editor.value("n"), "1");
    assert_ne!(editor.position(), first, "it is the last such call");
    // A hit count, and a message.
    let counted = json!({ "line": 13, "hitCondition": "3" });
    let message = json!({ "line": 12, "logMessage": "n is {n}, {nothing}" });
    editor.ask("setBreakpoints", json!({ "source": source, "breakpoints": [counted, message] }));
    editor.ask("evaluate", json!({ "expression": "goto start", "context": "repl" }));
    editor.event("stopped");
    editor.said();
    assert_eq!(editor.run("continue"), "breakpoint");
    let said = editor.said();
    assert!(
        said.starts_with("n is 10, <there is no variable `nothing`") && said.contains("n is 9"),
        "{said}"
    );
    assert_eq!(editor.leave(), 0);
}

#[test]
fn instructions_registers_and_memory_are_shown() {
    let place = Place::new();
    if !recorded(&place, "steps", STEPS, &["-O0"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    editor.break_in(&["work"]);
    editor.begin();
    assert_eq!(editor.run("continue"), "function breakpoint");
    let here = editor.frames()[0]["instructionPointerReference"].clone();
    let asked = json!({ "memoryReference": here, "instructionOffset": -3, "instructionCount": 6 });
    let answer = editor.ask("disassemble", asked);
    let instructions = answer["instructions"].as_array().expect("instructions");
    assert_eq!((instructions.len(), &instructions[3]["address"]), (6, &here), "{answer}");
    assert_eq!(instructions[3]["symbol"], "work");
    // An instruction there and back.
    let before = editor.position();
    for (command, reason) in [("next", "step"), ("stepBack", "step")] {
        editor.ask(command, json!({ "threadId": 0, "granularity": "instruction" }));
        assert_eq!(editor.event("stopped")["reason"], reason);
    }
    assert_eq!(
        (editor.position(), editor.value("$rip")),
        (before, here.as_str().unwrap_or_default().to_owned())
    );
    editor.ask(
        "setInstructionBreakpoints",
        json!({ "breakpoints": [{ "instructionReference": instructions[5]["address"] }] }),
    );
    editor.break_in(&[]);
    assert_eq!(editor.run("continue"), "instruction breakpoint");
    let n = editor.value("&n");
    let memory = editor.ask("readMemory", json!({ "memoryReference": n, "count": 8 }));
    assert_eq!(memory["data"], "oIYBAAAAAAA=", "100,000 in base64: {memory}");
    let none = editor.ask("readMemory", json!({ "memoryReference": "0x10", "count": 8 }));
    assert_eq!(none["unreadableBytes"], 8);
    for command in ["setVariable", "writeMemory"] {
        let refused = editor.try_ask(command, json!({})).expect_err("refused");
        assert!(refused.contains("another run"), "{refused}");
    }
    assert_eq!(editor.leave(), 0);
}

/// Two threads that take turns at a lock.
const THREADS: &str = r#"#include <pthread.h>
#include <stdio.h>
static long shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void bump(long by) {
    pthread_mutex_lock(&lock);
    shared += by;
    pthread_mutex_unlock(&lock);
}
static void *worker(void *arg) {
    for (int i = 0; i < 2000; i++)
        bump((long)arg);
    return NULL;
}
int main(void) {
    pthread_t other;
    pthread_create(&other, NULL, worker, (void *)2);
    for (int i = 0; i < 2000; i++)
        bump(1);
    pthread_join(other, NULL);
    printf("%ld\n", shared);
    return 0;
}
"#;

#[test]
fn a_step_stays_in_its_thread() {
    let place = Place::new();
    if !recorded(&place, "threads", THREADS, &["-O0", "-pthread"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    let stop = json!({ "breakpoints": [{ "name": "bump", "condition": "by == 2" }] });
    editor.ask("setFunctionBreakpoints", stop);
    editor.begin();
    assert_eq!(editor.run("continue"), "function breakpoint");
    let threads = editor.ask("threads", json!({}));
    let threads = threads["threads"].as_array().expect("threads").clone();
    assert_eq!(threads.len(), 2, "{threads:?}");
    assert!(threads.iter().all(|it| it["name"].as_str().is_some_and(|name| name.starts_with("threads "))));
    let (own, main) = (&threads[0]["id"], &threads[1]["id"]);
    let other = editor.ask("stackTrace", json!({ "threadId": main }));
    assert!(
        other["stackFrames"].as_array().is_some_and(|all| all.iter().any(|it| it["name"] == "main")),
        "{other}"
    );
    editor.break_in(&[]);
    let mut positions = Vec::new();
    for _ in 0..40 {
        positions.push(editor.position());
        editor.ask("next", json!({ "threadId": own }));
        assert_eq!(&editor.event("stopped")["threadId"], own);
    }
    // Back as long as it is in the same function.
    let within = positions.len() - 4;
    for position in positions[4..].iter().rev().take(within) {
        editor.ask("stepBack", json!({ "threadId": own }));
        assert_eq!(&editor.event("stopped")["threadId"], own);
        assert_eq!(*position, editor.position());
    }
    // The other thread is stepped until it has its turn.
    editor.ask("next", json!({ "threadId": main }));
    assert_eq!(&editor.event("stopped")["threadId"], main);
    assert_eq!(editor.leave(), 0);
}

#[test]
fn what_is_wrong_is_said_and_the_session_goes_on() {
    let place = Place::new();
    let mut editor = Editor::start(&place);
    let early = editor.try_ask("stackTrace", json!({})).expect_err("too early");
    assert!(early.contains("before launch"), "{early}");
    for (arguments, why) in [
        (json!({}), "names no recording"),
        (json!({ "recording": "nothing" }), "nothing"),
        (json!({ "recording": 7 }), "the arguments of launch"),
        (json!({ "recording": "nothing", "at": "here" }), "at: "),
    ] {
        let refused = editor.try_ask("launch", arguments.clone()).expect_err("refused");
        assert!(refused.contains(why), "{arguments}: {refused}");
    }
    for text in
        ["{", "[]", "{}", r#"{"type":"request"}"#, r#"{"type":"request","seq":1,"command":{}}"#, "\u{0}"]
    {
        editor.send_text(text);
        assert!(
            editor.event("output")["output"].as_str().is_some_and(|it| it.contains("gretel: a ")),
            "{text}"
        );
    }
    if !recorded(&place, "orders", ORDERS, &["-O0"], "soft") {
        return;
    }
    editor.ask("launch", json!({ "recording": "rec", "sourceMap": {} }));
    editor.event("initialized");
    editor.begin();
    for (command, arguments) in [
        ("stackTrace", json!({ "threadId": 99 })),
        ("stackTrace", json!({ "threadId": "x" })),
        ("scopes", json!({ "frameId": 77 })),
        ("variables", json!({ "variablesReference": 1_000_000 })),
        ("variables", json!({ "variablesReference": -1 })),
        ("evaluate", json!({ "expression": "no_such_name" })),
        ("evaluate", json!({ "expression": "((((" })),
        ("evaluate", json!({ "expression": "*".repeat(10_000) })),
        ("evaluate", json!({ "expression": "all[99999999999999999999]" })),
        ("evaluate", json!({ "expression": "goto nowhere", "context": "repl" })),
        ("disassemble", json!({ "memoryReference": "here", "instructionCount": 3 })),
        ("source", json!({ "sourceReference": 5 })),
        ("restart", json!({})),
        ("no-such-command", json!({})),
        ("launch", json!({ "recording": "rec" })),
    ] {
        let refused = editor.try_ask(command, arguments.clone());
        assert!(refused.is_err(), "{command} {arguments}: {refused:?}");
    }
    let edges = json!({ "memoryReference": "0xffffffffffffffff", "offset": i64::MAX, "instructionOffset": i64::MIN, "instructionCount": 50 });
    editor.ask("disassemble", edges);
    let bad = json!({ "breakpoints": [{ "dataId": "0x10:99999999999" }, { "dataId": "x" }, { "dataId": "0x10:8", "accessType": "execute" }] });
    let answer = editor.ask("setDataBreakpoints", bad);
    assert!(
        answer["breakpoints"].as_array().is_some_and(|all| all.iter().all(|it| it["verified"] == false)),
        "{answer}"
    );
    // What an editor shows of an earlier stop is no more.
    let frame = editor.frames()[0]["id"].clone();
    assert_eq!(editor.run("stepBack"), "step");
    let old = editor.try_ask("scopes", json!({ "frameId": frame })).expect_err("it is no more");
    assert!(old.contains("has moved"), "{old}");
    // A length that is none: nothing behind it can be read.
    editor.send_bytes(b"Content-Length: many\r\n\r\n");
    let adapter = editor.child.as_mut().expect("it was started");
    assert_ne!(adapter.wait().expect("it ends").code(), Some(0));
}

#[test]
fn sources_that_are_not_here_are_said_and_mapped() {
    let place = Place::new();
    if !recorded(&place, "orders", ORDERS, &["-O0"], "soft") {
        return;
    }
    std::fs::create_dir(place.path("moved")).unwrap();
    std::fs::rename(place.path("orders.c"), place.path("moved/orders.c")).unwrap();
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec" }));
    editor.begin();
    let source = editor.frames()[0]["source"].clone();
    let text =
        editor.ask("source", json!({ "source": source, "sourceReference": source["sourceReference"] }));
    assert!(text["content"].as_str().is_some_and(|it| it.contains("is not on this machine")), "{text}");
    assert_eq!(editor.leave(), 0);
    let map = json!({ place.path("").to_str().expect("a path"): place.path("moved") });
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "sourceMap": map }));
    let set = editor.break_at(&place, "moved/orders.c", &[14]);
    assert_eq!(set[0]["verified"], true, "{set:?}");
    editor.begin();
    assert_eq!(editor.frames()[0]["source"]["path"], place.path("moved/orders.c").to_str().expect("a path"));
    assert_eq!(editor.run("reverseContinue"), "breakpoint");
    assert_eq!(editor.at(), ("rename_order".to_owned(), 14));
    assert_eq!(editor.leave(), 0);
}

#[test]
fn pause_ends_a_long_run() {
    let place = Place::new();
    let long = r#"static volatile long sink;
        int main(void) { for (long i = 0; i < 300000000; i++) sink = i; return 0; }"#;
    if !recorded(&place, "long", long, &["-O1"], "soft") {
        return;
    }
    let mut editor = Editor::launch(&place, &json!({ "recording": "rec", "at": "start" }));
    editor.begin();
    // A condition that never holds has each round looked at.
    let never = json!({ "breakpoints": [{ "name": "main", "condition": "sink == -1" }] });
    editor.ask("setFunctionBreakpoints", never);
    let data = editor.ask("dataBreakpointInfo", json!({ "name": "sink" }));
    let data = json!({ "breakpoints": [{ "dataId": data["dataId"], "condition": "sink == -1" }] });
    editor.ask("setDataBreakpoints", data);
    editor.ask("continue", json!({ "threadId": 0 }));
    editor.ask("pause", json!({ "threadId": 0 }));
    assert_eq!(editor.event("stopped")["reason"], "pause");
    assert_eq!(editor.leave(), 0);
}
