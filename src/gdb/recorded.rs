//! A recording as a target: all processes that live at a position, and the ways through it.
//!
//! A signal is shown where a live program would show it: before its handler, with the registers that the handler's end restores, though
//! the replay stands at the handler's first instruction ([`View`]). So gdb's own steps over handlers work.

mod calls;
mod ends;
mod follow;
mod forks;
mod images;

use super::agent::World;
use super::ids::Id;
use super::monitor;
use super::points::{Kind, Point};
use super::registers::{self, Shown};
use super::signals::gdb_number;
use super::target::{Stopped, Target, Task, Way, Why, Wishes};
use crate::accesses::passed_over;
use crate::ending::death;
use crate::exit::Failure;
use crate::log::say;
use crate::replay::failure;
use crate::symbols::Symbols;
use calls::Calls;
pub(super) use follow::Source;
use forks::Forks;
use images::Images;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use vmm::memory::MappingInfo;
use vmm::process::{Noted, Process};
use vmm::replay::ReplayError;
use vmm::signal::Death;
use vmm::signal_frame::{self, SIGINFO};
use vmm::travel::{Stop, Travel};
use x86::state::Regs;

/// Behind the return address of a signal's frame are flags, a link and the stack (40 bytes), and then these registers by the number that
/// instructions encode; rip and eflags follow (Linux, asm/sigcontext.h).
const FRAME: u64 = 8 + 40;
const IN_FRAME: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];

/// A recording that is debugged.
pub(super) struct Recorded {
    pub(super) travel: Travel,
    /// What gretel's own answers name.
    pub(super) symbols: Symbols,
    /// The crash was told, and nothing has moved since.
    told_crash: bool,
    /// Whether it was said that the journal is damaged.
    said_damage: bool,
    /// What the kernel did besides, at the place of the last stop: told when it is to go on.
    pending: VecDeque<Noted>,
    view: Option<View>,
    images: Images,
    forks: Forks,
    calls: Calls,
    source: Option<Source>,
}

/// A task that is shown as it was before a signal's handler began.
struct View {
    task: i32,
    regs: Regs,
    /// The `siginfo_t` that the handler is given.
    info: Vec<u8>,
}

/// The program, where it stands, as conditions see it.
struct Here<'a>(&'a Process);

impl World for Here<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        registers::word(self.0.cpu().regs(), number)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read_memory(address, bytes)
    }
}

impl Recorded {
    pub(super) fn new(mut travel: Travel, symbols: Symbols) -> Recorded {
        // gdb itself stops at no store that changes nothing.
        travel.look_for_changes(true);
        let told_crash = travel.ended();
        let (pending, view, images, forks) = (VecDeque::new(), None, Images::default(), Forks::default());
        let (said_damage, source, calls) = (false, None, Calls::default());
        Recorded { travel, symbols, told_crash, said_damage, pending, view, images, forks, calls, source }
    }

    /// Where it stands, for a session that begins: at a crash it has stopped for the signal.
    pub(super) fn stands(&self) -> Stopped {
        let id = self.loaded();
        let why = self.death(id.pid).map_or(Why::There, |death| Why::Signal(death.signal));
        Stopped { id, why }
    }

    /// Says once that the journal has no end, when it was read as far as it goes.
    pub(super) fn say_damage(&mut self) {
        if self.source.is_none()
            && let Some(damage) = self.travel.damage()
            && !std::mem::replace(&mut self.said_damage, true)
        {
            say!("gretel: {damage}");
            say!("gretel: the recording is shown up to there");
        }
    }

    /// The program stands elsewhere than it did: what was to be told of that place is no more.
    pub(super) fn moved(&mut self) {
        self.pending.clear();
        self.view = None;
    }

    fn go(&mut self, way: Way, wishes: &Wishes) -> Result<Stopped, ReplayError> {
        if matches!(way, Way::Forward | Way::Step(..)) {
            let stepping = matches!(way, Way::Step(..));
            while let Some(noted) = self.pending.pop_front() {
                if wants(self.travel.process(), wishes, &noted, stepping) {
                    return Ok(self.told(noted, wishes));
                }
            }
        }
        if self.is_another_image(wishes) {
            return Ok(self.tell_image(self.loaded().pid));
        }
        self.note_images(wishes);
        let (view, start) = (self.view.take(), self.travel.position());
        self.moved();
        let fork = if way == Way::Back { self.fork_before(wishes)? } else { None };
        let call = self.next_call(way, wishes)?;
        // The last one on the way is what is come to.
        let call = call.filter(|it| way != Way::Back || fork.is_none_or(|fork| it.at > fork.behind));
        let lookout = self.travel.follow_each(wishes.points.lookouts());
        let step = matches!(way, Way::Step(..));
        let mut changed_in = None;
        let mut wanted = |process: &Process, stop: Stop| match stop {
            Stop::Noted => process.noted().iter().any(|it| wants(process, wishes, it, step)),
            stop => {
                let is_hit = hit(process, wishes, stop).is_some();
                if is_hit && matches!(stop, Stop::Changed(_)) {
                    changed_in = Some(process.pid());
                }
                is_hit
            }
        };
        self.travel.heed_kernel(!matches!(way, Way::Back));
        let stop = match way {
            Way::Forward => self.travel.forward_where(&lookout, call.map(|it| it.at), &mut wanted)?,
            Way::Back => {
                let floor = fork.map_or_else(|| self.travel.begin(), |fork| fork.behind);
                let floor = call.map_or(floor, |it| it.at);
                self.travel.backward_to(floor, &lookout, &mut wanted)?
            }
            // It is at the handler's first instruction already.
            Way::Step(id, _) if view.as_ref().is_some_and(|view| view.task == id.tid) => Stop::There,
            Way::Step(id, range) => self.step(id, range, wishes, &lookout)?,
            Way::StepBack(id) => self.step_back(id, view, &lookout, &mut wanted)?,
        };
        if way == Way::Back
            && matches!(stop, Stop::Changed(_))
            && let Some(pid) = changed_in
        {
            // gdb does not believe a watchpoint of one process that another one stops for.
            self.travel.back_into(pid)?;
        }
        self.say_damage();
        if let Some(note) = passed_over(&self.travel).filter(|_| way == Way::Back) {
            say!("gretel: {note}");
        }
        let noted = self.travel.process_mut().take_noted();
        self.travel.process_mut().note_kernel(false);
        if matches!(way, Way::Back | Way::StepBack(_))
            && stop != Stop::Asked
            && let Some(pid) = self.go_to_passed_exec(wishes, start)?
        {
            return Ok(self.tell_image(pid));
        }
        if let Some(call) = call.filter(|_| matches!(stop, Stop::There | Stop::Begin)) {
            return Ok(call.told());
        }
        if let Some(fork) = fork.filter(|_| matches!(stop, Stop::There | Stop::Begin)) {
            return self.tell_fork_behind(fork, wishes);
        }
        self.go_to_shown(stop, start, wishes)?;
        self.pending =
            noted.into_iter().filter(|it| wants(self.travel.process(), wishes, it, step)).collect();
        let stopped = self.stopped(stop, way, wishes);
        self.told_crash = self.travel.ended();
        Ok(stopped)
    }

    /// Steps until the thread has left the range, or there is a reason to stop in it.
    fn step(
        &mut self,
        id: Id,
        range: Option<(u64, u64)>,
        wishes: &Wishes,
        lookout: &vmm::engine::lookout::Lookout,
    ) -> Result<Stop, ReplayError> {
        loop {
            let stop = self.travel.step_of(id.tid, lookout, &mut |process, stop| match stop {
                Stop::Noted => process.noted().iter().any(|it| wants(process, wishes, it, true)),
                stop => hit(process, wishes, stop).is_some(),
            })?;
            let rip = self.travel.process().cpu().regs().rip;
            let in_range = range.is_some_and(|(start, end)| (start..end).contains(&rip));
            if stop != Stop::There || !in_range {
                return Ok(stop);
            }
            let breakpoint = Stop::Breakpoint(rip);
            if hit(self.travel.process(), wishes, breakpoint).is_some() {
                return Ok(breakpoint);
            }
        }
    }

    /// Goes to before the last instruction of the thread, and looks whether that accesses what is watched.
    fn step_back(
        &mut self,
        id: Id,
        view: Option<View>,
        lookout: &vmm::engine::lookout::Lookout,
        wanted: vmm::travel::Wanted<'_>,
    ) -> Result<Stop, ReplayError> {
        let mut stop = self.travel.step_back_of(id.tid)?;
        // Where it was shown to stand already.
        let shown = view.filter(|view| view.task == id.tid).map(|view| view.regs.rip);
        if stop == Stop::There && shown == Some(self.travel.process().cpu().regs().rip) {
            stop = self.travel.step_back_of(id.tid)?;
        }
        if stop != Stop::There || lookout.data.is_empty() {
            return Ok(stop);
        }
        let here = self.travel.position();
        self.travel.heed_kernel(false);
        let found = self.travel.step_of(id.tid, lookout, wanted)?;
        self.travel.seek(here)?;
        Ok(if matches!(found, Stop::Accessed(_) | Stop::Changed(_)) { found } else { stop })
    }

    fn stopped(&mut self, stop: Stop, way: Way, wishes: &Wishes) -> Stopped {
        let id = self.loaded();
        let why = match stop {
            Stop::There => match way {
                Way::Step(id, _) | Way::StepBack(id) => return Stopped { id, why: Why::There },
                _ => Why::There,
            },
            Stop::Breakpoint(address) => {
                let point = hit(self.travel.process(), wishes, stop);
                Why::Point(point.map_or(Kind::Software, |point| point.kind), address)
            }
            Stop::Accessed(_) | Stop::Changed(_) => match hit(self.travel.process(), wishes, stop) {
                Some(Point { kind, address, .. }) => Why::Point(*kind, *address),
                None => Why::There,
            },
            Stop::Begin => Why::Begin,
            Stop::Asked => Why::Asked,
            Stop::Noted => match self.pending.pop_front() {
                Some(noted) => return self.told(noted, wishes),
                None => Why::There,
            },
            Stop::End => match self.travel.process().death() {
                Some(death) if !self.told_crash && wishes.includes(id.pid) => Why::Signal(death.signal),
                _ => Why::End,
            },
        };
        Stopped { id, why }
    }

    /// What the kernel did, as a stop.
    fn told(&mut self, noted: Noted, wishes: &Wishes) -> Stopped {
        self.view = None;
        let process = self.travel.process();
        match noted {
            Noted::Forked { by, pid, waits } => {
                let waits = waits && wishes.vforks;
                Stopped { id: id_of(process, by), why: Why::Forked { pid, waits } }
            }
            Noted::Released(task) => Stopped { id: id_of(process, task), why: Why::Released },
            Noted::Executed(pid) => self.tell_exec(pid),
            // Nobody wants to know of it.
            Noted::Ended { .. } => self.stands(),
            Noted::Signal { task, signal, handler } => {
                let id = id_of(process, task);
                self.view = handler.and_then(|handler| self.before_handler(id, handler));
                Stopped { id, why: Why::Signal(signal) }
            }
        }
    }

    /// The registers of a task that stands at the beginning of a signal's handler, from the frame that the kernel has made.
    fn before_handler(&mut self, id: Id, handler: u64) -> Option<View> {
        // A processor that does not give its state does not go on either.
        let mut regs = self.travel.process_mut().state_of(id.tid).ok()??.regs;
        let (mut bytes, mut info) = ([0; 18 * 8], vec![0; SIGINFO]);
        let there = regs.gpr[4].wrapping_add(FRAME);
        let process = self.travel.process();
        if regs.rip != handler || !process.read_memory_of(id.pid, there, &mut bytes) {
            return None;
        }
        let info_is_at = signal_frame::Place { frame: regs.gpr[4], image: 0 }.info();
        if !process.read_memory_of(id.pid, info_is_at, &mut info) {
            return None;
        }
        let mut words =
            bytes.chunks_exact(8).map(|it| u64::from_le_bytes(it.try_into().expect("eight bytes")));
        for (number, word) in IN_FRAME.iter().zip(words.by_ref()) {
            regs.gpr[*number] = word;
        }
        regs.rip = words.next()?;
        regs.rflags = words.next()?;
        Some(View { task: id.tid, regs, info })
    }
}

/// The point that a journey has stopped for in the loaded process.
fn hit<'a>(process: &Process, wishes: &'a Wishes, stop: Stop) -> Option<&'a Point> {
    wishes.points.hit(process.pid(), stop, &Here(process))
}

/// Whether the debugger wants to be told of it. While it steps, it wants all signals, since it steps over their handlers.
fn wants(process: &Process, wishes: &Wishes, noted: &Noted, stepping: bool) -> bool {
    match noted {
        // gdb does not take a process that it knows for a new one, as it is when the fork is run again.
        Noted::Forked { by, pid, .. } => {
            wishes.forks && !wishes.seen.contains_key(pid) && wishes.includes(id_of(process, *by).pid)
        }
        Noted::Released(task) => wishes.held.is_some_and(|held| held.tid == *task),
        Noted::Executed(pid) => wishes.execs && wishes.includes(*pid),
        // gdb sees it when the process is no more among the tasks.
        Noted::Ended { .. } => false,
        Noted::Signal { task, signal, .. } => {
            let is_passed = wishes.passed.contains(&gdb_number(*signal)) && !stepping;
            !is_passed && wishes.includes(id_of(process, *task).pid)
        }
    }
}

/// A task with its process.
fn id_of(process: &Process, task: i32) -> Id {
    let pid = process.tasks().find(|it| it.id == task).map_or(task, |it| it.pid);
    Id { pid, tid: task }
}

impl Target for Recorded {
    fn tasks(&self) -> Vec<Task> {
        let process = self.travel.process();
        let loaded = process.thread();
        let own = process.pid();
        let mut tasks: Vec<Task> = process
            .tasks()
            .map(|it| Task {
                id: Id { pid: it.pid, tid: it.id },
                name: String::from_utf8_lossy(&it.name).into_owned(),
                about: if it.id == loaded { "runs".to_owned() } else { String::new() },
            })
            .collect();
        tasks.sort_by_key(|task| (task.id.tid != loaded, task.id.pid != own));
        tasks
    }

    fn loaded(&self) -> Id {
        let process = self.travel.process();
        Id { pid: process.pid(), tid: process.thread() }
    }

    fn registers(&mut self, id: Id) -> Result<Option<Shown>, Failure> {
        if let Some(View { regs, .. }) = self.view.as_ref().filter(|view| view.task == id.tid) {
            return Ok(Some(Shown { regs: *regs, selectors: registers::SELECTORS, fpu: None }));
        }
        let state = self.travel.process_mut().state_of(id.tid).map_err(|error| failure(error.into()))?;
        Ok(state.map(Shown::from))
    }

    fn read(&self, pid: i32, address: u64, bytes: &mut [u8]) -> usize {
        let process = self.travel.process();
        if process.read_memory_of(pid, address, bytes) {
            return bytes.len();
        }
        let byte_is_there = |(n, byte): (u64, &mut u8)| {
            process.read_memory_of(pid, address.wrapping_add(n), std::slice::from_mut(byte))
        };
        (0..).zip(bytes).map(byte_is_there).take_while(|is_there| *is_there).count()
    }

    fn program(&self, pid: i32) -> Option<Vec<u8>> {
        let (path, _) = self.travel.process().command_of(pid)?;
        Some(path.to_bytes().to_vec())
    }

    fn auxiliary(&self, pid: i32) -> Vec<(u64, u64)> {
        self.travel.process().auxv_of(pid)
    }

    fn mappings(&self, pid: i32) -> Vec<MappingInfo> {
        self.travel.process().mappings_of(pid)
    }

    fn anonymous(&self, pid: i32, mapping: &MappingInfo) -> u64 {
        self.travel.process().anonymous_of(pid, mapping.start)
    }

    fn death(&self, pid: i32) -> Option<Death> {
        death(self.travel.process(), self.travel.ended()).filter(|_| self.travel.process().pid() == pid)
    }

    fn handled(&self, id: Id) -> Option<Vec<u8>> {
        self.view.as_ref().filter(|view| view.task == id.tid).map(|view| view.info.clone())
    }

    fn has_calls(&self) -> bool {
        true
    }

    fn run(&mut self, way: Way, wishes: &Wishes) -> Result<Stopped, Failure> {
        let stopped = self.go(way, wishes).map_err(failure)?;
        if stopped.why == Why::End && self.refresh()? {
            return self.go(way, wishes).map_err(failure);
        }
        Ok(stopped)
    }

    fn restart(&mut self) -> Result<Stopped, Failure> {
        self.moved();
        self.travel.seek(self.travel.begin()).map_err(failure)?;
        self.told_crash = false;
        Ok(self.stands())
    }

    fn monitor(&mut self, command: &str, pid: i32) -> Result<String, Failure> {
        if command.trim() == "refresh" {
            let more = self.refresh()?;
            return Ok(if more { "there is more now\n" } else { "there is no more\n" }.to_owned());
        }
        monitor::answer(self, command, pid).map_err(failure)
    }

    fn prepare(&mut self) -> Result<(), Failure> {
        self.travel.prepare().map_err(failure)
    }

    fn asks(&self) -> Arc<AtomicBool> {
        self.travel.asks()
    }
}
