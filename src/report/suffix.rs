//! How it got there: the certified suffix of `gretel synth`, by source line.

use super::html::{Html, list, text};
use super::source::Sources;
use serde_json::Value;

/// So many instructions are shown without being asked for.
const SHOWN: usize = 40;

pub(super) fn section(synth: &Value) -> String {
    let mut html = Html::new();
    let steps = list(&synth["listing"]["steps"]);
    let verdict = text(&synth["verdict"]);
    html.raw("<p class=\"lead\">");
    html.element("b", "", &verdict);
    html.text(&match steps.len() {
        0 => String::new(),
        n => format!(
            ": {n} instructions that end in exactly this core. They were run forward again, and every register and byte came out as it has them."
        ),
    });
    html.raw("</p>\n");
    if let Some(truth) = synth["metrics"].as_object() {
        let shown: Vec<String> = truth
            .iter()
            .filter(|(_, value)| value.is_number())
            .map(|(name, value)| format!("{}: {value}", name.replace('_', " ")))
            .collect();
        if !shown.is_empty() {
            html.element("p", "note", &format!("beside the recording: {}", shown.join(", ")));
        }
    }
    if let Some(class) = synth["exploitability"]["class"].as_str() {
        let certainty = text(&synth["exploitability"]["certainty"]);
        html.element("p", "note", &format!("exploitability: {class} ({certainty})"));
        for reason in list(&synth["exploitability"]["reasons"]) {
            html.element("p", "note", &text(&reason["text"]));
        }
    }
    if !steps.is_empty() {
        html.raw("<p class=\"legend\"><span class=\"forced\">forced: in every execution that ends here</span> <span class=\"chosen\">chosen: one possibility</span></p>\n");
        // The end is what most people look at.
        let (before, end) = steps.split_at(steps.len().saturating_sub(SHOWN));
        if !before.is_empty() {
            // Not printed unless it was opened: it may be twenty pages.
            html.raw(&format!(
                "<details class=\"long\"><summary>{} instructions before these</summary>",
                before.len()
            ));
            listing(&mut html, before);
            html.raw("</details>\n");
        }
        listing(&mut html, end);
    }
    html.finish()
}

fn listing(html: &mut Html, steps: &[Value]) {
    let mut sources = Sources::default();
    html.raw("<table class=\"listing\">");
    html.heads(&["before the crash", "instruction", "values"]);
    html.raw("<tbody>\n");
    let mut last = (String::new(), String::new(), 0);
    for step in steps {
        let line = step["line"].as_u64().and_then(|line| usize::try_from(line).ok()).unwrap_or(0);
        let here = (text(&step["function"]), text(&step["file"]), line);
        if here != last && !here.0.is_empty() {
            let source = sources.line(&here.1, line).unwrap_or_default();
            let name = here.1.rsplit('/').next().unwrap_or_default();
            let at = if line > 0 { format!("{} {name}:{line}", here.0) } else { here.0.clone() };
            html.raw("<tr class=\"at\"><td></td><td colspan=\"2\">");
            html.element("span", "place", &at);
            html.element("code", "", &source);
            html.raw("</td></tr>\n");
            last = here;
        }
        instruction(html, step);
    }
    html.raw("</tbody></table>\n");
}

fn instruction(html: &mut Html, step: &Value) {
    let class = if step["forced"] == true { "forced" } else { "chosen" };
    html.raw(&format!("<tr class=\"{class}\">"));
    html.element("td", "count", &format!("-{}", text(&step["before_crash"])));
    let repeats =
        step["iterations"].as_u64().filter(|n| *n > 1).map(|n| format!("  x{n}")).unwrap_or_default();
    html.element("td", "code", &(text(&step["text"]) + &repeats));
    html.raw("<td>");
    let uses = |html: &mut Html, key: &str, sign: &str| {
        for used in list(&step[key]) {
            html.element(
                "span",
                &text(&used["origin"]),
                &format!("{sign}{}={}", text(&used["place"]), text(&used["value"])),
            );
        }
    };
    uses(html, "reads", "");
    uses(html, "writes", "→ ");
    match step["taken"].as_bool() {
        Some(true) => html.element("span", "note", "taken"),
        Some(false) => html.element("span", "note", "not taken"),
        None => {}
    }
    if let Some(call) = step["call"].as_str() {
        html.element("span", "note", call);
    }
    html.raw("</td></tr>\n");
}
