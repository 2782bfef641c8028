//! Filters that a program puts on its own system calls: seccomp(2), and prctl's older form.
//!
//! A filter is a program of classic BPF ([`bpf`]) that looks at a call's number and arguments. It is kept with the task, and
//! asked again at replay; nothing of it is the host's.
//!
//! Example: sshd's child lets through the calls that it needs and has all others end it. The next `open` is answered with
//! `SECCOMP_RET_KILL_PROCESS`: SIGSYS, and a core, as on Linux.
//!
//! Not served: listeners (`SECCOMP_FILTER_FLAG_NEW_LISTENER`, refused by name), and tracers, whose calls fail as where there
//! is none. `SECCOMP_RET_LOG` lets a call through without a line in anybody's log.

mod bpf;

use super::capabilities::SYS_ADMIN;
use super::{Guest, Kernel, Outcome, Served, errno, exit, int};
use crate::plain::{plain, shared};
use crate::ram::Virt;
use crate::signal::{Cause, Raised};
use bpf::Filter;
use std::rc::Rc;

/// Operations of the call (linux/seccomp.h).
const SET_MODE_STRICT: u64 = 0;
const SET_MODE_FILTER: u64 = 1;
const GET_ACTION_AVAIL: u64 = 2;
/// Its flags.
const TSYNC: u64 = 1;
const LOG: u64 = 2;
const SPEC_ALLOW: u64 = 4;
const NEW_LISTENER: u64 = 8;
const TSYNC_ESRCH: u64 = 16;
/// Modes, as PR_GET_SECCOMP tells them.
const STRICT: u64 = 1;
const FILTERED: u64 = 2;
/// What a filter says of a call, in the upper half of its result.
const KILL_PROCESS: u32 = 0x8000_0000;
const KILL_THREAD: u32 = 0;
const TRAP: u32 = 0x0003_0000;
const ERRNO: u32 = 0x0005_0000;
const USER_NOTIF: u32 = 0x7fc0_0000;
const TRACE: u32 = 0x7ff0_0000;
const LOGGED: u32 = 0x7ffc_0000;
const ALLOW: u32 = 0x7fff_0000;
const ACTION: u32 = 0xffff_0000;
const DATA: u32 = 0xffff;
/// The largest error number (MAX_ERRNO).
const LARGEST_ERROR: u32 = 4095;
/// All filters of a task have no more instructions, each counted with four more (MAX_INSNS_PER_PATH).
const MOST_INSTRUCTIONS: usize = (1 << 18) / 8;
const OVERHEAD: usize = 4;
/// `si_code` of a call that a filter refuses (SYS_SECCOMP).
const SYS_SECCOMP: i32 = 1;

shared!(Rc<Filter>);

/// What a task's calls pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sieve {
    /// Only read, write, exit and sigreturn.
    strict: bool,
    /// The oldest first.
    filters: Vec<Rc<Filter>>,
}
plain!(struct Sieve { strict, filters });

impl Sieve {
    /// As PR_GET_SECCOMP and /proc tell it.
    pub(super) fn mode(&self) -> u64 {
        match (self.strict, self.filters.is_empty()) {
            (true, _) => STRICT,
            (false, false) => FILTERED,
            (false, true) => 0,
        }
    }

    /// How many filters there are.
    pub(super) fn filters(&self) -> usize {
        self.filters.len()
    }

    /// What the filters say of a call: all are asked, the newest first, and the strictest answer counts.
    fn verdict(&self, data: &bpf::Data) -> u32 {
        let answers = self.filters.iter().rev().map(|filter| filter.run(data));
        // By the action as a signed number: to end the process is less than to end the thread.
        let action = |answer: u32| (answer & ACTION).cast_signed();
        answers
            .reduce(|least, answer| if action(answer) < action(least) { answer } else { least })
            .unwrap_or(ALLOW)
    }
}

/// Says of a call that a task begins what comes of it instead, if it does not pass.
pub(super) fn sift(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: u64,
    arguments: &[u64; 6],
) -> Served<Option<Outcome>> {
    let sieve = &kernel.tasks.current().sieve;
    if sieve.mode() == 0 {
        return Ok(None);
    }
    if sieve.strict {
        const LET_THROUGH: [i64; 4] =
            [libc::SYS_read, libc::SYS_write, libc::SYS_exit, libc::SYS_rt_sigreturn];
        if i64::try_from(number).is_ok_and(|number| LET_THROUGH.contains(&number)) {
            return Ok(None);
        }
        kernel.raise_here(libc::SIGKILL, libc::SI_USER);
        return Ok(Some(Outcome::Resumed));
    }
    let (number, address) = (int(number).cast_unsigned(), guest.cpu.regs().rip);
    let answer = sieve.verdict(&bpf::Data { number, address, arguments: *arguments });
    let data = answer & DATA;
    let result = |error: u32| Ok(Some(Outcome::Return(super::word(-i64::from(error)))));
    let cause = Cause::Syscall { address, number, data };
    match answer & ACTION {
        ALLOW | LOGGED => Ok(None),
        ERRNO => result(data.min(LARGEST_ERROR)),
        TRAP => {
            kernel.force_with(Raised::new(libc::SIGSYS, SYS_SECCOMP, cause));
            // rax keeps the call's number.
            Ok(Some(Outcome::Resumed))
        }
        // Nobody traces, and nobody listens.
        TRACE | USER_NOTIF => result(libc::ENOSYS.unsigned_abs()),
        KILL_THREAD if kernel.tasks.of_group(kernel.pid()).count() > 1 => {
            exit::exit(kernel, guest, libc::SIGSYS).map(Some)
        }
        // KILL_PROCESS, and what no kernel knows.
        _ => {
            kernel.force_end(Raised::new(libc::SIGSYS, SYS_SECCOMP, cause));
            Ok(Some(Outcome::Resumed))
        }
    }
}

/// seccomp.
pub(super) fn seccomp(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [operation, flags, at, ..] = *a;
    match operation & u64::from(u32::MAX) {
        SET_MODE_STRICT if flags == 0 && at == 0 => set_strict(kernel),
        SET_MODE_FILTER => add(kernel, guest, flags & u64::from(u32::MAX), at),
        GET_ACTION_AVAIL if flags == 0 => {
            let mut action = [0; 4];
            guest.read(at, &mut action)?;
            let known = [KILL_PROCESS, KILL_THREAD, TRAP, ERRNO, TRACE, LOGGED, ALLOW];
            if known.contains(&u32::from_le_bytes(action)) { Ok(0) } else { errno(libc::EOPNOTSUPP) }
        }
        _ => errno(libc::EINVAL),
    }
}

/// prctl PR_SET_SECCOMP.
pub(super) fn set_mode(kernel: &mut Kernel, guest: &mut Guest<'_>, mode: u64, at: Virt) -> Served {
    match mode {
        STRICT => set_strict(kernel),
        FILTERED => add(kernel, guest, 0, at),
        _ => errno(libc::EINVAL),
    }
}

fn set_strict(kernel: &mut Kernel) -> Served {
    let sieve = &mut kernel.tasks.current_mut().sieve;
    if sieve.mode() == FILTERED {
        return errno(libc::EINVAL);
    }
    sieve.strict = true;
    Ok(0)
}

/// Puts a filter before those that the task has; with TSYNC before those of all its process.
fn add(kernel: &mut Kernel, guest: &mut Guest<'_>, flags: u64, at: Virt) -> Served {
    if flags & !(TSYNC | LOG | SPEC_ALLOW | NEW_LISTENER | TSYNC_ESRCH) != 0 {
        return errno(libc::EINVAL);
    }
    if flags & NEW_LISTENER != 0 {
        return kernel.refuse("seccomp with a listener (SECCOMP_FILTER_FLAG_NEW_LISTENER)", libc::EINVAL);
    }
    let filter = read(guest, at)?;
    let credentials = &kernel.group().credentials;
    if !credentials.no_new_privileges && !credentials.has(SYS_ADMIN) {
        return errno(libc::EACCES);
    }
    let own = kernel.tasks.current();
    let used: usize = own.sieve.filters.iter().map(|filter| filter.len() + OVERHEAD).sum();
    if own.sieve.mode() == STRICT {
        return errno(libc::EINVAL);
    }
    if used + filter.len() > MOST_INSTRUCTIONS {
        return errno(libc::ENOMEM);
    }
    let (before, others) = (own.sieve.clone(), kernel.tasks.ids_of_group(own.group));
    let mut after = before.clone();
    after.filters.push(Rc::new(filter));
    if flags & TSYNC == 0 {
        kernel.tasks.current_mut().sieve = after;
        return Ok(0);
    }
    let differs = |id: &&i32| !kernel.tasks.get(**id).is_some_and(|task| before.begins_as(&task.sieve));
    if let Some(other) = others.iter().find(differs) {
        return if flags & TSYNC_ESRCH != 0 {
            errno(libc::ESRCH)
        } else {
            Ok(super::word(i64::from(*other)))
        };
    }
    for id in others {
        if let Some(task) = kernel.tasks.get_mut(id) {
            task.sieve = after.clone();
        }
    }
    Ok(0)
}

impl Sieve {
    /// Whether all filters of another task are the first of these.
    fn begins_as(&self, other: &Sieve) -> bool {
        let same = |(ours, theirs): (&Rc<Filter>, &Rc<Filter>)| ours == theirs;
        !other.strict
            && other.filters.len() <= self.filters.len()
            && self.filters.iter().zip(&other.filters).all(same)
    }
}

/// Reads a `struct sock_fprog` and its program.
fn read(guest: &mut Guest<'_>, at: Virt) -> Served<Filter> {
    let [length, program] = guest.read_words(at)?;
    let [low, high, ..] = length.to_le_bytes();
    let length = usize::from(u16::from_le_bytes([low, high]));
    let mut words = vec![[0; 8]; length];
    if length == 0 || length > bpf::LONGEST {
        return errno(libc::EINVAL);
    }
    guest.read(program, words.as_flattened_mut())?;
    Filter::new(words.into_iter().map(u64::from_le_bytes).collect()).map_or_else(|| errno(libc::EINVAL), Ok)
}
