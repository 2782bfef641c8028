//! All that a machine is made of: digests of it, what has changed, and putting it back.

use super::debug::Breakpoints;
use super::exceptions::Exceptions;
use super::exits::Exits;
use super::{Machine, Position};
use crate::devices::disk::Layers;
use crate::devices::{Devices, Extras};
use crate::memory::{Dirty, PAGE, Page, page};
use crate::saved::{Saved, Words};
use std::collections::BTreeSet;
use x86::interpreter::Counters;
use x86::state::{Fpu, Regs};
use x86_jit::{Jit, Tuning};
use x86_system::{Physical, Registers, System, SystemCpu};
use xxhash_rust::xxh3::Xxh3;

/// What a run has come to, for comparing two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Digests {
    /// Of all registers, and of the devices.
    pub state: u64,
    /// Of memory and disk: all of both at the end, else what was written since the digest before.
    pub memory: u64,
}

/// No more instructions than these have retired in a state that is put back: a thousand years of them.
const MOST_RETIRED: u64 = 1 << 62;

impl Machine {
    /// Digests of the registers and devices, and of the memory and the disk that were written since this was called last.
    pub fn digests(&mut self) -> Digests {
        let (state, dirty) = (self.state_digest(), self.take_written());
        let mut hash = Xxh3::new();
        for frame in &dirty.frames {
            hash.update(&frame.to_le_bytes());
            hash.update(page(self.ram(), *frame).map_or(&[], Page::as_slice));
        }
        self.hash_blocks(&mut hash, dirty.blocks.iter().copied());
        self.unsaved.add(&dirty);
        Digests { state, memory: hash.digest() }
    }

    /// The same, and cached translations are forgotten, so that a machine that is made of this state goes on as this one does.
    pub fn rest(&mut self) -> Digests {
        let digests = self.digests();
        self.processor.cpu_mut().flush_tlb();
        digests
    }

    /// Digests of everything.
    #[must_use]
    pub fn digests_of_all(&self) -> Digests {
        let mut hash = Xxh3::new();
        hash.update(self.ram());
        let layers = self.layers();
        self.hash_blocks(&mut hash, layers.iter().flat_map(|layers| layers.written.keys().copied()));
        Digests { state: self.state_digest(), memory: hash.digest() }
    }

    /// What is on its disk, if it has one.
    pub(crate) fn layers(&self) -> Option<&Layers> {
        self.devices.disk.as_ref().map(|disk| disk.layers())
    }

    fn hash_blocks(&self, hash: &mut Xxh3, blocks: impl Iterator<Item = u64>) {
        for block in blocks {
            hash.update(&block.to_le_bytes());
            hash.update(self.block(block).map_or(&[], Page::as_slice));
        }
    }

    /// A block of the disk that was written.
    pub(crate) fn block(&self, block: u64) -> Option<&Page> {
        self.layers()?.written.get(&block).map(|bytes| &**bytes)
    }

    /// What was written since this was called last.
    fn take_written(&mut self) -> Dirty {
        let mut frames = std::mem::take(&mut self.by_devices);
        frames.extend(self.processor.cpu_mut().take_written());
        // The processor's window is behind memory, and no state.
        let size = self.ram().len() as u64;
        frames.split_off(&size);
        let touched = self.devices.disk.as_mut().map(|disk| disk.take_touched()).unwrap_or_default();
        Dirty { frames, blocks: touched.into_iter().collect() }
    }

    /// What has changed since this was called last, or ever. Whoever goes on from here rests before.
    pub(crate) fn take_unsaved(&mut self) -> Dirty {
        let mut dirty = self.take_written();
        dirty.add(&std::mem::take(&mut self.unsaved));
        dirty.frames.extend(self.processor.cpu_mut().bus_mut().take_marked());
        dirty
    }

    /// Has what was taken as unsaved be so again, since it was not saved.
    pub(crate) fn keep_unsaved(&mut self, dirty: &Dirty) {
        self.unsaved.add(dirty);
    }

    fn state_digest(&self) -> u64 {
        let mut hash = Xxh3::new();
        self.state().iter().for_each(|word| hash.update(&word.to_le_bytes()));
        hash.digest()
    }

    /// The state, but for memory and what is on the disk.
    pub(crate) fn state(&self) -> Vec<u64> {
        let (mut out, cpu) = (Vec::new(), self.cpu());
        cpu.retired().put(&mut out);
        self.system.delivered.put(&mut out);
        cpu.regs().put(&mut out);
        cpu.fpu().put(&mut out);
        self.system.registers.put(&mut out);
        self.system.shielded_at().put(&mut out);
        self.is_halted.put(&mut out);
        self.devices.put(&mut out);
        out
    }

    /// A machine of so many bytes of memory, all zero, that is to be put into a state.
    pub(crate) fn empty(memory: u64, tuning: Option<Tuning>) -> Machine {
        let mut cpu = SystemCpu::new(Physical::new(memory));
        let system = System::new(&mut cpu, Registers::default());
        Machine {
            processor: Jit::new(cpu, tuning),
            code_file: None,
            system,
            devices: Devices::new(0, None, Extras::default()),
            is_halted: false,
            end: None,
            by_devices: BTreeSet::new(),
            unsaved: Dirty::default(),
            breakpoints: Breakpoints::default(),
            looked_for: Vec::new(),
            happenings: None,
            sent: None,
            exceptions: Exceptions::default(),
            exits: Exits::default(),
            progress: Position::default(),
            delivered: 0,
        }
    }

    /// Puts it into a state, with this on its disk; `None` where that is none. Memory is put back before, by [`Machine::put_page`].
    pub(crate) fn put_state(&mut self, words: &[u64], layers: Option<Layers>) -> Option<()> {
        let mut from = Words(words);
        let retired = u64::take(&mut from).filter(|retired| *retired < MOST_RETIRED)?;
        let delivered = u64::take(&mut from).filter(|delivered| *delivered < MOST_RETIRED)?;
        let (regs, fpu) = <(Regs, Fpu)>::take(&mut from)?;
        let (registers, shielded_at) = <(Registers, Option<u64>)>::take(&mut from)?;
        let is_halted = bool::take(&mut from)?;
        self.devices = Devices::take(&mut from, layers).filter(|_| from.0.is_empty())?;
        (self.is_halted, self.end) = (is_halted, None);
        self.processor.set_counters(Counters { instructions: retired, ..Counters::default() });
        let cpu = self.processor.cpu_mut();
        cpu.set_regs(&regs);
        cpu.set_fpu(&fpu);
        self.system.restore(cpu, registers, shielded_at);
        self.system.delivered = delivered;
        self.progress = self.position();
        self.delivered = delivered;
        self.arm();
        // Nothing has changed since.
        self.take_unsaved();
        Some(())
    }

    /// Puts a frame of memory back; `None` where there is no memory.
    pub(crate) fn put_page(&mut self, frame: u64, bytes: &Page) -> Option<()> {
        let cpu = self.processor.cpu_mut();
        let at = usize::try_from(frame).ok()?;
        cpu.bus_mut().ram_mut().get_mut(at..at.checked_add(PAGE)?)?.copy_from_slice(bytes);
        cpu.written(frame, PAGE as u64);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::vsock::Header;
    use crate::journal::Input;
    use crate::{Extras, Pause, Setup, Size};

    const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-images/build/bare-kernel");

    fn machine() -> Machine {
        let kernel = std::fs::read(IMAGE).unwrap_or_else(|error| panic!("{IMAGE}: {error}: make guests"));
        let extras = Extras { net: Some([2, 0, 0, 0, 0, 9]), rng: true, console: true, vsock: true };
        let command_line = "spin".to_owned();
        let setup = Setup { kernel, command_line, memory: 16 << 20, extras, ..Setup::default() };
        Machine::boot(&setup).unwrap()
    }

    fn run(machine: &mut Machine, until: u64) -> Pause {
        loop {
            match machine.run(until) {
                Pause::Idle(Some(due)) => machine.wait_until(due),
                pause => return pause,
            }
        }
    }

    fn copy(machine: &mut Machine, words: &[u64]) -> Option<Machine> {
        let mut copy = Machine::empty(machine.ram().len() as u64, None);
        for frame in (0..machine.ram().len() as u64).step_by(PAGE) {
            copy.put_page(frame, page(machine.ram(), frame).unwrap()).unwrap();
        }
        copy.put_state(words, None).map(|()| copy)
    }

    #[test]
    fn a_machine_that_is_put_back_goes_on_as_the_first_did() {
        for stop in [1_000, 3_000, 500_000, 5_000_000] {
            let mut first = machine();
            run(&mut first, stop);
            first.rest();
            let words = first.state();
            let mut second = copy(&mut first, &words).expect("it is a state");
            assert_eq!(second.state(), words);
            for until in [stop + 1, stop + 77_777, u64::MAX >> 2] {
                assert_eq!(run(&mut first, until), run(&mut second, until), "from {stop} to {until}");
                assert_eq!((first.moment(), first.digests()), (second.moment(), second.digests()));
            }
        }
    }

    /// A state may be anything: it is refused, or runs to some end.
    #[test]
    fn no_state_ends_gretel() {
        let mut first = machine();
        run(&mut first, 500_000);
        first.rest();
        let words = first.state();
        let (mut seed, mut taken) = (7_u64, 0);
        let mut random = || {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            seed ^ seed >> 29
        };
        let size = Size { columns: 80, rows: 25 };
        let inputs = [
            Input::Typed(b"x".to_vec()),
            Input::Frame(vec![1; 60]),
            Input::Random(vec![2; 64]),
            Input::Resized(size),
            Input::Packet(Header::default().packet(&[])),
            Input::Severed,
        ];
        for at in 0..words.len() {
            for value in [u64::MAX, random(), random() >> (random() % 64), 0] {
                let mut bad = words.clone();
                bad[at] = value;
                let Some(mut machine) = copy(&mut first, &bad) else { continue };
                taken += 1;
                let until = machine.position().retired + 300;
                run(&mut machine, until);
                inputs.iter().for_each(|input| machine.take_in(input));
                run(&mut machine, until + 300);
                machine.digests();
            }
        }
        assert!(taken > words.len(), "{taken} states were taken");
        for cut in 0..words.len() {
            assert!(copy(&mut first, &words[..cut]).is_none());
        }
    }
}
