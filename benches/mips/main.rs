//! Speed of the software CPU: millions of instructions per second in loops of one kind and in whole programs, as interpreter alone
//! and with its compiler, beside Unicorn on the same instructions where its library is (`make unicorn` fetches it), and beside this
//! processor.
//!
//! All run each case in turn, by the time of all threads of this process, so that the compiler's thread counts, in a fresh instance
//! each time; a figure is the median.
//! `cargo bench --bench mips`, or with `-- --json` one JSON object on standard output; further words name the cases to run.

mod emulator;
mod kernels;
mod program;
mod unicorn;

use std::process::ExitCode;
use std::time::Duration;

use emulator::{Image, run_on_ours};
use program::{Kernel, Outcome};
use unicorn::Unicorn;
use x86_jit::Tuning;

/// Pairs of runs; odd, so that the median is one of them.
const PAIRS: usize = 9;
/// The programs of `guest-images/programs` that are run.
const PROGRAMS: [&str; 4] = ["compress", "sort", "bigint", "strings"];

/// A clock of the time that this process is on a processor, so that other load does not count.
struct Clock {
    start: Duration,
}

impl Clock {
    fn start() -> Clock {
        Clock { start: Self::on_cpu() }
    }

    fn elapsed(&self) -> Duration {
        Self::on_cpu() - self.start
    }

    /// How long all threads have run.
    fn on_cpu() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: it writes `time` and keeps nothing.
        unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
        let part = |n: i64| u64::try_from(n).unwrap_or(0);
        Duration::from_secs(part(time.tv_sec)) + Duration::from_nanos(part(time.tv_nsec))
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
    interpreted: f64,
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
fn ours(case: &Case, tuning: Option<Tuning>) -> Result<(Duration, u64, Outcome), String> {
    let mut kernel = Kernel::new(&case.input);
    let clock = Clock::start();
    let instructions = run_on_ours(&case.image, tuning, &mut |guest| kernel.serve(guest))?;
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
    let (mut interpreted, mut our_times, mut their_times) = (Vec::new(), Vec::new(), Vec::new());
    let mut instructions = 0;
    for _ in 0..PAIRS {
        let (time, count, outcome) = ours(case, None)?;
        interpreted.push(time);
        instructions = count;
        let (time, count, compiled) = ours(case, Some(Tuning::default()))?;
        our_times.push(time);
        if (instructions, &outcome) != (count, &compiled) {
            return Err(format!(
                "{}: {outcome:?} in {instructions}, compiled {compiled:?} in {count}",
                case.name
            ));
        }
        if let Some(unicorn) = unicorn {
            let (time, their_outcome) = theirs(unicorn, case)?;
            their_times.push(time);
            if outcome != their_outcome {
                return Err(format!("{}: {outcome:?}, on Unicorn {their_outcome:?}", case.name));
            }
        }
    }
    let speed = |times| Some(instructions as f64 / median(times)?.as_secs_f64() / 1e6);
    let none = "there was no run";
    let (interpreted, ours) = (speed(interpreted).ok_or(none)?, speed(our_times).ok_or(none)?);
    Ok(Figures { instructions, interpreted, ours, unicorn: speed(their_times) })
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
            "{:24}{:>14}{:>12}{:>12}{theirs:>16}{:>8}",
            "million instructions/s", "instructions", "interpreter", "gretel", "ratio"
        );
    }
    for case in cases(&wanted, dir.path())? {
        let figures = measure(&case, unicorn.as_ref())?;
        let ratio = figures.unicorn.map(|theirs| figures.ours / theirs);
        if json {
            let result = serde_json::json!({
                "instructions": figures.instructions, "interpreted_mips": figures.interpreted, "mips": figures.ours, "unicorn_mips": figures.unicorn, "ratio": ratio,
            });
            results.insert(case.name, result);
        } else {
            let optional =
                |v: Option<f64>, digits: usize| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
            let (theirs, ratio) = (optional(figures.unicorn, 0), optional(ratio, 2));
            println!(
                "{:24}{:>14}{:>12.0}{:>12.0}{theirs:>16}{ratio:>8}",
                case.name, figures.instructions, figures.interpreted, figures.ours
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
