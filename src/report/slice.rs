//! Where the value came from: a row for each step of `gretel why`, and beside the rows the graph of what was made of what.

use super::html::{Html, list, text};
use super::source::Sources;
use crate::why::LeftOut;
use serde_json::Value;
use std::fmt::Write;

/// The height of a row, and the width of a lane, in pixels: page.css has the rows at this height.
const ROW: usize = 52;
const LANE: usize = 14;
/// More lanes than these are drawn on the last one.
const MOST_LANES: usize = 12;

/// A line from a step to what it was made of.
struct Edge {
    from: usize,
    to: usize,
    role: String,
    lane: usize,
}

/// What is said above the graph.
const HOW_TO_READ: &str = "The newest step comes first. A line leads down from a value to what it was made of; a filled circle is where a way \
                           ends: an input, a constant, the beginning. The number on the left is a position, for gretel gdb --at.";
/// More inputs than these are not in the sentence; the graph has all.
const MOST_INPUTS: usize = 3;

/// The parts of the input that the value was made of, in words.
fn inputs(steps: &[Value]) -> Vec<String> {
    let read = |step: &Value| {
        let bytes = list(&step["values"])
            .iter()
            .map(text)
            .find_map(|it| it.strip_suffix(" of what it read").map(str::to_owned))?;
        let call = text(&step["what"]);
        let call = call.split('(').next().unwrap_or_default().trim_start_matches("<... ");
        let call = call.split(' ').next().unwrap_or_default();
        let descriptor = text(&step["what"]).split_once('(').map_or(String::new(), |(_, rest)| {
            let first = rest.split([',', ')']).next().unwrap_or_default().to_owned();
            if first.chars().all(|it| it.is_ascii_digit()) {
                format!(" of descriptor {first}")
            } else {
                String::new()
            }
        });
        Some(format!("{bytes} of what the {call}{descriptor} at event {} gave", text(&step["position"])))
    };
    let ends = steps.iter().filter(|step| list(&step["from"]).is_empty());
    ends.filter_map(read).take(MOST_INPUTS).collect()
}

pub(super) fn section(why: &Value) -> String {
    let mut html = Html::new();
    for line in list(&why["question"]["words"]) {
        html.element("p", "lead", &text(line));
    }
    let steps = list(&why["steps"]);
    let inputs = inputs(steps);
    if !inputs.is_empty() {
        html.element("p", "lead", &format!("In short: it was made of {}.", inputs.join(", and ")));
    }
    html.element("p", "note", HOW_TO_READ);
    let edges = edges(steps);
    let mut sources = Sources::default();
    html.raw("<div class=\"slice\">");
    html.raw(&graph(steps, &edges));
    html.raw("<ol class=\"steps\" start=\"0\">\n");
    for (number, step) in steps.iter().enumerate() {
        let times = list(&step["nodes"]).len();
        let from: Vec<String> = list(&step["from"]).iter().map(|it| text(&it["step"])).collect();
        html.raw(&format!("<li tabindex=\"0\" data-step=\"{number}\" data-from=\"{}\">", from.join(" ")));
        html.element("span", "at", &text(&step["position"]));
        html.element("code", "what", &text(&step["what"]));
        if let Some(caller) = step["caller"].as_str() {
            html.element("code", "note", &format!("from {caller}"));
        }
        if step["sure"] == false {
            html.element("span", "note warn", "one possibility");
        }
        if times > 1 {
            html.element("span", "note", &format!("{times} times"));
        }
        let values: Vec<String> = list(&step["values"]).iter().map(text).collect();
        let line = step["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
        if let Some(source) = sources.line(&text(&step["file"]), line) {
            html.element("code", "text", &source);
        }
        html.raw("<br>");
        html.element("code", "value", &values.join(", "));
        html.raw("</li>\n");
    }
    html.raw("</ol></div>\n");
    let count = |of: &str| why[of].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let left_out = LeftOut { copies: count("copies_left_out"), moves: count("moves_left_out") };
    if let Some(words) = left_out.words("gretel why --all") {
        html.element("p", "note", &words);
    }
    if why["cut"] == true {
        html.element("p", "warn", "There is more: the slice was cut here (gretel why --steps).");
    }
    html.finish()
}

/// The lines, each on the first lane that is free over all its rows; a line to the next row needs none.
fn edges(steps: &[Value]) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    for (from, step) in steps.iter().enumerate() {
        for source in list(&step["from"]) {
            let to = source["step"].as_u64().and_then(|to| usize::try_from(to).ok()).unwrap_or(0);
            if to >= steps.len() {
                continue;
            }
            let (low, high) = (from.min(to), from.max(to));
            let is_taken = |lane: usize| {
                edges
                    .iter()
                    .any(|it| it.lane == lane && it.from.min(it.to) < high && low < it.from.max(it.to))
            };
            let lane = if to == from + 1 {
                0
            } else {
                (1..MOST_LANES).find(|lane| !is_taken(*lane)).unwrap_or(MOST_LANES)
            };
            edges.push(Edge { from, to, role: text(&source["role"]), lane });
        }
    }
    edges
}

fn graph(steps: &[Value], edges: &[Edge]) -> String {
    let lanes = edges.iter().map(|edge| edge.lane).max().unwrap_or(0);
    let (width, height) = ((lanes + 1) * LANE + 8, steps.len() * ROW);
    let x = |lane: usize| width - 8 - lane * LANE;
    let y = |row: usize| row * ROW + ROW / 2;
    let mut svg = format!(
        "<svg class=\"graph\" width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"what was made of what\">"
    );
    for Edge { from, to, role, lane } in edges {
        let (x0, x1, y0, y1) = (x(0), x(*lane), y(*from), y(*to));
        let loops = if to < from { " back" } else { "" };
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<path class=\"{role}{loops}\" data-a=\"{from}\" data-b=\"{to}\" d=\"M{x0} {y0} C{x1} {y0} {x1} {y0} {x1} {} L{x1} {} C{x1} {y1} {x1} {y1} {x0} {y1}\"/>",
            if y1 > y0 { y0 + ROW / 2 } else { y0 - ROW / 2 },
            if y1 > y0 { y1 - ROW / 2 } else { y1 + ROW / 2 },
        );
    }
    for (row, step) in steps.iter().enumerate() {
        let is_end = list(&step["from"]).is_empty();
        let class = if is_end { "end" } else { "node" };
        let _ = write!(svg, "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"5\"/>", x(0), y(row));
    }
    svg + "</svg>"
}
