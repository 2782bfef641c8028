//! A core, opened with the program that left it, its libraries, and what was taken out of these.

use crate::debug_files::DebugFiles;
use crate::exit::{Code, Failure};
use crate::kernel;
use crate::log::say;
use crate::shell;
use crate::summary::crashed_too;
use crate::units::size_of;
use lbr::regular;
use std::path::{Path, PathBuf};
use synth::program::Program;
use vmm::checkpoints::Shelf;
use vmm::dump::leaves_core;
use vmm::elfcore::{
    AT_ENTRY, AT_SYSINFO_EHDR, Core, CoreError, Damage, Library, Module, build_id, signal_name,
};
use vmm::journal::{End, JournalError, Reader, Record};
use vmm::ram::PAGE;
use vmm::recording::Recording;

/// Says on stderr what the core lacks.
/// Where so many mappings are missing, they are summed up: a core that is cut early lacks nearly all that it had.
const MOST_MISSING: usize = 3;

pub(crate) fn warn_of_damage(core: &Core) {
    let (missing, others): (Vec<&Damage>, Vec<&Damage>) =
        core.damage.iter().partition(|damage| !damage.missing.is_empty());
    let each = if missing.len() > MOST_MISSING { others } else { core.damage.iter().collect() };
    for damage in each {
        say!("gretel: core {} is damaged: {damage}", core.path.display());
    }
    if let Some(summary) = summed_up(&missing) {
        let path = shell::word(&core.path);
        say!("gretel: core {} is damaged: {summary}", core.path.display());
        say!("gretel: `gretel core --json {path}` lists what is missing, as .damage");
    }
}

/// Many mappings that are missing, as one sentence.
fn summed_up(missing: &[&Damage]) -> Option<String> {
    let cut = missing.first().filter(|_| missing.len() > MOST_MISSING)?.offset;
    let bytes = missing.iter().map(|damage| damage.missing.end - damage.missing.start).sum();
    let first: Vec<String> = missing[..MOST_MISSING]
        .iter()
        .map(|damage| format!("{:#x}-{:#x}", damage.missing.start, damage.missing.end))
        .collect();
    Some(format!(
        "the file is cut at offset {cut:#x}, and lacks {} of memory in {} mappings: {} and {} more",
        size_of(bytes),
        missing.len(),
        first.join(", "),
        missing.len() - MOST_MISSING
    ))
}

/// A core with its executable, where there is one, and the libraries that were loaded with it.
pub(crate) struct Opened {
    pub(crate) core: Core,
    pub(crate) executable: Option<(Vec<u8>, PathBuf)>,
    /// What was taken out of the executable, where that is found.
    debug: Option<Vec<u8>>,
    libraries: Vec<Loaded>,
    /// Gretel's own vDSO, as the core has it, and where it is.
    vdso: Option<(Vec<u8>, u64)>,
}

/// A library.
struct Loaded {
    bytes: Vec<u8>,
    /// What was added to the addresses in it.
    bias: u64,
    /// What was taken out of it.
    debug: Option<Vec<u8>>,
}

impl Opened {
    /// The size of the program and of the libraries, with what was taken out of them.
    pub(crate) fn code_bytes(&self) -> usize {
        let of = |bytes: &Option<Vec<u8>>| bytes.as_ref().map_or(0, Vec::len);
        let program = self.executable.as_ref().map_or(0, |(bytes, _)| bytes.len()) + of(&self.debug);
        let libraries = self.libraries.iter().map(|library| library.bytes.len() + of(&library.debug));
        program + libraries.sum::<usize>()
    }

    /// The executable with its symbols, and where it was loaded; or why there is none.
    pub(crate) fn program(&self) -> Result<(Program, u64), String> {
        let Some((bytes, path)) = &self.executable else {
            return Err("no executable is known: give it with --exe PROG".to_owned());
        };
        let bias = self.core.aux(AT_ENTRY).map_or(Ok(0), |entry| Program::load_bias(bytes, entry));
        let program = |bias| {
            let modules = self.modules(bytes, bias);
            let without = || Program::from_modules(modules[0], &modules[1..], None);
            let Some((bytes, start)) = &self.vdso else { return Ok((without()?, bias)) };
            let vdso = Module { bytes, bias: *start, debug: None };
            let with = Program::from_modules(modules[0], &modules[1..], Some(vdso));
            // The program may have written there, and cores come from anywhere.
            let program = match with {
                Ok(program) => program,
                Err(error) => {
                    let program = without()?;
                    say!("gretel: the vDSO in the core: {error}; its code is left out: suffixes end there");
                    program
                }
            };
            Ok((program, bias))
        };
        bias.and_then(program).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The executable, and behind it the libraries.
    pub(crate) fn modules<'a>(&'a self, executable: &'a [u8], bias: u64) -> Vec<Module<'a>> {
        let libraries = self.libraries.iter();
        let libraries =
            libraries.map(|it| Module { bytes: &it.bytes, bias: it.bias, debug: it.debug.as_deref() });
        let program = Module { bytes: executable, bias, debug: self.debug.as_deref() };
        std::iter::once(program).chain(libraries).collect()
    }
}

/// Opens the core that the command line means.
pub(crate) fn open(
    input: &Path,
    exe: Option<&Path>,
    debug_files: &mut DebugFiles,
) -> Result<Opened, Failure> {
    let is_dir = input.is_dir();
    if let Ok(recording) = Recording::open(input) {
        kernel::refuse(&recording)?;
    }
    if !is_dir && board::vmcore::is_one(input) {
        let why = format!("{} is the core of a kernel: `gretel core` shows it", input.display());
        return Err(Failure::new(Code::Usage, why));
    }
    let path = if is_dir { input.join("core") } else { input.to_owned() };
    if is_dir && !path.exists() {
        return Err(why_no_core(input));
    }
    let damaged = |e: CoreError| Failure::new(Code::Damaged, e);
    let core = Core::open(&path).map_err(damaged)?;
    let Some(exe) = executable(&core, &path, exe)? else {
        return Ok(Opened { core, executable: None, debug: None, libraries: Vec::new(), vdso: None });
    };
    let mut core = core.with_executable(&exe).map_err(damaged)?;
    let bytes = regular::read(&exe)
        .map_err(|e| Failure::new(Code::Damaged, format!("cannot read {}: {e}", exe.display())))?;
    let debug = debug_files.of(&exe, &bytes);
    let libraries = libraries(&mut core, debug_files);
    let vdso = vdso(&core);
    Ok(Opened { core, executable: Some((bytes, exe)), debug, libraries, vdso })
}

/// The vDSO that gretel gives its guests, whose code is in no file. Linux's own reads the time-stamp counter, and pages that no core
/// has.
fn vdso(core: &Core) -> Option<(Vec<u8>, u64)> {
    core.origin.as_deref().filter(|origin| !origin.is_empty())?;
    let start = core.aux(AT_SYSINFO_EHDR)?;
    let mut bytes = Vec::new();
    for (_, part) in core.known(start..start.checked_add(PAGE)?) {
        bytes.extend_from_slice(part);
    }
    (bytes.len() as u64 == PAGE && bytes.starts_with(b"\x7fELF")).then_some((bytes, start))
}

/// A core with fewer bytes of code that are not its program's is damaged; with more it is another program's.
const FEW: usize = 64;

/// The program that left the core: the one that was named, else the one beside it, else the one that the core names, since
/// a program that was started executed it.
fn executable(core: &Core, path: &Path, named: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let damaged = |e: CoreError| Failure::new(Code::Damaged, e);
    if let Some(named) = named {
        if let Some(why) = core.executable_start().and_then(|start| other_build(core, start, named)) {
            let (core, named) = (path.display(), named.display());
            return Err(Failure::new(
                Code::Usage,
                format!("{named} is not the program that left {core}: {why}"),
            ));
        }
        let (differing, first) = core.differing_code(named).map_err(damaged)?;
        if differing >= FEW {
            let (core, named) = (path.display(), named.display());
            let why =
                format!("{named} is not the program that left {core}: {differing} bytes of its code differ");
            return Err(Failure::new(Code::Usage, why));
        }
        warn_of_code(path, named, differing, first);
        return Ok(Some(named.to_owned()));
    }
    let beside = path.with_file_name("program");
    let candidates = [Some(beside.as_path()), core.executable_path()];
    for candidate in candidates.into_iter().flatten().filter(|candidate| candidate.is_file()) {
        let is_other = core.executable_start().and_then(|start| other_build(core, start, candidate));
        match core.differing_code(candidate) {
            Ok((differing, first)) if differing < FEW && is_other.is_none() => {
                warn_of_code(path, candidate, differing, first);
                return Ok(Some(candidate.to_owned()));
            }
            Err(error) if candidate == beside => return Err(damaged(error)),
            _ => {}
        }
    }
    Ok(None)
}

/// In which way a file is not the one whose beginning is mapped at `start`, as far as build-ids tell.
fn other_build(core: &Core, start: u64, file: &Path) -> Option<String> {
    let loaded = core.build_id_at(start)?;
    let own = build_id::of_file(&regular::read(file).ok()?)?;
    let text = build_id::text;
    (own != loaded).then(|| format!("its build-id is {}, and {} ran", text(&own), text(&loaded)))
}

/// Says that a part of the code is not as it is in the program's file.
fn warn_of_code(core: &Path, executable: &Path, differing: usize, first: Option<u64>) {
    if let Some(first) = first {
        say!(
            "gretel: core {} is damaged: {differing} bytes of code are not as in {}, the first at {first:#x}",
            core.display(),
            executable.display()
        );
    }
}

/// The libraries that were loaded, as far as their files are here; of the others it is said what that means.
fn libraries(core: &mut Core, debug_files: &mut DebugFiles) -> Vec<Loaded> {
    let mut taken = Vec::new();
    for library in core.libraries() {
        match load(core, &library) {
            Ok((bytes, bias)) => {
                let debug = debug_files.of(&library.path, &bytes);
                taken.push(Loaded { bytes, bias, debug });
            }
            Err(why) => say!(
                "gretel: {why}; its code is left out: frames there have no names, and suffixes end there"
            ),
        }
    }
    taken
}

/// Takes a library's code into the core; gives its bytes, and what was added to its addresses.
fn load(core: &mut Core, library: &Library) -> Result<(Vec<u8>, u64), String> {
    let path = library.path.display();
    if let Some(why) = other_build(core, library.start, &library.path) {
        return Err(format!("{path} is not the file that was loaded: {why}"));
    }
    let bias = core.take_library(library).map_err(|error| error.to_string())?;
    let bytes = regular::read(&library.path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok((bytes, bias))
}

/// Why there is no core in this folder, and what to do about it. That the program did not crash is no damage.
fn why_no_core(dir: &Path) -> Failure {
    let shown = dir.display();
    let end = Recording::open(dir).map_err(|e| e.to_string()).and_then(|recording| {
        let read = |e: JournalError| e.to_string();
        let shelf = Shelf::open(&recording).map_err(|e| e.to_string())?;
        let mut journal = Reader::open_all(shelf.journals()).map_err(read)?;
        while let Some(record) = journal.take().map_err(read)? {
            if let Record::End(end) = record {
                return Ok(Some(end));
            }
        }
        Ok(None)
    });
    let crashed = match &end {
        Ok(Some(End::Killed(death))) => leaves_core(death),
        Ok(Some(End::Exited(_) | End::Interrupted | End::Stopped)) => false,
        Ok(Some(End::Full | End::Kept) | None) | Err(_) => true,
    };
    let why = match end {
        Err(why) => return Failure::new(Code::Damaged, why),
        Ok(None) => format!(
            "its journal has no end, since the recorder was stopped before the program ended; `gretel replay {}` runs \
             what there is",
            shell::word(dir)
        ),
        Ok(Some(End::Exited(_))) => "the recorded program did not crash".to_owned(),
        Ok(Some(End::Interrupted)) => "the recorded program did not crash, it was interrupted".to_owned(),
        Ok(Some(End::Stopped)) => {
            "the recorded program did not crash, the recorder could not go on and said why".to_owned()
        }
        Ok(Some(End::Full)) => "the recording ended at its room on disk, before the program did".to_owned(),
        Ok(Some(End::Kept)) => "it is a window that was kept before the program ended".to_owned(),
        Ok(Some(End::Killed(death))) => {
            let signal = signal_name(death.signal).unwrap_or("a signal");
            if leaves_core(&death) {
                format!(
                    "the recorded program crashed with {signal}, but its core was not written, or is lost: record it \
                     again, where there is room"
                )
            } else {
                format!("the recorded program did not crash, it was ended by {signal}")
            }
        }
    };
    let code = if crashed { Code::Damaged } else { Code::Usage };
    let instead = Recording::open(dir).ok().and_then(|it| {
        let others = it.others_with_cores();
        let core = it.core_of(*others.last()?);
        Some(format!("; {}: name {} in its place", crashed_too(&others)?, shell::word(&core)))
    });
    Failure::new(code, format!("{shown} has no core: {why}{}", instead.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_missing_mappings_are_one_sentence() {
        let missing: Vec<Damage> = (0..5_u64)
            .map(|n| Damage { offset: 0x100 + n, what: String::new(), missing: n << 20..(n << 20) + 0x1000 })
            .collect();
        let of = |count: usize| summed_up(&missing[..count].iter().collect::<Vec<_>>());
        assert_eq!(of(MOST_MISSING), None);
        assert_eq!(
            of(5).as_deref(),
            Some(
                "the file is cut at offset 0x100, and lacks 20.5 kB of memory in 5 mappings: 0x0-0x1000, \
                 0x100000-0x101000, 0x200000-0x201000 and 2 more"
            )
        );
    }
}
