//! What calls wrote, exactly.

use super::{Effects, Known, Place, Unbounded, Written, effects};
use crate::syscalls::shape::Mapping;

const NOTHING: &super::Read<'static> = &|_, _| false;

fn minus(error: u64) -> u64 {
    error.wrapping_neg()
}

/// The ranges that a call of which all is known may have written.
fn ranges(number: i64, arguments: [u64; 6], result: u64, read: &super::Read<'_>) -> Vec<(u64, u64)> {
    let known = Known::all(arguments, result, read);
    effects(u64::try_from(number).expect("positive"), &known).expect("bounded").ranges(arguments)
}

#[test]
fn buffers_hold_as_many_bytes_as_were_returned() {
    let read = |result| ranges(libc::SYS_read, [3, 0x1000, 4096, 0, 0, 0], result, NOTHING);
    assert_eq!(read(1024), [(0x1000, 1024)]);
    assert_eq!(read(0), []);
    assert_eq!(read(minus(11)), []);
    // With MSG_TRUNC, recvfrom returns more than it wrote.
    let received = |result| ranges(libc::SYS_recvfrom, [3, 0x1000, 64, 0x20, 0, 0], result, NOTHING);
    assert_eq!(received(1500), [(0x1000, 64)]);
    // Asked for its length alone, a list is not written.
    assert_eq!(ranges(libc::SYS_getgroups, [0; 6], 7, NOTHING), []);
    assert_eq!(ranges(libc::SYS_epoll_wait, [5, 0x1000, 64, 0, 0, 0], 3, NOTHING), [(0x1000, 36)]);
    assert_eq!(ranges(libc::SYS_write, [1, 0x1000, 64, 0, 0, 0], 64, NOTHING), []);
}

#[test]
fn a_null_is_not_written() {
    assert_eq!(ranges(libc::SYS_wait4, [0, 0, 0, 0x2000, 0, 0], 9, NOTHING), [(0x2000, 144)]);
    assert_eq!(ranges(libc::SYS_rt_sigaction, [2, 0x10, 0, 8, 0, 0], 0, NOTHING), []);
    assert_eq!(ranges(libc::SYS_rt_sigaction, [2, 0x10, 0x20, 8, 0, 0], 0, NOTHING), [(0x20, 32)]);
}

#[test]
fn an_interrupted_sleep_tells_the_rest() {
    let sleep = |result| ranges(libc::SYS_nanosleep, [0x10, 0x20, 0, 0, 0, 0], result, NOTHING);
    assert_eq!(sleep(0), []);
    assert_eq!(sleep(minus(4)), [(0x20, 16)]);
    assert_eq!(sleep(minus(516)), [(0x20, 16)]);
    assert_eq!(sleep(minus(22)), []);
}

#[test]
fn sets_and_arrays_are_written_in_place() {
    let poll = |result| ranges(libc::SYS_poll, [0x1000, 3, 0, 0, 0, 0], result, NOTHING);
    assert_eq!(poll(1), [(0x1000, 24)]);
    assert_eq!(poll(minus(4)), [(0x1000, 24)]);
    assert_eq!(poll(minus(22)), []);
    let select = ranges(libc::SYS_select, [65, 0x10, 0, 0x30, 0x40, 0], 1, NOTHING);
    assert_eq!(select, [(0x10, 16), (0x30, 16), (0x40, 16)]);
    assert_eq!(ranges(libc::SYS_mincore, [0, 4097, 0x10, 0, 0, 0], 0, NOTHING), [(0x10, 2)]);
}

#[test]
fn a_command_says_what_its_argument_is() {
    let fcntl = |command| ranges(libc::SYS_fcntl, [3, command, 0x10, 0, 0, 0], 0, NOTHING);
    assert_eq!(fcntl(5), [(0x10, 32)]);
    assert_eq!(fcntl(6), []);
    assert_eq!(fcntl(2), []);
    let ioctl = |request| ranges(libc::SYS_ioctl, [3, request, 0x10, 0, 0, 0], 0, NOTHING);
    assert_eq!(ioctl(0x5401), [(0x10, 36)]);
    assert_eq!(ioctl(0x5413), [(0x10, 8)]);
    assert_eq!(ioctl(0x5421), []);
    // By the direction and the size in the number.
    assert_eq!(ioctl(0x8123_aa01), [(0x10, 0x123)]);
    assert_eq!(ioctl(0x4123_aa01), []);
    // The upper half of the register is not looked at.
    assert_eq!(ioctl(0xffff_ffff_0000_5413), [(0x10, 8)]);
    let futex = |operation| ranges(libc::SYS_futex, [0x10, operation, 0, 0, 0x20, 0], 0, NOTHING);
    assert_eq!(futex(0x80), []);
    assert_eq!(futex(0x86), [(0x10, 4)]);
    assert_eq!(futex(5), [(0x20, 4)]);
}

/// Memory with words at an address.
fn words(at: u64, words: &[u64]) -> impl Fn(u64, &mut [u8]) -> bool {
    let held: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    move |address, bytes| {
        let from = address.checked_sub(at).and_then(|from| usize::try_from(from).ok());
        let Some(from) = from.and_then(|from| held.get(from..from + bytes.len())) else { return false };
        bytes.copy_from_slice(from);
        true
    }
}

#[test]
fn several_buffers_are_filled_in_order() {
    let memory = words(0x100, &[0x1000, 4, 0x2000, 50, 0x3000, 50]);
    let readv = |result| ranges(libc::SYS_readv, [3, 0x100, 3, 0, 0, 0], result, &memory);
    assert_eq!(readv(10), [(0x1000, 4), (0x2000, 6)]);
    assert_eq!(readv(4), [(0x1000, 4)]);
    assert_eq!(readv(0), []);
    let unreadable = Known::all([3, 0x100, 3, 0, 0, 0], 10, NOTHING);
    assert_eq!(effects(19, &unreadable), Err(Unbounded::Amount));
    let header = words(0x100, &[0x900, 128, 0x138, 1, 0x800, 64, 0, 0x1000, 50]);
    let received = ranges(libc::SYS_recvmsg, [3, 0x100, 0, 0, 0, 0], 10, &header);
    assert_eq!(received, [(0x108, 4), (0x128, 8), (0x130, 4), (0x900, 128), (0x800, 64), (0x1000, 10)]);
    let length = words(0x40, &[16]);
    let name = ranges(libc::SYS_getsockname, [3, 0x10, 0x40, 0, 0, 0], 0, &length);
    assert_eq!(name, [(0x10, 16), (0x40, 4)]);
}

#[test]
fn what_is_not_known_makes_the_answer_larger() {
    let known = |arguments, result| Known { arguments, result, read: NOTHING };
    let at = |n, length| vec![Written { place: Place::Argument(n), length }];
    let written =
        |number, arguments, result| effects(number, &known(arguments, result)).map(|effects| effects.written);
    assert_eq!(written(0, [None; 6], Some(10)), Ok(at(1, 10)));
    assert_eq!(written(0, [None, None, Some(64), None, None, None], None), Ok(at(1, 64)));
    assert_eq!(written(0, [None; 6], None), Err(Unbounded::Amount));
    assert_eq!(written(16, [None; 6], Some(0)), Ok(at(2, 36)));
    assert_eq!(written(72, [None; 6], Some(0)), Ok(Vec::new()));
    assert_eq!(written(35, [None; 6], None), Ok(at(1, 16)));
    assert_eq!(written(7, [None; 6], Some(1)), Err(Unbounded::Amount));
    assert_eq!(written(7, [None; 6], Some(minus(22))), Ok(Vec::new()));
}

#[test]
fn mappings_and_more_are_told_apart() {
    let told = |number, result| effects(number, &Known::all([0x1000; 6], result, NOTHING));
    let mapping = |mapping| Ok(Effects { written: Vec::new(), mapping });
    assert_eq!(told(9, 0x7000), mapping(Some(Mapping::Map)));
    assert_eq!(told(9, minus(12)), mapping(None));
    assert_eq!(told(12, 0x7000), mapping(Some(Mapping::Heap)));
    assert_eq!(told(10, 0), mapping(Some(Mapping::Protect)));
    assert_eq!(told(11, 0), mapping(Some(Mapping::Unmap)));
    assert_eq!(told(25, 0x7000), mapping(Some(Mapping::Move)));
    // A program that could not be run left everything as it was.
    assert_eq!(told(59, minus(2)), mapping(None));
    for (number, name) in
        [(59, "execve"), (60, "exit"), (15, "rt_sigreturn"), (57, "fork"), (158, "arch_prctl")]
    {
        assert_eq!(crate::syscalls::name(number), name);
        assert_eq!(told(number, 0), Err(Unbounded::Call), "{name}");
    }
    assert_eq!(told(400, 0), Err(Unbounded::Call));
}

#[test]
fn the_name_of_a_socket_has_a_longest_length() {
    let huge = |_: u64, bytes: &mut [u8]| {
        bytes.fill(0x7f);
        true
    };
    for read in [NOTHING, &huge] {
        assert_eq!(
            ranges(libc::SYS_getpeername, [3, 0x1000, 0x2000, 0, 0, 0], 0, read),
            [(0x1000, 128), (0x2000, 4)]
        );
        assert_eq!(ranges(libc::SYS_accept4, [3, 0, 0, 0, 0, 0], 7, read), []);
    }
    let known = Known { arguments: [None; 6], result: Some(0), read: NOTHING };
    let bounded = effects(libc::SYS_getsockname.try_into().unwrap(), &known).expect("bounded");
    assert_eq!(bounded.written[0], Written { place: Place::Argument(1), length: 128 });
    // Of another value there is none.
    assert_eq!(effects(libc::SYS_getsockopt.try_into().unwrap(), &known), Err(Unbounded::Amount));
}
