//! Processor time: the time that passes for programs between two exits is the loaded task's. getrusage and times tell it.
//!
//! All of it counts as user time. A call that the host serves while its caller is alone counts, too, however long it waits there.

use super::time::{NANOSECONDS, show};
use super::{Guest, Kernel, Served, errno};
use crate::failure::ProcessError;
use crate::gate::Time;
use crate::ram::{PAGE, Virt};

/// Clock ticks a second, as `times` counts (USER_HZ).
const TICKS: u64 = 100;

impl Kernel {
    /// Shows a new time; what has passed is the processor time of the loaded task.
    pub(super) fn show(&mut self, guest: &mut Guest<'_>) -> Result<Time, ProcessError> {
        let now = self.clock.show(guest)?;
        let passed = now.monotonic - self.charged.min(now.monotonic);
        let begins = self.charged == 0;
        self.charged = now.monotonic;
        if begins {
            let pid = self.pid();
            self.tasks.current_mut().started = now.monotonic;
            if let Some(group) = self.groups.get_mut(pid) {
                group.started = now.monotonic;
            }
        } else {
            let task = self.tasks.current_mut();
            task.cpu += passed;
            let pid = task.group;
            if let Some(group) = self.groups.get_mut(pid) {
                group.cpu += passed;
            }
        }
        self.take_arrived(guest);
        Ok(now)
    }

    /// Shows a new time after a wait of all tasks, which is nobody's processor time.
    pub(super) fn show_after_wait(&mut self, guest: &mut Guest<'_>) -> Result<Time, ProcessError> {
        let now = self.clock.show(guest)?;
        self.charged = now.monotonic;
        self.take_arrived(guest);
        Ok(now)
    }
}

pub(super) fn getrusage(kernel: &mut Kernel, guest: &mut Guest<'_>, who: i32, at: Virt) -> Served {
    show(kernel, guest)?;
    let group = kernel.group();
    let time = match who {
        libc::RUSAGE_SELF => group.cpu,
        libc::RUSAGE_CHILDREN => group.children_cpu,
        libc::RUSAGE_THREAD => kernel.tasks.current().cpu,
        _ => return errno(libc::EINVAL),
    };
    let resident = if who == libc::RUSAGE_CHILDREN { 0 } else { resident(guest) };
    // Which pages are in memory is what this run came to.
    let bytes = guest.input_bytes(&mut || Ok(with_most_memory(resident)))?;
    guest.write(at, &with_time(bytes, time))?;
    Ok(0)
}

/// How many bytes of the running process are in memory.
fn resident(guest: &Guest<'_>) -> u64 {
    let (space, ram) = (guest.space(), guest.memory.ram());
    let pages = space.mappings().iter().map(|(start, it)| space.resident(ram, &(start..it.end)).len() as u64);
    pages.sum::<u64>() * PAGE
}

/// A `struct rusage` with so many bytes of memory at most, and zeroes. The peak is not kept: it is what there is now.
fn with_most_memory(bytes: u64) -> Vec<u8> {
    let mut usage = vec![0; size_of::<libc::rusage>()];
    let field = std::mem::offset_of!(libc::rusage, ru_maxrss);
    usage[field..field + 8].copy_from_slice(&(bytes / 1024).to_le_bytes());
    usage
}

/// The same `struct rusage` with so many nanoseconds of processor time.
pub(super) fn with_time(mut bytes: Vec<u8>, time: u64) -> Vec<u8> {
    bytes.resize(size_of::<libc::rusage>(), 0);
    let words = [time / NANOSECONDS, time % NANOSECONDS / 1000, 0, 0];
    for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// times: processor time in ticks, and the clock in ticks.
pub(super) fn times(kernel: &mut Kernel, guest: &mut Guest<'_>, at: Virt) -> Served {
    let now = show(kernel, guest)?;
    let ticks = |time: u64| time / (NANOSECONDS / TICKS);
    if at != 0 {
        let group = kernel.group();
        guest.write_words(at, &[ticks(group.cpu), 0, ticks(group.children_cpu), 0])?;
    }
    Ok(ticks(now.monotonic))
}
