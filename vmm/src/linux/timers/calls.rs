//! alarm, setitimer and getitimer. ITIMER_VIRTUAL and ITIMER_PROF both count the time that the process has the processor.

use super::super::time::{NANOSECONDS, show};
use super::super::{Guest, Kernel, Served, errno, int, long};
use super::{Base, Effect, Key, Timer};
use crate::ram::Virt;

const MICROSECONDS: u64 = 1_000_000;
const NANO: u64 = 1000;

impl Kernel {
    /// Shows a new time, and does what the timers do by then: before a call looks at one.
    pub(super) fn timers_now(&mut self, guest: &mut Guest<'_>) -> Served<()> {
        let now = show(self, guest)?;
        self.timers_expire(now);
        Ok(())
    }

    /// A timer's period, and how long until it expires: at least one nanosecond while it is armed, zero otherwise.
    pub(super) fn timer_value(&self, key: Key) -> [u64; 2] {
        self.timers.all.get(&key).map_or([0; 2], |timer| {
            let left = timer.next.map_or(0, |next| next.saturating_sub(self.time_of(timer.base)).max(1));
            [timer.interval, left]
        })
    }

    /// Sets a timer to expire after `value` nanoseconds of its clock, or at that time of it; zero disarms it.
    pub(super) fn set_timer(&mut self, key: Key, interval: u64, value: u64, absolute: bool) {
        let Some(clock) = self.timers.all.get(&key).map(|timer| timer.clock) else { return };
        let base = if clock == Base::Real && !absolute { Base::Monotonic } else { clock };
        let from = if absolute { 0 } else { self.time_of(base) };
        if let Some(timer) = self.timers.all.get_mut(&key) {
            timer.base = base;
            timer.next = (value != 0).then(|| from.saturating_add(value));
            timer.interval = interval;
        }
    }

    /// Sets an interval timer of the process that runs; gives what it was.
    fn set_interval_timer(&mut self, guest: &mut Guest<'_>, which: i32, new: [u64; 2]) -> Served<[u64; 2]> {
        self.timers_now(guest)?;
        let pid = self.pid();
        let (key, old) = (Key::Interval(pid, which), self.timer_value(Key::Interval(pid, which)));
        let (clock, signal) = match which {
            libc::ITIMER_REAL => (Base::Monotonic, libc::SIGALRM),
            libc::ITIMER_VIRTUAL => (Base::Process(pid), libc::SIGVTALRM),
            _ => (Base::Process(pid), libc::SIGPROF),
        };
        let [interval, value] = new;
        if value == 0 {
            self.timers.all.remove(&key);
        } else {
            self.timers.all.insert(key, Timer::new(clock, Effect::Alarm(signal)));
            self.set_timer(key, interval, value, false);
        }
        Ok(old)
    }
}

pub(in super::super) fn alarm(kernel: &mut Kernel, guest: &mut Guest<'_>, seconds: u64) -> Served {
    let value = (seconds & 0xffff_ffff) * NANOSECONDS;
    let [_, left] = kernel.set_interval_timer(guest, libc::ITIMER_REAL, [0, value])?;
    // Rounded, but what is left is never told as nothing.
    Ok(match left {
        0 => 0,
        left => ((left + NANOSECONDS / 2) / NANOSECONDS).max(1),
    })
}

/// A kind of interval timer.
fn kind(which: u64) -> Served<i32> {
    match int(which) {
        which @ (libc::ITIMER_REAL | libc::ITIMER_VIRTUAL | libc::ITIMER_PROF) => Ok(which),
        _ => errno(libc::EINVAL),
    }
}

pub(in super::super) fn setitimer(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    which: u64,
    new: Virt,
    old: Virt,
) -> Served {
    let mut words = [0; 4];
    if new != 0 {
        words = guest.read_words(new)?;
    }
    let which = kind(which)?;
    let mut times = [0; 2];
    for (time, [seconds, part]) in times.iter_mut().zip([[words[0], words[1]], [words[2], words[3]]]) {
        if long(seconds) < 0 || part >= MICROSECONDS {
            return errno(libc::EINVAL);
        }
        *time = seconds.saturating_mul(NANOSECONDS).saturating_add(part * NANO);
    }
    let before = kernel.set_interval_timer(guest, which, times)?;
    if old != 0 { write(guest, old, before) } else { Ok(0) }
}

pub(in super::super) fn getitimer(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    which: u64,
    at: Virt,
) -> Served {
    let which = kind(which)?;
    kernel.timers_now(guest)?;
    let value = kernel.timer_value(Key::Interval(kernel.pid(), which));
    write(guest, at, value)
}

/// Writes a `struct itimerval`; what is left of an armed timer is at least a microsecond.
fn write(guest: &mut Guest<'_>, at: Virt, [interval, value]: [u64; 2]) -> Served {
    let value = if value == 0 { 0 } else { value.max(NANO) };
    let time = |time: u64| [time / NANOSECONDS, time % NANOSECONDS / NANO];
    guest.write_words(at, [time(interval), time(value)].as_flattened())?;
    Ok(0)
}
