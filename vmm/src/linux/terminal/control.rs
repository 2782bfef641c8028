//! Controlling terminals: whose a terminal is, who is in its foreground, who may read from it, and what its end does
//! (drivers/tty/tty_jobctrl.c).

use super::super::capabilities::SYS_ADMIN;
use super::super::descriptors::OpenFile;
use super::super::signals::bit;
use super::super::wait::{Interrupted, On, Wait, wait};
use super::super::{Guest, Kernel, Served, errno, host, int};
use super::{OUTER, Side, open_peer};
use crate::ram::Virt;
use crate::signal::Raised;
use std::ffi::CString;

/// Serves the requests that are the guest's own; `None` for others.
pub(super) fn ioctl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &OpenFile,
    side: Side,
    request: u64,
    argument: u64,
) -> Option<Served> {
    Some(match request {
        libc::TIOCSCTTY => kernel.take_terminal(side, int(argument) == 1),
        libc::TIOCNOTTY => kernel.leave_terminal(side),
        libc::TIOCGPGRP => foreground(kernel, guest, file, side, argument),
        libc::TIOCSPGRP => set_foreground(kernel, guest, side, argument),
        libc::TIOCGSID => session(kernel, guest, side, argument),
        libc::TIOCSWINSZ => resize(kernel, guest, file, side, argument),
        libc::TIOCGPTPEER => match side {
            Side::Master(terminal) => open_peer(kernel, guest, file, terminal, int(argument)),
            Side::Slave(_) => errno(libc::ENOTTY),
        },
        _ => return None,
    })
}

/// TIOCGPGRP: of the caller's own terminal, or through its master.
///
/// Of the terminal that gretel was started on, somebody outside is in the foreground while gretel is not.
fn foreground(kernel: &Kernel, guest: &mut Guest<'_>, file: &OpenFile, side: Side, address: Virt) -> Served {
    let mut foreground = kernel.visible(side)?.foreground;
    if side.terminal() == OUTER {
        let outside = guest.input_number(|| host::other_foreground(file.host()).into())?;
        if outside != 0 {
            foreground = int(outside);
        }
    }
    guest.write(address, &foreground.to_le_bytes())?;
    Ok(0)
}

/// TIOCGSID.
fn session(kernel: &Kernel, guest: &mut Guest<'_>, side: Side, address: Virt) -> Served {
    match kernel.visible(side)?.session {
        0 => errno(libc::ENOTTY),
        session => {
            guest.write(address, &session.to_le_bytes())?;
            Ok(0)
        }
    }
}

/// TIOCSPGRP.
fn set_foreground(kernel: &mut Kernel, guest: &mut Guest<'_>, side: Side, address: Virt) -> Served {
    kernel.check_foreground(side, libc::SIGTTOU)?;
    let (number, session) = (side.terminal(), kernel.group().session);
    let own = kernel.group().terminal == Some(number)
        && kernel.terminals.all.get(&number).is_some_and(|terminal| terminal.session == session);
    if !own {
        return errno(libc::ENOTTY);
    }
    let wanted = i32::from_le_bytes(guest.read_array(address)?);
    if wanted < 0 {
        return errno(libc::EINVAL);
    }
    let members = kernel.groups.in_process_group(wanted);
    let Some(member) = members.first().and_then(|pid| kernel.groups.get(*pid)) else {
        return errno(libc::ESRCH);
    };
    if member.session != session {
        return errno(libc::EPERM);
    }
    if let Some(terminal) = kernel.terminals.all.get_mut(&number) {
        terminal.foreground = wanted;
    }
    Ok(0)
}

/// TIOCSWINSZ: the foreground is told of another size.
fn resize(kernel: &mut Kernel, guest: &mut Guest<'_>, file: &OpenFile, side: Side, address: Virt) -> Served {
    let mut wanted: [u8; size_of::<libc::winsize>()] = guest.read_array(address)?;
    let changed = guest.input_number(|| {
        let mut now = [0; size_of::<libc::winsize>()];
        host::ioctl(file.host(), libc::TIOCGWINSZ, &mut now);
        let changed = now != wanted;
        match host::ioctl(file.host(), libc::TIOCSWINSZ, &mut wanted) {
            0 => changed.into(),
            error => error,
        }
    })?;
    // Of the one that gretel was started on the host tells gretel.
    if changed != 0 && side.terminal() != OUTER {
        kernel.signal_foreground(side.terminal(), libc::SIGWINCH);
    }
    Ok(0)
}

impl Kernel {
    /// The terminal, if the caller may ask about it: a slave that is its own, or a master.
    fn visible(&self, side: Side) -> Served<&super::Terminal> {
        let own = matches!(side, Side::Master(_)) || self.group().terminal == Some(side.terminal());
        match self.terminals.all.get(&side.terminal()) {
            Some(terminal) if own => Ok(terminal),
            _ => errno(libc::ENOTTY),
        }
    }

    /// The caller's own terminal, if it has one: its number in /dev/pts, if it is there.
    fn own_terminal(&self) -> Option<Option<u32>> {
        Some(self.terminals.all.get(&self.group().terminal?)?.index)
    }

    /// Who is in the foreground of the terminal that gretel was started on.
    pub(in super::super) fn outer_foreground(&self) -> Option<i32> {
        self.terminals.all.get(&OUTER).map(|terminal| terminal.foreground).filter(|group| *group != 0)
    }

    /// Who is in the foreground of the terminal that a file is; zero for nobody.
    pub(in super::super) fn foreground_of(&self, file: &OpenFile) -> i32 {
        let terminal = file.terminal().and_then(|side| self.terminals.all.get(&side.terminal()));
        terminal.map_or(0, |terminal| terminal.foreground)
    }

    /// Sends a signal to the processes in the foreground of a terminal.
    pub(super) fn signal_foreground(&mut self, terminal: u64, signal: i32) {
        let foreground = self.terminals.all.get(&terminal).map_or(0, |terminal| terminal.foreground);
        if foreground != 0 {
            self.signal_process_group(foreground, Raised::by_kernel(signal));
        }
    }

    /// That the caller is in the foreground of a terminal, if that is its own. Its group gets `signal` otherwise, which stops
    /// it, and then the call begins again (`__tty_check_change`).
    pub(in super::super) fn check_foreground(&mut self, side: Side, signal: i32) -> Served<()> {
        let (process_group, own) = (self.group().process_group, self.group().terminal);
        let foreground = self.terminals.all.get(&side.terminal()).map_or(0, |terminal| terminal.foreground);
        if own != Some(side.terminal()) || foreground == 0 || foreground == process_group {
            return Ok(());
        }
        let current = self.tasks.current();
        let ignored = super::super::signals::handler(self.handlers.get(current.handlers), signal).ignores();
        if ignored || current.signals.blocked & bit(signal) != 0 {
            return if signal == libc::SIGTTIN { errno(libc::EIO) } else { Ok(()) };
        }
        if self.is_orphaned(process_group) {
            return errno(libc::EIO);
        }
        self.signal_process_group(process_group, Raised::by_kernel(signal));
        wait(Wait::new(On::Nothing, None, Interrupted::MayRestart))
    }

    /// That the caller may read from a file: one in the background of its terminal may not.
    pub(in super::super) fn check_reader(&mut self, file: &OpenFile) -> Served<()> {
        match file.terminal() {
            Some(side @ Side::Slave(_)) => self.check_foreground(side, libc::SIGTTIN),
            _ => Ok(()),
        }
    }

    /// That the caller may write to a file: one in the background of its terminal may, unless that is set otherwise.
    pub(in super::super) fn check_writer(&mut self, guest: &mut Guest<'_>, file: &OpenFile) -> Served<()> {
        let Some(side @ Side::Slave(number)) = file.terminal() else { return Ok(()) };
        let foreground = self.terminals.all.get(&number).map_or(0, |terminal| terminal.foreground);
        let group = self.group();
        if group.terminal != Some(number) || foreground == group.process_group {
            return Ok(());
        }
        let settings = super::keys::Settings::ask(guest, file)?;
        if settings.is_some_and(|settings| settings.has(libc::TOSTOP)) {
            self.check_foreground(side, libc::SIGTTOU)?;
        }
        Ok(())
    }

    /// The path that /dev/tty is for the caller.
    pub(in super::super) fn path_of_terminal(&self) -> Served<CString> {
        match self.own_terminal() {
            Some(Some(index)) => Ok(CString::new(format!("/dev/pts/{index}")).expect("no zero byte")),
            // It is that of gretel's session.
            Some(None) => Ok(c"/dev/tty".to_owned()),
            None => errno(libc::ENXIO),
        }
    }

    /// TIOCSCTTY, or the open of a terminal by who has none.
    pub(in super::super) fn take_terminal(&mut self, side: Side, steals: bool) -> Served {
        let (pid, group) = (self.pid(), self.group());
        let (session, process_group, number) = (group.session, group.process_group, side.terminal());
        let (has_one, may_steal) = (group.terminal.is_some(), steals && group.credentials.has(SYS_ADMIN));
        let Some(terminal) = self.terminals.all.get_mut(&number) else { return errno(libc::EIO) };
        if session == pid && terminal.session == session {
            return Ok(0);
        }
        if session != pid || has_one || terminal.session != 0 && !may_steal {
            return errno(libc::EPERM);
        }
        let before = std::mem::replace(&mut terminal.session, session);
        terminal.foreground = process_group;
        if before != 0 {
            self.forget_terminal(before, number);
        }
        self.group_mut().terminal = Some(number);
        Ok(0)
    }

    /// The open of a slave without O_NOCTTY.
    pub(in super::super) fn take_opened_terminal(&mut self, file: &OpenFile, flags: i32) {
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        if let Some(side @ Side::Slave(_)) = file.terminal()
            && reads
            && flags & libc::O_NOCTTY == 0
        {
            // Who may not have it has opened it all the same.
            let _ = self.take_terminal(side, false);
        }
    }

    /// TIOCNOTTY.
    fn leave_terminal(&mut self, side: Side) -> Served {
        let number = side.terminal();
        if self.group().terminal != Some(number) {
            return errno(libc::ENOTTY);
        }
        if self.group().session == self.pid() {
            self.signal_foreground(number, libc::SIGHUP);
            self.signal_foreground(number, libc::SIGCONT);
            self.end_session(number);
        }
        self.group_mut().terminal = None;
        Ok(0)
    }

    /// A terminal is nobody's any more.
    fn end_session(&mut self, number: u64) {
        let Some(terminal) = self.terminals.all.get_mut(&number) else { return };
        let session = std::mem::take(&mut terminal.session);
        terminal.foreground = 0;
        self.forget_terminal(session, number);
    }

    /// The processes of a session have no controlling terminal any more.
    fn forget_terminal(&mut self, session: i32, number: u64) {
        let members: Vec<i32> = self.groups.iter().map(|(pid, _)| pid).collect();
        for pid in members {
            if let Some(group) = self.groups.get_mut(pid)
                && group.session == session
                && group.terminal == Some(number)
            {
                group.terminal = None;
            }
        }
    }

    /// A process has ended: with the leader of a session, its terminal is free, and who was in the foreground is told.
    pub(in super::super) fn leave_terminal_at_end(&mut self, pid: i32) {
        let Some(group) = self.groups.get(pid).filter(|group| group.session == pid) else { return };
        let (own, left) = (group.terminal, group.hung_up);
        if let Some(number) = own {
            self.signal_foreground(number, libc::SIGHUP);
            self.end_session(number);
        } else if left != 0 {
            self.signal_process_group(left, Raised::by_kernel(libc::SIGHUP));
            self.signal_process_group(left, Raised::by_kernel(libc::SIGCONT));
        }
    }

    /// Hangs up the terminals whose masters are closed: the leader of the session gets SIGHUP.
    pub(in super::super) fn hang_up_terminals(&mut self) {
        let of_guest = self.terminals.all.iter().filter(|(number, _)| **number != OUTER);
        let closed = of_guest.filter(|(_, terminal)| terminal.master.strong_count() == 0);
        let closed: Vec<u64> = closed.map(|(number, _)| *number).collect();
        for number in closed {
            let Some(terminal) = self.terminals.all.get(&number) else { continue };
            let (session, foreground) = (terminal.session, terminal.foreground);
            self.end_session(number);
            self.terminals.all.remove(&number);
            if let Some(leader) = self.groups.get_mut(session) {
                leader.hung_up = foreground;
                self.signal_group(session, Raised::by_kernel(libc::SIGHUP));
                self.signal_group(session, Raised::by_kernel(libc::SIGCONT));
            }
        }
    }
}
