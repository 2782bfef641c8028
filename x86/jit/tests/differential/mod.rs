//! One guest on two CPUs: one that only interprets, and one that compiles each block before it runs the first time. Whatever
//! happens to the guest (bounds of all kinds, pages that are remapped, protected and rewritten, code that writes code) happens to
//! both, and after each run all that can be seen of them must be the same.

pub(crate) mod program;

use x86::bus::{Bus, PAGE_SIZE};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Counters, Interpreter, Observer, Stop, Until};
use x86::op::BranchKind;
use x86::state::{Fpu, Regs, State};
use x86_jit::{Jit, Sought, Tuning, Work, kept_from_bytes};

use program::{CODE, DATA, DATA_PAGES, Program, STACK};

/// What is random, or what a fuzzer says.
pub(crate) struct Source<'s>(pub(crate) Box<dyn FnMut() -> u64 + 's>);

impl Source<'_> {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        (self.0)() % end
    }

    pub(crate) fn byte(&mut self, end: u8) -> u8 {
        self.below(u64::from(end)).to_le_bytes()[0]
    }

    /// One of `all`.
    pub(crate) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let n = self.below(all.len() as u64);
        &all[usize::try_from(n).expect("an index")]
    }
}

#[derive(Default)]
struct Trail(Vec<(u64, u64, BranchKind)>);

impl Observer for Trail {
    fn branch(&mut self, from: u64, to: u64, kind: BranchKind) {
        self.0.push((from, to, kind));
    }
}

/// The two.
pub(crate) struct Pair {
    program: Program,
    interpreter: Interpreter<Flat>,
    jit: Jit<Flat>,
}

/// All that can be seen of a CPU.
type Seen = (String, State, Counters, Vec<(u64, u64, BranchKind)>);

impl Pair {
    pub(crate) fn new(program: Program, source: &mut Source<'_>) -> Pair {
        let mut memory = Flat::new();
        memory.map(
            CODE,
            &program.code,
            if source.below(3) == 0 { Protection::ALL } else { Protection::CODE },
        );
        let data: Vec<u8> =
            (0..DATA_PAGES * PAGE_SIZE / 8).flat_map(|_| program::lanes(source).to_le_bytes()).collect();
        memory.map(DATA, &data, Protection::DATA);
        memory.map(STACK - PAGE_SIZE, &[0; 2 << 12], Protection::DATA);
        // In some runs there is room for one region only.
        let room = 1 << source.of(&[12, 14, 24]);
        let tuning = Tuning { room, ..Tuning::eager(u32::from(source.byte(3))) };
        let mut pair = Pair {
            program,
            interpreter: Interpreter::new(Cpu::new(memory.clone())),
            jit: Jit::new(Cpu::new(memory), Some(tuning)),
        };
        pair.begin(source);
        pair
    }

    /// Has code be kept, and begin with what an earlier run has kept; none for a first run.
    #[allow(dead_code, reason = "the fuzz target keeps nothing")]
    pub(crate) fn keep(&mut self, earlier: Option<&[u8]>) {
        // SAFETY: the bytes are those that `kept` gave, in this test.
        let kept = earlier.map(|bytes| unsafe { kept_from_bytes(bytes) }.expect("what was kept"));
        self.jit.keep(kept.unwrap_or_default());
    }

    /// The code that is to be kept.
    #[allow(dead_code, reason = "the fuzz target keeps nothing")]
    pub(crate) fn kept(&self) -> Vec<u8> {
        self.jit.kept().expect("it keeps code").to_bytes()
    }

    /// What compiled code has done.
    pub(crate) fn work(&self) -> Work {
        self.jit.work()
    }

    fn both(&mut self, mut change: impl FnMut(&mut Cpu<Flat>)) {
        change(self.interpreter.cpu_mut());
        change(self.jit.cpu_mut());
    }

    /// Goes to the program's start with new registers.
    fn begin(&mut self, source: &mut Source<'_>) {
        let mut regs = Regs {
            rip: self.program.start,
            rflags: 0x202 | source.below(0x1000) & 0x8d5 | if source.below(4) == 0 { 0x400 } else { 0 },
            fs_base: DATA,
            ..Regs::default()
        };
        for r in &mut regs.gpr {
            *r = match source.below(4) {
                0 => source.below(u64::MAX),
                1 => source.below(70),
                _ => program::pointer(source),
            };
        }
        regs.gpr[4] = STACK + 8 * source.below(8);
        regs.gpr[15] = 1 + source.below(200);
        let mut fpu = Fpu::default();
        for n in 0..16 {
            fpu.set_xmm(n, [program::lanes(source), program::lanes(source)]);
        }
        // Exceptions raised before, and seldom other modes.
        fpu.mxcsr |= u32::from(source.byte(64));
        if source.below(8) == 0 {
            fpu.mxcsr ^= 1 << (6 + source.below(10));
        }
        self.both(|cpu| {
            cpu.set_regs(&regs);
            cpu.set_fpu(&fpu);
        });
    }

    /// Instructions that each of them has run.
    pub(crate) fn instructions(&self) -> u64 {
        self.interpreter.counters().instructions
    }

    /// Runs both to the same bound.
    pub(crate) fn run(&mut self, source: &mut Source<'_>) {
        let reached = self.interpreter.counters().instructions;
        let most = if source.below(2) == 0 { 60 } else { 3000 };
        let places = if source.below(4) == 0 { 1 + source.below(3) } else { 0 };
        let mut at: Vec<u64> = (0..places).map(|_| *source.of(&self.program.starts)).collect();
        at.sort_unstable();
        at.dedup();
        let until = Until { instructions: reached + 1 + source.below(most), at: &at };
        let (ours, theirs) = match source.below(6) {
            0 => {
                let (mut ours, mut theirs) = (Trail::default(), Trail::default());
                let stops = (self.jit.run(until, &mut ours), self.interpreter.run(until, &mut theirs));
                (self.seen_of_jit(&stops.0, ours), self.seen(&stops.1, theirs))
            }
            _ => {
                let stops = match at[..] {
                    [at] if source.below(2) == 0 => self.search(until, at, 1 + source.below(40)),
                    _ => (self.jit.run(until, &mut ()), self.interpreter.run(until, &mut ())),
                };
                (self.seen_of_jit(&stops.0, Trail::default()), self.seen(&stops.1, Trail::default()))
            }
        };
        assert_eq!(ours, theirs, "to {until:x?}, in\n{}", self.program);
        let (ours, theirs) = (self.jit.cpu().bus(), self.interpreter.cpu().bus());
        // A store to code asks again when the instruction is run again, which compiled code leaves to the interpreter.
        let (asked, expected) = (ours.asked(), theirs.asked());
        assert!(asked >= expected, "{asked} of {expected} stores asked, to {until:x?}, in\n{}", self.program);
        let (ours, theirs) = (ours.ram(), theirs.ram());
        let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the byte of memory, to {until:x?}, in\n{}", self.program);
    }

    /// Has the interpreter stop up to so many times at `at`, and the other search for the registers of the last time. It may stop
    /// elsewhere too, but pass them nowhere.
    fn search(&mut self, until: Until<'_>, at: u64, turns: u64) -> (Stop, Stop) {
        let mut stops = Vec::new();
        let theirs = loop {
            match self.interpreter.run(until, &mut ()) {
                Stop::At => stops.push(self.interpreter.cpu().regs().gpr),
                stop => break stop,
            }
            if stops.len() as u64 == turns {
                break Stop::At;
            }
        };
        let sought = stops.last().map(|gpr| Sought { rip: at, gpr: *gpr });
        self.jit.seek(sought);
        let mut left = stops.iter().filter(|gpr| Some(*gpr) == stops.last()).count();
        let ours = loop {
            match self.jit.run(until, &mut ()) {
                Stop::At if Some(self.jit.cpu().regs().gpr) == sought.map(|sought| sought.gpr) => {
                    left = left.checked_sub(1).expect("the interpreter was not so often in this state");
                    if left == 0 && matches!(theirs, Stop::At) {
                        break Stop::At;
                    }
                }
                Stop::At => {}
                stop => break stop,
            }
        };
        assert_eq!(left, 0, "a state was passed, in\n{}", self.program);
        self.jit.seek(None);
        (ours, theirs)
    }

    fn seen_of_jit(&self, stop: &Stop, trail: Trail) -> Seen {
        (
            format!("{stop:x?} {:x?}", fault(stop, self.jit.cpu())),
            self.jit.cpu().state(),
            self.jit.counters(),
            trail.0,
        )
    }

    fn seen(&self, stop: &Stop, trail: Trail) -> Seen {
        let cpu = self.interpreter.cpu();
        (format!("{stop:x?} {:x?}", fault(stop, cpu)), cpu.state(), self.interpreter.counters(), trail.0)
    }

    /// Has something happen to both.
    pub(crate) fn happen(&mut self, source: &mut Source<'_>) {
        let page = DATA + PAGE_SIZE * source.below(DATA_PAGES);
        match source.below(12) {
            0 => self.both(Cpu::flush_tlb),
            1 => {
                let frame = PAGE_SIZE * source.below(DATA_PAGES + 4);
                self.both(|cpu| {
                    cpu.bus_mut().alias(page, frame, Protection::DATA);
                    cpu.invalidate_page(page);
                });
            }
            2 | 3 => {
                let protection = if source.below(2) == 0 { Protection::READ } else { Protection::DATA };
                self.both(|cpu| {
                    cpu.bus_mut().protect(page, protection);
                    cpu.invalidate_page(page);
                });
            }
            4 if source.below(4) == 0 => self.both(|cpu| {
                cpu.bus_mut().unmap(page);
                cpu.invalidate_page(page);
            }),
            // The same program with another instruction in it.
            5 => {
                let at = self.program.start - CODE + source.below(PAGE_SIZE);
                let byte = source.byte(255);
                if source.below(3) == 0 {
                    self.both(|cpu| {
                        cpu.bus_mut().set_byte(CODE + at, byte);
                        cpu.written(at, 1);
                    });
                }
            }
            // What lies in its second page cannot be executed, or can again.
            7 => {
                let protection = *source.of(&[Protection::READ, Protection::CODE, Protection::CODE]);
                self.both(|cpu| {
                    cpu.bus_mut().protect(CODE + PAGE_SIZE, protection);
                    cpu.invalidate_page(CODE + PAGE_SIZE);
                });
            }
            6 => {
                let written = (self.interpreter.cpu_mut().take_written(), self.jit.cpu_mut().take_written());
                assert_eq!(written.0, written.1);
            }
            // Stores to some bytes have to ask.
            8 => {
                let bytes = [(); 3].map(|()| {
                    let page = DATA + PAGE_SIZE * source.below(DATA_PAGES);
                    let first = source.below(PAGE_SIZE);
                    page + first..page + PAGE_SIZE.min(first + 1 + source.below(100))
                });
                let bytes = &bytes[*source.of(&[0, 1, 2])..];
                self.both(|cpu| {
                    cpu.bus_mut().watch(bytes);
                    cpu.flush_tlb();
                });
            }
            _ => {}
        }
        let is_at_end = source.below(40) == 0;
        if is_at_end
            || !self.program.starts.contains(&self.interpreter.cpu().rip())
            || self.interpreter.cpu().regs().gpr[15] == 0
        {
            self.begin(source);
        }
    }
}

fn fault(stop: &Stop, cpu: &Cpu<Flat>) -> Option<x86::bus::PageFault> {
    match stop {
        Stop::Trap { trap: x86::machine::Trap::Page, .. } => cpu.last_page_fault(),
        _ => None,
    }
}
