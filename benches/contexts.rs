//! Calling contexts: what computing them costs at an exit, and how many are decoded again, by the number of looks after
//! which a call site is hot. Each context is compared with the stack that made it. Programs run on the software CPU, where
//! exits are cheap; the contexts are the same on every engine.
//!
//! `cargo bench --bench contexts`, or with `-- NAME` the one program of that name.

use lbr::context::{Decoder, Policy, Site, Table, TableWriter, Tracker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use synth::program::Program;
use synth::program::cfg::{Callers, Cfg};
use vmm::cpu_model::Model;
use vmm::engine::{self, EngineKind};
use vmm::gate::{AtExit, Event, Gate, GateError, Input, Time};
use vmm::launch::launch_here;
use vmm::process::elf::Image;
use vmm::process::{Launch, Process, Step, Streams};
use vmm::stack::{Place, Walker};
use x86::state::Regs;

/// After how many looks a call site is hot; and of which calls words are kept all the same.
const POLICIES: [(u32, u32); 6] = [(100, 0), (1_000, 0), (10_000, 0), (100_000, 0), (100, 8), (1_000, 8)];
/// How many possible calls a search looks at, as the command has it.
const LIMIT: usize = 100_000;
/// More words than any of the programs has.
const ROOM: u32 = 1 << 21;
const MEMORY: u64 = 1 << 30;
/// How many contexts of a program are decoded at most, evenly picked.
const MOST_TRIED: usize = 300;

/// Reads an expression one byte at a time and evaluates it by recursive descent: deep mutual recursion, an exit at each
/// byte.
const PARSER: &str = r#"
#include <stdio.h>
#include <unistd.h>
static int next;
static void advance(void) { unsigned char c; next = read(0, &c, 1) == 1 ? c : -1; }
static long expression(void);
__attribute__((noinline)) static long factor(void) {
    if (next == '(') { advance(); long inner = expression(); advance(); return inner; }
    if (next == '-') { advance(); return -factor(); }
    long number = 0;
    while (next >= '0' && next <= '9') { number = number * 10 + next - '0'; advance(); }
    return number;
}
__attribute__((noinline)) static long term(void) {
    long value = factor();
    while (next == '*') { advance(); value = (value * factor()) % 1000003; }
    return value;
}
__attribute__((noinline)) static long expression(void) {
    long value = term();
    while (next == '+') { advance(); value += term(); }
    return value;
}
int main(void) { advance(); printf("%ld\n", expression()); return 0; }
"#;

/// A shell script of functions that call each other and print; each `echo` is a system call.
const SCRIPT: &str = "\
leaf() { echo \"$1\"; }
left() { if [ $1 -gt 0 ]; then right $(( $1 - 1 )); leaf l; else leaf x; fi; }
right() { if [ $1 -gt 0 ]; then left $(( $1 - 1 )); left $(( $1 - 2 )); leaf r; else leaf y; fi; }
n=0; while [ $n -lt 60 ]; do right $(( n % 12 )); n=$(( n + 1 )); done";

/// A recursive function that flushes at every number.
const AWK: &str = "\
function f(n) { print n; fflush(); return n < 2 ? n : f(n - 1) + g(n - 2) } \
function g(n) { print -n; fflush(); return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { print f(17) }";

struct Case {
    name: &'static str,
    program: OsString,
    arguments: Vec<OsString>,
    stdin: Vec<u8>,
}

/// A deterministic expression of about `length` bytes.
fn expression(length: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let (mut text, mut open) = (Vec::new(), 0_usize);
    while text.len() + open < length {
        match random(6) {
            0 | 1 if open < 40 => {
                text.push(b'(');
                open += 1;
                continue;
            }
            2 => {
                text.push(b'-');
                continue;
            }
            _ => text.extend(random(1000).to_string().bytes()),
        }
        while open > 0 && random(3) == 0 {
            text.push(b')');
            open -= 1;
        }
        text.push(b"+*"[usize::try_from(random(2)).expect("small")]);
    }
    text.push(b'1');
    text.extend(std::iter::repeat_n(b')', open));
    text
}

fn cases(dir: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for name in ["words", "overflow"] {
        let program = Path::new("guest-images/build/glibc").join(name);
        let stdin = fs::read(format!("guest-images/{name}/input.txt")).unwrap_or_default();
        cases.push(Case { name, program: program.into(), arguments: Vec::new(), stdin });
    }
    let source = dir.join("parser.c");
    for (name, compiler) in [("parser (glibc)", "gcc"), ("parser (musl)", "musl-gcc")] {
        let program = dir.join(compiler);
        let written = fs::write(&source, PARSER).is_ok();
        let built = Command::new(compiler).args(["-O2", "-static", "-o"]).arg(&program).arg(&source).status();
        if written && built.is_ok_and(|status| status.success()) {
            let stdin = expression(1_000_000);
            cases.push(Case { name, program: program.into(), arguments: Vec::new(), stdin });
        }
    }
    let tree = "/usr/include";
    let busybox: [(&str, &[&str]); 4] = [
        ("busybox find", &["find", tree]),
        ("busybox tar", &["tar", "c", tree]),
        ("busybox sh", &["sh", "-c", SCRIPT]),
        ("busybox awk", &["awk", AWK]),
    ];
    for (name, arguments) in busybox {
        let arguments = arguments.iter().map(OsString::from).collect();
        cases.push(Case { name, program: "busybox".into(), arguments, stdin: Vec::new() });
    }
    cases
}

/// The sets under one policy.
struct Sets {
    policy: Policy,
    tracker: Tracker,
    table: TableWriter,
    path: std::path::PathBuf,
    time: Duration,
}

/// What a run brought.
struct Seen {
    walker: Walker,
    stack: Vec<Site>,
    sets: Vec<Sets>,
    exits: u64,
    incomplete: u64,
    frames: usize,
    walking: Duration,
    /// By word and rip: the call sites, and how often.
    contexts: HashMap<(u64, u64), (Vec<u64>, u64)>,
}

impl Seen {
    fn exit(&mut self, at: &AtExit<'_>) {
        self.exits += 1;
        let behind = matches!(at.exit, lbr::crumb::Exit::Syscall { .. });
        let start = Instant::now();
        let whole = self.walker.walk(Place { regs: at.regs, behind }, at.word, &mut self.stack);
        self.walking += start.elapsed();
        if !whole {
            self.incomplete += 1;
            return;
        }
        self.frames += self.stack.len();
        let mut word = 0;
        for Sets { tracker, table, time, .. } in &mut self.sets {
            let start = Instant::now();
            word = tracker.word(at.regs.rip, &self.stack, &mut |news| table.append(news));
            *time += start.elapsed();
        }
        let sites = || self.stack.iter().map(|site| site.address).collect();
        self.contexts.entry((word, at.regs.rip)).or_insert_with(|| (sites(), 0)).1 += 1;
    }
}

/// Lets everything through, and looks at each exit.
struct Looking(Rc<RefCell<Seen>>);

impl Gate for Looking {
    fn exit(&mut self, at: &AtExit<'_>) {
        self.0.borrow_mut().exit(at);
    }

    fn begin(&mut self, _event: Event, _regs: &Regs) -> Result<(), GateError> {
        Ok(())
    }

    fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        Ok(produce())
    }

    fn time(&mut self) -> Result<Time, GateError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(0);
        Ok(Time { real: now, monotonic: now })
    }

    fn output(&mut self, _descriptor: i32, _bytes: &[u8]) {}

    fn replaying(&self) -> bool {
        false
    }
}

type Failure = Box<dyn std::error::Error>;

fn run(case: &Case, dir: &Path) -> Result<(Launch, Seen), Failure> {
    let launch = launch_here(OsStr::new(&case.program), &case.arguments, Model::default())?;
    let mut sets = Vec::new();
    for (threshold, every) in POLICIES {
        let policy = Policy { threshold, every, room: ROOM };
        let path = dir.join(format!("{}-{threshold}-{every}", case.name));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let table = TableWriter::create(file, policy)?;
        sets.push(Sets { policy, tracker: Tracker::new(policy), table, path, time: Duration::ZERO });
    }
    let seen = Rc::new(RefCell::new(Seen {
        walker: Walker::new(&launch.executable)?,
        stack: Vec::new(),
        sets,
        exits: 0,
        incomplete: 0,
        frames: 0,
        walking: Duration::ZERO,
        contexts: HashMap::new(),
    }));
    let stdin = dir.join("stdin");
    fs::write(&stdin, &case.stdin)?;
    let nowhere = || Ok::<_, std::io::Error>(OpenOptions::new().write(true).open("/dev/null")?.into());
    let streams = Streams::Given([File::open(&stdin)?.into(), nowhere()?, nowhere()?]);
    let engine = engine::open(EngineKind::Soft, MEMORY)?;
    let mut process = Process::start_with(engine, Box::new(Looking(Rc::clone(&seen))), &launch, streams)?;
    while process.step()? == Step::Running {}
    drop(process);
    let seen = Rc::into_inner(seen).ok_or("the gate is gone")?.into_inner();
    Ok((launch, seen))
}

/// Decodes every context, and compares it with the stack that made it.
fn measure(case: &Case, dir: &Path) -> Result<(), Failure> {
    let (launch, seen) = run(case, dir)?;
    let program = Program::from_bytes(&launch.executable, Image::parse(&launch.executable)?.bias)?;
    let cfg = Cfg::build(&program, &|_| None);
    let (exits, whole) = (seen.exits as f64, (seen.exits - seen.incomplete) as f64);
    println!(
        "{}: {} exits, {} with the whole stack known, {:.1} calls deep, {} contexts; the walk takes {:.0} ns an exit",
        case.name,
        seen.exits,
        seen.exits - seen.incomplete,
        seen.frames as f64 / whole,
        seen.contexts.len(),
        seen.walking.as_secs_f64() * 1e9 / exits
    );
    // By word, which is by no property of the program.
    let mut contexts: Vec<_> =
        seen.contexts.iter().map(|(at, (sites, times))| (*at, (sites, *times))).collect();
    contexts.sort_unstable_by_key(|(at, _)| *at);
    for sets in &seen.sets {
        let table = Table::open(&sets.path)?;
        let mut decoder = Decoder::new(Callers::new(&cfg), &table);
        let (mut tried, mut found, mut wrong) = (0_usize, 0_usize, 0_usize);
        let (mut tried_exits, mut found_exits) = (0, 0);
        let start = Instant::now();
        for ((word, rip), (sites, times)) in contexts.iter().step_by(contexts.len().div_ceil(MOST_TRIED)) {
            tried += 1;
            tried_exits += times;
            match decoder.decode(*word, *rip, LIMIT) {
                Ok(decoded) if decoded == **sites => {
                    found += 1;
                    found_exits += times;
                }
                Ok(_) => wrong += 1,
                Err(_) => {}
            }
        }
        let (words, hot) = table.sizes();
        println!(
            "  {:>6} looks, every {}: sets {:>4.0} ns an exit, {words:>6} words, {hot:>3} hot sites; decoded {:>5.1} % of contexts, \
             {:>5.1} % of exits, {wrong} wrong; {:>6.1} µs each",
            sets.policy.threshold,
            sets.policy.every,
            sets.time.as_secs_f64() * 1e9 / exits,
            100.0 * found as f64 / tried as f64,
            100.0 * found_exits as f64 / tried_exits as f64,
            start.elapsed().as_secs_f64() * 1e6 / tried as f64
        );
    }
    Ok(())
}

/// Wall time of recording a program that reads 20,000 bytes one by one, under KVM: without crumbs, with, and with contexts;
/// the fastest of some rounds of one each, since noise only slows down.
fn recording(case: &Case, dir: &Path) -> Result<(), Failure> {
    const ROUNDS: usize = 9;
    let stdin = dir.join("short");
    fs::write(&stdin, expression(20_000))?;
    let variants = ["--no-crumbs", "--crumbs=4096", "--contexts"];
    let mut times = [f64::INFINITY; 3];
    for _ in 0..ROUNDS {
        for (variant, time) in variants.iter().zip(&mut times) {
            let mut record = Command::new(env!("CARGO_BIN_EXE_gretel"));
            record.args(["record", "--engine", "kvm", "--force", variant, "-o"]).arg(dir.join("recording"));
            record.arg("--").arg(&case.program).stdin(File::open(&stdin)?);
            let start = Instant::now();
            let output = record.output()?;
            *time = time.min(start.elapsed().as_secs_f64());
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into());
            }
        }
    }
    for (variant, time) in variants.iter().zip(times) {
        println!("recording {} with {variant}: {time:.3} s", case.name);
    }
    Ok(())
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for case in cases(dir.path()) {
        if !only.is_empty() && !only.iter().any(|name| name == case.name) {
            continue;
        }
        if let Err(why) = measure(&case, dir.path()) {
            println!("{}: skipped: {why}", case.name);
        }
        if case.name == "parser (glibc)"
            && let Err(why) = recording(&case, dir.path())
        {
            println!("recording: skipped: {why}");
        }
    }
}
