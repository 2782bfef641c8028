//! The oracle notices what it is there to notice: outcomes that are wrong in one place.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use x86::state::{Fpu, State};
use x86_oracle::case::{Case, Ending, Image, Outcome};
use x86_oracle::compare;
use x86_oracle::interpreter::Soft;
use x86_oracle::layout::{CODE, DATA, DATA_SIZE};
use x86_oracle::native::Worker;

static IMAGE: Image = [0x11; DATA_SIZE];
const CARRY: u64 = 1;
const ADJUST: u64 = 1 << 4;

/// The places in which the outcome of `code`, spoilt by `spoil`, differs from this processor's.
fn places(code: &[u8], spoil: impl FnOnce(&mut Outcome)) -> Vec<String> {
    let mut state = State::default();
    state.regs.rip = CODE;
    state.regs.rflags = 0x202;
    state.regs.gpr = [DATA; 16];
    let case = Case::new(code, state).unwrap();
    let native = Worker::start().unwrap().run(&IMAGE, &[case], || ()).unwrap()[0];
    let mut soft = Soft::new();
    soft.load_image(&IMAGE);
    let mut found = soft.run(&case);
    assert!(compare::differences(&mut soft, &case, &native, &found).is_empty());
    spoil(&mut found);
    compare::differences(&mut soft, &case, &native, &found).into_iter().map(|d| d.place).collect()
}

#[test]
fn a_wrong_register_flag_byte_or_ending_is_a_difference() {
    let add = [0x01, 0xc8]; // add eax, ecx
    assert_eq!(places(&add, |o| o.state.regs.gpr[9] ^= 1 << 63), ["r9"]);
    assert_eq!(places(&add, |o| o.state.regs.rflags ^= ADJUST), ["rflags"]);
    assert_eq!(places(&add, |o| o.state.regs.rip += 1), ["rip"]);
    assert_eq!(places(&add, |o| o.state.fpu.vector[31][7] = 1), ["zmm31"]);
    assert_eq!(places(&add, |o| o.state.fpu.st[7].1 = 1), ["x87_7"]);
    assert_eq!(places(&add, |o| o.state.fpu.mxcsr = 0x1f81), ["mxcsr"]);
    assert_eq!(places(&add, |o| o.ending = Ending::Fault { vector: 6, error: 0, address: 0 }), ["ending"]);
    let store = [0x89, 0x08]; // mov [rax], ecx
    assert_eq!(places(&store, |o| o.writes.first[0].bytes[2] ^= 1), ["data+0x2"]);
}

#[test]
fn what_the_table_names_is_no_difference_and_nothing_else() {
    let and = [0x21, 0xc8]; // and eax, ecx
    assert!(places(&and, |o| o.state.regs.rflags ^= ADJUST).is_empty());
    assert_eq!(places(&and, |o| o.state.regs.rflags ^= CARRY), ["rflags"]);
    // A later instruction that defines the flag again takes it out of the table's reach.
    let and_add = [0x21, 0xc8, 0x01, 0xc8];
    assert_eq!(places(&and_add, |o| o.state.regs.rflags ^= ADJUST), ["rflags"]);
    let pointers = |o: &mut Outcome| o.state.fpu = Fpu { data: 8, instruction: 4, opcode: 1, ..o.state.fpu };
    assert!(places(&and, pointers).is_empty());
}
