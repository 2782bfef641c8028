//! Where the value came from: a row for each step of `gretel why`, and beside the rows the graph of what was made of what.

use super::html::{Html, list, text};
use super::source::Sources;
use crate::why::LeftOut;
use serde_json::Value;
use std::fmt::Write;

/// Where in its row a step's circle is, from the top, the width of a lane, and how much of it a bend takes: in pixels.
const NODE: usize = 16;
const LANE: usize = 14;
const BEND: usize = 7;
/// More lanes than these are drawn on the last one.
const MOST_LANES: usize = 12;
/// A graph of more lanes than these leaves no room for text on a narrow screen.
const NARROW_LANES: usize = 3;

/// A line from a step to what it was made of.
struct Edge {
    from: usize,
    to: usize,
    role: String,
    lane: usize,
}

/// What is said above the graph.
const HOW_TO_READ: &str = "The newest step comes first. A line leads down from a value to what it was made of, \
                           which is also named behind it; a filled circle is where a way ends: an input, a constant, the beginning. The \
                           number behind the # is a position, for gretel gdb --at.";
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
    let lanes = edges.iter().map(|edge| edge.lane).max().unwrap_or(0);
    let width = (lanes + 1) * LANE + 8;
    let narrow = if lanes > NARROW_LANES { " crowded" } else { "" };
    html.raw(&format!("<ol class=\"steps{narrow}\" start=\"0\" style=\"--graph: {width}px\">\n"));
    for (number, step) in steps.iter().enumerate() {
        row(&mut html, &mut sources, number, step, &graph(number, step, &edges, width));
    }
    html.raw("</ol>\n");
    let count = |of: &str| why[of].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
    let left_out = LeftOut {
        copies: count("copies_left_out"),
        moves: count("moves_left_out"),
        hashes: count("hashes_left_out"),
    };
    if let Some(words) = left_out.words("gretel why --all") {
        html.element("p", "note", &words);
    }
    if why["cut"] == true {
        html.element("p", "warn", "There is more: the slice was cut here (gretel why --steps).");
    }
    html.finish()
}

/// A step: where it is in the graph, what it did, its source text, its values, and what these were made of.
fn row(html: &mut Html, sources: &mut Sources, number: usize, step: &Value, graph: &str) {
    html.raw(&format!("<li id=\"step-{number}\" tabindex=\"-1\" data-step=\"{number}\">{graph}"));
    html.element("span", "number", &format!("#{number}"));
    html.element("span", "at", &text(&step["position"]));
    html.element("code", "what", &text(&step["what"]));
    if let Some(caller) = step["caller"].as_str() {
        html.element("code", "note", &format!("from {caller}"));
    }
    if step["sure"] == false {
        html.element("span", "note warn", "one possibility");
    }
    let times = list(&step["nodes"]).len();
    if times > 1 {
        html.element("span", "note", &format!("{times} times"));
    }
    let line = step["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
    if let Some(source) = sources.line(&text(&step["file"]), line) {
        html.element("code", "text", &source);
    }
    let values: Vec<String> = list(&step["values"]).iter().map(text).collect();
    html.raw("<div>");
    html.element("code", "value", &values.join(", "));
    let is_made = list(&step["from"]).iter().any(|source| source["role"] != "condition");
    for (n, source) in list(&step["from"]).iter().enumerate() {
        let (of, role) = (text(&source["step"]), text(&source["role"]));
        let role = match role.as_str() {
            "address" => "address ",
            "condition" => "chosen by ",
            _ => "",
        };
        let before = match (n, is_made) {
            (0, true) => " of ",
            (0, false) => " ",
            _ => ", ",
        };
        html.raw(&format!("{before}{role}<a class=\"from\" href=\"#step-{of}\">#{of}</a>"));
    }
    html.raw("</div></li>\n");
}

/// The lines, each on the first lane that is free over all its rows; a line to the next row needs none.
fn edges(steps: &[Value]) -> Vec<Edge> {
    let mut edges: Vec<Edge> = Vec::new();
    for (from, step) in steps.iter().enumerate() {
        for source in list(&step["from"]) {
            let to = source["step"].as_u64().and_then(|to| usize::try_from(to).ok()).unwrap_or(0);
            // A step that was taken many times may be made of itself.
            if to >= steps.len() || to == from {
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

/// The part of the graph that is in a row. It is as high as the row becomes: the page's reader decides on that.
fn graph(row: usize, step: &Value, edges: &[Edge], width: usize) -> String {
    let x = |lane: usize| width - 8 - lane * LANE;
    let mut svg = format!("<svg class=\"graph\" width=\"{width}\" aria-hidden=\"true\">");
    // Writing to a string does not fail.
    let mut draw = |Edge { from, to, role, .. }: &Edge, element: &str, at: String| {
        let back = if to < from { " back" } else { "" };
        let _ = write!(svg, "<{element} class=\"{role}{back}\" data-from=\"{from}\" data-to=\"{to}\" {at}/>");
    };
    let passing = edges.iter().filter(|it| (it.from.min(it.to)..=it.from.max(it.to)).contains(&row));
    for edge in passing {
        let (low, high) = (edge.from.min(edge.to), edge.from.max(edge.to));
        let (node, lane) = (x(0), x(edge.lane));
        // A line to the next row has no bends.
        let bend = if edge.lane == 0 { 0 } else { BEND };
        let (above, below) = (NODE - bend, NODE + bend);
        let (top, bottom) = match () {
            () if row == low => (format!("{below}"), "100%".to_owned()),
            () if row == high => ("0".to_owned(), format!("{above}")),
            () => ("0".to_owned(), "100%".to_owned()),
        };
        draw(edge, "line", format!("x1=\"{lane}\" x2=\"{lane}\" y1=\"{top}\" y2=\"{bottom}\""));
        if bend > 0 && (row == low || row == high) {
            let (end, corner) = (if row == low { below } else { above }, lane + bend);
            draw(edge, "path", format!("d=\"M{node} {NODE} H{corner} Q{lane} {NODE} {lane} {end}\""));
        }
    }
    let class = if list(&step["from"]).is_empty() { "end" } else { "node" };
    let _ = write!(svg, "<circle class=\"{class}\" cx=\"{}\" cy=\"{NODE}\" r=\"5\"/>", x(0));
    svg + "</svg>"
}
