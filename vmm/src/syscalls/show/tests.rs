//! Lines that strace 6.1 printed of a program, and ours of the same calls and memory.

use super::Line;
use std::collections::BTreeMap;

/// Memory: what is at some addresses.
#[derive(Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    fn with(mut self, address: u64, bytes: impl AsRef<[u8]>) -> Memory {
        self.0.insert(address, bytes.as_ref().to_vec());
        self
    }

    fn words(self, address: u64, words: &[u64]) -> Memory {
        self.with(address, words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>())
    }

    fn ints(self, address: u64, ints: &[u32]) -> Memory {
        self.with(address, ints.iter().flat_map(|int| int.to_le_bytes()).collect::<Vec<u8>>())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let Some((start, held)) = self.0.range(..=address).next_back() else { return false };
        let Ok(skipped) = usize::try_from(address - start) else { return false };
        let Some(from) = held.get(skipped..skipped + bytes.len()) else { return false };
        bytes.copy_from_slice(from);
        true
    }
}

/// The line of a call whose memory does not change in it.
fn line<const N: usize>(number: i64, arguments: [u64; N], result: i64, memory: &Memory) -> String {
    changing(number, arguments, result, memory, memory)
}

fn changing<const N: usize>(
    number: i64,
    arguments: [u64; N],
    result: i64,
    before: &Memory,
    after: &Memory,
) -> String {
    begin(number, arguments, before)
        .finish(u64::from_le_bytes(result.to_le_bytes()), &|at, bytes| after.read(at, bytes))
}

fn begin<const N: usize>(number: i64, arguments: [u64; N], memory: &Memory) -> Line {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&arguments);
    let number = u64::try_from(number).expect("positive");
    Line::begin(number, all, &|at, bytes| memory.read(at, bytes))
}

/// -1, -100 and so on in a register.
fn minus(number: i64) -> u64 {
    u64::from_le_bytes((-number).to_le_bytes())
}

const CWD: u64 = 0xffff_ff9c;

#[test]
fn files() {
    let memory = Memory::default().with(0x10, b"/etc/passwd\0").with(0x100, b"/nx\0");
    let openat = |flags, result| line(libc::SYS_openat, [CWD, 0x10, flags, 0o644], result, &memory);
    assert_eq!(openat(0o2000000, 3), r#"openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3"#);
    assert_eq!(
        openat(0o2204000, 19),
        r#"openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_NONBLOCK|O_CLOEXEC|O_DIRECTORY) = 19"#
    );
    assert_eq!(openat(0o1102, 3), r#"openat(AT_FDCWD, "/etc/passwd", O_RDWR|O_CREAT|O_TRUNC, 0644) = 3"#);
    assert_eq!(
        line(libc::SYS_openat, [CWD, 0x100, 2], -2, &memory),
        r#"openat(AT_FDCWD, "/nx", O_RDWR)         = -1 ENOENT (No such file or directory)"#
    );
    assert_eq!(
        line(libc::SYS_open, [1, 0], -14, &memory),
        "open(0x1, O_RDONLY)                     = -1 EFAULT (Bad address)"
    );
    assert_eq!(
        line(libc::SYS_access, [0x100, 7], -2, &memory),
        r#"access("/nx", R_OK|W_OK|X_OK)           = -1 ENOENT (No such file or directory)"#
    );
    assert_eq!(line(libc::SYS_lseek, [3, 0, 2], 0, &memory), "lseek(3, 0, SEEK_END)                   = 0");
    assert_eq!(line(libc::SYS_umask, [0o22], 0o22, &memory), "umask(022)                              = 022");
    assert_eq!(
        line(libc::SYS_chown, [0x100, minus(1), 5], -2, &memory),
        r#"chown("/nx", -1, 5)                     = -1 ENOENT (No such file or directory)"#
    );
    assert_eq!(
        line(libc::SYS_mknod, [0x100, 0o20666, 0x103], -2, &memory),
        r#"mknod("/nx", S_IFCHR|0666, makedev(0x1, 0x3)) = -1 ENOENT (No such file or directory)"#
    );
    assert_eq!(line(libc::SYS_flock, [3, 6], 0, &memory), "flock(3, LOCK_EX|LOCK_NB)               = 0");
    let memory = memory.with(0x200, b"/tmp\0");
    assert_eq!(
        line(libc::SYS_getcwd, [0x200, 100], 5, &memory),
        r#"getcwd("/tmp", 100)                     = 5"#
    );
}

#[test]
fn structures_of_files() {
    let mut stat = [0; 144];
    stat[24..28].copy_from_slice(&0o100_644_u32.to_le_bytes());
    stat[48..56].copy_from_slice(&1221_u64.to_le_bytes());
    let memory = Memory::default().with(0x10, b"/etc/passwd\0").with(0x100, stat).with(0x300, b"\0");
    assert_eq!(
        line(libc::SYS_newfstatat, [CWD, 0x10, 0x100, 0], 0, &memory),
        r#"newfstatat(AT_FDCWD, "/etc/passwd", {st_mode=S_IFREG|0644, st_size=1221, ...}, 0) = 0"#
    );
    assert_eq!(
        line(libc::SYS_newfstatat, [CWD, 0x10, 0x7fff_dfae_9520, 0x100], -2, &memory),
        r#"newfstatat(AT_FDCWD, "/etc/passwd", 0x7fffdfae9520, AT_SYMLINK_NOFOLLOW) = -1 ENOENT (No such file or directory)"#
    );
    stat[24..28].copy_from_slice(&0o20_666_u32.to_le_bytes());
    stat[40..48].copy_from_slice(&0x103_u64.to_le_bytes());
    let memory = memory.with(0x100, stat);
    assert_eq!(
        line(libc::SYS_newfstatat, [0, 0x300, 0x100, 0x1000], 0, &memory),
        r#"newfstatat(0, "", {st_mode=S_IFCHR|0666, st_rdev=makedev(0x1, 0x3), ...}, AT_EMPTY_PATH) = 0"#
    );
}

#[test]
fn reading_and_writing() {
    let elf = b"\x7fELF\x02\x01\x01\x03\0\0\0\0\0\0\0\0\x03\0>\0\x01\0\0\0\x10t\x02\0\0\0\0\0and more";
    let memory = Memory::default().with(0x1000, elf).with(0x2000, b"a\tb\n\x01\x012\"\\\xff\x0000");
    assert_eq!(
        line(libc::SYS_read, [3, 0x1000, 832], 832, &memory),
        r#"read(3, "\177ELF\2\1\1\3\0\0\0\0\0\0\0\0\3\0>\0\1\0\0\0\20t\2\0\0\0\0\0"..., 832) = 832"#
    );
    assert_eq!(
        line(libc::SYS_write, [11, 0x2000, 12], 12, &memory),
        r#"write(11, "a\tb\n\1\0012\"\\\377\0000", 12) = 12"#
    );
    assert_eq!(
        line(libc::SYS_read, [3, 0x1000, 4096], 0, &memory),
        r#"read(3, "", 4096)                       = 0"#
    );
    assert_eq!(
        line(libc::SYS_read, [9, 0x7fff_dfae_99e0, 100], -11, &memory),
        "read(9, 0x7fffdfae99e0, 100)            = -1 EAGAIN (Resource temporarily unavailable)"
    );
    assert_eq!(
        line(libc::SYS_write, [99, 0, 10], -9, &memory),
        "write(99, NULL, 10)                     = -1 EBADF (Bad file descriptor)"
    );
    let memory = Memory::default()
        .words(0x100, &[0x1000, 4, 0x2000, 50])
        .with(0x1000, b"abcd")
        .with(0x2000, [b"efgh".to_vec(), vec![0; 46]].concat());
    assert_eq!(
        line(libc::SYS_readv, [9, 0x100, 2], 8, &memory),
        r#"readv(9, [{iov_base="abcd", iov_len=4}, {iov_base="efgh", iov_len=50}], 2) = 8"#
    );
    let random =
        [0x91, 0xc8, 0x5d, 0xa8, 0x90, 0xf4, 0xc7, 0xdd, 0x99, 0xca, 0x12, 0x27, 0x4f, 0x33, 0x91, 0xb3];
    assert_eq!(
        line(libc::SYS_getrandom, [0x1000, 16, 1], 16, &Memory::default().with(0x1000, random)),
        r#"getrandom("\x91\xc8\x5d\xa8\x90\xf4\xc7\xdd\x99\xca\x12\x27\x4f\x33\x91\xb3", 16, GRND_NONBLOCK) = 16"#
    );
}

#[test]
fn memory_calls() {
    let none = Memory::default();
    assert_eq!(
        line(libc::SYS_brk, [0], 0x5636_b3b4_f000, &none),
        "brk(NULL)                               = 0x5636b3b4f000"
    );
    assert_eq!(
        line(libc::SYS_mmap, [0x7ff8_bd3a_d000, 1_400_832, 5, 0x812, 3, 0x26000], 0x7ff8_bd3a_d000, &none),
        "mmap(0x7ff8bd3ad000, 1400832, PROT_READ|PROT_EXEC, MAP_PRIVATE|MAP_FIXED|MAP_DENYWRITE, 3, 0x26000) = 0x7ff8bd3ad000"
    );
    assert_eq!(
        line(libc::SYS_mmap, [0, 4096, 0, 0x22, minus(1), 0], 0x7f70_fba2_e000, &none),
        "mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f70fba2e000"
    );
    assert_eq!(
        line(libc::SYS_mremap, [0, 4096, 8192, 1, 7], -14, &none),
        "mremap(NULL, 4096, 8192, MREMAP_MAYMOVE) = -1 EFAULT (Bad address)"
    );
    assert_eq!(
        line(libc::SYS_mremap, [0, 4096, 8192, 3, 0x10000], -14, &none),
        "mremap(NULL, 4096, 8192, MREMAP_MAYMOVE|MREMAP_FIXED, 0x10000) = -1 EFAULT (Bad address)"
    );
    assert_eq!(
        line(libc::SYS_madvise, [0x1000, 4096, 4], -12, &none),
        "madvise(0x1000, 4096, MADV_DONTNEED)    = -1 ENOMEM (Cannot allocate memory)"
    );
}

#[test]
fn processes() {
    let none = Memory::default();
    assert_eq!(
        line(libc::SYS_clone, [0x0120_0011, 0, 9, 0x7f70_fb84_1a10, 9], 24621, &none),
        "clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, child_tidptr=0x7f70fb841a10) = 24621"
    );
    let memory = Memory::default().ints(0x100, &[0x300]).ints(0x200, &[9]);
    assert_eq!(
        line(libc::SYS_wait4, [minus(1), 0x100, 0, 0], 24621, &memory),
        "wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 24621"
    );
    assert_eq!(
        line(libc::SYS_wait4, [minus(1), 0x200, 0, 0], 24622, &memory),
        "wait4(-1, [{WIFSIGNALED(s) && WTERMSIG(s) == SIGKILL}], 0, NULL) = 24622"
    );
    assert_eq!(
        line(libc::SYS_wait4, [minus(1), 0x7fff_dfae_999c, 0, 0], -10, &memory),
        "wait4(-1, 0x7fffdfae999c, 0, NULL)      = -1 ECHILD (No child processes)"
    );
    assert_eq!(
        begin(libc::SYS_exit_group, [7], &none).never(),
        "exit_group(7)                           = ?"
    );
    let wait = begin(libc::SYS_wait4, [minus(1), 0x100, 0, 0], &memory);
    assert_eq!(wait.unfinished(), "wait4(-1,  <unfinished ...>");
    assert_eq!(
        wait.resume(24621, &|at, bytes| memory.read(at, bytes)),
        "<... wait4 resumed>[{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 24621"
    );
    let memory = Memory::default()
        .with(0x10, b"/nx/exe\0")
        .words(0x100, &[0x200, 0x210, 0])
        .with(0x200, b"a\0")
        .with(0x210, b"b c\0")
        .words(0x300, &[0x200, 0]);
    assert_eq!(
        line(libc::SYS_execve, [0x10, 0x100, 0x300], -2, &memory),
        r#"execve("/nx/exe", ["a", "b c"], 0x300 /* 1 var */) = -1 ENOENT (No such file or directory)"#
    );
    let memory = Memory::default().with(0x10, b"name\0\0\0\0\0\0\0\0\0\0\0\0").words(0x100, &[0, 7_496_292]);
    assert_eq!(
        line(libc::SYS_prctl, [15, 0x10], 0, &memory),
        r#"prctl(PR_SET_NAME, "name")              = 0"#
    );
    assert_eq!(
        line(libc::SYS_prctl, [16, 0x10], 0, &memory),
        r#"prctl(PR_GET_NAME, "name")              = 0"#
    );
    assert_eq!(
        line(libc::SYS_prctl, [38, 1, 0, 0, 0], 0, &memory),
        "prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  = 0"
    );
    assert_eq!(line(libc::SYS_prctl, [1, 9], 0, &memory), "prctl(PR_SET_PDEATHSIG, SIGKILL)        = 0");
    assert_eq!(
        line(libc::SYS_arch_prctl, [0x1002, 0x7ff8_bd38_4740], 0, &memory),
        "arch_prctl(ARCH_SET_FS, 0x7ff8bd384740) = 0"
    );
    assert_eq!(
        line(libc::SYS_futex, [0x7fff_dfae_94a0, 128, 1, 0x100], -11, &memory),
        "futex(0x7fffdfae94a0, FUTEX_WAIT_PRIVATE, 1, {tv_sec=0, tv_nsec=7496292}) = -1 EAGAIN (Resource temporarily unavailable)"
    );
    assert_eq!(
        line(libc::SYS_futex, [0x7ff8_bd55_ba4c, 129, 0x7fff_ffff], 0, &memory),
        "futex(0x7ff8bd55ba4c, FUTEX_WAKE_PRIVATE, 2147483647) = 0"
    );
    assert_eq!(
        line(libc::SYS_futex, [0x7fff_dfae_94a0, 0x189, 1, 0x100, 0, minus(1)], -11, &memory),
        "futex(0x7fffdfae94a0, FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME, 1, {tv_sec=0, tv_nsec=7496292}, FUTEX_BITSET_MATCH_ANY) = -1 EAGAIN (Resource temporarily unavailable)"
    );
    assert_eq!(
        line(400, [1, 2, 3, 4, 5, 6], -38, &none),
        "syscall_0x190(0x1, 0x2, 0x3, 0x4, 0x5, 0x6) = -1 ENOSYS (Function not implemented)"
    );
    assert_eq!(line(libc::SYS_getpid, [], 24620, &none), "getpid()                                = 24620");
}

#[test]
fn signals() {
    let mask = 1 << 1 | 1 << 16 | 1 << 39;
    let memory = Memory::default()
        .words(0x100, &[0x5649_7559_b5c9, 0x1400_0000, 0x7f70_fb88_0050, mask])
        .words(0x200, &[0, 0, 0, 0])
        .words(0x300, &[!(1 << 31 | 1 << 32)]);
    let shown = "{sa_handler=0x56497559b5c9, sa_mask=[INT CHLD RT_8], sa_flags=SA_RESTORER|SA_RESTART, sa_restorer=0x7f70fb880050}";
    assert_eq!(
        line(libc::SYS_rt_sigaction, [10, 0x100, 0, 8], 0, &memory),
        format!("rt_sigaction(SIGUSR1, {shown}, NULL, 8) = 0")
    );
    assert_eq!(
        line(libc::SYS_rt_sigaction, [13, 0, 0x200, 8], 0, &memory),
        "rt_sigaction(SIGPIPE, NULL, {sa_handler=SIG_DFL, sa_mask=[], sa_flags=0}, 8) = 0"
    );
    assert_eq!(
        line(libc::SYS_rt_sigprocmask, [0, 0x300, 0, 8], 0, &memory),
        "rt_sigprocmask(SIG_BLOCK, ~[RTMIN RT_1], NULL, 8) = 0"
    );
    assert_eq!(line(libc::SYS_kill, [24620, 10], 0, &memory), "kill(24620, SIGUSR1)                    = 0");
    let memory = Memory::default().words(0x10, &[0x7fff_dfae_99e0, 0, 8192]);
    assert_eq!(
        line(libc::SYS_sigaltstack, [0x10, 0], 0, &memory),
        "sigaltstack({ss_sp=0x7fffdfae99e0, ss_flags=0, ss_size=8192}, NULL) = 0"
    );
    let memory = Memory::default().words(0x10, &[0, 1000]);
    assert_eq!(
        line(libc::SYS_clock_nanosleep, [0, 0, 0x10, 0x7fff_dfae_9850], 0, &memory),
        "clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=0, tv_nsec=1000}, 0x7fffdfae9850) = 0"
    );
}

#[test]
fn polling() {
    let before = Memory::default().ints(0x100, &[9, 1, 11, 5, u32::MAX, 1]);
    let after = Memory::default().ints(0x100, &[9, 1, 11, 5 | 4 << 16, u32::MAX, 1]);
    assert_eq!(
        changing(libc::SYS_poll, [0x100, 3, 1000], 1, &before, &after),
        "poll([{fd=9, events=POLLIN}, {fd=11, events=POLLIN|POLLOUT}, {fd=-1}], 3, 1000) = 1 ([{fd=11, revents=POLLOUT}])"
    );
    assert_eq!(
        line(libc::SYS_poll, [0x100, 1, 1], 0, &before),
        "poll([{fd=9, events=POLLIN}], 1, 1)     = 0 (Timeout)"
    );
    let before = before.words(0x200, &[1, 5]);
    let after = after.words(0x200, &[0, 999_999_053]);
    assert_eq!(
        changing(libc::SYS_ppoll, [0x100, 2, 0x200, 0, 8], 1, &before, &after),
        "ppoll([{fd=9, events=POLLIN}, {fd=11, events=POLLIN|POLLOUT}], 2, {tv_sec=1, tv_nsec=5}, NULL, 8) = 1 ([{fd=11, revents=POLLOUT}], left {tv_sec=0, tv_nsec=999999053})"
    );
    let before = Memory::default().words(0x100, &[1 | 1 << 11]).words(0x200, &[1, 2000]);
    let after = Memory::default().words(0x100, &[1 | 1 << 11]).words(0x200, &[0, 999_999_767]);
    assert_eq!(
        changing(libc::SYS_pselect6, [12, 0, 0x100, 0, 0x200, 0], 2, &before, &after),
        "pselect6(12, NULL, [0 11], NULL, {tv_sec=1, tv_nsec=2000}, NULL) = 2 (out [0 11], left {tv_sec=0, tv_nsec=999999767})"
    );
    let event = [&[1, 0, 0, 0x80][..], &7_u64.to_le_bytes()].concat();
    let memory = Memory::default().with(0x100, event);
    assert_eq!(
        line(libc::SYS_epoll_ctl, [15, 1, 9, 0x100], 0, &memory),
        "epoll_ctl(15, EPOLL_CTL_ADD, 9, {events=EPOLLIN|EPOLLET, data={u32=7, u64=7}}) = 0"
    );
    assert_eq!(
        line(libc::SYS_epoll_wait, [15, 0x100, 4, 1], 0, &memory),
        "epoll_wait(15, [], 4, 1)                = 0"
    );
    let memory = Memory::default().ints(0x100, &[9, 11]);
    assert_eq!(
        line(libc::SYS_pipe2, [0x100, 0o2004000], 0, &memory),
        "pipe2([9, 11], O_NONBLOCK|O_CLOEXEC)    = 0"
    );
    assert_eq!(
        line(libc::SYS_eventfd2, [0, 0o2000001], 18, &memory),
        "eventfd2(0, EFD_SEMAPHORE|EFD_CLOEXEC)  = 18"
    );
}

#[test]
fn commands() {
    let mut lock = [0; 32];
    lock[0] = 1;
    lock[16] = 10;
    let memory = Memory::default().ints(0x10, &[1]).with(0x100, lock);
    let fcntl = |command, argument, result| line(libc::SYS_fcntl, [9, command, argument], result, &memory);
    assert_eq!(
        fcntl(3, 5, 0x8000),
        "fcntl(9, F_GETFL)                       = 0x8000 (flags O_RDONLY|O_LARGEFILE)"
    );
    assert_eq!(fcntl(1, 5, 0), "fcntl(9, F_GETFD)                       = 0");
    assert_eq!(fcntl(2, 1, 0), "fcntl(9, F_SETFD, FD_CLOEXEC)           = 0");
    assert_eq!(fcntl(4, 0o4000, 0), "fcntl(9, F_SETFL, O_RDONLY|O_NONBLOCK)  = 0");
    assert_eq!(fcntl(1030, 10, 16), "fcntl(9, F_DUPFD_CLOEXEC, 10)           = 16");
    let mut unlocked = lock;
    unlocked[0] = 2;
    assert_eq!(
        changing(libc::SYS_fcntl, [3, 5, 0x100], 0, &memory, &Memory::default().with(0x100, unlocked)),
        "fcntl(3, F_GETLK, {l_type=F_UNLCK, l_whence=SEEK_SET, l_start=0, l_len=10, l_pid=0}) = 0"
    );
    let ioctl = |request, argument, result| line(libc::SYS_ioctl, [9, request, argument], result, &memory);
    assert_eq!(
        ioctl(0x5401, 0x7fff_dfae_94b0, -25),
        "ioctl(9, TCGETS, 0x7fffdfae94b0)        = -1 ENOTTY (Inappropriate ioctl for device)"
    );
    assert_eq!(ioctl(0x541b, 0x10, 0), "ioctl(9, FIONREAD, [1])                 = 0");
    assert_eq!(ioctl(0x5421, 0x10, 0), "ioctl(9, FIONBIO, [1])                  = 0");
    assert_eq!(ioctl(0x5451, 0x10, 0), "ioctl(9, FIOCLEX)                       = 0");
    assert_eq!(
        ioctl(0x8004_aa01, 0x7fff_dfae_971c, -25),
        "ioctl(9, _IOC(_IOC_READ, 0xaa, 0x1, 0x4), 0x7fffdfae971c) = -1 ENOTTY (Inappropriate ioctl for device)"
    );
    let memory = Memory::default().words(0x10, &[8192 * 1024, u64::MAX]);
    assert_eq!(
        line(libc::SYS_prlimit64, [0, 3, 0, 0x10], 0, &memory),
        "prlimit64(0, RLIMIT_STACK, NULL, {rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}) = 0"
    );
}

#[test]
fn sockets() {
    let address = b"\x02\0\xe4\x93\x7f\0\0\x01\0\0\0\0\0\0\0\0";
    let mut long = address.to_vec();
    long.resize(128, 0);
    let before = Memory::default().with(0x100, &long).ints(0x200, &[128]);
    let after = Memory::default().with(0x100, &long).ints(0x200, &[16]);
    assert_eq!(
        line(libc::SYS_socket, [2, 0o2004001, 0], 4, &before),
        "socket(AF_INET, SOCK_STREAM|SOCK_CLOEXEC|SOCK_NONBLOCK, IPPROTO_IP) = 4"
    );
    assert_eq!(
        line(libc::SYS_socket, [1, 0o2000001, 0], 5, &before),
        "socket(AF_UNIX, SOCK_STREAM|SOCK_CLOEXEC, 0) = 5"
    );
    let shown = r#"{sa_family=AF_INET, sin_port=htons(58515), sin_addr=inet_addr("127.0.0.1")}"#;
    assert_eq!(line(libc::SYS_bind, [12, 0x100, 16], 0, &before), format!("bind(12, {shown}, 16) = 0"));
    assert_eq!(
        changing(libc::SYS_getsockname, [12, 0x100, 0x200], 0, &before, &after),
        format!("getsockname(12, {shown}, [128 => 16]) = 0")
    );
    assert_eq!(
        changing(libc::SYS_accept4, [12, 0x100, 0x200, 0o4000], 14, &before, &after),
        format!("accept4(12, {shown}, [128 => 16], SOCK_NONBLOCK) = 14")
    );
    let memory =
        Memory::default().ints(0x10, &[1]).ints(0x20, &[4]).with(0x100, b"hi there").ints(0x40, &[0]);
    assert_eq!(
        line(libc::SYS_setsockopt, [12, 1, 2, 0x10, 4], 0, &memory),
        "setsockopt(12, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0"
    );
    assert_eq!(
        line(libc::SYS_setsockopt, [13, 6, 1, 0x10, 4], 0, &memory),
        "setsockopt(13, SOL_TCP, TCP_NODELAY, [1], 4) = 0"
    );
    assert_eq!(
        line(libc::SYS_getsockopt, [13, 1, 4, 0x40, 0x20], 0, &memory),
        "getsockopt(13, SOL_SOCKET, SO_ERROR, [0], [4]) = 0"
    );
    assert_eq!(
        line(libc::SYS_sendto, [13, 0x100, 8, 0x4000, 0, 0], 8, &memory),
        r#"sendto(13, "hi there", 8, MSG_NOSIGNAL, NULL, 0) = 8"#
    );
    let memory = Memory::default()
        .words(0x100, &[0, 0, 0x200, 2, 0, 0, 0])
        .words(0x200, &[0x300, 3, 0x310, 5])
        .with(0x300, b"abc")
        .with(0x310, b"defgh");
    assert_eq!(
        line(libc::SYS_sendmsg, [13, 0x100, 0], 8, &memory),
        r#"sendmsg(13, {msg_name=NULL, msg_namelen=0, msg_iov=[{iov_base="abc", iov_len=3}, {iov_base="defgh", iov_len=5}], msg_iovlen=2, msg_controllen=0, msg_flags=0}, 0) = 8"#
    );
    let local = [b"\x01\0/nx/sock".to_vec(), vec![0; 100]].concat();
    let six = [b"\x0a\0\0\x50\0\0\0\0".to_vec(), [vec![0; 15], vec![1]].concat(), vec![0; 4]].concat();
    let memory = Memory::default().with(0x100, local).with(0x200, six);
    assert_eq!(
        line(libc::SYS_connect, [13, 0x100, 110], -106, &memory),
        r#"connect(13, {sa_family=AF_UNIX, sun_path="/nx/sock"}, 110) = -1 EISCONN (Transport endpoint is already connected)"#
    );
    assert_eq!(
        line(libc::SYS_connect, [13, 0x200, 28], -106, &memory),
        r#"connect(13, {sa_family=AF_INET6, sin6_port=htons(80), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = -1 EISCONN (Transport endpoint is already connected)"#
    );
}

/// Whatever the arguments, a line is printed: also of addresses at the end and of memory full of ones.
#[test]
fn no_arguments_are_too_odd() {
    let odd = [0, 1, 8, 0x1000, 0x7fff_ffff_f000, u64::MAX - 7, u64::MAX];
    for number in 0..470 {
        for value in odd {
            for result in [0, 1, 4096, u64::MAX, u64::MAX - 3] {
                for byte in [0, 0xff, 0x41] {
                    let read = |_, bytes: &mut [u8]| {
                        bytes.fill(byte);
                        true
                    };
                    let line = Line::begin(number, [value; 6], &read);
                    assert!(line.finish(result, &read).contains(") "));
                    assert!(line.resume(result, &read).contains("resumed>"));
                    assert!(line.unfinished().ends_with("<unfinished ...>"));
                    assert!(line.never().ends_with("= ?"));
                }
            }
        }
    }
}
