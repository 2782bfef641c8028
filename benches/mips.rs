//! Speed of the software CPU: millions of instructions per second of a loop of loads, stores, arithmetic and a
//! conditional branch, and how many times slower that is than the same instructions on this processor.
//!
//! `cargo bench --bench mips`, or with `-- --json` one JSON object on standard output.

use std::time::{Duration, Instant};

use iced_x86::code_asm::*;
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::op::Gpr;
use x86::state::Regs;

const CODE: u64 = 0x40_0000;
const SOURCE: u64 = 0x50_0000;
const TARGET: u64 = 0x60_0000;
/// Elements of the inner loop.
const ELEMENTS: u16 = 512;
/// Rounds of the outer loop.
const ROUNDS: u64 = 20_000;
/// Runs of each side; the fastest counts, since noise only slows down.
const RUNS: usize = 9;

/// A clock of this thread's time on a processor where the kernel has one, so that other load does not count;
/// else of the time that passes.
struct Clock {
    start: Instant,
    on_cpu: Option<u64>,
}

impl Clock {
    fn start() -> Clock {
        Clock { on_cpu: Self::on_cpu(), start: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        let passed = self.start.elapsed();
        match (self.on_cpu, Self::on_cpu()) {
            (Some(before), Some(after)) if after > before => Duration::from_nanos(after - before),
            _ => passed,
        }
    }

    /// Nanoseconds that this thread has run. The kernel brings the number up to date when the thread yields.
    fn on_cpu() -> Option<u64> {
        std::thread::yield_now();
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse().ok()
    }
}

/// The measured loop. rsi: source, rdi: target, rdx: rounds, rbx: the checksum.
fn kernel() -> Result<Vec<u8>, IcedError> {
    let mut a = CodeAssembler::new(64)?;
    let (mut outer, mut inner) = (a.create_label(), a.create_label());
    a.xor(ebx, ebx)?;
    a.set_label(&mut outer)?;
    a.xor(ecx, ecx)?;
    a.set_label(&mut inner)?;
    a.mov(rax, qword_ptr(rsi + rcx * 8))?;
    a.add(rbx, rax)?;
    a.xor(rbx, rcx)?;
    a.mov(qword_ptr(rdi + rcx * 8), rbx)?;
    a.lea(r8, qword_ptr(rbx + rax + 3))?;
    a.add(rcx, 1)?;
    a.cmp(rcx, i32::from(ELEMENTS))?;
    a.jb(inner)?;
    a.sub(rdx, 1)?;
    a.jne(outer)?;
    a.syscall()?;
    a.assemble(CODE)
}

fn source() -> Vec<u64> {
    (0..u64::from(ELEMENTS)).map(|k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}

/// What one run gave.
struct Run {
    time: Duration,
    checksum: u64,
}

/// Runs the kernel on the software CPU; also gives the number of instructions.
fn emulated(code: &[u8]) -> (Run, u64) {
    let mut memory = Flat::new();
    memory.map(CODE, code, Protection::CODE);
    let bytes: Vec<u8> = source().iter().flat_map(|v| v.to_le_bytes()).collect();
    memory.map(SOURCE, &bytes, Protection::READ);
    memory.map(TARGET, &[0; 4096], Protection::DATA);
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    for (r, v) in [(Gpr::RSI, SOURCE), (Gpr::RDI, TARGET), (Gpr::RDX, ROUNDS)] {
        regs.gpr[usize::from(r.0)] = v;
    }
    cpu.set_regs(&regs);
    let mut interpreter = Interpreter::new(cpu);
    let clock = Clock::start();
    let stop = interpreter.run(Until::EVENT, &mut ());
    let time = clock.elapsed();
    assert!(matches!(stop, Stop::Syscall), "the kernel stopped early: {stop:?}");
    let checksum = interpreter.cpu().regs().gpr[usize::from(Gpr::RBX.0)];
    (Run { time, checksum }, interpreter.counters().instructions)
}

/// The same instructions on this processor.
fn native() -> Run {
    let source = source();
    let mut target = [0_u64; ELEMENTS as usize];
    let checksum: u64;
    let clock = Clock::start();
    // SAFETY: reads `ELEMENTS` words at `source` and writes as many at `target`, which both have them; clobbers
    // only what is declared. rbx is saved by hand because the compiler reserves it.
    unsafe {
        std::arch::asm!(
            "mov r9, rbx",
            "xor ebx, ebx",
            "2:",
            "xor ecx, ecx",
            "3:",
            "mov rax, [rsi + rcx * 8]",
            "add rbx, rax",
            "xor rbx, rcx",
            "mov [rdi + rcx * 8], rbx",
            "lea r8, [rbx + rax + 3]",
            "add rcx, 1",
            "cmp rcx, 512",
            "jb 3b",
            "sub rdx, 1",
            "jne 2b",
            "mov rax, rbx",
            "mov rbx, r9",
            in("rsi") source.as_ptr(),
            in("rdi") target.as_mut_ptr(),
            inout("rdx") ROUNDS => _,
            out("rax") checksum,
            out("rcx") _,
            out("r8") _,
            out("r9") _,
            options(nostack),
        );
    }
    Run { time: clock.elapsed(), checksum }
}

fn main() -> Result<(), IcedError> {
    let code = kernel()?;
    let mut best = [Duration::MAX; 2];
    let mut instructions = 0;
    for _ in 0..RUNS {
        let (soft, count) = emulated(&code);
        let hard = native();
        assert_eq!(soft.checksum, hard.checksum, "the software CPU and the processor disagree");
        best = [best[0].min(soft.time), best[1].min(hard.time)];
        instructions = count;
    }
    let mips = best.map(|time| instructions as f64 / time.as_secs_f64() / 1e6);
    let ratio = mips[1] / mips[0];
    if std::env::args().any(|a| a == "--json") {
        println!(
            r#"{{"instructions":{instructions},"mips":{:.1},"native_mips":{:.1},"slowdown":{ratio:.1}}}"#,
            mips[0], mips[1]
        );
    } else {
        println!("{instructions} instructions, best of {RUNS}");
        println!("software CPU: {:.0} million instructions/s", mips[0]);
        println!("this processor: {:.0} million instructions/s, {ratio:.1} times as fast", mips[1]);
    }
    Ok(())
}
