//! The history of a recording: who wrote, found by going back through it.

use super::survey::{Birth, Survey};
use super::{Byte, History, Made, Place, Writer};
use crate::memory::MappingInfo;
use crate::position::Position;
use crate::process::Process;
use crate::process::happening::Happening;
use crate::replay::ReplayError;
use crate::travel::Travel;
use iced_x86::{Decoder, DecoderOptions, Instruction};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use x86_provenance::{Before, Memory, Origin, Provenance, Untraced, trace};

/// The longest instruction.
const LONGEST: usize = 15;

/// A recording that is asked for writers.
pub struct Recorded<'a> {
    pub(super) travel: &'a mut Travel,
    /// What happened while it was listened.
    happened: Rc<RefCell<Vec<Happening>>>,
    listens: Rc<Cell<bool>>,
    /// Found when it is first asked for.
    survey: Option<Survey>,
}

impl<'a> Recorded<'a> {
    /// Of a recording, which is left wherever the last answer was found.
    pub fn new(travel: &'a mut Travel) -> Recorded<'a> {
        let happened: Rc<RefCell<Vec<Happening>>> = Rc::default();
        let listens = Rc::new(Cell::new(false));
        let (told, listening) = (Rc::clone(&happened), Rc::clone(&listens));
        travel.process_mut().trace(Box::new(move |happening: &Happening| {
            if listening.get() {
                told.borrow_mut().push(happening.clone());
            }
        }));
        Recorded { travel, happened, listens, survey: None }
    }

    /// The recording.
    pub fn travel(&mut self) -> &mut Travel {
        self.travel
    }

    /// Begins to listen to what happens, or ends.
    pub(super) fn listen(&mut self, listen: bool) {
        self.listens.set(listen);
        self.happened.borrow_mut().clear();
    }

    /// What has happened since.
    pub(super) fn happened(&mut self) -> Vec<Happening> {
        self.happened.take()
    }

    /// What there is to be found by going through all of the recording; one stays where one stands.
    pub(super) fn survey(&mut self) -> Result<&Survey, ReplayError> {
        if self.survey.is_none() {
            let here = self.travel.position();
            self.travel.seek(self.travel.begin())?;
            self.listen(true);
            let mut survey = Survey::default();
            while !self.travel.ended() {
                self.travel.exit()?;
                let happened = self.happened();
                survey.take(self.travel.process(), &happened);
            }
            self.listen(false);
            self.travel.seek(here)?;
            self.survey = Some(survey);
        }
        Ok(self.survey.get_or_insert_default())
    }

    /// How a task began; `None` for the first.
    pub(super) fn birth(&mut self, task: i32) -> Result<Option<Birth>, ReplayError> {
        Ok(self.survey()?.births.get(&task).copied())
    }

    /// Who stands here.
    pub(super) fn place(&self) -> Place {
        let process = self.travel.process();
        Place { pid: process.pid(), thread: process.thread() }
    }

    /// The instruction here as the writer of those of `bytes` that it writes; `None` if it writes none of them.
    pub(super) fn writer_here(&mut self, bytes: &[Byte]) -> Result<Option<Writer<Position>>, ReplayError> {
        let (at, place) = (self.travel.position(), self.place());
        let rip = self.travel.process().cpu().regs().rip;
        let instruction = instruction_at(self.travel.process(), rip);
        let outside = |made| Writer {
            at,
            after: at,
            place,
            rip,
            made,
            given: bytes.iter().map(|byte| (*byte, (None, Origin::default()))).collect(),
            from: place,
            uses: BTreeMap::new(),
        };
        Ok(match self.trace_here(&instruction, bytes, true)? {
            Ok(provenance) => {
                let written = provenance.written.into_iter().filter(|(byte, _)| bytes.contains(byte));
                let given: BTreeMap<_, _> =
                    written.map(|(byte, (value, origin))| (byte, (Some(value), origin))).collect();
                let uses = self.values_of(given.values().flat_map(|(_, origin)| origin.all()))?;
                let made = Made::Instruction(instruction);
                (!given.is_empty()).then_some(Writer {
                    at,
                    after: at,
                    place,
                    rip,
                    made,
                    given,
                    from: place,
                    uses,
                })
            }
            Err(Untraced::MachineRead(_)) => Some(outside(Made::Machine(instruction.to_string()))),
            Err(Untraced::Syscall) => None,
            Err(Untraced::Trapped(why)) => {
                let why = format!("`{instruction}` has retired, but not here ({:?})", why.trap);
                Some(outside(Made::Unknown(why)))
            }
            Err(Untraced::NoSemantics) => {
                Some(outside(Made::Unknown(format!("`{instruction}` has no semantics here"))))
            }
            Err(Untraced::TooLong) => Some(outside(Made::Unknown(format!("`{instruction}` is too long")))),
        })
    }

    /// What bytes are where one stands: of memory, of general and of vector registers.
    pub(super) fn values_of(
        &mut self,
        bytes: impl Iterator<Item = Byte>,
    ) -> Result<BTreeMap<Byte, u8>, ReplayError> {
        let state = self.travel.process_mut().state()?;
        let process = self.travel.process();
        let of = |number: u64, n: u8| Some(number.to_le_bytes()[usize::from(n & 7)]);
        let value = |byte: Byte| match byte {
            Byte::General(r, n) => of(state.regs.gpr[usize::from(r & 15)], n),
            Byte::Vector(r, n) => of(state.fpu.vector[usize::from(r & 31)][usize::from((n / 8) % 8)], n),
            Byte::Mask(r, n) => of(state.fpu.opmask[usize::from(r & 7)], n),
            Byte::Base(0, n) => of(state.regs.fs_base, n),
            Byte::Base(_, n) => of(state.regs.gs_base, n),
            Byte::Memory(at) => {
                let mut value = [0];
                process.read_memory(at, &mut value).then_some(value[0])
            }
            _ => None,
        };
        Ok(bytes.filter_map(|byte| Some((byte, value(byte)?))).collect())
    }

    /// What the instruction here is made of. One that `retired` may access what is mapped when it does: a stack that grows.
    pub(super) fn trace_here(
        &mut self,
        instruction: &Instruction,
        bytes: &[Byte],
        retired: bool,
    ) -> Result<Result<Provenance, Untraced>, ReplayError> {
        let state = self.travel.process_mut().state()?;
        let process = self.travel.process();
        let memory = Mapped { process, mappings: process.mappings(), all: retired };
        let before = Before { regs: &state.regs, fpu: &state.fpu, memory: &memory };
        Ok(trace(instruction, before, bytes))
    }
}

impl History for Recorded<'_> {
    type At = Position;
    type Error = ReplayError;

    fn values(
        &mut self,
        at: Position,
        place: Place,
        bytes: &BTreeSet<Byte>,
    ) -> Result<BTreeMap<Byte, u8>, ReplayError> {
        self.travel.seek(at)?;
        if self.place() == place { self.values_of(bytes.iter().copied()) } else { Ok(BTreeMap::new()) }
    }

    fn writer(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[Byte],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        match bytes.first() {
            Some(Byte::Memory(_)) => self.writer_of_memory(at, place, bytes),
            Some(Byte::Stream(stream, number)) => self.writer_of_stream(*stream, *number, bytes).map(Some),
            _ => self.writer_of_register(at, place, bytes),
        }
    }

    fn hidden_writer(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[(Byte, u8)],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        if bytes.iter().all(|(byte, _)| byte.is_memory()) { self.made_so(at, place, bytes) } else { Ok(None) }
    }
}

/// The instruction at an address, as the program has it there now.
pub(super) fn instruction_at(process: &Process, rip: u64) -> Instruction {
    let mut code = [0; LONGEST];
    // Where the next page is missing, the first bytes may do.
    if !process.read_memory(rip, &mut code) {
        let whole = (0..LONGEST).take_while(|n| process.read_memory(rip + *n as u64, &mut code[*n..=*n]));
        let len = whole.count();
        return Decoder::with_ip(64, &code[..len], rip, DecoderOptions::NONE).decode();
    }
    Decoder::with_ip(64, &code, rip, DecoderOptions::NONE).decode()
}

/// The loaded process's memory.
struct Mapped<'a> {
    process: &'a Process,
    mappings: Vec<MappingInfo>,
    /// All can be accessed.
    all: bool,
}

impl Mapped<'_> {
    fn mapping(&self, address: u64) -> Option<&MappingInfo> {
        let behind = self.mappings.partition_point(|mapping| mapping.start <= address);
        self.mappings[..behind].last().filter(|mapping| address < mapping.end)
    }
}

impl Memory for Mapped<'_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let readable = self.mapping(address).is_some_and(|it| it.rights.read || it.rights.execute);
        self.process.read_memory(address, bytes) && readable || self.all
    }

    fn may_write(&self, address: u64) -> bool {
        self.all || self.mapping(address).is_some_and(|mapping| mapping.rights.write)
    }
}
