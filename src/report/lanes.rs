//! What happened when: a lane for each task, a mark for each event.

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

pub(super) fn section((events, before): &(Vec<Value>, usize)) -> String {
    let mut html = Html::new();
    if *before > 0 {
        html.element(
            "p",
            "note",
            &format!("The last {} of {} lines of gretel events.", events.len(), before + events.len()),
        );
    }
    let mut lanes: BTreeMap<i64, usize> = BTreeMap::new();
    let mut left_out = 0;
    for event in events {
        let Some(task) = event["task"].as_i64() else { continue };
        let next = lanes.len();
        if next < MOST {
            lanes.entry(task).or_insert(next);
        } else if !lanes.contains_key(&task) {
            left_out += 1;
        }
    }
    html.raw(&drawing(events, &lanes));
    if left_out > 0 {
        html.element(
            "p",
            "note",
            &format!("{left_out} events of other tasks are not drawn: there is room for {MOST}."),
        );
    }
    html.raw("<p class=\"legend\"><span class=\"k-syscall\">system call</span> <span class=\"k-failed\">that failed</span> <span class=\"k-signal\">signal</span> <span class=\"k-other\">other</span></p>\n");
    html.raw("<details open><summary>The end</summary><table class=\"events\"><tbody>\n");
    let newest = events.len().saturating_sub(LISTED);
    for event in &events[newest..] {
        html.row(&[
            &text(&event["event"]),
            &text(&event["task"]),
            &text(&event["kind"]),
            &text(&event["text"]),
        ]);
    }
    html.raw("</tbody></table></details>\n");
    html.finish()
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

fn drawing(events: &[Value], lanes: &BTreeMap<i64, usize>) -> String {
    let number = |event: &Value| event["event"].as_f64().unwrap_or(0.0);
    let (first, last) = match (events.first(), events.last()) {
        (Some(first), Some(last)) => (number(first), number(last)),
        _ => return String::new(),
    };
    let label = 90.0;
    #[expect(clippy::cast_precision_loss, reason = "pixels")]
    let x = |event: &Value| {
        label + (number(event) - first) / (last - first).max(1.0) * (WIDTH as f64 - label - 12.0)
    };
    let height = lanes.len() * LANE + 8;
    let mut svg = format!(
        "<svg class=\"lanes\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"events of each task\">"
    );
    for (task, lane) in lanes {
        let y = lane * LANE + LANE / 2 + 4;
        // Writing to a string does not fail.
        let _ = write!(
            svg,
            "<text x=\"4\" y=\"{}\">{task}</text><line x1=\"{label}\" x2=\"{WIDTH}\" y1=\"{y}\" y2=\"{y}\"/>",
            y + 4
        );
    }
    for event in events {
        let Some(lane) = event["task"].as_i64().and_then(|task| lanes.get(&task)) else { continue };
        let y = lane * LANE + 8;
        let is_crash = event["kind"] == "crash";
        let wide = if is_crash { 5 } else { 2 };
        let hint = format!("{} {}: {}", text(&event["event"]), text(&event["kind"]), text(&event["text"]));
        let _ = write!(
            svg,
            "<rect class=\"{}\" x=\"{:.1}\" y=\"{y}\" width=\"{wide}\" height=\"{}\"><title>{}</title></rect>",
            class(event),
            x(event),
            LANE - 8,
            escaped(&hint)
        );
    }
    svg + "</svg>\n"
}
