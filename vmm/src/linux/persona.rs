//! personality: which system a task takes this one for. Most of its flags change what only other kinds of programs can see; those that
//! 64-bit programs see are what [`uname`](super::identity::uname) says, whether calls tell the time that is left, and whether what may be
//! read may be executed: GNU Common Lisp asks for that, and runs what it compiles in its heap.

use super::{Kernel, Served, errno};
use crate::ram::Virt;

/// Of a persona: the system (its low byte), and flags (linux/personality.h).
const SYSTEM: u32 = 0xff;
const LINUX32: u32 = 8;
const UNAME26: u32 = 0x0002_0000;
const MMAP_PAGE_ZERO: u32 = 0x0010_0000;
const COMPAT_LAYOUT: u32 = 0x0020_0000;
const READ_IMPLIES_EXEC: u32 = 0x0040_0000;
const STICKY_TIMEOUTS: u32 = 0x0400_0000;
/// The argument that only asks.
const ASK: u32 = u32::MAX;

/// Sets the persona of the task that runs, and gives the one before.
pub(super) fn personality(kernel: &mut Kernel, persona: u64) -> Served {
    let persona = u32::from_le_bytes(super::int(persona).to_le_bytes());
    let before = kernel.tasks.current().persona;
    if persona != ASK {
        if persona & (MMAP_PAGE_ZERO | COMPAT_LAYOUT) != 0 {
            kernel.say_once(
                "the layout of memory stays as it is (personality MMAP_PAGE_ZERO, ADDR_COMPAT_LAYOUT)",
            );
        }
        kernel.tasks.current_mut().persona = persona;
    }
    Ok(before.into())
}

impl Kernel {
    /// Whether poll and select leave the time that was given to them as it is.
    pub(super) fn keeps_timeouts(&self) -> bool {
        self.tasks.current().persona & STICKY_TIMEOUTS != 0
    }

    /// Whether memory that is mapped to be read, or becomes readable, may be executed as well.
    pub(super) fn reading_is_executing(&self) -> bool {
        self.tasks.current().persona & READ_IMPLIES_EXEC != 0
    }

    /// Another program begins: as on every kernel for x86-64, what it reads it does not execute (`set_personality_64bit`).
    pub(super) fn persona_after_exec(&mut self) {
        self.tasks.current_mut().persona &= !READ_IMPLIES_EXEC;
    }

    /// The release and the machine that uname tells the task that runs, of those that it tells others.
    pub(super) fn release_and_machine(&self, release: &str, machine: &str) -> [String; 2] {
        let persona = self.tasks.current().persona;
        let release = if persona & UNAME26 != 0 { as_of_two(release) } else { release.to_owned() };
        let machine = if persona & SYSTEM == LINUX32 { "i686" } else { machine };
        [release, machine.to_owned()]
    }
}

/// A release as one that begins with 2.6, for programs that know no other (`override_release` of kernel/sys.c).
fn as_of_two(release: &str) -> String {
    let minor = release.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).unwrap_or(0);
    format!("2.6.{}", minor + 60)
}

/// PR_SET_TSC: whether RDTSC is a fault.
const TSC_ENABLE: u64 = 1;
const TSC_FAULTS: u64 = 2;

pub(super) fn set_time_stamps(kernel: &mut Kernel, value: u64) -> Served {
    if !(TSC_ENABLE..=TSC_FAULTS).contains(&value) {
        return errno(libc::EINVAL);
    }
    kernel.tasks.current_mut().no_time_stamps = value == TSC_FAULTS;
    Ok(0)
}

/// PR_GET_TSC.
pub(super) fn time_stamps(kernel: &Kernel, guest: &mut super::Guest<'_>, address: Virt) -> Served {
    let value = if kernel.tasks.current().no_time_stamps { TSC_FAULTS } else { TSC_ENABLE };
    guest.write(address, &super::int(value).to_le_bytes())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_release_of_today_is_one_of_two_point_six() {
        assert_eq!(super::as_of_two("6.1.0"), "2.6.61");
    }
}
