//! Memory that processes share: each program checks itself, does so natively as well, and replays on every engine.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use std::path::Path;
use vmm::process::Step;

/// What every program begins with.
const START: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <poll.h>
    #include <pthread.h>
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/ipc.h>
    #include <sys/mman.h>
    #include <sys/msg.h>
    #include <sys/resource.h>
    #include <sys/sem.h>
    #include <sys/shm.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif
    #ifndef MREMAP_DONTUNMAP
    #define MREMAP_DONTUNMAP 4
    #endif
    #ifndef MAP_FIXED_NOREPLACE
    #define MAP_FIXED_NOREPLACE 0x100000
    #endif
    static int failed;
    #define CHECK(c) do { if (!(c)) { failed = 1; printf("%d: line %d: %s (errno %d)\n", (int)getpid() == first, __LINE__, #c, errno); fflush(stdout); } } while (0)
    #define FAILS(c, e) do { errno = 0; CHECK((long)(c) == -1 && errno == (e)); } while (0)
    static int first;
    static int ended(pid_t child) { int status; CHECK(waitpid(child, &status, 0) == child); return status; }
    static sigjmp_buf jump;
    static volatile int signalled;
    static void bad(int signal) { signalled = signal; siglongjmp(jump, 1); }
    static int signal_of(volatile char *at, int write) {
        signalled = 0;
        if (sigsetjmp(jump, 1) == 0) { if (write) *at = 1; else (void)*at; }
        return signalled;
    }
    static const int rw = PROT_READ | PROT_WRITE;
    enum { PAGE = 4096 };
"#;

/// A program of a body that returns whether anything failed: natively, and on each engine.
pub(crate) fn passes(name: &str, functions: &str, body: &str, after: impl Fn(&Path)) {
    let main = format!(
        "int main(int argc, char **argv) {{ first = getpid(); signal(SIGBUS, bad); signal(SIGSEGV, bad);\n{body}\nreturn failed; }}"
    );
    let source = [START, functions, &main].concat();
    each_libc(name, &source, &["-pthread"], |program| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let run = Run::new(program, &[path.to_str().expect("a path")]);
        let (output, status) = run.natively();
        assert_eq!(status, Some(0), "{name} natively: {}", String::from_utf8_lossy(&output));
        after(&path);
        each_engine(&run, |ran| {
            assert_eq!(ran.end, Step::Exited(0), "{name}: {}", prints(ran));
            assert_eq!(prints(ran), String::from_utf8_lossy(&output));
            after(&path);
        });
    });
}

#[test]
fn a_mapped_file_and_the_file_are_one() {
    passes(
        "mapped",
        "",
        r#"
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(file >= 0 && ftruncate(file, 3 * PAGE) == 0);
        char *a = mmap(0, 8 * PAGE, rw, MAP_SHARED, file, 0), *b = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, PAGE);
        CHECK(a != MAP_FAILED && b != MAP_FAILED && a[0] == 0);
        char buffer[16] = "";
        strcpy(a + PAGE, "stored");
        CHECK(!strcmp(b, "stored"));
        CHECK(pread(file, buffer, 16, PAGE) == 16 && !strcmp(buffer, "stored"));
        CHECK(pwrite(file, "written", 8, PAGE + 100) == 8 && !strcmp(a + PAGE + 100, "written") && !strcmp(b + 100, "written"));
        CHECK(lseek(file, 2 * PAGE, SEEK_SET) == 2 * PAGE && write(file, "here", 5) == 5 && !strcmp(a + 2 * PAGE, "here"));
        struct iovec vector[2] = { { "two", 3 }, { " parts", 7 } };
        CHECK(pwritev(file, vector, 2, 2 * PAGE - 4) == 10 && !memcmp(a + 2 * PAGE - 4, "two parts", 10));
        a[0] = 'x';
        CHECK(lseek(file, 0, SEEK_SET) == 0 && read(file, buffer, 1) == 1 && buffer[0] == 'x');
        CHECK(signal_of(a + 2 * PAGE + 1, 1) == 0 && signal_of(a + 3 * PAGE, 0) == SIGBUS && signal_of(b, 1) == SIGSEGV);
        FAILS(read(file, a + 3 * PAGE, 1), EFAULT);
        int append = open(argv[1], O_RDWR | O_APPEND);
        CHECK(write(append, "end", 4) == 4 && !strcmp(a + 3 * PAGE, "end"));
        CHECK(lseek(append, 0, SEEK_END) == 3 * PAGE + 4);
        CHECK(signal_of(a + 4 * PAGE - 1, 1) == 0 && a[3 * PAGE + 4] == 0);
        CHECK(ftruncate(file, PAGE + 3) == 0 && !memcmp(a + PAGE, "sto\0\0\0", 6) && signal_of(a + 2 * PAGE, 0) == SIGBUS);
        CHECK(ftruncate(file, 5 * PAGE) == 0 && a[2 * PAGE] == 0 && a[4 * PAGE] == 0 && !memcmp(b, "sto\0", 4));
        strcpy(a + 4 * PAGE, "kept");
        CHECK(truncate(argv[1], 4 * PAGE + 2) == 0 && !memcmp(a + 4 * PAGE, "ke\0", 3));
        CHECK(close(append) == 0 && close(file) == 0);
        strcpy(a + 10, "without a descriptor");
        int again = open(argv[1], O_RDONLY);
        CHECK(pread(again, buffer, 8, 10) == 8 && !memcmp(buffer, "without ", 8));
        FAILS(mmap(0, PAGE, rw, MAP_SHARED, again, 0), EACCES);
        char *c = mmap(0, PAGE, PROT_READ, MAP_SHARED, again, 0), *p = mmap(0, PAGE, rw, MAP_PRIVATE, again, 0);
        CHECK(c[10] == 'w' && p[10] == 'w' && signal_of(p, 1) == 0 && a[0] == 'x');
        FAILS(mprotect(c, PAGE, rw), EACCES);
        CHECK(msync(a, 5 * PAGE, MS_SYNC) == 0 && msync(a, PAGE, MS_ASYNC | MS_INVALIDATE) == 0);
        FAILS(msync(a, PAGE, MS_SYNC | MS_ASYNC), EINVAL);
        FAILS(msync(a + 1, PAGE, MS_SYNC), EINVAL);
        FAILS(mmap(0, PAGE, rw, MAP_SHARED_VALIDATE | 0x800000, again, 0), EOPNOTSUPP);
        int only = open(argv[1], O_WRONLY), folder = open("/", O_RDONLY);
        FAILS(mmap(0, PAGE, PROT_READ, MAP_SHARED, only, 0), EACCES);
        FAILS(mmap(0, PAGE, PROT_READ, MAP_SHARED, folder, 0), ENODEV);
        CHECK(munmap(b, PAGE) == 0 && munmap(c, PAGE) == 0 && munmap(p, PAGE) == 0);
        int zero = open("/dev/zero", O_RDWR);
        char *z = mmap(0, PAGE, rw, MAP_SHARED, zero, 0);
        CHECK(z != MAP_FAILED && z[5] == 0);
        pid_t child = fork();
        if (child == 0) { z[5] = 7; strcpy(a + 40, "by the child"); a[0] = 'y'; _exit(0); }
        CHECK(ended(child) == 0 && z[5] == 7 && a[0] == 'y');
        CHECK(pread(again, buffer, 13, 40) == 13 && !strcmp(buffer, "by the child"));
        strcpy(a + 60, "left at the end");
    "#,
        |path| {
            let bytes = std::fs::read(path).expect("the program made it");
            assert_eq!(bytes.len(), 4 * 4096 + 2);
            assert_eq!(&bytes[60..75], b"left at the end");
        },
    );
}

#[test]
fn what_was_stored_before_a_crash_is_in_the_file() {
    let source = r#"
        #include <fcntl.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
            ftruncate(file, 10);
            char *a = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
            strcpy(a, "the last");
            *(volatile int *)0 = 1;
        }"#;
    each_libc("dies", source, &[], |program| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        each_engine(&Run::new(program, &[path.to_str().expect("a path")]), |ran| {
            assert!(matches!(ran.end, Step::Killed(death) if death.signal == libc::SIGSEGV), "{:?}", ran.end);
            assert_eq!(std::fs::read(&path).expect("the program made it"), b"the last\0\0");
        });
    });
}

#[test]
fn a_memfd_is_memory_and_a_file() {
    passes(
        "memfd",
        "",
        r#"
        int fd = memfd_create("name", MFD_ALLOW_SEALING), plain = memfd_create("plain", MFD_CLOEXEC);
        CHECK(fd >= 0 && plain >= 0 && fcntl(plain, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFD) == 0);
        char *far = mmap(0, 1L << 30, rw, MAP_SHARED, fd, 0);
        CHECK(far != MAP_FAILED && signal_of(far, 0) == SIGBUS);
        CHECK(ftruncate(fd, 1L << 30) == 0 && far[0] == 0 && far[(1 << 30) - 1] == 0);
        strcpy(far + (1 << 29), "far");
        char buffer[8];
        CHECK(pread(fd, buffer, 4, 1 << 29) == 4 && !strcmp(buffer, "far"));
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (1 << 29) - PAGE, 2 * PAGE) == 0 && far[1 << 29] == 0);
        strcpy(far + PAGE, "hole");
        CHECK(madvise(far + PAGE, PAGE, MADV_REMOVE) == 0 && far[PAGE] == 0 && pread(fd, buffer, 1, PAGE) == 1 && buffer[0] == 0);
        CHECK(munmap(far, 1L << 30) == 0 && ftruncate(fd, PAGE) == 0);
        CHECK(fcntl(fd, F_GET_SEALS) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        FAILS(ftruncate(fd, 0), EPERM);
        char *a = mmap(0, PAGE, rw, MAP_SHARED, fd, 0);
        FAILS(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), EBUSY);
        pid_t child = fork();
        if (child == 0) { strcpy(a, "child"); _exit(pwrite(fd, "file", 5, 100) != 5); }
        CHECK(ended(child) == 0 && !strcmp(a, "child") && !strcmp(a + 100, "file"));
        CHECK(munmap(a, PAGE) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0);
        FAILS(mmap(0, PAGE, rw, MAP_SHARED, fd, 0), EPERM);
        FAILS(write(fd, "x", 1), EPERM);
        char *p = mmap(0, PAGE, rw, MAP_PRIVATE, fd, 0);
        CHECK(!strcmp(p, "child") && !strcmp(p + 100, "file"));
        CHECK(pread(fd, buffer, 6, 0) == 6 && !strcmp(buffer, "child"));
        CHECK(fallocate(plain, 0, 0, 2 * PAGE) == 0);
        char *b = mmap(0, 3 * PAGE, rw, MAP_SHARED, plain, 0);
        CHECK(signal_of(b + PAGE, 1) == 0 && signal_of(b + 2 * PAGE, 1) == SIGBUS);
        CHECK(fallocate(plain, 0, 0, 3 * PAGE) == 0 && b[2 * PAGE] == 0 && b[PAGE] == 1);
        CHECK(fallocate(plain, FALLOC_FL_KEEP_SIZE, 0, 9 * PAGE) == 0 && lseek(plain, 0, SEEK_END) == 3 * PAGE);
        FAILS(memfd_create("x", 0x4000), EINVAL);
        char name[300]; memset(name, 'n', 299); name[299] = 0;
        FAILS(memfd_create(name, 0), EINVAL);
        int other = open("/dev/shm/gretel-test-of-sharing", O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(other >= 0 && ftruncate(other, PAGE) == 0);
        child = fork();
        if (child == 0) {
            int own = open("/dev/shm/gretel-test-of-sharing", O_RDWR);
            char *c = mmap(0, PAGE, rw, MAP_SHARED, own, 0);
            while (!__atomic_load_n(c, __ATOMIC_SEQ_CST)) usleep(100);
            strcpy(c + 1, "seen");
            _exit(0);
        }
        char *c = mmap(0, PAGE, rw, MAP_SHARED, other, 0);
        usleep(1000);
        __atomic_store_n(c, 1, __ATOMIC_SEQ_CST);
        CHECK(ended(child) == 0 && !strcmp(c + 1, "seen"));
        CHECK(unlink("/dev/shm/gretel-test-of-sharing") == 0);
    "#,
        |_| {},
    );
}

/// A mutex and a condition in memory that two processes map.
const HANDS: &str = r#"
    struct both { pthread_mutex_t mutex; pthread_cond_t turn; int whose, count; };
    static void prepare(struct both *it) {
        pthread_mutexattr_t shared; pthread_condattr_t also;
        pthread_mutexattr_init(&shared); pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
        pthread_condattr_init(&also); pthread_condattr_setpshared(&also, PTHREAD_PROCESS_SHARED);
        CHECK(pthread_mutex_init(&it->mutex, &shared) == 0 && pthread_cond_init(&it->turn, &also) == 0);
    }
    static void play(struct both *it, int me) {
        for (int n = 0; n < 50; n++) {
            pthread_mutex_lock(&it->mutex);
            while (it->whose != me) pthread_cond_wait(&it->turn, &it->mutex);
            it->count++; it->whose = !me;
            pthread_cond_broadcast(&it->turn);
            pthread_mutex_unlock(&it->mutex);
        }
    }
    static void two(struct both *one, struct both *other) {
        prepare(one);
        pid_t child = fork();
        if (child == 0) { play(other, 1); _exit(0); }
        play(one, 0);
        CHECK(ended(child) == 0 && one->count == 100 && other->count == 100);
    }"#;

#[test]
fn locks_of_two_processes_are_one_wherever_it_is_mapped() {
    passes(
        "locks",
        HANDS,
        r#"
        struct both *a = mmap(0, PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        two(a, a);
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(ftruncate(file, 3 * PAGE) == 0);
        char *b = mmap(0, 2 * PAGE, rw, MAP_SHARED, file, 0), *c = mmap(0, PAGE, rw, MAP_SHARED, file, PAGE);
        two((struct both *)(b + PAGE), (struct both *)c);
        two((struct both *)b, (struct both *)b);
        printf("%d\n", a->count);
    "#,
        |_| {},
    );
}

#[test]
fn mappings_are_advised_locked_and_moved_as_linux_does() {
    passes(
        "corners",
        "",
        r#"
        int private = MAP_PRIVATE | MAP_ANONYMOUS, shared = MAP_SHARED | MAP_ANONYMOUS;
        char *a = mmap(0, 10 * PAGE, rw, private, -1, 0);
        memset(a, 'a', 10 * PAGE);
        CHECK(munmap(a + 5 * PAGE, PAGE) == 0);
        FAILS(madvise(a, 10 * PAGE, MADV_DONTNEED), ENOMEM);
        CHECK(a[0] == 0 && a[9 * PAGE] == 0);
        FAILS(madvise(a, PAGE, 12345), EINVAL);
        FAILS(madvise(a + 1, PAGE, MADV_DONTNEED), EINVAL);
        CHECK(madvise(a, 0, MADV_DONTNEED) == 0);
        FAILS(mprotect(a + 3 * PAGE, 5 * PAGE, PROT_READ), ENOMEM);
        CHECK(signal_of(a + 4 * PAGE, 1) == SIGSEGV && signal_of(a + 6 * PAGE, 1) == 0 && signal_of(a + 2 * PAGE, 1) == 0);
        FAILS(mprotect(a + 5 * PAGE, PAGE, PROT_READ), ENOMEM);
        FAILS(mprotect(a, PAGE, 0x40), EINVAL);
        FAILS(mprotect(a, PAGE, PROT_READ | PROT_GROWSDOWN), EINVAL);
        FAILS(mprotect(a, PAGE, PROT_READ | PROT_GROWSDOWN | PROT_GROWSUP), EINVAL);
        FAILS(mprotect(a, PAGE, PROT_READ | PROT_GROWSUP), EINVAL);
        CHECK(mprotect(a, 0, PROT_READ) == 0);
        char *stack = (char *)((long)__builtin_frame_address(0) & ~4095L);
        CHECK(mprotect(stack, PAGE, rw | PROT_GROWSDOWN) == 0);

        char *f = mmap(0, 4 * PAGE, rw, private, -1, 0);
        memset(f, 'f', 4 * PAGE);
        CHECK(madvise(f + PAGE, PAGE, MADV_DONTFORK) == 0 && madvise(f + 2 * PAGE, PAGE, MADV_WIPEONFORK) == 0);
        pid_t child = fork();
        if (child == 0) _exit(!(f[0] == 'f' && signal_of(f + PAGE, 0) == SIGSEGV && f[2 * PAGE] == 0 && f[3 * PAGE] == 'f'));
        CHECK(ended(child) == 0 && f[PAGE] == 'f' && f[2 * PAGE] == 'f');
        CHECK(madvise(f + PAGE, PAGE, MADV_DOFORK) == 0 && madvise(f + 2 * PAGE, PAGE, MADV_KEEPONFORK) == 0);
        child = fork();
        if (child == 0) _exit(!(f[PAGE] == 'f' && f[2 * PAGE] == 'f'));
        CHECK(ended(child) == 0);

        char *l = mmap(0, 4 * PAGE, rw, private, -1, 0);
        unsigned char in[4];
        CHECK(mlock(l + 10, PAGE) == 0 && mincore(l, 2 * PAGE, in) == 0 && (in[0] & 1) && (in[1] & 1));
        FAILS(madvise(l, PAGE, MADV_DONTNEED), EINVAL);
        FAILS(msync(l, PAGE, MS_INVALIDATE | MS_SYNC), EBUSY);
        CHECK(munlock(l, 2 * PAGE) == 0 && madvise(l, PAGE, MADV_DONTNEED) == 0 && mincore(l, PAGE, in) == 0 && !(in[0] & 1));
        FAILS(mlock(a, 10 * PAGE), ENOMEM);
        FAILS(mlockall(0), EINVAL);
        FAILS(syscall(SYS_mlock2, l, PAGE, 8), EINVAL);
        CHECK(munlockall() == 0);
        char *m = mmap(0, 4 * PAGE, rw, private | MAP_POPULATE, -1, 0);
        CHECK(mincore(m, 4 * PAGE, in) == 0 && (in[0] & in[3] & 1));
        CHECK(madvise(l, 4 * PAGE, MADV_POPULATE_WRITE) == 0 && mincore(l, 4 * PAGE, in) == 0 && (in[3] & 1));

        char *s = mmap(0, 4 * PAGE, rw, shared, -1, 0);
        strcpy(s + PAGE, "shared");
        CHECK(madvise(s, 4 * PAGE, MADV_DONTNEED) == 0 && !strcmp(s + PAGE, "shared"));
        FAILS(madvise(s, PAGE, MADV_FREE), EINVAL);
        FAILS(madvise(s, PAGE, MADV_WIPEONFORK), EINVAL);
        char *t = mremap(s + PAGE, 0, PAGE, MREMAP_MAYMOVE);
        CHECK(t != MAP_FAILED && !strcmp(t, "shared"));
        t[0] = 'S';
        CHECK(s[PAGE] == 'S' && munmap(t, PAGE) == 0);
        CHECK(madvise(s + PAGE, PAGE, MADV_REMOVE) == 0 && s[PAGE] == 0);
        FAILS(madvise(a, PAGE, MADV_REMOVE), EINVAL);
        FAILS(mremap(a, 0, PAGE, MREMAP_MAYMOVE), EINVAL);
        FAILS(mremap(a, PAGE, PAGE, 64), EINVAL);
        FAILS(mremap(a + 5 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EFAULT);
        FAILS(mremap(a + 4 * PAGE, 3 * PAGE, 4 * PAGE, MREMAP_MAYMOVE), EFAULT);
        FAILS(mremap(a, PAGE, 2 * PAGE, 0), ENOMEM);
        strcpy(f, "goes");
        char *g = mremap(f, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
        CHECK(g != MAP_FAILED && !strcmp(g, "goes") && f[0] == 0);
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(ftruncate(file, 4 * PAGE) == 0 && pwrite(file, "fourth", 7, 3 * PAGE) == 7);
        char *w = mmap(0, PAGE, rw, MAP_SHARED, file, 0);
        w = mremap(w, PAGE, 4 * PAGE, MREMAP_MAYMOVE);
        CHECK(w != MAP_FAILED && !strcmp(w + 3 * PAGE, "fourth"));
        CHECK(munmap(w, PAGE) == 0 && mprotect(w + PAGE, PAGE, PROT_READ) == 0 && !strcmp(w + 3 * PAGE, "fourth"));

        char *down = mmap((void *)0x200000000, 2 * PAGE, rw, private | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(down == (char *)0x200000000 && signal_of(down - PAGE, 1) == 0 && signal_of(down - 3 * PAGE, 1) == 0);
        CHECK(mprotect(down, PAGE, PROT_READ | PROT_GROWSDOWN) == 0 && signal_of(down - PAGE, 1) == SIGSEGV);
        FAILS(mmap(0, PAGE, rw, shared | MAP_GROWSDOWN, -1, 0), EINVAL);
        FAILS(syscall(SYS_remap_file_pages, s, PAGE, PROT_READ, 0, 0), EINVAL);
        FAILS(mmap(0, PAGE, rw, MAP_ANONYMOUS, -1, 0), EINVAL);
        FAILS(mmap(0, PAGE, rw, private, -1, 5), EINVAL);
        struct rlimit limit = { 0, RLIM_INFINITY };
        limit.rlim_cur = 1L << 30;
        CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
        FAILS(mmap(0, 1L << 30, rw, private, -1, 0), ENOMEM);
        CHECK(mmap(0, 1L << 20, rw, private, -1, 0) != MAP_FAILED);
    "#,
        |_| {},
    );
}

#[test]
fn a_process_reads_and_writes_the_memory_of_another() {
    passes(
        "peer",
        "",
        r#"
        char *a = mmap(0, 4 * PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int to[2], from[2];
        CHECK(pipe(to) == 0 && pipe(from) == 0);
        pid_t child = fork();
        if (child == 0) {
            char c;
            memset(a, 'c', 4 * PAGE);
            munmap(a + 2 * PAGE, PAGE);
            write(from[1], "r", 1);
            read(to[0], &c, 1);
            _exit(a[5] == 'p' && a[6] == 'c' ? 0 : 1);
        }
        char c, buffer[5 * PAGE];
        CHECK(read(from[0], &c, 1) == 1 && a[0] == 0);
        struct iovec local[2] = { { buffer, 10 }, { buffer + 20, 4 * PAGE } };
        struct iovec remote[2] = { { a + PAGE - 5, 7 }, { a + PAGE, 100 } };
        CHECK(process_vm_readv(child, local, 2, remote, 2, 0) == 107 && buffer[9] == 'c' && buffer[10] != 'c' && buffer[20] == 'c');
        struct iovec all = { a, 4 * PAGE }, here = { "p", 1 }, there = { a + 5, 1 };
        local[0].iov_len = 5 * PAGE;
        CHECK(process_vm_readv(child, local, 1, &all, 1, 0) == 2 * PAGE);
        CHECK(process_vm_writev(child, &here, 1, &there, 1, 0) == 1);
        all.iov_base = a + 2 * PAGE;
        FAILS(process_vm_readv(child, local, 1, &all, 1, 0), EFAULT);
        FAILS(process_vm_readv(child, local, 1, &all, 1, 1), EINVAL);
        FAILS(process_vm_readv(0x7ffffff, local, 1, &all, 1, 0), ESRCH);
        CHECK(write(to[1], "g", 1) == 1 && ended(child) == 0);
    "#,
        |_| {},
    );
}

#[test]
fn what_the_c_library_makes_of_shared_files() {
    passes(
        "named",
        "#include <semaphore.h>\n",
        r#"
        sem_t *turn = sem_open("/gretel-turn", O_CREAT, 0600, 0), *back = sem_open("/gretel-back", O_CREAT, 0600, 0);
        CHECK(turn != SEM_FAILED && back != SEM_FAILED);
        int fd = shm_open("/gretel-shared", O_RDWR | O_CREAT, 0600);
        CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
        int *count = mmap(0, PAGE, rw, MAP_SHARED, fd, 0);
        pid_t child = fork();
        if (child == 0) {
            sem_t *same = sem_open("/gretel-turn", 0);
            int own = shm_open("/gretel-shared", O_RDWR, 0);
            int *mine = mmap(0, PAGE, rw, MAP_SHARED, own, 0);
            for (int n = 0; n < 20; n++) { sem_wait(same); ++*mine; sem_post(back); }
            _exit(mine == count);
        }
        for (int n = 0; n < 20; n++) { CHECK(*count == n); sem_post(turn); sem_wait(back); }
        int value;
        CHECK(ended(child) == 0 && *count == 20 && sem_getvalue(turn, &value) == 0 && value == 0);
        CHECK(sem_close(turn) == 0 && sem_unlink("/gretel-turn") == 0 && sem_unlink("/gretel-back") == 0);
        CHECK(shm_unlink("/gretel-shared") == 0);
        struct timespec soon; clock_gettime(CLOCK_REALTIME, &soon);
        FAILS(sem_timedwait(back, &soon), ETIMEDOUT);
    "#,
        |_| {},
    );
}
