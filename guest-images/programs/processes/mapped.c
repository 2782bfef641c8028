// Files that are mapped: shared writes reach the file and other processes, private ones do not, ends and growth.
#include "processes.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile int number_, code_;

static void jump(int number, siginfo_t *info, void *context) {
    (void)context;
    number_ = number, code_ = info->si_code;
    siglongjmp(back, 1);
}

// What happens at a read of this address.
static const char *touch(const volatile char *at) {
    static char text[40];
    number_ = 0;
    if (!sigsetjmp(back, 1)) {
        snprintf(text, sizeof text, "reads %d", *at);
        return text;
    }
    snprintf(text, sizeof text, "signal %d, code %d", number_, code_);
    return text;
}

static char text[32];
static const char *at(int fd, off_t offset) {
    memset(text, 0, sizeof text);
    CHECK(pread(fd, text, 10, offset) >= 0);
    return text;
}

// A private mapping that begins where its file ends: what the file grows by is there, and copied when it is stored to.
static void private_growth(void) {
    int fd = open("small", O_RDWR | O_CREAT, 0600), from[2];
    CHECK(fd >= 0 && pipe(from) == 0 && write(from[1], "by a read", 9) == 9);
    char *map = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED);
    printf("of an empty file: %s\n", touch(map));
    CHECK(ftruncate(fd, 4096 + 1) == 0 && pwrite(fd, "A", 1, 4096) == 1);
    printf("grown: %s", touch(map));
    printf(", %s", touch(map + 4096));
    printf(", behind: %s\n", touch(map + 8192));
    map[4096] = 'P';
    printf("stored: %c, the file: %s\n", map[4096], at(fd, 4096));
    CHECK(pwrite(fd, "B", 1, 4096) == 1 && pwrite(fd, "C", 1, 4095) == 1);
    printf("written: %c%c\n", map[4095], map[4096]);
    pid_t pid = split();
    if (pid == 0) {
        map[0] = 'Q';
        _exit(map[4096] == 'P' && map[4095] == 'C' ? 7 : 8);
    }
    printf("a child's copy: %s, %s\n", ended(finish(pid)), touch(map));
    CHECK(read(from[0], map + 8192, 9) == -1);
    printf("a read to where nothing is: %s\n", error(errno));
    CHECK(pwrite(fd, "D", 1, 3 * 4096 - 1) == 1 && read(from[0], map + 8192, 9) == 9);
    printf("and to what has grown: %.9s%c, the file: %s.\n", map + 8192, map[3 * 4096 - 1], at(fd, 8192));
    char *larger = mremap(map, 4 * 4096, 6 * 4096, MREMAP_MAYMOVE);
    CHECK(larger != MAP_FAILED && ftruncate(fd, 6 * 4096) == 0 && pwrite(fd, "E", 1, 5 * 4096) == 1);
    printf("extended: %c%c\n", larger[4096], larger[5 * 4096]);
    CHECK(ftruncate(fd, 4096) == 0);
    printf("cut: %s\n", touch(larger + 4096));
    close(fd), unlink("small");
}

// One of a part of a file that is open for writing: what is written is seen, and mremap adds what the file has behind it.
static void private_part(void) {
    int fd = open("part", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 2 * 4096) == 0 && pwrite(fd, "A", 1, 0) == 1 && pwrite(fd, "B", 1, 4096) == 1);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(map != MAP_FAILED && pwrite(fd, "C", 1, 0) == 1);
    printf("a part, written to: %c", *map);
    *map = 'P';
    char *larger = mremap(map, 4096, 3 * 4096, MREMAP_MAYMOVE);
    CHECK(larger != MAP_FAILED);
    printf(", extended: %c%c, the file: %.1s, behind: %s\n", larger[0], larger[4096], at(fd, 0), touch(larger + 2 * 4096));
    close(fd), unlink("part");
}

int main(void) {
    const char *folder = enter_folder();
    handle_with_info(SIGBUS, jump, 0);
    handle_with_info(SIGSEGV, jump, 0);
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && ftruncate(fd, 3 * 4096 + 100) == 0);
    CHECK(pwrite(fd, "beginning!", 10, 0) == 10 && pwrite(fd, "the second", 10, 4096) == 10);

    char *map = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(map != MAP_FAILED);
    memcpy(map + 20, "by memory", 9);
    printf("read: %s\n", at(fd, 20));
    CHECK(pwrite(fd, "by a write", 10, 40) == 10);
    printf("memory: %.10s\n", map + 40);
    CHECK(msync(map, 4096, MS_SYNC) == 0);

    pid_t pid = split();
    if (pid == 0) {
        memcpy(map + 4096, "the child's", 11);
        // Another mapping of the same file, made by the child.
        int again = open("file", O_RDWR);
        char *other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 8192);
        CHECK(other != MAP_FAILED);
        memcpy(other, "elsewhere", 9);
        CHECK(munmap(other, 4096) == 0);
        _exit(memcmp(map + 20, "by memory", 9) == 0 ? 3 : 4);
    }
    printf("the child: %s\n", ended(finish(pid)));
    printf("its writes: %.11s, %.9s, %s\n", map + 4096, map + 8192, at(fd, 8192));

    char *private_ = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 4096);
    CHECK(private_ != MAP_FAILED);
    memcpy(private_, "PRIVATE", 7);
    printf("private: %.11s, the file: %s\n", private_, at(fd, 4096));
    pid = split();
    if (pid == 0) {
        int seen = !memcmp(private_, "PRIVATE", 7);
        memcpy(private_, "child's", 7);
        _exit(seen ? 5 : 6);
    }
    printf("a child's copy: %s", ended(finish(pid)));
    printf(", the parent's: %.7s\n", private_);

    // The end of the file: the rest of its last page is zero, pages beyond it are not there until it grows.
    printf("in the last page: %s\n", touch(map + 3 * 4096 + 2000));
    CHECK(ftruncate(fd, 4096 + 50) == 0);
    printf("cut off: %s\n", touch(map + 8192));
    printf("still in it: %s\n", touch(map + 4096));
    printf("past the end: %s\n", touch(map + 4096 + 50));
    CHECK(ftruncate(fd, 4 * 4096) == 0);
    printf("grown again: %s\n", touch(map + 8192));
    CHECK(pwrite(fd, "Z", 1, 8192) == 1);
    printf("and written: %s\n", touch(map + 8192));

    private_growth();
    private_part();

    // What may be mapped how.
    int reader = open("file", O_RDONLY);
    CHECK(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, reader, 0) == MAP_FAILED);
    printf("to write, opened to read: %s\n", error(errno));
    char *later = mmap(NULL, 4096, PROT_READ, MAP_SHARED, reader, 0);
    CHECK(later != MAP_FAILED && mprotect(later, 4096, PROT_READ | PROT_WRITE) == -1);
    printf("made so later: %s\n", error(errno));
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 100) == MAP_FAILED);
    printf("between pages: %s\n", error(errno));
    map[1] = 'E';
    printf("a reader's mapping sees it: %.10s\n", later);
    // The mapping stays when the file is closed and its name is gone.
    close(reader), close(fd), unlink("file");
    map[2] = 'G';
    printf("without a name: %.10s\n", later);
    CHECK(munmap(map, 4 * 4096) == 0);
    printf("the other: %.10s\n", later);
    leave_folder(folder);
    return 0;
}
