//! Source files: as they were called where the program was compiled, and as the editor calls them.

use super::debuggee::Debuggee;
use super::protocol::{Answer, SourceAsked};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A placeholder has no more lines than these.
const MOST_LINES: u32 = 1 << 16;

/// A source file that is not on this machine.
pub(super) struct Absent {
    /// Where it was when the program was compiled.
    recorded: String,
    /// The last of its lines that was shown.
    lines: u32,
}

impl Absent {
    /// What is shown in its place: why it is not here. It has as many lines as editors put their cursors in.
    fn text(&self) -> String {
        let folder = Path::new(&self.recorded).parent().unwrap_or_else(|| Path::new("/"));
        let mut text = format!(
            "{} is not on this machine.\nIf its folder is elsewhere here, say so in the launch configuration:\n\
             \"sourceMap\": {{\"{}\": \"/where/it/is\"}}\n",
            self.recorded,
            folder.display()
        );
        let lines = u32::try_from(text.lines().count()).unwrap_or(MOST_LINES);
        (lines..self.lines.min(MOST_LINES)).for_each(|_| text.push('\n'));
        text
    }
}

/// What `sourceMap` in the launch configuration says: folders of the program's compilation, and where they are here.
#[derive(Default)]
pub(super) struct SourceMap(BTreeMap<String, String>);

impl SourceMap {
    pub(super) fn new(map: BTreeMap<String, String>) -> SourceMap {
        SourceMap(map)
    }

    /// The path here of one where the program was compiled.
    pub(super) fn here(&self, recorded: &str) -> String {
        // The longest folder first.
        let mapped = self.0.iter().rev().find_map(|(from, to)| moved(recorded, from, to));
        mapped.unwrap_or_else(|| recorded.to_owned())
    }

    /// The path where the program was compiled of one here.
    pub(super) fn recorded(&self, here: &str) -> String {
        let mapped = self.0.iter().rev().find_map(|(from, to)| moved(here, to, from));
        mapped.unwrap_or_else(|| here.to_owned())
    }
}

/// A path below `from`, below `to`.
fn moved(path: &str, from: &str, to: &str) -> Option<String> {
    let rest = Path::new(path).strip_prefix(from).ok()?;
    Some(Path::new(to).join(rest).to_string_lossy().into_owned())
}

impl Debuggee {
    /// A source file as DAP has it. One that is not here has a number, by which the editor asks for its text.
    pub(super) fn source(&mut self, recorded: &str) -> Value {
        let here = self.sources.here(recorded);
        let name = Path::new(&here).file_name().unwrap_or_default().to_string_lossy().into_owned();
        if Path::new(&here).is_file() {
            return json!({ "name": name, "path": here });
        }
        let number = self.absent(recorded) + 1;
        // So editors show a frame whose source is here before one whose is not.
        json!({
            "name": name, "path": here, "sourceReference": number, "origin": "not on this machine",
            "presentationHint": "deemphasize",
        })
    }

    /// The same of a frame that is at a line of it.
    pub(super) fn source_of_line(&mut self, recorded: &str, line: u32) -> Value {
        let source = self.source(recorded);
        if source["sourceReference"].is_number() {
            let place = self.absent(recorded);
            self.absent[place].lines = self.absent[place].lines.max(line);
        }
        source
    }

    /// The place of a file among those that are not here.
    fn absent(&mut self, recorded: &str) -> usize {
        self.absent.iter().position(|known| known.recorded == recorded).unwrap_or_else(|| {
            self.absent.push(Absent { recorded: recorded.to_owned(), lines: 0 });
            self.absent.len() - 1
        })
    }

    /// `source`: the text of a file that is not here is why it is not.
    pub(super) fn source_text(&self, asked: &SourceAsked) -> Answer {
        let number = match asked.source_reference {
            0 => asked.source.source_reference,
            number => number,
        };
        if number == 0 {
            let path = asked.source.path.as_deref().unwrap_or_default();
            let text =
                std::fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
            return Ok(json!({ "content": text }));
        }
        let place = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let absent = place.and_then(|place| self.absent.get(place)).ok_or("there is no such source")?;
        Ok(json!({ "content": absent.text() }))
    }

    /// `loadedSources`.
    pub(super) fn loaded_sources(&mut self) -> Value {
        let files: Vec<_> = self.known.infos().iter().flat_map(|info| info.files()).collect();
        let sources: Vec<_> = files.iter().map(|file| self.source(file)).collect();
        json!({ "sources": sources })
    }

    /// `modules`.
    pub(super) fn modules(&self) -> Value {
        let modules: Vec<_> = self.known.symbols.modules().iter().map(|module| {
            let extent = module.names().extent();
            json!({
                "id": module.path(),
                "name": Path::new(module.path()).file_name().unwrap_or_default().to_string_lossy(),
                "path": module.path(),
                "addressRange": format!("{:#x}-{:#x}", extent.start, extent.end),
                "symbolStatus": if module.dwarf().is_some() { "with debug information" } else { "without debug information" },
            })
        }).collect();
        json!({ "totalModules": modules.len(), "modules": modules })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_folder_is_mapped() {
        let map = [("/build", "/src"), ("/build/deep", "/other")];
        let map =
            SourceMap::new(map.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect());
        for (recorded, here) in
            [("/build/a.c", "/src/a.c"), ("/build/deep/b.c", "/other/b.c"), ("/builder/c.c", "/builder/c.c")]
        {
            assert_eq!(map.here(recorded), here);
            assert_eq!(map.recorded(here), recorded);
        }
    }
}
