//! `x86-oracle`: random instructions on this processor against the one semantics.

use clap::Parser;
use iced_x86::Mnemonic;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use x86_oracle::campaign::{self, Options, Summary};
use x86_oracle::{dont_care, page, report, runs};

/// Runs random instructions and short blocks on this processor and on the software CPU and compares the complete
/// outcomes. Exit status: 0 no difference, 1 a difference, 2 it cannot run here.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Stop after this many cases [default: all directed ones; 200000 random ones, unless --seconds says when]
    #[arg(long)]
    cases: Option<u64>,
    /// Enumerate operands at the edges and forms of addresses, instead of random ones
    #[arg(long)]
    directed: bool,
    /// Of the directed cases, make one of so many groups
    #[arg(long, default_value_t = 1, requires = "directed")]
    every: u64,
    /// Where the random numbers start; the same seed runs the same cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these instructions, separated by commas
    #[arg(long, value_delimiter = ',', value_parser = mnemonic)]
    mnemonic: Vec<Mnemonic>,
    /// The most instructions in a block
    #[arg(long, default_value_t = 16)]
    block_max: usize,
    /// Stop after this many seconds
    #[arg(long)]
    seconds: Option<u64>,
    /// Stop after this many different findings
    #[arg(long, default_value_t = 10)]
    findings: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
    /// Keep the figures as a file in this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "directed")]
    save: Option<PathBuf>,
    /// Print the page of instructions, with the figures that are kept in this folder, and end
    #[arg(long, value_name = "FOLDER")]
    page: Option<PathBuf>,
    /// Print what is not compared, and why, and end
    #[arg(long)]
    print_dont_care: bool,
    /// Print the encodings that this processor runs and that have no semantics, and end
    #[arg(long)]
    print_missing: bool,
}

fn mnemonic(name: &str) -> Result<Mnemonic, String> {
    Mnemonic::values()
        .find(|m| campaign::name(*m) == name.to_lowercase())
        .ok_or_else(|| format!("no x86 instruction is called '{name}'"))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.print_dont_care {
        return print(&dont_care::table());
    }
    if arguments.print_missing {
        return print(&report::missing());
    }
    if let Some(folder) = arguments.page {
        return match runs::load(&folder) {
            Ok(runs) => print(&page::page(&runs)),
            Err(error) => cannot(&error),
        };
    }
    let is_endless = arguments.directed || arguments.seconds.is_some();
    let options = Options {
        mnemonics: arguments.mnemonic,
        block_max: arguments.block_max,
        seed: arguments.seed,
        directed: arguments.directed.then_some(arguments.every),
        cases: arguments.cases.unwrap_or(if is_endless { u64::MAX } else { 200_000 }),
        time: arguments.seconds.map(Duration::from_secs),
        findings: arguments.findings,
    };
    let summary = match campaign::run(&options, progress()) {
        Ok(summary) => summary,
        Err(error) => return cannot(&error),
    };
    if let Some(folder) = arguments.save
        && let Err(error) = runs::save(&folder, &summary, options.seed)
    {
        return cannot(&error);
    }
    let text = match arguments.json {
        true => report::json(&summary, options.seed) + "\n",
        false => {
            let findings: String = summary.findings.iter().map(report::finding).collect();
            findings + &report::summary(&summary)
        }
    };
    let printed = print(&text);
    if summary.findings.is_empty() { printed } else { ExitCode::FAILURE }
}

fn cannot(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("x86-oracle: {error}");
    ExitCode::from(2)
}

/// Prints; a reader that has seen enough is no failure.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::from(2),
        _ => ExitCode::SUCCESS,
    }
}

/// A line on the terminal that is kept up to date.
fn progress() -> impl FnMut(&Summary) {
    const EVERY: u64 = 100_000;
    let (is_terminal, mut next) = (std::io::stderr().is_terminal(), EVERY);
    move |summary| {
        if is_terminal && summary.cases >= next {
            next += EVERY;
            let findings = summary.findings.len();
            eprint!("\r{} cases, {findings} findings, {:.0} s", summary.cases, summary.elapsed.as_secs_f64());
        }
    }
}
