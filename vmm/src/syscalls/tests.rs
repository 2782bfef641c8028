//! That the table holds together.

use super::shape::{Argument, Beyond, Bits, Call, Extent, Field, Form, Kind, Served, Struct};
use super::{GROUPS, find, name};
use std::collections::BTreeSet;

fn calls() -> impl Iterator<Item = &'static Call> {
    GROUPS.iter().flat_map(|(_, calls)| *calls)
}

#[test]
fn numbers_are_sorted_in_each_group_and_have_no_gaps() {
    for (group, calls) in GROUPS {
        assert!(calls.windows(2).all(|pair| pair[0].number < pair[1].number), "{group}");
    }
    let numbers: BTreeSet<u16> = calls().map(|call| call.number).collect();
    assert_eq!(numbers.len(), calls().count());
    assert!((0..=334).chain(424..=462).eq(numbers));
    for call in calls() {
        assert!(std::ptr::eq(find(call.number.into()).expect("in the index"), call), "{}", call.name);
    }
    assert!(find(335).is_none() && find(463).is_none() && find(u64::MAX).is_none());
}

#[test]
fn names_are_unique_and_those_of_libc() {
    let names: BTreeSet<&str> = calls().map(|call| call.name).collect();
    assert_eq!(names.len(), calls().count());
    let known = [
        (libc::SYS_read, "read"),
        (libc::SYS_rseq, "rseq"),
        (libc::SYS_clone3, "clone3"),
        (libc::SYS__sysctl, "_sysctl"),
        (libc::SYS_set_mempolicy_home_node, "set_mempolicy_home_node"),
    ];
    for (number, expected) in known {
        assert_eq!(name(u64::try_from(number).expect("positive")), expected);
    }
    assert_eq!(name(400), "without a name");
    assert_eq!(name(u64::MAX), "without a name");
}

/// The arguments that a kind refers to.
fn refers_to(kind: Kind) -> Vec<usize> {
    match kind {
        Kind::In(extent) | Kind::Out(extent) | Kind::InOut(extent) | Kind::Left(extent) => match extent {
            Extent::Sized(_, n)
            | Extent::Arg(n)
            | Extent::ArgTimes(n, _)
            | Extent::Result(n)
            | Extent::ResultTimes(n, _)
            | Extent::Iovec(n)
            | Extent::PointedBy(n, _)
            | Extent::Messages(n)
            | Extent::Bits(n)
            | Extent::Pages(n) => vec![n],
            Extent::Bytes(_)
            | Extent::Struct(_)
            | Extent::String
            | Extent::Strings
            | Extent::Message
            | Extent::Unknown => Vec::new(),
        },
        Kind::By(choices) => {
            let chosen = choices.table.iter().map(|(_, kind)| *kind).chain([choices.otherwise]);
            chosen.flat_map(refers_to).chain([choices.by]).collect()
        }
        Kind::Request(n) => vec![n],
        _ => Vec::new(),
    }
}

/// A kind and those that it may turn into.
fn all_kinds(kind: Kind) -> Vec<Kind> {
    match kind {
        Kind::By(choices) => choices.table.iter().map(|(_, kind)| *kind).chain([choices.otherwise]).collect(),
        kind => vec![kind],
    }
}

#[test]
fn arguments_refer_to_others_that_are_numbers() {
    for call in calls() {
        assert!(call.arguments.len() <= 6, "{}", call.name);
        let names: BTreeSet<&str> = call.arguments.iter().map(|argument| argument.name).collect();
        assert_eq!(names.len(), call.arguments.len(), "{}: two arguments have one name", call.name);
        for (n, Argument { name, kind }) in call.arguments.iter().enumerate() {
            for other in refers_to(*kind) {
                let of = call.arguments.get(other).map(|argument| argument.kind);
                let counts = matches!(
                    of,
                    Some(
                        Kind::Int
                            | Kind::Long
                            | Kind::Unsigned
                            | Kind::Size
                            | Kind::Hex
                            | Kind::Enum(_)
                            | Kind::Flags(_)
                            | Kind::CloneFlags(_)
                            | Kind::Futex
                            | Kind::Command
                    )
                );
                let points = matches!(
                    (kind, of),
                    (Kind::Out(Extent::PointedBy(..)), Some(Kind::InOut(Extent::Struct(shape)))) if shape.size == 4
                );
                assert!(other != n && (counts || points), "{}: {name} refers to argument {other}", call.name);
            }
        }
    }
}

#[test]
fn choices_are_made_by_their_mask() {
    for call in calls() {
        for argument in call.arguments {
            let Kind::By(choices) = argument.kind else { continue };
            let mut seen = BTreeSet::new();
            for (value, _) in choices.table {
                assert_eq!(value & choices.mask, *value, "{}: {}", call.name, argument.name);
                assert!(seen.insert(value), "{}: {} has {value:#x} twice", call.name, argument.name);
            }
        }
    }
}

#[test]
fn what_the_host_serves_alone_has_known_extents() {
    for call in calls().filter(|call| call.served == Served::Host) {
        assert_eq!(call.beyond, Beyond::Nothing, "{}", call.name);
        for kind in call.arguments.iter().flat_map(|argument| all_kinds(argument.kind)) {
            let unknown =
                matches!(kind, Kind::In(Extent::Unknown) | Kind::Out(Extent::Unknown) | Kind::InOut(_));
            assert!(!unknown, "{}", call.name);
        }
    }
}

/// The structures that a kind refers to.
fn structures(kind: Kind) -> Vec<&'static Struct> {
    match kind {
        Kind::In(extent) | Kind::Out(extent) | Kind::InOut(extent) | Kind::Left(extent) => match extent {
            Extent::Struct(shape)
            | Extent::Sized(shape, _)
            | Extent::ArgTimes(_, shape)
            | Extent::ResultTimes(_, shape)
            | Extent::PointedBy(_, shape) => vec![shape],
            _ => Vec::new(),
        },
        Kind::Nested(shape) => vec![shape],
        Kind::By(_) => all_kinds(kind).into_iter().flat_map(structures).collect(),
        _ => Vec::new(),
    }
}

fn check(shape: &'static Struct) {
    let (Form::Whole(fields) | Form::Part(fields)) = shape.form else { return };
    for Field { name, at, width, kind } in fields {
        assert!((at + width) as u64 <= shape.size, "{}.{name}", shape.name);
        match kind {
            Kind::Nested(inner) => {
                assert_eq!(inner.size, *width as u64, "{}.{name}", shape.name);
                check(inner);
            }
            _ => assert!([1, 2, 4, 8].contains(width), "{}.{name}", shape.name),
        }
    }
}

#[test]
fn fields_are_inside_their_structures() {
    calls().flat_map(|call| call.arguments).flat_map(|argument| structures(argument.kind)).for_each(check);
}

#[test]
fn structures_have_the_sizes_of_libc() {
    use super::structs as own;
    let pairs = [
        (own::STAT.size, size_of::<libc::stat>()),
        (own::STATX.size, size_of::<libc::statx>()),
        (own::STATFS.size, size_of::<libc::statfs>()),
        (own::RUSAGE.size, size_of::<libc::rusage>()),
        (own::SYSINFO.size, size_of::<libc::sysinfo>()),
        (own::UTSNAME.size, size_of::<libc::utsname>()),
        (own::TIMEX.size, size_of::<libc::timex>()),
        (own::SIGINFO.size, size_of::<libc::siginfo_t>()),
        (own::EPOLL_EVENT.size, size_of::<libc::epoll_event>()),
        (own::FLOCK64.size, size_of::<libc::flock>()),
        (own::SHMID.size, size_of::<libc::shmid_ds>()),
        (own::MSQID.size, size_of::<libc::msqid_ds>()),
        (own::SEMID.size, size_of::<libc::semid_ds>()),
        (own::CLONE_ARGS.size, size_of::<libc::clone_args>()),
        (own::OPEN_HOW.size, size_of::<libc::open_how>()),
        (own::MQ_ATTR.size, size_of::<libc::mq_attr>()),
        (own::SIGEVENT.size, size_of::<libc::sigevent>()),
        (own::ITIMERSPEC.size, size_of::<libc::itimerspec>()),
        (own::STACK.size, size_of::<libc::stack_t>()),
        (super::effects::MSGHDR, size_of::<libc::msghdr>()),
        (super::effects::MMSGHDR, size_of::<libc::mmsghdr>()),
    ];
    for (n, (own, libc)) in pairs.into_iter().enumerate() {
        assert_eq!(own, libc as u64, "pair {n}");
    }
}

/// That names have libc's values.
macro_rules! same {
    ($names:expr; $($name:ident)*) => {
        $(assert!(
            $names.contains(&(u64::from(libc::$name as u32), stringify!($name))),
            "{}: {:#x}", stringify!($name), libc::$name
        );)*
    };
}

#[test]
#[allow(
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    clippy::unnecessary_cast,
    reason = "constants, bit for bit"
)]
fn constants_are_those_of_libc() {
    use super::{commands, constants as own, sockets};
    let bits = |bits: &'static Bits| [bits.values, bits.bits].concat();
    same!(bits(&own::OPEN); O_RDONLY O_WRONLY O_RDWR O_CREAT O_EXCL O_NOCTTY O_TRUNC O_APPEND O_NONBLOCK O_SYNC
        O_DSYNC O_DIRECT O_NOFOLLOW O_NOATIME O_CLOEXEC O_PATH O_TMPFILE O_DIRECTORY);
    same!(bits(&own::MAP); MAP_SHARED MAP_PRIVATE MAP_FIXED MAP_ANONYMOUS MAP_32BIT MAP_NORESERVE MAP_POPULATE
        MAP_NONBLOCK MAP_GROWSDOWN MAP_DENYWRITE MAP_EXECUTABLE MAP_LOCKED MAP_STACK MAP_HUGETLB MAP_SYNC
        MAP_FIXED_NOREPLACE);
    same!(bits(&own::CLONE); CLONE_VM CLONE_FS CLONE_FILES CLONE_SIGHAND CLONE_PIDFD CLONE_PTRACE CLONE_VFORK
        CLONE_PARENT CLONE_THREAD CLONE_NEWNS CLONE_SYSVSEM CLONE_SETTLS CLONE_PARENT_SETTID CLONE_CHILD_CLEARTID
        CLONE_CHILD_SETTID CLONE_NEWUSER CLONE_IO);
    same!(own::MADVICE; MADV_NORMAL MADV_DONTNEED MADV_FREE MADV_REMOVE MADV_HUGEPAGE MADV_DONTDUMP MADV_COLD);
    same!(bits(&own::EPOLL); EPOLLIN EPOLLPRI EPOLLOUT EPOLLERR EPOLLHUP EPOLLRDHUP EPOLLONESHOT EPOLLET);
    same!(bits(&own::POLL); POLLIN POLLPRI POLLOUT POLLERR POLLHUP POLLNVAL POLLRDHUP);
    same!(bits(&own::INOTIFY); IN_ACCESS IN_MODIFY IN_ATTRIB IN_DELETE IN_MOVE_SELF IN_ONESHOT IN_MASK_ADD);
    same!(bits(&own::MOUNT); MS_RDONLY MS_NOSUID MS_BIND MS_MOVE MS_REC MS_PRIVATE MS_RELATIME MS_STRICTATIME);
    same!(bits(&own::STATX_MASK); STATX_ALL STATX_BASIC_STATS STATX_BTIME STATX_MNT_ID);
    same!(own::RESOURCE; RLIMIT_CPU RLIMIT_FSIZE RLIMIT_STACK RLIMIT_NOFILE RLIMIT_AS RLIMIT_RTTIME);
    same!(own::CLOCKS; CLOCK_REALTIME CLOCK_MONOTONIC CLOCK_BOOTTIME CLOCK_TAI);
    same!(own::USAGE_OF; RUSAGE_SELF RUSAGE_CHILDREN RUSAGE_THREAD);
    same!(bits(&own::WAIT); WNOHANG WSTOPPED WEXITED WCONTINUED WNOWAIT __WCLONE __WALL __WNOTHREAD);
    same!(bits(&own::FALLOCATE); FALLOC_FL_KEEP_SIZE FALLOC_FL_PUNCH_HOLE FALLOC_FL_ZERO_RANGE);
    same!(commands::FCNTL; F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL F_GETLK F_SETLK F_SETLKW F_DUPFD_CLOEXEC
        F_OFD_GETLK F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS F_SETLEASE F_NOTIFY);
    same!(commands::PRCTL; PR_SET_PDEATHSIG PR_SET_NAME PR_GET_NAME PR_SET_SECCOMP PR_SET_MM PR_CAP_AMBIENT
        PR_SET_NO_NEW_PRIVS PR_GET_TID_ADDRESS PR_SET_PTRACER PR_SET_VMA);
    same!(sockets::FAMILY; AF_UNIX AF_INET AF_INET6 AF_NETLINK AF_PACKET AF_VSOCK AF_ALG);
    same!(bits(&sockets::MESSAGE); MSG_OOB MSG_PEEK MSG_DONTWAIT MSG_WAITALL MSG_NOSIGNAL MSG_MORE MSG_TRUNC
        MSG_CMSG_CLOEXEC MSG_FASTOPEN);
}
