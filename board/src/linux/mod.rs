//! What a Linux kernel has in its memory, read without any file of it: nothing but the core.
//!
//! Reading order: [`info`] (VMCOREINFO, where everything begins), `space` (its virtual addresses), then what each reader finds: [`printk`]
//! (the log), [`symbols`] with `kallsyms` (names of addresses, of modules too), `types` (where fields are, from BTF), [`tasks`], and [`stack`] with `orc`
//! (who called whom).
//!
//! Example: VMCOREINFO says `SYMBOL(prb)=ffffffff82a622c0` and `OFFSET(printk_ringbuffer.desc_ring)=0`. The page tables say where that is
//! in physical memory, the ring there has 400 records, and each is a line of the kernel's log.
//!
//! All of it is whatever a broken kernel left: every number is checked, every list has a bound, and what cannot be read is said by name.

pub mod info;
mod kallsyms;
mod orc;
pub mod printk;
mod space;
pub mod stack;
pub mod symbols;
pub mod tasks;
mod types;

#[cfg(test)]
mod tests;

use info::Info;
use printk::Log;
use space::Space;
use stack::Trace;
use symbols::Symbols;
use tasks::Task;
use types::Types;
use x86::state::Regs;

/// Physical memory.
pub trait Memory {
    /// Fills bytes from an address; whether all of them are there.
    fn read_physical(&self, at: u64, bytes: &mut [u8]) -> bool;
}

/// Memory from address zero on.
impl Memory for Vec<u8> {
    fn read_physical(&self, at: u64, bytes: &mut [u8]) -> bool {
        let found = usize::try_from(at).ok().and_then(|at| self.get(at..at.checked_add(bytes.len())?));
        found.map(|found| bytes.copy_from_slice(found)).is_some()
    }
}

/// A kernel in memory.
pub struct Linux<'m> {
    info: Info<'m>,
    space: Space<'m>,
    symbols: Result<Symbols, String>,
    types: Result<Types, String>,
}

impl<'m> Linux<'m> {
    /// The kernel that describes itself so.
    ///
    /// # Errors
    /// Why nothing can be read: the description does not say where its page tables are.
    pub fn new(memory: &'m dyn Memory, description: &'m str) -> Result<Linux<'m>, String> {
        let info = Info::of(description);
        let space = Space::of(memory, &info)?;
        let mut symbols = Symbols::read(&space, &info);
        let types = match &symbols {
            Ok(symbols) => Types::read(&space, symbols),
            Err(why) => Err(why.clone()),
        };
        if let (Ok(symbols), Ok(types)) = (&mut symbols, &types) {
            symbols.add_modules(&space, types);
        }
        Ok(Linux { info, space, symbols, types })
    }

    /// Its version, such as `6.1.0-56-cloud-amd64`.
    #[must_use]
    pub fn release(&self) -> Option<&'m str> {
        self.info.text("OSRELEASE")
    }

    /// Its log.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn log(&self) -> Result<Log, String> {
        printk::read(&self.space, &self.info)
    }

    /// The names of addresses.
    ///
    /// # Errors
    /// Why there are none.
    pub fn symbols(&self) -> Result<&Symbols, String> {
        self.symbols.as_ref().map_err(Clone::clone)
    }

    /// The task that a processor ran.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn task(&self, processor: usize) -> Result<Task, String> {
        tasks::current(&self.space, self.symbols()?, self.types.as_ref().map_err(Clone::clone)?, processor)
    }

    /// Who called whom, from the registers of a processor in the kernel.
    #[must_use]
    pub fn stack(&self, regs: &Regs) -> Trace {
        match (&self.symbols, &self.types) {
            (Ok(symbols), types) => stack::trace(&self.space, symbols, types.as_ref(), regs),
            (Err(why), _) => stack::without_names(regs, why),
        }
    }
}
