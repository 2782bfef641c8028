//! The last branches, and where their records came from.

use super::html::{Html, list, text};
use serde_json::Value;

pub(super) fn section(core: &Value) -> Option<String> {
    let trail = core["trail"].as_object()?;
    let records = list(&trail["records"]);
    let mut html = Html::new();
    let filter = trail["filter"].as_str().unwrap_or("unknown");
    html.element(
        "p",
        "note",
        &format!(
            "{} of {} records, filter {filter}, {}",
            records.len(),
            trail["depth"],
            text(&trail["provenance"])
        ),
    );
    html.raw("<table class=\"branches\">");
    html.heads(&["from", "kind", "to"]);
    html.raw("<tbody>\n");
    for record in records.iter().rev() {
        let place = |key: &str, address: &str| match record[key].as_str() {
            Some(place) => place.to_owned(),
            None => text(&record[address]),
        };
        html.row(&[&place("from_place", "from"), &text(&record["kind"]), &place("to_place", "to")]);
    }
    html.raw("</tbody></table>\n");
    Some(html.finish())
}
