//! The host: its processor and KVM modules, as far as branch records and counters depend on them, its memory, how many
//! files may be open, and which of them is this session's terminal.

use lbr::capture::host::Host;
use lbr::perf::retired::{Cpu, Vendor};
use std::arch::x86_64::{__cpuid, __cpuid_count, _fxsave64};
use std::fs;
use std::os::fd::RawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use x86::state::MxcsrMask;

/// Looks at CPUID and at the parameters of the modules.
#[must_use]
pub fn host() -> Host {
    let (vendor, features, extended) = (__cpuid(0), __cpuid(1), __cpuid_count(7, 0));
    let extended = (vendor.eax >= 7).then_some(extended);
    let edx = |bit: u32| extended.is_some_and(|leaf| leaf.edx >> bit & 1 != 0);
    let ebx = |bit: u32| extended.is_some_and(|leaf| leaf.ebx >> bit & 1 != 0);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
    let vendor = match name.as_slice() {
        b"GenuineIntel" => Vendor::Intel,
        b"AuthenticAMD" => Vendor::Amd,
        _ => Vendor::Other,
    };
    Host {
        cpu: Cpu::from_signature(vendor, features.eax),
        hybrid: edx(15),
        architectural: edx(19),
        transactions: ebx(4) || ebx(11),
        hypervisor: features.ecx >> 31 & 1 != 0,
        mediated: ["kvm_intel", "kvm_amd"].iter().find_map(|module| parameter(module, "enable_mediated_pmu")),
    }
}

/// CPUID leaf 1 EAX: family, model and stepping.
pub(crate) fn signature() -> u32 {
    __cpuid(1).eax
}

/// What this processor's FXSAVE stores as MXCSR_MASK.
pub(crate) fn mxcsr_mask() -> MxcsrMask {
    /// The image (Intel SDM vol. 1, 10.5.1), as aligned as FXSAVE asks for.
    #[repr(align(16))]
    struct Image([u8; 512]);
    const MASK: usize = 28;
    let mut image = Image([0; 512]);
    // SAFETY: the image is as large and as aligned as FXSAVE needs it, which every 64-bit processor has.
    unsafe { _fxsave64(image.0.as_mut_ptr()) };
    let [a, b, c, d] = [0, 1, 2, 3].map(|n| image.0[MASK + n]);
    match u32::from_le_bytes([a, b, c, d]) {
        // Zero stands for the bits of the first processors that had MXCSR.
        0 => MxcsrMask(0xffbf),
        mask => MxcsrMask(mask),
    }
}

/// A parameter of a kernel module that is yes or no.
fn parameter(module: &str, name: &str) -> Option<bool> {
    let text = fs::read_to_string(format!("/sys/module/{module}/parameters/{name}")).ok()?;
    match text.trim() {
        "Y" | "1" => Some(true),
        "N" | "0" => Some(false),
        _ => None,
    }
}

/// How much memory this process may use, in bytes: the host's, or what its control group or its limit of address space leave.
#[must_use]
pub fn memory() -> u64 {
    let limits = groups().filter_map(|group| number_in(&group.join("memory.max")));
    let total = of_memory("MemTotal:").unwrap_or(LEAST);
    limits.chain([total, address_space() / MAPPED]).min().unwrap_or(total).max(LEAST)
}

/// Whether less than half of that is free: what replays keep to be faster is then too much.
pub(crate) fn is_short_of_memory() -> bool {
    // What was read of files and is not in use can be given back.
    let free = |group: PathBuf| {
        let (most, used) = (number_in(&group.join("memory.max"))?, number_in(&group.join("memory.current"))?);
        let cached = line_of(&group.join("memory.stat"), "inactive_file")?;
        Some(most.saturating_sub(used).saturating_add(cached))
    };
    let free = groups().filter_map(free).chain(of_memory("MemAvailable:")).min();
    free.is_some_and(|free| free < memory() / 2)
}

/// The control group of this process, and each above it, whose limits hold as well.
fn groups() -> impl Iterator<Item = PathBuf> {
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    let groups: Vec<PathBuf> = Path::new(&group)
        .ancestors()
        .map(|group| PathBuf::from(format!("/sys/fs/cgroup{}", group.display())))
        .collect();
    groups.into_iter()
}

/// A line of /proc/meminfo, in bytes.
fn of_memory(name: &str) -> Option<u64> {
    line_of(Path::new("/proc/meminfo"), name)?.checked_mul(1 << 10)
}

/// The number on the line with this name.
fn line_of(file: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let (_, rest) = lines.find(|(word, _)| *word == name)?;
    rest.split_whitespace().next()?.parse().ok()
}

fn number_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// What is assumed where nothing is known, and the least that is of use.
const LEAST: u64 = 64 << 20;
/// Guest memory is mapped twice, and a part of the address space is for the rest.
const MAPPED: u64 = 4;

/// RLIMIT_AS.
fn address_space() -> u64 {
    limit(libc::RLIMIT_AS).rlim_cur
}

/// All limits of this process, soft and hard by their numbers, as whoever started it has set them: until [`raise_limit_of_files`].
pub(crate) fn limits() -> [[u64; 2]; 16] {
    let numbers = [
        libc::RLIMIT_CPU,
        libc::RLIMIT_FSIZE,
        libc::RLIMIT_DATA,
        libc::RLIMIT_STACK,
        libc::RLIMIT_CORE,
        libc::RLIMIT_RSS,
        libc::RLIMIT_NPROC,
        libc::RLIMIT_NOFILE,
        libc::RLIMIT_MEMLOCK,
        libc::RLIMIT_AS,
        libc::RLIMIT_LOCKS,
        libc::RLIMIT_SIGPENDING,
        libc::RLIMIT_MSGQUEUE,
        libc::RLIMIT_NICE,
        libc::RLIMIT_RTPRIO,
        libc::RLIMIT_RTTIME,
    ];
    numbers.map(|number| {
        let found = limit(number);
        [found.rlim_cur, found.rlim_max]
    })
}

fn limit(of: libc::__rlimit_resource_t) -> libc::rlimit {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the kernel writes one `struct rlimit`.
    unsafe { libc::getrlimit(of, &raw mut limit) };
    limit
}

/// So many open files are gretel's own: the recording's, and those by which it looks at paths before the program gets to them.
const OWN_FILES: u64 = 64;

/// Has this process open as many files as it may at most (the hard limit of `ulimit -n`): all that the program's processes have open
/// are open here. Where that cannot be done, it stays as it is.
pub(crate) fn raise_limit_of_files() {
    let most = limit(libc::RLIMIT_NOFILE).rlim_max;
    let raised = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: the kernel reads one `struct rlimit`.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) };
}

/// Has this process keep the memory that it frees, up to some tens of MB. A recorder copies whole libraries now and then, and each page
/// that the host gives it anew for that costs a fault and is cleared: a quarter of the time that a shell script took.
pub fn keep_freed_memory() {
    /// As much as glibc takes for the first of the two on its own account, at most (mallopt(3)).
    #[cfg(target_env = "gnu")]
    const KEPT: libc::c_int = 32 << 20;
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: it takes two numbers, and refuses those that it does not know.
        unsafe { libc::mallopt(parameter, KEPT) };
    }
}

/// Has the first of this process's heap consist of large pages, where the host has them on request: a page of 2 MiB costs a third of
/// what 512 small ones cost, which are asked for one by one. What of it is not used costs nothing, and where it cannot be had the
/// heap is as it was. For the main thread, after [`keep_freed_memory`].
pub fn take_large_pages() {
    const ROOM: usize = 24 << 20;
    const LARGE: usize = 2 << 20;
    // SAFETY: it takes a number; zero asks where the heap ends.
    let end = || unsafe { libc::sbrk(0) }.cast::<u8>();
    let begin = end();
    // SAFETY: nothing is done with what is taken but to give it back: the heap keeps it (`keep_freed_memory`). The compiler, which
    // knows both functions, would leave both calls out if it saw where the memory goes.
    unsafe { libc::free(std::hint::black_box(libc::malloc(ROOM))) };
    let first = begin.wrapping_add(begin.align_offset(LARGE));
    let len = end().addr().saturating_sub(first.addr());
    if (LARGE..=2 * ROOM).contains(&len) {
        // SAFETY: the range is inside of the heap, and the advice changes no content.
        unsafe { libc::madvise(first.cast(), len, libc::MADV_HUGEPAGE) };
    }
}

/// The numbers of descriptors that the program's files may have here: what is behind them is gretel's own, or no recording could go on
/// when a program opens all that it can.
pub(crate) fn room_for_files() -> RawFd {
    static ROOM: OnceLock<RawFd> = OnceLock::new();
    *ROOM.get_or_init(|| {
        let all = limit(libc::RLIMIT_NOFILE).rlim_cur;
        RawFd::try_from(all - OWN_FILES.min(all / 4)).unwrap_or(RawFd::MAX)
    })
}

/// Whether a descriptor of this process is the terminal of its session.
pub(crate) fn is_terminal(descriptor: u32) -> bool {
    /// The device /dev/tty, which is that terminal for whoever opens it.
    const OWN: libc::dev_t = libc::makedev(5, 0);
    let Some((major, minor)) = terminals_device() else { return false };
    let metadata = fs::metadata(format!("/proc/self/fd/{descriptor}"));
    metadata.is_ok_and(|it| {
        it.file_type().is_char_device() && [OWN, libc::makedev(major, minor)].contains(&it.rdev())
    })
}

/// The numbers of the device that the session's terminal is.
pub(crate) fn terminals_device() -> Option<(u32, u32)> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind_name) = text.rsplit_once(')')?;
    // As the kernel's new_encode_dev has it: twelve bits of the major number within the minor's.
    let encoded: i32 = behind_name.split_ascii_whitespace().nth(4)?.parse().ok()?;
    let encoded = encoded.cast_unsigned();
    (encoded != 0).then_some((encoded >> 8 & 0xfff, encoded & 0xff | encoded >> 12 & 0xf_ff00))
}
