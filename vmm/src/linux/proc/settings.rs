//! Small files of a process's folder that say how it is set up. What the guest has no call to change is the host's for gretel itself, which
//! is what a program started in its place would see.

use super::super::{Guest, Kernel, Served};
use super::{Of, gone, read_host};

pub(super) fn coredump_filter(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/coredump_filter")
}

pub(super) fn cpuset(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/cpuset")
}

pub(super) fn gid_map(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/gid_map")
}

pub(super) fn loginuid(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/loginuid")
}

pub(super) fn sessionid(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/sessionid")
}

pub(super) fn setgroups(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/setgroups")
}

pub(super) fn uid_map(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/uid_map")
}

/// The older scale of `oom_score_adj`, from -17 to 15 (`oom_adj_read` of fs/proc/base.c).
pub(super) fn oom_adj(kernel: &mut Kernel, _: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let adjustment = match kernel.group_of(of)?.oom_score_adj {
        1000 => 15,
        adjustment => adjustment * 17 / 1000,
    };
    Ok(format!("{adjustment}\n").into_bytes())
}

pub(super) fn timerslack(kernel: &mut Kernel, _: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let slack = kernel.shown(of).map_or_else(gone, |task| Ok(task.scheduling.slack))?;
    Ok(format!("{slack}\n").into_bytes())
}

/// Whether a file of this name can be written in Linux, to change what cannot be changed here.
pub(super) fn is_fixed(name: &str) -> bool {
    matches!(
        name,
        "coredump_filter" | "gid_map" | "loginuid" | "oom_adj" | "setgroups" | "timerslack_ns" | "uid_map"
    )
}
