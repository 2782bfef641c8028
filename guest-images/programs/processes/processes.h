/* What the programs of this folder share. Each prints what does not change from run to run, whatever runs first, and
   ends with status 0. Where a call fails that should not, the program says so and ends with status 99. */
#ifndef PROCESSES_H
#define PROCESSES_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(ok) ((ok) ? (void)0 : failed(__FILE__, __LINE__, #ok))

static inline void failed(const char *file, int line, const char *what) {
    const char *why = strerror(errno), *slash = strrchr(file, '/');
    printf("%s:%d: %s: %s\n", slash ? slash + 1 : file, line, what, why);
    exit(99);
}

/* What errno is called, of those that the programs show. */
static inline const char *error(int number) {
    static const struct { int number; const char *name; } names[] = {
        {0, "no error"}, {EPERM, "EPERM"}, {ENOENT, "ENOENT"}, {ESRCH, "ESRCH"}, {EINTR, "EINTR"}, {E2BIG, "E2BIG"},
        {ENOEXEC, "ENOEXEC"}, {EBADF, "EBADF"}, {ECHILD, "ECHILD"}, {EAGAIN, "EAGAIN"}, {ENOMEM, "ENOMEM"},
        {EACCES, "EACCES"}, {EFAULT, "EFAULT"}, {EBUSY, "EBUSY"}, {EEXIST, "EEXIST"}, {ENOTDIR, "ENOTDIR"},
        {EISDIR, "EISDIR"}, {EINVAL, "EINVAL"}, {EMFILE, "EMFILE"}, {ETXTBSY, "ETXTBSY"}, {EFBIG, "EFBIG"},
        {EPIPE, "EPIPE"}, {EDEADLK, "EDEADLK"}, {ENOTTY, "ENOTTY"}, {EIO, "EIO"}, {ELOOP, "ELOOP"}, {EIDRM, "EIDRM"},
        {ENOMSG, "ENOMSG"}, {EMSGSIZE, "EMSGSIZE"}, {ETIMEDOUT, "ETIMEDOUT"}, {EOWNERDEAD, "EOWNERDEAD"},
        {ENOTRECOVERABLE, "ENOTRECOVERABLE"}, {ENOSYS, "ENOSYS"}, {ENXIO, "ENXIO"}, {ECONNRESET, "ECONNRESET"},
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        if (names[n].number == number) return names[n].name;
    return "another error";
}

/* How a process ended or changed, as wait says it. */
static inline const char *ended(int status) {
    static char text[4][40];
    static int next;
    char *to = text[next++ % 4];
    if (WIFEXITED(status)) snprintf(to, sizeof *text, "exit %d", WEXITSTATUS(status));
    else if (WIFSIGNALED(status)) snprintf(to, sizeof *text, "signal %d", WTERMSIG(status));
    else if (WIFSTOPPED(status)) snprintf(to, sizeof *text, "stopped by %d", WSTOPSIG(status));
    else if (WIFCONTINUED(status)) snprintf(to, sizeof *text, "continued");
    else snprintf(to, sizeof *text, "status %x", (unsigned)status);
    return to;
}

/* Forks with nothing left in the buffers, which both would write. */
static inline pid_t split(void) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    return pid;
}

/* A child that runs `body` and ends with what it returns. */
static inline pid_t start(int (*body)(void)) {
    pid_t pid = split();
    if (pid == 0) exit(body());
    return pid;
}

/* Waits until that child has ended, and gives its status. */
static inline int finish(pid_t pid) {
    int status;
    pid_t got;
    do got = waitpid(pid, &status, 0);
    while (got < 0 && errno == EINTR);
    CHECK(got == pid);
    return status;
}

/* Lets one that waits at the other end of a pipe go on. */
static inline void tell(int pipe[2]) { CHECK(write(pipe[1], "!", 1) == 1); }

static inline void await(int pipe[2]) {
    char byte;
    ssize_t got;
    do got = read(pipe[0], &byte, 1);
    while (got < 0 && errno == EINTR);
    CHECK(got == 1);
}

/* Memory that children share with their parent. */
static inline void *shared(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

/* Sets how a signal is handled. */
static inline void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    CHECK(sigaction(number, &action, NULL) == 0);
}

static inline void handle_with_info(int number, void (*handler)(int, siginfo_t *, void *), int flags) {
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = flags | SA_SIGINFO};
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* Blocks one signal. */
static inline void block(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
}

static inline void unblock(int number) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

/* The path of the program that runs, for those that start themselves again. */
static inline const char *itself(char **arguments) {
    static char path[4096];
    CHECK(realpath(arguments[0], path) != NULL);
    return path;
}

/* Goes to a new empty folder. Its name is different each time. */
static inline const char *enter_folder(void) {
    static char folder[] = "/tmp/processes-XXXXXX";
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    return folder;
}

/* Removes the folder, which must be empty. */
static inline void leave_folder(const char *folder) { CHECK(chdir("/") == 0 && rmdir(folder) == 0); }

#endif
