//! What `bench synth` draws: how far each kind of records reaches, and how many of the values it knows.
//!
//! SVG with a style of its own for dark pages; the figures themselves are in the table and in the JSON object.

use super::measure::Spread;
use super::reach::lossy;
use super::synth::{Case, Results};
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};
use synth::report::metrics::Counts;

/// The share of values that REPT recovers with the whole control flow from Intel PT (Cui et al., OSDI 2018, 5.2).
const REPT: f64 = 0.92;

const WIDTH: f64 = 760.0;
/// Where the axes begin: names stand before it.
pub(super) const LEFT: f64 = 170.0;
pub(super) const RIGHT: f64 = 730.0;
pub(super) const TOP: f64 = 70.0;
const ROW: f64 = 34.0;
/// The height of the area of curves.
const HEIGHT: f64 = 300.0;
/// Colours that can be told apart without seeing red or green (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#b8a100"];

const STYLE: &str = "<style>text{font:13px sans-serif;fill:#222}.t{font-size:16px;font-weight:bold}line,polyline{stroke:#999;fill:none}\
.grid{stroke:#ddd}.range{stroke:#999;stroke-width:2}.forced{fill:#0072b2}.true{fill:#009e73}.all{fill:none;stroke:#d55e00;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#444}}</style>";

/// Draws `reach.svg` and `values.svg` in `dir`, which is made if it is not there.
pub(super) fn draw(results: &[Results], dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("reach.svg"), reach(results))?;
    fs::write(dir.join("values.svg"), values(results))
}

/// A row for each kind: forced, true and certified lengths in the median, and the range of the true ones.
fn reach(results: &[Results]) -> String {
    let of = |result: &Results, figure: &dyn Fn(&Case) -> Option<u64>| {
        result.spread(|case| figure(case).map(lossy))
    };
    let longest = results.iter().filter_map(|it| of(it, &|case| Some(case.certified()))).map(|it| it.most);
    let decades = longest.fold(10.0, f64::max).log10().ceil();
    let x = |length: f64| LEFT + (RIGHT - LEFT) * length.max(1.0).log10() / decades;
    let bottom = TOP + ROW * lossy(results.len() as u64);
    let mut svg = begin(bottom + 60.0, "Instructions before the crash, by kind of records (medians)");
    let mut tick = 1.0;
    while tick <= 10_f64.powf(decades) {
        let at = x(tick);
        _ = write!(svg, "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>");
        _ = write!(svg, "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{tick}</text>", bottom + 18.0);
        tick *= 10.0;
    }
    for (n, result) in (0..).zip(results) {
        let y = TOP + ROW * (lossy(n) + 0.5);
        name(&mut svg, LEFT, y, &result.evidence.to_string());
        if let Some(Spread { least, most, median }) = of(result, &Case::is_true) {
            let [least, most, median] = [least, most, median].map(x);
            _ = write!(
                svg,
                "<line class=\"range\" x1=\"{least:.1}\" y1=\"{y}\" x2=\"{most:.1}\" y2=\"{y}\"/>"
            );
            _ = write!(svg, "<circle class=\"true\" cx=\"{median:.1}\" cy=\"{y}\" r=\"6\"/>");
        }
        if let Some(forced) = of(result, &|case| Some(case.forced())) {
            let at = x(forced.median);
            _ = write!(
                svg,
                "<rect class=\"forced\" x=\"{:.1}\" y=\"{}\" width=\"6\" height=\"14\"/>",
                at - 3.0,
                y - 7.0
            );
        }
        if let Some(all) = of(result, &|case| Some(case.certified())) {
            _ = write!(svg, "<circle class=\"all\" cx=\"{:.1}\" cy=\"{y}\" r=\"8\"/>", x(all.median));
        }
    }
    let legend = "bar: forced; dot: true, with the least and the most; ring: certified";
    _ = write!(svg, "<text x=\"{LEFT}\" y=\"{}\">{legend}</text></svg>", bottom + 42.0);
    svg
}

/// A curve for each kind: of the values that were used at a distance, how many are known and right.
fn values(results: &[Results]) -> String {
    let bands: Vec<Vec<(usize, f64)>> = results.iter().map(shares).collect();
    let farthest = bands.iter().flatten().map(|(upto, _)| *upto).max().unwrap_or(0).max(32);
    let first = 16_f64.log2();
    let span = lossy(farthest as u64).log2() - first;
    let x = |upto: usize| LEFT + (RIGHT - LEFT) * (lossy(upto as u64).log2() - first) / span;
    let y = |share: f64| TOP + HEIGHT * (1.0 - share);
    let mut svg = begin(TOP + HEIGHT + 60.0, "Values that are known and right, by distance from the crash");
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let at = y(share);
        _ = write!(svg, "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at}\" x2=\"{RIGHT}\" y2=\"{at}\"/>");
        _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{:.0} %</text>",
            LEFT - 6.0,
            at + 4.0,
            share * 100.0
        );
    }
    let rept = y(REPT);
    _ = write!(
        svg,
        "<line x1=\"{LEFT}\" y1=\"{rept}\" x2=\"{RIGHT}\" y2=\"{rept}\" stroke-dasharray=\"6 4\"/>"
    );
    _ = write!(
        svg,
        "<text x=\"{RIGHT}\" y=\"{}\" text-anchor=\"end\">REPT, with all branches from Intel PT: 92 %</text>",
        rept - 5.0
    );
    let mut upto = 16;
    while upto <= farthest {
        _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{upto}</text>",
            x(upto),
            TOP + HEIGHT + 18.0
        );
        upto *= 2;
    }
    for (n, (result, shares)) in results.iter().zip(&bands).enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let points: Vec<String> =
            shares.iter().map(|(upto, share)| format!("{:.1},{:.1}", x(*upto), y(*share))).collect();
        _ = write!(
            svg,
            "<polyline style=\"stroke:{colour};stroke-width:2\" points=\"{}\"/>",
            points.join(" ")
        );
        let at = TOP + 16.0 * lossy(n as u64);
        let name = escaped(&result.evidence.to_string());
        _ = write!(svg, "<text x=\"8\" y=\"{at}\" style=\"fill:{colour}\">{name}</text>");
    }
    let legend =
        "instructions before the crash, at most; what no suffix reaches on the true path is not known";
    _ = write!(svg, "<text x=\"{LEFT}\" y=\"{}\">{legend}</text></svg>", TOP + HEIGHT + 42.0);
    svg
}

/// For each band the share of right values in the suffixes that reach into it, weighed by how many suffixes do.
fn shares(result: &Results) -> Vec<(usize, f64)> {
    let compared: Vec<_> =
        result.cases.iter().filter(|case| case.is_true().is_some()).map(Case::bands).collect();
    let mut uptos: Vec<usize> = compared.iter().flatten().map(|band| band.upto).collect();
    uptos.sort_unstable();
    uptos.dedup();
    let share = |upto: usize| {
        let here = compared.iter().filter_map(|bands| bands.iter().find(|band| band.upto == upto));
        let known: f64 = here.map(|band| right(&band.uses)).sum();
        (upto, known / lossy(compared.len() as u64))
    };
    uptos.into_iter().map(share).collect()
}

/// The share of right ones.
fn right(uses: &Counts) -> f64 {
    let all = uses.right + uses.wrong + uses.unknown;
    if all == 0 { 0.0 } else { lossy(uses.right as u64) / lossy(all as u64) }
}

/// The beginning of a drawing of this height.
pub(super) fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">{STYLE}<title>{title}</title>\
         <text class=\"t\" x=\"8\" y=\"28\">{title}</text>"
    )
}

/// A name that ends before `axis`.
pub(super) fn name(svg: &mut String, axis: f64, y: f64, name: &str) {
    _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        axis - 10.0,
        y + 4.0,
        escaped(name)
    );
}

/// Text as XML has it.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
