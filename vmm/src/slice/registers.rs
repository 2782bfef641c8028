//! Who wrote a register last.
//!
//! Nothing watches registers. So a stretch of the recording is run for which instructions it ran ([`Run`]), and when each did last; of
//! those that write the register the latest is looked for, and asked whether it does. Of events the kernel's own rules say what
//! they write.
//!
//! Example: r15 was set before a loop of ten million rounds. The runs of the loop are a dozen, none of which writes r15; the run before
//! the loop does.

use super::frame;
use super::memory::{BEGINS, made_by};
use super::recorded::{Recorded, instruction_at};
use super::{Byte, Made, Place, Writer};
use crate::engine::lookout::Lookout;
use crate::engine::{Run, Until};
use crate::position::Position;
use crate::process::Process;
use crate::process::happening::{Happening, What};
use crate::replay::ReplayError;
use crate::travel::{STRETCH, Stop};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register};
use std::collections::{BTreeMap, HashMap};
use x86_provenance::Origin;

/// When something happened in a stretch: the number of its walk, and the number in it.
type Order = (u64, u64);

/// A signal handler's return puts back all registers (rt_sigreturn).
const SIGRETURN: u64 = 15;

/// What a thread did between two positions.
struct Stretch {
    runs: HashMap<Run, Order>,
    events: Vec<(Order, Happening)>,
    /// Where each walk began, from the first on.
    begins: Vec<Position>,
}

/// What may have written last.
enum Candidate {
    Instruction(u64),
    Event(Box<Happening>),
}

impl Recorded<'_> {
    /// The last thing before `at` that wrote any of these bytes of a thread's register.
    pub(super) fn writer_of_register(
        &mut self,
        at: Position,
        place: Place,
        bytes: &[Byte],
    ) -> Result<Option<Writer<Position>>, ReplayError> {
        let mut end = at;
        if at.retired > 0 {
            self.travel.keep_shortly_before(at)?;
        }
        while let Some(start) = self.travel.checkpoint_before(end) {
            let Some(stretch) = self.stretch(start, end, place)? else { return Ok(None) };
            match self.latest(&stretch, bytes)? {
                Some(Candidate::Event(event)) => return self.of_event(place, &event, bytes).map(Some),
                Some(Candidate::Instruction(rip)) => {
                    let Some(found) = self.last_at(rip, place, end)? else { return Ok(None) };
                    if let Some(writer) = self.writer_here(bytes)? {
                        return Ok(Some(writer));
                    }
                    end = found;
                }
                None => end = start,
            }
        }
        self.begun_with(place, bytes).map(Some)
    }

    /// What a thread does from a checkpoint on; `None` if somebody wants it to stop.
    fn stretch(
        &mut self,
        start: Position,
        end: Position,
        place: Place,
    ) -> Result<Option<Stretch>, ReplayError> {
        self.travel.seek(start)?;
        self.travel.retired()?;
        self.travel.process_mut().cpu_mut().note_runs(true).map_err(crate::process::ProcessError::from)?;
        self.listen(true);
        let mut stretch = Stretch { runs: HashMap::new(), events: Vec::new(), begins: Vec::new() };
        let mut walk = 0;
        let mut asked = false;
        while self.travel.position() < end && !self.travel.ended() && !asked {
            walk += 1;
            stretch.begins.push(self.travel.position());
            self.one_walk(walk, end, place.thread, &mut stretch)?;
            asked = self.travel.is_asked();
        }
        self.listen(false);
        self.travel.process_mut().cpu_mut().note_runs(false).map_err(crate::process::ProcessError::from)?;
        Ok((!asked).then_some(stretch))
    }

    fn one_walk(
        &mut self,
        walk: u64,
        end: Position,
        thread: i32,
        stretch: &mut Stretch,
    ) -> Result<(), ReplayError> {
        let (here, runs_here) = (self.travel.position(), self.travel.process().thread() == thread);
        let left = if end.event == here.event { (end.retired - here.retired).min(STRETCH) } else { STRETCH };
        let now = self.travel.retired()?;
        self.travel.walk(Until::Retired(now + left))?;
        let ran = self.travel.process_mut().cpu_mut().take_runs();
        if runs_here {
            let stopped = ran.iter().filter(|(run, _)| !run.through).max_by_key(|(_, number)| *number);
            let rip = self.travel.process().cpu().regs().rip;
            // What another processor has executed in between, since processors differ in it, is in no run.
            if let Some((run, number)) = stopped
                && self.travel.position().event == here.event
                && (1..=15).contains(&rip.wrapping_sub(run.end))
            {
                let alone = Run { start: run.end, end: run.end, through: true };
                stretch.runs.insert(alone, (walk, number + 1));
            }
            stretch.runs.extend(ran.into_iter().map(|(run, number)| (run, (walk, number))));
        }
        // What was served together with what comes behind the end is not meant.
        let happened = self.happened().into_iter().filter(|it| concerns(it, thread) && it.position <= end);
        stretch.events.extend(happened.map(|it| ((walk, u64::MAX), it)));
        Ok(())
    }

    /// What wrote one of these bytes last, as it seems.
    fn latest(&mut self, stretch: &Stretch, bytes: &[Byte]) -> Result<Option<Candidate>, ReplayError> {
        let mut factory = InstructionInfoFactory::new();
        let mut best: Option<((Order, u64), Candidate)> = None;
        let mut offer = |order: (Order, u64), candidate: Candidate| {
            if best.as_ref().is_none_or(|(than, _)| order > *than) {
                best = Some((order, candidate));
            }
        };
        let mut last_writing = |all: Vec<Instruction>| {
            let mut writing = all.into_iter().rev();
            writing.find(|it| bytes.iter().any(|byte| may_write(&mut factory, it, *byte))).map(|it| it.ip())
        };
        let mut gone: Vec<(Order, Run)> = Vec::new();
        for (run, order) in &stretch.runs {
            match instructions(self.travel.process(), *run) {
                None => gone.push((*order, *run)),
                Some(all) => {
                    let last = last_writing(all);
                    last.into_iter().for_each(|ip| offer((*order, ip), Candidate::Instruction(ip)));
                }
            }
        }
        for (number, (order, event)) in (0..).zip(&stretch.events) {
            if bytes.iter().any(|byte| event_writes(event, *byte)) {
                offer((*order, number), Candidate::Event(Box::new(event.clone())));
            }
        }
        // Code that was unmapped since was there where its walk began.
        gone.sort_unstable_by_key(|(order, run)| (*order, run.start));
        while let Some((order, run)) = gone.pop() {
            if best.as_ref().is_some_and(|((than, _), _)| *than > order) {
                break;
            }
            let begin = usize::try_from(order.0 - 1).ok().and_then(|walk| stretch.begins.get(walk));
            self.travel.seek(begin.copied().unwrap_or_else(|| self.travel.begin()))?;
            let all = instructions(self.travel.process(), run).unwrap_or_default();
            if let Some(ip) = last_writing(all) {
                best = Some(((order, ip), Candidate::Instruction(ip)));
            }
        }
        Ok(best.map(|(_, candidate)| candidate))
    }

    /// Goes to where a thread ran the instruction at `rip` last before `end`.
    fn last_at(&mut self, rip: u64, place: Place, end: Position) -> Result<Option<Position>, ReplayError> {
        self.travel.seek(end)?;
        self.travel.follow(place.pid);
        let lookout = Lookout { at: vec![rip], data: Vec::new() };
        loop {
            match self.travel.backward(&lookout)? {
                Stop::Breakpoint(_) if self.place() == place => return Ok(Some(self.travel.position())),
                Stop::Breakpoint(_) => {}
                _ => return Ok(None),
            }
        }
    }

    fn of_event(
        &mut self,
        place: Place,
        event: &Happening,
        bytes: &[Byte],
    ) -> Result<Writer<Position>, ReplayError> {
        self.travel.seek(event.position)?;
        let given = bytes.iter().filter(|byte| event_writes(event, **byte));
        let made = made_by(event).unwrap_or_else(|| Made::Unknown("an event".to_owned()));
        let rip = self.rip_of(place.thread);
        // What a handler's return takes back is in its frame, at the stack pointer (struct ucontext).
        let restored = matches!(&event.what, What::Call(call) if call.number == SIGRETURN);
        let frame = restored.then(|| self.stack_at_sigreturn(place, event)).transpose()?.flatten();
        let origin = |byte: Byte| match (frame, byte) {
            (Some(frame), Byte::General(register, n)) => {
                let value = [Byte::Memory(frame::saved(frame, register).wrapping_add(n.into()))].into();
                Origin { copied: true, value, ..Origin::default() }
            }
            _ => Origin::default(),
        };
        let given: BTreeMap<_, _> =
            given.map(|byte| (*byte, (self.value(place, *byte), origin(*byte)))).collect();
        let used = given
            .values()
            .filter_map(|(value, origin): &(Option<u8>, Origin)| Some((origin.source()?, (*value)?)));
        let uses = used.collect();
        Ok(Writer { at: event.position, after: event.position, place, rip, made, given, from: place, uses })
    }

    /// The stack pointer with which a thread called rt_sigreturn.
    fn stack_at_sigreturn(&mut self, place: Place, event: &Happening) -> Result<Option<u64>, ReplayError> {
        self.travel.seek(event.position)?;
        if self.place() != place {
            return Ok(None);
        }
        self.travel.step_back()?;
        let stack = self.travel.process().cpu().regs().gpr[4];
        let there = self.place() == place;
        self.travel.seek(event.position)?;
        Ok(there.then_some(stack))
    }

    /// A general register's byte, if it is this thread that is loaded.
    fn value(&self, place: Place, byte: Byte) -> Option<u8> {
        let regs = self.travel.process().cpu().regs();
        match byte {
            Byte::General(register, n) if self.place() == place => {
                Some(regs.gpr[usize::from(register)].to_le_bytes()[usize::from(n)])
            }
            _ => None,
        }
    }

    /// The thread has not written it: it began with it.
    fn begun_with(&mut self, place: Place, bytes: &[Byte]) -> Result<Writer<Position>, ReplayError> {
        let Some(birth) = self.birth(place.thread)? else {
            let at = self.travel.begin();
            self.travel.seek(at)?;
            let given = bytes.iter().map(|byte| (*byte, (self.value(place, *byte), Origin::default())));
            let given = given.collect();
            return Ok(Writer {
                at,
                after: at,
                place,
                rip: 0,
                made: Made::Begin(BEGINS.to_owned()),
                given,
                from: place,
                uses: BTreeMap::new(),
            });
        };
        // What clone gives the new task by itself: its result, and as a rule its stack and the base of its thread-local storage.
        let copied = |byte: Byte| match byte {
            Byte::General(0 | 4, _) | Byte::Base(..) => Origin::default(),
            byte => Origin { copied: true, value: [byte].into(), ..Origin::default() },
        };
        let given = bytes.iter().map(|byte| (*byte, (None, copied(*byte)))).collect();
        let (at, from) = (birth.at, birth.parent);
        Ok(Writer { at, after: at, place, rip: 0, made: Made::Started, given, from, uses: BTreeMap::new() })
    }
}

/// Whether something that happened can concern this thread's registers.
fn concerns(happening: &Happening, thread: i32) -> bool {
    happening.task == thread && made_by(happening).is_some()
}

/// The instructions of a run that have run; `None` where its code is not there.
fn instructions(process: &Process, run: Run) -> Option<Vec<Instruction>> {
    let len = run.end.checked_sub(run.start).and_then(|len| usize::try_from(len).ok())?;
    let mut code = vec![0; len];
    if !process.read_memory(run.start, &mut code) {
        return None;
    }
    let mut all: Vec<Instruction> =
        Decoder::with_ip(64, &code, run.start, DecoderOptions::NONE).into_iter().collect();
    if run.through {
        all.push(instruction_at(process, run.end));
    }
    Some(all)
}

/// Whether an instruction may write a register's byte, as its operands say.
fn may_write(factory: &mut InstructionInfoFactory, instruction: &Instruction, byte: Byte) -> bool {
    let writes = |wanted: &dyn Fn(Register) -> bool, factory: &mut InstructionInfoFactory| {
        let used = factory.info(instruction).used_registers();
        used.iter().any(|used| is_written(used.access()) && wanted(used.register()))
    };
    let restores = || {
        let name = format!("{:?}", instruction.mnemonic());
        name.contains("rstor")
    };
    match byte {
        Byte::Vector(..) | Byte::Mask(..) if restores() => true,
        Byte::General(n, _) => {
            writes(&|it| it.is_gpr() && it.full_register().number() == usize::from(n), factory)
        }
        Byte::Vector(n, _) => writes(&|it| it.is_vector_register() && it.number() == usize::from(n), factory),
        Byte::Mask(n, _) => writes(&|it| it.is_k() && it.number() == usize::from(n), factory),
        Byte::X87(..) => {
            instruction.fpu_stack_increment_info().increment() != 0
                || writes(&|it| it.is_st() || it.is_mm(), factory)
                || format!("{:?}", instruction.mnemonic()).starts_with('F')
        }
        Byte::Flag(_) | Byte::Direction | Byte::System(_) => instruction.rflags_modified() != 0,
        Byte::Base(..) | Byte::Control(..) => {
            let name = format!("{:?}", instruction.mnemonic());
            name.starts_with("Wr")
                || name.starts_with('F')
                || name.contains("mxcsr")
                || name.contains("rstor")
        }
        Byte::Memory(_) | Byte::Stream(..) => false,
    }
}

fn is_written(access: OpAccess) -> bool {
    use OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
    matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite)
}

/// Whether an event writes a register's byte of its task.
fn event_writes(event: &Happening, byte: Byte) -> bool {
    match &event.what {
        // A handler is called with three arguments, on a stack of its own.
        What::Signal { .. } => matches!(byte, Byte::General(0 | 2 | 4 | 6 | 7, _) | Byte::Direction),
        // Another base of thread-local storage.
        What::Call(call) if call.number == libc::SYS_arch_prctl.unsigned_abs() => {
            matches!(byte, Byte::General(0 | 1 | 11, _) | Byte::Base(..))
        }
        // SYSCALL itself takes rcx and r11.
        What::Call(call) if call.number != SIGRETURN => matches!(byte, Byte::General(0 | 1 | 11, _)),
        What::MachineRead { instruction, .. } => match byte {
            Byte::General(n, _) => read_writes(instruction, n),
            Byte::Flag(_) => instruction.starts_with("rd") && !instruction.starts_with("rdtsc"),
            _ => false,
        },
        What::Call(_) | What::Executed { .. } => true,
        _ => false,
    }
}

/// Whether an instruction that reads the machine writes a general register.
fn read_writes(instruction: &str, register: u8) -> bool {
    let name = instruction.split_whitespace().next().unwrap_or_default();
    match name {
        "cpuid" => register < 4,
        "rdtsc" | "xgetbv" => matches!(register, 0 | 2),
        "rdtscp" => register < 3,
        // rdrand, rdseed, rdpid: their operand.
        _ => {
            let operand = instruction[name.len()..].trim();
            let named = x86::op::Gpr::NAMES[usize::from(register)];
            let stem = named.trim_start_matches('r');
            operand == named || operand.trim_start_matches(['r', 'e']).trim_end_matches(['d', 'w']) == stem
        }
    }
}
