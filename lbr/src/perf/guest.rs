//! What a guest's user mode has retired, by the processor's counters: of the thread that opens them, while it runs its
//! virtual CPU.
//!
//! The processor switches the counters at each entry to the guest and each exit from it, so that nothing of the host
//! counts. Under software virtualization it knows of no guest and would count nothing: see [`NoCounters::NoGuest`].

use super::event::{OpenError, Scope};
use super::group::{Group, ReadError};
use super::retired::{Counted, Cpu};
use crate::capture::host::Host;
use crate::crumb::Counts;
use std::io;

/// Why nothing counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoCounters {
    /// The processor's events are not known.
    #[error("the events of this processor ({:?} family {:#x} model {:#x}) are not known", .0.vendor, .0.family, .0.model)]
    UnknownProcessor(Cpu),
    /// The thread may run on cores with different events.
    #[error("this processor has two sorts of cores, with different events")]
    Hybrid,
    /// The kernel does not open them.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The processor does not know of the guest.
    #[error("this KVM runs guests by software, and the processor does not tell them from the host")]
    NoGuest,
    /// They were not to count.
    #[error("they were not asked for")]
    NotWanted,
    /// The counter did not count what was executed to try it.
    #[error("the guest executed one conditional branch, and the counter says {0:?}")]
    Wrong(Option<u64>),
}

/// Counters of the calling thread's guest.
#[derive(Debug)]
pub struct GuestCounters {
    group: Group,
    counted: Vec<Counted>,
}

impl GuestCounters {
    /// Opens and starts the counters that the host's processor has, for the calling thread.
    ///
    /// # Errors
    /// When there are none.
    pub fn start(host: &Host) -> Result<GuestCounters, NoCounters> {
        let events = host.cpu.events().ok_or(NoCounters::UnknownProcessor(host.cpu))?;
        if host.hybrid {
            return Err(NoCounters::Hybrid);
        }
        let (counted, events): (Vec<_>, Vec<_>) = events.counters(Scope::GuestUser).into_iter().unzip();
        let group = Group::open(&events, 0)?;
        let failed = |error: io::Error| OpenError::Other(error.to_string());
        group.enable().map_err(failed)?;
        Ok(GuestCounters { group, counted })
    }

    /// What is counted, that on which positions rely first.
    #[must_use]
    pub fn counted(&self) -> &[Counted] {
        &self.counted
    }

    /// What has retired.
    ///
    /// # Errors
    /// When the counters were taken away, or did not count all the time.
    pub fn read(&self) -> Result<Counts, ReadError> {
        let values = self.group.read()?.whole()?;
        Ok(counts(&self.counted, &values))
    }
}

/// The values by what they count.
fn counts(counted: &[Counted], values: &[u64]) -> Counts {
    let of =
        |what: Counted| counted.iter().zip(values).find(|(counted, _)| **counted == what).map(|(_, n)| *n);
    Counts {
        instructions: of(Counted::Instructions),
        taken_branches: of(Counted::TakenBranches),
        conditional_branches: of(Counted::ConditionalBranches),
        derived: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::retired::Vendor;

    #[test]
    fn each_value_goes_where_it_belongs_and_what_is_not_counted_is_absent() {
        let one = counts(&[Counted::ConditionalBranches], &[7]);
        assert_eq!(one, Counts { conditional_branches: Some(7), ..Counts::default() });
        let counted = [Counted::ConditionalBranches, Counted::Instructions, Counted::TakenBranches];
        let all = counts(&counted, &[1, 2, 3]);
        assert_eq!(
            (all.conditional_branches, all.instructions, all.taken_branches),
            (Some(1), Some(2), Some(3))
        );
    }

    #[test]
    fn a_processor_that_is_not_known_counts_nothing() {
        let host = Host {
            cpu: Cpu { vendor: Vendor::Other, family: 6, model: 1 },
            hybrid: false,
            architectural: false,
            transactions: false,
            hypervisor: false,
            mediated: None,
        };
        assert_eq!(GuestCounters::start(&host).err(), Some(NoCounters::UnknownProcessor(host.cpu)));
        let hybrid =
            Host { cpu: Cpu { vendor: Vendor::Intel, family: 6, model: 0x97 }, hybrid: true, ..host };
        assert_eq!(GuestCounters::start(&hybrid).err(), Some(NoCounters::Hybrid));
    }
}
