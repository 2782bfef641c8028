//! Timer descriptors: timerfd_create and its kin. The host's side is an eventfd, which becomes readable when the timer expires,
//! so that poll and epoll work on it as on any file. What is read is computed here.

use super::super::descriptors::{OpenFile, Source};
use super::super::files::open_host;
use super::super::time::{clock_base, timespecs, write_timespecs};
use super::super::{Guest, Kernel, Served, errno, host, int};
use super::{Effect, Key, Timer};
use crate::ram::Virt;
use std::rc::Rc;

pub(in super::super) fn create(kernel: &mut Kernel, guest: &mut Guest<'_>, clock: u64, flags: i32) -> Served {
    const ALARMS: [i32; 2] = [libc::CLOCK_REALTIME_ALARM, libc::CLOCK_BOOTTIME_ALARM];
    let clock = int(clock);
    let known = [libc::CLOCK_REALTIME, libc::CLOCK_MONOTONIC, libc::CLOCK_BOOTTIME];
    if flags & !(libc::TFD_CLOEXEC | libc::TFD_NONBLOCK) != 0
        || !known.contains(&clock) && !ALARMS.contains(&clock)
    {
        return errno(libc::EINVAL);
    }
    let base = clock_base(kernel, clock)?;
    kernel.files().free(0)?;
    let file = open_host(guest, &mut || host::eventfd(0, flags & libc::TFD_NONBLOCK))?;
    let object = kernel.new_object();
    kernel.timers.all.insert(Key::File(object), Timer::new(base, Effect::Counts(0)));
    let file = OpenFile::computed(file, Source::Timer(object));
    kernel.files_mut().install(file, flags & libc::TFD_CLOEXEC != 0, 0)
}

/// The timer of a descriptor.
fn named(kernel: &Kernel, descriptor: u64) -> Served<(Rc<OpenFile>, u64)> {
    let file = kernel.files().get(int(descriptor))?;
    match file.source() {
        Some(Source::Timer(object)) => Ok((file, object)),
        _ => errno(libc::EINVAL),
    }
}

pub(in super::super) fn set(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let [descriptor, flags, new, old, ..] = *a;
    let flags = int(flags);
    let [interval, value] = timespecs(guest, new)?;
    if flags & !(libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET) != 0 {
        return errno(libc::EINVAL);
    }
    let (file, object) = named(kernel, descriptor)?;
    kernel.timers_now(guest)?;
    let key = Key::File(object);
    let before = kernel.timer_value(key);
    take(kernel, &file, object);
    kernel.set_timer(key, interval, value, flags & libc::TFD_TIMER_ABSTIME != 0);
    if old != 0 {
        write_timespecs(guest, old, before)?;
    }
    // One that is set to a time in the past has expired when the call is over.
    kernel.timers_now(guest)?;
    Ok(0)
}

pub(in super::super) fn get(kernel: &mut Kernel, guest: &mut Guest<'_>, descriptor: u64, at: Virt) -> Served {
    let (_, object) = named(kernel, descriptor)?;
    kernel.timers_now(guest)?;
    write_timespecs(guest, at, kernel.timer_value(Key::File(object)))?;
    Ok(0)
}

/// Takes how often the timer has expired since that was taken last.
pub(in super::super) fn take(kernel: &mut Kernel, file: &Rc<OpenFile>, object: u64) -> u64 {
    let Some(timer) = kernel.timers.all.get_mut(&Key::File(object)) else { return 0 };
    let Effect::Counts(times) = timer.effect else { return 0 };
    timer.effect = Effect::Counts(0);
    if times > 0 {
        file.set_readable(false);
    }
    times
}

impl Kernel {
    /// Makes a timer descriptor readable; a timer that nobody has open any more goes.
    pub(super) fn timer_file_expired(&mut self, object: u64) {
        let is_it = |file: &Rc<OpenFile>| file.source() == Some(Source::Timer(object));
        let file = self
            .tables
            .iter()
            .flat_map(|(_, table)| table.iter())
            .map(|(_, file)| file)
            .find(|file| is_it(file));
        match file {
            Some(file) => file.set_readable(true),
            None => {
                self.timers.all.remove(&Key::File(object));
            }
        }
    }
}
