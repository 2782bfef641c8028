//! The table of Linux's system calls on x86-64: what is known of a call before anybody serves it.
//!
//! A row is a prototype: `0 read(fd: Fd, buf: Out(Result(2)), count: Size) -> Size, Mixed;` says that call 0 takes a
//! descriptor, an address and a number of bytes, that the kernel writes at the address as many bytes as it returns and
//! no more than argument 2 says, and that gretel serves it with the host's help. From the row come
//!
//! - the call's name ([`name`]), and the error that a result is ([`call_error`]);
//! - a line as strace prints it ([`show`]): `read(3, "root:x:0:0"..., 4096) = 1024`;
//! - what it wrote ([`effects`]): for result 1024, 1024 bytes at rsi;
//! - its line in `docs/syscalls.md` ([`page`]).
//!
//! [`shape`] has the types. The rows are in one file per group: `files`, `descriptors`, `memory`, `processes`,
//! `signals`, `time`, `ipc`, `network`, `identity`, `system`. Rows refer to `constants` (names of values and bits),
//! `sockets` (those of the network), `structs`, and `commands`: arguments that mean what another argument says, as
//! those of fcntl, ioctl and prctl do.
//!
//! Nothing here depends on the personality ([`crate::linux`]).

mod commands;
mod constants;
mod descriptors;
pub mod effects;
mod errors;
mod files;
mod identity;
mod ipc;
mod memory;
mod network;
pub mod page;
mod processes;
pub mod shape;
pub mod show;
mod signals;
mod sockets;
mod structs;
mod system;
mod time;

use shape::Call;

/// Makes a group's `CALLS` of rows. A row that ends with a third term has an effect that no argument shows.
macro_rules! rows {
    ($($number:literal $name:ident ( $($argument:ident : $kind:expr),* )
        -> $returns:ident, $served:expr $(, $beyond:expr)? ;)*) => {
        /// The calls of this group, by number.
        pub(super) static CALLS: &[$crate::syscalls::shape::Call] = &[$(
            $crate::syscalls::shape::Call {
                number: $number,
                name: stringify!($name),
                arguments: &[$($crate::syscalls::shape::Argument { name: stringify!($argument), kind: $kind }),*],
                returns: $crate::syscalls::shape::Returns::$returns,
                served: $served,
                beyond: $crate::syscalls::rows!(@beyond $($beyond)?),
            }
        ),*];
    };
    (@beyond) => { $crate::syscalls::shape::Beyond::Nothing };
    (@beyond $beyond:expr) => { $beyond };
}
use rows;

/// The groups, as the page lists them.
pub static GROUPS: &[(&str, &[Call])] = &[
    ("Files", files::CALLS),
    ("Descriptors and polling", descriptors::CALLS),
    ("Memory", memory::CALLS),
    ("Processes and threads", processes::CALLS),
    ("Signals", signals::CALLS),
    ("Time", time::CALLS),
    ("Between processes", ipc::CALLS),
    ("Network", network::CALLS),
    ("Identity and limits", identity::CALLS),
    ("The system", system::CALLS),
];

/// The first number above the table.
const LIMIT: usize = 463;

/// The calls by number.
static INDEX: [Option<&Call>; LIMIT] = index();

/// Builds [`INDEX`]; a number that stands twice does not compile.
const fn index() -> [Option<&'static Call>; LIMIT] {
    let mut index = [None; LIMIT];
    let mut group = 0;
    while group < GROUPS.len() {
        let calls = GROUPS[group].1;
        let mut n = 0;
        while n < calls.len() {
            let number = calls[n].number as usize;
            assert!(index[number].is_none(), "two rows have one number");
            index[number] = Some(&calls[n]);
            n += 1;
        }
        group += 1;
    }
    index
}

/// The call with this number.
#[must_use]
pub fn find(number: u64) -> Option<&'static Call> {
    let number = usize::try_from(number).ok()?;
    INDEX.get(number).copied().flatten()
}

/// The name of a call, for messages.
#[must_use]
pub fn name(number: u64) -> &'static str {
    find(number).map_or("without a name", |call| call.name)
}

/// The number of the call with this name.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    GROUPS.iter().flat_map(|(_, calls)| *calls).find(|call| call.name == name).map(|call| call.number.into())
}

/// The error that a result stands for, with its name if it has one. From 512 on they are the kernel's own, for calls that begin
/// again behind a signal's handler.
#[must_use]
pub fn call_error(result: u64) -> Option<(i32, &'static str)> {
    let error = errors::of(result)?;
    Some((error, errors::name(error).unwrap_or_default()))
}

#[cfg(test)]
mod tests;
