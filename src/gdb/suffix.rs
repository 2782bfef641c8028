//! A suffix as a target: the crash that it ends in, and the instructions before it, each with the registers and the memory that the
//! certificate's run has there. It is certified again first, so that nothing is shown that does not end in the core.
//!
//! A suffix of one thread is shown; one with switches of threads is refused. Memory that neither the core nor the suffix has is told as not there.
//!
//! Example: `gretel gdb rec --suffix suffix.json`, and then `reverse-stepi`, `watch -l *p`, `reverse-continue`, `monitor origins`.

mod origins;

use super::agent::World;
use super::ids::Id;
use super::points::Point;
use super::registers::{self, Shown};
use super::session::Session;
use super::stream::Stream;
use super::target::{Stopped, Target, Task, Way, Why, Wishes};
use crate::Outcome;
use crate::debug_files::DebugFiles;
use crate::exit::{Code, Failure};
use crate::kernel::{Source, Taken};
use crate::log::say;
use crate::opened;
use crate::sandbox;
use crate::synth::{Usable, Use, anchors, deep, usable};
use origins::Origins;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use synth::certificate::walk::Walk;
use synth::certificate::{CertificateError, Request, Verdict, certify};
use synth::evidence::Anchors;
use synth::suffix::Suffix;
use vmm::elfcore::Core;
use vmm::engine::lookout::Accessed;
use vmm::memory::MappingInfo;
use vmm::signal::Death;
use vmm::travel::Stop;

/// What a run under KVM may take. None is made: the software CPU is what is walked on.
const TIME: Duration = Duration::from_secs(10);

const HELP: &str = "\
monitor when                 how many instructions before the crash
monitor goto N               go to N instructions before the crash
monitor origins              what of the start is in the core, is forced, was chosen
monitor origins ADDR LEN     the same of some bytes of memory at the start
";

/// A suffix, and what it is of.
pub(super) struct Files {
    suffix: PathBuf,
    /// A core, or a recording's folder.
    input: PathBuf,
}

impl Files {
    /// Those that the command line means; `None` where it means a recording.
    pub(super) fn of(named: &Path, suffix: Option<&Path>) -> Result<Option<Files>, Failure> {
        if let Some(suffix) = suffix {
            // Here, since gdb's own words would hide it later.
            refuse_turns(suffix, &Suffix::load(suffix).map_err(|e| Failure::new(Code::Damaged, e))?)?;
            if !named.exists() {
                let why = format!("there is no recording or core {}", named.display());
                return Err(Failure::new(Code::Damaged, why));
            }
            return Ok(Some(Files { suffix: suffix.to_owned(), input: named.to_owned() }));
        }
        // A recording is a folder, or its journal is.
        let Some(suffix) = Some(named).filter(|named| named.is_file()).and_then(|it| Suffix::load(it).ok())
        else {
            return Ok(None);
        };
        refuse_turns(named, &suffix)?;
        let folder =
            named.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let input = folder.join("core");
        if !input.is_file() {
            let why =
                format!("{} is a suffix; name its core: `gretel gdb DIR|CORE --suffix {0}`", named.display());
            return Err(Failure::new(Code::Usage, why));
        }
        Ok(Some(Files { suffix: named.to_owned(), input }))
    }
}

/// A debugger would be shown one thread where several run.
fn refuse_turns(path: &Path, suffix: &Suffix) -> Result<(), Failure> {
    let Some(turn) = suffix.switches().last() else { return Ok(()) };
    let why = format!(
        "{}: {} threads take turns in this suffix, and gdb is served suffixes of one; `gretel synth --instructions {}` makes one of \
         the thread that crashed",
        path.display(),
        suffix.others.len() + 1,
        suffix.len() - turn.step
    );
    Err(Failure::new(Code::Usage, why))
}

/// Certifies the suffix, and serves it to a debugger.
pub(super) fn serve(
    files: &Files,
    exe: Option<&Path>,
    connect: impl FnOnce() -> Result<Stream, Failure> + Send,
) -> Outcome {
    deep(|| serve_deep(files, exe, connect))
}

fn serve_deep(
    files: &Files,
    exe: Option<&Path>,
    connect: impl FnOnce() -> Result<Stream, Failure>,
) -> Outcome {
    let suffix = Suffix::load(&files.suffix).map_err(|e| Failure::new(Code::Damaged, e))?;
    let Crashed { core, usable, anchors, program } = crashed(&files.input, exe)?;
    let stream = connect()?;
    sandbox::enter();
    check(&core, &usable, &anchors, &suffix)?;
    let origins = Origins::of(&suffix);
    say!(
        "gretel: the last {} instructions before the crash, as one way that they can have run",
        suffix.len()
    );
    say!("gretel: {}; `monitor origins` says which", origins.summary());
    let mut suffixed = Suffixed {
        walk: Walk::new(&core, &suffix).map_err(failed)?,
        core: &core,
        program,
        origins,
        len: suffix.len(),
        told_crash: true,
        asks: Arc::default(),
    };
    suffixed.walk.seek(suffix.len()).map_err(failed)?;
    let stands = suffixed.stands(Why::There);
    Session::new(stream, &mut suffixed, stands).serve()?;
    Ok(ExitCode::SUCCESS)
}

/// The core that a suffix is of.
struct Crashed {
    core: Core,
    /// Its branch records.
    usable: Usable,
    /// Its crumbs.
    anchors: Anchors,
    /// The path of its program. Of a kernel that is the vmlinux that gdb is given.
    program: Option<Vec<u8>>,
}

fn crashed(input: &Path, exe: Option<&Path>) -> Result<Crashed, Failure> {
    if let Some(source) = Source::of(input) {
        let taken = Taken::of(&source, exe)?;
        let (usable, anchors) = taken.evidence(Use::Counts)?;
        return Ok(Crashed { core: taken.core, usable, anchors, program: None });
    }
    let opened = opened::open(input, exe, &mut DebugFiles::none())?;
    opened::warn_of_damage(&opened.core);
    let program = opened.executable.as_ref().map(|(_, path)| absolute(path));
    let executable = opened.executable.as_ref().map(|(bytes, _)| bytes.as_slice());
    let anchors = anchors(&opened.core, executable, Use::Contexts)?;
    let core = opened.core;
    let damaged = |why| Failure::new(Code::Damaged, format!("{}: {why}", core.path.display()));
    let trail = core.trail().map_err(damaged)?;
    let usable = usable(trail.as_ref())?;
    Ok(Crashed { core, usable, anchors, program })
}

fn absolute(path: &Path) -> Vec<u8> {
    // One that cannot be named so is named as it is.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.into_os_string().into_encoded_bytes()
}

/// Runs it forward to the core.
fn check(
    core: &Core,
    (records, recorded): &Usable,
    anchors: &Anchors,
    suffix: &Suffix,
) -> Result<(), Failure> {
    let request = Request { core, suffix, records, recorded, anchors, time: TIME, kvm: false };
    let refused =
        |why: String| Failure::new(Code::Usage, format!("the suffix does not end in this core: {why}"));
    match certify(&request).map_err(failed)? {
        Verdict::Certified(_) => Ok(()),
        Verdict::Rejected(difference) => Err(refused(difference.to_string())),
        Verdict::Refused { step, reason } => Err(refused(format!("at instruction {step}: {reason}"))),
    }
}

fn failed(error: CertificateError) -> Failure {
    Failure::new(Code::Other, error)
}

/// A suffix that is debugged.
struct Suffixed<'a> {
    walk: Walk<'a>,
    core: &'a Core,
    program: Option<Vec<u8>>,
    origins: Origins,
    len: usize,
    /// The crash was told, and nothing has moved since.
    told_crash: bool,
    asks: Arc<AtomicBool>,
}

/// The state before an instruction, as conditions see it.
struct Here<'a, 'b>(&'a Walk<'b>);

impl World for Here<'_, '_> {
    fn register(&self, number: u16) -> Option<u64> {
        registers::word(self.0.regs(), number)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read(address, bytes)
    }
}

impl Suffixed<'_> {
    fn stands(&self, why: Why) -> Stopped {
        Stopped { id: self.loaded(), why }
    }

    /// The data that the instruction which is next accesses, of what is watched.
    fn watched(&mut self, wishes: &Wishes) -> Result<Option<Why>, CertificateError> {
        let (pid, rip) = (self.loaded().pid, self.walk.regs().rip);
        for access in self.walk.accesses()? {
            let lookouts = wishes.points.lookouts();
            let found = lookouts.get(&pid).and_then(|lookout| lookout.watched(&access.range, access.writes));
            let Some(address) = found else { continue };
            let accessed = Accessed { rip, address, len: access.range.end - address, writes: access.writes };
            let hit = wishes.points.hit(pid, Stop::Accessed(accessed), &Here(&self.walk));
            if let Some(Point { kind, address, .. }) = hit {
                return Ok(Some(Why::Point(*kind, *address)));
            }
        }
        Ok(None)
    }

    /// The breakpoint at the instruction which is next.
    fn breakpoint(&self, wishes: &Wishes) -> Option<Why> {
        let stop = Stop::Breakpoint(self.walk.regs().rip);
        let hit = wishes.points.hit(self.loaded().pid, stop, &Here(&self.walk));
        hit.map(|point| Why::Point(point.kind, point.address))
    }

    /// Runs to the first breakpoint or access, or one instruction, or out of a range.
    fn forward(
        &mut self,
        wishes: &Wishes,
        step: bool,
        range: Option<(u64, u64)>,
    ) -> Result<Why, CertificateError> {
        while !self.asks.load(Ordering::Relaxed) {
            let watched = self.watched(wishes)?;
            if !self.walk.step()? {
                let told = std::mem::replace(&mut self.told_crash, true);
                return Ok(if told { Why::End } else { Why::Signal(self.core.signal.signo) });
            }
            if let Some(why) = watched {
                return Ok(why);
            }
            let rip = self.walk.regs().rip;
            let leaves = range.is_none_or(|(start, end)| !(start..end).contains(&rip));
            if step && leaves {
                return Ok(Why::There);
            }
            if let Some(why) = self.breakpoint(wishes) {
                return Ok(why);
            }
            if self.walk.ended() && !std::mem::replace(&mut self.told_crash, true) {
                return Ok(Why::Signal(self.core.signal.signo));
            }
        }
        Ok(Why::Asked)
    }

    /// Goes to the last breakpoint or access before here, or one instruction back.
    fn back(&mut self, wishes: &Wishes, step: bool) -> Result<Why, CertificateError> {
        let here = self.walk.at();
        let (mut last, mut found) = (0, Why::Begin);
        self.walk.seek(0)?;
        while self.walk.at() < here {
            let at = self.walk.at();
            let why = match self.watched(wishes)? {
                None => self.breakpoint(wishes).filter(|_| !step),
                why => why,
            };
            if step {
                (last, found) = (at, why.unwrap_or(Why::There));
            } else if let Some(why) = why {
                (last, found) = (at, why);
            }
            if !self.walk.step()? {
                break;
            }
        }
        self.walk.seek(last)?;
        Ok(found)
    }

    fn go(&mut self, way: Way, wishes: &Wishes) -> Result<Stopped, CertificateError> {
        let why = match way {
            Way::Forward => self.forward(wishes, false, None)?,
            Way::Step(_, range) => self.forward(wishes, true, range)?,
            Way::Back => self.back(wishes, false)?,
            Way::StepBack(_) => self.back(wishes, true)?,
        };
        self.told_crash = self.walk.ended();
        Ok(self.stands(why))
    }

    fn when(&self) -> String {
        match self.len - self.walk.at() {
            0 => format!("at the crash, {} instructions behind the start\n", self.len),
            left => format!("{left} instructions before the crash, {} behind the start\n", self.walk.at()),
        }
    }
}

impl Target for Suffixed<'_> {
    fn tasks(&self) -> Vec<Task> {
        let name = self.core.process.name.clone();
        vec![Task { id: self.loaded(), name, about: "the thread that crashed".to_owned() }]
    }

    fn loaded(&self) -> Id {
        let pid = self.core.process.pid.max(1);
        Id { pid, tid: pid }
    }

    fn registers(&mut self, id: Id) -> Result<Option<Shown>, Failure> {
        if id != self.loaded() {
            return Ok(None);
        }
        self.walk.state().map(|state| Some(Shown::from(state))).map_err(failed)
    }

    fn read(&self, pid: i32, address: u64, bytes: &mut [u8]) -> usize {
        if pid != self.loaded().pid {
            return 0;
        }
        if self.walk.read(address, bytes) {
            return bytes.len();
        }
        let byte_is_there =
            |(n, byte): (u64, &mut u8)| self.walk.read(address.wrapping_add(n), std::slice::from_mut(byte));
        (0..).zip(bytes).map(byte_is_there).take_while(|is_there| *is_there).count()
    }

    fn program(&self, _: i32) -> Option<Vec<u8>> {
        self.program.clone()
    }

    fn auxiliary(&self, _: i32) -> Vec<(u64, u64)> {
        self.core.auxv.clone()
    }

    fn mappings(&self, _: i32) -> Vec<MappingInfo> {
        let file = |start: u64| self.core.files.iter().find(|file| (file.start..file.end).contains(&start));
        let mapping = |segment: &vmm::elfcore::Segment| {
            let file = file(segment.start);
            MappingInfo {
                start: segment.start,
                end: segment.end,
                rights: segment.rights,
                file_offset: file.map_or(0, |file| file.offset + (segment.start - file.start)),
                name: file.map(|file| file.path.clone()).unwrap_or_default(),
            }
        };
        self.core.segments.iter().map(mapping).collect()
    }

    fn death(&self, _: i32) -> Option<Death> {
        let signal = self.core.signal;
        let death =
            Death { signal: signal.signo, code: signal.code, address: signal.address, exception: None };
        self.walk.ended().then_some(death)
    }

    fn run(&mut self, way: Way, wishes: &Wishes) -> Result<Stopped, Failure> {
        self.go(way, wishes).map_err(failed)
    }

    fn restart(&mut self) -> Result<Stopped, Failure> {
        self.walk.seek(0).map_err(failed)?;
        self.told_crash = false;
        Ok(self.stands(Why::There))
    }

    fn monitor(&mut self, command: &str, _: i32) -> Result<String, Failure> {
        let words: Vec<&str> = command.split_whitespace().collect();
        Ok(match words[..] {
            ["when"] => self.when(),
            ["goto", before] => match before.parse::<usize>() {
                Ok(before) => {
                    self.walk.seek(self.len.saturating_sub(before)).map_err(failed)?;
                    self.told_crash = self.walk.ended();
                    self.when()
                }
                Err(_) => format!("`{before}` is to be a number of instructions before the crash\n"),
            },
            ["origins"] => self.origins.listing(),
            ["origins", address, len] => self.origins.of_bytes(address, len),
            _ => HELP.to_owned(),
        })
    }

    fn asks(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.asks)
    }
}
