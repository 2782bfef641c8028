//! What can be asked of any process that lives where the program stands, be it loaded or not.
//!
//! Example: nginx's worker stands at a crash. `tasks` gives the worker's and the master's; `read_memory_of` with the master's
//! id reads what the master has at that address, though the worker's address space is loaded.

use super::{Process, ProcessError};
use crate::memory::{AddressSpace, MappingInfo};
use crate::ram::{Phys, Virt};
use x86::state::State;

/// A task that lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its process.
    pub pid: i32,
    /// The task.
    pub id: i32,
    /// Its name, as it is in /proc/PID/comm.
    pub name: Vec<u8>,
}

impl Process {
    /// All tasks of all processes; the loaded one is first, and is there even if it has ended.
    pub fn tasks(&self) -> impl Iterator<Item = Standing> {
        let named = self.kernel.tasks.all_named();
        named.map(|(pid, id, name)| Standing { pid, id, name: name.to_vec() })
    }

    /// The registers of a task; `None` where there is none of this id.
    ///
    /// # Errors
    /// When the processor does not give its state.
    pub fn state_of(&mut self, task: i32) -> Result<Option<State>, ProcessError> {
        if task == self.thread() {
            return self.state().map(Some);
        }
        Ok(self.kernel.tasks.state_of(task).copied())
    }

    /// The address space of a process that has not ended.
    pub(crate) fn space_of(&self, pid: i32) -> Option<&AddressSpace> {
        self.number_of_space(pid).map(|space| self.spaces.get(space))
    }

    fn number_of_space(&self, pid: i32) -> Option<u32> {
        if pid == self.pid() { Some(self.space) } else { self.kernel.tasks.space_of(pid) }
    }

    /// As [`AddressSpace::hold_page`], of any process that has not ended.
    pub(crate) fn hold_page(&mut self, pid: i32, page: Virt) -> Option<Phys> {
        let space = self.number_of_space(pid)?;
        self.spaces.get_mut(space).hold_page(&mut self.machine.memory, page)
    }

    /// As [`Process::read_memory`], of any process; false also where there is none of this id.
    #[must_use]
    pub fn read_memory_of(&self, pid: i32, address: Virt, bytes: &mut [u8]) -> bool {
        self.space_of(pid).is_some_and(|space| space.read_original(&self.machine.memory, address, bytes))
    }

    /// The parts of a process's address space, in address order.
    #[must_use]
    pub fn mappings_of(&self, pid: i32) -> Vec<MappingInfo> {
        self.space_of(pid).map(AddressSpace::describe).unwrap_or_default()
    }

    /// How many bytes of the mapping at an address are a process's own, and not a file's.
    #[must_use]
    pub fn anonymous_of(&self, pid: i32, start: Virt) -> u64 {
        self.space_of(pid).map_or(0, |space| space.anonymous(&self.machine.memory, start))
    }

    /// The program and the arguments of a process or zombie.
    #[must_use]
    pub fn command_of(&self, pid: i32) -> Option<(&std::ffi::CStr, &[Vec<u8>])> {
        self.kernel.command_of(pid)
    }

    /// The auxiliary vector that the loaded process was started with.
    #[must_use]
    pub fn auxv(&self) -> Vec<(u64, u64)> {
        self.auxv_of(self.pid())
    }

    /// The auxiliary vector that a process was started with; empty where there is none of this id.
    #[must_use]
    pub fn auxv_of(&self, pid: i32) -> Vec<(u64, u64)> {
        let words = self.kernel.auxiliary_of(pid).unwrap_or_default().chunks_exact(8);
        let words: Vec<u64> =
            words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
        let pairs = words.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        pairs.take_while(|(kind, _)| *kind != 0).collect()
    }
}
