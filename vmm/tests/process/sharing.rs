//! Memory and messages that processes share: each program checks itself, does so natively as well, and replays on every engine.

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
fn passes(name: &str, functions: &str, body: &str, after: impl Fn(&Path)) {
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

/// What is sent, received and waited for has a union of its own in each program.
const SYSTEM_V: &str = r#"
    union semun { int val; struct semid_ds *buf; unsigned short *array; struct seminfo *info; };
    struct text { long type; char text[64]; };
    static void nothing(int signal) { }
    static void pause_a_bit(void) { struct timespec bit = { 0, 5000000 }; nanosleep(&bit, 0); }"#;

#[test]
fn system_v_shared_memory() {
    passes(
        "shm",
        SYSTEM_V,
        r#"
        key_t key = 0x5eed0000 + getpid() % 0x10000;
        int id = shmget(key, 5 * PAGE - 100, IPC_CREAT | IPC_EXCL | 0640);
        CHECK(id >= 0 && shmget(key, PAGE, 0) == id);
        FAILS(shmget(key, PAGE, IPC_CREAT | IPC_EXCL), EEXIST);
        FAILS(shmget(key, 6 * PAGE, 0), EINVAL);
        FAILS(shmget(key + 1, PAGE, 0), ENOENT);
        FAILS(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
        char *a = shmat(id, 0, 0), *b = shmat(id, 0, SHM_RDONLY);
        CHECK(a != (char *)-1 && b != (char *)-1 && a != b && a[0] == 0 && a[5 * PAGE - 1] == 0);
        strcpy(a + PAGE, "both");
        CHECK(!strcmp(b + PAGE, "both") && signal_of(b, 1) == SIGSEGV);
        FAILS(mprotect(b, PAGE, rw), EACCES);
        struct shmid_ds ds;
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_segsz == 5 * PAGE - 100 && ds.shm_nattch == 2);
        CHECK(ds.shm_perm.mode == 0640 && ds.shm_perm.uid == getuid() && ds.shm_perm.cuid == getuid() && ds.shm_cpid == getpid());
        CHECK(ds.shm_atime >= ds.shm_ctime && ds.shm_dtime == 0 && ds.shm_lpid == getpid());
        pid_t child = fork();
        if (child == 0) {
            CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 4 && !strcmp(a + PAGE, "both"));
            strcpy(a + 3 * PAGE, "from the child");
            CHECK(shmdt(b) == 0);
            FAILS(shmdt(b), EINVAL);
            _exit(failed);
        }
        CHECK(ended(child) == 0 && !strcmp(b + 3 * PAGE, "from the child"));
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_nattch == 2);
        FAILS(shmat(id, a, 0), EINVAL);
        FAILS(shmat(id, a + 1, 0), EINVAL);
        CHECK(shmat(id, a + 1, SHM_RND | SHM_REMAP) == a && !strcmp(a + PAGE, "both"));
        FAILS(shmat(-1, 0, 0), EINVAL);
        FAILS(shmdt(a + PAGE), EINVAL);
        ds.shm_perm.mode = 0600;
        CHECK(shmctl(id, IPC_SET, &ds) == 0 && shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_perm.mode == 0600);
        struct shminfo limits; struct shm_info used;
        CHECK(shmctl(0, IPC_INFO, (void *)&limits) >= 0 && limits.shmmin == 1 && limits.shmmni >= 4096);
        CHECK(shmctl(0, SHM_INFO, (void *)&used) >= 0 && used.used_ids >= 1 && used.shm_tot >= 5);
        FAILS(shmctl(id, 99, 0), EINVAL);
        CHECK(shmctl(id, IPC_RMID, 0) == 0 && shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_perm.mode & 01000);
        FAILS(shmget(key, PAGE, 0), ENOENT);
        CHECK(shmdt(b) == 0 && a[PAGE] == 'b' && shmdt(a) == 0 && signal_of(a, 0) == SIGSEGV);
        FAILS(shmctl(id, IPC_STAT, &ds), EINVAL);
        int again = shmget(key, PAGE, IPC_CREAT | 0600);
        CHECK(again != id && shmctl(again, IPC_RMID, 0) == 0);
        FAILS(shmctl(again, IPC_RMID, 0), EINVAL);
        int private = shmget(IPC_PRIVATE, PAGE, 0600);
        char *p = shmat(private, 0, 0);
        child = fork();
        if (child == 0) { p[0] = 1; shmdt(p); execl("/bin/true", "true", (char *)0); _exit(9); }
        CHECK(ended(child) == 0 && p[0] == 1);
        CHECK(shmctl(private, IPC_STAT, &ds) == 0 && ds.shm_nattch == 1 && shmctl(private, IPC_RMID, 0) == 0);
    "#,
        |_| {},
    );
}

#[test]
fn system_v_semaphores() {
    passes(
        "sem",
        SYSTEM_V,
        r#"
        union semun arg;
        int id = semget(IPC_PRIVATE, 3, 0600);
        CHECK(id >= 0);
        FAILS(semget(IPC_PRIVATE, 0, 0600), EINVAL);
        FAILS(semget(IPC_PRIVATE, 40000, 0600), EINVAL);
        unsigned short values[3] = { 1, 2, 0 };
        arg.array = values;
        CHECK(semctl(id, 0, SETALL, arg) == 0 && semctl(id, 1, GETVAL) == 2);
        struct sembuf take = { 0, -1, 0 }, give = { 0, 1, 0 }, zero = { 0, 0, 0 }, both[2] = { { 0, -1, 0 }, { 2, -1, IPC_NOWAIT } };
        FAILS(semop(id, both, 2), EAGAIN);
        CHECK(semctl(id, 0, GETVAL) == 1);
        CHECK(semop(id, &take, 1) == 0 && semctl(id, 0, GETVAL) == 0 && semctl(id, 0, GETPID) == getpid());
        CHECK(semop(id, &zero, 1) == 0);
        take.sem_flg = IPC_NOWAIT;
        FAILS(semop(id, &take, 1), EAGAIN);
        take.sem_flg = 0;
        struct timespec soon = { 0, 3000000 }, wrong = { 0, -1 };
        FAILS(semtimedop(id, &take, 1, &soon), EAGAIN);
        FAILS(semtimedop(id, &take, 1, &wrong), EINVAL);
        struct sembuf far = { 3, 1, 0 };
        FAILS(semop(id, &far, 1), EFBIG);
        FAILS(semop(id, &take, 0), EINVAL);
        FAILS(semop(id, &take, 501), E2BIG);
        FAILS(semop(9999999, &take, 1), EINVAL);
        far.sem_num = 1; far.sem_op = 32767;
        FAILS(semop(id, &far, 1), ERANGE);
        arg.val = 40000;
        FAILS(semctl(id, 0, SETVAL, arg), ERANGE);
        FAILS(semctl(id, 3, GETVAL), EINVAL);
        pid_t child = fork();
        if (child == 0) { CHECK(semop(id, &take, 1) == 0); _exit(failed); }
        while (semctl(id, 0, GETNCNT) != 1) pause_a_bit();
        CHECK(semop(id, &give, 1) == 0 && ended(child) == 0 && semctl(id, 0, GETVAL) == 0 && semctl(id, 0, GETNCNT) == 0);
        CHECK(semop(id, &give, 1) == 0);
        child = fork();
        if (child == 0) { CHECK(semop(id, &zero, 1) == 0); _exit(failed); }
        while (semctl(id, 0, GETZCNT) != 1) pause_a_bit();
        CHECK(semop(id, &take, 1) == 0 && ended(child) == 0);
        child = fork();
        if (child == 0) {
            struct sembuf undone[2] = { { 0, 3, SEM_UNDO }, { 1, -2, SEM_UNDO } };
            CHECK(semop(id, undone, 2) == 0 && semctl(id, 0, GETVAL) == 3 && semctl(id, 1, GETVAL) == 0);
            struct sembuf part = { 0, -1, 0 };
            CHECK(semop(id, &part, 1) == 0);
            _exit(failed);
        }
        CHECK(ended(child) == 0 && semctl(id, 0, GETVAL) == 0 && semctl(id, 1, GETVAL) == 2);
        child = fork();
        if (child == 0) {
            struct sembuf hold = { 2, 5, SEM_UNDO };
            CHECK(semop(id, &hold, 1) == 0);
            kill(getpid(), SIGKILL);
        }
        CHECK(ended(child) == SIGKILL && semctl(id, 2, GETVAL) == 0);
        struct sigaction action = { 0 };
        action.sa_handler = nothing; action.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &action, 0);
        child = fork();
        if (child == 0) { FAILS(semop(id, &take, 1), EINTR); _exit(failed); }
        while (semctl(id, 0, GETNCNT) != 1) pause_a_bit();
        kill(child, SIGUSR1);
        CHECK(ended(child) == 0);
        child = fork();
        if (child == 0) { FAILS(semop(id, &take, 1), EIDRM); _exit(failed); }
        while (semctl(id, 0, GETNCNT) != 1) pause_a_bit();
        struct semid_ds ds;
        arg.buf = &ds;
        CHECK(semctl(id, 0, IPC_STAT, arg) == 0 && ds.sem_nsems == 3 && ds.sem_perm.mode == 0600 && ds.sem_otime >= ds.sem_ctime);
        ds.sem_perm.mode = 0400;
        CHECK(semctl(id, 0, IPC_SET, arg) == 0);
        struct seminfo info;
        arg.info = &info;
        CHECK(semctl(0, 0, IPC_INFO, arg) >= 0 && info.semvmx == 32767 && info.semopm == 500);
        CHECK(semctl(id, 0, IPC_RMID) == 0 && ended(child) == 0);
        FAILS(semctl(id, 0, GETVAL), EINVAL);
    "#,
        |_| {},
    );
}

#[test]
fn system_v_messages() {
    passes(
        "msg",
        SYSTEM_V,
        r#"
        int id = msgget(IPC_PRIVATE, 0600);
        CHECK(id >= 0);
        struct text m = { 5, "five" }, got;
        CHECK(msgsnd(id, &m, 5, 0) == 0);
        m.type = 3; strcpy(m.text, "three"); CHECK(msgsnd(id, &m, 6, 0) == 0);
        m.type = 4; strcpy(m.text, "four"); CHECK(msgsnd(id, &m, 5, 0) == 0);
        m.type = 3; strcpy(m.text, "third"); CHECK(msgsnd(id, &m, 6, 0) == 0);
        struct msqid_ds ds;
        CHECK(msgctl(id, IPC_STAT, &ds) == 0 && ds.msg_qnum == 4 && ds.msg_cbytes == 22 && ds.msg_qbytes == 16384 && ds.msg_lspid == getpid());
        CHECK(msgrcv(id, &got, 64, -4, 0) == 6 && got.type == 3 && !strcmp(got.text, "three"));
        CHECK(msgrcv(id, &got, 64, 5, MSG_EXCEPT) == 5 && got.type == 4);
        FAILS(msgrcv(id, &got, 64, 9, IPC_NOWAIT), ENOMSG);
        FAILS(msgrcv(id, &got, 2, 0, 0), E2BIG);
        CHECK(msgrcv(id, &got, 2, 0, MSG_NOERROR) == 2 && got.type == 5 && !memcmp(got.text, "fi", 2));
        CHECK(msgrcv(id, &got, 64, 3, 0) == 6 && !strcmp(got.text, "third"));
        m.type = 0;
        FAILS(msgsnd(id, &m, 1, 0), EINVAL);
        m.type = 1;
        FAILS(msgsnd(id, &m, 9000, 0), EINVAL);
        FAILS(msgrcv(id, &got, -1, 0, 0), EINVAL);
        FAILS(msgrcv(id + 77777, &got, 1, 0, 0), EINVAL);
        pid_t child = fork();
        if (child == 0) {
            CHECK(msgrcv(id, &got, 64, 7, 0) == 6 && !strcmp(got.text, "seven"));
            m.type = 8; strcpy(m.text, "eight"); CHECK(msgsnd(id, &m, 6, 0) == 0);
            _exit(failed);
        }
        m.type = 6; CHECK(msgsnd(id, &m, 1, 0) == 0);
        pause_a_bit();
        m.type = 7; strcpy(m.text, "seven"); CHECK(msgsnd(id, &m, 6, 0) == 0);
        CHECK(msgrcv(id, &got, 64, 8, 0) == 6 && !strcmp(got.text, "eight") && ended(child) == 0);
        CHECK(msgrcv(id, &got, 64, 0, 0) == 1 && got.type == 6);
        static struct { long type; char text[8192]; } large = { 1 };
        CHECK(msgsnd(id, &large, 8192, 0) == 0 && msgsnd(id, &large, 8192, IPC_NOWAIT) == 0);
        FAILS(msgsnd(id, &large, 1, IPC_NOWAIT), EAGAIN);
        child = fork();
        if (child == 0) { CHECK(msgsnd(id, &large, 100, 0) == 0); _exit(failed); }
        pause_a_bit();
        CHECK(msgrcv(id, &large, 8192, 0, 0) == 8192 && ended(child) == 0);
        CHECK(msgrcv(id, &large, 8192, 0, 0) == 8192 && msgrcv(id, &large, 8192, 0, 0) == 100);
        struct sigaction action = { 0 };
        action.sa_handler = nothing; action.sa_flags = SA_RESTART;
        sigaction(SIGUSR1, &action, 0);
        int tell[2];
        pipe(tell);
        child = fork();
        if (child == 0) { write(tell[1], "x", 1); FAILS(msgrcv(id, &got, 64, 0, 0), EINTR); write(tell[1], "x", 1); FAILS(msgrcv(id, &got, 64, 0, 0), EIDRM); _exit(failed); }
        char c;
        read(tell[0], &c, 1); pause_a_bit(); kill(child, SIGUSR1);
        read(tell[0], &c, 1); pause_a_bit();
        ds.msg_qbytes = 100;
        CHECK(msgctl(id, IPC_SET, &ds) == 0 && msgctl(id, IPC_STAT, &ds) == 0 && ds.msg_qbytes == 100);
        struct msginfo info;
        CHECK(msgctl(0, IPC_INFO, (void *)&info) >= 0 && info.msgmax == 8192 && info.msgmnb == 16384);
        CHECK(msgctl(id, IPC_RMID, 0) == 0 && ended(child) == 0);
        FAILS(msgsnd(id, &m, 1, 0), EINVAL);
    "#,
        |_| {},
    );
}

#[test]
fn posix_message_queues() {
    passes(
        "mqueue",
        r#"
        #include <mqueue.h>
        #include <sys/epoll.h>
        static volatile int told, code, value;
        static void tell(int signal, siginfo_t *info, void *unused) { told++; code = info->si_code; value = info->si_value.sival_int; }
        static void nothing(int signal) { }
        static struct timespec in(long ms) {
            struct timespec t; clock_gettime(CLOCK_REALTIME, &t);
            t.tv_nsec += ms * 1000000; t.tv_sec += t.tv_nsec / 1000000000; t.tv_nsec %= 1000000000;
            return t;
        }"#,
        r#"
        char name[32]; sprintf(name, "/gretel-%d", getpid());
        struct mq_attr want = { 0, 3, 16, 0 }, is;
        mqd_t q = mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &want);
        CHECK(q >= 0 && (fcntl(q, F_GETFD) & FD_CLOEXEC) && (fcntl(q, F_GETFL) & O_ACCMODE) == O_RDWR);
        FAILS(mq_open(name, O_CREAT | O_EXCL | O_RDWR, 0600, &want), EEXIST);
        FAILS(mq_open("/gretel-none", O_RDONLY), ENOENT);
        FAILS(mq_open("/gretel/none", O_RDONLY), EACCES);
        want.mq_maxmsg = 0;
        FAILS(mq_open("/gretel-other", O_CREAT | O_RDWR, 0600, &want), EINVAL);
        CHECK(mq_getattr(q, &is) == 0 && is.mq_maxmsg == 3 && is.mq_msgsize == 16 && is.mq_curmsgs == 0 && is.mq_flags == 0);
        struct pollfd p = { q, POLLIN | POLLOUT };
        CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
        CHECK(mq_send(q, "low", 4, 1) == 0 && mq_send(q, "high", 5, 9) == 0);
        CHECK(poll(&p, 1, 0) == 1 && p.revents == (POLLIN | POLLOUT));
        CHECK(mq_send(q, "lower", 6, 1) == 0 && poll(&p, 1, 0) == 1 && p.revents == POLLIN);
        struct timespec soon = in(3);
        FAILS(mq_timedsend(q, "full", 5, 1, &soon), ETIMEDOUT);
        FAILS(mq_send(q, "much too long for it", 20, 1), EMSGSIZE);
        FAILS(mq_send(q, "x", 1, 40000), EINVAL);
        char text[16]; unsigned priority;
        FAILS(mq_receive(q, text, 15, 0), EMSGSIZE);
        CHECK(mq_receive(q, text, 16, &priority) == 5 && priority == 9 && !strcmp(text, "high"));
        CHECK(mq_receive(q, text, 16, &priority) == 4 && priority == 1 && !strcmp(text, "low"));
        CHECK(mq_receive(q, text, 16, 0) == 6 && !strcmp(text, "lower"));
        mqd_t only = mq_open(name, O_RDONLY | O_NONBLOCK);
        FAILS(mq_receive(only, text, 16, 0), EAGAIN);
        FAILS(mq_send(only, "x", 1, 0), EBADF);
        CHECK(mq_getattr(only, &is) == 0 && is.mq_flags == O_NONBLOCK);
        want.mq_flags = 0;
        CHECK(mq_setattr(only, &want, &is) == 0 && is.mq_flags == O_NONBLOCK && mq_getattr(only, &is) == 0 && is.mq_flags == 0);
        soon = in(3);
        FAILS(mq_timedreceive(only, text, 16, 0, &soon), ETIMEDOUT);
        FAILS(mq_receive(0, text, 16, 0), EBADF);
        pid_t child = fork();
        if (child == 0) { CHECK(mq_receive(q, text, 16, 0) == 3 && !strcmp(text, "to")); CHECK(mq_send(q, "fro", 4, 0) == 0); _exit(failed); }
        usleep(3000);
        CHECK(mq_send(q, "to", 3, 0) == 0);
        CHECK(ended(child) == 0 && mq_receive(q, text, 16, 0) == 4 && !strcmp(text, "fro"));
        struct sigaction action = { 0 };
        action.sa_sigaction = tell; action.sa_flags = SA_SIGINFO;
        sigaction(SIGUSR1, &action, 0);
        struct sigevent event = { 0 };
        event.sigev_notify = SIGEV_SIGNAL; event.sigev_signo = SIGUSR1; event.sigev_value.sival_int = 77;
        CHECK(mq_notify(q, &event) == 0);
        FAILS(mq_notify(q, &event), EBUSY);
        CHECK(mq_send(q, "a", 2, 0) == 0 && told == 1 && code == SI_MESGQ && value == 77);
        CHECK(mq_send(q, "b", 2, 0) == 0 && told == 1);
        CHECK(mq_notify(q, &event) == 0 && mq_notify(q, 0) == 0);
        CHECK(mq_receive(q, text, 16, 0) == 2 && mq_receive(q, text, 16, 0) == 2);
        event.sigev_notify = SIGEV_NONE;
        CHECK(mq_notify(q, &event) == 0 && mq_send(q, "c", 2, 0) == 0 && told == 1 && mq_receive(q, text, 16, 0) == 2);
        int set = epoll_create1(0);
        struct epoll_event wanted = { EPOLLIN }, seen;
        CHECK(epoll_ctl(set, EPOLL_CTL_ADD, q, &wanted) == 0 && epoll_wait(set, &seen, 1, 0) == 0);
        child = fork();
        if (child == 0) { usleep(2000); _exit(mq_send(q, "d", 2, 0) != 0); }
        CHECK(epoll_wait(set, &seen, 1, -1) == 1 && seen.events == EPOLLIN && mq_receive(q, text, 16, 0) == 2 && ended(child) == 0);
        action.sa_handler = nothing; action.sa_flags = 0;
        sigaction(SIGUSR2, &action, 0);
        child = fork();
        if (child == 0) { FAILS(mq_receive(q, text, 16, 0), EINTR); _exit(failed); }
        usleep(20000); kill(child, SIGUSR2);
        CHECK(ended(child) == 0);
        CHECK(mq_unlink(name) == 0 && mq_send(q, "still", 6, 0) == 0 && mq_receive(only, text, 16, 0) == 6);
        FAILS(mq_unlink(name), ENOENT);
        FAILS(mq_open(name, O_RDONLY), ENOENT);
        CHECK(mq_close(only) == 0 && mq_close(q) == 0);
        FAILS(mq_close(q), EBADF);
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
