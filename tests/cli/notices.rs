//! Signals that tell of files: as natively, on each engine, and in each replay.

use crate::{Place, engines, finished};

/// A program records as it runs natively, and replays.
fn as_natively(name: &str, source: &str) {
    let place = Place::new();
    let Some(program) = place.compile(name, source) else { return };
    let natively = finished(&place.command(&program, &[]).output().unwrap());
    assert_eq!(natively.code, 0, "{}: {}", natively.out(), natively.err);
    for engine in engines() {
        let run = ["record", "--force", "--engine", engine, "-o", "rec", "--", &format!("./{name}")];
        let recorded = place.gretel(&run);
        assert_eq!((recorded.code, recorded.out()), (0, natively.out()), "{engine}: {}", recorded.err);
        assert!(!recorded.err.contains("not served"), "{engine}: {}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay("rec", replayer)["equal"], true, "{engine}, {replayer}");
        }
    }
}

/// The start of each program: a handler that prints what it is told.
const HANDLER: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <poll.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/ioctl.h>
    #include <sys/prctl.h>
    #include <sys/socket.h>
    #include <sys/stat.h>
    #include <sys/wait.h>
    #include <time.h>
    #include <unistd.h>
    static volatile int seen;
    static void handler(int signal, siginfo_t *info, void *context) {
        char text[99];
        int length = info->si_code == SI_KERNEL ? sprintf(text, "signal %d\n", signal)
            : sprintf(text, "signal %d code %d fd %d in %d\n", signal, info->si_code, info->si_fd,
                (info->si_band & POLLIN) != 0);
        write(1, text, length);
        seen++;
    }
    static void handle(int signal) {
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART };
        sigaction(signal, &action, 0);
    }
"#;

#[test]
fn a_file_that_becomes_ready_is_told_of_at_once() {
    let program = r#"
    int main(void) {
        int ends[2], pair[2], on = 1, owner;
        char bytes[4096];
        struct f_owner_ex own = { F_OWNER_TID, 0 };
        handle(SIGIO);
        handle(SIGRTMIN + 3);
        pipe(ends);
        printf("%d %d\n", fcntl(ends[0], F_SETFL, O_ASYNC), (fcntl(ends[0], F_GETFL) & O_ASYNC) != 0);
        write(ends[1], "a", 1);
        printf("%d: nobody is told\n", seen);
        fcntl(ends[0], F_SETOWN, getpid());
        printf("%d\n", fcntl(ends[0], F_GETOWN) == getpid());
        fflush(stdout);
        write(ends[1], "b", 1);
        fcntl(ends[0], F_SETSIG, SIGRTMIN + 3);
        write(ends[1], "c", 1);
        fcntl(ends[0], F_SETFL, 0);
        write(ends[1], "d", 1);
        printf("%d times, %d\n", seen, fcntl(ends[0], F_GETSIG) == SIGRTMIN + 3);
        fflush(stdout);

        // Room where there was none.
        fcntl(ends[1], F_SETSIG, SIGRTMIN + 3);
        fcntl(ends[1], F_SETOWN, getpid());
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        while (write(ends[1], bytes, sizeof bytes) > 0) {}
        fcntl(ends[1], F_SETFL, O_ASYNC);
        read(ends[0], bytes, sizeof bytes);

        // A socket of a child's, and somebody who computes.
        socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
        own.pid = gettid();
        printf("%d %d\n", ioctl(pair[0], FIOASYNC, &on), fcntl(pair[0], F_SETOWN_EX, &own));
        own.pid = 0;
        fcntl(pair[0], F_GETOWN_EX, &own);
        printf("%d %d\n", own.type, own.pid == gettid());
        own.pid = 999999;
        printf("%d\n", fcntl(pair[0], F_SETOWN_EX, &own));
        fflush(stdout);
        seen = 0;
        if (fork() == 0) {
            usleep(20000);
            write(pair[1], "x", 1);
            _exit(0);
        }
        while (!seen) {}
        seen = 0;
        while (wait(0) > 0) {}
        if (fork() == 0) {
            usleep(20000);
            write(pair[1], "x", 1);
            _exit(0);
        }
        printf("%d\n", ioctl(pair[0], SIOCGPGRP, &owner) == 0 && owner == getpid());
        fflush(stdout);
        while (!seen) pause();
        return 0;
    }"#;
    as_natively("ready", &[HANDLER, program].concat());
}

#[test]
fn what_sends_no_signals_is_not_asynchronous() {
    let program = r#"
    int main(void) {
        int file = open("plain", O_RDWR | O_CREAT, 0600), on = 1;
        printf("%d", fcntl(file, F_SETFL, O_ASYNC | O_APPEND));
        printf(" %d", fcntl(file, F_GETFL) & (O_ASYNC | O_APPEND));
        printf(" %d", ioctl(file, FIOASYNC, &on));
        printf(" %d %d", fcntl(file, F_SETSIG, 65), fcntl(file, F_SETSIG, 64));
        printf(" %d %d\n", fcntl(file, F_GETSIG), fcntl(file, F_NOTIFY, DN_CREATE));
        return 0;
    }"#;
    as_natively("plainly", &[HANDLER, program].concat());
}

#[test]
fn a_directory_that_changes_is_told_of() {
    let program = r#"
    int main(void) {
        handle(SIGIO);
        handle(SIGRTMIN);
        rmdir("watched/folder");
        unlink("watched/one");
        unlink("watched/two");
        mkdir("watched", 0700);
        int folder = open("watched", O_RDONLY | O_DIRECTORY);
        printf("%d\n", fcntl(folder, F_NOTIFY, DN_CREATE));
        fflush(stdout);
        close(openat(folder, "one", O_RDWR | O_CREAT, 0600));
        close(openat(folder, "two", O_RDWR | O_CREAT, 0600));
        printf("%d: once\n", seen);
        fcntl(folder, F_SETSIG, SIGRTMIN);
        fcntl(folder, F_NOTIFY, DN_DELETE | DN_MULTISHOT);
        fflush(stdout);
        unlinkat(folder, "one", 0);
        unlinkat(folder, "two", 0);
        fcntl(folder, F_NOTIFY, 0);
        mkdirat(folder, "folder", 0700);
        unlinkat(folder, "folder", AT_REMOVEDIR);
        printf("%d\n", seen);
        return 0;
    }"#;
    as_natively("changes", &[HANDLER, program].concat());
}
