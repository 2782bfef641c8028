//! Where the records came from, what this host can do, and what is not on the page.

use super::asked::Asked;
use super::html::{Html, text};
use serde_json::Value;

pub(super) fn section(asked: &Asked) -> String {
    let mut html = Html::new();
    if let Some(core) = asked.core.ok() {
        html.raw("<table class=\"facts\">\n");
        for line in text(&core["origin"]).lines() {
            let (name, value) = line.split_once(": ").unwrap_or(("", line));
            html.fact(name, value);
        }
        html.raw("</table>\n");
    }
    for (what, why) in asked.missing() {
        html.element("p", "warn", &format!("No {what}: {why}"));
    }
    if let Some(doctor) = asked.doctor.ok() {
        html.raw("<details><summary>The host that made this page</summary><table class=\"facts\">\n");
        facts(&mut html, "", doctor);
        html.raw("</table></details>\n");
    }
    html.finish()
}

/// All that an object says, a row each.
fn facts(html: &mut Html, name: &str, value: &Value) {
    match value {
        Value::Object(all) => {
            for (key, value) in all {
                let name = if name.is_empty() { key.clone() } else { format!("{name}: {key}") };
                facts(html, &name.replace('_', " "), value);
            }
        }
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(text).collect();
            html.fact(name, &all.join(", "));
        }
        other => html.fact(name, &text(other)),
    }
}
