//! Time: what the gate says, shown in the vDSO's time page and never running backwards.

use super::capabilities::SYS_TIME;
use super::load::vdso;
use super::timers::{Base, posix::cpu_clock};
use super::wait::{Deadline, Interrupted, On, Wait, Why, wait};
use super::{Guest, Kernel, Served, errno, host};
use crate::cpu_model::TSC_HZ;
use crate::failure::ProcessError;
use crate::gate::{Input, MemoryWrite, Time};
use crate::memory::object::Object;
use crate::plain::plain;
use crate::ram::Virt;
use crate::ram::{Memory, PAGE};
use std::sync::Arc;

pub(super) const NANOSECONDS: u64 = 1_000_000_000;
const _: () = assert!(TSC_HZ == NANOSECONDS, "the time stamp counter is CLOCK_MONOTONIC");

/// What programs were shown last, and the page that shows it: one for all address spaces.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    shown: Time,
    stamp: u64,
    page: Arc<Object>,
}
plain!(struct Clock { shown, stamp, page });

impl Clock {
    /// A clock that has shown nothing.
    pub(crate) fn new() -> Clock {
        let page = Arc::new(Object::new(0, "[vvar]", Vec::new(), PAGE));
        Clock { shown: Time::default(), stamp: 0, page }
    }

    /// The time page.
    pub(crate) fn page(&self) -> &Arc<Object> {
        &self.page
    }

    /// Shows a new time from now on, not before any that a program has seen.
    pub(super) fn show(&mut self, guest: &mut Guest<'_>) -> Result<Time, ProcessError> {
        let new = guest.gate.time()?;
        self.write(guest.memory, new)
    }

    fn write(&mut self, memory: &mut Memory, new: Time) -> Result<Time, ProcessError> {
        let Some(page) = self.start(memory)? else { return Ok(self.shown) };
        let ticks = vdso::ticks(page).min(NANOSECONDS);
        let shown = self.shown;
        self.shown = Time {
            real: new.real.max(shown.real.saturating_add(ticks)),
            monotonic: new.monotonic.max(shown.monotonic.saturating_add(ticks)),
        };
        *page = vdso::time_page(self.shown);
        Ok(self.shown)
    }

    /// From now on the vDSO makes the real call at this tick.
    pub(super) fn set_due(&self, memory: &mut Memory, tick: u64) -> Result<(), ProcessError> {
        if let Some(page) = self.start(memory)? {
            vdso::set_due(page, tick);
        }
        Ok(())
    }

    /// How many ticks the guest has counted since the last exit.
    pub(super) fn ticks(&self, memory: &mut Memory) -> Result<u64, ProcessError> {
        Ok(self.start(memory)?.map_or(0, |page| vdso::ticks(page)))
    }

    /// What the time page says, where it is mapped. A program that writes there harms only its guest.
    fn start<'a>(
        &self,
        memory: &'a mut Memory,
    ) -> Result<Option<&'a mut [u8; vdso::TIME_BYTES]>, ProcessError> {
        let Some(frame) = self.page.frame(memory, 0)? else { return Ok(None) };
        Ok(memory.ram_mut().frame_mut(frame).first_chunk_mut())
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

/// clock_settime, which is for those who may set the host's clock: a recorded program may not.
pub(super) fn clock_settime(kernel: &mut Kernel, guest: &mut Guest<'_>, clock: i32, at: Virt) -> Served {
    let [seconds, nanoseconds] = guest.read_words(at)?;
    if clock != libc::CLOCK_REALTIME || i64::try_from(seconds).is_err() || nanoseconds >= NANOSECONDS {
        return errno(libc::EINVAL);
    }
    set_time(kernel)
}

/// settimeofday, likewise.
pub(super) fn settimeofday(kernel: &mut Kernel, a: &[u64; 6]) -> Served {
    if a[0] == 0 && a[1] == 0 { Ok(0) } else { set_time(kernel) }
}

fn set_time(kernel: &mut Kernel) -> Served {
    if kernel.group().credentials.has(SYS_TIME) {
        return kernel.refuse("setting the clock", libc::EPERM);
    }
    errno(libc::EPERM)
}

/// A clock that the time page shows.
fn shown(kernel: &mut Kernel, guest: &mut Guest<'_>, clock: i32) -> Served<Option<u64>> {
    let time = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE => show(kernel, guest)?.real,
        libc::CLOCK_MONOTONIC
        | libc::CLOCK_MONOTONIC_COARSE
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_BOOTTIME
        | libc::CLOCK_BOOTTIME_ALARM => show(kernel, guest)?.monotonic,
        libc::CLOCK_REALTIME_ALARM => show(kernel, guest)?.real,
        libc::CLOCK_PROCESS_CPUTIME_ID | libc::CLOCK_THREAD_CPUTIME_ID | ..0 => {
            let base = clock_base(kernel, clock)?;
            show(kernel, guest)?;
            kernel.time_of(base)
        }
        _ => return Ok(None),
    };
    Ok(Some(time))
}

pub(super) fn show(kernel: &mut Kernel, guest: &mut Guest<'_>) -> Served<Time> {
    kernel.show(guest).map_err(super::Stop::Fatal)
}

pub(super) fn clock_gettime(kernel: &mut Kernel, guest: &mut Guest<'_>, clock: i32, address: Virt) -> Served {
    if let Some(time) = shown(kernel, guest, clock)? {
        guest.write_words(address, &[time / NANOSECONDS, time % NANOSECONDS])?;
        return Ok(0);
    }
    if clock != libc::CLOCK_TAI {
        return errno(libc::EINVAL);
    }
    guest.input(&mut || {
        let (result, time) = host::clock(clock);
        let bytes = time.into_iter().flat_map(u64::to_le_bytes).collect();
        Input::Bytes { result, writes: vec![MemoryWrite { address, bytes }] }
    })
}

pub(super) fn clock_getres(kernel: &Kernel, guest: &mut Guest<'_>, clock: i32, address: Virt) -> Served {
    if clock < 0 {
        clock_base(kernel, clock)?;
    } else if clock > libc::CLOCK_TAI || clock == 10 {
        return errno(libc::EINVAL);
    }
    if address != 0 {
        guest.write_words(address, &[0, 1])?;
    }
    Ok(0)
}

/// clock_adjtime and adjtimex, which say that nobody keeps the clock in step with others; nobody in the guest may.
pub(super) fn clock_adjtime(kernel: &mut Kernel, guest: &mut Guest<'_>, clock: i32, address: Virt) -> Served {
    /// STA_UNSYNC, and the result that goes with it, TIME_ERROR (linux/timex.h).
    const UNSYNCHRONIZED: u64 = 0x40;
    const ERROR: u64 = 5;
    /// The errors of a clock that is not in step, in microseconds (kernel/time/ntp.c).
    const MOST_ERROR: u64 = 16_000_000;

    if clock != libc::CLOCK_REALTIME {
        return errno(if (0..=libc::CLOCK_TAI).contains(&clock) { libc::EOPNOTSUPP } else { libc::EINVAL });
    }
    let mut modes = [0; 4];
    guest.read(address, &mut modes)?;
    if modes != [0; 4] {
        return kernel.refuse("adjusting the clock", libc::EPERM);
    }
    let now = show(kernel, guest)?.real;
    let mut timex = [0; size_of::<libc::timex>() / 8];
    // Behind modes, offset and frequency: the errors, status, time constant, precision, tolerance, time and length of a tick.
    timex[3..12].copy_from_slice(&[
        MOST_ERROR,
        MOST_ERROR,
        UNSYNCHRONIZED,
        2,
        1,
        500 << 16,
        now / NANOSECONDS,
        now % NANOSECONDS / 1000,
        10_000,
    ]);
    guest.write_words(address, &timex)?;
    Ok(ERROR)
}

pub(super) fn gettimeofday(kernel: &mut Kernel, guest: &mut Guest<'_>, time: Virt, zone: Virt) -> Served {
    let now = show(kernel, guest)?.real;
    if time != 0 {
        guest.write_words(time, &[now / NANOSECONDS, now % NANOSECONDS / 1000])?;
    }
    if zone != 0 {
        guest.write_words(zone, &[0])?;
    }
    Ok(0)
}

pub(super) fn time(kernel: &mut Kernel, guest: &mut Guest<'_>, address: Virt) -> Served {
    let seconds = show(kernel, guest)?.real / NANOSECONDS;
    if address != 0 {
        guest.write_words(address, &[seconds])?;
    }
    Ok(seconds)
}

/// What a clock of the program's counts, as far as timers go.
pub(super) fn clock_base(kernel: &Kernel, clock: i32) -> Served<Base> {
    let privileged = kernel.group().credentials.uid[1] == 0;
    match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_TAI => Ok(Base::Real),
        libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME => Ok(Base::Monotonic),
        libc::CLOCK_REALTIME_ALARM if privileged => Ok(Base::Real),
        libc::CLOCK_BOOTTIME_ALARM if privileged => Ok(Base::Monotonic),
        libc::CLOCK_REALTIME_ALARM | libc::CLOCK_BOOTTIME_ALARM => errno(libc::EPERM),
        libc::CLOCK_PROCESS_CPUTIME_ID => Ok(Base::Process(kernel.pid())),
        libc::CLOCK_THREAD_CPUTIME_ID => Ok(Base::Task(kernel.tasks.id())),
        ..0 => cpu_clock(kernel, clock),
        _ => errno(libc::EINVAL),
    }
}

/// Two times, as `struct itimerspec` has them: the period, and the time itself.
pub(super) fn timespecs(guest: &mut Guest<'_>, address: Virt) -> Served<[u64; 2]> {
    Ok([nanoseconds(guest, address)?, nanoseconds(guest, address.wrapping_add(16))?])
}

/// Writes the same.
pub(super) fn write_timespecs(guest: &mut Guest<'_>, address: Virt, times: [u64; 2]) -> Served<()> {
    let words = times.map(|time| [time / NANOSECONDS, time % NANOSECONDS]);
    guest.write_words(address, words.as_flattened())
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
impl Kernel {
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
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    clock: i32,
    flags: i32,
    request: Virt,
    left: Virt,
) -> Served {
    let real = match clock {
        libc::CLOCK_REALTIME | libc::CLOCK_TAI => true,
        libc::CLOCK_MONOTONIC | libc::CLOCK_BOOTTIME => false,
        libc::CLOCK_REALTIME_ALARM | libc::CLOCK_BOOTTIME_ALARM => {
            let base = clock_base(kernel, clock)?;
            base == Base::Real
        }
        // Sleeping until others have used the processor, and clocks that nobody sleeps by.
        libc::CLOCK_PROCESS_CPUTIME_ID
        | libc::CLOCK_THREAD_CPUTIME_ID
        | libc::CLOCK_MONOTONIC_RAW
        | libc::CLOCK_REALTIME_COARSE
        | libc::CLOCK_MONOTONIC_COARSE => return errno(libc::EOPNOTSUPP),
        _ => return errno(libc::EINVAL),
    };
    let time = nanoseconds(guest, request)?;
    let (deadline, interrupted) = if flags & libc::TIMER_ABSTIME != 0 {
        show(kernel, guest)?;
        (Deadline { real, nanoseconds: time }, Interrupted::Fails)
    } else {
        // A relative time does not follow when the clock is set.
        let at = kernel.limit(guest, Some(time))?.expect("a limit gives a deadline");
        (at, if left == 0 { Interrupted::Fails } else { Interrupted::TellsTimeLeft(left) })
    };
    if kernel.has_passed(deadline) {
        kernel.tasks.yield_now();
        return Ok(0);
    }
    wait(Wait::new(On::Nothing, Some(deadline), interrupted))
}
