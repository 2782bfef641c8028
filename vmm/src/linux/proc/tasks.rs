//! Small texts about a process or task.

use super::super::descriptors::OpenFile;
use super::super::groups::Group;
use super::super::identity::name_of;
use super::super::tasks::{Doing, NAME};
use super::super::{Guest, Kernel, Served, errno, host};
use super::{Of, gone, open};
use std::fmt::Write;

impl Kernel {
    /// The name of a task; of a zombie, that of its program.
    pub(super) fn name_of(&self, of: Of) -> Vec<u8> {
        let name = match (self.shown(of), self.groups.get(of.group)) {
            (Some(task), _) => task.name,
            (None, Some(group)) => name_of(group.path.to_bytes()),
            (None, None) => [0; NAME],
        };
        name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }

    /// What a task does, in the letter and the word that ps shows.
    pub(super) fn state_of(&self, of: Of) -> (char, &'static str) {
        match self.shown(of) {
            None => ('Z', "zombie"),
            Some(task) if task.stopped => ('T', "stopped"),
            Some(task) => match task.doing {
                Doing::Waits(_) => ('S', "sleeping"),
                _ => ('R', "running"),
            },
        }
    }

    /// Whose child a process is, as it is told itself.
    pub(in super::super) fn parent_of(&self, pid: i32) -> i32 {
        match self.groups.get(pid).map_or(0, |group| group.parent) {
            0 if pid == self.first => self.outside_parent,
            0 => 1,
            parent => parent,
        }
    }

    /// The process of a folder.
    pub(super) fn group_of(&self, of: Of) -> Served<&Group> {
        self.groups.get(of.group).map_or_else(gone, Ok)
    }
}

/// A name in which no line ends (ESCAPE_SPACE and ESCAPE_SPECIAL of string_escape_str).
pub(super) fn escaped(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace('\\', "\\\\").replace('\n', "\\n")
}

pub(super) fn comm(kernel: &mut Kernel, _guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let mut name = kernel.name_of(of);
    name.push(b'\n');
    Ok(name)
}

/// A write to `comm`: only threads of the caller's process are named so.
pub(super) fn set_comm(kernel: &mut Kernel, of: Of, bytes: &[u8]) -> Served {
    if of.group != kernel.pid() {
        return errno(libc::EINVAL);
    }
    let Some(task) = kernel.tasks.get_mut(of.task()) else { return gone() };
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()).min(NAME - 1);
    task.name = [0; NAME];
    task.name[..end].copy_from_slice(&bytes[..end]);
    Ok(bytes.len() as u64)
}

pub(super) fn children(kernel: &mut Kernel, _guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    // All children are the first task's: which one made them is not kept.
    let own = of.task() == of.group;
    let ids = kernel.groups.children(of.group).filter(|_| own);
    Ok(ids.map(|(id, _)| format!("{id} ")).collect::<String>().into_bytes())
}

/// Names and units of the limits, by number.
const LIMITS: [(&str, &str); 16] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

pub(super) fn limits(kernel: &mut Kernel, _guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let shown = |value: u64| match value {
        libc::RLIM_INFINITY => "unlimited".to_owned(),
        value => value.to_string(),
    };
    let mut text = format!("{:<25} {:<20} {:<20} {:<10}\n", "Limit", "Soft Limit", "Hard Limit", "Units");
    for ((name, unit), [soft, hard]) in LIMITS.iter().zip(kernel.group_of(of)?.limits) {
        // Writing to a String cannot fail.
        let width = if unit.is_empty() { 0 } else { 10 };
        let _ = writeln!(text, "{name:<25} {:<20} {:<20} {unit:<width$}", shown(soft), shown(hard));
    }
    Ok(text.into_bytes())
}

pub(super) fn oom_score(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let pages = super::memory::resident(kernel, guest, of)?.iter().sum();
    let adjustment = kernel.group_of(of)?.oom_score_adj;
    Ok(format!("{}\n", kernel.oom_score(pages, adjustment)).into_bytes())
}

pub(super) fn oom_score_adj(kernel: &mut Kernel, _guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    Ok(format!("{}\n", kernel.group_of(of)?.oom_score_adj).into_bytes())
}

/// A write to `oom_score_adj`; only who may use more of everything may lower it.
pub(super) fn set_oom_score_adj(kernel: &mut Kernel, of: Of, bytes: &[u8]) -> Served {
    let text = String::from_utf8_lossy(bytes);
    let Some(wanted) = text.trim().parse().ok().filter(|wanted| (-1000..=1000).contains(wanted)) else {
        return errno(libc::EINVAL);
    };
    let privileged = kernel.group().credentials.has(super::super::capabilities::SYS_RESOURCE);
    let Some(group) = kernel.groups.get_mut(of.group) else { return gone() };
    if wanted < group.oom_score_adj && !privileged {
        return errno(libc::EACCES);
    }
    group.oom_score_adj = wanted;
    Ok(bytes.len() as u64)
}

pub(super) fn personality(kernel: &mut Kernel, _: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let persona = kernel.shown(of).map_or(0, |task| task.persona);
    Ok(format!("{persona:08x}\n").into_bytes())
}

pub(super) fn wchan(_: &mut Kernel, _: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    Ok(b"0".to_vec())
}

pub(super) fn schedstat(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    super::super::time::show(kernel, guest)?;
    let time = kernel.shown(of).map_or(0, |task| task.cpu);
    Ok(format!("{time} 0 0\n").into_bytes())
}

/// The text of a file in `fdinfo`: position and flags, by the host for what is open there.
pub(super) fn descriptor(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    of: Of,
    number: i32,
    file: &OpenFile,
) -> Served<Vec<u8>> {
    let told = guest.input_bytes(&mut || {
        let position = host::seek(file.host(), 0, libc::SEEK_CUR).max(0);
        let flags = host::fcntl(file.host(), libc::F_GETFL, 0);
        Ok([position, flags].into_iter().flat_map(i64::to_le_bytes).collect())
    })?;
    let word = |at: usize| {
        told.get(at..at + 8).map_or(0, |bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    let (mut position, mut flags) = (word(0).unsigned_abs(), word(8));
    if let Some((opened, at)) = open::flags_of(kernel, file) {
        (position, flags) = (at, i64::from(opened));
    }
    let closes = kernel
        .shown(of)
        .and_then(|task| kernel.tables.get(task.files).close_on_exec(number).ok())
        .unwrap_or(false);
    flags = flags & !i64::from(libc::O_CLOEXEC) | if closes { i64::from(libc::O_CLOEXEC) } else { 0 };
    let mut text = format!("pos:\t{position}\nflags:\t0{flags:o}\nmnt_id:\t1\nino:\t0\n");
    if let Some(pid) = file.process() {
        let shown = if kernel.groups.get(pid).is_some() { pid } else { -1 };
        let _ = writeln!(text, "Pid:\t{shown}\nNSpid:\t{shown}");
    }
    Ok(text.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_in_its_line() {
        assert_eq!(escaped(b"a\nb\\c"), "a\\nb\\\\c");
    }
}
