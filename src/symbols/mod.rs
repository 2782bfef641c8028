//! The symbols of a program that stands in its recording: functions, source lines, stacks.
//!
//! [`Symbols::look`] takes what is mapped now; all else is asked of that. [`files`] says where a module's bytes come from, [`module`] is
//! one that is parsed, [`inlined`] knows functions without code, [`place`] is an address as people see it. From source lines to
//! addresses it is [`crate::values`]'s line table that goes.
//!
//! Example: at a crash in `strcpy`, `look` finds libc.so.6 mapped at 0x7ffff7a00000, and its bytes in the recording's folder `files`;
//! `place(0x7ffff7aa9b5a)` is `strcpy+0x1a (libc.so.6)`, and the second frame of `backtrace` is `main+0xe2 at orders.c:28`.

mod files;
mod inlined;
mod module;
mod place;

use crate::debug_files::DebugFiles;
use crate::values::Info;
use files::{Files, HEADERS};
pub(crate) use module::Loaded;
pub(crate) use place::Place;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use synth::program::{Symbol, demangled};
use vmm::elfcore::unwind::{self, Backtrace, FoundBy, Frame, Tables};
use vmm::memory::MappingInfo;
use vmm::process::Process;
use x86::state::Regs;

/// The name of the kernel's own library, which is in memory alone.
const VDSO: &str = "[vdso]";

/// So many similar names are found.
const SIMILAR: usize = 5;

/// A file's name, where it is mapped, and its beginning.
type Key = (String, u64, Vec<u8>);

/// The symbols of the process that was looked at last.
pub(crate) struct Symbols {
    files: Files,
    debug_files: DebugFiles,
    /// All that was parsed, for whichever process.
    parsed: HashMap<Key, Option<Rc<Loaded>>>,
    /// The process, and what it had mapped.
    pid: i32,
    mappings: Vec<MappingInfo>,
    /// What of that is a program or a library, by address.
    modules: Vec<Rc<Loaded>>,
}

/// A stack with names.
pub(crate) struct Trace {
    /// The innermost first.
    pub(crate) frames: Vec<(Frame, Place)>,
    /// Why it has no more frames, if that is not because the program began there.
    pub(crate) stopped: Option<String>,
}

impl Trace {
    /// The same up to `main`: what starts a program is no news.
    #[must_use]
    pub(crate) fn up_to_main(mut self) -> Trace {
        if let Some(main) = self.frames.iter().position(|(_, place)| place.function() == Some("main")) {
            self.frames.truncate(main + 1);
            self.stopped = None;
        }
        self
    }
}

impl Symbols {
    /// Those of the recording in `dir`. To be made before gretel confines itself: what brings separate debug files is started here.
    pub(crate) fn of(dir: &Path) -> Symbols {
        Symbols {
            files: Files::of(dir),
            debug_files: DebugFiles::new(),
            parsed: HashMap::new(),
            pid: 0,
            mappings: Vec::new(),
            modules: Vec::new(),
        }
    }

    /// Takes what the loaded process has mapped now. Where that is what it had, nothing is done.
    pub(crate) fn look(&mut self, process: &Process) {
        let mappings = process.mappings();
        if self.pid == process.pid() && self.mappings == mappings {
            return;
        }
        (self.pid, self.mappings) = (process.pid(), mappings);
        let mut modules: Vec<Rc<Loaded>> = Vec::new();
        for mapping in self.mappings.clone() {
            let is_module =
                mapping.file_offset == 0 && (mapping.name.starts_with('/') || mapping.name == VDSO);
            // Two segments may share the first page of their file.
            let again = modules.iter().any(|it| it.names().extent().contains(&mapping.start));
            if is_module && !again && self.is_code(&mapping.name) {
                modules.extend(self.load(process, &mapping));
            }
        }
        // A file that is mapped as data is no module.
        modules.retain(|module| {
            let extent = module.names().extent();
            let code = self.mappings.iter().filter(|it| it.rights.execute && it.name == module.path());
            code.into_iter().any(|it| it.start < extent.end && extent.start < it.end)
        });
        self.modules = modules;
    }

    fn is_code(&self, name: &str) -> bool {
        self.mappings.iter().any(|it| it.rights.execute && it.name == name)
    }

    /// The file whose beginning is mapped there, parsed.
    fn load(&mut self, process: &Process, mapping: &MappingInfo) -> Option<Rc<Loaded>> {
        let mut begins = vec![0; HEADERS];
        process.read_memory(mapping.start, &mut begins);
        if !begins.starts_with(b"\x7fELF") {
            return None;
        }
        let key = (mapping.name.clone(), mapping.start, begins);
        if let Some(known) = self.parsed.get(&key) {
            return known.clone();
        }
        let (name, start, begins) = (&key.0, key.1, &key.2);
        let loaded = if name == VDSO {
            let mut bytes = vec![0; usize::try_from(mapping.end - mapping.start).unwrap_or(0)];
            process.read_memory(start, &mut bytes);
            Loaded::parse(name, start, &bytes, None)
        } else {
            Loaded::find(name, start, begins, &mut self.files, &mut self.debug_files)
        };
        let loaded = loaded.map(Rc::new);
        self.parsed.insert(key, loaded.clone());
        loaded
    }

    /// What modules there are: equal for those of two processes that have the same ones at the same places.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for module in &self.modules {
            (module.path(), module.names().extent()).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The module that an address is in, with its debug information ([`Loaded::dwarf`], [`Loaded::bias`]).
    pub(crate) fn module_at(&self, address: u64) -> Option<&Loaded> {
        self.modules.iter().find(|it| it.names().extent().contains(&address)).map(|it| &**it)
    }

    /// What an address is in; `None` where nothing is mapped.
    pub(crate) fn place(&self, address: u64) -> Option<Place> {
        self.place_by(address, address)
    }

    /// The same of a call, by its return address.
    pub(crate) fn place_of_call(&self, address: u64) -> Option<Place> {
        self.place_by(address, address.wrapping_sub(1))
    }

    /// What an address is in, where `lookup` is inside the instruction.
    fn place_by(&self, address: u64, lookup: u64) -> Option<Place> {
        let after = self.mappings.partition_point(|it| it.start <= lookup);
        let mapping = self.mappings[..after].last().filter(|it| lookup < it.end)?;
        Some(Place::of(address, lookup, mapping, self.module_at(lookup)))
    }

    /// The extents of the function that an address is in: its own, and that of its part that seldom runs (`f.cold`), wherever the
    /// address is.
    pub(crate) fn parts_of(&self, address: u64) -> Vec<Range<u64>> {
        let Some(names) = self.module_at(address).map(Loaded::names) else { return Vec::new() };
        let Some(function) = names.function_at(address) else { return Vec::new() };
        let whole = function.name.split(".cold").next().unwrap_or(&function.name);
        let is_part = |name: &str| {
            name.strip_prefix(whole).is_some_and(|rest| rest.is_empty() || rest.starts_with(".cold"))
        };
        let parts = names.symbols().iter().filter(|symbol| is_part(&symbol.name));
        let mut parts: Vec<(bool, u64)> = parts.map(|it| (it.name != whole, it.start)).collect();
        parts.sort_unstable();
        parts.dedup();
        let extent = |(_, start): (bool, u64)| names.function_at(start).map(|it| it.start..it.end);
        let mut found: Vec<Range<u64>> = parts.into_iter().filter_map(extent).collect();
        // Functions of one name in several files are not parts of each other.
        let has_own = found.iter().filter(|part| part.contains(&address)).count() == 1;
        let wholes = names.symbols().iter().filter(|symbol| symbol.name == whole).count();
        if !has_own || wholes != 1 {
            found.clear();
            found.push(function.start..function.end);
        }
        found
    }

    /// The functions of this name, with where they begin: the linker's name or the source's, with or without its parameters; where
    /// there is none, those whose name in their class or module it is. A copy that the compiler made for some callers
    /// (`f.constprop.0`, `f.isra.0`) is one too.
    pub(crate) fn functions(&self, name: &str) -> Vec<(u64, &Symbol)> {
        let symbols = || self.modules.iter().flat_map(|module| module.names().symbols());
        let mut found: Vec<&Symbol> = symbols().filter(|it| is_called(&it.name, name, false)).collect();
        if found.is_empty() {
            found = symbols().filter(|it| is_called(&it.name, name, true)).collect();
        }
        found.sort_by_key(|symbol| symbol.start);
        found.dedup_by_key(|symbol| symbol.start);
        found.into_iter().map(|symbol| (symbol.start, symbol)).collect()
    }

    /// Where code begins whose linker's name `of` knows, with what it knows.
    pub(crate) fn named<T>(&self, of: impl Fn(&str) -> Option<T>) -> Vec<(u64, T)> {
        let symbols = self.modules.iter().flat_map(|module| module.names().symbols());
        symbols.filter_map(|symbol| Some((symbol.start, of(&symbol.name)?))).collect()
    }

    /// What a name is bound to in the tables of the modules that call it: of one that is chosen when the program starts, the choice.
    pub(crate) fn bound(&self, process: &Process, name: &str) -> Vec<u64> {
        let slots = self.modules.iter().flat_map(|module| module.slots());
        let mut found: Vec<u64> = slots
            .filter(|(of, _)| of == name)
            .filter_map(|(_, slot)| {
                let mut word = [0; 8];
                process.read_memory(*slot, &mut word).then(|| u64::from_le_bytes(word))
            })
            // One that was never called is bound to the code that binds it, which has no name.
            .filter(|address| self.place(*address).is_some_and(|place| place.is_beginning()))
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Variables that a symbol table has by this name, with the bytes that they are, by address.
    pub(crate) fn objects(&self, name: &str) -> Vec<Range<u64>> {
        let mut found: Vec<_> =
            self.modules.iter().flat_map(|module| module.objects(name)).cloned().collect();
        found.sort_by_key(|range| (range.start, range.end));
        found.dedup();
        found
    }

    /// Some functions whose names have this in them, the shortest first.
    pub(crate) fn similar(&self, part: &str) -> Vec<String> {
        let symbols = self.modules.iter().flat_map(|module| module.names().symbols());
        let names = symbols.map(|symbol| demangled(&symbol.name)).filter(|name| name.contains(part));
        let mut names: Vec<String> = names.map(|name| without_parameters(&name).to_owned()).collect();
        names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        names.dedup();
        names.truncate(SIMILAR);
        names
    }

    /// Whether the source has a function of this name that the compiler inlined.
    pub(crate) fn is_inlined(&self, name: &str) -> bool {
        self.modules.iter().any(|module| inlined::has(module, name))
    }

    /// Where the code of a source line begins, in each function that has some of it. The file is matched by the end of its path.
    pub(crate) fn addresses_of_line(&self, file: &Path, line: u32) -> Vec<u64> {
        let is_it = |path: &str| Path::new(path).ends_with(file);
        let of = |module: &Rc<Loaded>| {
            let info = Info::new(Arc::clone(module.dwarf()?), module.bias(), None);
            let info = Rc::new(info.of_file(Path::new(module.path())));
            // The next line that has code is not the one that was asked for.
            info.line(&is_it, line).filter(|found| found.line == line)
        };
        self.modules.iter().filter_map(of).flat_map(|found| found.addresses).collect()
    }

    /// The stack of a thread of the loaded process, at most so many frames.
    pub(crate) fn backtrace(&self, process: &Process, thread: i32, most: usize) -> Trace {
        let Some(regs) = registers(process, thread) else {
            let stopped = Some(format!("there is no thread {thread} in process {}", process.pid()));
            return Trace { frames: Vec::new(), stopped };
        };
        self.backtrace_from(process, &regs, most)
    }

    /// The stack of the loaded process that these registers belong to, at most so many frames.
    pub(crate) fn backtrace_from(&self, process: &Process, regs: &Regs, most: usize) -> Trace {
        let stack = self.walk_from(process, regs, most);
        let named = |(n, frame): (usize, &Frame)| {
            // The kernel made a handler return to the beginning of this function, which nobody called.
            let restores = stack.frames.get(n + 1).is_some_and(|caller| caller.by == FoundBy::Signal);
            let lookup = if restores { frame.rip } else { frame.lookup_address() };
            Some((*frame, self.place_by(frame.rip, lookup)?))
        };
        let frames = stack.frames.iter().enumerate().filter_map(named).collect();
        Trace { frames, stopped: stack.stopped }
    }

    /// The stack of a thread without names; `None` where there is no such thread.
    pub(crate) fn walk(&self, process: &Process, thread: i32, most: usize) -> Option<Backtrace> {
        Some(self.walk_from(process, &registers(process, thread)?, most))
    }

    fn walk_from(&self, process: &Process, regs: &Regs, most: usize) -> Backtrace {
        let tables: Vec<&Tables> = self.modules.iter().map(|module| module.tables()).collect();
        unwind::walk(process, regs, &tables, most)
    }

    /// How the stack pointer before the call is found at an address, as [`Tables::cfa`].
    pub(crate) fn cfa_rule(&self, address: u64) -> Option<(u16, i64)> {
        self.module_at(address)?.tables().cfa(address)
    }

    /// The program and its libraries, by address.
    pub(crate) fn modules(&self) -> &[Rc<Loaded>] {
        &self.modules
    }
}

/// The registers of a thread of the loaded process.
fn registers(process: &Process, thread: i32) -> Option<Regs> {
    if thread == process.thread() {
        return Some(*process.cpu().regs());
    }
    process.other_threads().find(|(id, _)| *id == thread).map(|(_, state)| state.regs)
}

/// Whether somebody who writes `wanted` means the symbol `name`; if `within`, they may have left out what it is in.
fn is_called(name: &str, wanted: &str, within: bool) -> bool {
    if name == wanted {
        return true;
    }
    if let Some((base, suffix)) = name.split_once('.')
        && base == wanted
    {
        return ["constprop", "isra"].iter().any(|made| suffix.starts_with(made));
    }
    if !name.starts_with("_Z") && !name.starts_with("_R") {
        return false;
    }
    let source = demangled(name);
    [&*source, without_parameters(&source)].into_iter().any(|source| {
        let before = source.strip_suffix(wanted);
        before.is_some_and(|before| before.is_empty() || within && before.ends_with("::"))
    })
}

/// `Cache::get` for `Cache::get(int) const`.
pub(crate) fn without_parameters(name: &str) -> &str {
    let end = name.rfind(')').unwrap_or(0);
    let mut depth = 0;
    for (at, c) in name[..end].char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' if depth == 0 => return &name[..at],
            '(' => depth -= 1,
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::is_called;

    #[test]
    fn a_function_has_several_names() {
        for wanted in ["_ZN5Cache3getEi", "Cache::get(int)", "Cache::get"] {
            assert!(is_called("_ZN5Cache3getEi", wanted, false), "{wanted}");
        }
        assert!(is_called("_ZN5CacheclEPFvvE", "Cache::operator()", false));
        assert!(is_called("order.constprop.0", "order", false) && !is_called("order.cold", "order", false));
        assert!(!is_called("ordered", "order", true) && !is_called("_ZN5Cache3getEi", "get", false));
        assert!(is_called("_ZN5Cache3getEi", "get", true) && !is_called("_ZN5Cache3getEi", "et", true));
    }
}
