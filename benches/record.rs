//! What recording costs: pairs of a native run and a run under `gretel record --engine kvm`, of a program that
//! computes and of one that makes system calls; the median of the ratios of their wall times.
//!
//! `cargo bench --bench record`, or with `-- --json` one JSON object on standard output.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Pairs of each program; odd, so that the median is one of them.
const PAIRS: usize = 9;

/// Some seconds of arithmetic: long enough that start-up is not what is measured.
const COMPUTES: &str = r"
int main(void) {
    unsigned long x = 88172645463325252ul, sum = 0;
    for (long n = 0; n < 1500000000; n++) {
        x ^= x << 13; x ^= x >> 7; x ^= x << 17;
        sum += x;
    }
    return sum == 0;
}";

/// Reads one byte at a time.
const CALLS: &str = r#"
#include <fcntl.h>
#include <unistd.h>
int main(void) {
    int file = open("/dev/zero", O_RDONLY);
    char byte;
    for (int n = 0; n < 100000; n++)
        if (read(file, &byte, 1) != 1) return 1;
    return 0;
}"#;

/// The times of a pair in seconds, and what the recording took on disk.
struct Pair {
    native: f64,
    recorded: f64,
    journal: u64,
}

fn main() -> ExitCode {
    match measure_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("record: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all() -> Result<(), String> {
    let json = std::env::args().any(|argument| argument == "--json");
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    let mut results = serde_json::Map::new();
    for (name, source) in [("computes", COMPUTES), ("calls", CALLS)] {
        compile(dir.path(), name, source)?;
        let pairs: Vec<Pair> = (0..PAIRS).map(|_| measure(dir.path(), name)).collect::<Result<_, _>>()?;
        let ratio = median(pairs.iter().map(|p| p.recorded / p.native));
        let native = median(pairs.iter().map(|p| p.native));
        let recorded = median(pairs.iter().map(|p| p.recorded));
        let journal = pairs[0].journal;
        if json {
            let result = serde_json::json!({
                "ratio": ratio, "native_seconds": native, "recorded_seconds": recorded, "journal_bytes": journal,
            });
            results.insert(name.to_owned(), result);
        } else {
            println!(
                "{name:10} native {native:.3} s, recorded {recorded:.3} s, ratio {ratio:.3} (median of {PAIRS}), \
                 journal {journal} bytes"
            );
        }
    }
    if json {
        println!("{}", serde_json::Value::Object(results));
    }
    Ok(())
}

fn compile(dir: &Path, name: &str, source: &str) -> Result<(), String> {
    let file = dir.join(format!("{name}.c"));
    std::fs::write(&file, source).map_err(|e| e.to_string())?;
    let status = Command::new("gcc").args(["-O2", "-static", "-o"]).arg(dir.join(name)).arg(&file).status();
    if status.is_ok_and(|s| s.success()) {
        Ok(())
    } else {
        Err("gcc cannot make static programs here".to_owned())
    }
}

/// One native run and one recorded run, next to each other in time so that both see the same machine.
fn measure(dir: &Path, name: &str) -> Result<Pair, String> {
    let native = time(Command::new(dir.join(name)))?;
    let recording = dir.join("recording");
    let mut record = Command::new(env!("CARGO_BIN_EXE_gretel"));
    record.args(["record", "--engine", "kvm", "--force", "-o"]).arg(&recording).arg("--").arg(dir.join(name));
    let recorded = time(record)?;
    let journal = std::fs::metadata(recording.join("journal")).map_err(|e| e.to_string())?.len();
    Ok(Pair { native, recorded, journal })
}

fn time(mut command: Command) -> Result<f64, String> {
    let before = Instant::now();
    let output = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    let seconds = before.elapsed().as_secs_f64();
    if output.status.success() {
        return Ok(seconds);
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
