//! What recording and replaying cost, on each engine and on both in turns, against the program itself: `cargo bench --bench record`.
//!
//! In a round each program runs natively, is recorded on each engine, and each recording is replayed on the engine that made it; so a
//! ratio is of two runs that saw the same machine. A server's figure is what its clients wait for a piece of work. `-- ROUNDS [NAME]`
//! changes the number of rounds (3), and measures the programs alone whose names contain that.
//!
//! The tables are Markdown: times as medians of the rounds, and of the round before them, which warms up, the most memory that was
//! resident and the bytes of the journal.

mod programs;
#[path = "../../src/bench/resident.rs"]
mod resident;
mod runs;
mod services;

use programs::{Program, all};
use runs::{Bench, Run};

/// The engines; those that this host lacks are left out.
const ENGINES: [&str; 3] = ["kvm", "soft", "auto"];

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let rounds: usize = arguments.next().map_or(3, |text| text.parse().expect("a number of rounds"));
    let wanted = arguments.next().unwrap_or_default();
    let dir = tempfile::tempdir().expect("a folder");
    let bench = Bench::new(dir.path());
    let engines: Vec<&str> = ENGINES.into_iter().filter(|engine| bench.has(engine)).collect();
    let measured: Vec<Measured> = all(dir.path())
        .into_iter()
        .filter(|program| program.name.contains(&wanted))
        .filter_map(|program| measure(&bench, program, &engines, rounds))
        .collect();
    print_times(&measured, &engines);
    println!();
    print_sizes(&measured, &engines);
}

/// What was measured of a program.
struct Measured {
    name: &'static str,
    /// Seconds for a piece of work.
    native: Vec<f64>,
    native_peak: Option<u64>,
    engines: Vec<Engine>,
}

/// The same on an engine: times in parts of the native time of the same round; `None` where a run did not end well.
#[derive(Default)]
struct Engine {
    record: Option<Vec<f64>>,
    replay: Option<Vec<f64>>,
    peaks: [Option<u64>; 2],
    /// Bytes of journal, the recording's seconds, and pieces of work in it.
    journal: Option<(u64, f64, f64)>,
}

/// All rounds of a program; `None`, and a line on stderr, where it does not run natively.
fn measure(bench: &Bench<'_>, program: Program, engines: &[&str], rounds: usize) -> Option<Measured> {
    let fresh = || Engine { record: Some(Vec::new()), replay: Some(Vec::new()), ..Engine::default() };
    let mut measured = Measured {
        name: program.name,
        native: Vec::new(),
        native_peak: None,
        engines: engines.iter().map(|_| fresh()).collect(),
    };
    for round in 0..=rounds {
        eprintln!("{}: round {round} of {rounds}", program.name);
        let Some(native) = bench.natively(&program) else {
            eprintln!("skipped: {}, which does not end well natively", program.name);
            return None;
        };
        if round == 0 {
            measured.native_peak = native.peak;
        } else {
            measured.native.push(native.per_unit());
        }
        for (engine, figures) in engines.iter().zip(&mut measured.engines) {
            run_on(bench, &program, engine, &native, round == 0, figures);
        }
    }
    Some(measured)
}

/// A recording and its replay. The first round warms up, and is of the sizes.
fn run_on(
    bench: &Bench<'_>,
    program: &Program,
    engine: &str,
    native: &Run,
    warms_up: bool,
    figures: &mut Engine,
) {
    if figures.record.is_none() {
        return;
    }
    let Some(recorded) = bench.record(program, engine) else {
        figures.record = None;
        figures.replay = None;
        return;
    };
    let replayed = bench.replay(engine, recorded.units);
    if warms_up {
        figures.peaks = [recorded.peak, replayed.as_ref().and_then(|run| run.peak)];
        figures.journal = bench.journal().map(|bytes| (bytes, recorded.whole, recorded.units));
        return;
    }
    let ratio = |run: &Run| run.per_unit() / native.per_unit();
    figures.record.iter_mut().for_each(|record| record.push(ratio(&recorded)));
    match (replayed, &mut figures.replay) {
        (Some(run), Some(replay)) => replay.push(ratio(&run)),
        (None, replay) => *replay = None,
        (Some(_), None) => {}
    }
}

fn print_times(measured: &[Measured], engines: &[&str]) {
    let names =
        engines.iter().map(|engine| format!(" record {engine} | replay {engine} |")).collect::<String>();
    println!("| program | native, ms |{names}\n| --- | --- |{}", " --- | --- |".repeat(engines.len()));
    let shown = |ratios: &Option<Vec<f64>>| match ratios {
        Some(ratios) => format!(" {:.2} |", median(ratios)),
        None => " failed |".to_owned(),
    };
    for it in measured {
        let ratios = it.engines.iter().flat_map(|engine| [&engine.record, &engine.replay]).map(shown);
        println!("| {} | {} |{}", it.name, milliseconds(median(&it.native)), ratios.collect::<String>());
    }
}

/// A piece of a server's work takes microseconds.
fn milliseconds(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.4}", seconds * 1e3) } else { format!("{:.1}", seconds * 1e3) }
}

/// Of the last engine, which is both in turns where there are two.
fn print_sizes(measured: &[Measured], engines: &[&str]) {
    let Some(engine) = engines.last() else { return };
    println!(
        "| program | native, MB | record {engine}, MB | replay {engine}, MB | journal, kB | a second, kB | a piece of work, B |\n{}",
        "| --- ".repeat(7) + "|"
    );
    let megabytes =
        |peak: Option<u64>| peak.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes as f64 / 1e6));
    for it in measured {
        let Some(engine) = it.engines.last() else { continue };
        let [record, replay] = engine.peaks.map(megabytes);
        let journal = engine.journal.map_or_else(
            || ["-"; 3].map(str::to_owned),
            |(bytes, seconds, units)| {
                let bytes = bytes as f64;
                let work = if units > 1.0 { format!("{:.0}", bytes / units) } else { "-".to_owned() };
                [format!("{:.1}", bytes / 1e3), format!("{:.1}", bytes / 1e3 / seconds), work]
            },
        );
        println!(
            "| {} | {} | {record} | {replay} | {} |",
            it.name,
            megabytes(it.native_peak),
            journal.join(" | ")
        );
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
