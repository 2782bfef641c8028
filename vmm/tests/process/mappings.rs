//! Memory in unusual ways, as on Linux: written whatever its rights are, larger than what there is, unmapped in parts.

use crate::alarms::as_natively;
use crate::harness::Engine;
use crate::harness::{Run, each_libc};
use crate::prints;
use crate::sharing::passes;

#[test]
fn private_memory_is_written_whatever_its_rights_are() {
    passes(
        "forced",
        "",
        r#"
        int memory = open("/proc/self/mem", O_RDWR);
        #define PUT(text, at) pwrite(memory, text, sizeof text - 1, (long)(at))
        char *code = mmap(0, PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int (*function)(void) = (void *)code;
        CHECK(PUT("\xb8\x2a\0\0\0\xc3", code) == 6 && function() == 42);
        pid_t child = fork();
        if (child == 0) {
            memory = open("/proc/self/mem", O_RDWR);
            CHECK(PUT("\xb8\x2b", code) == 2 && function() == 43);
            _exit(failed);
        }
        CHECK(ended(child) == 0 && function() == 42);
        // CPUID, which is not what it seems in memory, and goes again.
        char back[2];
        CHECK(PUT("\x53\x31\xc0\x0f\xa2\x5b\xb8\x07\0\0\0\xc3", code) == 12 && function() == 7);
        CHECK(pread(memory, back, 2, (long)code + 3) == 2 && !memcmp(back, "\x0f\xa2", 2));
        CHECK(PUT("\x90", code + 4) == 1 && pread(memory, back, 2, (long)code + 3) == 2 && !memcmp(back, "\x0f\x90", 2));
        CHECK(PUT("\x90", code + 3) == 1 && function() == 7);
        char *none = mmap(0, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(PUT("x", none) == 1 && signal_of(none, 0) == SIGSEGV);
        CHECK(mprotect(none, PAGE, PROT_READ) == 0 && *none == 'x' && signal_of(none, 1) == SIGSEGV);
        // The file stays as it is, and what others see too.
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(write(file, "file", 4) == 4);
        char *copy = mmap(0, 2 * PAGE, PROT_READ, MAP_PRIVATE, file, 0), *shared = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0);
        CHECK(PUT("C", copy) == 1 && *copy == 'C' && *shared == 'f');
        FAILS(PUT("x", copy + PAGE), EIO);
        FAILS(PUT("x", shared), EIO);
        FAILS(PUT("x", 0), EIO);
    "#,
        |_| {},
    );
}

#[test]
fn files_of_holes_are_mapped_however_large_they_are() {
    passes(
        "holes",
        "",
        r#"
        off_t size = 100L << 30;
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(pwrite(file, "begin", 5, 0) == 5 && pwrite(file, "end", 3, size) == 3);
        char *a = mmap(0, size + 3, rw, MAP_SHARED, file, 0);
        CHECK(a != MAP_FAILED && a[1] == 'e' && a[size + 2] == 'd' && a[size / 4] == 0);
        a[size / 2] = a[size / 2 + 65536] = 1;
        CHECK(munmap(a, size + 3) == 0);
        CHECK(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, size / 2, PAGE) == 0);
        a = mmap(0, size + 3, rw, MAP_SHARED, file, 0);
        CHECK(a != MAP_FAILED && a[size / 2] == 0 && a[size / 2 + 65536] == 1 && a[size] == 'e');
        CHECK(munmap(a, size + 3) == 0);
        // What is private is taken up to the last data.
        int memory = memfd_create("large", 0);
        CHECK(ftruncate(memory, 1L << 40) == 0 && write(memory, "x", 1) == 1);
        char *b = mmap(0, 1L << 40, PROT_READ, MAP_PRIVATE, memory, 0);
        CHECK(b != MAP_FAILED && b[0] == 'x' && b[1L << 39] == 0);
        // A file may end long before its mapping.
        CHECK(ftruncate(file, 5) == 0);
        char *c = mmap(0, 4L << 30, rw, MAP_PRIVATE, file, 0);
        CHECK(c != MAP_FAILED && c[4] == 'n' && c[PAGE - 1] == 0 && signal_of(c + PAGE, 0) == SIGBUS);
    "#,
        |_| {},
    );
}

/// Their pages have the same frames as long as nobody stores to them and the file is the same.
#[test]
fn files_that_are_mapped_again_are_what_the_file_is_then() {
    passes(
        "again",
        "",
        r#"
        #define CALL(at) ((int (*)(void))(at))()
        int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600), code = PROT_READ | PROT_EXEC;
        char pages[2 * PAGE];
        memset(pages, 0xc3, sizeof pages);
        memcpy(pages, "\xb8\x2a\0\0\0\xc3", 6);
        // With CPUID in it.
        memcpy(pages + PAGE, "\x53\x31\xc0\x0f\xa2\x5b\xb8\x07\0\0\0\xc3", 12);
        CHECK(write(file, pages, sizeof pages) == sizeof pages);
        char *a = mmap(0, 2 * PAGE, code, MAP_PRIVATE, file, 0), *b = mmap(0, 2 * PAGE, code, MAP_PRIVATE, file, 0);
        CHECK(CALL(a) == 42 && CALL(a + PAGE) == 7 && CALL(b) == 42 && CALL(b + PAGE) == 7);
        CHECK(mprotect(a, PAGE, rw) == 0);
        a[1] = 43;
        CHECK(mprotect(a, PAGE, code) == 0 && CALL(a) == 43 && CALL(b) == 42);
        CHECK(pwrite(file, "\xb8\x2c", 2, 0) == 2);
        char *c = mmap(0, 2 * PAGE, code, MAP_PRIVATE, file, 0);
        CHECK(CALL(c) == 44 && CALL(c + PAGE) == 7 && CALL(a) == 43);
        pid_t child = fork();
        if (child == 0) {
            CHECK(mprotect(c, PAGE, rw) == 0);
            c[1] = 45;
            CHECK(mprotect(c, PAGE, code) == 0 && CALL(c) == 45 && CALL(c + PAGE) == 7);
            _exit(failed);
        }
        CHECK(ended(child) == 0 && CALL(c) == 44);
    "#,
        |_| {},
    );
}

#[test]
fn a_segment_is_detached_whatever_was_unmapped_of_it() {
    passes(
        "detached",
        "",
        r#"
        int id = shmget(IPC_PRIVATE, 3 * PAGE, 0600);
        struct shmid_ds of;
        for (int part = 0; part < 3; part++) {
            char *a = shmat(id, 0, 0);
            CHECK(a != (void *)-1 && munmap(a + part * PAGE, PAGE) == 0);
            CHECK(shmdt(a) == 0 && shmctl(id, IPC_STAT, &of) == 0 && of.shm_nattch == 0);
            FAILS(shmdt(a), EINVAL);
        }
        char *a = shmat(id, 0, 0);
        FAILS(shmdt(a + PAGE), EINVAL);
        CHECK(munmap(a, 3 * PAGE) == 0);
        FAILS(shmdt(a), EINVAL);
        CHECK(shmctl(id, IPC_RMID, 0) == 0);
    "#,
        |_| {},
    );
}

#[test]
fn descriptors_are_those_that_linux_lets_programs_see() {
    as_natively(
        "selectors",
        r#"
        int main(void) {
            for (unsigned s = 0; s < 0xa0; s++) {
                uint64_t limit = -1, rights = -1; uint8_t has[4]; uint16_t word = s;
                asm volatile("lsl %2, %0; setz %1" : "+r"(limit), "=r"(has[0]) : "r"((uint64_t)s) : "cc");
                asm volatile("lar %2, %w0; setz %1" : "+r"(rights), "=r"(has[1]) : "m"(word) : "cc");
                asm volatile("verr %1; setz %0" : "=r"(has[2]) : "m"(word) : "cc");
                asm volatile("verw %w1; setz %0" : "=r"(has[3]) : "r"(s) : "cc");
                // That one tells which processor it is.
                if ((s & ~3) == 0x78) limit = 0;
                SAY("%x: %lx %lx %d %d %d %d\n", s, limit, rights, has[0], has[1], has[2], has[3]);
            }
            return 0;
        }"#,
    );
}

#[test]
fn who_makes_a_thread_goes_on_first() {
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        static volatile int ran;
        static void *thread(void *unused) { ran = 1; return 0; }
        int main(void) {
            int first = 0;
            for (int n = 0; n < 10; n++) {
                for (volatile int work = 0; work < 1000000; work++);
                pthread_t other;
                ran = 0;
                pthread_create(&other, 0, thread, 0);
                first += !ran;
                pthread_join(other, 0);
            }
            printf("%s\n", first ? "maker" : "thread");
            return 0;
        }"#;
    each_libc("maker", source, &["-pthread"], |program| {
        let ran = Run::new(program, &[]).on(Engine::Soft);
        assert_eq!(prints(&ran), "maker\n");
        ran.replay_on(Engine::Soft);
    });
}
