//! No instruction of the table leaves a trace when one of its accesses faults.
//!
//! The encodings are enumerated, not listed: every opcode of every map, with the prefixes that select forms,
//! every value of the reg field (which selects within groups), with memory and register operands.

mod support;

use std::collections::BTreeSet;

use iced_x86::{Instruction, Mnemonic};
use support::{DATA, encodings, state};
use x86::bus::Bus;
use x86::cpu::Cpu;
use x86::faulty::Faulty;
use x86::flat::{Flat, Protection};
use x86::machine::{Exec, Handler, Machine, Trap};
use x86::op::Op;
use x86::table;

/// More accesses than any instruction makes.
const ACCESSES: u32 = 160;

fn execute<M: Machine>(m: &mut M, i: &Instruction) -> Option<Exec> {
    let (handler, op): (Handler<M>, Op) = table::lookup::<M>(i)?;
    Some(match handler {
        Handler::Body(run) => run(m, &op),
        Handler::Last(run, _) => run(m, &op).map(|_| ()),
    })
}

#[test]
fn an_instruction_that_traps_leaves_no_trace() {
    let mut memory = Flat::new();
    memory.map(DATA, &[0x11; 3 * 4096], Protection::DATA);
    let ram = memory.ram().to_vec();
    let mut cpu = Cpu::new(memory);
    let (mut mnemonics, mut traps) = (BTreeSet::new(), 0);
    // A gather may be interrupted between two of its elements, and keeps those that it has.
    for i in encodings().into_iter().map(|(i, _)| i).filter(|i| !i.is_vsib()) {
        for before in [state(&[]), state(&[0, 1, 2, 3])] {
            for accesses in 0..ACCESSES {
                cpu.load_state(&before);
                cpu.bus_mut().ram_mut().copy_from_slice(&ram);
                let Some(result) = execute(&mut Faulty::new(&mut cpu, accesses), &i) else { break };
                mnemonics.insert(format!("{:?}", i.mnemonic()));
                let Err(trap) = result else { break };
                traps += 1;
                let mut after = cpu.state();
                if i.mnemonic() == Mnemonic::Vcvtps2ph {
                    // The flags of the conversion stay when the store behind it faults.
                    after.fpu.mxcsr = before.fpu.mxcsr;
                }
                assert_eq!(after, before, "{i} ({:?}) at access {accesses}", i.code());
                assert_eq!(cpu.bus().ram(), ram, "{i} ({:?}) at access {accesses}", i.code());
                if trap != Trap::Page {
                    break;
                }
            }
        }
    }
    println!("{} mnemonics, {traps} traps", mnemonics.len());
    for must in ["Add", "Push", "Enter", "Movsb", "Cmpxchg16b", "Xchg", "Rcl", "Bts", "Idiv", "Mulx", "Call"]
    {
        assert!(mnemonics.contains(must), "{must} was not met");
    }
    assert!(traps > 10_000, "only {traps} traps");
}

#[test]
fn what_is_switched_off_for_a_program_is_a_fault_and_no_gap() {
    let switched_off: [(&[u8], Trap); 7] = [
        (&[0x0f, 0x33], Trap::General),
        (&[0x0f, 0x34], Trap::General),
        (&[0x0f, 0x35], Trap::General),
        (&[0x0f, 0x37], Trap::Undefined),
        (&[0x0f, 0x01, 0xee], Trap::Undefined),
        (&[0x0f, 0x01, 0xef], Trap::Undefined),
        (&[0xf3, 0x0f, 0xae, 0xe0], Trap::Undefined),
    ];
    for (bytes, trap) in switched_off {
        let i = iced_x86::Decoder::new(64, bytes, iced_x86::DecoderOptions::NONE).decode();
        let mut cpu = Cpu::new(Flat::new());
        let before = cpu.state();
        assert_eq!(execute(&mut cpu, &i), Some(Err(trap)), "{i}");
        assert_eq!(cpu.state(), before, "{i}");
    }
}
