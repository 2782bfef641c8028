//! What `gretel synth` shows.

use super::{Args, Beside, anchors, kernel, seconds_of};
use crate::Outcome;
use crate::engine::{self, Choice};
use crate::exit::{Code, Failure};
use crate::log::say;
use crate::outline::Outline;
use crate::output::{print, terminal};
use ::synth::certificate::Certificate;
use ::synth::flips::{Flip, Flips};
use ::synth::phases::Phases;
use ::synth::program::Program;
use ::synth::refutations::Written;
use ::synth::report::Listing;
use ::synth::report::explain::seconds;
use ::synth::report::exploitability::{Earlier, Exploitability, inputs};
use ::synth::report::metrics::{self, Metrics};
use ::synth::search::{Statistics, Stop};
use ::synth::suffix::Suffix;
use ::synth::synthesis::{Synthesis, Verdict};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;
use vmm::elfcore::Core;
use vmm::ram::for_replay;
use vmm::recording::Recording;

/// Shows what came out.
pub(super) fn report(
    args: &Args,
    core: &Core,
    program: &Program,
    synthesis: Synthesis,
    beside: &mut Beside,
) -> Outcome {
    let mut machine = beside.machine.take();
    let Synthesis { verdict, flips, searched, stop, statistics, phases, cuts, fuel, path: _ } = synthesis;
    let cut = cuts.iter().rev().find_map(|cut| cut.why.as_deref());
    let search = Searched {
        searched,
        stop,
        statistics: &statistics,
        flips: flips.as_ref(),
        phases,
        cut,
        fuel,
        beside,
    };
    match verdict {
        Verdict::Certified(suffix, certificate) => {
            if let Some(path) = &args.output {
                suffix.save(path).map_err(|e| Failure::new(Code::Write, e))?;
            }
            show(args, core, program, &suffix, &certificate, search, machine.as_mut())?;
            if suffix.len() < searched && !args.json {
                let certified = suffix.len();
                let why = cut.map_or_else(String::new, |why| format!(" (a longer one: {why})"));
                say!(
                    "gretel: the search came {searched} instructions back; certified are the last {certified}{why}"
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        Verdict::Infeasible { depth } => {
            let why = format!(
                "every way back dies within {depth} instructions: no execution of this program ends in this core. A hardware \
                 error, a damaged core or another build of the program is likely"
            );
            without_suffix(args, "infeasible", &why, search)?;
            Ok(ExitCode::from(1))
        }
        Verdict::Inconclusive { why } => {
            without_suffix(args, "inconclusive", &why, search)?;
            Ok(ExitCode::from(2))
        }
    }
}

/// What the search did.
#[derive(Clone, Copy)]
struct Searched<'a> {
    /// How many instructions back it came.
    searched: usize,
    /// Why it stopped.
    stop: Stop,
    statistics: &'a Statistics,
    /// The bits that would explain the core, if it found that it cannot be.
    flips: Option<&'a Flips>,
    /// Where the time went.
    phases: Phases,
    /// Why the newest certificate that was refused was.
    cut: Option<&'a str>,
    /// All the work, in units of [`::synth::fuel`].
    fuel: u64,
    beside: &'a Beside,
}

fn show(
    args: &Args,
    core: &Core,
    program: &Program,
    suffix: &Suffix,
    certificate: &Certificate,
    search: Searched<'_>,
    machine: Option<&mut kernel::Truth>,
) -> Result<(), Failure> {
    let listing =
        Listing::new(program, core, suffix, certificate).map_err(|e| Failure::new(Code::Other, e))?;
    let metrics = match machine {
        Some(truth) => truth.measure(suffix, &listing),
        None => measure(args, suffix, &listing),
    };
    let outline = Outline::new(&anchors(core, None, args.crumbs)?, certificate.crumbs[0], program);
    // A kernel's input is that of its devices, which is not followed.
    let exploitability = match core.machine {
        Some(_) => None,
        None => Some(
            Exploitability::new(program, core, suffix, &listing, &earlier_inputs(args, core))
                .map_err(|e| Failure::new(Code::Other, e))?,
        ),
    };
    if args.json {
        let listing = serde_json::to_value(&listing).map_err(|e| Failure::new(Code::Other, e))?;
        let object = json!({
            "verdict": "certified", "search": search_json(search), "listing": listing, "outline": outline.to_json(),
            "metrics": metrics, "exploitability": exploitability, "explain": search.beside.explanation
        });
        print(format_args!("{object}\n"))?;
        Ok(())
    } else {
        match terminal() {
            None => print(format_args!("{listing}"))?,
            Some((width, false)) => print(format_args!("{listing:width$}"))?,
            Some((width, true)) => print(format_args!("{listing:#width$}"))?,
        };
        if !outline.is_empty() {
            print(format_args!("\n{outline}"))?;
        }
        if let Some(exploitability) = &exploitability {
            print(format_args!("\n{exploitability}"))?;
        }
        if let Some(metrics) = &metrics {
            print(format_args!("\n{metrics}"))?;
        }
        print_explanation(search)?;
        say_why_it_stopped(search);
        Ok(())
    }
}

/// What was read before the suffix, where there is a recording.
fn earlier_inputs(args: &Args, core: &Core) -> Vec<Earlier> {
    if !args.input.is_dir() {
        return Vec::new();
    }
    let recording = Recording::open(&args.input).map_err(|error| error.to_string());
    let read = recording.and_then(|recording| inputs::of_recording(&recording, core));
    read.unwrap_or_else(|why| {
        say!("gretel: what was read before the suffix is not known: {why}");
        Vec::new()
    })
}

/// The suffix against the recording, where there is one.
fn measure(args: &Args, suffix: &Suffix, listing: &Listing) -> Option<Metrics> {
    if !args.input.is_dir() {
        return None;
    }
    measured(&args.input, suffix, listing)
        .inspect_err(|why| say!("gretel: the suffix is not compared with the recording: {why}"))
        .ok()
}

fn measured(dir: &Path, suffix: &Suffix, listing: &Listing) -> Result<Metrics, String> {
    let recording = Recording::open(dir).map_err(|e| e.to_string())?;
    let machine = engine::open_quietly(Choice::Auto, for_replay()).map_err(|e| e.to_string())?;
    metrics::measure(&recording, machine, suffix, listing).map_err(|e| e.to_string())
}

fn without_suffix(args: &Args, verdict: &str, why: &str, search: Searched<'_>) -> Result<(), Failure> {
    if args.json {
        print(format_args!(
            "{}\n",
            json!({
                "verdict": verdict, "why": why, "search": search_json(search), "explain": search.beside.explanation
            })
        ))?;
        return Ok(());
    }
    print(format_args!("{verdict}: {why}\n"))?;
    print_explanation(search)?;
    say_why_it_stopped(search);
    Ok(())
}

fn print_explanation(search: Searched<'_>) -> Result<(), Failure> {
    if let Some(explanation) = &search.beside.explanation {
        print(format_args!("\n{explanation}"))?;
    }
    Ok(())
}

fn say_why_it_stopped(Searched { stop, statistics, flips, beside, .. }: Searched<'_>) {
    say!(
        "gretel: {}; {} instructions tried, {} refuted at once, {} questions to the solver ({} refuted, {} unanswered)",
        stop.text(),
        statistics.prepended,
        statistics.refuted,
        statistics.solver_calls,
        statistics.solver_refuted,
        statistics.solver_unknown
    );
    if statistics.sampled > 0 {
        say!("gretel: samples spoke for a way at {} places that several lead to", statistics.sampled);
    }
    let mut barriers: Vec<_> = statistics.barriers.iter().collect();
    barriers.sort_by_key(|(why, times)| (std::cmp::Reverse(**times), **why));
    for (why, times) in barriers {
        say!("gretel: the search did not go past: {why} ({times} times)");
    }
    if let Some(flips) = flips {
        say_flips(flips);
    }
    if let Some(written) = &beside.refutations {
        say_refutations(written);
    }
}

/// What was written for other solvers.
fn say_refutations(written: &Written) {
    let Written { propagation, solver, addresses, assumed } = written;
    say!(
        "gretel: {} refutations are written, {propagation} by propagation, {solver} by the solver and {addresses} of addresses; of \
         each another solver should say unsat",
        written.files()
    );
    if *assumed > 0 {
        say!(
            "gretel: {assumed} of them assume that a store at an unknown address touched nothing that was read"
        );
    }
}

/// Which single bit may be wrong.
fn say_flips(Flips { explain, tried, all }: &Flips) {
    for Flip { bit, certified } in explain {
        say!("gretel: {bit} turned explains this core: {certified} instructions are certified with it");
    }
    if explain.is_empty() {
        say!("gretel: no single bit explains this core ({tried} of {all} were turned)");
    } else if tried < all {
        say!("gretel: {tried} of {all} bits were turned");
    }
}

fn flips_json(Flips { explain, tried, all }: &Flips) -> serde_json::Value {
    let explain: Vec<_> = explain
        .iter()
        .map(|flip| json!({ "bit": flip.bit.to_string(), "certified": flip.certified }))
        .collect();
    json!({ "explain": explain, "tried": tried, "all": all })
}

fn search_json(search: Searched<'_>) -> serde_json::Value {
    let Searched { searched, stop, statistics, flips, phases, cut, fuel, beside } = search;
    json!({
        "searched": searched,
        "cut": cut,
        "fuel": seconds_of(fuel),
        "seconds": seconds(&phases),
        "refutations": beside.refutations.as_ref().map(|it| json!({
            "propagation": it.propagation, "solver": it.solver, "addresses": it.addresses, "assumed": it.assumed,
        })),
        "stopped": stop.text(),
        "instructions_tried": statistics.prepended,
        "refuted_by_propagation": statistics.refuted,
        "refuted_by_contexts": statistics.refuted_by_contexts,
        "told_by_samples": statistics.sampled,
        "solver_questions": statistics.solver_calls,
        "solver_refuted": statistics.solver_refuted,
        "solver_unanswered": statistics.solver_unknown,
        "flips": flips.map(flips_json),
        "barriers": statistics.barriers.iter().map(|(why, times)| ((*why).to_owned(), json!(times))).collect::<serde_json::Map<_, _>>(),
    })
}
