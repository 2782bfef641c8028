//! Time: what the gate says, shown in the vDSO's time page and never running backwards.

use super::wait::{Deadline, Interrupted, On, Wait, Why, wait};
use super::{Guest, Linux, Served, errno, host};
use crate::cpu_model::TSC_HZ;
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite, Time};
use crate::process::ProcessError;
use crate::process::access::AccessError;
use crate::process::layout::TIME_PAGE;
use crate::process::vdso;

pub(super) const NANOSECONDS: u64 = 1_000_000_000;
const _: () = assert!(TSC_HZ == NANOSECONDS, "the time stamp counter is CLOCK_MONOTONIC");

/// What the guest was shown last.
#[derive(Debug, Default)]
pub(super) struct Clock {
    shown: Time,
    stamp: u64,
}

impl Clock {
    /// Shows a new time from now on, not before any that the guest has seen.
    pub(super) fn show(&mut self, guest: &mut Guest<'_>) -> Result<Time, ProcessError> {
        // A guest that took the time page away, or wrote to it, harms only itself.
        let mut page = [0; vdso::TIME_BYTES];
        let readable = guest.space.read(guest.engine.ram(), TIME_PAGE, &mut page).is_ok();
        let ticks = if readable { vdso::ticks(&page).min(NANOSECONDS) } else { 0 };
        let new = guest.gate.time()?;
        let shown = self.shown;
        self.shown = Time {
            real: new.real.max(shown.real.saturating_add(ticks)),
            monotonic: new.monotonic.max(shown.monotonic.saturating_add(ticks)),
        };
        match guest.space.write(guest.engine, TIME_PAGE, &vdso::time_page(self.shown)) {
            Ok(()) | Err(AccessError::Bad) => Ok(self.shown),
            Err(AccessError::Space(error)) => Err(error.into()),
        }
    }

    /// The time that the guest was shown last.
    pub(super) fn shown(&self) -> Time {
        self.shown
    }

    /// The time stamp counter: a new value each time.
    pub(super) fn time_stamp(&mut self, guest: &mut Guest<'_>) -> Result<u64, ProcessError> {
        let now = self.show(guest)?.monotonic;
        self.stamp = now.max(self.stamp + 1);
        Ok(self.stamp)
    }
}

/// A clock that the time page shows.
fn shown(linux: &mut Linux, guest: &mut Guest<'_>, clock: i32) -> Served<Option<u64>> {
    let time = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => show(linux, guest)?.real,
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_BOOTTIME => show(linux, guest)?.monotonic,
        _ => return Ok(None),
    };
    Ok(Some(time))
}

fn show(linux: &mut Linux, guest: &mut Guest<'_>) -> Served<Time> {
    linux.clock.show(guest).map_err(super::Stop::Fatal)
}

pub(super) fn clock_gettime(linux: &mut Linux, guest: &mut Guest<'_>, clock: i32, address: Virt) -> Served {
    if let Some(time) = shown(linux, guest, clock)? {
        guest.write_words(address, &[time / NANOSECONDS, time % NANOSECONDS])?;
        return Ok(0);
    }
    if !matches!(clock, libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID | libc::CLOCK_TAI) {
        return errno(libc::EINVAL);
    }
    guest.input(&mut || {
        let (result, time) = host::clock(clock);
        let bytes = time.into_iter().flat_map(u64::to_le_bytes).collect();
        Input { result, writes: vec![MemoryWrite { address, bytes }] }
    })
}

pub(super) fn clock_getres(guest: &mut Guest<'_>, clock: i32, address: Virt) -> Served {
    if !(libc::CLOCK_REALTIME..=libc::CLOCK_BOOTTIME).contains(&clock) && clock != libc::CLOCK_TAI {
        return errno(libc::EINVAL);
    }
    if address != 0 {
        guest.write_words(address, &[0, 1])?;
    }
    Ok(0)
}

pub(super) fn gettimeofday(linux: &mut Linux, guest: &mut Guest<'_>, time: Virt, zone: Virt) -> Served {
    let now = show(linux, guest)?.real;
    if time != 0 {
        guest.write_words(time, &[now / NANOSECONDS, now % NANOSECONDS / 1000])?;
    }
    if zone != 0 {
        guest.write_words(zone, &[0])?;
    }
    Ok(0)
}

pub(super) fn time(linux: &mut Linux, guest: &mut Guest<'_>, address: Virt) -> Served {
    let seconds = show(linux, guest)?.real / NANOSECONDS;
    if address != 0 {
        guest.write_words(address, &[seconds])?;
    }
    Ok(seconds)
}

/// A time of the guest's as nanoseconds.
fn nanoseconds(guest: &mut Guest<'_>, address: Virt) -> Served<u64> {
    let [seconds, part] = guest.read_words(address)?;
    if part >= NANOSECONDS || super::long(seconds) < 0 {
        return errno(libc::EINVAL);
    }
    Ok(seconds.saturating_mul(NANOSECONDS).saturating_add(part))
}

/// The same; null is no time.
pub(super) fn optional(guest: &mut Guest<'_>, address: Virt) -> Served<Option<u64>> {
    if address == 0 { Ok(None) } else { nanoseconds(guest, address).map(Some) }
}

/// When a call ends its wait: kept from when it was served first.
impl Linux {
    /// So many nanoseconds from now.
    pub(super) fn limit(&mut self, guest: &mut Guest<'_>, limit: Option<u64>) -> Served<Option<Deadline>> {
        match (self.again.deadline, limit) {
            (Some(at), _) => Ok(Some(at)),
            (None, None) => Ok(None),
            (None, Some(limit)) => Ok(Some(Deadline::after(show(self, guest)?, limit))),
        }
    }

    /// After the time at `address`; null is never.
    pub(super) fn deadline(&mut self, guest: &mut Guest<'_>, address: Virt) -> Served<Option<Deadline>> {
        let limit = optional(guest, address)?;
        self.limit(guest, limit)
    }

    /// At the time at `address`, on CLOCK_REALTIME if `real`, else on CLOCK_MONOTONIC; null is never.
    pub(super) fn deadline_at(
        &mut self,
        guest: &mut Guest<'_>,
        address: Virt,
        real: bool,
    ) -> Served<Option<Deadline>> {
        let Some(nanoseconds) = optional(guest, address)? else { return Ok(None) };
        show(self, guest)?;
        Ok(Some(Deadline { real, nanoseconds }))
    }

    /// Whether the program has been shown that time.
    pub(super) fn has_passed(&self, at: Deadline) -> bool {
        self.again.why == Some(Why::TimedOut) || at.left(self.clock.shown()) == 0
    }
}

/// nanosleep and clock_nanosleep.
pub(super) fn sleep(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    clock: i32,
    flags: i32,
    request: Virt,
    left: Virt,
) -> Served {
    let real = match clock {
        libc::CLOCK_REALTIME => true,
        libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME => false,
        _ => return errno(libc::EINVAL),
    };
    let time = nanoseconds(guest, request)?;
    let (deadline, interrupted) = if flags & libc::TIMER_ABSTIME != 0 {
        show(linux, guest)?;
        (Deadline { real, nanoseconds: time }, Interrupted::Fails)
    } else {
        // A relative time does not follow when the clock is set.
        let at = linux.limit(guest, Some(time))?.expect("a limit gives a deadline");
        (at, if left == 0 { Interrupted::Fails } else { Interrupted::TellsTimeLeft(left) })
    };
    if linux.has_passed(deadline) {
        linux.threads.yield_now();
        return Ok(0);
    }
    wait(Wait::new(On::Nothing, Some(deadline), interrupted))
}
