//! Source text, where this machine has it.

use super::html::Html;
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// Lines around the one that is meant.
const AROUND: usize = 3;
/// A longer file is no source text.
const LARGEST: u64 = 4 << 20;

/// Files that were read.
#[derive(Default)]
pub(super) struct Sources(HashMap<String, Option<Vec<String>>>);

impl Sources {
    /// The lines of a file.
    fn file(&mut self, path: &str) -> Option<&[String]> {
        let read = || {
            let about = fs::metadata(path).ok().filter(|it| it.is_file() && it.len() <= LARGEST)?;
            let text = fs::read(path).ok().filter(|text| text.len() as u64 == about.len())?;
            Some(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
        };
        self.0.entry(path.to_owned()).or_insert_with(read).as_deref()
    }

    /// One line of it.
    pub(super) fn line(&mut self, path: &str, line: usize) -> Option<String> {
        self.file(path)?.get(line.checked_sub(1)?).map(|line| line.trim().to_owned())
    }

    /// A few lines of it, with the one that is meant marked; false if there is none.
    pub(super) fn excerpt(&mut self, html: &mut Html, path: &str, line: usize) -> bool {
        let Some(lines) = self.file(path).filter(|lines| (1..=lines.len()).contains(&line)) else {
            return false;
        };
        // Lines that are too long are scrolled to, also by keyboard.
        html.raw("<pre class=\"source\" tabindex=\"0\" role=\"region\" aria-label=\"");
        html.text(&format!("source text around line {line}"));
        html.raw("\">");
        let first = line.saturating_sub(AROUND + 1);
        for (n, text) in lines.iter().enumerate().skip(first).take(line + AROUND - first) {
            let class = if n + 1 == line { "here" } else { "line" };
            html.element("span", class, &format!("{:>5}  {text}\n", n + 1));
        }
        html.raw("</pre>\n");
        true
    }
}

/// The file and the line that a place of gretel's ends with: `main+0xe2 at orders.c:28`.
pub(super) fn of_place(place: &str) -> Option<(&str, usize)> {
    let (_, at) = place.split_once(" at ")?;
    let at = at.split(" (").next()?;
    let (file, line) = at.rsplit_once(':')?;
    Some((file, line.parse().ok()?)).filter(|(file, _)| Path::new(file).is_absolute())
}

#[cfg(test)]
mod tests {
    use super::of_place;

    #[test]
    fn a_place_ends_with_its_line() {
        assert_eq!(of_place("main+0xe2 at /src/a b.c:28"), Some(("/src/a b.c", 28)));
        assert_eq!(of_place("f+0x1 at /src/x.c:3 (g, inlined)"), Some(("/src/x.c", 3)));
        assert_eq!(of_place("f+0x1 at x.c:3"), None);
        assert_eq!(of_place("f+0x1 (libc.so.6)"), None);
    }
}
