//! Data that is watched: its pages are no longer to be had without a fault, and an instruction that faults so runs alone.
//!
//! Whether it accesses the very bytes is told from its operands before it runs. So only accesses to the pages that are watched
//! cost anything, in compiled code too.

use super::PagedRam;
use crate::engine::code::fetch;
use crate::engine::lookout::{Accessed, Lookout};
use crate::ram::{PAGE, Virt};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use std::ops::Range;
use x86::bus::Access;
use x86::interpreter::{Observer, Stop, Until};
use x86::state::Regs;
use x86_jit::Jit;

/// An XSAVE area, and whatever else is said to have no size, is no longer than this.
const LARGEST: u64 = 4096;

/// What is watched, and whether an access to its pages has just been stopped.
#[derive(Default)]
pub(super) struct Guard {
    lookout: Lookout,
    pages: Vec<Virt>,
    /// The instruction at rip may access them.
    lifted: bool,
    stopped: bool,
}

impl Guard {
    /// Looks for this from now on; the translations are to be forgotten.
    pub(super) fn set(&mut self, lookout: &Lookout) {
        self.lookout = lookout.clone();
        let pages = lookout.data.iter().flat_map(|watch| {
            let last = watch.range.end.saturating_sub(1).max(watch.range.start);
            (watch.range.start / PAGE..=last / PAGE).map(|page| page * PAGE)
        });
        self.pages = pages.collect();
        self.pages.sort_unstable();
        self.pages.dedup();
    }

    pub(super) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Whether an access to this page has to fault.
    pub(super) fn forbids(&mut self, address: Virt, access: Access) -> bool {
        if self.pages.is_empty() || self.lifted || access == Access::Execute {
            return false;
        }
        let page = address - address % PAGE;
        let writes = access == Access::Write;
        let concerned = |watch: &crate::engine::lookout::Watch| {
            watch.access.includes(writes) && watch.range.start < page + PAGE && page < watch.range.end
        };
        let forbids = self.pages.binary_search(&page).is_ok() && self.lookout.data.iter().any(concerned);
        self.stopped |= forbids;
        forbids
    }
}

/// Runs the instruction at rip that was kept from a watched page: why it stopped, and what it accessed of what is watched.
pub(super) fn run_guarded<O: Observer>(
    jit: &mut Jit<PagedRam>,
    observer: &mut O,
) -> (Stop, Option<Accessed>) {
    let before = jit.cpu().regs();
    let PagedRam { ram, root, guard } = jit.cpu().bus();
    let accesses = accesses(&fetch(ram, *root, before.rip), &before);
    let lookout = guard.lookout.clone();
    jit.cpu_mut().bus_mut().guard.lifted = true;
    let one = jit.counters().instructions + 1;
    let stop = jit.run(Until::retired(one), observer);
    let after = jit.cpu().regs();
    let cpu = jit.cpu_mut();
    cpu.bus_mut().guard.lifted = false;
    for page in cpu.bus().guard.pages.clone() {
        cpu.forget_data(page);
    }
    let seen = accesses.iter().find_map(|(access, repeats)| {
        let range = if *repeats { repeated(access, &before, &after) } else { access.range.clone() };
        let address = lookout.watched(&range, access.writes)?;
        Some(Accessed { rip: before.rip, address, writes: access.writes })
    });
    (stop, seen)
}

/// Whether a page fault was made by [`Guard::forbids`].
pub(super) fn take_stopped(jit: &mut Jit<PagedRam>) -> bool {
    std::mem::take(&mut jit.cpu_mut().bus_mut().guard.stopped)
}

struct DataAccess {
    range: Range<Virt>,
    writes: bool,
    /// The register that a string instruction moves on.
    base: Register,
}

/// What the instruction accesses, and whether it is one that repeats. Stores come first.
fn accesses(code: &[u8], regs: &Regs) -> Vec<(DataAccess, bool)> {
    let instruction = Decoder::with_ip(64, code, regs.rip, DecoderOptions::NONE).decode();
    let repeats =
        instruction.is_string_instruction() && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&instruction).used_memory();
    let mut found: Vec<(DataAccess, bool)> = used
        .iter()
        .flat_map(|memory| {
            let (reads, writes) = kinds(memory.access());
            let range = range(memory, regs);
            [(writes, true), (reads, false)].into_iter().filter_map(move |(does, writes)| {
                let access = DataAccess { range: range.clone()?, writes, base: memory.base() };
                does.then_some((access, repeats))
            })
        })
        .collect();
    found.sort_by_key(|(access, _)| !access.writes);
    found
}

/// Whether it loads, and whether it stores.
fn kinds(access: OpAccess) -> (bool, bool) {
    match access {
        OpAccess::Read | OpAccess::CondRead => (true, false),
        OpAccess::Write | OpAccess::CondWrite => (false, true),
        OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
        OpAccess::None | OpAccess::NoMemAccess => (false, false),
    }
}

fn range(memory: &UsedMemory, regs: &Regs) -> Option<Range<Virt>> {
    // The elements of a gather are not told: registers of vectors have no value here.
    let start = memory.virtual_address(0, |register, _, _| value(register, regs))?;
    let size = match memory.memory_size().size() as u64 {
        0 => LARGEST,
        size => size,
    };
    Some(start..start.saturating_add(size))
}

fn value(register: Register, regs: &Regs) -> Option<u64> {
    match register {
        Register::FS => Some(regs.fs_base),
        Register::GS => Some(regs.gs_base),
        _ if register.is_segment_register() => Some(0),
        _ if register.is_ip() => Some(regs.rip),
        _ if register.is_gpr() => {
            let full = regs.gpr[register.full_register().number()];
            Some(if register.size() == 4 { full & 0xffff_ffff } else { full })
        }
        _ => None,
    }
}

/// All that a string instruction has accessed that moved its registers from `before` to `after`.
fn repeated(access: &DataAccess, before: &Regs, after: &Regs) -> Range<Virt> {
    let (from, to) = (value(access.base, before), value(access.base, after));
    let Some((from, to)) = from.zip(to) else { return access.range.clone() };
    let size = access.range.end - access.range.start;
    // Behind the last element, upwards; before the first, downwards.
    if to >= from { from..to.max(from) } else { to.wrapping_add(size)..from.saturating_add(size) }
}
