//! The single processor, as programs ask about it: getcpu, affinity, membarrier.

use super::scheduling::{may_schedule, named};
use super::{Guest, Kernel, Served, errno, int};
use crate::ram::Virt;

pub(super) fn getcpu(guest: &mut Guest<'_>, cpu: Virt, node: Virt) -> Served {
    for address in [cpu, node].into_iter().filter(|address| *address != 0) {
        guest.write(address, &[0; 4])?;
    }
    Ok(0)
}

/// The set of processors: the first.
pub(super) fn getaffinity(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    size: u64,
    address: Virt,
) -> Served {
    if size < 8 || !size.is_multiple_of(8) {
        return errno(libc::EINVAL);
    }
    named(kernel, id).or_else(|stop| if id < 0 { errno(libc::ESRCH) } else { Err(stop) })?;
    guest.write_words(address, &[1])?;
    Ok(8)
}

/// Every set that has the first processor comes to the same.
pub(super) fn setaffinity(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    id: i32,
    size: u64,
    address: Virt,
) -> Served {
    let mut bytes = [0; 8];
    let length = usize::try_from(size & 0xffff_ffff).unwrap_or(8).min(8);
    guest.read(address, &mut bytes[..length])?;
    let task = named(kernel, id).or_else(|stop| if id < 0 { errno(libc::ESRCH) } else { Err(stop) })?;
    may_schedule(kernel, task)?;
    if bytes[0] & 1 == 0 { errno(libc::EINVAL) } else { Ok(0) }
}

/// Commands of membarrier (linux/membarrier.h). Those that restart sequences are not served, as rseq is not.
const GLOBAL: i32 = 1;
const GLOBAL_EXPEDITED: i32 = 2;
const REGISTER_GLOBAL: i32 = 4;
const PRIVATE: i32 = 8;
const REGISTER_PRIVATE: i32 = 16;
const PRIVATE_CORE: i32 = 32;
const REGISTER_PRIVATE_CORE: i32 = 64;
const GET_REGISTRATIONS: i32 = 512;
const SERVED: i32 = GLOBAL
    | GLOBAL_EXPEDITED
    | REGISTER_GLOBAL
    | PRIVATE
    | REGISTER_PRIVATE
    | PRIVATE_CORE
    | REGISTER_PRIVATE_CORE
    | GET_REGISTRATIONS;

/// membarrier: on one processor each task has seen what the others did; what has to be registered has.
pub(super) fn membarrier(kernel: &mut Kernel, command: u64, flags: u64) -> Served {
    if int(flags) != 0 {
        return errno(libc::EINVAL);
    }
    let barriers = &mut kernel.group_mut().barriers;
    match int(command) {
        0 => Ok(u64::from(SERVED.unsigned_abs())),
        GLOBAL | GLOBAL_EXPEDITED => Ok(0),
        PRIVATE if *barriers & REGISTER_PRIVATE != 0 => Ok(0),
        PRIVATE_CORE if *barriers & REGISTER_PRIVATE_CORE != 0 => Ok(0),
        PRIVATE | PRIVATE_CORE => errno(libc::EPERM),
        command @ (REGISTER_GLOBAL | REGISTER_PRIVATE | REGISTER_PRIVATE_CORE) => {
            *barriers |= command;
            Ok(0)
        }
        GET_REGISTRATIONS => Ok(u64::from(barriers.unsigned_abs())),
        _ => errno(libc::EINVAL),
    }
}
