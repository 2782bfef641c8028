//! Answers that are text: why the program stopped, threads, mappings, the signal that ended a process.

use super::hex;
use super::points::Kind;
use super::registers::{self, AT_STOPS, Shown};
use super::signals::gdb_number;
use super::target::{Stopped, Task, Why};
use std::fmt::Write;
use vmm::engine::lookout::Access;
use vmm::memory::{MappingInfo, Rights};
use vmm::signal::Death;

/// What an answer depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialect {
    /// Threads have their process's number before theirs.
    pub(super) several: bool,
    /// The debugger wants to be told that a stop is for a breakpoint.
    pub(super) names_breakpoints: bool,
}

/// Why the program stopped.
pub(super) fn stop(stopped: &Stopped, shown: Option<&Shown>, dialect: Dialect) -> String {
    let signal = match &stopped.why {
        Why::Signal(signal) => gdb_number(*signal),
        Why::Asked => libc::SIGINT,
        // lldb looks at the first thread that has a signal: it is to be the one that stopped.
        Why::Along => 0,
        _ => libc::SIGTRAP,
    };
    let mut text = format!("T{signal:02x}");
    // gdb takes no register here that is not known, and asks for them then.
    for number in AT_STOPS.iter().filter(|_| shown.is_some()) {
        if let Some(value) = registers::one(shown, (*number).into()) {
            // Writing to a string does not fail.
            let _ = write!(text, "{number:02x}:{value};");
        }
    }
    let _ = write!(text, "thread:{};", stopped.id.text(dialect.several));
    match &stopped.why {
        Why::Point(Kind::Software, _) if dialect.names_breakpoints => text += "swbreak:;",
        Why::Point(Kind::Hardware, _) if dialect.names_breakpoints => text += "hwbreak:;",
        Why::Point(Kind::Data(access), address) => {
            let name = match access {
                Access::Write => "watch",
                Access::Read => "rwatch",
                Access::Any => "awatch",
            };
            let _ = write!(text, "{name}:{address:x};");
        }
        Why::Begin => text += "replaylog:begin;",
        Why::End => text += "replaylog:end;",
        Why::Forked { pid, waits } => {
            let name = if *waits { "vfork" } else { "fork" };
            let _ = write!(text, "{name}:p{pid:x}.{pid:x};");
        }
        Why::Called { number, returned } => {
            let name = if *returned { "syscall_return" } else { "syscall_entry" };
            let _ = write!(text, "{name}:{number:x};");
        }
        Why::Released => text += "vforkdone:;",
        Why::Executed(path) => {
            let _ = write!(text, "exec:{};", hex::encode(path));
        }
        _ => {}
    }
    text
}

/// The document of all threads.
pub(super) fn threads(tasks: &[Task], dialect: Dialect) -> String {
    let rows = tasks.iter().map(|task| {
        let (id, name, about) = (task.id.text(dialect.several), escaped(&task.name), escaped(&task.about));
        format!("<thread id=\"{id}\" name=\"{name}\">{about}</thread>")
    });
    format!("<?xml version=\"1.0\"?><threads>{}</threads>", rows.collect::<String>())
}

fn escaped(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    plain.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// What /proc/PID/maps says, but for devices and inodes.
pub(super) fn maps(mappings: &[MappingInfo]) -> String {
    mappings.iter().map(mapped).collect()
}

/// The same with what of it the process has made its own, as /proc/PID/smaps has it: gdb leaves out of a core what is a file's.
///
/// Without a name all is anonymous to gdb, also the 64 MB that malloc keeps for each thread, where there is nothing and nothing can be
/// accessed: that is marked as memory that is not to be dumped (`dd`).
pub(super) fn smaps(mappings: &[MappingInfo], anonymous: &dyn Fn(&MappingInfo) -> u64) -> String {
    let mut text = String::new();
    for mapping in mappings {
        let (size, anonymous) = ((mapping.end - mapping.start) / 1024, anonymous(mapping) / 1024);
        text += &mapped(mapping);
        let _ = write!(text, "Size: {size:>14} kB\nAnonymous: {anonymous:>9} kB\n");
        if anonymous == 0 && mapping.rights == Rights::default() {
            text += "VmFlags: dd\n";
        }
    }
    text
}

fn mapped(mapping: &MappingInfo) -> String {
    let MappingInfo { start, end, file_offset, name, .. } = mapping;
    format!("{start:08x}-{end:08x} {}p {file_offset:08x} 00:00 0 {name}\n", rights(mapping, '-'))
}

fn rights(mapping: &MappingInfo, without: char) -> String {
    let right = |has: bool, letter: char| if has { letter } else { without };
    let rights = mapping.rights;
    [right(rights.read, 'r'), right(rights.write, 'w'), right(rights.execute, 'x')].iter().collect()
}

/// What is mapped at an address, or how far nothing is (lldb).
pub(super) fn region(mappings: &[MappingInfo], address: u64) -> String {
    match mappings.iter().find(|it| (it.start..it.end).contains(&address)) {
        Some(it) => {
            let (rights, name) = (rights(it, ' ').replace(' ', ""), hex::encode(it.name.as_bytes()));
            format!("start:{:x};size:{:x};permissions:{rights};name:{name};", it.start, it.end - it.start)
        }
        None => {
            let start = mappings.iter().map(|it| it.end).filter(|end| *end <= address).max().unwrap_or(0);
            let end = mappings.iter().map(|it| it.start).filter(|start| *start > address).min();
            format!("start:{start:x};size:{:x};", end.unwrap_or(u64::MAX) - start)
        }
    }
}

/// The auxiliary vector as it lies on a stack.
pub(super) fn auxiliary(pairs: &[(u64, u64)]) -> Vec<u8> {
    let words = pairs.iter().chain(&[(0, 0)]).flat_map(|(kind, value)| [*kind, *value]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// `siginfo_t`, as far as it says what is known: number, code and address.
pub(super) fn signal_info(death: Death) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    bytes[0..4].copy_from_slice(&death.signal.to_le_bytes());
    bytes[8..12].copy_from_slice(&death.code.to_le_bytes());
    // Of a sender it has a process there, which is not known.
    if death.code > 0 {
        bytes[16..24].copy_from_slice(&death.address.to_le_bytes());
    }
    bytes
}

/// The part of a longer document that a debugger asks for: `m` if there is more, `l` if it is the last.
pub(super) fn part(whole: &[u8], offset: u64, len: u64) -> Vec<u8> {
    let rest = usize::try_from(offset).ok().and_then(|offset| whole.get(offset..)).unwrap_or_default();
    let len = rest.len().min(usize::try_from(len).unwrap_or(usize::MAX));
    let letter = if len < rest.len() { b'm' } else { b'l' };
    [&[letter], &rest[..len]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gdb::ids::Id;
    use x86::state::Regs;

    #[test]
    fn stops_say_who_and_why() {
        let (several, one) = (Dialect { several: true, names_breakpoints: true }, Dialect::default());
        let of = |why, dialect| stop(&Stopped { id: Id { pid: 16, tid: 17 }, why }, None, dialect);
        for (why, dialect, expected) in [
            (Why::There, one, "T05 thread:11;"),
            (Why::Along, one, "T00 thread:11;"),
            (Why::Signal(libc::SIGUSR1), several, "T1e thread:p10.11;"),
            (Why::Point(Kind::Software, 1), one, "T05 thread:11;"),
            (Why::Point(Kind::Software, 1), several, "T05 thread:p10.11;swbreak:;"),
            (Why::Point(Kind::Data(Access::Any), 255), one, "T05 thread:11;awatch:ff;"),
            (Why::Forked { pid: 18, waits: false }, several, "T05 thread:p10.11;fork:p12.12;"),
            (Why::Forked { pid: 18, waits: true }, several, "T05 thread:p10.11;vfork:p12.12;"),
            (Why::Released, several, "T05 thread:p10.11;vforkdone:;"),
            (Why::Executed(b"/a".to_vec()), several, "T05 thread:p10.11;exec:2f61;"),
            (Why::End, several, "T05 thread:p10.11;replaylog:end;"),
        ] {
            // Of a thread that does not live here no register is sent: gdb reads no other digits than hexadecimal ones here.
            assert_eq!(of(why, dialect), expected.replacen(' ', "", 1));
        }
        let shown = Shown { regs: Regs::default(), selectors: registers::SELECTORS, fpu: None };
        let stopped = Stopped { id: Id { pid: 16, tid: 17 }, why: Why::There };
        let zero = "0".repeat(16);
        let expected = format!("T0506:{zero};07:{zero};10:{zero};thread:11;");
        assert_eq!(stop(&stopped, Some(&shown), one), expected);
    }

    #[test]
    fn documents_come_in_parts() {
        assert_eq!(
            (part(b"abc", 0, 2), part(b"abc", 2, 2), part(b"abc", 9, 9)),
            (b"mab".to_vec(), b"lc".to_vec(), b"l".to_vec())
        );
    }

    #[test]
    fn a_core_is_without_what_nobody_can_access() {
        let rights = Rights { read: true, write: true, execute: false };
        let mapping = |start, rights| {
            let (name, file_offset) = (String::new(), 0);
            MappingInfo { start, end: start + 0x2000, rights, name, file_offset }
        };
        let text = smaps(&[mapping(0x1000, rights), mapping(0x3000, Rights::default())], &|_| 0);
        let expected = "00001000-00003000 rw-p 00000000 00:00 0 \nSize:              8 kB\nAnonymous:         0 kB\n\
                        00003000-00005000 ---p 00000000 00:00 0 \nSize:              8 kB\nAnonymous:         0 kB\nVmFlags: dd\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn names_of_threads_are_no_markup() {
        let task = Task { id: Id { pid: 1, tid: 2 }, name: "a<\"\u{1}".to_owned(), about: String::new() };
        assert!(threads(&[task], Dialect::default()).contains("id=\"2\" name=\"a&lt;&quot;?\""));
    }
}
