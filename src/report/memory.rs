//! What became of the heap memory that the value was in, or that was freed wrongly: use after free and double free, as `gretel heap`
//! tells them.
//!
//! Example: `free(): double free detected` is about the pointer in the first steps of the slice. Who allocated that memory, and who freed
//! it first, is what there is to be known.

use super::html::{Html, list, text};
use serde_json::Value;

/// So many addresses are asked for: each is a replay.
const MOST: usize = 4;
/// The stack is above.
const STACK: u64 = 0x7fff_ff00_0000;
/// Nothing is mapped below.
const LOWEST: u64 = 0x1_0000;

/// The addresses that may be of the heap, in the order of the steps: where values were, before what they were; where the allocator gave up,
/// the other way round, since it was given the address.
pub(super) fn candidates(why: &Value) -> Vec<u64> {
    let steps = list(&why["steps"]);
    let words = list(&why["question"]["words"]).iter().chain(steps.iter().flat_map(|it| list(&it["values"])));
    let words: Vec<String> = words.map(text).collect();
    let numbers = |before: &str| {
        let after = words.iter().flat_map(|it| it.split(before).skip(1)).map(|it| {
            let end = it.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(it.len());
            u64::from_str_radix(&it[..end], 16).unwrap_or(0)
        });
        after.collect::<Vec<u64>>()
    };
    let mut found: Vec<u64> = Vec::new();
    let mut all = [numbers("[0x"), numbers("= 0x")];
    if allocator_gave_up(why) {
        all.reverse();
    }
    for address in all.concat() {
        if (LOWEST..STACK).contains(&address) && !found.contains(&address) {
            found.push(address);
        }
    }
    found.truncate(MOST);
    found
}

fn allocator_gave_up(why: &Value) -> bool {
    let words: Vec<String> = list(&why["question"]["words"]).iter().map(text).collect();
    words.iter().any(|it| it.starts_with("libc said:") && (it.contains("free") || it.contains("alloc")))
}

/// Whether a history tells something: what was freed; where the allocator gave up, what was freed wrongly.
pub(super) fn tells(why: &Value, history: &Value) -> bool {
    let wanted = if allocator_gave_up(why) { "freed-" } else { "freed" };
    list(&history["events"]).iter().any(|event| text(&event["kind"]).starts_with(wanted))
}

pub(super) fn section(history: &Value) -> String {
    let mut html = Html::new();
    html.raw("<p class=\"lead\">");
    html.element("b", "", &text(&history["address"]));
    html.text(&format!(": {}", text(&history["text"])));
    html.raw("</p>\n<table class=\"heap\">");
    html.heads(&["position", "task", "call", "by"]);
    html.raw("<tbody>\n");
    for event in list(&history["events"]) {
        let frame = |frame: &Value| {
            let (function, line) = (text(&frame["function"]), text(&frame["line"]));
            let file = text(&frame["file"]);
            let file = file.rsplit('/').next().unwrap_or_default();
            if line.is_empty() { function } else { format!("{function}, {file}:{line}") }
        };
        let stack: Vec<String> = list(&event["stack"]).iter().map(frame).collect();
        html.row(&[
            &text(&event["position"]),
            &text(&event["thread"]),
            &text(&event["call"]),
            &stack.join(" \u{2190} "),
        ]);
    }
    html.raw("</tbody></table>\n");
    html.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn places_come_before_values_and_the_stack_is_none() {
        let why = json!({
            "question": { "words": ["it crashed", "`mov` accesses 0x10: rax = 0x5555555592a0"] },
            "steps": [{ "values": ["[0x5555555592b8] = \"GGGG\"", "[0x7fffffffe5b8] = 0x0"] }],
        });
        assert_eq!(candidates(&why), [0x5555_5555_92b8, 0x5555_5555_92a0]);
        let history = |kind| json!({ "events": [{ "kind": "allocated" }, { "kind": kind }] });
        assert!(tells(&why, &history("freed")) && !tells(&why, &history("allocated")));
        let mut aborted = why;
        aborted["question"]["words"][0] = "libc said: free(): double free detected in tcache 2".into();
        assert_eq!(candidates(&aborted), [0x5555_5555_92a0, 0x5555_5555_92b8]);
        assert!(tells(&aborted, &history("freed-again")) && !tells(&aborted, &history("freed")));
    }
}
