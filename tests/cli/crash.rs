//! Crashes: the core that gdb opens, its branch records, and cores that are cut.

use crate::gdb::has_gdb;
use crate::{DAMAGED, Place, USAGE, engines, ran, skipped};
use serde_json::Value;
use std::fs;

const CRASHES: &str = r#"
#include <stdio.h>
static volatile int marker = 0x5eed;
__attribute__((noinline)) static int inner(int *p, int n) {
    for (int i = 0; i < n; i++) marker += i;
    return *p;
}
__attribute__((noinline)) static int outer(int n) { return inner((int *)(long)(n * 8), n) + 1; }
int main(int argc, char **argv) { printf("started\n"); fflush(stdout); return outer(argc + 4); }
"#;

fn core(place: &Place, arguments: &[&str]) -> Value {
    let shown = place.gretel(&[&["core", "--json"], arguments].concat());
    assert_eq!(shown.code, 0, "{}", shown.err);
    serde_json::from_str(&shown.out()).expect("--json prints JSON")
}

#[test]
fn gdb_shows_the_same_crash_as_gretel() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./crashes"]);
        assert_eq!((recorded.code, recorded.out()), (128 + 11, "started\n".to_owned()), "{}", recorded.err);
        for replayer in engines() {
            let replayed = place.replay(engine, replayer);
            assert_eq!((&replayed["end"], &replayed["status_or_signal"]), (&"killed".into(), &11.into()));
        }
        let shown = core(&place, &[engine]);
        assert_eq!(shown["signal"]["name"], "SIGSEGV");
        assert_eq!(shown["signal"]["address"], "0x28");
        let places: Vec<_> =
            shown["stack"].as_array().unwrap().iter().map(|f| f["place"].to_string()).collect();
        for (n, function) in ["inner", "outer", "main"].iter().enumerate() {
            assert!(places[n].starts_with(&format!("\"{function}+")), "{places:?}");
        }
        let commands = [
            "-ex",
            "bt",
            "-ex",
            "p/x marker",
            "-ex",
            "p/x $rip",
            "-ex",
            "p $_siginfo._sifields._sigfault.si_addr",
        ];
        let file = format!("{engine}/core");
        let gdb =
            place.command("gdb", &[&["-batch", "-nx"], &commands[..], &["crashes", &file]].concat()).output();
        let Ok(gdb) = gdb else {
            skipped("gdb on a core", "gdb is not installed");
            continue;
        };
        let said = String::from_utf8_lossy(&gdb.stdout);
        for expected in [
            "SIGSEGV",
            "#0 ",
            " inner ",
            "#1 ",
            " outer ",
            "#2 ",
            " main ",
            "crashes.c",
            "= 0x5ef7", // 0x5eed and 0 + 1 + 2 + 3 + 4
            shown["registers"]["rip"].as_str().unwrap(),
            "0x28",
        ] {
            assert!(said.contains(expected), "gdb does not say {expected:?}:\n{said}");
        }
    }
}

const INLINED: &str = r#"
static volatile int marker;
static inline __attribute__((always_inline)) int innermost(int *p, int n) {
    for (int i = 0; i < n; i++) {
        marker = i;
        p[i] = marker;
    }
    return marker;
}
static inline __attribute__((always_inline)) int middle(long n) {
    marker = 3;
    return innermost((int *)(n * 8), n) + marker;
}
__attribute__((noinline)) static int outer(long n) {
    marker = 2;
    return middle(n) + marker;
}
int main(int argc, char **argv) { return outer(argc + 4) + 1; }
"#;

/// Functions that were inlined have frames of their own, with the lines that gdb shows.
/// The recording's core is that of its first process where it died, whatever ends last; and it has branch records, though the
/// program has only begun.
#[test]
fn the_first_process_may_die_while_others_go_on() {
    let place = Place::new();
    for engine in engines() {
        let script = "(sleep 0.3; kill -ABRT $(sh -c 'echo $PPID')) & kill -SEGV $$";
        for force in [&["-o", engine][..], &["-o", engine, "--force"]] {
            let start = [&["record", "--engine", engine], force, &["--", "busybox", "sh", "-c", script]];
            let recorded = place.gretel(&start.concat());
            assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
            assert!(!recorded.err.contains("has no branch records"), "{}", recorded.err);
        }
        for replayer in engines() {
            assert_eq!(place.replay(engine, replayer)["status_or_signal"], 11);
        }
        let (first, cores) = (core(&place, &[engine]), other_cores(&place, engine));
        assert_eq!(first["signal"]["name"], "SIGSEGV");
        let [other] = &cores[..] else { panic!("one other core, of the last recording: {cores:?}") };
        assert_eq!(core(&place, &[other])["signal"]["name"], "SIGABRT");
        assert!(!other.ends_with(&format!("core.{}", first["process"]["pid"])), "{other}");
        let synth = place.gretel(&["synth", engine, "--fuel", "5"]);
        assert!(!synth.err.contains("panicked"), "{}", synth.err);
    }
}

fn other_cores(place: &Place, recording: &str) -> Vec<String> {
    let names = fs::read_dir(place.path(recording)).expect("the recording's folder");
    let names = names.map(|entry| entry.expect("an entry").path().to_string_lossy().into_owned());
    names.filter(|name| name.contains("core.")).collect()
}

#[test]
fn inlined_functions_are_in_the_stack_as_in_gdb() {
    let place = Place::new();
    let Some(_program) = place.compile("inlined", INLINED) else { return };
    place.gretel(&["record", "--engine", "soft", "-o", "rec", "--", "./inlined"]);
    let shown = core(&place, &["rec"]);
    let frames = shown["stack"].as_array().unwrap();
    let expected =
        [("innermost at ", 6, true), ("middle at ", 12, true), ("outer+", 16, false), ("main+", 18, false)];
    for (frame, (start, line, inlined)) in frames.iter().zip(expected) {
        let place = frame["place"].as_str().unwrap();
        assert!(
            place.starts_with(start) && place.ends_with(&format!("inlined.c:{line}")),
            "{start}: {place}"
        );
        assert_eq!(frame["inlined"], inlined, "{place}");
    }
    let text = place.gretel(&["core", "rec"]).out();
    assert!(
        text.lines().any(|line| line.contains("#1 ") && line.ends_with("inlined.c:12 (inlined)")),
        "{text}"
    );
    let gdb = place.command("gdb", &["-batch", "-nx", "-ex", "bt", "inlined", "rec/core"]).output();
    let Ok(gdb) = gdb else { return skipped("gdb on a core", "gdb is not installed") };
    let said = String::from_utf8_lossy(&gdb.stdout);
    for (n, (start, line, _)) in expected.iter().enumerate() {
        let function = start.trim_end_matches([' ', '+']).trim_end_matches(" at");
        let found = said.lines().any(|text| {
            text.starts_with(&format!("#{n} "))
                && text.contains(function)
                && text.ends_with(&format!(".c:{line}"))
        });
        assert!(found, "gdb has no frame {n} {function} at line {line}:\n{said}");
    }
}

/// Where the processor reports no address, the instruction and the registers tell what was wrong.
#[test]
fn a_general_protection_fault_is_explained() {
    let place = Place::new();
    let source = r#"
        #include <stdlib.h>
        #include <signal.h>
        static void handler(int signal) { }
        int main(int argc, char **argv) {
            struct sigaction action = { .sa_handler = handler };
            volatile long *bad = (long *)0x4141414141414141;
            switch (argv[1][0]) {
            case 'l': return *bad;
            case 's': *bad = 1; return 0;
            case 'j': ((void (*)(void))bad)(); return 0;
            case 'r': asm volatile("push %0; ret" :: "r"(bad)); return 0;
            case 'h': asm volatile("hlt"); return 0;
            case 'm': asm volatile("movaps 8(%%rsp), %%xmm0; movaps 16(%%rsp), %%xmm0" ::: "xmm0"); return 0;
            case 'x': asm volatile("mov %%rbx, %%rsi; rep movsb" :: "b"(bad), "c"(5), "D"(&action) : "rsi", "memory"); return 0;
            case 'n': return *(volatile int *)0x30;
            case 'f':
                sigaction(SIGSEGV, &action, 0);
                asm volatile("xor %%esp, %%esp; mov 0x40, %%al" ::: "rax");
            }
        }"#;
    let Some(_program) = place.compile("faults", source) else { return };
    let address = "0x4141414141414141";
    for (kind, message) in [
        ("l", format!("operand's address {address} is not canonical")),
        ("s", format!("operand's address {address} is not canonical")),
        ("j", format!("{address}, which is not canonical")),
        ("r", format!("{address}, which is not canonical")),
        ("x", format!("operand's address {address} is not canonical")),
        ("h", "the instruction is privileged".to_owned()),
        ("m", "is not aligned for this instruction".to_owned()),
        ("n", "cannot use the memory at 0x30".to_owned()),
        ("f", "no address is reported".to_owned()),
    ] {
        for engine in engines() {
            let recording = format!("{kind}-{engine}");
            let ran = place.gretel(&["record", "--engine", engine, "-o", &recording, "--", "./faults", kind]);
            assert_eq!(ran.code, 128 + 11, "{kind} on {engine}: {}", ran.err);
            assert_eq!(ran.err.contains("SIGSEGV (address"), kind == "n", "{}", ran.err);
            let cause = core(&place, &[&recording])["signal"]["cause"].to_string();
            assert!(cause.contains(&message), "{kind} on {engine}: {cause}");
            let text = place.gretel(&["core", &recording]).out();
            assert!(text.contains(&message), "{kind} on {engine}: {text}");
        }
    }
}

/// The records are those that hardware would have: the newest are the loop and the calls that lead to the crash.
#[test]
fn the_core_has_the_branch_records_that_were_asked_for() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    for (records, filter, count) in [("16", "any", 16), ("32", "calls", 32), ("16", "0x101", 16)] {
        let recording = format!("{records}-{filter}");
        let options =
            ["record", "--records", records, "--filter", filter, "-o", &recording, "--", "./crashes"];
        place.gretel(&[&options[..1], &["--branch-records", "derived"], &options[1..]].concat());
        let shown = core(&place, &[&recording]);
        let trail = &shown["trail"];
        assert_eq!(trail["provenance"], "derived");
        let all = trail["records"].as_array().unwrap();
        assert_eq!(all.len(), count);
        let newest = &all[count - 1];
        if filter == "calls" {
            assert!(newest["to_place"].as_str().unwrap().starts_with("inner+0x0"), "{newest}");
        } else {
            assert!(newest["to_place"].as_str().unwrap().starts_with("inner+"), "{newest}");
            assert!(newest["from_place"].as_str().unwrap().starts_with("inner+"), "{newest}");
        }
    }
    place.gretel(&["record", "--records", "0", "-o", "none", "--", "./crashes"]);
    assert_eq!(core(&place, &["none"])["trail"], Value::Null);
}

/// The log of executed instructions, made by counting, and the branch records, made by the model, are of one
/// execution.
#[test]
fn the_log_of_instructions_contains_the_branch_records() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    place.gretel(&["record", "-o", "rec", "--", "./crashes"]);
    let recording = vmm::recording::Recording::open(&place.path("rec")).unwrap();
    let soft = || vmm::engine::open(vmm::engine::EngineKind::Soft, vmm::ram::for_replay()).unwrap();
    let derived = vmm::trail::derive(&recording, soft(), 32, lbr::Filter::ANY).unwrap();
    let log = vmm::trail::tail_log(&recording, soft(), 3000).unwrap();
    assert_eq!(log.len(), 3000);
    let mut pairs = log.windows(2);
    for record in &derived.trail.records {
        let found = pairs.any(|pair| pair == [record.from, record.to]);
        assert!(found, "{:#x} -> {:#x} is not in the log, in order", record.from, record.to);
    }
    let crash = derived.replay.process().cpu().regs().rip;
    let last = *log.last().unwrap();
    assert!(last < crash && crash - last < 16, "the instruction before the crash: {last:#x}, {crash:#x}");
}

#[test]
fn a_cut_core_is_shown_as_far_as_it_goes() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    place.gretel(&["record", "-o", "rec", "--", "./crashes"]);
    let whole = fs::read(place.path("rec/core")).unwrap();
    for (numerator, usable) in [(1, true), (5, true), (9, true), (0, false)] {
        let length = whole.len() * numerator / 10;
        fs::write(place.path("rec/core"), &whole[..length.max(100)]).unwrap();
        let shown = place.gretel(&["core", "rec"]);
        assert_eq!(shown.code, DAMAGED, "{}", shown.err);
        assert_eq!(shown.out().contains("SIGSEGV"), usable, "{}", shown.err);
        assert!(shown.err.contains("cut"), "{}", shown.err);
        assert!(shown.err.contains("rec/core"), "{}", shown.err);
    }
    place.write("rec/core", "no core at all");
    let shown = place.gretel(&["core", "rec"]);
    assert_eq!(shown.code, DAMAGED);
    assert!(shown.err.contains("is not an x86-64 ELF core"), "{}", shown.err);
}

/// A core of this machine's kernel for the same crash shows the same stack.
#[test]
fn a_kernel_core_is_shown_too() {
    let place = Place::new();
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        return skipped("a core of the kernel", "core_pattern sends it elsewhere");
    }
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    ran(&mut place.command("sh", &["-c", "ulimit -c unlimited; ./crashes; true"]));
    let Some(name) = fs::read_dir(place.path(".")).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.starts_with("core").then_some(name)
    }) else {
        return skipped("a core of the kernel", "it wrote none");
    };
    let shown = core(&place, &["--exe", "crashes", &name]);
    assert_eq!(shown["signal"]["address"], "0x28");
    assert!(shown["stack"][0]["place"].as_str().unwrap().starts_with("inner+"));
    assert_eq!(shown["trail"], Value::Null);
}

/// A core of gdb's `gcore` has no segment for code that nobody changed: it is taken from the files that the core names.
#[test]
fn a_core_of_gdb_is_shown_too() {
    if !has_gdb("a core of gdb") {
        return;
    }
    let place = Place::new();
    let source =
        "#include <string.h>\nint main(int argc, char **argv) { return (int)strlen((char *)(argc + 40L)); }";
    place.write("away.c", source);
    if !place.sh("gcc -g -O1 -o away away.c").err.is_empty() {
        return skipped("a core of gdb", "gcc cannot make a dynamic program here");
    }
    place.sh("gdb -nx -batch -ex run -ex 'gcore left' ./away");
    if !place.path("left").exists() {
        return skipped("a core of gdb", "gdb cannot run a program here");
    }
    let shown = core(&place, &["left"]);
    let function = |frame: usize| shown["stack"][frame]["place"].as_str().unwrap_or_default().to_owned();
    assert!(function(0).contains("strlen") && function(1).starts_with("main+"), "{shown}");
    let files = shown["mappings"].as_array().expect("mappings");
    let code =
        |it: &Value| it["rights"] == "r-x" && it["file"].as_str().is_some_and(|it| it.contains("libc"));
    assert_eq!(files.iter().filter(|it| code(it)).count(), 1, "{shown}");
    let searched = place.gretel(&["synth", "left", "--fuel", "1"]);
    assert!(!searched.out().contains("no instruction before the crash"), "{}", searched.out());
}

/// Linkers that save room (lld, gold, mold) have the data begin on the last page of the code, which is none of the code.
#[test]
fn what_follows_the_code_on_its_last_page_is_no_other_program() {
    let place = Place::new();
    let Some(program) = place.compile("crashes", CRASHES) else { return };
    let mut bytes = fs::read(&program).unwrap();
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (table, count) = (number(&bytes, 32, 8), number(&bytes, 56, 2));
    let mut headers = (0..count).map(|n| table + n * 56);
    let code = headers.rfind(|at| number(&bytes, *at, 4) == 1 && bytes[at + 4] & 1 == 1).unwrap();
    let end = number(&bytes, code + 8, 8) + number(&bytes, code + 32, 8);
    bytes[end..end.next_multiple_of(4096)].fill(1);
    fs::write(&program, bytes).unwrap();
    let recorded = place.gretel(&["record", "-o", "rec", "--", "./crashes"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let shown = core(&place, &["rec"]);
    assert!(shown["stack"][0]["place"].as_str().is_some_and(|it| it.starts_with("inner+")), "{shown}");
}

/// Why a folder has no core: it is no recording, its recorder was stopped, or the core is lost.
#[test]
fn a_missing_core_is_explained() {
    let place = Place::new();
    let explained_by = |code: i32, dir: &str, why: &str| {
        let shown = place.gretel(&["core", dir]);
        assert_eq!(shown.code, code, "{}", shown.err);
        assert!(shown.err.contains(why), "{dir}: {}", shown.err);
    };
    let explained = |dir: &str, why: &str| explained_by(DAMAGED, dir, why);
    fs::create_dir(place.path("empty")).unwrap();
    explained("empty", "is not a recording");
    explained("missing", "No such file or directory");
    if place.compile("ends", "int main(void) { return 0; }").is_some() {
        place.gretel(&["record", "-o", "ended", "--", "./ends"]);
        explained_by(USAGE, "ended", "the recorded program did not crash");
    }
    let source = "int main(void) { *(volatile int *)0 = 1; }";
    let Some(_) = place.compile("crashes", source) else { return };
    assert_eq!(place.gretel(&["record", "-o", "rec", "--", "./crashes"]).code, 139);
    let pid = core(&place, &["rec"])["process"]["pid"].as_u64().unwrap();
    assert!(pid > 1, "the process id is that of the recorder, by which others know it: {pid}");
    fs::remove_file(place.path("rec/core")).unwrap();
    explained("rec", "crashed with SIGSEGV, but its core");
    let journal = fs::read(place.path("rec/journal")).unwrap();
    fs::write(place.path("rec/journal"), &journal[..journal.len() - 1]).unwrap();
    explained("rec", "the recorder was stopped before the program ended");
}

/// A warning is a line like all others, and comes once though the crash runs again for its branch records.
#[test]
fn a_warning_is_said_once() {
    let place = Place::new();
    let source = "#include <unistd.h>\nint main(void) { acct(0); *(volatile int *)0 = 1; }";
    let Some(_) = place.compile("warned", source) else { return };
    let arguments = ["record", "-o", "rec", "--branch-records", "derived", "--", "./warned"];
    let recorded = place.gretel(&arguments);
    let warning = "gretel: system call acct (163) is not supported: EPERM; first at acct(NULL)";
    let again = "gretel: not served: system call acct (163): EPERM, once";
    for line in [warning, again] {
        assert_eq!(recorded.err.lines().filter(|it| *it == line).count(), 1, "{}", recorded.err);
    }
    assert_eq!(recorded.err.matches("(163)").count(), 2, "{}", recorded.err);
    let suffix = place.gretel(&["synth", "--records", "32", "--instructions", "2", "rec"]);
    assert!(suffix.out().contains(" of the 32 branch records\n"), "{}{}", suffix.out(), suffix.err);
    assert!(!suffix.err.contains("acct"), "{}", suffix.err);
}

/// What a recorder left that was killed while it wrote a core is not in the way of the next.
#[test]
fn a_core_that_was_left_unfinished_is_replaced() {
    let place = Place::new();
    let Some(_program) = place.compile("crashes", CRASHES) else { return };
    fs::create_dir(place.path("rec")).unwrap();
    place.write("rec/journal", "cut");
    place.write("rec/core.unfinished", "half of a core");
    let recorded = place.gretel(&["record", "--engine", "soft", "--force", "-o", "rec", "--", "./crashes"]);
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    assert_eq!(core(&place, &["rec"])["signal"]["name"], "SIGSEGV");
    assert!(!place.path("rec/core.unfinished").exists());
}
