//! `stat` and `status` of a process or task.

use super::super::signals::{Handlers, bit};
use super::super::time::{NANOSECONDS, show};
use super::super::{Guest, Kernel, Served};
use super::memory::{Sizes, sizes};
use super::tasks::escaped;
use super::{Of, outside};
use std::fmt::Write;

/// Clock ticks a second (USER_HZ).
pub(super) const TICKS: u64 = 100;

/// Nanoseconds in ticks.
pub(super) fn ticks(time: u64) -> u64 {
    time / (NANOSECONDS / TICKS)
}

/// Sets of signals: of the task and its process pending, blocked, ignored, caught.
struct Signals {
    own: u64,
    shared: u64,
    blocked: u64,
    ignored: u64,
    caught: u64,
}

fn signals(kernel: &Kernel, of: Of) -> Signals {
    let task = kernel.shown(of);
    let set = |handlers: &Handlers, ignored: bool| {
        let wanted = handlers.iter().filter(|(_, action)| match ignored {
            true => action.ignores(),
            false => action.handler > 1,
        });
        wanted.fold(0, |set, (signal, _)| set | bit(*signal))
    };
    let handlers = task.map(|task| kernel.handlers.get(task.handlers));
    Signals {
        own: task.map_or(0, |task| task.signals.pending.set()),
        shared: kernel.groups.get(of.group).map_or(0, |group| group.pending.set()),
        blocked: task.map_or(0, |task| task.signals.blocked),
        ignored: handlers.map_or(0, |handlers| set(handlers, true)),
        caught: handlers.map_or(0, |handlers| set(handlers, false)),
    }
}

/// The terminal of a session: gretel's own for the one that the program was started in.
fn terminal(kernel: &Kernel, guest: &mut Guest<'_>, session: i32) -> Served<[i64; 2]> {
    let outside = kernel.groups.iter().all(|(id, _)| id != session);
    if !outside && session != kernel.first {
        return Ok([0, -1]);
    }
    let told = guest.input_bytes(&mut || {
        let text = std::fs::read_to_string("/proc/self/stat").map_err(|error| outside::number(&error))?;
        let behind_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let field = |n: usize| behind_name.split_ascii_whitespace().nth(n).and_then(|it| it.parse().ok());
        let terminal: i64 = field(4).unwrap_or(0);
        Ok(terminal.to_le_bytes().to_vec())
    })?;
    let terminal = told.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
    let foreground = kernel.outer_foreground().unwrap_or_else(|| kernel.pid());
    Ok([terminal, if terminal == 0 { -1 } else { i64::from(foreground) }])
}

pub(super) fn stat(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    show(kernel, guest)?;
    let Sizes { mapped, resident, .. } = sizes(kernel, guest, of)?;
    let group = kernel.group_of(of)?;
    let (session, process_group, exit_signal) = (group.session, group.process_group, group.exit_signal);
    let [terminal, foreground] = terminal(kernel, guest, session)?;
    let group = kernel.group_of(of)?;
    let sees = kernel.may_see(of);
    let task = kernel.shown(of);
    let time = if of.thread.is_some() { task.map_or(0, |task| task.cpu) } else { group.cpu };
    let scheduling = task.map(|task| task.scheduling).unwrap_or_default();
    let (priority, real_time) = scheduling.shown();
    let private = |value: u64| if sees { value } else { 0 };
    let heap = task.filter(|_| sees).map_or(0, |task| guest.spaces.get(task.space).heap().start);
    let Signals { own, blocked, ignored, caught, .. } = signals(kernel, of);
    let threads = kernel.tasks.ids_of_group(of.group).len();
    let start = &group.start;
    let mut text = format!(
        "{} ({}) {} {} {process_group} {session} {terminal} {foreground} 4194304 0 0 0 0 ",
        of.task(),
        escaped(&kernel.name_of(of)),
        kernel.state_of(of).0,
        kernel.parent_of(of.group),
    );
    let resident = resident.iter().sum::<u64>() / crate::ram::PAGE;
    let low = |set: u64| set & 0x7fff_ffff;
    let fields: [u64; 10] = [
        ticks(time),
        0,
        ticks(group.children_cpu),
        0,
        0,
        0,
        threads as u64,
        0,
        ticks(task.map_or(group.started, |task| task.started)),
        mapped,
    ];
    for (n, field) in fields.into_iter().enumerate() {
        // Writing to a String cannot fail.
        let _ = match n {
            4 => write!(text, "{priority} "),
            5 => write!(text, "{} ", scheduling.nice),
            _ => write!(text, "{field} "),
        };
    }
    let limit = group.limits[5][0];
    let _ = write!(text, "{resident} {limit} 0 0 {} 0 0 ", private(start.stack));
    let _ = write!(text, "{} {} {} {} ", low(own), low(blocked), low(ignored), low(caught));
    let _ = write!(text, "0 0 0 {exit_signal} 0 {real_time} {} 0 0 0 0 0 {heap} ", scheduling.policy);
    let (arguments, environment) = (&start.arguments, &start.environment);
    let ends = [arguments.start, arguments.end, environment.start, environment.end].map(private);
    let code = private(u64::from(group.ended.unwrap_or(0).unsigned_abs()));
    let _ = writeln!(text, "{} {} {} {} {code}", ends[0], ends[1], ends[2], ends[3]);
    Ok(text.into_bytes())
}

pub(super) fn status(kernel: &mut Kernel, guest: &mut Guest<'_>, of: Of) -> Served<Vec<u8>> {
    let sizes = sizes(kernel, guest, of)?;
    let mut text = identity(kernel, of)?;
    if kernel.shown(of).is_some() {
        memory(&mut text, &sizes);
    }
    rest(&mut text, kernel, of)?;
    Ok(text.into_bytes())
}

fn identity(kernel: &Kernel, of: Of) -> Served<String> {
    let group = kernel.group_of(of)?;
    let task = kernel.shown(of);
    let (letter, word) = kernel.state_of(of);
    let ids = |ids: [u32; 4]| ids.map(|id| id.to_string()).join("\t");
    let groups: String = group.credentials.groups.iter().map(|id| format!("{id} ")).collect();
    let umask = task.map(|task| format!("Umask:\t{:04o}\n", kernel.places.get(task.place).umask));
    let files = task.map_or(0, |task| {
        let last = kernel.tables.get(task.files).iter().last().map_or(0, |(number, _)| number);
        (last + 1).next_multiple_of(64)
    });
    Ok(format!(
        "Name:\t{}\n{}State:\t{letter} ({word})\nTgid:\t{pid}\nNgid:\t0\nPid:\t{id}\nPPid:\t{}\nTracerPid:\t0\n\
         Uid:\t{}\nGid:\t{}\nFDSize:\t{files}\nGroups:\t{}\nNStgid:\t{pid}\nNSpid:\t{id}\nNSpgid:\t{}\nNSsid:\t{}\n\
         Kthread:\t0\n",
        escaped(&kernel.name_of(of)),
        umask.unwrap_or_default(),
        kernel.parent_of(of.group),
        ids(group.credentials.uid),
        ids(group.credentials.gid),
        if groups.is_empty() { " " } else { &groups },
        group.process_group,
        group.session,
        pid = of.group,
        id = of.task(),
    ))
}

fn memory(text: &mut String, sizes: &Sizes) {
    let [own, files, shared] = sizes.resident;
    let resident = own + files + shared;
    for (name, bytes) in [
        // The peaks are not kept: they are what there is now.
        ("VmPeak", sizes.mapped),
        ("VmSize", sizes.mapped),
        ("VmLck", sizes.locked),
        ("VmPin", 0),
        ("VmHWM", resident),
        ("VmRSS", resident),
        ("RssAnon", own),
        ("RssFile", files),
        ("RssShmem", shared),
        ("VmData", sizes.data),
        ("VmStk", sizes.stack),
        ("VmExe", sizes.code),
        ("VmLib", sizes.library),
        ("VmPTE", 0),
        ("VmSwap", 0),
        ("HugetlbPages", 0),
    ] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{name}:\t{:>8} kB", bytes / 1024);
    }
    text.push_str("CoreDumping:\t0\nTHP_enabled:\t0\n");
}

fn rest(text: &mut String, kernel: &Kernel, of: Of) -> Served<()> {
    let group = kernel.group_of(of)?;
    let Signals { own, shared, blocked, ignored, caught } = signals(kernel, of);
    let threads = kernel.tasks.ids_of_group(of.group).len();
    let sieve = kernel.tasks.get(of.task()).map(|task| task.sieve.clone()).unwrap_or_default();
    let queued = group.pending.count();
    let limit = group.limits[super::super::groups::limit::SIGPENDING][0];
    // Writing to a String cannot fail.
    let _ = write!(text, "Threads:\t{}\nSigQ:\t{queued}/{limit}\n", threads.max(1));
    let sets = &group.credentials.capabilities;
    for (name, set) in [
        ("SigPnd", own),
        ("ShdPnd", shared),
        ("SigBlk", blocked),
        ("SigIgn", ignored),
        ("SigCgt", caught),
        ("CapInh", sets.inheritable),
        ("CapPrm", sets.permitted),
        ("CapEff", sets.effective),
        ("CapBnd", sets.bounding),
        ("CapAmb", sets.ambient),
    ] {
        let _ = writeln!(text, "{name}:\t{set:016x}");
    }
    let _ = write!(
        text,
        "NoNewPrivs:\t{}\nSeccomp:\t{}\nSeccomp_filters:\t{}\nSpeculation_Store_Bypass:\tunknown\n\
         Cpus_allowed:\t1\nCpus_allowed_list:\t0\nMems_allowed:\t00000001\nMems_allowed_list:\t0\n\
         voluntary_ctxt_switches:\t0\nnonvoluntary_ctxt_switches:\t0\n",
        u8::from(group.credentials.no_new_privileges),
        sieve.mode(),
        sieve.filters(),
    );
    Ok(())
}
