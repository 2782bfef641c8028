//! More code than there is room for: all of it is forgotten, and what is kept is taken again, also while code runs.

use iced_x86::code_asm::*;
use x86::bus::PAGE_SIZE;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Until};
use x86::state::Regs;
use x86_jit::{Jit, Tuning};

const CODE: u64 = 0x40_0000;
const TABLE: u64 = 0x50_0000;
const STACK: u64 = 0x70_0000;
/// Each in a region of its own.
const FUNCTIONS: u64 = 24;
const ROUNDS: i32 = 400;

/// A CPU that is to call each function of a table, and all of them again, in rounds. Each of them does something else to rax, one part
/// of which compiled code has the CPU do.
fn cpu() -> Cpu<Flat> {
    let mut memory = Flat::new();
    let mut main = CodeAssembler::new(64).unwrap();
    let (mut round, mut next) = (main.create_label(), main.create_label());
    main.mov(r15d, ROUNDS).unwrap();
    main.set_label(&mut round).unwrap();
    main.xor(r14d, r14d).unwrap();
    main.set_label(&mut next).unwrap();
    main.call(qword_ptr(rbx + r14 * 8)).unwrap();
    main.inc(r14).unwrap();
    main.cmp(r14, i32::try_from(FUNCTIONS).unwrap()).unwrap();
    main.jne(next).unwrap();
    main.dec(r15d).unwrap();
    main.jne(round).unwrap();
    main.syscall().unwrap();
    memory.map(CODE, &main.assemble(CODE).unwrap(), Protection::CODE);
    let functions: Vec<u64> = (1..=FUNCTIONS).map(|n| CODE + n * PAGE_SIZE).collect();
    for (n, at) in functions.iter().enumerate() {
        let mut function = CodeAssembler::new(64).unwrap();
        function.add(rax, i32::try_from(n * 977 + 1).unwrap()).unwrap();
        function.lea(rdi, qword_ptr(rsp - 64)).unwrap();
        function.mov(ecx, 1 + i32::try_from(n % 7).unwrap()).unwrap();
        function.rep().stosb().unwrap();
        function.xor(rax, qword_ptr(rsp - 64)).unwrap();
        function.ret().unwrap();
        memory.map(*at, &function.assemble(*at).unwrap(), Protection::CODE);
    }
    let table: Vec<u8> = functions.iter().flat_map(|at| at.to_le_bytes()).collect();
    memory.map(TABLE, &table, Protection::READ);
    memory.map(STACK - PAGE_SIZE, &[0; 4096], Protection::DATA);
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    (regs.gpr[3], regs.gpr[4]) = (TABLE, STACK);
    cpu.set_regs(&regs);
    cpu
}

#[test]
fn nothing_that_is_forgotten_while_code_runs_is_run() {
    let mut interpreter = Interpreter::new(cpu());
    let stop = format!("{:?}", interpreter.run(Until::EVENT, &mut ()));
    for room in (12..=20).map(|bits| 1 << bits) {
        let mut jit = Jit::new(cpu(), Some(Tuning { room, ..Tuning::eager(2) }));
        jit.keep(x86_jit::Kept::default());
        assert_eq!(format!("{:?}", jit.run(Until::EVENT, &mut ())), stop, "in {room} bytes");
        assert_eq!(jit.cpu().state(), interpreter.cpu().state(), "in {room} bytes");
        assert_eq!(jit.counters(), interpreter.counters(), "in {room} bytes");
        let work = jit.work();
        println!("{room} bytes: {work:?}");
        assert!(work.regions >= FUNCTIONS && work.instructions > 0, "{work:?} in {room} bytes");
        assert!(room >= 1 << 15 || work.taken > FUNCTIONS, "little was forgotten in {room} bytes: {work:?}");
    }
}
