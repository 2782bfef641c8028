//! What a debugger has a machine stop for: instructions, and accesses to data, by linear addresses of whatever is mapped there.
//!
//! What the processor itself loads and stores (the frames of interrupts, tables of pages), and what devices do, is not seen.

use super::{End, Machine, Pause, Position, STEP};
use vmm::engine::accessed::{DataAccess, accesses, repeated};
use vmm::engine::lookout::{Accessed, Lookout, Watch};
use x86::guard::Watched;
use x86::interpreter::Until;
use x86::state::{Fpu, Regs};
use x86_system::Registers;

/// What was looked for and has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It stands before the instruction at this address.
    Code(u64),
    /// The instruction at `before` has accessed watched data.
    Data {
        /// Where it stood before that.
        before: Position,
        /// What it did.
        accessed: Accessed,
    },
}

/// What to look for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// Instructions, in order of their addresses.
    pub(super) code: Vec<u64>,
    data: Lookout,
}

impl Look {
    /// The same as a debugger says it.
    pub(crate) fn of(lookout: &Lookout) -> Look {
        let mut code = lookout.at.clone();
        code.sort_unstable();
        code.dedup();
        Look { code, data: Lookout { at: Vec::new(), data: lookout.data.clone() } }
    }

    pub(super) fn has_code(&self, rip: u64) -> bool {
        self.code.binary_search(&rip).is_ok()
    }

    fn watched(&self) -> Vec<Watched> {
        let loads = |watch: &Watch| watch.access.includes(false);
        let watched = |watch: &Watch| Watched { range: watch.range.clone(), loads: loads(watch) };
        self.data.data.iter().map(watched).collect()
    }
}

impl Machine {
    /// Looks for this from now on, as far as that is data. Instructions are looked for by each run.
    pub(crate) fn watch(&mut self, look: &Look) {
        self.looked_for = look.watched();
        self.watch_all();
    }

    /// Has the guard watch what is looked for and what the guest has armed.
    pub(super) fn watch_all(&mut self) {
        let watched: Vec<Watched> =
            self.looked_for.iter().cloned().chain(self.breakpoints.watched()).collect();
        let cpu = self.processor.cpu_mut();
        for it in &watched {
            crate::memory::frames(it.range.start, it.range.end.saturating_sub(it.range.start))
                .for_each(|page| cpu.invalidate_page(page));
        }
        cpu.bus_mut().guard.watch(watched);
    }

    /// Runs the instruction at rip that the guard has stopped.
    pub(super) fn run_guarded(&mut self, look: &Look) -> Result<Option<Pause>, End> {
        let (position, before) = (self.position(), self.cpu().regs());
        let mut code = [0; 15];
        let there = self.read(before.rip, &mut code);
        // What 32-bit code accesses nobody tells.
        let is_narrow = self.system.registers.is_narrow();
        let accesses = if is_narrow { Vec::new() } else { accesses(&code[..there], &before) };
        let stepping = self.system.steps(self.cpu());
        let stop = self.processor.run(Until::retired(position.retired + 1), &mut ());
        let after = self.cpu().regs();
        let has_run = self.cpu().retired() > position.retired;
        let whole = |access: &DataAccess, repeats: bool| {
            if repeats { repeated(access, &before, &after) } else { access.range.clone() }
        };
        let met = accesses
            .iter()
            .map(|(access, repeats)| self.breakpoints.causes(&whole(access, *repeats), access.writes));
        let causes = met.fold(if stepping { STEP } else { 0 }, |all, cause| all | cause);
        self.serve(&stop)?;
        if causes != 0 {
            self.end_step(&stop, position, causes)?;
        }
        let seen = accesses.iter().find_map(|(access, repeats)| {
            let range = whole(access, *repeats);
            let address = look.data.watched(&range, access.writes)?;
            let len = range.end.saturating_sub(address);
            Some(Accessed { rip: before.rip, address, len, writes: access.writes })
        });
        let data = |accessed| Pause::Seen(Seen::Data { before: position, accessed });
        Ok(seen.filter(|_| has_run).map(data))
    }

    /// Fills bytes from linear addresses, as far as they are mapped to memory: how many these are.
    #[must_use]
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let bus = self.cpu().bus();
        let mut done = 0;
        while done < bytes.len() {
            let va = address.wrapping_add(done as u64);
            let room = (4096 - (va & 0xfff) as usize).min(bytes.len() - done);
            let at = bus.peek(va).and_then(|physical| usize::try_from(physical).ok());
            let Some(found) = at.and_then(|at| bus.ram().get(at..at + room)) else { break };
            bytes[done..done + room].copy_from_slice(found);
            done += room;
        }
        done
    }

    /// The integer registers.
    #[must_use]
    pub fn regs(&self) -> Regs {
        self.cpu().regs()
    }

    /// The x87 and vector registers.
    #[must_use]
    pub fn fpu(&self) -> Fpu {
        self.cpu().fpu()
    }

    /// The registers of the system.
    #[must_use]
    pub fn system_registers(&self) -> &Registers {
        &self.system.registers
    }
}
