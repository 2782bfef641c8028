//! An address as people see it.

use super::module::Loaded;
use std::fmt;
use std::path::Path;
use synth::program::{Program, SourceFrame, readable};
use vmm::memory::MappingInfo;

/// Folders of source that is not the program's own.
const FOREIGN: [&str; 4] = ["/usr/include/", "/rustc/", "/.cargo/registry/", "/include/c++/"];

/// What an address is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The file, `[stack]`, `[heap]` and the like.
    module: String,
    /// Where in the file, or behind the mapping's beginning.
    offset: u64,
    /// The function that was compiled, as the source has it, and where in it.
    function: Option<(String, u64)>,
    /// The functions in the source, the innermost inlined one first.
    source: Vec<SourceFrame>,
}

impl Place {
    /// What `address` is in, where `lookup` is inside the instruction.
    pub(super) fn of(address: u64, lookup: u64, mapping: &MappingInfo, module: Option<&Loaded>) -> Place {
        let names = module.map(Loaded::names);
        let function = names.and_then(|names| names.function_at(lookup));
        Place {
            module: if mapping.name.is_empty() { "[anonymous]".to_owned() } else { mapping.name.clone() },
            offset: address.wrapping_sub(mapping.start).wrapping_add(mapping.file_offset),
            function: function.map(|it| (readable(&it.name), address.wrapping_sub(it.start))),
            source: names.map(|names| names.source_frames(lookup)).unwrap_or_default(),
        }
    }

    /// What an address is in of the program of a core, which has no files any more. Of a kernel that is itself or one of its modules.
    pub(crate) fn of_program(program: &Program, address: u64) -> Option<Place> {
        let function = program.function_at(address)?;
        let (name, module) = match program.is_kernel() {
            true => of_kernel(&function.name),
            false => (&*function.name, "the program"),
        };
        Some(Place {
            module: module.to_owned(),
            offset: address,
            function: Some((readable(name), address.wrapping_sub(function.start))),
            source: program.source_frames(address),
        })
    }

    /// `FILE+OFFSET`, which needs no symbols.
    pub(crate) fn raw(&self) -> String {
        format!("{}+{:#x}", self.module, self.offset)
    }

    /// The same without what is inlined there of system headers and of packages: where the program's own source called for it. `None`
    /// where all of it is theirs.
    pub(crate) fn of_own_source(mut self) -> Option<Place> {
        let first = self.source.iter().position(is_own)?;
        self.source.drain(..first);
        Some(self)
    }

    /// Where the program's own source called for what is inlined there of system headers and of packages.
    fn called_for(&self) -> Option<(&str, u32)> {
        let first = self.source.iter().position(is_own).filter(|first| *first > 0)?;
        Some((self.source[first].file.as_deref()?, self.source[first].line?))
    }

    /// Whether it is in a shared library, by its file's name.
    pub(crate) fn is_library(&self) -> bool {
        let name = Path::new(&self.module).file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".so") || name.contains(".so.")
    }

    /// Whether its source is not the program's own: of system headers, or of packages that were compiled into it.
    pub(crate) fn is_foreign(&self) -> bool {
        self.source.first().is_some_and(|innermost| innermost.file.is_some() && !is_own(innermost))
    }

    /// The function that was compiled.
    pub(crate) fn function(&self) -> Option<&str> {
        self.function.as_ref().map(|(name, _)| name.as_str())
    }

    /// Whether a function of these parts of names is there, or was inlined there.
    pub(crate) fn is_within(&self, parts: &[&str]) -> bool {
        let inlined = self.source.iter().filter_map(|frame| frame.function.as_deref());
        self.function().into_iter().chain(inlined).any(|name| parts.iter().any(|part| name.contains(part)))
    }

    /// Whether a function begins there.
    pub(crate) fn is_beginning(&self) -> bool {
        self.function.as_ref().is_some_and(|(_, offset)| *offset == 0)
    }

    /// The source line.
    pub(crate) fn line(&self) -> Option<(&str, u32)> {
        let innermost = self.source.first()?;
        Some((innermost.file.as_deref()?, innermost.line?))
    }

    /// Function and line alone, the line's file by its name: `main, orders.c:28`.
    pub(crate) fn short(&self) -> String {
        let name =
            |path: &str| Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        match (self.function(), self.line()) {
            (None, _) => self.raw(),
            (Some(function), None) => format!("{function} ({})", name(&self.module)),
            (Some(function), Some((file, line))) => {
                format!("{}, {}:{line}", self.inlined().unwrap_or(function), name(file))
            }
        }
    }

    /// The function that was inlined there, if one was.
    pub(crate) fn inlined(&self) -> Option<&str> {
        let (innermost, outer) = self.source.split_first()?;
        innermost.function.as_deref().filter(|_| !outer.is_empty())
    }
}

/// The name of a function and what has it, where a kernel's are as it prints them: `do_work [its_module]`.
fn of_kernel(name: &str) -> (&str, &str) {
    let in_module = name.split_once(" [").and_then(|(name, rest)| Some((name, rest.strip_suffix(']')?)));
    in_module.unwrap_or((name, "the kernel"))
}

fn is_own(frame: &SourceFrame) -> bool {
    frame.file.as_ref().is_some_and(|file| !FOREIGN.iter().any(|folder| file.contains(folder)))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.function, self.line()) {
            (Some((name, offset)), _) => write!(f, "{name}+{offset:#x}")?,
            (None, _) => return f.write_str(&self.raw()),
        }
        if let Some((file, line)) = self.line() {
            write!(f, " at {file}:{line}")?;
            return match (self.inlined(), self.called_for()) {
                (None, _) => Ok(()),
                (Some(inlined), None) => write!(f, " ({inlined}, inlined)"),
                (Some(inlined), Some((file, line))) => write!(f, " ({inlined}, inlined at {file}:{line})"),
            };
        }
        let file = Path::new(&self.module).file_name().unwrap_or_else(|| self.module.as_ref());
        write!(f, " ({})", file.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_a_kernel_is_its_own_or_of_a_module() {
        assert_eq!(of_kernel("walk [null_deref]"), ("walk", "null_deref"));
        assert_eq!(of_kernel("memcpy"), ("memcpy", "the kernel"));
    }

    #[test]
    fn what_is_inlined_of_headers_has_the_line_of_the_source_that_called_for_it() {
        let frame = |function: &str, file: &str, line| SourceFrame {
            function: Some(function.to_owned()),
            file: Some(file.to_owned()),
            line: Some(line),
        };
        let header = "/usr/include/c++/12/bits/new_allocator.h";
        let own = frame("main", "/src/list.cc", 17);
        let shown = |source: Vec<SourceFrame>| {
            let function = Some(("main".to_owned(), 0x2c5));
            Place { module: "/bin/list".to_owned(), offset: 0, function, source }.to_string()
        };
        assert_eq!(shown(vec![own.clone()]), "main+0x2c5 at /src/list.cc:17");
        assert_eq!(
            shown(vec![frame("add", "/src/list.cc", 4), own.clone()]),
            "main+0x2c5 at /src/list.cc:4 (add, inlined)"
        );
        assert_eq!(
            shown(vec![frame("deallocate", header, 158), frame("erase", header, 9), own]),
            format!("main+0x2c5 at {header}:158 (deallocate, inlined at /src/list.cc:17)")
        );
        assert_eq!(
            shown(vec![frame("deallocate", header, 158), frame("erase", header, 9)]),
            format!("main+0x2c5 at {header}:158 (deallocate, inlined)")
        );
    }
}
