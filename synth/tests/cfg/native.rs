//! Runs a program natively, one instruction at a time, and tells where it went.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a run did.
pub(crate) struct Run {
    /// Each pair of addresses of instructions that ran one after the other.
    pub(crate) edges: BTreeSet<(u64, u64)>,
    /// How many instructions ran.
    pub(crate) steps: u64,
    /// The run-time address of the entry point.
    pub(crate) entry: u64,
    /// The memory of `span` at the end.
    pub(crate) memory: Vec<u8>,
}

/// Single-steps `program` to its end, without address randomisation; keeps the memory from `span.0`, relative
/// to the entry point, up to `span.1`.
pub(crate) fn single_step(program: &Path, span: (i64, i64)) -> Run {
    let mut command = Command::new(program);
    command.stdout(Stdio::null()).env_clear();
    // SAFETY: both calls are async-signal-safe system calls without pointers to our memory.
    unsafe {
        command.pre_exec(|| {
            libc::personality(0x004_0000);
            libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
            Ok(())
        })
    };
    let mut child = command.spawn().expect("the sample starts");
    let pid = libc::pid_t::try_from(child.id()).expect("a pid");
    wait(pid);
    // SAFETY: plain request on our own stopped child.
    unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, libc::PTRACE_O_TRACEEXIT) };
    let auxv = std::fs::read(format!("/proc/{pid}/auxv")).expect("auxv");
    let words: Vec<u64> =
        auxv.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect();
    let entry = words.chunks_exact(2).find(|pair| pair[0] == libc::AT_ENTRY).expect("AT_ENTRY")[1];
    let mut run = Run { edges: BTreeSet::new(), steps: 0, entry, memory: Vec::new() };
    let mut before = rip(pid);
    loop {
        // SAFETY: plain request on our own stopped child.
        unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, pid, 0, 0) };
        let status = wait(pid);
        assert!(libc::WIFSTOPPED(status), "the sample stops after each step");
        if status >> 8 == libc::SIGTRAP | libc::PTRACE_EVENT_EXIT << 8 {
            break;
        }
        assert_eq!(libc::WSTOPSIG(status), libc::SIGTRAP, "the sample runs without other signals");
        let now = rip(pid);
        run.edges.insert((before, now));
        run.steps += 1;
        before = now;
    }
    let start = entry.checked_add_signed(span.0).expect("an address");
    run.memory = vec![0; usize::try_from(span.1 - span.0).expect("a size")];
    let memory = File::open(format!("/proc/{pid}/mem")).expect("memory");
    let _ = memory.read_at(&mut run.memory, start).expect("memory of the sample");
    // SAFETY: plain request on our own child, which stands at its exit.
    unsafe { libc::ptrace(libc::PTRACE_CONT, pid, 0, 0) };
    child.wait().expect("the sample is reaped");
    run
}

fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

fn rip(pid: libc::pid_t) -> u64 {
    // SAFETY: PEEKUSER reads a word of our own stopped child; rip is word 16 of `struct user`.
    unsafe { libc::ptrace(libc::PTRACE_PEEKUSER, pid, 16 * 8, 0) }.cast_unsigned()
}
