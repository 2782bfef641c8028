//! Calling contexts: what computing them costs at an exit, and how many are decoded again, by the number of looks after
//! which a call site is hot.
//!
//! The truth is kept apart from what is measured: programs run on the software CPU one instruction at a time, and a list
//! of the calls and returns that were executed says at each exit what the stack is. A context counts as decoded when it
//! gives just that. The contexts are the same on every engine.
//!
//! `cargo bench --bench contexts`, or with `-- NAME` the programs of that name. Prints Markdown.

mod programs;

use lbr::context::{Decoder, Policy, Site, Table, TableWriter, Tracker};
use programs::{Case, cases, expression};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Instant;
use synth::program::Program;
use synth::program::cfg::{Callers, Cfg};
use vmm::cpu_model::Model;
use vmm::elf::Image;
use vmm::engine::{self, EngineKind, Until};
use vmm::gate::{AtExit, Unrecorded};
use vmm::launch::launch_here;
use vmm::process::{Launch, Process, Step, Streams};
use vmm::stack::{Place, Walker};

/// After how many looks a call site is hot.
const THRESHOLDS: [u32; 4] = [100, 1_000, 10_000, 100_000];
/// Of which calls words are kept at hot sites all the same: of none, as in the paper, or as the command has it.
const EVERY: [u32; 2] = [0, 8];
/// How many possible calls a search looks at, as the command has it.
const LIMIT: usize = 100_000;
const MEMORY: u64 = 1 << 30;
/// How many contexts of a program are decoded at most, evenly picked.
const MOST_TRIED: usize = 300;

type Failure = Box<dyn std::error::Error>;

/// A time that is taken often, in nanoseconds; the clock's own is taken out.
#[derive(Default)]
struct Stopwatch(Vec<u32>);

impl Stopwatch {
    fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.0.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
        done
    }

    /// The median, on which neither the first time at a place nor what else the machine does has a say.
    fn median(&self) -> u32 {
        let middle = |times: &[u32]| {
            let mut times = times.to_vec();
            times.sort_unstable();
            times.get(times.len() / 2).copied().unwrap_or(0)
        };
        let mut nothing = Stopwatch::default();
        (0..10_000).for_each(|_| nothing.time(|| ()));
        middle(&self.0).saturating_sub(middle(&nothing.0))
    }
}

/// The sets under one policy.
struct Sets {
    policy: Policy,
    tracker: Tracker,
    table: TableWriter,
    path: PathBuf,
    time: Stopwatch,
}

/// The calls that have not returned, the outermost first: where the return address is on the stack, and what it is.
type Calls = Vec<(u64, u64)>;

/// A context, by its word and where the program stood.
struct Context {
    /// The true call sites, the innermost first.
    sites: Vec<u64>,
    /// At how many exits it was.
    exits: u64,
}

/// What a run brought.
struct Seen {
    walker: Walker,
    stack: Vec<Site>,
    truth: Calls,
    sets: Vec<Sets>,
    incomplete: u64,
    /// Walks that gave another stack than the true one.
    wrong: u64,
    deepest: usize,
    walking: Stopwatch,
    contexts: HashMap<(u64, u64), Context>,
    /// Contexts that had the word of another.
    collisions: u64,
}

impl Seen {
    fn exit(&mut self, at: &AtExit<'_>) {
        let Seen { walker, stack, truth, walking, .. } = self;
        let behind = matches!(at.exit, lbr::crumb::Exit::Syscall { .. });
        if !walking.time(|| walker.walk(Place { behind, ..Place::before(at.regs) }, at.space, stack)) {
            self.incomplete += 1;
            return;
        }
        if !stack.iter().rev().map(|site| (site.slot, site.address)).eq(truth.iter().copied()) {
            self.wrong += 1;
            return;
        }
        self.deepest = self.deepest.max(stack.len());
        let mut word = 0;
        for Sets { tracker, table, time, .. } in &mut self.sets {
            word = time.time(|| tracker.word(at.regs.rip, stack, &mut |news| table.append(news)));
        }
        let sites = || truth.iter().rev().map(|(_, site)| *site);
        let context = self.contexts.entry((word, at.regs.rip));
        let context = context.or_insert_with(|| Context { sites: sites().collect(), exits: 0 });
        context.exits += 1;
        self.collisions += u64::from(!sites().eq(context.sites.iter().copied()));
    }

    /// The instruction at `from` was executed, and `rsp` is what it left.
    fn executed(&mut self, returns_to: Option<u64>, rsp: u64) {
        if let Some(site) = returns_to {
            self.truth.push((rsp, site));
        }
        // Returned from, or left by longjmp.
        while self.truth.last().is_some_and(|(slot, _)| *slot < rsp) {
            self.truth.pop();
        }
    }
}

/// Runs the program to its end, one instruction at a time, and keeps the true stack.
fn follow(process: &mut Process, seen: &RefCell<Seen>) -> Result<(), Failure> {
    let mut calls: HashMap<u64, Option<u64>> = HashMap::new();
    loop {
        let rip = process.cpu().regs().rip;
        let returns_to = match calls.get(&rip) {
            Some(known) => *known,
            None => call_at(process, rip).inspect(|found| _ = calls.insert(rip, *found)).unwrap_or(None),
        };
        let retired = process.cpu().counters().ok_or("the engine does not count")?.instructions;
        match process.step_until(Until::Retired(retired + 1))? {
            Step::Running | Step::Budget => {}
            _ => return Ok(()),
        }
        let regs = process.cpu().regs();
        // A page that is brought in starts the instruction again.
        if regs.rip != rip {
            seen.borrow_mut().executed(returns_to, regs.gpr[4]);
        }
    }
}

/// Where the instruction at `rip` returns to, if it is a call; nothing if it is not in memory yet.
fn call_at(process: &Process, rip: u64) -> Option<Option<u64>> {
    let mut code = [0; 15];
    let end = (1..=15).rev().find(|end| process.read_memory(rip, &mut code[..*end]))?;
    let options = iced_x86::DecoderOptions::NONE;
    let instruction = iced_x86::Decoder::with_ip(64, &code[..end], rip, options).decode();
    let is_call = instruction.is_call_near() || instruction.is_call_near_indirect();
    (!instruction.is_invalid()).then(|| is_call.then(|| instruction.next_ip()))
}

fn run(case: &Case, dir: &Path) -> Result<(Launch, Seen), Failure> {
    let launch = launch_here(OsStr::new(&case.program), &case.arguments, Model::default())?;
    let mut sets = Vec::new();
    for (every, threshold) in EVERY.into_iter().flat_map(|every| THRESHOLDS.map(|looks| (every, looks))) {
        let policy = Policy { threshold, every, ..Policy::default() };
        let path = dir.join(format!("{}-{threshold}-{every}", case.name));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        let (tracker, table) = (Tracker::new(policy), TableWriter::create(file, policy)?);
        sets.push(Sets { policy, tracker, table, path, time: Stopwatch::default() });
    }
    let seen = Rc::new(RefCell::new(Seen {
        walker: Walker::new(&launch.executable)?,
        stack: Vec::new(),
        truth: Vec::new(),
        sets,
        incomplete: 0,
        wrong: 0,
        deepest: 0,
        walking: Stopwatch::default(),
        contexts: HashMap::new(),
        collisions: 0,
    }));
    let stdin = dir.join("stdin");
    fs::write(&stdin, &case.stdin)?;
    let nowhere = || Ok::<_, std::io::Error>(OpenOptions::new().write(true).open("/dev/null")?.into());
    let streams = Streams::Given([File::open(&stdin)?.into(), nowhere()?, nowhere()?]);
    let engine = engine::open(EngineKind::Soft, MEMORY)?;
    let looking = Rc::clone(&seen);
    let gate = Unrecorded(move |at: &AtExit<'_>| looking.borrow_mut().exit(at));
    let mut process = Process::start_with(engine, Box::new(gate), &launch, streams)?;
    follow(&mut process, &seen)?;
    drop(process);
    let seen = Rc::into_inner(seen).ok_or("the gate is gone")?.into_inner();
    Ok((launch, seen))
}

/// Decodes the contexts, and compares each with the true stack.
fn measure(case: &Case, dir: &Path) -> Result<(), Failure> {
    let (launch, seen) = run(case, dir)?;
    let program = Program::from_bytes(&launch.executable, Image::parse(&launch.executable)?.bias)?;
    let cfg = Cfg::build(&program, &|_| None);
    let exits: u64 = seen.contexts.values().map(|context| context.exits).sum();
    let frames: f64 = seen.contexts.values().map(|c| c.sites.len() as f64 * c.exits as f64).sum();
    println!(
        "\n{}: {} exits; at {} the walk did not reach the outermost function, at {} it was wrong; {:.1} calls deep, {} at \
         most; {} contexts, {} of them with a word that another has; a walk takes {} ns.\n",
        case.name,
        exits + seen.incomplete + seen.wrong,
        seen.incomplete,
        seen.wrong,
        frames / exits as f64,
        seen.deepest,
        seen.contexts.len(),
        seen.collisions,
        seen.walking.median(),
    );
    println!(
        "| looks | words kept at hot sites | sets, ns/exit | entries | hot sites | contexts decoded | of exits | wrong | µs each |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    // By word, which is by no property of the program.
    let mut contexts: Vec<_> = seen.contexts.iter().collect();
    contexts.sort_unstable_by_key(|(at, _)| *at);
    let step = contexts.len().div_ceil(MOST_TRIED).max(1);
    let tried: Vec<_> = contexts.into_iter().step_by(step).collect();
    for sets in &seen.sets {
        decode(sets, Callers::new(&cfg), &tried)?;
    }
    Ok(())
}

/// A line of the table.
fn decode(sets: &Sets, graph: Callers<'_>, tried: &[(&(u64, u64), &Context)]) -> Result<(), Failure> {
    let table = Table::open(&sets.path)?;
    let mut decoder = Decoder::new(graph, &table);
    let (mut found, mut wrong, mut found_exits) = (0_usize, 0_usize, 0);
    let start = Instant::now();
    for ((word, rip), context) in tried {
        match decoder.decode(*word, *rip, LIMIT) {
            Ok(decoded) if decoded == context.sites => {
                found += 1;
                found_exits += context.exits;
            }
            Ok(_) => wrong += 1,
            Err(_) => {}
        }
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / tried.len() as f64;
    let exits: u64 = tried.iter().map(|(_, context)| context.exits).sum();
    let (words, hot) = table.sizes();
    println!(
        "| {} | {} | {} | {words}{} | {hot} | {:.1} % | {:.1} % | {wrong} | {each:.1} |",
        sets.policy.threshold,
        if sets.policy.every == 0 { "none".to_owned() } else { format!("every {}th", sets.policy.every) },
        sets.time.median(),
        if table.is_complete() { "" } else { ", full" },
        100.0 * found as f64 / tried.len() as f64,
        100.0 * found_exits as f64 / exits as f64,
    );
    Ok(())
}

/// Wall time of recording a program that reads 20,000 bytes one by one, on each engine: without crumbs, with, and with
/// contexts; the fastest of some rounds of one each, since noise only slows down.
fn recording(case: &Case, dir: &Path) -> Result<(), Failure> {
    const ROUNDS: usize = 9;
    let stdin = dir.join("short");
    fs::write(&stdin, expression(20_000))?;
    let contexts = THRESHOLDS.map(|threshold| format!("--contexts={threshold}"));
    let variants: Vec<&str> =
        ["--no-crumbs", "--crumbs=4096"].into_iter().chain(contexts.iter().map(String::as_str)).collect();
    println!(
        "\nRecording {} on 20,000 bytes, the fastest of {ROUNDS}:\n\n| engine | {} |",
        case.name,
        variants.join(" | ")
    );
    println!("| --- |{}", " --- |".repeat(variants.len()));
    for engine in ["kvm", "soft"] {
        let mut times = vec![f64::INFINITY; variants.len()];
        for _ in 0..ROUNDS {
            for (variant, time) in variants.iter().zip(&mut times) {
                let mut record = Command::new(env!("CARGO_BIN_EXE_gretel"));
                record
                    .args(["record", "--engine", engine, "--force", variant, "-o"])
                    .arg(dir.join("recording"));
                record.arg("--").arg(&case.program).stdin(File::open(&stdin)?);
                let start = Instant::now();
                let output = record.output()?;
                *time = time.min(start.elapsed().as_secs_f64());
                if !output.status.success() {
                    return Err(String::from_utf8_lossy(&output.stderr).into());
                }
            }
        }
        let times: Vec<_> = times.iter().map(|time| format!("{time:.3} s")).collect();
        println!("| {engine} | {} |", times.join(" | "));
    }
    Ok(())
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let only: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    for case in cases(dir.path()) {
        if !only.is_empty() && !only.iter().any(|name| case.name.contains(name.as_str())) {
            continue;
        }
        if let Err(why) = measure(&case, dir.path()) {
            println!("{}: skipped: {why}", case.name);
        }
        if case.name.starts_with("parser, glibc")
            && let Err(why) = recording(&case, dir.path())
        {
            println!("recording: skipped: {why}");
        }
    }
}
