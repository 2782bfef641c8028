//! Small questions to the kernel whose answers are errors or constants: as natively, and without a word of what is not served.

use crate::{Place, engines, finished};

const ASKS: &str = r#"
    #define _GNU_SOURCE
    #include <errno.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/inotify.h>
    #include <sys/ioctl.h>
    #include <sys/mman.h>
    #include <sys/prctl.h>
    #include <sys/sendfile.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <unistd.h>
    static void say(const char *what, long result) {
        printf("%s: %ld %s\n", what, result < 0 ? -1 : result, result < 0 ? strerror(errno) : "");
    }
    #define SAY(call) (errno = 0, say(#call, (long)(call)))
    int main(void) {
        int file = open("file", O_CREAT | O_RDWR | O_TRUNC, 0600), copy = open("copy", O_CREAT | O_RDWR, 0600);
        int null = open("/dev/null", O_RDWR), folder = open(".", O_RDONLY), group = getpgrp(), ends[2], mode = 9;
        write(file, "hello\n", 6);

        // Memory policies of a machine with one node.
        unsigned long nodes[16] = { 7, 7 }, first = 1, second = 2;
        SAY(syscall(SYS_get_mempolicy, 0, 0, 0, 0, 0));
        SAY(syscall(SYS_get_mempolicy, &mode, nodes, 1024, 0, 0));
        printf("%d %lx\n", mode, nodes[0]);
        SAY(syscall(SYS_get_mempolicy, 0, nodes, 64, 0, 4));
        printf("%lx\n", nodes[0]);
        SAY(syscall(SYS_set_mempolicy, 2, &first, 64));
        SAY(syscall(SYS_get_mempolicy, &mode, nodes, 1024, 0, 0));
        printf("%d %lx\n", mode, nodes[0]);
        SAY(syscall(SYS_set_mempolicy, 2, &second, 64));
        SAY(syscall(SYS_set_mempolicy, 0, 0, 0));
        SAY(syscall(SYS_get_mempolicy, 0, 0, 0, &mode, 0));
        char *page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SAY(syscall(SYS_mbind, page, 8192, 2, &first, 64, 0));
        SAY(syscall(SYS_mbind, page, 8192, 2, &second, 64, 0));
        SAY(syscall(SYS_mbind, page + 1, 8192, 0, 0, 0, 0));

        // What is no terminal, and what shares no blocks.
        SAY(ioctl(null, TIOCSPGRP, &group));
        SAY(ioctl(null, TIOCSCTTY, 0));
        SAY(ioctl(file, TIOCSPGRP, &group));
        SAY(ioctl(null, 0x4b33, &mode));
        pipe(ends);
        SAY(ioctl(ends[0], TIOCGSID, &group));
        SAY(ioctl(null, 0x40049409, file));
        SAY(ioctl(copy, 0x40049409, -1));
        SAY(ioctl(copy, 0x40049409, null));
        SAY(ioctl(file, 0x802c542a, nodes));

        // A descriptor that is a place alone.
        int place = open("file", O_PATH), pair[2];
        char byte;
        struct stat about;
        SAY(read(place, &byte, 1));
        SAY(fcntl(place, F_GETFL) & O_PATH);
        SAY(fcntl(place, F_GETLEASE));
        SAY(fcntl(place, F_SETSIG, 0));
        SAY(ioctl(place, FIONREAD, &mode));
        SAY(listen(place, 1));
        SAY(getsockopt(place, SOL_SOCKET, SO_TYPE, &mode, (socklen_t *)nodes));
        SAY(fstat(place, &about));
        SAY(ftruncate(place, 0));

        // Vectors with flags, hints, and what is asked of the wrong kind of file.
        struct iovec part = { "world\n", 6 }, into = { &byte, 1 };
        unsigned long hint = 2;
        SAY(pwritev2(file, &part, 1, 6, RWF_DSYNC));
        SAY(pwritev2(file, &part, 1, 12, RWF_SYNC));
        SAY(preadv2(file, &into, 1, 6, RWF_NOWAIT));
        SAY(preadv2(-1, &into, 1, 6, RWF_NOWAIT));
        SAY(syscall(SYS_readv, -1, &into, -1));
        SAY(fcntl(file, F_SET_RW_HINT, &hint));
        hint = 0;
        SAY(fcntl(file, F_GET_RW_HINT, &hint));
        printf("%lu\n", hint);
        SAY(mmap(0, 4096, PROT_READ, MAP_PRIVATE, folder, 0) == MAP_FAILED ? -1 : 0);
        SAY(mmap(0, -1, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED ? -1 : 0);
        SAY(sendfile(file, folder, 0, 4));
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        SAY(setsockopt(pair[0], 6, 999, &mode, 4));
        SAY(setsockopt(pair[0], 99, 2, &mode, 4));
        SAY(inotify_add_watch(inotify_init(), "nowhere", 0));
        long long size = 0;
        SAY(prctl(PR_SET_NAME, -1));
        SAY(ioctl(file, 0x5460, &size));
        printf("%lld\n", size);
        return 0;
    }"#;

#[test]
fn questions_are_answered_as_natively_and_without_a_word() {
    let place = Place::new();
    let Some(program) = place.compile("asks", ASKS) else { return };
    let natively = finished(&place.command(&program, &[]).output().unwrap());
    assert_eq!(natively.code, 0);
    for engine in engines() {
        let recorded = place.gretel(&["record", "--force", "--engine", engine, "-o", "rec", "--", "./asks"]);
        assert_eq!(recorded.out(), natively.out(), "{engine}: {}", recorded.err);
        assert!(!recorded.err.contains("not s"), "nothing is not served or supported: {}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay("rec", replayer)["equal"], true, "{engine}, {replayer}");
        }
    }
}

#[test]
fn a_dynamic_linker_by_a_relative_path_is_found_from_the_working_directory() {
    let place = Place::new();
    place.write("main.c", "#include <stdio.h>\nint main(void) { puts(\"linked\"); return 0; }");
    let made = place
        .sh("ln -s /lib64/ld-linux-x86-64.so.2 loader && gcc -Wl,--dynamic-linker=./loader -o linked main.c");
    if made.code != 0 {
        crate::skipped("a relative dynamic linker", "gcc cannot make a dynamic program here");
        return;
    }
    for command in [&["./linked"][..], &["busybox", "sh", "-c", "exec ./linked"]] {
        let recorded = place.gretel(&[&["record", "--force", "-o", "rec", "--"], command].concat());
        assert_eq!((recorded.code, recorded.out().as_str()), (0, "linked\n"), "{}", recorded.err);
        assert_eq!(place.replay("rec", "soft")["equal"], true);
    }
}
