//! Time: what the gate says, shown in the vDSO's time page and never running backwards.

use super::{Guest, Linux, Served, errno, host, is_raised, word};
use crate::cpu_model::TSC_HZ;
use crate::engine::Virt;
use crate::gate::{Input, MemoryWrite, Time};
use crate::process::ProcessError;
use crate::process::access::AccessError;
use crate::process::layout::TIME_PAGE;
use crate::process::vdso;

const NANOSECONDS: u64 = 1_000_000_000;
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

/// nanosleep and clock_nanosleep.
pub(super) fn sleep(
    linux: &mut Linux,
    guest: &mut Guest<'_>,
    clock: i32,
    flags: i32,
    request: Virt,
    left: Virt,
) -> Served {
    let request: [u64; 2] = guest.read_words(request)?;
    let known = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME);
    if request[1] >= NANOSECONDS || !known || super::long(request[0]) < 0 {
        return errno(libc::EINVAL);
    }
    let interrupter = linux.interrupter.clone();
    guest.input(&mut || {
        let mut rest = request;
        loop {
            let (result, remaining) = host::sleep(clock, flags, rest);
            let interrupted = result == -i64::from(libc::EINTR);
            if interrupted && !is_raised(&interrupter) {
                if flags & libc::TIMER_ABSTIME == 0 {
                    rest = remaining;
                }
                continue;
            }
            let told = interrupted && left != 0 && flags & libc::TIMER_ABSTIME == 0;
            let bytes = || remaining.into_iter().flat_map(u64::to_le_bytes).collect();
            let writes = told.then(|| MemoryWrite { address: left, bytes: bytes() });
            return Input { result, writes: writes.into_iter().collect() };
        }
    })
}

/// Waits for a time, or without one until interrupted; for a futex that no one else can wake.
pub(super) fn wait(linux: &Linux, guest: &mut Guest<'_>, time: Option<[u64; 2]>) -> Served {
    let interrupter = linux.interrupter.clone();
    guest.input_number(|| {
        let Some(time) = time else {
            return super::retry(&interrupter, || host::poll(&mut [], -1));
        };
        let mut rest = time;
        loop {
            let (result, remaining) = host::sleep(libc::CLOCK_MONOTONIC, 0, rest);
            if result != -i64::from(libc::EINTR) || is_raised(&interrupter) {
                return result;
            }
            rest = remaining;
        }
    })?;
    Ok(word(0))
}
