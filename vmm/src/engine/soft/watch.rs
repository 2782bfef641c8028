//! Data that is watched: an access that begins near it faults, and the instruction then runs alone.
//!
//! Whether it accesses the very bytes is told from its operands before it runs. Translations of the pages are not cached, so that each
//! access to them asks; all others cost nothing, in compiled code too.

use super::PagedRam;
use crate::engine::code::fetch;
use crate::engine::lookout::{Accessed, Lookout, Watch};
use crate::ram::{PAGE, Virt};
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register, UsedMemory};
use std::ops::Range;
use x86::bus::Access;
use x86::interpreter::{Observer, Stop, Until};
use x86::state::Regs;
use x86_jit::Jit;

/// No access that is asked for at once is longer.
const LONGEST: u64 = 64;
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

    /// Whether an access that begins at `address` has to fault: it may be one that is looked for.
    pub(super) fn forbids(&mut self, address: Virt, access: Access) -> bool {
        if self.pages.is_empty() || self.lifted || access == Access::Execute {
            return false;
        }
        let near = |watch: &Watch| {
            asks(watch, access)
                && watch.range.start < address.saturating_add(LONGEST)
                && address < watch.range.end
        };
        let forbids = self.lookout.data.iter().any(near);
        self.stopped |= forbids;
        forbids
    }

    /// Whether no access of this kind to the page is one that is looked for.
    pub(super) fn may_cache(&self, address: Virt, access: Access) -> bool {
        if self.pages.is_empty() || access == Access::Execute {
            return true;
        }
        let page = address - address % PAGE;
        let on_page =
            |watch: &Watch| asks(watch, access) && watch.range.start < page + PAGE && page < watch.range.end;
        self.pages.binary_search(&page).is_err() || !self.lookout.data.iter().any(on_page)
    }
}

/// Whether an access of this kind can be one that is looked for: what loads and stores the same asks for the store alone.
fn asks(watch: &Watch, access: Access) -> bool {
    access == Access::Write || watch.access.includes(false)
}

/// Runs the instruction at rip that was kept from a watched page: why it stopped, and what it accessed of what is watched.
pub(super) fn run_guarded<O: Observer>(
    jit: &mut Jit<PagedRam>,
    observer: &mut O,
) -> (Stop, Option<Accessed>) {
    let before = jit.cpu().regs();
    let PagedRam { ram, root, .. } = jit.cpu().bus();
    let accesses = accesses(&fetch(ram, *root, before.rip), &before);
    jit.cpu_mut().bus_mut().guard.lifted = true;
    let one = jit.counters().instructions + 1;
    let stop = jit.run(Until::retired(one), observer);
    let after = jit.cpu().regs();
    jit.cpu_mut().bus_mut().guard.lifted = false;
    let lookout = &jit.cpu().bus().guard.lookout;
    let seen = accesses.iter().find_map(|(access, repeats)| {
        let range = if *repeats { repeated(access, &before, &after) } else { access.range.clone() };
        let address = lookout.watched(&range, access.writes)?;
        let len = range.end.saturating_sub(address);
        Some(Accessed { rip: before.rip, address, len, writes: access.writes })
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
    let repeats = instruction.is_string_instruction()
        && (instruction.has_rep_prefix() || instruction.has_repne_prefix());
    // Of one that repeats iced tells no size.
    let element = if repeats { u64::from(x86::decode::op(&instruction).w / 8) } else { 0 };
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&instruction).used_memory();
    let mut found: Vec<(DataAccess, bool)> = used
        .iter()
        .flat_map(|memory| {
            let (reads, writes) = kinds(memory.access());
            let range = range(memory, regs, element);
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

/// What is accessed; `element` is the size where that is not told.
fn range(memory: &UsedMemory, regs: &Regs, element: u64) -> Option<Range<Virt>> {
    // The elements of a gather are not told: registers of vectors have no value here.
    let start = memory.virtual_address(0, |register, _, _| value(register, regs))?;
    let size = match memory.memory_size().size() as u64 {
        0 if element > 0 => element,
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
