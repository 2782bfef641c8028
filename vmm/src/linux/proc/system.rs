//! What /proc says of the system: of the processor, the name and the time what the guest has, else what the host says.

use super::super::descriptors::LIMIT;
use super::super::time::{NANOSECONDS, show};
use super::super::{Guest, Kernel, Served, errno, identity, ipc};
use super::status::ticks;
use super::{Of, outside, read_host};
use crate::cpu_model::{Model, TSC_HZ};
use crate::program::Capabilities;
use std::os::unix::fs::MetadataExt;

type Make = fn(&mut Kernel, &mut Guest<'_>) -> Served<Vec<u8>>;

/// Files that are the guest's own, by their paths below /proc, in order.
const OWN: &[(&str, Make)] = &[
    ("cmdline", |_, _| Ok(b"gretel\n".to_vec())),
    ("cpuinfo", cpuinfo),
    ("stat", stat),
    ("sys/fs/nr_open", |_, _| Ok(format!("{LIMIT}\n").into_bytes())),
    ("sys/kernel/cap_last_cap", |_, _| Ok(format!("{}\n", Capabilities::LAST).into_bytes())),
    ("sys/kernel/domainname", |_, _| Ok(b"(none)\n".to_vec())),
    ("sys/kernel/hostname", |_, _| name(1)),
    ("sys/kernel/osrelease", |_, _| name(2)),
    ("sys/kernel/ostype", |_, _| name(0)),
    ("sys/kernel/pid_max", |_, _| Ok(b"4194304\n".to_vec())),
    ("sys/kernel/randomize_va_space", |_, _| Ok(b"0\n".to_vec())),
    ("sys/kernel/version", |_, _| name(3)),
    ("sysvipc/msg", ipc::msg::listing),
    ("sysvipc/sem", ipc::sem::listing),
    ("sysvipc/shm", ipc::shm::listing),
    ("uptime", uptime),
    ("version", version),
];

/// What is shown of the host's: files, and folders with all that they hold.
const HOSTS: [&str; 18] = [
    "cgroups",
    "devices",
    "diskstats",
    "filesystems",
    "loadavg",
    "meminfo",
    "misc",
    "net",
    "partitions",
    "pressure",
    "swaps",
    "sys",
    "sys/fs",
    "sys/kernel",
    "sys/net",
    "sys/vm",
    "sysvipc",
    "vmstat",
];

fn own(path: &str) -> Option<Make> {
    OWN.iter().find(|(own, _)| *own == path).map(|(_, make)| *make)
}

/// Whether the host's file of this path may be shown.
fn is_hosts(path: &str) -> bool {
    let mut parts = path.split('/');
    let top = parts.next().unwrap_or_default();
    // Of `sys`, only some folders.
    let folder = match (top, parts.next()) {
        // All that there may be in it is the guest's own.
        ("sysvipc", Some(_)) => return false,
        ("sys", Some(below)) => format!("sys/{below}"),
        (top, _) => top.to_owned(),
    };
    HOSTS.contains(&folder.as_str())
}

/// Type and rights of the host's file; nobody may write it here.
fn hosts_mode(path: &str) -> Result<u32, i64> {
    let found = std::fs::symlink_metadata(format!("/proc/{path}"));
    // A link leads where the host's processes are.
    let found = match found {
        Ok(found) if found.is_symlink() => std::fs::metadata(format!("/proc/{path}")),
        found => found,
    };
    found.map(|found| found.mode() & !0o222).map_err(|error| outside::number(&error))
}

pub(super) fn mode(guest: &mut Guest<'_>, path: &str) -> Served<u32> {
    if own(path).is_some() {
        return Ok(libc::S_IFREG | 0o444);
    }
    if !is_hosts(path) {
        return errno(libc::ENOENT);
    }
    let mode = guest.input_number(|| hosts_mode(path).map_or_else(|error| error, i64::from))?;
    Ok(u32::try_from(mode).unwrap_or(libc::S_IFREG))
}

pub(super) fn exists(guest: &mut Guest<'_>, path: &str) -> Served<bool> {
    if own(path).is_some() {
        return Ok(true);
    }
    if !is_hosts(path) {
        return Ok(false);
    }
    Ok(guest.input_number(|| i64::from(hosts_mode(path).is_ok()))? == 1)
}

/// What a folder lists, that of the host in the order of names.
pub(super) fn list(guest: &mut Guest<'_>, path: &str) -> Served<Vec<(String, u8)>> {
    let told = guest.input_bytes(&mut || {
        let entries = std::fs::read_dir(format!("/proc/{path}")).map_err(|error| outside::number(&error))?;
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| is_shown(path, name))
            .map(|name| {
                let folder =
                    hosts_mode(&joined(path, &name)).is_ok_and(|mode| mode & libc::S_IFMT == libc::S_IFDIR);
                format!("{}{name}", if folder { 'd' } else { '-' })
            })
            .collect();
        names.sort_by(|a, b| a[1..].cmp(&b[1..]));
        Ok(names.join("\n").into_bytes())
    })?;
    let told = String::from_utf8_lossy(&told).into_owned();
    let entries = told.lines().filter_map(|line| line.split_at_checked(1));
    let kind = |folder: &str| if folder == "d" { libc::DT_DIR } else { libc::DT_REG };
    Ok(entries.map(|(is, name)| (name.to_owned(), kind(is))).collect())
}

fn joined(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn is_shown(path: &str, name: &str) -> bool {
    let path = joined(path, name);
    own(&path).is_some() || is_hosts(&path)
}

pub(super) fn text(kernel: &mut Kernel, guest: &mut Guest<'_>, path: &str) -> Served<Vec<u8>> {
    match own(path) {
        Some(make) => make(kernel, guest),
        None if is_hosts(path) => read_host(guest, &format!("/proc/{path}")),
        None => errno(libc::ENOENT),
    }
}

/// What is mounted is the host's.
pub(super) fn mounts(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/mounts")
}

pub(super) fn mountinfo(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/mountinfo")
}

/// The control groups are gretel's.
pub(super) fn cgroup(_: &mut Kernel, guest: &mut Guest<'_>, _: Of) -> Served<Vec<u8>> {
    read_host(guest, "/proc/self/cgroup")
}

/// One field of uname.
fn name(field: usize) -> Served<Vec<u8>> {
    Ok(format!("{}\n", identity::SYSTEM[field]).into_bytes())
}

fn version(_: &mut Kernel, _: &mut Guest<'_>) -> Served<Vec<u8>> {
    let [system, _, release, version, ..] = identity::SYSTEM;
    Ok(format!("{system} version {release} (gretel) {version}\n").into_bytes())
}

/// The time since the clock's beginning, and nothing that would be idle.
fn uptime(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served<Vec<u8>> {
    let now = show(kernel, guest)?.monotonic / (NANOSECONDS / 100);
    Ok(format!("{}.{:02} 0.00\n", now / 100, now % 100).into_bytes())
}

/// The processor's time: what the guest's processes took is user time, the rest idle.
fn stat(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served<Vec<u8>> {
    let now = show(kernel, guest)?;
    let used: u64 = kernel.groups.iter().map(|(_, group)| ticks(group.cpu)).sum();
    let idle = ticks(now.monotonic).saturating_sub(used);
    let ready = kernel.tasks.living().filter(|(_, task)| task.wait().is_none() && !task.stopped).count();
    let begin = now.real.saturating_sub(now.monotonic) / NANOSECONDS;
    Ok(format!(
        "cpu  {used} 0 0 {idle} 0 0 0 0 0 0\ncpu0 {used} 0 0 {idle} 0 0 0 0 0 0\nintr 0\nctxt 0\nbtime {begin}\n\
         processes {}\nprocs_running {ready}\nprocs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
        kernel.tasks.started(),
    )
    .into_bytes())
}

/// Names of features, as the kernel shows them: leaf, register (EBX, ECX, EDX) and bit.
const FEATURES: &[(u32, usize, u32, &str)] = &[
    (1, 2, 0, "fpu"),
    (1, 2, 1, "vme"),
    (1, 2, 2, "de"),
    (1, 2, 3, "pse"),
    (1, 2, 4, "tsc"),
    (1, 2, 5, "msr"),
    (1, 2, 6, "pae"),
    (1, 2, 7, "mce"),
    (1, 2, 8, "cx8"),
    (1, 2, 9, "apic"),
    (1, 2, 11, "sep"),
    (1, 2, 12, "mtrr"),
    (1, 2, 13, "pge"),
    (1, 2, 14, "mca"),
    (1, 2, 15, "cmov"),
    (1, 2, 16, "pat"),
    (1, 2, 17, "pse36"),
    (1, 2, 19, "clflush"),
    (1, 2, 23, "mmx"),
    (1, 2, 24, "fxsr"),
    (1, 2, 25, "sse"),
    (1, 2, 26, "sse2"),
    (0x8000_0001, 2, 11, "syscall"),
    (0x8000_0001, 2, 20, "nx"),
    (0x8000_0001, 2, 29, "lm"),
    (0x8000_0007, 2, 8, "constant_tsc nonstop_tsc"),
    (1, 1, 0, "pni"),
    (1, 1, 9, "ssse3"),
    (1, 1, 12, "fma"),
    (1, 1, 13, "cx16"),
    (1, 1, 19, "sse4_1"),
    (1, 1, 20, "sse4_2"),
    (1, 1, 22, "movbe"),
    (1, 1, 23, "popcnt"),
    (1, 1, 26, "xsave"),
    (1, 1, 28, "avx"),
    (1, 1, 29, "f16c"),
    (0x8000_0001, 1, 0, "lahf_lm"),
    (0x8000_0001, 1, 5, "abm"),
    (7, 0, 3, "bmi1"),
    (7, 0, 5, "avx2"),
    (7, 0, 8, "bmi2"),
    (7, 0, 16, "avx512f"),
    (7, 0, 17, "avx512dq"),
    (7, 0, 28, "avx512cd"),
    (7, 0, 30, "avx512bw"),
    (7, 0, 31, "avx512vl"),
];

fn features(model: Model) -> String {
    let has = |(leaf, register, bit, _): &&(u32, usize, u32, &str)| {
        let found = model.cpuid(*leaf, 0);
        [found.ebx, found.ecx, found.edx][*register] >> bit & 1 == 1
    };
    FEATURES.iter().filter(has).map(|(.., name)| *name).collect::<Vec<_>>().join(" ")
}

/// The model, as CPUID tells it.
fn cpuinfo(_: &mut Kernel, guest: &mut Guest<'_>) -> Served<Vec<u8>> {
    Ok(processor(guest.model).into_bytes())
}

fn processor(model: Model) -> String {
    let signature = model.cpuid(1, 0).eax;
    let number = signature >> 4 & 0xf | signature >> 12 & 0xf0;
    let (family, stepping) = (signature >> 8 & 0xf, signature & 0xf);
    let megahertz = TSC_HZ / 1_000_000;
    format!(
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: {family}\nmodel\t\t: {number}\n\
         model name\t: gretel model CPU {}\nstepping\t: {stepping}\ncpu MHz\t\t: {megahertz}.000\n\
         cache size\t: 8192 KB\nphysical id\t: 0\nsiblings\t: 1\ncore id\t\t: 0\ncpu cores\t: 1\napicid\t\t: 0\n\
         initial apicid\t: 0\nfpu\t\t: yes\nfpu_exception\t: yes\ncpuid level\t: {}\nwp\t\t: yes\nflags\t\t: {}\n\
         bugs\t\t:\nbogomips\t: {}.00\nclflush size\t: 64\ncache_alignment\t: 64\n\
         address sizes\t: 48 bits physical, 48 bits virtual\npower management:\n\n",
        model.name(),
        model.cpuid(0, 0).eax,
        features(model),
        2 * megahertz,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_host_only_what_says_nothing_of_processes_is_shown() {
        for path in ["meminfo", "sys", "sys/vm/overcommit_memory", "sys/kernel/random/uuid", "net/dev"] {
            assert!(is_hosts(path), "{path}");
        }
        for path in ["1", "self", "kcore", "kmsg", "sysrq-trigger", "sys/debug", "sys/user/x", "fs", ""] {
            assert!(!is_hosts(path), "{path}");
        }
    }

    #[test]
    fn the_guests_own_files_are_in_order() {
        assert!(OWN.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(HOSTS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_processor_is_the_model() {
        let flags = |model| features(model).split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(
            flags(Model::V2).iter().all(|flag| flag != "avx") && flags(Model::V2).contains(&"sse4_2".into())
        );
        assert!(flags(Model::V3).contains(&"avx2".into()));
        assert!(flags(Model::V4).contains(&"avx512vl".into()));
        let text = processor(Model::V3);
        assert!(
            text.contains("model\t\t: 60\n") && text.contains("model name\t: gretel model CPU x86-64-v3\n")
        );
    }
}
