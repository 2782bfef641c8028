//! What `bench synth` prints.

use super::synth::{Case, Results};
use crate::exit::Failure;
use crate::output::{self, Printed};
use crate::units::size;
use serde_json::{Value, json};

/// Prints the table, or the same as one JSON object.
pub(super) fn print(results: &[Results], as_json: bool) -> Result<Printed, Failure> {
    let text = if as_json {
        format!("{}\n", json!({ "results": results.iter().map(json_of).collect::<Vec<_>>() }))
    } else {
        text(results)
    };
    output::print(format_args!("{text}"))
}

fn text(results: &[Results]) -> String {
    let mut text = format!(
        "{:<20} {:>8} {:>9} {:>10} {:>11} {:>14} {:>18} {:>12} {:>24} {:>15} {:>9}\n",
        "records",
        "crashes",
        "certified",
        "infeasible",
        "all records",
        "forced, median",
        "true, median (most)",
        "made up",
        "values right/wrong/unmarked",
        "seconds (most)",
        "memory"
    );
    for result in results {
        text.push_str(&line(result));
    }
    text.push_str(&format!(
        "\n{:<20} {:>8} {:>10} {:>8}\n",
        "debugging", "fidelity", "efficiency", "utility"
    ));
    for result in results {
        let [fidelity, efficiency, utility] =
            debugging(result).map(|mean| mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.3}")));
        let name = result.evidence.to_string();
        text.push_str(&format!("{name:<20} {fidelity:>8} {efficiency:>10} {utility:>8}\n"));
    }
    for result in results {
        for case in result.cases.iter().filter(|case| case.certified() == 0) {
            text.push_str(&format!(
                "{}, {}: {}: {}\n",
                result.evidence,
                case.crash.display(),
                case.verdict(),
                why(case)
            ));
        }
    }
    text
}

fn line(result: &Results) -> String {
    let Figures { crashes, certified, infeasible, all_records, made_up, values } = Figures::of(result);
    let [right, wrong, unmarked] = values;
    let truth = result
        .spread(|case| case.is_true().map(lossy))
        .map_or_else(String::new, |truth| format!("{:.0} ({:.0})", truth.median, truth.most));
    let forced = result.spread(|case| Some(lossy(case.forced())));
    let forced = forced.map_or_else(String::new, |forced| format!("{:.0}", forced.median));
    let seconds = result.spread(|case| Some(case.seconds));
    let seconds = seconds.map_or_else(String::new, |it| format!("{:.1} ({:.1})", it.median, it.most));
    let memory =
        result.spread(|case| case.peak_memory.map(lossy)).map_or_else(String::new, |it| size(it.most));
    format!(
        "{:<20} {crashes:>8} {certified:>9} {infeasible:>10} {all_records:>11} {forced:>14} {truth:>18} {made_up:>12} {:>24} {seconds:>15} {memory:>9}\n",
        result.evidence.to_string(),
        format!("{right}/{wrong}/{unmarked}"),
    )
}

/// Fidelity, efficiency and utility: means over the crashes of which they are known.
fn debugging(result: &Results) -> [Option<f64>; 3] {
    let mean = |figure: &dyn Fn(&Case) -> Option<f64>| {
        let known: Vec<f64> = result.cases.iter().filter_map(figure).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / lossy(known.len() as u64))
    };
    let utility = |case: &Case| Some(case.fidelity()? * case.efficiency()?);
    [mean(&Case::fidelity), mean(&Case::efficiency), mean(&utility)]
}

/// Sums over the crashes.
struct Figures {
    crashes: usize,
    certified: usize,
    infeasible: usize,
    /// How many have all their records covered.
    all_records: usize,
    /// Certified instructions that are not the true ones.
    made_up: u64,
    values: [u64; 3],
}

impl Figures {
    fn of(result: &Results) -> Figures {
        let count = |is: &dyn Fn(&Case) -> bool| result.cases.iter().filter(|case| is(case)).count();
        let made_up = |case: &Case| case.certified() - case.is_true().unwrap_or(0).min(case.certified());
        Figures {
            crashes: result.cases.len(),
            certified: count(&|case| case.certified() > 0),
            infeasible: count(&|case| case.verdict() == "infeasible"),
            all_records: count(&Case::covers_all),
            made_up: result.cases.iter().map(made_up).sum(),
            values: result
                .cases
                .iter()
                .map(Case::values)
                .fold([0; 3], |sum, values| std::array::from_fn(|n| sum[n] + values[n])),
        }
    }
}

/// Why nothing was certified.
fn why(case: &Case) -> &str {
    let said = case.found.as_ref().and_then(|found| found.get("why")?.as_str());
    said.or(case.failed.as_deref()).unwrap_or("no reason was given")
}

fn json_of(result: &Results) -> Value {
    let cases = result.cases.iter().map(|case| {
        let [right, wrong, unmarked] = case.values();
        json!({
            "crash": case.crash,
            "verdict": case.verdict(),
            "why": (case.certified() == 0).then(|| why(case)),
            "certified": case.certified(),
            "forced": case.forced(),
            "true": case.is_true(),
            "all_records": case.covers_all(),
            "values": { "right": right, "wrong": wrong, "unmarked": unmarked },
            "search": case.found.as_ref().and_then(|found| found.get("search")),
            "parting": case.found.as_ref().and_then(|found| found.pointer("/explain/parting")),
            "fidelity": case.fidelity(),
            "efficiency": case.efficiency(),
            "distances": case.bands(),
            "seconds": case.seconds,
            "replay_seconds": case.original,
            "peak_memory_bytes": case.peak_memory,
        })
    });
    let [fidelity, efficiency, utility] = debugging(result);
    json!({
        "records": result.evidence.to_string(),
        "fidelity": fidelity,
        "efficiency": efficiency,
        "utility": utility,
        "crashes": cases.collect::<Vec<_>>(),
    })
}

#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub(super) fn lossy(number: u64) -> f64 {
    number as f64
}
