//! What programs can observe: memory, time, the processor, limits, and errors for bad arguments.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use vmm::process::Step;

/// Runs a program that checks itself: it prints a line for each failed check, and exits with 0 after all
/// passed.
fn passes(name: &str, body: &str) {
    let source = format!(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <poll.h>\n#include <signal.h>\n\
         #include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/ioctl.h>\n#include <sys/mman.h>\n\
         #include <sys/random.h>\n#include <sys/resource.h>\n#include <sys/select.h>\n#include <sys/stat.h>\n\
         #include <sys/syscall.h>\n#include <sys/time.h>\n#include <sys/uio.h>\n#include <sys/utsname.h>\n\
         #include <time.h>\n#include <unistd.h>\n#include <cpuid.h>\n\
         static int failed;\n\
         #define CHECK(c) do {{ if (!(c)) {{ failed = 1; printf(\"line %d: %s (errno %d)\\n\", __LINE__, #c, errno); }} }} while (0)\n\
         #define FAILS(c, e) do {{ errno = 0; CHECK((long)(c) == -1 && errno == (e)); }} while (0)\n\
         int main(int argc, char **argv) {{\n{body}\nreturn failed; }}"
    );
    each_libc(name, &source, &[], |program| {
        each_engine(&Run::new(program, &["argument"]), |ran| {
            assert_eq!(ran.end, Step::Exited(0), "{name}: {}", prints(ran));
        });
    });
}

#[test]
fn memory_is_mapped_protected_moved_and_given_back() {
    passes(
        "memory",
        r#"
        int rw = PROT_READ | PROT_WRITE, private = MAP_PRIVATE | MAP_ANONYMOUS;
        char *a = mmap(0, 8 * 4096, rw, private, -1, 0);
        CHECK(a != MAP_FAILED && a[0] == 0);
        memset(a, 'a', 8 * 4096);
        CHECK(mprotect(a + 4096, 4096, PROT_NONE) == 0 && mprotect(a + 4096, 4096, rw) == 0);
        CHECK(a[4096] == 'a');
        CHECK(munmap(a + 2 * 4096, 4096) == 0);
        FAILS(mprotect(a, 4 * 4096, PROT_READ), ENOMEM);
        CHECK(mmap(a + 2 * 4096, 4096, rw, private | MAP_FIXED, -1, 0) == a + 2 * 4096);
        CHECK(a[2 * 4096] == 0 && a[3 * 4096] == 'a');
        FAILS(mmap(a, 4096, rw, private | MAP_FIXED_NOREPLACE, -1, 0), EEXIST);
        CHECK(madvise(a, 4096, MADV_DONTNEED) == 0 && a[0] == 0);
        char *b = mmap(0, 4096, rw, private, -1, 0);
        strcpy(b, "moves along");
        b = mremap(b, 4096, 200 * 4096, MREMAP_MAYMOVE);
        CHECK(b != MAP_FAILED && !strcmp(b, "moves along") && b[199 * 4096] == 0);
        b = mremap(b, 200 * 4096, 4096, 0);
        CHECK(b != MAP_FAILED && !strcmp(b, "moves along"));
        FAILS(munmap(b + 1, 4096), EINVAL);
        unsigned char in[3] = { 9, 9, 9 };
        CHECK(mincore(a, 2 * 4096, in) == 0 && (in[0] & 1) && in[1] < 2 && in[2] == 9);
        FAILS(mincore(a + 1, 4096, in), EINVAL);
        FAILS(mincore(a, 1UL << 40, in), ENOMEM);
        FAILS(mmap(0, 0, rw, private, -1, 0), EINVAL);
        FAILS(mmap(0, 1UL << 50, rw, private, -1, 0), ENOMEM);
        FAILS(mmap(0, 4096, PROT_READ, MAP_PRIVATE, 77, 0), EBADF);
        char *low = (char *)((syscall(SYS_brk, 0) + 4095) & ~4095L), *high = low + (1 << 20);
        CHECK(syscall(SYS_brk, high) == (long)high && high[-1] == 0);
        low[5] = 1;
        CHECK(syscall(SYS_brk, low) == (long)low && syscall(SYS_brk, high) == (long)high && low[5] == 0);
        CHECK(syscall(SYS_brk, 1L << 60) == (long)high);
        int file = open(argv[0], O_RDONLY), self = open("/proc/self/exe", O_RDONLY);
        CHECK(self >= 0);
        char *map = mmap(0, 4096, rw, MAP_PRIVATE, self, 0);
        CHECK(map != MAP_FAILED && !memcmp(map, "\177ELF", 4));
        map[0] = 'x';
        char *big = malloc(100 << 20); memset(big, 1, 100 << 20); CHECK(big[99 << 20] == 1); free(big);
        volatile char wide[1 << 20]; wide[0] = 1; CHECK(wide[0] == 1);
    "#,
    );
}

#[test]
fn code_can_be_made_at_run_time_and_machine_reads_in_it_are_served() {
    passes(
        "code",
        r#"
        unsigned char code[] = { 0x53, 0xb8, 0, 0, 0, 0, 0x0f, 0xa2, 0x89, 0xd8, 0x5b, 0xc3 };
        unsigned char *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(at, code, sizeof code);
        CHECK(mprotect(at, 4096, PROT_READ | PROT_EXEC) == 0);
        CHECK(((unsigned (*)(void))at)() == 0x756e6547);
        CHECK(mprotect(at, 4096, PROT_READ | PROT_WRITE) == 0);
        at[1] = 0xb8; at[2] = 42; at[6] = 0x90; at[7] = 0x90; at[8] = 0x90; at[9] = 0x90;
        CHECK(mprotect(at, 4096, PROT_READ | PROT_EXEC) == 0);
        CHECK(((unsigned (*)(void))at)() == 42);
    "#,
    );
}

#[test]
fn the_processor_is_the_model() {
    passes(
        "model",
        r#"
        unsigned a, b, c, d;
        __cpuid(1, a, b, c, d);
        CHECK((c >> 20 & 1) && (c >> 23 & 1) && !(c >> 28 & 1) && !(c >> 27 & 1) && !(c >> 30 & 1));
        __cpuid_count(7, 0, a, b, c, d);
        CHECK(!a && !b && !c && !d);
        unsigned lo, hi;
        unsigned long last = 0;
        for (int i = 0; i < 100; i++) {
            __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
            unsigned long now = (unsigned long)hi << 32 | lo;
            CHECK(now > last);
            last = now;
        }
        struct utsname name;
        CHECK(uname(&name) == 0 && !strcmp(name.sysname, "Linux") && !strcmp(name.machine, "x86_64"));
        CHECK(sysconf(_SC_NPROCESSORS_ONLN) >= 1 && sysconf(_SC_PAGESIZE) == 4096);
        CHECK(getpid() == 1000 && getppid() == 999 && getpgrp() == 1000);
        struct rlimit limit;
        CHECK(getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur == 8 << 20);
        unsigned char random[300] = {0};
        CHECK(getrandom(random, 300, 0) == 300);
        int nonzero = 0; for (int i = 0; i < 300; i++) nonzero += random[i] != 0;
        CHECK(nonzero > 200);
        FAILS(syscall(SYS_rseq, 0, 0, 0, 0), ENOSYS);
        FAILS(syscall(600), ENOSYS);
        FAILS(syscall(100000), ENOSYS);
    "#,
    );
}

#[test]
fn time_passes_and_does_not_run_backwards() {
    passes(
        "time",
        r#"
        struct timespec start, last, now, wall, pause = {0, 20000000};
        clock_gettime(CLOCK_MONOTONIC, &start); last = start;
        for (int i = 0; i < 1000; i++) {
            clock_gettime(CLOCK_MONOTONIC, &now);
            CHECK(now.tv_sec > last.tv_sec || now.tv_sec == last.tv_sec && now.tv_nsec > last.tv_nsec);
            last = now;
        }
        CHECK(nanosleep(&pause, 0) == 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
        long slept = (now.tv_sec - last.tv_sec) * 1000000000L + now.tv_nsec - last.tv_nsec;
        CHECK(slept >= 20000000);
        do clock_gettime(CLOCK_MONOTONIC, &now);
        while ((now.tv_sec - last.tv_sec) * 1000 + (now.tv_nsec - last.tv_nsec) / 1000000 < 25);
        struct timeval day;
        clock_gettime(CLOCK_REALTIME, &wall);
        CHECK(gettimeofday(&day, 0) == 0 && day.tv_sec - wall.tv_sec <= 1 && time(0) - wall.tv_sec <= 1);
        CHECK(wall.tv_sec > 1700000000);
        CHECK(clock_getres(CLOCK_MONOTONIC, &now) == 0 && now.tv_nsec == 1);
        FAILS(clock_gettime(1234, &now), EINVAL);
        CHECK(clock() != (clock_t)-1);
    "#,
    );
}

#[test]
fn bad_pointers_and_numbers_are_errors() {
    passes(
        "hostile",
        r#"
        char *none = (char *)0x10, *kernel = (char *)0xffffffff81000000, *last = (char *)-1;
        char *ro = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int file = open("/bin/sh", O_RDONLY);
        CHECK(file == 3);
        char *bad[] = { none, kernel, last, ro };
        for (int i = 0; i < 4; i++) {
            FAILS(syscall(SYS_read, file, bad[i], 100), EFAULT);
            FAILS(syscall(SYS_read, file, bad[i], -1L), EFAULT);
            FAILS(syscall(SYS_fstat, file, bad[i]), EFAULT);
            FAILS(syscall(SYS_uname, bad[i]), EFAULT);
            FAILS(syscall(SYS_pipe2, bad[i], 0), EFAULT);
            FAILS(syscall(SYS_clock_gettime, 1, bad[i]), EFAULT);
            FAILS(syscall(SYS_getrandom, bad[i], 16, 0), EFAULT);
            FAILS(syscall(SYS_ioctl, 1, TIOCGWINSZ, bad[i]), EFAULT);
            FAILS(syscall(SYS_rt_sigaction, SIGUSR1, 0, bad[i], 8), EFAULT);
        }
        for (int i = 0; i < 3; i++) {
            FAILS(syscall(SYS_write, 1, bad[i], 1), EFAULT);
            FAILS(syscall(SYS_openat, AT_FDCWD, bad[i], 0), EFAULT);
            FAILS(syscall(SYS_readv, file, bad[i], 3), EFAULT);
            FAILS(syscall(SYS_nanosleep, bad[i], 0), EFAULT);
        }
        struct iovec vectors[3] = { { ro, 10 }, { last, 10 }, { ro, -1 } };
        FAILS(syscall(SYS_readv, file, vectors, 2), EFAULT);
        FAILS(syscall(SYS_readv, file, vectors, 3), EINVAL);
        FAILS(syscall(SYS_readv, file, vectors, 1L << 60), EINVAL);
        FAILS(syscall(SYS_pread64, file, vectors, 8, -5L), EINVAL);
        FAILS(syscall(SYS_poll, vectors, 1L << 40, 0), EINVAL);
        FAILS(syscall(SYS_mmap, -4096L, 8192, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), EINVAL);
        FAILS(syscall(SYS_mremap, -4096L, 4096, 1L << 62, 1), EINVAL);
        FAILS(syscall(SYS_munmap, 0, -1L), EINVAL);
        FAILS(syscall(SYS_rt_sigaction, 65, 0, 0, 8), EINVAL);
        FAILS(syscall(SYS_rt_sigaction, SIGKILL, vectors, 0, 8), EINVAL);
        FAILS(syscall(SYS_kill, 1, 9), ESRCH);
        FAILS(syscall(SYS_dup2, file, 1 << 20), EBADF);
        FAILS(syscall(SYS_close, -1), EBADF);
        FAILS(syscall(SYS_arch_prctl, 0x1002, 1L << 63), EPERM);
        char path[5000]; memset(path, 'x', 4999); path[4999] = 0;
        FAILS(open(path, O_RDONLY), ENAMETOOLONG);
        // The part of a buffer before the first bad byte is transferred.
        char *edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(edge + 4096, 4096);
        CHECK(syscall(SYS_read, file, edge + 4090, 100) == 6);
        CHECK(munmap(ro, 8192) == 0);
    "#,
    );
}

#[test]
fn descriptors_are_numbered_as_on_linux_and_shared_by_dup() {
    passes(
        "descriptors",
        r#"
        char name[] = "/tmp/gretel-test-XXXXXX";
        int file = mkstemp(name);
        CHECK(file == 3 && unlink(name) == 0);
        CHECK(dup(file) == 4 && dup2(file, 9) == 9 && fcntl(file, F_DUPFD_CLOEXEC, 20) == 20);
        CHECK(fcntl(20, F_GETFD) == FD_CLOEXEC && fcntl(9, F_GETFD) == 0);
        CHECK(write(9, "0123456789", 10) == 10 && lseek(4, 0, SEEK_CUR) == 10);
        CHECK(close(4) == 0 && open("/dev/null", O_RDWR) == 4);
        char buffer[8] = {0};
        struct iovec vectors[2] = { { buffer, 2 }, { buffer + 4, 3 } };
        CHECK(lseek(file, 1, SEEK_SET) == 1 && readv(file, vectors, 2) == 5);
        CHECK(!memcmp(buffer, "12\0\0" "345", 7));
        CHECK(pwritev(file, vectors, 1, 8) == 2 && pread(file, buffer, 8, 6) == 4 && !memcmp(buffer, "6712", 4));
        struct stat status;
        CHECK(fstat(20, &status) == 0 && status.st_size == 10 && S_ISREG(status.st_mode));
        int ends[2];
        CHECK(pipe(ends) == 0 && ends[0] == 5 && ends[1] == 6);
        struct pollfd polled[3] = { { ends[0], POLLIN }, { ends[1], POLLOUT }, { 77, POLLIN } };
        CHECK(poll(polled, 3, 1000) == 2);
        CHECK(polled[0].revents == 0 && polled[1].revents == POLLOUT && polled[2].revents == POLLNVAL);
        CHECK(write(ends[1], "x", 1) == 1 && poll(polled, 1, -1) == 1 && polled[0].revents == POLLIN);
        fd_set set; FD_ZERO(&set); FD_SET(ends[0], &set); FD_SET(1, &set);
        struct timeval none = {0, 0};
        CHECK(select(10, &set, 0, 0, &none) >= 1 && FD_ISSET(ends[0], &set));
        int available = 0;
        CHECK(ioctl(ends[0], FIONREAD, &available) == 0 && available == 1);
        signal(SIGPIPE, SIG_IGN);
        close(ends[0]);
        // The host's pipe stays open while the compiler of another test, started at this moment, has not reached its exec.
        while (write(ends[1], "x", 1) == 1) usleep(1000);
        FAILS(write(ends[1], "x", 1), EPIPE);
        char where[4096], there[4096];
        CHECK(getcwd(where, sizeof where) && chdir("/usr") == 0 && getcwd(there, sizeof there));
        CHECK(!strcmp(there, "/usr") && stat("bin", &status) == 0 && S_ISDIR(status.st_mode));
        FAILS(syscall(SYS_getcwd, there, 2), ERANGE);
        CHECK(chdir(where) == 0);
        // The call that was before getdents64: a name is 18 bytes into its entry.
        int folder = open("/usr", O_RDONLY | O_DIRECTORY);
        CHECK(syscall(SYS_getdents, folder, there, sizeof there) >= 24 && there[16] + there[17] * 256 >= 24 && there[18]);
        FAILS(syscall(SYS_getdents, file, there, sizeof there), ENOTDIR);
        char link[4096];
        long length = readlink("/proc/self/exe", link, sizeof link);
        CHECK(length > 0 && strstr(argv[0], "descriptors") && memmem(link, length, "descriptors", 11));
        CHECK(!isatty(file));
    "#,
    );
}

#[test]
fn a_static_pie_is_relocated() {
    let source = r#"
        #include <stdio.h>
        static int value = 42; static int *pointer = &value;
        int main(void) { printf("%d %d\n", *pointer, ((unsigned long)&value >> 40) == 0x55); return 0; }"#;
    each_libc("pie", source, &["-static-pie", "-fPIE"], |program| {
        each_engine(&Run::new(program, &[]), |ran| assert_eq!(prints(ran), "42 1\n"));
    });
}

#[test]
fn the_clock_is_answered_inside_the_guest() {
    let source = r#"
        #include <time.h>
        int main(void) { struct timespec now; for (int i = 0; i < 640; i++) clock_gettime(CLOCK_MONOTONIC, &now); return 0; }"#;
    each_libc("clock", source, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            // One call in 64 is a real one, and those for which the time is old by then.
            let (in_turn, early) = (ran.calls(libc::SYS_clock_gettime), ran.early_calls());
            assert_eq!(ran.end, Step::Exited(0));
            assert!(in_turn <= 10 && in_turn + early >= 10 && early < 100, "{in_turn} and {early}");
        });
    });
}
