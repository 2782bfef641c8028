//! What `bench record` draws: how many times the time of the program itself each kind of record takes.

use super::measure::Spread;
use super::plots::{LEFT, RIGHT, TOP, begin, escaped, name};
use super::record::{Cost, Measured, Results};
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// The height of a line.
const LINE: f64 = 20.0;
/// Kinds of records have longer names than those of `synth`.
const AXIS: f64 = LEFT + 90.0;

/// Draws `costs.svg` in `dir`, which is made if it is not there.
pub(super) fn draw(results: &Results, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("costs.svg"), costs(results))
}

/// What was measured of a program, but for the program itself, which is one by definition.
fn recorded(program: &Measured) -> impl Iterator<Item = (&'static str, &Cost)> {
    let costs = program.costs.iter().skip(1);
    costs.filter_map(|(name, cost)| Some((*name, cost.as_ref().ok()?)))
}

/// Powers of ten that all figures are between.
fn decades<'r>(ratios: impl Iterator<Item = &'r Spread>) -> (i32, i32) {
    let (mut low, mut high) = (1.0_f64, 1.0_f64);
    for ratio in ratios {
        (low, high) = (low.min(ratio.least), high.max(ratio.most));
    }
    let is_below = |power: &i32| 10_f64.powi(*power) <= low * 1.000_001;
    let is_above = |power: &i32| 10_f64.powi(*power) * 1.000_001 >= high;
    let first = (-6..=0).rev().find(is_below).unwrap_or(-6);
    (first, (1..=6).find(is_above).unwrap_or(6))
}

/// A heading for each program, and below it a line for each kind of records: the median, and from the least to the most.
fn costs(results: &Results) -> String {
    let programs: Vec<(&str, Vec<(&str, &Cost)>)> =
        results.programs.iter().map(|it| (it.program.as_str(), recorded(it).collect())).collect();
    let lines: usize = programs.iter().map(|(_, costs)| costs.len() + 2).sum();
    let bottom = (0..lines).fold(TOP, |height, _| height + LINE);
    let (first, last) = decades(programs.iter().flat_map(|(_, costs)| costs).map(|(_, cost)| &cost.ratio));
    let x = |ratio: f64| AXIS + (RIGHT - AXIS) * (ratio.log10() - f64::from(first)) / f64::from(last - first);
    let mut svg = begin(bottom + 60.0, "Time with gretel, in times of the program's own");
    for power in first..=last {
        let (at, tick) = (x(10_f64.powi(power)), 10_f64.powi(power));
        _ = write!(svg, "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>");
        _ = write!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>", bottom + 18.0);
    }
    let mut y = TOP;
    for (program, costs) in programs {
        y += LINE;
        _ = write!(svg, "<text class=\"t\" x=\"8\" y=\"{}\">{}</text>", y - 4.0, escaped(program));
        for (kind, cost) in costs {
            let Spread { median, least, most } = cost.ratio;
            let [median, least, most] = [median, least, most].map(x);
            name(&mut svg, AXIS, y + LINE / 2.0, kind);
            _ = write!(
                svg,
                "<line class=\"range\" x1=\"{least:.1}\" y1=\"{0}\" x2=\"{most:.1}\" y2=\"{0}\"/><circle class=\"true\" cx=\"{median:.1}\" cy=\"{0}\" r=\"5\"/>",
                y + LINE / 2.0
            );
            y += LINE;
        }
        y += LINE;
    }
    let legend = format!(
        "engine {}, medians of {} rounds, and from the least to the most; 1 is without gretel",
        results.engine, results.rounds
    );
    _ = write!(svg, "<text x=\"8\" y=\"{}\">{legend}</text></svg>", bottom + 42.0);
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Spread {
        Spread { median, least: median / 2.0, most: median * 2.0 }
    }

    fn results(ratios: &[f64]) -> Results {
        let cost = |ratio: &f64| {
            let (seconds, ratio) = (spread(1.0), spread(*ratio));
            ("a kind < another", Ok(Cost { seconds, ratio, peak_memory: None, journal: None }))
        };
        let costs = ratios.iter().map(cost).chain([("no kind", Err("it is not here".to_owned()))]);
        let program = Measured { program: "cat & mouse".to_owned(), costs: costs.collect() };
        Results {
            engine: "soft",
            processor: None,
            load: [None; 2],
            rounds: 3,
            programs: vec![program],
            missing: Vec::new(),
        }
    }

    #[test]
    fn each_kind_that_was_measured_has_a_point_at_its_place() {
        let svg = costs(&results(&[1.0, 1.0, 10.0, 100.0]));
        assert_eq!(svg.matches("<circle").count(), 3, "the program itself is no point");
        // From 0.1, as the least of 1 is a half, to 1000, as the most of 100 is 200.
        for power in [1.0, 2.0, 3.0] {
            let at = AXIS + (RIGHT - AXIS) * power / 4.0;
            assert!(svg.contains(&format!("cx=\"{at:.1}\"")), "{svg}");
        }
        assert!(svg.contains("cat &amp; mouse") && svg.contains("a kind &lt; another"));
        assert!(!svg.contains("no kind"));
    }

    #[test]
    fn what_was_not_measured_is_an_empty_drawing() {
        let svg = costs(&results(&[]));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>") && !svg.contains("<circle"), "{svg}");
        assert_eq!(decades([].into_iter()), (0, 1));
    }
}
