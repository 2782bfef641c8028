//! The specialised handlers of the fast table do what the general ones do, on every encoding.

mod support;

use iced_x86::Instruction;
use support::{DATA, encodings, state};
use x86::bus::Bus;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::machine::Handler;
use x86::op::Op;
use x86::state::State;
use x86::table;

/// Everything that a handler did: the flow or trap as text, the registers, the memory.
type Effect = (String, State, Vec<u8>);

fn effect(before: &State, (handler, op): &(Handler<Cpu<Flat>>, Op)) -> Effect {
    let mut memory = Flat::new();
    memory.map(DATA, &[0x93; 3 * 4096], Protection::DATA);
    let mut cpu = Cpu::new(memory);
    cpu.load_state(before);
    let flow = match handler {
        Handler::Body(run) => format!("{:?}", run(&mut cpu, op)),
        Handler::Last(run, kind) => format!("{:?} {kind:?}", run(&mut cpu, op)),
    };
    (flow, cpu.state(), cpu.bus().ram().to_vec())
}

fn lookups(i: &Instruction) -> Option<[(Handler<Cpu<Flat>>, Op); 2]> {
    Some([table::lookup::<_, true>(i)?, table::lookup::<_, false>(i)?])
}

#[test]
fn fast_handlers_do_what_the_general_ones_do() {
    let mut compared = 0;
    for i in encodings() {
        let Some([fast, general]) = lookups(&i) else { continue };
        for mut before in [state(&[]), state(&[0, 1, 2, 3])] {
            for flags in [0x202, 0xad7] {
                before.regs.rflags = flags;
                compared += 1;
                assert_eq!(effect(&before, &fast), effect(&before, &general), "{i} ({:?})", i.code());
            }
        }
    }
    assert!(compared > 10_000, "only {compared} comparisons");
}
