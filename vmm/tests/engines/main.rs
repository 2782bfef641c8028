//! What an engine must do, one body for every engine.

mod faults;
mod interrupts;
mod measures;
mod state;

use iced_x86::code_asm::*;
use std::fmt::Display;
use std::io::Write;
use std::sync::Once;
use vmm::engine::{self, EngineError, EngineKind, Exception, Exit, Until};
use vmm::paging::Rights;
use vmm::sandbox::Sandbox;
use x86::state::{RFLAGS_FIXED, RFLAGS_IF, Regs, State};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x60_0000;
const STACK: u64 = 0x7fff_0000_0000;
const RX: Rights = Rights { write: false, execute: true };
const RW: Rights = Rights { write: true, execute: false };
const R: Rights = Rights { write: false, execute: false };
const MEMORY: u64 = 64 << 20;
const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;

/// Says that something is skipped and why: past the capture of test output, so that it is seen.
fn skipped(what: &str, why: &dyn Display) {
    // Where stderr is closed nobody can be told.
    let _ = writeln!(std::io::stderr(), "skipped: {what}, since {why}");
}

/// Runs `body` on each engine that this host has.
fn each_engine(body: impl Fn(&mut Sandbox)) {
    for kind in [EngineKind::Soft, EngineKind::Kvm] {
        match engine::open(kind, MEMORY) {
            Ok(engine) => {
                println!("engine {}", kind.name());
                body(&mut Sandbox::new(engine).unwrap());
            }
            Err(why @ EngineError::KvmUnavailable { .. }) => {
                static TOLD: Once = Once::new();
                TOLD.call_once(|| skipped("engine kvm", &why));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Maps what `assemble` writes, a page of data and a stack, and stands at the first instruction.
fn load(sandbox: &mut Sandbox, assemble: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) {
    let mut asm = CodeAssembler::new(64).unwrap();
    assemble(&mut asm).unwrap();
    load_bytes(sandbox, &asm.assemble(CODE).unwrap());
}

fn load_bytes(sandbox: &mut Sandbox, code: &[u8]) {
    sandbox.map(CODE, code, RX).unwrap();
    sandbox.map(DATA, &[0; 4096], RW).unwrap();
    sandbox.map(STACK, &[0; 4096], RW).unwrap();
    stand_at(sandbox, CODE);
}

fn stand_at(sandbox: &mut Sandbox, rip: u64) {
    let mut regs = Regs { rip, rflags: RFLAGS_FIXED | RFLAGS_IF, ..Regs::default() };
    regs.gpr[RSP] = STACK + 4096;
    sandbox.load(&State { regs, ..State::default() }).unwrap();
}

fn run(sandbox: &mut Sandbox) -> Exit {
    sandbox.run(Until::Exit).unwrap()
}

fn regs(sandbox: &Sandbox) -> Regs {
    *sandbox.cpu().regs()
}

fn exception(vector: u8, error_code: u32, address: u64) -> Exit {
    Exit::Exception(Exception { vector, error_code, address })
}

fn word(sandbox: &Sandbox, va: u64) -> u64 {
    let mut bytes = [0; 8];
    sandbox.read(va, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}
