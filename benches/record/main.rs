//! What recording and replaying cost, on each engine and on both in turns, against the program itself: `cargo bench --bench record`.
//!
//! In a round each program runs natively, is recorded on each engine, and each recording is replayed on the engine that made it; so a
//! ratio is of two runs that saw the same machine. The table has the medians. `-- ROUNDS [NAME]` changes their number (3), and
//! measures the programs alone whose names contain that.

mod programs;

use programs::{Program, all};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// The engines; those that this host lacks are left out.
const ENGINES: [&str; 3] = ["kvm", "soft", "auto"];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let rounds: usize = arguments.next().map_or(3, |text| text.parse().expect("a number of rounds"));
    let wanted = arguments.next().unwrap_or_default();
    let dir = tempfile::tempdir().expect("a folder");
    let engines: Vec<&str> = ENGINES.into_iter().filter(|engine| is_here(dir.path(), engine)).collect();
    print!("{:<20} {:>10}", "program", "native ms");
    for engine in &engines {
        print!(" {:>15} {:>15}", format!("record {engine}"), format!("replay {engine}"));
    }
    println!();
    for program in all(dir.path()).iter().filter(|program| program.name.contains(&wanted)) {
        measure(dir.path(), program, &engines, rounds);
    }
}

/// Whether gretel runs anything on an engine here.
fn is_here(dir: &Path, engine: &str) -> bool {
    let there = gretel(dir, &["record", "--force", "-o", "rec", "--engine", engine, "--", "/bin/true"]);
    if there.is_none() {
        eprintln!("skipped: engine {engine}, which this host lacks");
    }
    there.is_some()
}

/// The seconds that gretel takes; `None` if it does not end with zero.
fn gretel(dir: &Path, arguments: &[&str]) -> Option<f64> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
    command.args(arguments).env("GRETEL_STORE", dir.join("store"));
    timed(command, dir)
}

fn timed(mut command: Command, dir: &Path) -> Option<f64> {
    command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().ok()?;
    status.success().then(|| start.elapsed().as_secs_f64())
}

/// Prints a line.
fn measure(dir: &Path, program: &Program, engines: &[&str], rounds: usize) {
    let mut native = Vec::new();
    let mut ratios = vec![Some(Vec::new()); engines.len() * 2];
    for round in 0..=rounds {
        let mut plain = Command::new(&program.argv[0]);
        plain.args(&program.argv[1..]);
        let Some(seconds) = timed(plain, dir) else {
            println!("{:<20} does not end well natively", program.name);
            return;
        };
        for (n, engine) in engines.iter().enumerate() {
            let mut record = vec!["record", "--force", "-o", "rec", "--engine", engine, "--"];
            record.extend(program.argv.iter().map(String::as_str));
            for (at, arguments) in [record, vec!["replay", "--engine", engine, "rec"]].into_iter().enumerate()
            {
                let took = ratios[2 * n + at].as_ref().and_then(|_| gretel(dir, &arguments));
                match (took, &mut ratios[2 * n + at]) {
                    // The first round warms up.
                    (Some(_), Some(_)) if round == 0 => {}
                    (Some(took), Some(ratios)) => ratios.push(took / seconds),
                    (None, failed) => *failed = None,
                    (Some(_), None) => {}
                }
            }
        }
        if round > 0 {
            native.push(seconds);
        }
    }
    print!("{:<20} {:>10.1}", program.name, median(native) * 1e3);
    for ratio in ratios {
        print!(" {:>15}", ratio.map_or_else(|| "failed".to_owned(), |ratio| format!("{:.2}", median(ratio))));
    }
    println!();
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
