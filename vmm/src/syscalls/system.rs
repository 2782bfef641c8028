//! Calls on the whole system: mounts, modules, keys, accounting, security; and those that are no longer there.

use super::constants::{MOUNT, SPLICE, UMOUNT};
use super::rows;
use super::shape::Beyond::{Memory, Registers};
use super::shape::Extent::{
    Arg, ArgTimes, Iovec, PointedBy, Result, ResultTimes, Sized, String, Struct, Unknown,
};
use super::shape::Kind::{Address, DirFd, Fd, Flags, Hex, In, InOut, Int, Out, Path, Pid, Size, Unsigned};
use super::shape::Served::{Fixed, Missing, Mixed};
use super::structs::{
    ATTR, KEXEC_SEGMENT, LANDLOCK_ATTR, LSM_CONTEXT, MNT_ID_REQ, MOUNT_ATTR, PERF_ATTR, STATMOUNT, UNSIGNED,
    USTAT, WORD, WORDS,
};

/// Why the calls of administrators fail.
const FORBIDDEN: &str = "as without the capability that it takes: it would change the host";

rows! {
    103 syslog(kind: Int, bufp: Out(Result(2)), len: Int) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    134 uselib(library: Path) -> Int, Missing;
    136 ustat(dev: Hex, ubuf: Out(Struct(&USTAT))) -> Int, Missing;
    139 sysfs(option: Int, arg1: Hex, arg2: Out(Unknown)) -> Int, Missing;
    153 vhangup() -> Int, Fixed(libc::EPERM, FORBIDDEN);
    154 modify_ldt(func: Int, ptr: Out(Result(2)), bytecount: Size) -> Int, Missing, Registers;
    155 pivot_root(new_root: Path, put_old: Path) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    156 _sysctl(args: Address) -> Int, Missing;
    161 chroot(path: Path) -> Int, Mixed;
    163 acct(filename: Path) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    165 mount(source: Path, target: Path, filesystemtype: Path, mountflags: Flags(&MOUNT),
        data: Address) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    166 umount2(target: Path, flags: Flags(&UMOUNT)) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    167 swapon(path: Path, swapflags: Hex) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    168 swapoff(path: Path) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    169 reboot(magic: Hex, magic2: Hex, op: Hex, arg: Address) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    170 sethostname(name: In(Arg(1)), len: Size) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    171 setdomainname(name: In(Arg(1)), len: Size) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    172 iopl(level: Int) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    173 ioperm(from: Hex, num: Hex, turn_on: Int) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    174 create_module(name: Path, size: Size) -> Address, Missing;
    175 init_module(module_image: Address, len: Size, param_values: In(String)) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    176 delete_module(name: Path, flags: Hex) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    177 get_kernel_syms(table: Address) -> Int, Missing;
    178 query_module(name: Path, which: Int, buf: Address, bufsize: Size, ret: Address) -> Int, Missing;
    179 quotactl(op: Hex, special: Path, id: Int, addr: Out(Unknown)) -> Int, Missing;
    180 nfsservctl(cmd: Int, argp: Address, resp: Address) -> Int, Missing;
    181 getpmsg() -> Int, Missing;
    182 putpmsg() -> Int, Missing;
    183 afs_syscall() -> Int, Missing;
    184 tuxcall() -> Int, Missing;
    185 security() -> Int, Missing;
    205 set_thread_area(u_info: Address) -> Int, Missing;
    211 get_thread_area(u_info: Address) -> Int, Missing;
    212 lookup_dcookie(cookie: Hex, buffer: Out(Result(2)), len: Size) -> Size, Missing;
    236 vserver() -> Int, Missing;
    246 kexec_load(entry: Hex, nr_segments: Size, segments: In(ArgTimes(1, &KEXEC_SEGMENT)),
        flags: Hex) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    248 add_key(kind: Path, description: Path, payload: In(Arg(3)), plen: Size, keyring: Int) -> Int, Missing;
    249 request_key(kind: Path, description: Path, callout_info: Path, dest_keyring: Int) -> Int, Missing;
    250 keyctl(operation: Int, arg2: Hex, arg3: Hex, arg4: Hex, arg5: Hex) -> Int, Missing, Memory;
    278 vmsplice(fd: Fd, iov: In(Iovec(2)), nr_segs: Size, flags: Flags(&SPLICE)) -> Size, Mixed;
    298 perf_event_open(attr: In(Struct(&PERF_ATTR)), pid: Pid, cpu: Int, group_fd: Fd, flags: Hex) -> Fd,
        Missing;
    313 finit_module(fd: Fd, param_values: In(String), flags: Hex) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    320 kexec_file_load(kernel_fd: Fd, initrd_fd: Fd, cmdline_len: Size, cmdline: In(Arg(2)),
        flags: Hex) -> Int, Fixed(libc::EPERM, FORBIDDEN);
    321 bpf(cmd: Int, attr: In(Sized(&ATTR, 2)), size: Unsigned) -> Int, Missing, Memory;
    428 open_tree(dirfd: DirFd, pathname: Path, flags: Hex) -> Fd, Missing;
    429 move_mount(from_dirfd: DirFd, from_pathname: Path, to_dirfd: DirFd, to_pathname: Path,
        flags: Hex) -> Int, Missing;
    430 fsopen(fsname: Path, flags: Hex) -> Fd, Missing;
    431 fsconfig(fd: Fd, cmd: Int, key: Path, value: Address, aux: Int) -> Int, Missing;
    432 fsmount(fd: Fd, flags: Hex, attr_flags: Hex) -> Fd, Missing;
    433 fspick(dirfd: DirFd, pathname: Path, flags: Hex) -> Fd, Missing;
    442 mount_setattr(dirfd: DirFd, pathname: Path, flags: Hex, uattr: In(Sized(&MOUNT_ATTR, 4)),
        usize: Size) -> Int, Missing;
    443 quotactl_fd(fd: Fd, cmd: Hex, id: Int, addr: Out(Unknown)) -> Int, Missing;
    444 landlock_create_ruleset(attr: In(Sized(&LANDLOCK_ATTR, 1)), size: Size, flags: Hex) -> Fd, Missing;
    445 landlock_add_rule(ruleset_fd: Fd, rule_type: Int, rule_attr: Address, flags: Hex) -> Int, Missing;
    446 landlock_restrict_self(ruleset_fd: Fd, flags: Hex) -> Int, Missing;
    457 statmount(req: In(Struct(&MNT_ID_REQ)), buf: Out(Sized(&STATMOUNT, 2)), bufsize: Size,
        flags: Hex) -> Int, Missing;
    458 listmount(req: In(Struct(&MNT_ID_REQ)), mnt_ids: Out(ResultTimes(2, &WORD)), nr_mnt_ids: Size,
        flags: Hex) -> Size, Missing;
    459 lsm_get_self_attr(attr: Unsigned, ctx: Out(PointedBy(2, &LSM_CONTEXT)),
        size: InOut(Struct(&UNSIGNED)), flags: Hex) -> Int, Missing;
    460 lsm_set_self_attr(attr: Unsigned, ctx: In(Sized(&LSM_CONTEXT, 2)), size: Unsigned,
        flags: Hex) -> Int, Missing;
    461 lsm_list_modules(ids: Out(PointedBy(1, &WORDS)), size: InOut(Struct(&UNSIGNED)), flags: Hex) -> Int,
        Missing;
}
