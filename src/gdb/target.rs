//! A recording as gdbstub's target: its threads, registers and memory, and the ways through it.
//!
//! What is shown is the process that is loaded; breakpoints and watched data are those of the process that is followed. Nothing
//! can be changed: a replay that was changed would be none.

use super::monitor;
use super::registers::{Shown, X86, description};
use crate::log::say;
use crate::symbols::Symbols;
use gdbstub::common::{Pid, Signal, Tid};
use gdbstub::stub::MultiThreadStopReason as Reason;
use gdbstub::target::ext::auxv::{Auxv, AuxvOps};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadResume, MultiThreadResumeOps, MultiThreadSchedulerLocking,
    MultiThreadSchedulerLockingOps, MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::reverse_exec::{
    ReplayLogPosition, ReverseCont, ReverseContOps, ReverseStep, ReverseStepOps,
};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwBreakpoint, HwBreakpointOps, HwWatchpoint, HwWatchpointOps, SwBreakpoint,
    SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::host_io::HostIoOps;
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::target_description_xml_override::{
    TargetDescriptionXmlOverride, TargetDescriptionXmlOverrideOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::replay::ReplayError;
use vmm::travel::{Stop, Travel};

/// What a debugger is told that wants to change something (EROFS).
const READ_ONLY: u8 = 30;
/// And one that names what is not there (EFAULT).
const NOT_THERE: u8 = 14;

/// How to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Way {
    #[default]
    Forward,
    Step,
    Back,
    StepBack,
}

/// A recording that is debugged.
pub(super) struct Debugged {
    pub(super) travel: Travel,
    pub(super) lookout: Lookout,
    way: Way,
    /// The crash was told, and nothing has moved since.
    told_crash: bool,
    /// Set while the program runs and the debugger waits.
    runs: Arc<AtomicBool>,
    /// Whether it was said that the journal is damaged.
    said_damage: bool,
    /// What the debugger has open, by number.
    pub(super) files: BTreeMap<u32, Vec<u8>>,
    /// What gretel's own answers name.
    pub(super) symbols: Symbols,
}

impl Debugged {
    pub(super) fn new(travel: Travel, symbols: Symbols, runs: Arc<AtomicBool>) -> Debugged {
        let told_crash = travel.ended();
        Debugged {
            travel,
            lookout: Lookout::default(),
            way: Way::default(),
            told_crash,
            runs,
            said_damage: false,
            files: BTreeMap::new(),
            symbols,
        }
    }

    /// Says once that the journal has no end, when it was read as far as it goes.
    pub(super) fn say_damage(&mut self) {
        if let Some(damage) = self.travel.damage()
            && !std::mem::replace(&mut self.said_damage, true)
        {
            say!("gretel: {damage}");
            say!("gretel: the recording is shown up to there");
        }
    }

    /// Goes on as asked, and says why it stopped.
    pub(super) fn run(&mut self) -> Result<Reason<u64>, ReplayError> {
        // What it said before was not a wish to stop.
        self.travel.asks().store(false, Ordering::Relaxed);
        self.runs.store(true, Ordering::Release);
        let stop = match self.way {
            Way::Forward => self.travel.forward(&self.lookout)?,
            Way::Step => self.travel.step()?,
            Way::Back => self.travel.backward(&self.lookout)?,
            Way::StepBack => self.travel.step_back()?,
        };
        self.runs.store(false, Ordering::Release);
        self.say_damage();
        let reason = self.reason(stop);
        self.told_crash = self.travel.ended();
        Ok(reason)
    }

    fn reason(&self, stop: Stop) -> Reason<u64> {
        let tid = self.loaded();
        match stop {
            Stop::There => Reason::SignalWithThread { tid, signal: Signal::SIGTRAP },
            Stop::Breakpoint(_) => Reason::SwBreak(tid),
            Stop::Accessed(accessed) => self.watch(tid, accessed.address),
            Stop::Changed(address) => self.watch(tid, address),
            Stop::Begin => Reason::ReplayLog { tid: Some(tid), pos: ReplayLogPosition::Begin },
            Stop::Asked => Reason::SignalWithThread { tid, signal: Signal::SIGINT },
            Stop::End => match self.travel.process().death() {
                Some(death) if !self.told_crash => Reason::SignalWithThread {
                    tid,
                    signal: Signal(u8::try_from(gdb_number(death.signal)).unwrap_or(u8::MAX)),
                },
                _ => Reason::ReplayLog { tid: Some(tid), pos: ReplayLogPosition::End },
            },
        }
    }

    fn watch(&self, tid: Tid, address: u64) -> Reason<u64> {
        let of = self.lookout.data.iter().find(|watch| watch.range.contains(&address));
        let (kind, addr) = of.map_or((WatchKind::Write, address), |watch| {
            let kind = match watch.access {
                Access::Write => WatchKind::Write,
                Access::Read => WatchKind::Read,
                Access::Any => WatchKind::ReadWrite,
            };
            (kind, watch.range.start)
        });
        Reason::Watch { tid, kind, addr }
    }

    fn loaded(&self) -> Tid {
        tid(self.travel.process().thread())
    }
}

fn tid(id: i32) -> Tid {
    usize::try_from(id).ok().and_then(NonZeroUsize::new).unwrap_or(NonZeroUsize::MIN)
}

/// gdb's number of a signal of Linux: up to SIGSYS they differ in some (include/gdb/signals.def).
fn gdb_number(signal: i32) -> i32 {
    match signal {
        libc::SIGBUS => 10,
        libc::SIGUSR1 => 30,
        libc::SIGUSR2 => 31,
        libc::SIGCHLD => 20,
        libc::SIGCONT => 19,
        libc::SIGSTOP => 17,
        libc::SIGTSTP => 18,
        libc::SIGURG => 16,
        libc::SIGIO => 23,
        libc::SIGSYS => 12,
        libc::SIGPWR => 32,
        33.. => signal - 33 + 45,
        other => other,
    }
}

impl Target for Debugged {
    type Arch = X86;
    type Error = ReplayError;

    fn base_ops(&mut self) -> BaseOps<'_, X86, ReplayError> {
        BaseOps::MultiThread(self)
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Debugged {
    fn read_registers(&mut self, regs: &mut Shown, wanted: Tid) -> TargetResult<(), Self> {
        let process = self.travel.process_mut();
        if wanted == tid(process.thread()) {
            *regs = Shown(process.state().map_err(|error| TargetError::Fatal(error.into()))?);
            return Ok(());
        }
        let other = process.other_threads().find(|(id, _)| tid(*id) == wanted);
        let (_, state) = other.ok_or(TargetError::Errno(NOT_THERE))?;
        *regs = Shown(*state);
        Ok(())
    }

    fn write_registers(&mut self, _: &Shown, _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(READ_ONLY))
    }

    fn read_addrs(&mut self, start: u64, data: &mut [u8], _: Tid) -> TargetResult<usize, Self> {
        let process = self.travel.process();
        if process.read_memory(start, data) {
            return Ok(data.len());
        }
        // As much as there is.
        let there = (0..data.len()).take_while(|n| {
            let mut byte = [0];
            process.read_memory(start.wrapping_add(*n as u64), &mut byte)
        });
        let len = there.count();
        if len == 0 || !process.read_memory(start, &mut data[..len]) {
            return Err(TargetError::Errno(NOT_THERE));
        }
        Ok(len)
    }

    fn write_addrs(&mut self, _: u64, _: &[u8], _: Tid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(READ_ONLY))
    }

    fn list_active_threads(&mut self, active: &mut dyn FnMut(Tid)) -> Result<(), ReplayError> {
        let process = self.travel.process();
        active(tid(process.thread()));
        process.other_threads().for_each(|(id, _)| active(tid(id)));
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Debugged {
    fn thread_extra_info(&self, wanted: Tid, buffer: &mut [u8]) -> Result<usize, ReplayError> {
        let process = self.travel.process();
        let runs = if tid(process.thread()) == wanted { ", runs" } else { "" };
        let text = format!("process {}{runs}", process.pid());
        Ok(part(text.as_bytes(), 0, buffer.len(), buffer))
    }
}

impl MultiThreadResume for Debugged {
    fn resume(&mut self) -> Result<(), ReplayError> {
        Ok(())
    }

    fn clear_resume_actions(&mut self) -> Result<(), ReplayError> {
        self.way = Way::Forward;
        Ok(())
    }

    /// A signal that gdb passes on is in the recording, if the program got it.
    fn set_resume_action_continue(&mut self, _: Tid, _: Option<Signal>) -> Result<(), ReplayError> {
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }

    fn support_reverse_step(&mut self) -> Option<ReverseStepOps<'_, Tid, Self>> {
        Some(self)
    }

    fn support_reverse_cont(&mut self) -> Option<ReverseContOps<'_, Tid, Self>> {
        Some(self)
    }
}

impl MultiThreadSingleStep for Debugged {
    fn set_resume_action_step(&mut self, _: Tid, _: Option<Signal>) -> Result<(), ReplayError> {
        self.way = Way::Step;
        Ok(())
    }
}

/// Who runs when is in the recording.
impl MultiThreadSchedulerLocking for Debugged {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<(), ReplayError> {
        Ok(())
    }
}

impl ReverseStep<Tid> for Debugged {
    fn reverse_step(&mut self, _: Tid) -> Result<(), ReplayError> {
        self.way = Way::StepBack;
        Ok(())
    }
}

impl ReverseCont<Tid> for Debugged {
    fn reverse_cont(&mut self) -> Result<(), ReplayError> {
        self.way = Way::Back;
        Ok(())
    }
}

impl Breakpoints for Debugged {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl Debugged {
    fn add(&mut self, address: u64) -> bool {
        if let Err(place) = self.lookout.at.binary_search(&address) {
            self.lookout.at.insert(place, address);
        }
        true
    }

    fn remove(&mut self, address: u64) -> bool {
        self.lookout.at.binary_search(&address).map(|place| self.lookout.at.remove(place)).is_ok()
    }
}

/// Nothing is written into the program's code: the processor itself looks for the address.
impl SwBreakpoint for Debugged {
    fn add_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.add(address))
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove(address))
    }
}

impl HwBreakpoint for Debugged {
    fn add_hw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.add(address))
    }

    fn remove_hw_breakpoint(&mut self, address: u64, _: usize) -> TargetResult<bool, Self> {
        Ok(self.remove(address))
    }
}

fn watch(address: u64, len: u64, kind: WatchKind) -> Watch {
    let access = match kind {
        WatchKind::Write => Access::Write,
        WatchKind::Read => Access::Read,
        WatchKind::ReadWrite => Access::Any,
    };
    Watch { range: address..address.saturating_add(len), access }
}

impl HwWatchpoint for Debugged {
    fn add_hw_watchpoint(&mut self, address: u64, len: u64, kind: WatchKind) -> TargetResult<bool, Self> {
        self.lookout.data.push(watch(address, len, kind));
        Ok(true)
    }

    fn remove_hw_watchpoint(&mut self, address: u64, len: u64, kind: WatchKind) -> TargetResult<bool, Self> {
        let wanted = watch(address, len, kind);
        let place = self.lookout.data.iter().position(|watch| *watch == wanted);
        Ok(place.map(|place| self.lookout.data.remove(place)).is_some())
    }
}

impl MonitorCmd for Debugged {
    fn handle_monitor_cmd(&mut self, command: &[u8], mut out: ConsoleOutput<'_>) -> Result<(), ReplayError> {
        let text = monitor::answer(self, &String::from_utf8_lossy(command))?;
        out.write_raw(text.as_bytes());
        Ok(())
    }
}

impl ExecFile for Debugged {
    fn get_exec_file(
        &self,
        _: Option<Pid>,
        offset: u64,
        length: usize,
        buffer: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let (path, _) = self.travel.process().command();
        Ok(part(path.to_bytes(), offset, length, buffer))
    }
}

impl Auxv for Debugged {
    fn get_auxv(&self, offset: u64, length: usize, buffer: &mut [u8]) -> TargetResult<usize, Self> {
        let pairs = self.travel.process().auxv();
        let words = pairs.iter().chain(&[(0, 0)]).flat_map(|(kind, value)| [*kind, *value]);
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        Ok(part(&bytes, offset, length, buffer))
    }
}

impl TargetDescriptionXmlOverride for Debugged {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        buffer: &mut [u8],
    ) -> TargetResult<usize, Self> {
        if annex != b"target.xml" {
            say!("gretel: the debugger asks for {}, which there is not", String::from_utf8_lossy(annex));
            return Err(TargetError::Errno(NOT_THERE));
        }
        Ok(part(description().as_bytes(), offset, length, buffer))
    }
}

/// Copies what a debugger asks for of a longer answer: how much that is.
pub(super) fn part(whole: &[u8], offset: u64, length: usize, buffer: &mut [u8]) -> usize {
    let rest = usize::try_from(offset).ok().and_then(|offset| whole.get(offset..)).unwrap_or_default();
    let len = rest.len().min(length).min(buffer.len());
    buffer[..len].copy_from_slice(&rest[..len]);
    len
}
