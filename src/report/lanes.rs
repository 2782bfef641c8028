//! What happened when: a lane for each task, a mark for each event. Of a machine with a kernel, whose tasks are not known, a lane for each
//! kind of event, by instructions.

use super::html::{Html, escaped, text};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// In pixels, or what the page makes of them.
const WIDTH: usize = 1000;
const LANE: usize = 26;
/// More tasks than these are not drawn: those that come first are.
const MOST: usize = 60;
/// So many of the newest events are listed.
const LISTED: usize = 60;

/// A lane: its place among the others, a process's beside each other, and its name.
type Lane = (i64, i64, String);

/// The lane of an event; none has what only counts.
fn lane(event: &Value) -> Option<Lane> {
    match event["task"].as_i64() {
        Some(task) => {
            let pid = event["pid"].as_i64().unwrap_or(task);
            let name = if pid == task { task.to_string() } else { format!("\u{21b3} {task}") };
            Some((pid, task, name))
        }
        None => event["instructions"].as_f64().map(|_| (0, 0, text(&event["kind"]))),
    }
}

/// Where an event stands: by its number, or by instructions.
fn place(event: &Value) -> &Value {
    if event["event"].is_null() { &event["instructions"] } else { &event["event"] }
}

pub(super) fn section((events, before): &(Vec<Value>, usize)) -> String {
    let mut html = Html::new();
    if *before > 0 {
        html.element(
            "p",
            "note",
            &format!("The last {} of {} lines of gretel events.", events.len(), before + events.len()),
        );
    }
    let mut lanes: BTreeMap<Lane, usize> = BTreeMap::new();
    let mut left_out = 0;
    for event in events {
        let Some(lane) = lane(event) else { continue };
        let next = lanes.len();
        if next < MOST {
            lanes.entry(lane).or_insert(next);
        } else if !lanes.contains_key(&lane) {
            left_out += 1;
        }
    }
    // Those of a process beside each other, whichever came first.
    lanes.values_mut().zip(0..).for_each(|(row, n)| *row = n);
    html.raw(&drawing(events, &lanes));
    if left_out > 0 {
        html.element(
            "p",
            "note",
            &format!("{left_out} events of other tasks are not drawn: there is room for {MOST}."),
        );
    }
    html.raw("<p class=\"legend\"><span class=\"k-syscall\">system call</span> <span class=\"k-failed\">that failed (half as high)</span> <span class=\"k-signal\">signal</span> <span class=\"k-other\">other</span></p>\n");
    if lanes.keys().any(|(pid, task, _)| pid != task) {
        html.element(
            "p",
            "note",
            "A lane is a process; one with \u{21b3} is another thread of the process above it.",
        );
    }
    html.raw("<details open><summary>The end</summary><table class=\"events\">");
    let is_machine = events.iter().any(|event| event["event"].is_null());
    let [number, who] = if is_machine { ["instructions", "time"] } else { ["event", "task"] };
    html.heads(&[number, who, "kind", "what happened"]);
    html.raw("<tbody>\n");
    let newest = events.len().saturating_sub(LISTED);
    for event in events[newest..].iter().filter(|event| lane(event).is_some()) {
        html.row(&[&text(place(event)), &lane_name(event), &text(&event["kind"]), &text(&event["text"])]);
    }
    html.raw("</tbody></table></details>\n");
    html.finish()
}

/// The task of an event, or when it was by the machine's clock.
fn lane_name(event: &Value) -> String {
    match event["nanoseconds"].as_f64() {
        Some(nanoseconds) => format!("{:.3} s", nanoseconds / 1e9),
        None => text(&event["task"]),
    }
}

/// How an event is drawn.
fn class(event: &Value) -> &'static str {
    match event["kind"].as_str() {
        Some("syscall") if event["error"].is_string() => "k-failed",
        Some("syscall") => "k-syscall",
        Some("signal" | "crash") => "k-signal",
        _ => "k-other",
    }
}

fn drawing(events: &[Value], lanes: &BTreeMap<Lane, usize>) -> String {
    let number = |event: &Value| place(event).as_f64().unwrap_or(0.0);
    let mut drawn = events.iter().filter(|event| lane(event).is_some());
    let (first, last) = match (drawn.next(), drawn.next_back()) {
        (Some(first), Some(last)) => (number(first), number(last)),
        (Some(only), None) => (number(only), number(only)),
        _ => return String::new(),
    };
    let label = 90.0;
    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    let x = |event: &Value| {
        label + (number(event) - first) / (last - first).max(1.0) * (WIDTH as f64 - label - 12.0)
    };
    let height = lanes.len() * LANE + 8;
    let mut svg = format!(
        "<div class=\"scrolled\"><svg class=\"lanes\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"events of each task\">"
    );
    for ((.., name), lane) in lanes {
        let y = lane * LANE + LANE / 2 + 4;
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"4\" y=\"{}\">{}</text><line x1=\"{label}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>",
            y + 4,
            escaped(name)
        );
    }
    for event in events {
        let Some(lane) = lane(event).and_then(|lane| lanes.get(&lane)) else { continue };
        let (class, is_crash) = (class(event), event["kind"] == "crash");
        let wide = if is_crash { 5 } else { 2 };
        // Not by colour alone: what failed is half as high, and stands on the line.
        let high = if class == "k-failed" { (LANE - 8) / 2 } else { LANE - 8 };
        let y = (lane + 1) * LANE - high;
        let hint = format!("{} {}: {}", text(place(event)), text(&event["kind"]), text(&event["text"]));
        let _ = write!(
            svg,
            "<rect class=\"{}\" x=\"{:.1}\" y=\"{y}\" width=\"{wide}\" height=\"{}\"><title>{}</title></rect>",
            class,
            x(event),
            high,
            escaped(&hint)
        );
    }
    svg + "</svg></div>\n<p class=\"event note\" hidden></p>\n"
}
