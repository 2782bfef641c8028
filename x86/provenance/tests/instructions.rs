//! What single instructions make of what: as a reader of the manual would say.

use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions};
use std::collections::BTreeSet;
use x86::op::Gpr;
use x86::state::State;
use x86_provenance::{Before, Byte, Memory, Origin, Provenance, Untraced, trace};

/// 64 KiB at address 0x1000, each byte the low one of its address.
struct Counting;

impl Memory for Counting {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        for (n, byte) in (address..).zip(bytes.iter_mut()) {
            *byte = n.to_le_bytes()[0];
        }
        self.may_write(address)
    }

    fn may_write(&self, address: u64) -> bool {
        (0x1000..0x11000).contains(&address)
    }
}

fn run(state: &State, asked: &[Byte], f: impl Fn(&mut CodeAssembler)) -> Result<Provenance, Untraced> {
    let mut code = CodeAssembler::new(64).expect("64 bits");
    f(&mut code);
    let bytes = code.assemble(0x40_0000).expect("it can be encoded");
    let instruction = Decoder::with_ip(64, &bytes, 0x40_0000, DecoderOptions::NONE).decode();
    trace(&instruction, Before { regs: &state.regs, fpu: &state.fpu, memory: &Counting }, asked)
}

fn state() -> State {
    let mut state = State::default();
    for (n, register) in (1..).zip(&mut state.regs.gpr) {
        *register = 0x1000 + n * 0x100;
    }
    state
}

fn origin(said: &Provenance, byte: Byte) -> &Origin {
    &said.written[&byte].1
}

fn set(bytes: impl IntoIterator<Item = Byte>) -> BTreeSet<Byte> {
    bytes.into_iter().collect()
}

#[test]
fn a_load_is_a_copy_of_memory_that_a_register_led_to() {
    let said = run(&state(), &[], |code| code.mov(eax, dword_ptr(rbx + 8)).expect("valid")).expect("it runs");
    let first = origin(&said, Byte::General(0, 0));
    assert_eq!(first.source(), Some(Byte::Memory(0x1408)));
    assert_eq!(first.address, set(Byte::general(Gpr::RBX)));
    assert_eq!(said.written[&Byte::General(0, 3)].0, 0x0b);
    assert!(origin(&said, Byte::General(0, 4)).is_constant(), "the upper half becomes zero");
}

#[test]
fn zeroing_depends_on_nothing() {
    let said = run(&state(), &[], |code| code.xor(eax, eax).expect("valid")).expect("it runs");
    assert!(said.written.values().all(|(_, origin)| origin.is_constant()), "{said:?}");
}

#[test]
fn masks_and_shifts_of_whole_bytes_move_them() {
    let said = run(&state(), &[], |code| code.and(eax, 0xff00).expect("valid")).expect("it runs");
    assert_eq!(origin(&said, Byte::General(0, 1)).source(), Some(Byte::General(0, 1)));
    assert!(origin(&said, Byte::General(0, 0)).is_constant());
    let said = run(&state(), &[], |code| code.shr(rax, 16).expect("valid")).expect("it runs");
    assert_eq!(origin(&said, Byte::General(0, 0)).source(), Some(Byte::General(0, 2)));
    let said = run(&state(), &[], |code| code.bswap(rax).expect("valid")).expect("it runs");
    assert_eq!(origin(&said, Byte::General(0, 0)).source(), Some(Byte::General(0, 7)));
}

#[test]
fn a_conditional_move_says_what_chose() {
    let mut state = state();
    state.regs.rflags |= 1 << 6;
    let said = run(&state, &[], |code| code.cmove(rax, rbx).expect("valid")).expect("it runs");
    let low = origin(&said, Byte::General(0, 0));
    assert_eq!(low.source(), Some(Byte::General(3, 0)));
    assert_eq!(low.condition, set([Byte::Flag(3)]));
}

#[test]
fn a_sum_carries_upwards_only() {
    let said = run(&state(), &[], |code| code.add(rax, rbx).expect("valid")).expect("it runs");
    assert_eq!(origin(&said, Byte::General(0, 0)).value, set([Byte::General(0, 0), Byte::General(3, 0)]));
    assert_eq!(origin(&said, Byte::General(0, 7)).value.len(), 16);
}

#[test]
fn a_shuffle_moves_bytes() {
    let mut state = state();
    state.fpu.vector[1] = [0x8001_0203_0405_0607, 0x0f0e_0d0c_0b0a_0908, 0, 0, 0, 0, 0, 0];
    let said = run(&state, &[], |code| code.pshufb(xmm0, xmm1).expect("valid")).expect("it runs");
    let first = origin(&said, Byte::Vector(0, 0));
    assert_eq!(first.source(), Some(Byte::Vector(0, 7)));
    assert!(first.condition.contains(&Byte::Vector(1, 0)), "{first:?}");
}

#[test]
fn megabytes_are_copied_without_doing_so() {
    let mut state = state();
    state.regs.gpr[1] = 0x8000;
    state.regs.gpr[6] = 0x1000;
    state.regs.gpr[7] = 0x1001;
    let asked = [Byte::Memory(0x8000), Byte::General(1, 0)];
    let said = run(&state, &asked, |code| code.rep().movsb().expect("valid")).expect("it runs");
    // Each byte is the one before it, which was just written.
    assert_eq!(origin(&said, Byte::Memory(0x8000)).source(), Some(Byte::Memory(0x1000)));
    assert!(origin(&said, Byte::General(1, 0)).is_constant());
}

#[test]
fn a_trap_says_what_made_it() {
    let mut state = state();
    state.regs.gpr[3] = 0x10;
    let Err(Untraced::Trapped(why)) = run(&state, &[], |code| code.mov(rax, qword_ptr(rbx)).expect("valid"))
    else {
        panic!("it traps")
    };
    assert_eq!((why.address, &why.origin.value), (Some(0x10), &set(Byte::general(Gpr::RBX))));
    state.regs.gpr[1] = 0;
    let Err(Untraced::Trapped(why)) = run(&state, &[], |code| code.div(ecx).expect("valid")) else {
        panic!("it traps")
    };
    assert_eq!(why.origin.value, set(Byte::general(Gpr::RCX).take(4)));
}

#[test]
fn a_jump_goes_where_it_was_told() {
    let said = run(&state(), &[], |code| code.jmp(rbx).expect("valid")).expect("it runs");
    assert_eq!(said.target.expect("it is a branch").value, set(Byte::general(Gpr::RBX)));
    // What lies on the stack is no address, and says so.
    let Err(Untraced::Trapped(why)) = run(&state(), &[], |code| code.ret().expect("valid")) else {
        panic!("it traps")
    };
    assert_eq!(why.origin.value, set(Byte::memory(0x1500, 8)));
}
