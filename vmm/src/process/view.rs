//! What can be asked of a program that stands between two steps: who runs, its registers, its memory.

use super::machine_reads::LONGEST;
use super::profile::Profile;
use super::walked::Walked;
use super::{Process, ProcessError, Step};
use crate::cpu_model::Model;
use crate::engine::{Cpu, Interrupter};
use crate::gate::Gate;
use crate::linux::{KilledForMemory, OpenFile, Unserved};
use crate::memory::{AddressSpace, MappingInfo};
use crate::ram::{Memory, Virt, Written};
use crate::signal::Death;
use crate::stack::Space;
use iced_x86::{Decoder, DecoderOptions};
use lbr::Armed;
use std::rc::Rc;
use x86::state::State;

impl Process {
    /// The least CPU model that has the instruction at rip, if the program is shown a lesser one.
    #[must_use]
    pub fn needs_model(&self) -> Option<Model> {
        let (rip, mut bytes) = (self.machine.cpu.regs().rip, [0; LONGEST]);
        self.read_memory(rip, &mut bytes);
        let instruction = Decoder::with_ip(64, &bytes, rip, DecoderOptions::NONE).decode();
        Model::for_instruction(&instruction)
            .filter(|needed| *needed > self.model && !instruction.is_invalid())
    }

    /// Measures from here on where its time goes.
    pub fn measure(&mut self) {
        self.profile = Some(Profile::default());
    }

    /// What was measured.
    #[must_use]
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// The processor.
    #[must_use]
    pub fn cpu(&self) -> &dyn Cpu {
        &*self.machine.cpu
    }

    /// The processor, writable.
    pub fn cpu_mut(&mut self) -> &mut dyn Cpu {
        &mut *self.machine.cpu
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.machine.memory
    }

    /// Notes from here on what the kernel writes for programs; or no longer.
    pub fn note_writes(&mut self, note: bool) {
        self.machine.memory.note_writes(note);
    }

    /// What it has written since the last call.
    pub fn take_writes(&mut self) -> Vec<Written> {
        self.machine.memory.take_writes()
    }

    /// The gate.
    #[must_use]
    pub fn gate(&self) -> &dyn Gate {
        &*self.gate
    }

    /// Empties the branch records whenever another task gets the processor, as Linux does: those of two tasks are no
    /// path of either.
    pub fn empty_at_switches(&mut self, records: Armed) {
        self.records = Some(records);
    }

    /// From now on that is no matter: they were switched off.
    pub(crate) fn leave_records(&mut self) {
        self.records = None;
    }

    /// How often the branch records were emptied because another task got the processor.
    pub(crate) fn emptied(&self) -> u64 {
        self.emptied
    }

    /// The loaded address space.
    #[must_use]
    pub fn space(&self) -> &AddressSpace {
        self.spaces.get(self.space)
    }

    /// Integer, x87 and vector registers.
    pub fn state(&mut self) -> Result<State, ProcessError> {
        Ok(State { regs: *self.machine.cpu.regs(), fpu: self.machine.cpu.fpu()? })
    }

    /// The other threads of the loaded process by id, with their registers: where their calls wait, or where they go on.
    pub fn other_threads(&self) -> impl Iterator<Item = (i32, &State)> {
        self.kernel.tasks.others()
    }

    /// All tasks but the loaded one by id, with their registers.
    pub fn other_tasks(&self) -> impl Iterator<Item = (i32, &State)> {
        self.kernel.tasks.all_others()
    }

    /// The task that runs, or ran last.
    #[must_use]
    pub fn thread(&self) -> i32 {
        self.kernel.tasks.id()
    }

    /// How the loaded process was ended by a signal, if the program stands there.
    #[must_use]
    pub fn death(&self) -> Option<Death> {
        match self.end {
            Some(Step::Killed(death)) => Some(death),
            _ => self.dying,
        }
    }

    /// Whether its process is the first.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.kernel.pid() == self.kernel.first().0
    }

    /// Whether the first process died of a signal while others went on, so that the end is not where it crashed.
    #[must_use]
    pub fn first_died_before(&self) -> bool {
        self.first_death.is_some()
    }

    /// What a task has open by a number.
    pub(crate) fn file_of(&self, task: i32, number: i32) -> Option<Rc<OpenFile>> {
        self.kernel.file_of(task, number)
    }

    /// What the program asked for and was not given, in the order in which it was asked for first.
    #[must_use]
    pub fn unserved(&self) -> &[Unserved] {
        self.kernel.unserved()
    }

    /// The processes that were killed because memory was used up, in order.
    #[must_use]
    pub fn killed_for_memory(&self) -> &[KilledForMemory] {
        self.kernel.killed_for_memory()
    }

    /// Whether the first process has ended and others go on.
    pub(crate) fn first_has_ended(&self) -> bool {
        self.end.is_none() && self.kernel.first().1.is_some()
    }

    /// Whether there are other processes than the loaded one.
    pub(crate) fn has_other_processes(&self) -> bool {
        self.kernel.has_other_processes()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.kernel.pid()
    }

    /// The first process.
    #[must_use]
    pub fn first_pid(&self) -> i32 {
        self.kernel.first().0
    }

    /// The program and the arguments of the loaded process.
    #[must_use]
    pub fn command(&self) -> (&std::ffi::CStr, &[Vec<u8>]) {
        self.kernel.command()
    }

    /// The name of the task that runs, as it is in /proc/PID/comm.
    #[must_use]
    pub fn task_name(&self) -> &[u8] {
        self.kernel.tasks.name()
    }

    /// How many tasks were ever started, the first included.
    #[must_use]
    pub fn threads_started(&self) -> u64 {
        self.kernel.tasks.started()
    }

    /// What makes the processor come back.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.machine.cpu.interrupter()
    }

    /// A digest of the memory of all processes: the same on every engine for the same execution (see
    /// [`AddressSpace::digest`]).
    #[must_use]
    pub fn memory_digest(&self) -> u64 {
        let ram = self.machine.memory.ram();
        let digests: Vec<u64> = self.spaces.iter().map(|(_, space)| space.digest(ram)).collect();
        crate::journal::schema::digest_all(&digests)
    }

    /// The pages of `range` that may not be zero, as ranges in order. Takes no time for what was never touched.
    #[must_use]
    pub fn held(&self, range: &std::ops::Range<Virt>) -> Vec<std::ops::Range<Virt>> {
        self.space().held(&self.machine.memory, range)
    }

    /// The memory of the loaded task, for who walks its stack.
    #[must_use]
    pub fn walked(&self) -> impl Space + '_ {
        Walked::new(self.space(), &self.machine.memory)
    }

    /// The address space's parts, in address order.
    #[must_use]
    pub fn mappings(&self) -> Vec<MappingInfo> {
        self.space().describe()
    }

    /// Reads guest memory whatever its rights are, with the program's own code bytes (without the rewriting of
    /// machine reads). False if a byte is not mapped, or its file has ended.
    pub fn read_memory(&self, address: Virt, bytes: &mut [u8]) -> bool {
        self.space().read_original(&self.machine.memory, address, bytes)
    }
}
