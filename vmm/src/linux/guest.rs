//! What the personality works on: the processor, memory, the loaded address space, and the gate.

use super::arena::{Arena, Id};
use super::{Served, Stop, errno, host, result};
use crate::cpu_model::Model;
use crate::engine::Cpu;
use crate::gate::{Gate, GateError, Input, MemoryWrite};
use crate::memory::AddressSpace;
use crate::memory::space::Access;
use crate::ram::{Memory, PAGE_LEN, Virt};

/// All address spaces.
pub(crate) type Spaces = Arena<AddressSpace>;

/// The guest as the personality sees it while it serves an exit.
pub(crate) struct Guest<'a> {
    pub(crate) cpu: &'a mut dyn Cpu,
    pub(crate) memory: &'a mut Memory,
    pub(crate) spaces: &'a mut Spaces,
    /// The loaded address space.
    pub(crate) space: &'a mut Id,
    /// Where inputs come from.
    pub(crate) gate: &'a mut dyn Gate,
    /// The processor that programs see.
    pub(crate) model: Model,
}

impl Guest<'_> {
    /// The loaded address space.
    pub(crate) fn space(&self) -> &AddressSpace {
        self.spaces.get(*self.space)
    }

    /// The same, to be changed.
    pub(crate) fn space_mut(&mut self) -> &mut AddressSpace {
        self.spaces.get_mut(*self.space)
    }

    /// The same, with the memory that it lies in.
    pub(crate) fn both(&mut self) -> (&mut AddressSpace, &mut Memory) {
        (self.spaces.get_mut(*self.space), self.memory)
    }

    /// Loads another address space.
    pub(crate) fn enter(&mut self, space: Id) {
        *self.space = space;
        self.cpu.set_page_table(self.spaces.get(space).root());
    }

    /// How many of `length` bytes at `address` the program may access so, from the first on.
    pub(crate) fn accessible(&mut self, address: Virt, length: u64, access: Access) -> u64 {
        let (space, memory) = self.both();
        space.accessible(memory, address, length, access)
    }

    /// A copy of the loaded address space.
    pub(super) fn fork_space(&mut self) -> Served<Id> {
        let (space, memory) = self.both();
        match space.fork(memory) {
            Ok(twin) => Ok(self.spaces.insert(twin)),
            Err(_) => errno(libc::ENOMEM),
        }
    }

    /// Counts one owner of an address space less; its memory goes with the last one.
    pub(super) fn release_space(&mut self, space: Id) {
        if let Some(gone) = self.spaces.release(space) {
            gone.release(self.memory);
        }
    }

    /// Reads guest memory.
    pub(crate) fn read(&mut self, address: Virt, bytes: &mut [u8]) -> Served<()> {
        let (space, memory) = self.both();
        Ok(space.read(memory, address, bytes)?)
    }

    /// Reads `N` bytes of guest memory.
    pub(crate) fn read_array<const N: usize>(&mut self, address: Virt) -> Served<[u8; N]> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a vector of 64-bit words.
    pub(crate) fn read_words<const N: usize>(&mut self, address: Virt) -> Served<[u64; N]> {
        let mut words = [[0; 8]; N];
        self.read(address, words.as_flattened_mut())?;
        Ok(words.map(u64::from_le_bytes))
    }

    /// Writes guest memory.
    pub(crate) fn write(&mut self, address: Virt, bytes: &[u8]) -> Served<()> {
        let (space, memory) = self.both();
        Ok(space.write(memory, address, bytes)?)
    }

    /// Reads memory of another address space.
    pub(super) fn read_from_space(&mut self, space: Id, address: Virt, bytes: &mut [u8]) -> Served<()> {
        Ok(self.spaces.get_mut(space).read(self.memory, address, bytes)?)
    }

    /// Writes memory of another address space.
    pub(super) fn write_to_space(&mut self, space: Id, address: Virt, bytes: &[u8]) -> Served<()> {
        Ok(self.spaces.get_mut(space).write(self.memory, address, bytes)?)
    }

    /// Writes 64-bit words.
    pub(crate) fn write_words(&mut self, address: Virt, words: &[u64]) -> Served<()> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(address, &bytes)
    }

    /// Reads a structure that has grown over time, `size` bytes as the program knows it and `known` as it is known here: what the program's
    /// has not is zero, and what is not known of it must be (`copy_struct_from_user` of the kernel).
    pub(crate) fn grown(&mut self, address: Virt, size: u64, known: usize) -> Served<Vec<u8>> {
        let size = usize::try_from(size).ok().filter(|size| *size <= PAGE_LEN);
        let Some(size) = size else { return errno(libc::E2BIG) };
        let mut bytes = vec![0; size.max(known)];
        self.read(address, &mut bytes[..size])?;
        if bytes.drain(known..).any(|byte| byte != 0) {
            return errno(libc::E2BIG);
        }
        Ok(bytes)
    }

    /// Reads a text up to its zero byte; `None` if it is longer than `limit` with it.
    pub(crate) fn string(&mut self, address: Virt, limit: usize) -> Served<Option<Vec<u8>>> {
        let (space, memory) = self.both();
        Ok(space.read_string(memory, address, limit)?)
    }

    /// Reads a path.
    pub(crate) fn path(&mut self, address: Virt) -> Served<Vec<u8>> {
        let limit = usize::try_from(libc::PATH_MAX).expect("a small constant");
        match self.string(address, limit)? {
            Some(path) => Ok(path),
            None => errno(libc::ENAMETOOLONG),
        }
    }

    /// Asks the host through the gate: its result, or its error; what it wrote is in guest memory then.
    pub(crate) fn input(&mut self, produce: &mut dyn FnMut() -> Input) -> Served {
        match self.gate.input(produce)? {
            Input::Result(value) => result(value),
            Input::Bytes { result: value, writes } => {
                for MemoryWrite { address, bytes } in &writes {
                    self.write(*address, bytes)?;
                }
                result(value)
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Asks the host for a number through the gate.
    pub(crate) fn input_number(&mut self, mut produce: impl FnMut() -> i64) -> Served {
        self.input(&mut || Input::Result(produce()))
    }

    /// Asks the host for bytes that are not for the guest's memory, or not as they are.
    pub(crate) fn input_bytes(
        &mut self,
        produce: &mut dyn FnMut() -> Result<Vec<u8>, i64>,
    ) -> Served<Vec<u8>> {
        let input = self.gate.input(&mut || match produce() {
            Ok(bytes) => Input::Bytes { result: 0, writes: vec![MemoryWrite { address: 0, bytes }] },
            Err(result) => Input::Bytes { result, writes: Vec::new() },
        })?;
        match input {
            Input::Bytes { result: value, writes } => {
                result(value)?;
                Ok(writes.into_iter().next().map(|write| write.bytes).unwrap_or_default())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// The same for several pieces, in order.
    pub(super) fn input_parts(
        &mut self,
        produce: &mut dyn FnMut() -> Vec<Vec<u8>>,
    ) -> Served<std::vec::IntoIter<Vec<u8>>> {
        let input = self.gate.input(&mut || {
            let writes = (0..).zip(produce()).map(|(address, bytes)| MemoryWrite { address, bytes });
            Input::Bytes { result: 0, writes: writes.collect() }
        })?;
        match input {
            Input::Bytes { writes, .. } => {
                let parts: Vec<_> = writes.into_iter().map(|write| write.bytes).collect();
                Ok(parts.into_iter())
            }
            other => Err(self.unexpected(&other)),
        }
    }

    /// Sixteen random bytes, for AT_RANDOM.
    pub(super) fn random16(&mut self) -> Served<[u8; 16]> {
        let bytes = self.input_bytes(&mut || {
            let mut bytes = vec![0; 16];
            host::random(&mut bytes);
            Ok(bytes)
        })?;
        bytes.try_into().map_err(|_| Stop::Fatal(GateError::OtherInput("too few bytes").into()))
    }

    /// What to do about an input of another kind than was asked for: a journal that is not of this program.
    pub(super) fn unexpected(&self, input: &Input) -> Stop {
        Stop::Fatal(GateError::OtherInput(input.kind()).into())
    }
}
