//! What crashed, where that is a kernel: how it ended, where it crashed, the stack, the task, the log and the registers.

use super::crash::registers;
use super::html::{Html, list, text};
use serde_json::Value;

/// So many of the newest lines of the log are on the page.
const LINES: usize = 80;

/// Whether what `gretel core` said is of a kernel.
pub(super) fn is_one(core: &Value) -> bool {
    core["processors"].is_array()
}

/// What the page is called.
pub(super) fn title(core: &Value) -> String {
    let place = core["crash"]["place"].as_str().filter(|place| !place.is_empty());
    let at = place.map_or_else(String::new, |place| format!(" at {place}"));
    let release = core["kernel"].as_str().map_or_else(|| "a kernel".to_owned(), |it| format!("Linux {it}"));
    format!("{release}: {}{at}", text(&core["end"]))
}

pub(super) fn section(core: &Value) -> String {
    let mut html = Html::new();
    html.raw("<p class=\"lead\">");
    html.element("b", "", &text(&core["end"]));
    html.raw("</p>\n<table class=\"facts\">\n");
    let processor = &core["processors"][0];
    let (crash, task) = (&core["crash"], &processor["task"]);
    for (name, value) in [
        ("kernel", &core["kernel"]),
        ("crashed at", &crash["place"]),
        ("address of the instruction", &crash["rip"]),
        ("exception", &crash["vector"]),
        ("error code", &crash["error_code"]),
        ("accessed", &crash["address"]),
        ("raised nothing", &crash["end"]),
        ("instructions until then", &crash["instructions"]),
        ("instructions until the end", &core["instructions"]),
        ("task", &task["name"]),
    ] {
        if !value.is_null() {
            html.fact(name, &text(value));
        }
    }
    html.raw("</table>\n<h3>Stack at the end</h3>\n<ol class=\"stack\" start=\"0\">\n");
    for frame in list(&processor["stack"]) {
        let place = frame["place"].as_str().filter(|place| !place.is_empty());
        html.raw("<li>");
        html.element("code", "", place.map_or_else(|| text(&frame["rip"]), str::to_owned).as_str());
        for (key, note) in
            [("likely", "looks like a return address"), ("exception", "an exception or interrupt came here")]
        {
            if frame[key] == true {
                html.element("span", "note", note);
            }
        }
        html.raw("</li>\n");
    }
    html.raw("</ol>\n");
    if let Some(why) = processor["stack_stopped"].as_str() {
        html.element("p", "warn", &format!("the stack ends here: {why}"));
    }
    log(&mut html, core);
    registers(&mut html, processor);
    html.finish()
}

/// The end of the log.
fn log(html: &mut Html, core: &Value) {
    let Some(lines) = core["log"].as_array() else {
        return html.element("p", "warn", &format!("no log: {}", text(&core["log_unknown"])));
    };
    let from = lines.len().saturating_sub(LINES);
    html.raw(&format!(
        "<details><summary>The last {} of {} lines of the log</summary><table class=\"events\"><tbody>\n",
        lines.len() - from,
        lines.len()
    ));
    for line in &lines[from..] {
        let seconds = line["nanoseconds"].as_f64().unwrap_or(0.0) / 1e9;
        html.row(&[&format!("{seconds:.6}"), &text(&line["text"])]);
    }
    html.raw("</tbody></table></details>\n");
}
