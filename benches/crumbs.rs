//! What a crumb costs: the record alone, and with the reading of the clock as a recording leaves it; against the exit that
//! it is left at, on each engine. `cargo bench --bench crumbs`, or with `-- --json` one JSON object on standard output.

use lbr::crumb::{Counts, Crumb, Exit, Origin, Writer};
use std::fs::OpenOptions;
use std::time::Instant;
use vmm::crumbs::{DEFAULT_SLOTS, Keep, Leaver};
use vmm::engine::{self, EngineKind};
use vmm::gate::AtExit;
use vmm::probe::ExitCost;
use vmm::recording::Recording;
use vmm::sandbox::Sandbox;
use vmm::stack::Words;
use x86::state::Regs;

/// Crumbs of one run.
const CRUMBS: u64 = 1_000_000;
/// Runs; the fastest counts, since noise only slows down.
const RUNS: usize = 9;
const MEMORY: u64 = 1 << 20;

/// Nanoseconds for each call of `leave`, which is told how many went before.
fn nanoseconds(mut leave: impl FnMut(u64)) -> f64 {
    let run = |_| {
        let start = Instant::now();
        (0..CRUMBS).for_each(&mut leave);
        start.elapsed().as_secs_f64() * 1e9 / CRUMBS as f64
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

fn main() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let exit = Exit::Syscall { number: 1 };
    let record = {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(dir.path().join("ring"));
        let mut ring =
            Writer::create(file.expect("a new file"), DEFAULT_SLOTS, Origin::default()).expect("a ring");
        let (thread, context, time, counts) = (1000, None, Some(1), Counts::default());
        nanoseconds(|n| ring.put(&Crumb { exit, event: n, thread, rip: n, rsp: n, time, counts, context }))
    };
    let left = {
        let recording = Recording::create(&dir.path().join("rec"), false).expect("a folder");
        let mut leaver =
            Leaver::create(&recording, &[], Keep { slots: DEFAULT_SLOTS, contexts: None }).expect("a ring");
        let regs = Regs::default();
        let at =
            AtExit { exit, thread: 1000, regs: &regs, counts: Counts::default(), space: &Words(&|_| None) };
        nanoseconds(|n| leaver.leave(&at, n))
    };
    let json = std::env::args().any(|argument| argument == "--json");
    if json {
        println!(r#"{{"record_ns":{record:.1},"left_ns":{left:.1}}}"#);
        return;
    }
    println!("{CRUMBS} crumbs, best of {RUNS}");
    println!("record {record:.1} ns, with the clock {left:.1} ns");
    for kind in [EngineKind::Kvm, EngineKind::Soft] {
        match engine::open(kind, MEMORY) {
            Ok(engine) => {
                let mut sandbox = Sandbox::new(engine).expect("an empty address space");
                let exit = ExitCost::measure(&mut sandbox).expect("two exits in a loop").syscall;
                println!(
                    "{:<5} exit {exit:.3} µs, a crumb is {:.2} % of it",
                    kind.name(),
                    left / exit / 10.0
                );
            }
            Err(why) => println!("{:<5} skipped: {why}", kind.name()),
        }
    }
}
