//! wait4 and waitid: what a parent is told of its children.

use super::usage::with_time;
use super::wait::{Interrupted, On, Wait, wait};
use super::{Guest, Kernel, Served, Stop, errno, host, int};
use crate::plain::plain;
use crate::ram::Virt;

/// A change of a child that is not its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It was stopped by this signal.
    Stopped(i32),
    /// It goes on.
    Continued,
}
plain!(enum Change { 0 = Stopped(a), 1 = Continued });

/// Which children a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Any,
    Process(i32),
    ProcessGroup(i32),
}

/// What a wait is told: `si_code` of SIGCHLD, and the status, as wait4 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    pid: i32,
    uid: u32,
    code: i32,
    /// As waitid has it: the exit status, or the signal.
    plain: i32,
    /// As wait4 has it.
    status: i32,
    /// The processor time of the child and of its children, in nanoseconds.
    time: u64,
}

/// The status of a process that a signal stopped, and of one that goes on, as wait4 has them (asm-generic/waitstatus).
const CONTINUED: i32 = 0xffff;
/// In the status of a process that a signal ended: it left a core.
pub(super) const CORE_FLAG: i32 = 0x80;
/// Children that are not told by SIGCHLD, and all of them: of no difference here, but for clone's.
const CLONE_FLAGS: i32 = libc::__WALL | libc::__WCLONE | libc::__WNOTHREAD;

/// The code and the plain status of how a child ended.
pub(super) fn how_it_ended(status: i32) -> (i32, i32) {
    match status & 0x7f {
        0 => (libc::CLD_EXITED, status >> 8 & 0xff),
        signal if status & CORE_FLAG != 0 => (libc::CLD_DUMPED, signal),
        signal => (libc::CLD_KILLED, signal),
    }
}

impl Kernel {
    /// The next change of a child that `which` and `options` ask for; it is told once, unless WNOWAIT.
    fn look_at_children(&mut self, which: Which, options: i32) -> Served<Option<Told>> {
        let own = self.tasks.current().group;
        let wanted = |id: i32, group: &super::groups::Group| match which {
            Which::Any => true,
            Which::Process(pid) => pid == id,
            Which::ProcessGroup(process_group) => group.process_group == process_group,
        };
        let kind = |group: &super::groups::Group| {
            let is_clone = group.exit_signal != libc::SIGCHLD;
            options & libc::__WALL != 0 || is_clone == (options & libc::__WCLONE != 0)
        };
        let candidates: Vec<i32> = self
            .groups
            .children(own)
            .filter(|(id, group)| wanted(*id, group) && kind(group))
            .map(|(id, _)| id)
            .collect();
        if candidates.is_empty() {
            return errno(libc::ECHILD);
        }
        for pid in candidates {
            if let Some(told) = self.tell(pid, options) {
                return Ok(Some(told));
            }
        }
        Ok(None)
    }

    /// What there is to tell of one child.
    fn tell(&mut self, pid: i32, options: i32) -> Option<Told> {
        let keep = options & libc::WNOWAIT != 0;
        let group = self.groups.get_mut(pid)?;
        let uid = group.credentials.uid[0];
        if let Some(status) = group.ended.filter(|_| options & libc::WEXITED != 0) {
            // The first process may still have tasks in the arena only as a zombie.
            let (code, plain) = how_it_ended(status);
            let time = group.cpu + group.children_cpu;
            if !keep {
                self.groups.remove(pid);
                self.group_mut().children_cpu += time;
            }
            return Some(Told { pid, uid, code, plain, status, time });
        }
        let time = group.cpu;
        let told = match group.news? {
            Change::Stopped(signal) if options & libc::WSTOPPED != 0 => {
                Told { pid, uid, code: libc::CLD_STOPPED, plain: signal, status: signal << 8 | 0x7f, time }
            }
            Change::Continued if options & libc::WCONTINUED != 0 => {
                Told { pid, uid, code: libc::CLD_CONTINUED, plain: libc::SIGCONT, status: CONTINUED, time }
            }
            _ => return None,
        };
        if !keep {
            group.news = None;
        }
        Some(told)
    }

    /// Looks, and waits if there is nothing yet.
    fn wait_for_child(&mut self, which: Which, options: i32) -> Served<Option<Told>> {
        match self.look_at_children(which, options)? {
            Some(told) => Ok(Some(told)),
            None if options & libc::WNOHANG != 0 => Ok(None),
            None => wait(Wait::new(On::Child, None, Interrupted::MayRestart)),
        }
    }

    /// Wakes the tasks of a process that wait for children.
    pub(super) fn wake_waiting_parent(&mut self, parent: i32) {
        let waiting: Vec<i32> = self
            .tasks
            .of_group(parent)
            .filter(|(_, task)| matches!(task.wait(), Some(Wait { on: On::Child, .. })))
            .map(|(id, _)| id)
            .collect();
        for id in waiting {
            self.tasks.wake(id, super::wait::Why::Ready);
        }
        self.wake_pidfds();
    }
}

pub(super) fn wait4(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [pid, status, options, usage, ..] = *a;
    let (pid, options) = (int(pid), int(options));
    if options & !(libc::WNOHANG | libc::WUNTRACED | libc::WCONTINUED | CLONE_FLAGS) != 0 {
        return errno(libc::EINVAL);
    }
    let which = match pid {
        -1 => Which::Any,
        0 => Which::ProcessGroup(kernel.group().process_group),
        ..-1 => match pid.checked_neg() {
            Some(process_group) => Which::ProcessGroup(process_group),
            None => return errno(libc::ESRCH),
        },
        _ => Which::Process(pid),
    };
    match kernel.wait_for_child(which, options | libc::WEXITED)? {
        None => Ok(0),
        Some(told) => {
            if status != 0 {
                guest.write(status, &told.status.to_le_bytes())?;
            }
            if usage != 0 {
                guest.write(usage, &with_time(Vec::new(), told.time))?;
            }
            Ok(u64::from(told.pid.unsigned_abs()))
        }
    }
}

pub(super) fn waitid(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [kind, id, info, options, usage, _] = *a;
    let (id, options) = (int(id), int(options));
    let changes = libc::WEXITED | libc::WSTOPPED | libc::WCONTINUED;
    if options & !(changes | libc::WNOHANG | libc::WNOWAIT | CLONE_FLAGS) != 0 || options & changes == 0 {
        return errno(libc::EINVAL);
    }
    let kind = u32::try_from(int(kind));
    let which = match kind {
        Ok(libc::P_ALL) => Which::Any,
        Ok(libc::P_PID) if id > 0 => Which::Process(id),
        Ok(libc::P_PGID) if id == 0 => Which::ProcessGroup(kernel.group().process_group),
        Ok(libc::P_PGID) if id > 0 => Which::ProcessGroup(id),
        Ok(libc::P_PIDFD) => Which::Process(kernel.pid_of_descriptor(id)?),
        _ => return errno(libc::EINVAL),
    };
    let told = kernel.wait_for_child(which, options);
    if let (Err(Stop::Wait(_)), Ok(libc::P_PIDFD)) = (&told, kind) {
        // PIDFD_NONBLOCK.
        let file = kernel.files().get(id)?;
        let flags = guest.input_number(|| host::fcntl(file.host(), libc::F_GETFL, 0))?;
        if int(flags) & libc::O_NONBLOCK != 0 {
            return errno(libc::EAGAIN);
        }
    }
    let told = told?;
    if info != 0 {
        write_info(guest, info, told)?;
    }
    if let Some(told) = told.filter(|_| usage != 0) {
        guest.write(usage, &with_time(Vec::new(), told.time))?;
    }
    Ok(0)
}

/// Fills a `siginfo_t`; nothing that happened is a signal of zero, and a process of zero.
fn write_info(guest: &mut Guest<'_>, at: Virt, told: Option<Told>) -> Served<()> {
    let words = told.map_or([0; 6], |told| {
        let uid = i32::from_le_bytes(told.uid.to_le_bytes());
        [libc::SIGCHLD, 0, told.code, told.pid, uid, told.plain]
    });
    let [signal, error, code, pid, uid, status] = words.map(i32::to_le_bytes);
    guest.write(at, [signal, error, code].as_flattened())?;
    guest.write(at + 16, [pid, uid, status].as_flattened())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_tells_exits_signals_and_cores_apart() {
        assert_eq!(how_it_ended(3 << 8), (libc::CLD_EXITED, 3));
        assert_eq!(how_it_ended(libc::SIGKILL), (libc::CLD_KILLED, libc::SIGKILL));
        assert_eq!(how_it_ended(libc::SIGSEGV | CORE_FLAG), (libc::CLD_DUMPED, libc::SIGSEGV));
    }
}
