//! What a replay computes and the journal does not hold has a version: this notices changes of it that a program can see.

use crate::hostile::program;
use iced_x86::IcedError;
use iced_x86::code_asm::{
    CodeAssembler, al, byte_ptr, eax, ecx, qword_ptr, r8, r9, r10, rax, rbx, rdi, rdx, rsi,
};
use std::cell::RefCell;
use std::rc::Rc;
use vmm::cpu_model::Model;
use vmm::engine::soft::SoftCpu;
use vmm::gate::{Event, Gate, GateError, Input, Time};
use vmm::journal::schema::{BEHAVIOUR, digest_regs};
use vmm::process::{Capabilities, Ids, Launch, Parents, Process, Step};
use x86::state::Regs;
use xxhash_rust::xxh3::xxh3_64;

/// Where the program puts results, and where it has buffers filled.
const RESULTS: u64 = 0x40_1000;
const BUFFER: u64 = 0x40_2000;

/// A host on which nothing ever happens; it notes what it is asked for.
struct Still(Rc<RefCell<String>>);

impl Gate for Still {
    fn begin(&mut self, event: Event, _task: i32, regs: &Regs) -> Result<(), GateError> {
        self.0.borrow_mut().push_str(&format!("{event:?} {:x}\n", digest_regs(regs)));
        Ok(())
    }

    fn input(&mut self, _: &mut dyn FnMut() -> Input) -> Result<Input, GateError> {
        self.0.borrow_mut().push_str("input\n");
        Ok(Input::Bytes { result: 0, writes: Vec::new() })
    }

    fn time(&mut self) -> Result<Time, GateError> {
        self.0.borrow_mut().push_str("time\n");
        Ok(Time { real: 1_000_000_007, monotonic: 7 })
    }

    fn output(&mut self, _: i32, _: &[u8]) {}

    fn replaying(&self) -> bool {
        true
    }
}

/// Asks the personality for what it answers by itself, and a few things that it passes on; reads the machine; crashes
/// in the handler of a crash.
fn asks(asm: &mut CodeAssembler) -> Result<(), IcedError> {
    asm.mov(rbx, RESULTS)?;
    let (anonymous, read_write) = (0x22, 3);
    let calls: [(i64, [u64; 6]); 20] = [
        (libc::SYS_brk, [0; 6]),
        (libc::SYS_mmap, [0, 0x3000, read_write, anonymous, u64::MAX, 0]),
        (libc::SYS_uname, [BUFFER, 0, 0, 0, 0, 0]),
        (libc::SYS_getcwd, [BUFFER + 0x200, 64, 0, 0, 0, 0]),
        (libc::SYS_getpid, [0; 6]),
        (libc::SYS_gettid, [0; 6]),
        (libc::SYS_getppid, [0; 6]),
        (libc::SYS_geteuid, [0; 6]),
        (libc::SYS_getrandom, [BUFFER + 0x300, 16, 0, 0, 0, 0]),
        (libc::SYS_prlimit64, [0, 3, 0, BUFFER + 0x320, 0, 0]),
        (libc::SYS_prlimit64, [0, 7, 0, BUFFER + 0x330, 0, 0]),
        (libc::SYS_sched_getaffinity, [0, 8, BUFFER + 0x340, 0, 0, 0]),
        (libc::SYS_sysinfo, [BUFFER + 0x380, 0, 0, 0, 0, 0]),
        (libc::SYS_clock_gettime, [1, BUFFER + 0x400, 0, 0, 0, 0]),
        (libc::SYS_rseq, [BUFFER, 32, 0, 0, 0, 0]),
        (libc::SYS_membarrier, [0; 6]),
        (libc::SYS_set_tid_address, [BUFFER, 0, 0, 0, 0, 0]),
        (libc::SYS_read, [0, BUFFER + 0x500, 8, 0, 0, 0]),
        (libc::SYS_fstat, [1, BUFFER + 0x500, 0, 0, 0, 0]),
        (libc::SYS_rt_sigaction, [11, BUFFER + 0x600, 0, 8, 0, 0]),
    ];
    let mut handler = asm.create_label();
    asm.lea(rax, qword_ptr(handler))?;
    // A struct sigaction: handler, flags (SA_SIGINFO | SA_RESTORER), restorer, mask.
    asm.mov(qword_ptr(BUFFER + 0x600), rax)?;
    asm.mov(rax, 0x0400_0004_u64)?;
    asm.mov(qword_ptr(BUFFER + 0x608), rax)?;
    for (number, [a, b, c, d, e, f]) in calls {
        for (register, value) in [(rdi, a), (rsi, b), (rdx, c), (r10, d), (r8, e), (r9, f)] {
            asm.mov(register, value)?;
        }
        asm.mov(rax, number)?;
        asm.syscall()?;
        asm.mov(qword_ptr(rbx), rax)?;
        asm.add(rbx, 8)?;
    }
    for leaf in [0, 1, 4, 7, 0x8000_0001_u32, 0x8000_0002] {
        asm.mov(qword_ptr(RESULTS + 0x800), rbx)?;
        asm.mov(eax, leaf)?;
        asm.xor(ecx, ecx)?;
        asm.cpuid()?;
        asm.add(rax, rbx)?;
        asm.add(rax, rdx)?;
        asm.mov(rbx, qword_ptr(RESULTS + 0x800))?;
        asm.mov(qword_ptr(rbx), rax)?;
        asm.add(rbx, 8)?;
    }
    asm.rdtsc()?;
    asm.mov(al, byte_ptr(0x10))?;
    asm.set_label(&mut handler)?;
    asm.mov(al, byte_ptr(0x20))
}

#[test]
fn what_programs_see_changes_only_with_the_behaviour_version() {
    let mut asm = CodeAssembler::new(64).expect("an assembler");
    asks(&mut asm).expect("instructions");
    let mut executable = program();
    let code = asm.assemble(0x40_0100).expect("code");
    executable[0x100..0x100 + code.len()].copy_from_slice(&code);
    let launch = Launch {
        executable,
        path: "/asks".to_owned(),
        name: b"/asks".to_vec(),
        argv: vec![b"asks".to_vec(), b"much".to_vec()],
        envp: vec![b"HOME=/".to_vec()],
        random: *b"not so random...",
        cwd: b"/".to_vec(),
        ids: Ids { uid: 1, euid: 2, gid: 3, egid: 4 },
        pid: 1000,
        parents: Parents { parent: 999, group: 998, session: 998 },
        terminal: None,
        umask: 0o22,
        cpu: Model::V2,
        capabilities: Capabilities::usual(false),
        ..Launch::default()
    };
    let asked = Rc::default();
    let machine = SoftCpu::machine(64 << 20).expect("memory").any();
    let mut process =
        Process::start(machine, Box::new(Still(Rc::clone(&asked))), &launch).expect("it starts");
    let end = loop {
        match process.step().expect("it runs") {
            Step::Running => {}
            end => break end,
        }
    };
    let Step::Killed(death) = end else { panic!("{end:?}") };
    assert_eq!((death.signal, death.address), (libc::SIGSEGV, 0x20), "it dies in its handler");
    let asked = asked.borrow();
    assert_eq!(asked.lines().filter(|line| line.starts_with("Syscall")).count(), 20);
    let all = format!("{asked}{:x} {:x}", digest_regs(process.cpu().regs()), process.memory_digest());
    assert_eq!(
        (BEHAVIOUR, format!("{:016x}", xxh3_64(all.as_bytes())).as_str()),
        (26, "cac0c8989a933170"),
        "programs see other things than before, so recordings made before do not replay: raise BEHAVIOUR in \
         vmm/src/journal/schema.rs, and put the new pair here"
    );
}
