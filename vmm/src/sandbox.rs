//! Bare code on an engine, without a personality: map pages, load registers, run, look.
//!
//! The certificate of a synthesized suffix runs in one, and so do the tests of the engines.

use crate::engine::{Cpu, EngineError, Exit, Machine, Phys, StalePage, Until, Virt};
use crate::ram::paging::{PageTables, PagingError, Rights};
use crate::ram::{Memory, OutOfFrames, PAGE};
use x86::state::State;

/// A machine with one address space.
pub struct Sandbox<C: Cpu + ?Sized = dyn Cpu> {
    machine: Machine<C>,
    tables: PageTables,
}

/// Why a sandbox cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A page cannot be mapped.
    #[error(transparent)]
    Paging(#[from] PagingError),
    /// All frames are in use.
    #[error(transparent)]
    Memory(#[from] OutOfFrames),
    /// An address that is not mapped.
    #[error("nothing is mapped at {0:#x}")]
    NotMapped(Virt),
}

impl<C: Cpu + ?Sized> Sandbox<C> {
    /// An empty address space on `machine`.
    ///
    /// # Errors
    /// When there is no memory for its page tables.
    pub fn new(mut machine: Machine<C>) -> Result<Sandbox<C>, SandboxError> {
        let tables = PageTables::new(&mut machine.memory)?;
        machine.cpu.set_page_table(tables.root());
        Ok(Sandbox { machine, tables })
    }

    /// Puts `bytes` at `va`, with `rights` for all the pages that they touch; what else is in those pages is zero, or
    /// stays as it was if they were mapped.
    pub fn map(&mut self, va: Virt, bytes: &[u8], rights: Rights) -> Result<(), SandboxError> {
        let mut stale = Vec::new();
        for page in pages(va, bytes.len() as u64) {
            let known = self.tables.walk(self.memory().ram(), page);
            let memory = &mut self.machine.memory;
            let frame = match known {
                Some(mapping) => {
                    stale.push(StalePage { page, frame: mapping.frame });
                    mapping.frame
                }
                None => memory.allocate()?,
            };
            self.tables.map(memory, page, frame, rights)?;
        }
        self.machine.memory.invalidate(stale);
        self.copy_in(va, bytes)
    }

    /// Takes away the pages that `len` bytes at `va` touch; their frames are used again.
    pub fn unmap(&mut self, va: Virt, len: u64) -> Result<(), SandboxError> {
        let (mut gone, mut stale) = (Vec::new(), Vec::new());
        for page in pages(va, len) {
            if let Some((mapping, old)) = self.tables.unmap(self.machine.memory.ram_mut(), page) {
                gone.push(mapping.frame);
                stale.extend(old);
            }
        }
        let memory = &mut self.machine.memory;
        memory.invalidate(stale);
        gone.into_iter().for_each(|frame| memory.frames_mut().release(frame));
        Ok(())
    }

    /// Takes away every page.
    pub fn clear(&mut self) -> Result<(), SandboxError> {
        let all: Vec<Virt> =
            self.tables.mapped(self.machine.memory.ram(), 0, Virt::MAX).map(|(va, _)| va).collect();
        all.into_iter().try_for_each(|page| self.unmap(page, PAGE))
    }

    /// Changes the rights of the pages that `len` bytes at `va` touch.
    pub fn protect(&mut self, va: Virt, len: u64, rights: Option<Rights>) -> Result<(), SandboxError> {
        let mut stale = Vec::new();
        for page in pages(va, len) {
            stale.extend(self.tables.protect(self.machine.memory.ram_mut(), page, rights));
        }
        self.machine.memory.invalidate(stale);
        Ok(())
    }

    /// Reads memory, whatever its rights are.
    pub fn read(&self, va: Virt, bytes: &mut [u8]) -> Result<(), SandboxError> {
        let mut rest = bytes;
        for (at, len) in pieces(va, rest.len() as u64) {
            let frame = self.frame(at)?;
            let (now, later) = rest.split_at_mut(len);
            now.copy_from_slice(&self.machine.memory.ram().frame(frame)[offset(at)..][..len]);
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(SandboxError::NotMapped(0)) }
    }

    /// Writes memory, whatever its rights are.
    pub fn write(&mut self, va: Virt, bytes: &[u8]) -> Result<(), SandboxError> {
        self.copy_in(va, bytes)?;
        let code: Vec<StalePage> = pages(va, bytes.len() as u64)
            .filter_map(|page| Some((page, self.tables.walk(self.machine.memory.ram(), page)?)))
            .filter(|(_, mapping)| mapping.rights.is_some_and(|rights| rights.execute))
            .map(|(page, mapping)| StalePage { page, frame: mapping.frame })
            .collect();
        self.machine.memory.invalidate(code);
        Ok(())
    }

    /// The mapped pages in order, each with its bytes.
    pub fn pages(&self) -> impl Iterator<Item = (Virt, &[u8])> {
        let ram = self.machine.memory.ram();
        self.tables
            .mapped(ram, 0, Virt::MAX)
            .map(move |(va, mapping)| (va, ram.frame(mapping.frame).as_slice()))
    }

    /// Loads all registers.
    pub fn load(&mut self, state: &State) -> Result<(), SandboxError> {
        self.machine.cpu.set_regs(&state.regs)?;
        Ok(self.machine.cpu.set_fpu(&state.fpu)?)
    }

    /// All registers.
    pub fn state(&mut self) -> Result<State, SandboxError> {
        Ok(State { fpu: self.machine.cpu.fpu()?, regs: *self.machine.cpu.regs() })
    }

    /// Runs to the next exit.
    pub fn run(&mut self, until: Until) -> Result<Exit, SandboxError> {
        Ok(self.machine.run(until)?)
    }

    /// The processor.
    #[must_use]
    pub fn cpu(&self) -> &C {
        &self.machine.cpu
    }

    /// The processor, writable.
    pub fn cpu_mut(&mut self) -> &mut C {
        &mut self.machine.cpu
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.machine.memory
    }

    /// Writes memory without telling the processor.
    fn copy_in(&mut self, va: Virt, bytes: &[u8]) -> Result<(), SandboxError> {
        let mut rest = bytes;
        for (at, len) in pieces(va, rest.len() as u64) {
            let frame = self.frame(at)?;
            let (now, later) = rest.split_at(len);
            self.machine.memory.ram_mut().frame_mut(frame)[offset(at)..][..len].copy_from_slice(now);
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { Err(SandboxError::NotMapped(0)) }
    }

    /// The frame of the page of `va`.
    pub(crate) fn frame(&self, va: Virt) -> Result<Phys, SandboxError> {
        let mapping = self.tables.walk(self.machine.memory.ram(), va).ok_or(SandboxError::NotMapped(va))?;
        Ok(mapping.frame)
    }
}

/// The pages that `len` bytes at `va` touch: none for no bytes. Addresses end at the last one.
fn pages(va: Virt, len: u64) -> impl Iterator<Item = Virt> {
    let last = len.checked_sub(1).map(|more| va.saturating_add(more));
    last.into_iter().flat_map(move |last| va / PAGE..=last / PAGE).map(|number| number * PAGE)
}

/// `len` bytes at `va`, cut at page boundaries. What would lie behind the last address is in no piece.
fn pieces(va: Virt, len: u64) -> impl Iterator<Item = (Virt, usize)> {
    let last = va.saturating_add(len.saturating_sub(1));
    pages(va, len).map(move |page| {
        let start = page.max(va);
        (start, offset(last.min(page + (PAGE - 1))) - offset(start) + 1)
    })
}

/// Where in its page an address is.
fn offset(va: Virt) -> usize {
    usize::try_from(va % PAGE).expect("inside a page")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::soft::SoftCpu;

    #[test]
    fn pieces_are_cut_at_pages_and_none_are_empty() {
        let all = |va, len| pieces(va, len).collect::<Vec<_>>();
        assert_eq!(all(0x1ffe, 5), [(0x1ffe, 2), (0x2000, 3)]);
        assert_eq!(all(0x1000, 0x2000), [(0x1000, 0x1000), (0x2000, 0x1000)]);
        assert_eq!(all(0x1001, 0), []);
        assert_eq!(all(0, 0), []);
        assert_eq!(all(Virt::MAX, 1), [(Virt::MAX, 1)]);
        assert_eq!(all(Virt::MAX - 1, 9), [(Virt::MAX - 1, 2)]);
    }

    #[test]
    fn no_bytes_are_read_and_written_anywhere() {
        let mut sandbox = Sandbox::new(SoftCpu::machine(1 << 20).unwrap()).unwrap();
        let rights = Rights { write: true, execute: false };
        for va in [0, 0x1000, 0x1234, Virt::MAX] {
            sandbox.read(va, &mut []).unwrap();
            sandbox.write(va, &[]).unwrap();
            sandbox.map(va, &[], rights).unwrap();
            sandbox.unmap(va, 0).unwrap();
        }
        assert_eq!(sandbox.pages().count(), 0);
        sandbox.map(0x1000, &[1], rights).unwrap();
        assert!(matches!(sandbox.read(0x1fff, &mut [0; 2]), Err(SandboxError::NotMapped(0x2000))));
    }
}
