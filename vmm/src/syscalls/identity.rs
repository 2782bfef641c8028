//! Calls on users, groups, limits and what the process used.

use super::constants::{RANDOM, RESOURCE, USAGE_OF};
use super::rows;
use super::shape::Extent::{ArgTimes, ResultTimes, Struct};
use super::shape::Kind::{Enum, Flags, Hex, Id, In, InOut, Int, Out, Pid, Size};
use super::shape::Served::{Host, Mixed, Ours};
use super::structs::{CAP_DATA, CAP_HEADER, NOISE, RLIMIT, RUSAGE, SYSINFO, UNSIGNED, UTSNAME};

rows! {
    63 uname(buf: Out(Struct(&UTSNAME))) -> Int, Ours;
    97 getrlimit(resource: Enum(RESOURCE), rlim: Out(Struct(&RLIMIT))) -> Int, Ours;
    98 getrusage(who: Enum(USAGE_OF), usage: Out(Struct(&RUSAGE))) -> Int, Ours;
    99 sysinfo(info: Out(Struct(&SYSINFO))) -> Int, Host;
    102 getuid() -> Int, Ours;
    104 getgid() -> Int, Ours;
    105 setuid(uid: Id) -> Int, Ours;
    106 setgid(gid: Id) -> Int, Ours;
    107 geteuid() -> Int, Ours;
    108 getegid() -> Int, Ours;
    113 setreuid(ruid: Id, euid: Id) -> Int, Ours;
    114 setregid(rgid: Id, egid: Id) -> Int, Ours;
    115 getgroups(size: Int,
        list: Out(ResultTimes(0, &UNSIGNED))) -> Size, Ours;
    116 setgroups(size: Int, list: In(ArgTimes(0, &UNSIGNED))) -> Int, Ours;
    117 setresuid(ruid: Id, euid: Id, suid: Id) -> Int, Ours;
    118 getresuid(ruid: Out(Struct(&UNSIGNED)), euid: Out(Struct(&UNSIGNED)),
        suid: Out(Struct(&UNSIGNED))) -> Int, Ours;
    119 setresgid(rgid: Id, egid: Id, sgid: Id) -> Int, Ours;
    120 getresgid(rgid: Out(Struct(&UNSIGNED)), egid: Out(Struct(&UNSIGNED)),
        sgid: Out(Struct(&UNSIGNED))) -> Int, Ours;
    122 setfsuid(fsuid: Id) -> Int, Ours;
    123 setfsgid(fsgid: Id) -> Int, Ours;
    125 capget(hdrp: InOut(Struct(&CAP_HEADER)), datap: Out(Struct(&CAP_DATA))) -> Int, Ours;
    126 capset(hdrp: InOut(Struct(&CAP_HEADER)), datap: In(Struct(&CAP_DATA))) -> Int, Ours;
    135 personality(persona: Hex) -> Int, Ours;
    160 setrlimit(resource: Enum(RESOURCE), rlim: In(Struct(&RLIMIT))) -> Int, Ours;
    302 prlimit64(pid: Pid, resource: Enum(RESOURCE), new_limit: In(Struct(&RLIMIT)),
        old_limit: Out(Struct(&RLIMIT))) -> Int, Ours;
    318 getrandom(buf: Out(ResultTimes(1, &NOISE)), buflen: Size, flags: Flags(&RANDOM)) -> Size, Mixed;
}
