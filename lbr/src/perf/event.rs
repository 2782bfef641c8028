//! An event: what is counted or sampled, whose, and why it cannot be.

use super::sys;
use perf_event_open_sys::bindings::{self, perf_event_attr};
use std::fs::File;
use std::io;

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nanoseconds of a thread on a processor, by the kernel's clock.
    TaskClock,
    /// Nanoseconds that pass while a thread is on a processor, by the kernel's clock.
    CpuClock,
    /// Page faults of a thread, as the kernel counts them.
    PageFaults,
    /// Nothing: for records that come beside samples.
    Nothing,
    /// What the processor counts, by its own code: event in bits 7:0 (AMD: also 35:32), unit mask in 15:8, and so on as in
    /// the register that selects it (see [`super::retired`]).
    Raw(u64),
}

/// Whose doing is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// A process's own, outside the kernel.
    User,
    /// A guest's user mode while the thread runs its virtual CPU: the processor switches the counter at each entry and
    /// exit. Software events do not know of guests.
    GuestUser,
}

/// A sample of every so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// How many make a sample.
    pub period: u64,
    /// The branch stack that each has, as `branch_sample_type` asks for it; zero: none.
    pub branches: u64,
}

/// The fields of a sample: where, which thread, when; branches, if they are asked for.
const SAMPLE: u64 =
    (bindings::PERF_SAMPLE_IP | bindings::PERF_SAMPLE_TID | bindings::PERF_SAMPLE_TIME) as u64;

/// An event to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it counts.
    pub what: What,
    /// Whose.
    pub scope: Scope,
    /// Samples, if there are to be any.
    pub sampling: Option<Sampling>,
}

/// Why an event cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There is no PMU, or it does not have this event.
    #[error("no PMU is visible here")]
    NoPmu,
    /// The event has no branch stacks.
    #[error("the kernel has no branch stacks for this event (no PMU that records branches)")]
    NoBranchStack,
    /// Guest and host cannot be told apart.
    #[error(
        "the kernel does not count guests apart here (kvm's enable_mediated_pmu takes the PMU for itself)"
    )]
    NoGuestScope,
    /// This process may not.
    #[error(
        "not permitted: kernel.perf_event_paranoid is {}, and this process lacks CAP_PERFMON, or seccomp forbids it",
        paranoid.map_or("unknown".to_owned(), |level| level.to_string())
    )]
    NotPermitted {
        /// kernel.perf_event_paranoid.
        paranoid: Option<i32>,
    },
    /// Something else has the hardware to itself.
    #[error(
        "another user has the processor's counters to itself (the NMI watchdog, BTS, Intel PT, a virtual machine)"
    )]
    Busy,
    /// The kernel was built without perf events.
    #[error("this kernel has no perf events")]
    NoPerf,
    /// More memory for rings than this user may lock.
    #[error("the ring does not fit kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK")]
    NoRing,
    /// Anything else.
    #[error("perf_event_open failed: {0}")]
    Other(String),
}

impl Event {
    /// An event that is only counted.
    #[must_use]
    pub fn counter(what: What, scope: Scope) -> Event {
        Event { what, scope, sampling: None }
    }

    /// Opens it for a thread (0: the calling one), stopped.
    pub(super) fn open(
        &self,
        thread: i32,
        leader: Option<&File>,
        read_format: u64,
        backward: bool,
    ) -> Result<File, OpenError> {
        let mut attributes = self.attributes(leader.is_none(), read_format, backward);
        sys::open(&mut attributes, thread, leader).map_err(|error| self.explain(&error))
    }

    /// What the kernel is asked for.
    fn attributes(&self, leads: bool, read_format: u64, backward: bool) -> perf_event_attr {
        let software = |id: u32| (bindings::PERF_TYPE_SOFTWARE, u64::from(id));
        let (kind, config) = match self.what {
            What::TaskClock => software(bindings::PERF_COUNT_SW_TASK_CLOCK),
            What::CpuClock => software(bindings::PERF_COUNT_SW_CPU_CLOCK),
            What::PageFaults => software(bindings::PERF_COUNT_SW_PAGE_FAULTS),
            What::Nothing => software(bindings::PERF_COUNT_SW_DUMMY),
            What::Raw(config) => (bindings::PERF_TYPE_RAW, config),
        };
        let mut attributes = perf_event_attr {
            type_: kind,
            size: u32::try_from(size_of::<perf_event_attr>()).expect("a small struct"),
            config,
            read_format,
            ..perf_event_attr::default()
        };
        // The leader starts and stops its group.
        attributes.set_disabled(leads.into());
        attributes.set_exclude_kernel(1);
        attributes.set_exclude_hv(1);
        attributes.set_exclude_host((self.scope == Scope::GuestUser).into());
        // Not to be shared in time: a count with holes is none.
        attributes.set_pinned((leads && matches!(self.what, What::Raw(_))).into());
        if let Some(Sampling { period, branches }) = self.sampling {
            attributes.__bindgen_anon_1.sample_period = period;
            attributes.sample_type =
                SAMPLE | if branches != 0 { u64::from(bindings::PERF_SAMPLE_BRANCH_STACK) } else { 0 };
            attributes.branch_sample_type = branches;
            attributes.set_write_backward(backward.into());
        }
        attributes
    }

    /// What the kernel means by an error (man page perf_event_open(2), ERRORS; kernel/events/core.c).
    fn explain(&self, error: &io::Error) -> OpenError {
        let branches = self.sampling.is_some_and(|sampling| sampling.branches != 0);
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP) if branches => OpenError::NoBranchStack,
            Some(libc::EOPNOTSUPP) if self.scope == Scope::GuestUser => OpenError::NoGuestScope,
            Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => OpenError::NoPmu,
            Some(libc::EACCES | libc::EPERM) => OpenError::NotPermitted { paranoid: paranoid() },
            Some(libc::EBUSY) => OpenError::Busy,
            Some(libc::ENOSYS) => OpenError::NoPerf,
            _ => OpenError::Other(error.to_string()),
        }
    }
}

/// /proc/sys/kernel/perf_event_paranoid: from 2 on, only user mode may be observed; above, nothing.
#[must_use]
pub fn paranoid() -> Option<i32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_for_what_the_event_says() {
        let guest = Event::counter(What::Raw(0x01c4), Scope::GuestUser).attributes(true, 31, false);
        assert_eq!((guest.type_, guest.config, guest.read_format), (4, 0x01c4, 31));
        assert_eq!((guest.exclude_host(), guest.exclude_guest(), guest.exclude_kernel()), (1, 0, 1));
        assert_eq!((guest.pinned(), guest.disabled(), guest.sample_type), (1, 1, 0));
        let member = Event::counter(What::Raw(0xc0), Scope::GuestUser).attributes(false, 31, false);
        assert_eq!((member.pinned(), member.disabled()), (0, 0), "the leader decides");
        let sampling = Some(Sampling { period: 1000, branches: 9 });
        let sampled = Event { sampling, ..Event::counter(What::CpuClock, Scope::User) };
        let sampled = sampled.attributes(true, 0, true);
        assert_eq!((sampled.type_, sampled.config, sampled.exclude_host()), (1, 0, 0));
        assert_eq!((sampled.sample_type, sampled.branch_sample_type), (0x807, 9));
        assert_eq!((sampled.write_backward(), sampled.pinned()), (1, 0));
    }

    #[test]
    fn an_error_of_the_kernel_says_what_is_missing() {
        let counter = Event::counter(What::Raw(0xc0), Scope::User);
        let of = |event: &Event, errno: i32| event.explain(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(&counter, libc::ENOENT), OpenError::NoPmu);
        assert_eq!(of(&counter, libc::EBUSY), OpenError::Busy);
        assert!(matches!(of(&counter, libc::EACCES), OpenError::NotPermitted { .. }));
        let guest = Event { scope: Scope::GuestUser, ..counter };
        assert_eq!(of(&guest, libc::EOPNOTSUPP), OpenError::NoGuestScope);
        let stack = Event { sampling: Some(Sampling { period: 1, branches: 9 }), ..counter };
        assert_eq!(of(&stack, libc::EOPNOTSUPP), OpenError::NoBranchStack);
        assert_eq!(
            of(&counter, libc::E2BIG),
            OpenError::Other("Argument list too long (os error 7)".to_owned())
        );
    }
}
