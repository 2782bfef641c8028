//! Calls on paths, directories and the contents of files.

use super::commands::{OPEN_MODE, OPENAT_MODE};
use super::constants::{
    ACCESS, ACCESS_AT, AT, FADVICE, FALLOCATE, FLOCK, OPEN, RENAME, RWF, SEEK, SPLICE, STATX_AT, STATX_MASK,
    SYNC_RANGE, UNLINK, XATTR,
};
use super::rows;
use super::shape::Extent::{Arg, Iovec, Result, ResultTimes, Sized, Struct, Unknown};
use super::shape::Kind::{
    By, Device, DirFd, Enum, Fd, FileType, Flags, Hex, Id, In, InOut, Int, Mode, Off, Out, Path, Size,
    Unsigned,
};
use super::shape::Served::{Host, Missing, Mixed, Ours};
use super::structs::{
    BYTE, BYTES, CACHE_RANGE, CACHESTAT, FILE_HANDLE, INT, LONG, OPEN_HOW, STAT, STATFS, STATX, TIMESPECS,
    TIMEVALS, UTIMBUF,
};

rows! {
    0 read(fd: Fd, buf: Out(Result(2)), count: Size) -> Size, Mixed;
    1 write(fd: Fd, buf: In(Arg(2)), count: Size) -> Size, Mixed;
    2 open(pathname: Path, flags: Flags(&OPEN), mode: By(&OPEN_MODE)) -> Fd, Mixed;
    4 stat(pathname: Path, statbuf: Out(Struct(&STAT))) -> Int, Host;
    5 fstat(fd: Fd, statbuf: Out(Struct(&STAT))) -> Int, Host;
    6 lstat(pathname: Path, statbuf: Out(Struct(&STAT))) -> Int, Host;
    8 lseek(fd: Fd, offset: Off, whence: Enum(SEEK)) -> Int, Host;
    17 pread64(fd: Fd, buf: Out(Result(2)), count: Size, offset: Off) -> Size, Mixed;
    18 pwrite64(fd: Fd, buf: In(Arg(2)), count: Size, offset: Off) -> Size, Mixed;
    19 readv(fd: Fd, iov: Out(Iovec(2)), iovcnt: Int) -> Size, Mixed;
    20 writev(fd: Fd, iov: In(Iovec(2)), iovcnt: Int) -> Size, Mixed;
    21 access(pathname: Path, mode: Flags(&ACCESS)) -> Int, Host;
    40 sendfile(out_fd: Fd, in_fd: Fd, offset: InOut(Struct(&LONG)),
        count: Size) -> Size, Mixed;
    73 flock(fd: Fd, operation: Flags(&FLOCK)) -> Int, Mixed;
    74 fsync(fd: Fd) -> Int, Mixed;
    75 fdatasync(fd: Fd) -> Int, Mixed;
    76 truncate(path: Path, length: Off) -> Int, Mixed;
    77 ftruncate(fd: Fd, length: Off) -> Int, Mixed;
    78 getdents(fd: Fd, dirp: Out(ResultTimes(2, &BYTES)), count: Size) -> Size, Host;
    79 getcwd(buf: Out(ResultTimes(1, &BYTE)), size: Size) -> Size, Mixed;
    80 chdir(path: Path) -> Int, Mixed;
    81 fchdir(fd: Fd) -> Int, Mixed;
    82 rename(oldpath: Path, newpath: Path) -> Int, Host;
    83 mkdir(pathname: Path, mode: Mode) -> Int, Host;
    84 rmdir(pathname: Path) -> Int, Host;
    85 creat(pathname: Path, mode: Mode) -> Fd, Mixed;
    86 link(oldpath: Path, newpath: Path) -> Int, Host;
    87 unlink(pathname: Path) -> Int, Host;
    88 symlink(target: Path, linkpath: Path) -> Int, Host;
    89 readlink(pathname: Path, buf: Out(Result(2)), bufsiz: Size) -> Size, Mixed;
    90 chmod(pathname: Path, mode: Mode) -> Int, Host;
    91 fchmod(fd: Fd, mode: Mode) -> Int, Host;
    92 chown(pathname: Path, owner: Id, group: Id) -> Int, Host;
    93 fchown(fd: Fd, owner: Id, group: Id) -> Int, Host;
    94 lchown(pathname: Path, owner: Id, group: Id) -> Int, Host;
    95 umask(mask: Mode) -> Mode, Ours;
    132 utime(filename: Path, times: In(Struct(&UTIMBUF))) -> Int, Host;
    133 mknod(pathname: Path, mode: FileType, dev: Device) -> Int, Host;
    137 statfs(path: Path, buf: Out(Struct(&STATFS))) -> Int, Mixed;
    138 fstatfs(fd: Fd, buf: Out(Struct(&STATFS))) -> Int, Host;
    162 sync() -> Int, Mixed;
    187 readahead(fd: Fd, offset: Off, count: Size) -> Int, Host;
    188 setxattr(path: Path, name: Path, value: In(Arg(3)), size: Size, flags: Flags(&XATTR)) -> Int, Mixed;
    189 lsetxattr(path: Path, name: Path, value: In(Arg(3)), size: Size, flags: Flags(&XATTR)) -> Int,
        Mixed;
    190 fsetxattr(fd: Fd, name: Path, value: In(Arg(3)), size: Size, flags: Flags(&XATTR)) -> Int, Mixed;
    191 getxattr(path: Path, name: Path, value: Out(Result(3)),
        size: Size) -> Size, Mixed;
    192 lgetxattr(path: Path, name: Path, value: Out(Result(3)),
        size: Size) -> Size, Mixed;
    193 fgetxattr(fd: Fd, name: Path, value: Out(Result(3)),
        size: Size) -> Size, Mixed;
    194 listxattr(path: Path, list: Out(Result(2)), size: Size) -> Size, Mixed;
    195 llistxattr(path: Path, list: Out(Result(2)), size: Size) -> Size, Mixed;
    196 flistxattr(fd: Fd, list: Out(Result(2)), size: Size) -> Size, Mixed;
    197 removexattr(path: Path, name: Path) -> Int, Mixed;
    198 lremovexattr(path: Path, name: Path) -> Int, Mixed;
    199 fremovexattr(fd: Fd, name: Path) -> Int, Mixed;
    217 getdents64(fd: Fd, dirp: Out(ResultTimes(2, &BYTES)), count: Size) -> Size, Host;
    221 fadvise64(fd: Fd, offset: Off, len: Size, advice: Enum(FADVICE)) -> Int, Host;
    235 utimes(filename: Path, times: In(Struct(&TIMEVALS))) -> Int, Host;
    257 openat(dirfd: DirFd, pathname: Path, flags: Flags(&OPEN), mode: By(&OPENAT_MODE)) -> Fd, Mixed;
    258 mkdirat(dirfd: DirFd, pathname: Path, mode: Mode) -> Int, Host;
    259 mknodat(dirfd: DirFd, pathname: Path, mode: FileType, dev: Device) -> Int, Host;
    260 fchownat(dirfd: DirFd, pathname: Path, owner: Id, group: Id, flags: Flags(&AT)) -> Int, Host;
    261 futimesat(dirfd: DirFd, pathname: Path, times: In(Struct(&TIMEVALS))) -> Int, Host;
    262 newfstatat(dirfd: DirFd, pathname: Path, statbuf: Out(Struct(&STAT)), flags: Flags(&AT)) -> Int, Host;
    263 unlinkat(dirfd: DirFd, pathname: Path, flags: Flags(&UNLINK)) -> Int, Host;
    264 renameat(olddirfd: DirFd, oldpath: Path, newdirfd: DirFd, newpath: Path) -> Int, Host;
    265 linkat(olddirfd: DirFd, oldpath: Path, newdirfd: DirFd, newpath: Path,
        flags: Flags(&AT)) -> Int, Host;
    266 symlinkat(target: Path, newdirfd: DirFd, linkpath: Path) -> Int, Host;
    267 readlinkat(dirfd: DirFd, pathname: Path, buf: Out(Result(3)), bufsiz: Size) -> Size, Mixed;
    268 fchmodat(dirfd: DirFd, pathname: Path, mode: Mode) -> Int, Host;
    269 faccessat(dirfd: DirFd, pathname: Path, mode: Flags(&ACCESS)) -> Int, Host;
    275 splice(fd_in: Fd, off_in: InOut(Struct(&LONG)), fd_out: Fd, off_out: InOut(Struct(&LONG)),
        len: Size, flags: Flags(&SPLICE)) -> Size, Mixed;
    276 tee(fd_in: Fd, fd_out: Fd, len: Size, flags: Flags(&SPLICE)) -> Size, Mixed;
    277 sync_file_range(fd: Fd, offset: Off, nbytes: Off, flags: Flags(&SYNC_RANGE)) -> Int, Mixed;
    280 utimensat(dirfd: DirFd, pathname: Path, times: In(Struct(&TIMESPECS)),
        flags: Flags(&AT)) -> Int, Host;
    285 fallocate(fd: Fd, mode: Flags(&FALLOCATE), offset: Off, len: Off) -> Int, Mixed;
    295 preadv(fd: Fd, iov: Out(Iovec(2)), iovcnt: Int, offset: Off, offset_high: Off) -> Size, Mixed;
    296 pwritev(fd: Fd, iov: In(Iovec(2)), iovcnt: Int, offset: Off, offset_high: Off) -> Size, Mixed;
    303 name_to_handle_at(dirfd: DirFd, pathname: Path, handle: Out(Unknown), mount_id: Out(Struct(&INT)),
        flags: Flags(&AT)) -> Int, Missing;
    304 open_by_handle_at(mount_fd: Fd, handle: In(Struct(&FILE_HANDLE)), flags: Flags(&OPEN)) -> Fd, Missing;
    306 syncfs(fd: Fd) -> Int, Mixed;
    316 renameat2(olddirfd: DirFd, oldpath: Path, newdirfd: DirFd, newpath: Path,
        flags: Flags(&RENAME)) -> Int, Host;
    326 copy_file_range(fd_in: Fd, off_in: InOut(Struct(&LONG)), fd_out: Fd, off_out: InOut(Struct(&LONG)),
        len: Size, flags: Hex) -> Size, Mixed;
    327 preadv2(fd: Fd, iov: Out(Iovec(2)), iovcnt: Int, offset: Off, offset_high: Off,
        flags: Flags(&RWF)) -> Size, Mixed;
    328 pwritev2(fd: Fd, iov: In(Iovec(2)), iovcnt: Int, offset: Off, offset_high: Off,
        flags: Flags(&RWF)) -> Size, Mixed;
    332 statx(dirfd: DirFd, pathname: Path, flags: Flags(&STATX_AT), mask: Flags(&STATX_MASK),
        statxbuf: Out(Struct(&STATX))) -> Int, Host;
    437 openat2(dirfd: DirFd, pathname: Path, how: In(Sized(&OPEN_HOW, 3)), size: Size) -> Fd, Mixed;
    439 faccessat2(dirfd: DirFd, pathname: Path, mode: Flags(&ACCESS), flags: Flags(&ACCESS_AT)) -> Int, Host;
    451 cachestat(fd: Fd, range: In(Struct(&CACHE_RANGE)), cstat: Out(Struct(&CACHESTAT)),
        flags: Unsigned) -> Int, Host;
    452 fchmodat2(dirfd: DirFd, pathname: Path, mode: Mode, flags: Flags(&AT)) -> Int, Host;
}
