//! Speed of the software CPU: millions of instructions per second in loops of one kind and in whole programs, beside
//! Unicorn on the same instructions where its library is (`make unicorn` fetches it), and beside this processor.
//!
//! Both emulators run each case in turn, by this thread's own time, in a fresh instance each time; a figure is the median.
//! `cargo bench --bench mips`, or with `-- --json` one JSON object on standard output; further words name the cases to run.

mod emulator;
mod kernels;
mod program;
mod unicorn;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use emulator::{Image, run_on_ours};
use program::{Kernel, Outcome};
use unicorn::Unicorn;

/// Pairs of runs; odd, so that the median is one of them.
const PAIRS: usize = 9;
/// The programs of `guest-images/programs` that are run.
const PROGRAMS: [&str; 4] = ["compress", "sort", "bigint", "strings"];

/// A clock of this thread's time on a processor where the kernel has one, so that other load does not count;
/// else of the time that passes.
struct Clock {
    start: Instant,
    on_cpu: Option<u64>,
}

impl Clock {
    fn start() -> Clock {
        Clock { on_cpu: Self::on_cpu(), start: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        let passed = self.start.elapsed();
        match (self.on_cpu, Self::on_cpu()) {
            (Some(before), Some(after)) if after > before => Duration::from_nanos(after - before),
            _ => passed,
        }
    }

    /// Nanoseconds that this thread has run. The kernel brings the number up to date when the thread yields.
    fn on_cpu() -> Option<u64> {
        std::thread::yield_now();
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

/// Something to run.
struct Case {
    name: String,
    image: Image,
    input: Vec<u8>,
}

/// Medians, in millions of instructions per second.
struct Figures {
    instructions: u64,
    ours: f64,
    unicorn: Option<f64>,
}

fn cases(wanted: &[String], dir: &std::path::Path) -> Result<Vec<Case>, String> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str()));
    let mut cases = Vec::new();
    for (name, body) in kernels::ALL.into_iter().filter(|(name, _)| is_wanted(name)) {
        let image = kernels::image(body).map_err(|error| error.to_string())?;
        cases.push(Case { name: name.to_owned(), image, input: Vec::new() });
    }
    for name in PROGRAMS.into_iter().filter(|name| is_wanted(name)) {
        let name_shown = format!("program: {name}");
        cases.push(Case { name: name_shown, image: program::image(name, dir)?, input: program::input()? });
    }
    Ok(cases)
}

/// One run on the software CPU: its time, the instructions, what the program did.
fn ours(case: &Case) -> Result<(Duration, u64, Outcome), String> {
    let mut kernel = Kernel::new(&case.input);
    let clock = Clock::start();
    let instructions = run_on_ours(&case.image, &mut |guest| kernel.serve(guest))?;
    Ok((clock.elapsed(), instructions, kernel.outcome))
}

/// One run on Unicorn.
fn theirs(unicorn: &Unicorn, case: &Case) -> Result<(Duration, Outcome), String> {
    let mut kernel = Kernel::new(&case.input);
    let clock = Clock::start();
    unicorn.run(&case.image, &mut |guest| kernel.serve(guest))?;
    Ok((clock.elapsed(), kernel.outcome))
}

fn measure(case: &Case, unicorn: Option<&Unicorn>) -> Result<Figures, String> {
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    let mut instructions = 0;
    for _ in 0..PAIRS {
        let (time, count, outcome) = ours(case)?;
        our_times.push(time);
        instructions = count;
        if let Some(unicorn) = unicorn {
            let (time, their_outcome) = theirs(unicorn, case)?;
            their_times.push(time);
            if outcome != their_outcome {
                return Err(format!("{}: {outcome:?}, on Unicorn {their_outcome:?}", case.name));
            }
        }
    }
    let speed = |times| Some(instructions as f64 / median(times)?.as_secs_f64() / 1e6);
    let ours = speed(our_times).ok_or("there was no run")?;
    Ok(Figures { instructions, ours, unicorn: speed(their_times) })
}

fn median(mut times: Vec<Duration>) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}

/// Millions of instructions per second of this processor in the loop of loads and stores.
fn native() -> f64 {
    const ROUNDS: u64 = 20_000;
    let source = kernels::source();
    let mut target = [0_u64; kernels::ELEMENTS as usize];
    let clock = Clock::start();
    // SAFETY: reads `ELEMENTS` words at `source` and writes as many at `target`, which both have them; clobbers
    // only what is declared. rbx is saved by hand because the compiler reserves it.
    unsafe {
        std::arch::asm!(
            "mov r9, rbx",
            "xor ebx, ebx",
            "2:",
            "xor ecx, ecx",
            "3:",
            "mov rax, [rsi + rcx * 8]",
            "add rbx, rax",
            "xor rbx, rcx",
            "mov [rdi + rcx * 8], rbx",
            "lea r8, [rbx + rax + 3]",
            "add rcx, 1",
            "cmp rcx, 512",
            "jb 3b",
            "sub rdx, 1",
            "jne 2b",
            "mov rbx, r9",
            in("rsi") source.as_ptr(),
            in("rdi") target.as_mut_ptr(),
            inout("rdx") ROUNDS => _,
            out("rax") _,
            out("rcx") _,
            out("r8") _,
            out("r9") _,
            options(nostack),
        );
    }
    let instructions = ROUNDS * (u64::from(kernels::ELEMENTS) * 8 + 3);
    instructions as f64 / clock.elapsed().as_secs_f64() / 1e6
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mips: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.iter().any(|word| word == "--json");
    let wanted: Vec<String> = words.into_iter().filter(|word| !word.starts_with("--")).collect();
    let unicorn = Unicorn::load().map_err(|why| eprintln!("skipped: Unicorn, since {why}")).ok();
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut results = serde_json::Map::new();
    if !json {
        let theirs = unicorn.as_ref().map_or_else(String::new, |u| format!("Unicorn {}", u.version()));
        println!(
            "{:24}{:>14}{:>12}{theirs:>16}{:>8}",
            "million instructions/s", "instructions", "gretel", "ratio"
        );
    }
    for case in cases(&wanted, dir.path())? {
        let figures = measure(&case, unicorn.as_ref())?;
        let ratio = figures.unicorn.map(|theirs| figures.ours / theirs);
        if json {
            let result = serde_json::json!({
                "instructions": figures.instructions, "mips": figures.ours, "unicorn_mips": figures.unicorn, "ratio": ratio,
            });
            results.insert(case.name, result);
        } else {
            let optional =
                |v: Option<f64>, digits: usize| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
            let (theirs, ratio) = (optional(figures.unicorn, 0), optional(ratio, 2));
            println!(
                "{:24}{:>14}{:>12.0}{theirs:>16}{ratio:>8}",
                case.name, figures.instructions, figures.ours
            );
        }
    }
    let native = native();
    if json {
        results.insert("native_mips".to_owned(), native.into());
        println!("{}", serde_json::Value::Object(results));
    } else {
        println!("this processor in the loop of loads and stores: {native:.0} million instructions/s");
    }
    Ok(())
}
