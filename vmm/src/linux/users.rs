//! Whose files the host opens. A program that has become another user, or has given up capabilities, has that user's rights to
//! files: what decides about them in the host belongs to the thread that asks, so for a call of such a program, this thread
//! takes those [`Rights`], and comes back to its own behind the call.
//!
//! Taking them and coming back are sixteen calls of the host, so that is done for those alone that the host may refuse by who
//! asks: not for waiting, nor for what moves bytes through a socket that is open.
//!
//! Example: gretel runs as root, and a server calls setuid(33). Its open of a file of root's is served with 33 as this thread's
//! user for files and none of root's capabilities, and fails with EACCES.

use super::identity::Credentials;
use super::network::Endpoint;
use super::{Guest, Kernel, Served, errno, host};
use crate::failure::ProcessError;
use crate::plain::plain;
use crate::program::Launch;

/// What decides in the host about what a call may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rights {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
    pub(super) effective: u64,
    /// The sets that stay, as long as what is effective is among them.
    pub(super) permitted: u64,
    pub(super) inheritable: u64,
}

plain!(struct Rights { uid, gid, groups, effective, permitted, inheritable });

impl Rights {
    /// Those of gretel itself, as of the program that it starts.
    pub(super) fn of_recorder(launch: &Launch) -> Rights {
        let sets = &launch.capabilities;
        Rights {
            uid: launch.ids.euid,
            gid: launch.ids.egid,
            groups: launch.groups.clone(),
            effective: sets.effective,
            permitted: sets.permitted,
            inheritable: sets.inheritable,
        }
    }

    /// Those of a process, or with `real`, those that access asks for; `None` where they are the recorder's, as nearly always.
    fn of(credentials: &Credentials, real: bool, recorder: &Rights) -> Option<Rights> {
        let Credentials { uid, gid, groups, .. } = credentials;
        let which = if real { 0 } else { 3 };
        let effective = if real { credentials.for_access() } else { credentials.capabilities.effective };
        let (uid, gid, effective) = (uid[which], gid[which], effective & recorder.permitted);
        // Two empty lists are not compared: that is slow (`Stale::is_nothing`), and asked at each call.
        let has_groups = !(groups.is_empty() && recorder.groups.is_empty());
        let is_recorder = (uid, gid, effective) == (recorder.uid, recorder.gid, recorder.effective)
            && !(has_groups && *groups != recorder.groups);
        (!is_recorder).then(|| Rights { uid, gid, groups: groups.clone(), effective, ..*recorder })
    }
}

impl Kernel {
    /// Makes this thread what the process that runs is for the call; whether it is another than before.
    pub(super) fn become_caller(
        &self,
        guest: &Guest<'_>,
        number: u64,
        arguments: &[u64; 6],
    ) -> Result<bool, ProcessError> {
        if guest.gate.replaying() {
            return Ok(false);
        }
        let real = match i64::try_from(number) {
            Ok(libc::SYS_access | libc::SYS_faccessat) => true,
            Ok(libc::SYS_faccessat2) => super::int(arguments[3]) & libc::AT_EACCESS == 0,
            _ => false,
        };
        let Some(rights) = Rights::of(&self.group().credentials, real, &self.recorder) else {
            return Ok(false);
        };
        if self.asks_nobody(number, arguments) {
            return Ok(false);
        }
        match host::act_as(&rights) {
            true => Ok(true),
            false => Err(ProcessError::User { uid: rights.uid, gid: rights.gid }),
        }
    }

    /// Whether who asks is nothing to the host in this call.
    ///
    /// Of the sockets this holds for those of Unix and of the internet (`net/unix/af_unix.c`, `net/socket.c`: a message without control
    /// messages has the caller's real user, which [`Rights`] leave as they are). Netlink looks at who sends (netlink(7)).
    fn asks_nobody(&self, number: u64, arguments: &[u64; 6]) -> bool {
        let Ok(number) = i64::try_from(number) else { return false };
        let by_socket = || {
            let file = self.files().get(super::int(arguments[0]));
            file.is_ok_and(|file| file.endpoint().is_some_and(Endpoint::moves_bytes_for_anyone))
        };
        match number {
            libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => true,
            libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => true,
            libc::SYS_futex | libc::SYS_nanosleep | libc::SYS_clock_nanosleep => true,
            libc::SYS_clock_gettime | libc::SYS_gettimeofday | libc::SYS_time => true,
            libc::SYS_sched_yield | libc::SYS_brk | libc::SYS_munmap | libc::SYS_mprotect => true,
            libc::SYS_rt_sigprocmask | libc::SYS_rt_sigaction | libc::SYS_rt_sigreturn => true,
            libc::SYS_read | libc::SYS_readv | libc::SYS_recvfrom | libc::SYS_recvmsg => by_socket(),
            libc::SYS_write | libc::SYS_writev => by_socket(),
            libc::SYS_sendto => arguments[4] == 0 && by_socket(),
            _ => false,
        }
    }

    /// Makes this thread gretel's own again.
    pub(super) fn become_recorder(&self) {
        assert!(host::act_as(&self.recorder), "a thread may always come back to what it was");
    }

    /// That the host lets a process be who it has just become; EINVAL if it does not know that user, as in a user namespace.
    pub(super) fn check_rights(&self, guest: &mut Guest<'_>) -> Served<()> {
        let Some(rights) = Rights::of(&self.group().credentials, false, &self.recorder) else {
            return Ok(());
        };
        let allowed = guest.input_number(|| {
            let allowed = host::act_as(&rights);
            self.become_recorder();
            allowed.into()
        })?;
        if allowed == 0 { errno(libc::EINVAL) } else { Ok(()) }
    }
}
