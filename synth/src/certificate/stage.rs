//! The start image of a suffix on an engine: the core's memory, with the suffix's over it.
//!
//! A page is brought in when the suffix touches it, so that time and memory follow the suffix, and not the core. The core of a machine
//! with a kernel has a stage of its own (`ring0`).

use super::CertificateError;
use super::ring0::Ring0;
use crate::suffix::Suffix;
use std::ops::Range;
use vmm::elfcore::{Core, Segment};
use vmm::engine::soft::SoftCpu;
use vmm::engine::{Exit, Interrupter, Machine, Until};
use vmm::paging::{Rights, USER_END};
use vmm::ram::{PAGE, PAGE_LEN};
use vmm::sandbox::{Sandbox, SandboxError};
use x86::state::{Regs, State};

/// What the engine needs beside the program's own pages: page tables and its own pages.
const OVERHEAD: u64 = 8 << 20;
/// One page table maps this much: more tables for memory that lies scattered.
const TABLE_SPAN: u64 = 2 << 20;
/// The vector of a page fault.
const PAGE_FAULT: u8 = 14;

/// A suffix's program on an engine.
pub(crate) struct Stage<'a> {
    ground: Ground<'a>,
    core: &'a Core,
}

/// What a stage is made of.
enum Ground<'a> {
    /// A program's pages.
    Program(Box<Sandbox>),
    /// A machine.
    Ring0(Box<Ring0<'a>>),
}

impl<'a> Stage<'a> {
    /// Puts the start image of `suffix` on `machine`.
    pub(super) fn new(
        machine: Machine,
        core: &'a Core,
        suffix: &Suffix,
    ) -> Result<Stage<'a>, CertificateError> {
        let mut sandbox = Sandbox::new(machine)?;
        sandbox.load(&suffix.start)?;
        Stage { ground: Ground::Program(Box::new(sandbox)), core }.with_memory(suffix)
    }

    /// The same on the software CPU: that of the machine, if the core is one's.
    pub(super) fn on_software_cpu(core: &'a Core, suffix: &Suffix) -> Result<Stage<'a>, CertificateError> {
        match &core.machine {
            Some(machine) => {
                let ring0 = Ring0::new(machine, &suffix.start, suffix.inactive_gs);
                Stage { ground: Ground::Ring0(Box::new(ring0)), core }.with_memory(suffix)
            }
            None => Stage::new(SoftCpu::machine(memory_needed(core))?.any(), core, suffix),
        }
    }

    /// Puts the suffix's memory over the core's.
    fn with_memory(mut self, suffix: &Suffix) -> Result<Stage<'a>, CertificateError> {
        for piece in &suffix.memory {
            refuse_constant(self.core, piece.address, &piece.bytes)?;
            self.write(piece.address, &piece.bytes)?;
        }
        Ok(self)
    }

    /// The machine, if the stage is one.
    pub(super) fn ring0(&mut self) -> Option<&mut Ring0<'a>> {
        match &mut self.ground {
            Ground::Ring0(ring0) => Some(ring0),
            Ground::Program(_) => None,
        }
    }

    /// Why the last run cannot be judged, if that is so.
    pub(super) fn refusal(&self) -> Option<&str> {
        match &self.ground {
            Ground::Ring0(ring0) => ring0.refusal(),
            Ground::Program(_) => None,
        }
    }

    /// Runs to the next exit that is not for want of a page that the core has.
    pub(super) fn run(&mut self, until: Until) -> Result<Exit, CertificateError> {
        loop {
            let exit = match (&mut self.ground, until) {
                (Ground::Program(sandbox), _) => sandbox.run(until)?,
                (Ground::Ring0(ring0), Until::Retired(instructions)) => return Ok(ring0.run(instructions)),
                (Ground::Ring0(ring0), _) => return Ok(ring0.run(u64::MAX)),
            };
            match &exit {
                Exit::Exception(fault) if fault.vector == PAGE_FAULT && self.bring_in(fault.address)? => {}
                _ => return Ok(exit),
            }
        }
    }

    /// Reads memory, whatever its rights are; false, with nothing promised about `bytes`, if any is not there.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let sandbox = match &self.ground {
            Ground::Program(sandbox) => sandbox,
            Ground::Ring0(ring0) => return ring0.read(address, bytes),
        };
        if sandbox.read(address, bytes).is_ok() {
            return true;
        }
        let mut done = 0;
        while done < bytes.len() {
            let Some(at) = address.checked_add(done as u64) else { return false };
            let left = PAGE_LEN - usize::try_from(at % PAGE).unwrap_or(0);
            let part = &mut bytes[done..];
            let len = left.min(part.len());
            let part = &mut part[..len];
            if sandbox.read(at, part).is_err()
                && !(page_of(self.core, at).is_some() && self.core.read(at, part))
            {
                return false;
            }
            done += len;
        }
        true
    }

    /// Writes memory, whatever its rights are.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), CertificateError> {
        if let Ground::Ring0(ring0) = &mut self.ground {
            return match ring0.write(address, bytes) {
                true => Ok(()),
                false => Err(SandboxError::NotMapped(address).into()),
            };
        }
        let behind = address.saturating_add(bytes.len() as u64);
        for page in (address / PAGE * PAGE..behind).step_by(PAGE_LEN) {
            self.bring_in(page)?;
        }
        match &mut self.ground {
            Ground::Program(sandbox) => Ok(sandbox.write(address, bytes)?),
            Ground::Ring0(_) => Ok(()),
        }
    }

    /// The general registers.
    pub(crate) fn regs(&self) -> &Regs {
        match &self.ground {
            Ground::Program(sandbox) => sandbox.cpu().regs(),
            Ground::Ring0(ring0) => ring0.regs(),
        }
    }

    /// Loads the general registers of a program.
    pub(super) fn set_regs(&mut self, regs: &Regs) -> Result<(), CertificateError> {
        match &mut self.ground {
            Ground::Program(sandbox) => Ok(sandbox.cpu_mut().set_regs(regs)?),
            // Nobody serves a kernel.
            Ground::Ring0(_) => Ok(()),
        }
    }

    /// Loads all registers.
    pub(super) fn load(&mut self, state: &State) -> Result<(), CertificateError> {
        match &mut self.ground {
            Ground::Program(sandbox) => Ok(sandbox.load(state)?),
            // A kernel's suffix has one thread.
            Ground::Ring0(_) => Ok(()),
        }
    }

    /// All registers.
    pub(crate) fn state(&mut self) -> Result<State, CertificateError> {
        match &mut self.ground {
            Ground::Program(sandbox) => Ok(sandbox.state()?),
            Ground::Ring0(ring0) => Ok(ring0.state()),
        }
    }

    /// Of a kernel: the base of GS that SWAPGS brings.
    pub(crate) fn inactive_gs(&self) -> Option<u64> {
        match &self.ground {
            Ground::Program(_) => None,
            Ground::Ring0(ring0) => Some(ring0.inactive_gs()),
        }
    }

    /// The pages of a program that were touched.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let sandbox = match &self.ground {
            Ground::Program(sandbox) => Some(sandbox),
            Ground::Ring0(_) => None,
        };
        sandbox.into_iter().flat_map(|sandbox| sandbox.pages())
    }

    /// How many instructions have retired, where the engine counts them.
    pub(super) fn retired(&self) -> u64 {
        match &self.ground {
            Ground::Program(sandbox) => sandbox.cpu().counters().map_or(0, |counters| counters.instructions),
            Ground::Ring0(ring0) => ring0.retired(),
        }
    }

    /// How many branches were taken, where the engine counts them.
    pub(super) fn taken_branches(&self) -> u64 {
        match &self.ground {
            Ground::Program(sandbox) => {
                sandbox.cpu().counters().map_or(0, |counters| counters.taken_branches)
            }
            Ground::Ring0(ring0) => ring0.taken_branches(),
        }
    }

    /// What interrupts the engine of a program.
    pub(super) fn interrupter(&self) -> Interrupter {
        match &self.ground {
            Ground::Program(sandbox) => sandbox.cpu().interrupter(),
            Ground::Ring0(_) => Interrupter::new(),
        }
    }

    /// Brings in the page of `address`; false if it is there, or the core does not have it.
    fn bring_in(&mut self, address: u64) -> Result<bool, CertificateError> {
        let page = address / PAGE * PAGE;
        let Ground::Program(sandbox) = &mut self.ground else { return Ok(false) };
        if sandbox.read(page, &mut [0]).is_ok() {
            return Ok(false);
        }
        let mut bytes = [0; PAGE_LEN];
        let rights = page_of(self.core, page).filter(|_| self.core.read(page, &mut bytes));
        let Some(rights) = rights else { return Ok(false) };
        sandbox.map(page, &bytes, rights)?;
        Ok(true)
    }
}

/// The rights of the page of `address`, if a program has some there.
fn page_of(core: &Core, address: u64) -> Option<Rights> {
    let page = address / PAGE * PAGE;
    let rights = core.segment(page).filter(|_| page < USER_END)?.rights;
    let any = rights.read || rights.write || rights.execute;
    any.then_some(Rights { write: rights.write, execute: rights.execute })
}

/// How many bytes of whole pages the core holds.
pub(super) fn held(core: &Core) -> u64 {
    core.segments
        .iter()
        .flat_map(|segment| whole_pages(core, segment))
        .map(|held| held.end - held.start)
        .sum()
}

/// How much memory an engine needs to hold the core's.
pub(super) fn memory_needed(core: &Core) -> u64 {
    let mut bytes = OVERHEAD;
    for held in core.segments.iter().flat_map(|segment| whole_pages(core, segment)) {
        let size = held.end - held.start;
        bytes = bytes.saturating_add(size).saturating_add((size / TABLE_SPAN + 4) * PAGE);
    }
    bytes.next_multiple_of(PAGE)
}

/// The pages of a segment that the core holds in whole; none of one without rights.
fn whole_pages(core: &Core, segment: &Segment) -> Vec<Range<u64>> {
    let rights = segment.rights;
    let (start, end) = (segment.start, segment.end.min(USER_END));
    if end <= start || !(rights.read || rights.write || rights.execute) {
        return Vec::new();
    }
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for (at, bytes) in core.known(start..end.next_multiple_of(PAGE)) {
        let behind = at + bytes.len() as u64;
        match pieces.last_mut() {
            Some(last) if last.end == at => last.end = behind,
            _ => pieces.push(at..behind),
        }
    }
    let whole = pieces.into_iter().map(|piece| piece.start.next_multiple_of(PAGE)..piece.end / PAGE * PAGE);
    whole.filter(|piece| piece.start < piece.end).collect()
}

/// A suffix may not begin with other bytes than the core's where the program could not have changed them.
fn refuse_constant(core: &Core, address: u64, bytes: &[u8]) -> Result<(), CertificateError> {
    for (at, byte) in (address..).zip(bytes) {
        let writable = core.segment(at).is_some_and(|segment| segment.rights.write);
        if !writable && core.byte(at) != Some(*byte) {
            return Err(CertificateError::ConstantMemory { address: at });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use vmm::elfcore::write::{Area, Contents, write};
    use vmm::engine::soft::SoftCpu;

    const START: u64 = 0x60_0000;

    /// A core with so many writable pages of sevens.
    fn write_core(path: &Path, pages: u64) {
        let rights = vmm::elfcore::Rights { read: true, write: true, execute: false };
        let area = Area { start: START, end: START + pages * PAGE, rights };
        let file = std::fs::File::create(path).unwrap();
        write(file, &Contents::default(), &[area], &mut |_, page| {
            page.fill(7);
            true
        })
        .unwrap();
    }

    #[test]
    fn pages_come_when_they_are_touched() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        write_core(&path, 4);
        let core = Core::open(&path).unwrap();
        let machine = SoftCpu::machine(memory_needed(&core)).unwrap().any();
        let mut stage = Stage::new(machine, &core, &Suffix::default()).unwrap();
        let mut bytes = [0; 4];
        assert!(stage.read(START + PAGE - 2, &mut bytes) && bytes == [7; 4]);
        assert_eq!(stage.pages().count(), 0);
        stage.write(START + PAGE - 1, &[1]).unwrap();
        assert!(stage.read(START + PAGE - 2, &mut bytes) && bytes == [7, 1, 7, 7]);
        let touched: Vec<u64> = stage.pages().map(|(page, _)| page).collect();
        assert_eq!((touched, held(&core)), (vec![START], 4 * PAGE));
        assert!(!stage.read(START + 4 * PAGE - 2, &mut bytes), "the last two are not in the core");
        assert!(stage.write(START + 4 * PAGE, &[1]).is_err());
    }

    /// A mapping of 64 TiB of which the core has a page, as sanitizers make them.
    #[test]
    fn memory_is_needed_for_what_the_core_holds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("core");
        write_core(&path, 1);
        let mut bytes = std::fs::read(&path).unwrap();
        // The second program header's p_memsz.
        bytes[64 + 56 + 40..][..8].copy_from_slice(&(1_u64 << 46).to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
        let core = Core::open(&path).unwrap();
        assert_eq!(core.segments[0].end, START + (1 << 46));
        assert_eq!(memory_needed(&core), OVERHEAD + 5 * PAGE);
        assert_eq!(whole_pages(&core, &core.segments[0]), std::slice::from_ref(&(START..START + PAGE)));
    }
}
