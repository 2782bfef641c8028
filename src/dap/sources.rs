//! Source files: as they were called where the program was compiled, and as the editor calls them.

use super::debuggee::Debuggee;
use super::protocol::{Answer, SourceAsked};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// What `sourceMap` in the launch configuration says: folders of the program's compilation, and where they are here.
#[derive(Default)]
pub(super) struct SourceMap(BTreeMap<String, String>);

impl SourceMap {
    pub(super) fn new(map: BTreeMap<String, String>) -> SourceMap {
        SourceMap(map)
    }

    /// The path here of one where the program was compiled.
    fn here(&self, recorded: &str) -> String {
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
        let number = match self.absent.iter().position(|known| known == recorded) {
            Some(place) => place + 1,
            None => {
                self.absent.push(recorded.to_owned());
                self.absent.len()
            }
        };
        json!({ "name": name, "path": here, "sourceReference": number, "origin": "not on this machine" })
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
        let recorded = place.and_then(|place| self.absent.get(place)).ok_or("there is no such source")?;
        Ok(json!({ "content": format!(
            "{recorded} is not on this machine.\nIf its folder is elsewhere here, say so in the launch configuration:\n\
             \"sourceMap\": {{\"{}\": \"/where/it/is\"}}\n",
            Path::new(recorded).parent().unwrap_or_else(|| Path::new("/")).display()
        ) }))
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
