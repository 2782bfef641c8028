//! What perf_event_open offers to this process (man page perf_event_open(2); the layout is that of
//! include/uapi/linux/perf_event.h).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// What the kernel's perf events offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Perf {
    /// Counting retired branches with the processor's counters (PERF_COUNT_HW_BRANCH_INSTRUCTIONS), or why not.
    pub hardware: Result<(), String>,
    /// Sampling the processor's branch records, or why not.
    pub branch_stack: Result<(), String>,
    /// Counting with the kernel's clock (PERF_COUNT_SW_TASK_CLOCK), or why not.
    pub software: Result<(), String>,
    /// /proc/sys/kernel/perf_event_paranoid.
    pub paranoid: Option<i32>,
}

const TYPE_HARDWARE: u32 = 0;
const TYPE_SOFTWARE: u32 = 1;
const HW_BRANCHES: u64 = 4;
const HW_CYCLES: u64 = 0;
const SW_TASK_CLOCK: u64 = 1;
/// PERF_SAMPLE_BRANCH_STACK.
const SAMPLE_BRANCH_STACK: u64 = 1 << 11;
/// PERF_SAMPLE_BRANCH_USER and PERF_SAMPLE_BRANCH_ANY.
const BRANCHES_USER_ANY: u64 = 1 | 1 << 3;
/// disabled, exclude_kernel, exclude_hv.
const FLAGS: u64 = 1 | 1 << 5 | 1 << 6;

/// The beginning of `struct perf_event_attr`, with the size of its version 5; what is not named is zero.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    rest: [u64; 4],
}

/// Tries to open one event of each sort; nothing is left open.
#[must_use]
pub fn probe_perf() -> Perf {
    let sampled = Attributes {
        sample_period: 100_000,
        sample_type: SAMPLE_BRANCH_STACK,
        branch_sample_type: BRANCHES_USER_ANY,
        ..Attributes::default()
    };
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok();
    Perf {
        hardware: open(Attributes { kind: TYPE_HARDWARE, config: HW_BRANCHES, ..Attributes::default() }),
        branch_stack: open(Attributes { kind: TYPE_HARDWARE, config: HW_CYCLES, ..sampled }),
        software: open(Attributes { kind: TYPE_SOFTWARE, config: SW_TASK_CLOCK, ..Attributes::default() }),
        paranoid: paranoid.and_then(|text| text.trim().parse().ok()),
    }
}

fn open(mut attributes: Attributes) -> Result<(), String> {
    attributes.size = u32::try_from(size_of::<Attributes>()).expect("a small struct");
    attributes.flags = FLAGS;
    // SAFETY: `attributes` is as long as its size field says and lives through the call; the other arguments are
    // numbers: this thread, any processor, no group, no flags.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, libc::c_ulong::MIN)
    };
    match i32::try_from(fd) {
        Ok(fd) if fd >= 0 => {
            // SAFETY: the descriptor was just opened and nothing else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            Ok(())
        }
        _ => Err(reason(&io::Error::last_os_error())),
    }
}

fn reason(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP) => "no PMU is visible here".to_owned(),
        Some(libc::EACCES | libc::EPERM) => {
            "not permitted (kernel.perf_event_paranoid, or seccomp)".to_owned()
        }
        Some(libc::ENOSYS) => "this kernel has no perf events".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_have_the_kernels_layout() {
        assert_eq!(size_of::<Attributes>(), 112);
        assert_eq!(std::mem::offset_of!(Attributes, flags), 40);
        assert_eq!(std::mem::offset_of!(Attributes, branch_sample_type), 72);
    }
}
