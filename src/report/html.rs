//! Text as HTML.

use serde_json::Value;
use std::fmt::Write;

/// A page, or a part of one.
#[derive(Default)]
pub(super) struct Html(String);

impl Html {
    pub(super) fn new() -> Html {
        Html::default()
    }

    /// Adds markup.
    pub(super) fn raw(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// Adds text, whatever is in it.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push_str(&escaped(text));
    }

    /// Adds an element with text in it.
    pub(super) fn element(&mut self, tag: &str, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        // Writing to a string does not fail.
        let _ = write!(self.0, "<{tag}{class}>{}</{tag}>", escaped(text));
    }

    /// Adds the heads of a table's columns.
    pub(super) fn heads(&mut self, cells: &[&str]) {
        self.raw("<thead><tr>");
        for cell in cells {
            self.raw(&format!("<th scope=\"col\">{}</th>", escaped(cell)));
        }
        self.raw("</tr></thead>\n");
    }

    /// Adds a row that says one thing, and its name before it.
    pub(super) fn fact(&mut self, name: &str, value: &str) {
        self.raw(&format!("<tr><th scope=\"row\">{}</th>", escaped(name)));
        self.element("td", "", value);
        self.raw("</tr>\n");
    }

    /// Adds a row of a table.
    pub(super) fn row(&mut self, cells: &[&str]) {
        self.raw("<tr>");
        cells.iter().for_each(|cell| self.element("td", "", cell));
        self.raw("</tr>\n");
    }

    pub(super) fn finish(self) -> String {
        self.0
    }
}

/// Text that is no markup: a program's memory and its arguments may have anything in them.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A string in JSON; empty where there is none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// A list in JSON; empty where there is none.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_of_a_program_becomes_markup() {
        assert_eq!(escaped("<script>&'\"\0"), "&lt;script&gt;&amp;&#39;&quot;\u{fffd}");
    }
}
