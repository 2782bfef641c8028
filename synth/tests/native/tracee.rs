//! A program that runs natively, one instruction at a time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use vmm::elfcore::Rights;
use vmm::elfcore::write::Area;
use x86::state::{Fpu, Regs, State};

/// ADDR_NO_RANDOMIZE of personality(2).
const NO_RANDOMIZATION: libc::c_ulong = 0x004_0000;

/// RFLAGS bit 8: single-stepping.
const TRAP_FLAG: u64 = 0x100;

/// A stopped child.
pub(crate) struct Tracee {
    child: Child,
    pid: libc::pid_t,
    memory: File,
}

impl Tracee {
    /// Starts `program`, without address randomisation, stopped before its first instruction.
    pub(crate) fn start(program: &Path) -> Tracee {
        let mut command = Command::new(program);
        command.stdout(Stdio::null()).env_clear();
        // Where glibc registers restartable sequences, the kernel writes the processor's number into the
        // program's memory whenever it moves the thread: a change that no instruction makes.
        command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
        // SAFETY: both calls are async-signal-safe system calls without pointers to our memory.
        unsafe {
            command.pre_exec(|| {
                libc::personality(NO_RANDOMIZATION);
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                Ok(())
            })
        };
        let child = command.spawn().expect("the program starts");
        let pid = libc::pid_t::try_from(child.id()).expect("a pid");
        wait(pid);
        let options = libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_EXITKILL;
        // SAFETY: plain request on our own stopped child.
        unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options) };
        let memory = File::open(format!("/proc/{pid}/mem")).expect("its memory");
        Tracee { child, pid, memory }
    }

    /// Runs one instruction. When it does not retire: the signal that it made, or 0 for the program's exit.
    pub(crate) fn step(&mut self) -> Option<i32> {
        // SAFETY: plain request on our own stopped child.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0) };
        let status = wait(self.pid);
        assert!(libc::WIFSTOPPED(status), "the program stops after each step");
        if status >> 8 == libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8 {
            return Some(0);
        }
        self.hide_single_stepping();
        Some(libc::WSTOPSIG(status)).filter(|signal| *signal != libc::SIGTRAP)
    }

    /// After a system call r11 holds rflags with TF, which is ours and not the program's.
    fn hide_single_stepping(&self) {
        let state = self.state();
        let r11 = state.regs.gpr[11];
        if state.regs.gpr[1] == state.regs.rip && r11 & TRAP_FLAG != 0 {
            // SAFETY: POKEUSER writes a word of our own stopped child; r11 is word 6 of `struct user`.
            unsafe { libc::ptrace(libc::PTRACE_POKEUSER, self.pid, 6 * 8, r11 & !TRAP_FLAG) };
        }
    }

    /// The instruction pointer.
    pub(crate) fn rip(&self) -> u64 {
        // SAFETY: PEEKUSER reads a word of our own stopped child; rip is word 16 of `struct user`.
        unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, self.pid, 16 * 8, 0) }.cast_unsigned()
    }

    /// All registers.
    pub(crate) fn state(&self) -> State {
        // SAFETY: an all-zero user_regs_struct is a valid value.
        let mut user: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        let mut image = [0_u8; Fpu::FXSAVE_SIZE];
        // SAFETY: both requests fill buffers of the size that they are defined for.
        unsafe {
            libc::ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut user);
            libc::ptrace(libc::PTRACE_GETFPREGS, self.pid, 0, &raw mut image);
        }
        let u = &user;
        let gpr = [
            u.rax, u.rcx, u.rdx, u.rbx, u.rsp, u.rbp, u.rsi, u.rdi, u.r8, u.r9, u.r10, u.r11, u.r12, u.r13,
            u.r14, u.r15,
        ];
        let rflags = u.eflags & !TRAP_FLAG;
        let regs = Regs { gpr, rip: u.rip, rflags, fs_base: u.fs_base, gs_base: u.gs_base };
        State { regs, fpu: Fpu::from_fxsave(&image) }
    }

    /// The signal's `si_code` and `si_addr`.
    pub(crate) fn signal(&self) -> (i32, u64) {
        // SAFETY: an all-zero siginfo_t is a valid value, and the request fills it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            libc::ptrace(libc::PTRACE_GETSIGINFO, self.pid, 0, &raw mut info);
            (info.si_code, info.si_addr() as u64)
        }
    }

    /// The entry point.
    pub(crate) fn entry(&self) -> u64 {
        let auxv = std::fs::read(format!("/proc/{}/auxv", self.pid)).expect("auxv");
        let words: Vec<u64> =
            auxv.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect();
        words.chunks_exact(2).find(|pair| pair[0] == libc::AT_ENTRY).expect("AT_ENTRY")[1]
    }

    /// Reads memory; what is not mapped stays as it is in `bytes`.
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) {
        let _ = self.memory.read_at(bytes, address).expect("memory of the program");
    }

    /// The mappings whose memory can be read.
    pub(crate) fn areas(&self) -> Vec<Area> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid)).expect("maps");
        let readable = maps.lines().filter(|line| !line.contains("[vvar") && !line.contains("[vsyscall]"));
        let area = |line: &str| {
            let (range, rest) = line.split_once(' ').expect("a range");
            let (start, end) = range.split_once('-').expect("two addresses");
            let address = |text| u64::from_str_radix(text, 16).expect("an address");
            let right = |n: usize| rest.as_bytes()[n] != b'-';
            let rights = Rights { read: right(0), write: right(1), execute: right(2) };
            Area { start: address(start), end: address(end), rights }
        };
        readable.map(area).collect()
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        // SAFETY: plain requests on our own child. One that stands at its exit needs the continuation.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::ptrace(libc::PTRACE_CONT, self.pid, 0, 0);
        }
        let _ = self.child.wait();
    }
}

fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}
