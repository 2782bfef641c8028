//! What `bench record` prints.

use super::record::{Cost, Results};
use crate::exit::Failure;
use crate::output::{self, Printed};
use crate::units::size;
use serde_json::{Value, json};

/// Prints the table, or the same as one JSON object.
pub(super) fn print(results: &Results, as_json: bool) -> Result<Printed, Failure> {
    let text = if as_json { format!("{}\n", json(results)) } else { text(results) };
    output::print(format_args!("{text}"))
}

fn text(results: &Results) -> String {
    let load = results.load.map(|load| load.map_or_else(|| "?".to_owned(), |load| format!("{load:.1}")));
    let mut text = format!(
        "engine {}, {}; load of the machine {} before, {} after; medians of {} rounds (least to most)\n",
        results.engine,
        results.processor.as_deref().unwrap_or("processor not known"),
        load[0],
        load[1],
        results.rounds,
    );
    for measured in &results.programs {
        text.push_str(&format!(
            "\n{}\n  {:<34} {:>9}  {:<22} {:>11} {:>11}\n",
            measured.program, "recorded", "time", "against without gretel", "peak memory", "journal"
        ));
        for (name, cost) in &measured.costs {
            match cost {
                Ok(cost) => text.push_str(&line(name, cost)),
                Err(why) => text.push_str(&format!("  {name:<34} {}\n", why.replace('\n', " "))),
            }
        }
    }
    for missing in &results.missing {
        text.push_str(&format!("\n{}: skipped: {}\n", missing.name, missing.why));
    }
    text
}

fn line(name: &str, cost: &Cost) -> String {
    let digits = if cost.ratio.median < 100.0 { 2 } else { 0 };
    let [median, least, most] =
        [cost.ratio.median, cost.ratio.least, cost.ratio.most].map(|ratio| format!("{ratio:.digits$}"));
    let ratio = format!("{median} ({least} to {most})");
    let unless = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let journal = unless(cost.journal_per_second().map(|rate| format!("{}/s", size(rate))));
    let memory = unless(cost.peak_memory.map(|bytes| size(bytes as f64)));
    format!("  {name:<34} {:>7.3} s  {ratio:<22} {memory:>11} {journal:>11}\n", cost.seconds.median)
}

fn json(results: &Results) -> Value {
    let programs = results.programs.iter().map(|measured| {
        let costs = measured.costs.iter().map(|(name, cost)| cost_json(name, cost.as_ref()));
        json!({ "program": measured.program, "costs": costs.collect::<Vec<_>>() })
    });
    let missing = results.missing.iter().map(|m| json!({ "program": m.name, "reason": m.why }));
    json!({
        "engine": results.engine,
        "processor": results.processor,
        "load": { "before": results.load[0], "after": results.load[1] },
        "rounds": results.rounds,
        "programs": programs.collect::<Vec<_>>(),
        "skipped": missing.collect::<Vec<_>>(),
    })
}

fn cost_json(name: &str, cost: Result<&Cost, &String>) -> Value {
    match cost {
        Err(why) => json!({ "recorded": name, "available": false, "reason": why }),
        Ok(cost) => {
            let spread =
                |s: super::measure::Spread| json!({ "median": s.median, "least": s.least, "most": s.most });
            json!({
                "recorded": name,
                "available": true,
                "seconds": spread(cost.seconds),
                "ratio": spread(cost.ratio),
                "peak_memory_bytes": cost.peak_memory,
                "journal_bytes": cost.journal,
                "journal_bytes_per_second": cost.journal_per_second(),
            })
        }
    }
}
