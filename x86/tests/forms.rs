//! What blocks make of instructions (hot forms, comparisons together with their branch) is what the general descriptions
//! do one at a time, on every encoding.

mod support;

use iced_x86::FlowControl;
use support::{CODE, DATA, encodings, state};
use x86::bus::Bus;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Counters, Interpreter, Observer, Until};
use x86::op::BranchKind;
use x86::state::State;

/// Bytes in a page: the code is in the first of RAM.
const PAGE: usize = 4096;

#[derive(Default)]
struct Trail(Vec<(u64, u64, BranchKind)>);

impl Observer for Trail {
    fn branch(&mut self, from: u64, to: u64, kind: BranchKind) {
        self.0.push((from, to, kind));
    }
}

/// Everything that a run did: how it stopped, the branches, the state, the counters, the memory.
type Effect = (String, Vec<(u64, u64, BranchKind)>, State, Counters, Vec<u8>);

/// A page of code and three of data.
struct Bench {
    interpreter: Interpreter<Flat>,
}

impl Bench {
    fn new() -> Bench {
        let mut memory = Flat::new();
        memory.map(CODE, &[0xcc; PAGE], Protection::CODE);
        memory.map(DATA, &[0; 3 * PAGE], Protection::DATA);
        Bench { interpreter: Interpreter::new(Cpu::new(memory)) }
    }

    fn put(&mut self, code: &[u8]) {
        let cpu = self.interpreter.cpu_mut();
        cpu.bus_mut().ram_mut()[..code.len()].copy_from_slice(code);
        cpu.written(0, code.len() as u64);
    }

    /// Runs from `before`, stopping at each of `bounds`, or `single` instructions.
    fn effect(&mut self, before: &State, bounds: &[u64], single: bool) -> Effect {
        let cpu = self.interpreter.cpu_mut();
        cpu.bus_mut().ram_mut()[PAGE..].fill(0x93);
        cpu.load_state(before);
        self.interpreter.set_counters(Counters::default());
        let mut trail = Trail::default();
        let mut stop = None;
        for &instructions in bounds {
            if single {
                while stop.is_none() && self.interpreter.counters().instructions < instructions {
                    stop = self.interpreter.step(&mut trail);
                }
            } else if stop.is_none() {
                stop = Some(self.interpreter.run(Until::retired(instructions), &mut trail));
                stop = stop.filter(|stop| !matches!(stop, x86::interpreter::Stop::Budget));
            }
        }
        let ram = self.interpreter.cpu().bus().ram().to_vec();
        (format!("{stop:x?}"), trail.0, self.interpreter.cpu().state(), self.interpreter.counters(), ram)
    }
}

/// States with pointers into the middle of a page, near its end, and near the end of all; with an index; with flags.
fn states() -> Vec<State> {
    let mut all = Vec::new();
    for (small, moved) in [(&[0, 1, 2, 3][..], 0), (&[1], 0), (&[1], 0xe79), (&[1], 0x1e79)] {
        for flags in [0x202, 0xad7] {
            let mut state = state(small);
            state.regs.rflags = flags;
            for r in state.regs.gpr.iter_mut().filter(|r| **r >= DATA) {
                *r += moved;
            }
            all.push(state);
        }
    }
    all
}

#[test]
fn a_block_of_one_instruction_does_what_a_step_does() {
    let (mut bench, mut compared) = (Bench::new(), 0);
    for (i, bytes) in encodings() {
        bench.put(&bytes);
        for before in states() {
            compared += 1;
            let step = bench.effect(&before, &[1], true);
            assert_eq!(bench.effect(&before, &[1], false), step, "{i} ({:?})", i.code());
        }
    }
    assert!(compared > 50_000, "only {compared} comparisons");
}

#[test]
fn an_instruction_and_the_branch_behind_it_do_what_two_steps_do() {
    let (mut bench, mut compared, mut taken) = (Bench::new(), 0, 0);
    let falls_through = encodings().into_iter().filter(|(i, _)| {
        i.flow_control() == FlowControl::Next
            && i.rflags_modified() != 0
            && !i.op0_register().is_vector_register()
    });
    for (i, bytes) in falls_through {
        for cc in 0..16 {
            bench.put(&[&bytes[..], &[0x70 | cc, 5]].concat());
            for before in states().into_iter().step_by(2) {
                compared += 1;
                let steps = bench.effect(&before, &[2], true);
                taken += steps.1.len();
                assert_eq!(bench.effect(&before, &[2], false), steps, "{i} ({:?}), {cc}", i.code());
                assert_eq!(bench.effect(&before, &[1, 2], false), steps, "{i} ({:?}), {cc}, cut", i.code());
            }
        }
    }
    assert!(compared > 100_000, "only {compared} comparisons");
    assert!(taken > compared / 4, "only {taken} were taken");
}
