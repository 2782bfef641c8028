// Filters of a program's own system calls: what each answer does, to one call, a thread and a process; what is inherited; and
// which filters are refused.
#include "processes.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, what)

static int set(struct sock_filter *code, size_t length) {
    struct sock_fprog program = {.len = (unsigned short)length, .filter = code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

// Answers one call so, and lets through all others.
static int answer(long call, unsigned what) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        ANSWER(SECCOMP_RET_KILL_PROCESS),
        NUMBER,
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1),
        ANSWER(what),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    return set(code, sizeof code / sizeof *code);
}

static volatile int trapped, code, data, call;
static volatile unsigned arch;

static void on_trap(int number, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    trapped = number, code = info->si_code, data = info->si_errno, call = info->si_syscall, arch = info->si_arch;
    printf("rax %lld, rip behind the call %d\n", state->uc_mcontext.gregs[REG_RAX],
           (void *)state->uc_mcontext.gregs[REG_RIP] == info->si_call_addr);
    state->uc_mcontext.gregs[REG_RAX] = 77;
}

static void *is_refused(void *unused) {
    (void)unused;
    errno = 0;
    long result = syscall(SYS_getppid);
    return (void *)(long)(result == -1 ? errno : 0);
}

static void *ends_alone(void *unused) {
    (void)unused;
    answer(SYS_getuid, SECCOMP_RET_KILL_THREAD);
    syscall(SYS_getuid);
    return "it goes on";
}

static void child(const char *name, int (*body)(void)) {
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int status = body();
        fflush(stdout);
        _exit(status);
    }
    int status;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        printf("%s: signal %d\n", name, WTERMSIG(status));
    else
        printf("%s: status %d\n", name, WEXITSTATUS(status));
}

static int kills(void) {
    handle_with_info(SIGSYS, on_trap, 0);
    answer(SYS_getuid, SECCOMP_RET_KILL_PROCESS);
    syscall(SYS_getuid);
    return 0;
}

static int blocked(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    answer(SYS_getuid, SECCOMP_RET_TRAP);
    syscall(SYS_getuid);
    return 0;
}

static int strict(void) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    write(1, "strict writes\n", 14);
    syscall(SYS_getuid);
    return 0;
}

static int strict_exits(void) {
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    syscall(SYS_exit, 9);
    return 0;
}

static int strictest(void) {
    answer(SYS_getuid, SECCOMP_RET_KILL_PROCESS);
    answer(SYS_getuid, SECCOMP_RET_ERRNO | 5);
    answer(SYS_getuid, SECCOMP_RET_ALLOW);
    syscall(SYS_getuid);
    return 0;
}

static int executes(void) {
    answer(SYS_getppid, SECCOMP_RET_ERRNO | 7);
    execlp("sh", "sh", "-c", "grep -E '^(Seccomp|NoNewPrivs)' /proc/self/status", (char *)NULL);
    return 1;
}

static int threads(void) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, ends_alone, NULL);
    pthread_join(thread, &result);
    printf("its thread: %s\n", result == NULL ? "ended" : (char *)result);
    printf("uid as before %d\n", getuid() == (uid_t)syscall(SYS_getuid));
    return 0;
}

static int synchronized(void) {
    struct sock_filter code[] = {
        NUMBER, BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1), ANSWER(SECCOMP_RET_ERRNO | 12),
        ANSWER(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = code};
    long result = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
    pthread_t thread;
    void *error;
    pthread_create(&thread, NULL, is_refused, NULL);
    pthread_join(thread, &error);
    printf("with all threads %ld, error %ld\n", result, (long)error);
    return 0;
}

int main(void) {
    printf("mode %d\n", prctl(PR_GET_SECCOMP));
    struct sock_filter no_return[] = {NUMBER}, far[] = {NUMBER, BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0), ANSWER(0)};
    struct sock_filter odd[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), ANSWER(0)};
    if (geteuid() != 0) CHECK(answer(SYS_getuid, SECCOMP_RET_ALLOW) == -1 && errno == EACCES);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(set(no_return, 1) == -1 && errno == EINVAL);
    CHECK(set(far, 3) == -1 && errno == EINVAL);
    CHECK(set(odd, 2) == -1 && errno == EINVAL);
    CHECK(set(odd, 0) == -1 && errno == EINVAL);
    unsigned known[] = {SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ERRNO, SECCOMP_RET_LOG, 0x12340000};
    for (int n = 0; n < 4; n++) {
        errno = 0;
        long result = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &known[n]);
        printf("action %#x %ld %d\n", known[n], result, errno);
    }
    child("kill", kills);
    child("trap that is blocked", blocked);
    child("strict", strict);
    child("strict, and exit", strict_exits);
    child("the strictest", strictest);
    child("exec", executes);
    child("one thread", threads);
    child("all threads", synchronized);

    handle_with_info(SIGSYS, on_trap, 0);
    printf("set %d, mode %d\n", answer(SYS_getpgid, SECCOMP_RET_TRAP | 42), prctl(PR_GET_SECCOMP));
    long result = syscall(SYS_getpgid, 0);
    printf("trap %d code %d data %d call %d arch %#x result %ld\n", trapped, code, data, call, arch, result);
    answer(SYS_getsid, SECCOMP_RET_ERRNO | 4095);
    errno = 0;
    result = syscall(SYS_getsid, 0);
    printf("errno %ld %d\n", result, errno);
    answer(SYS_gettid, SECCOMP_RET_TRACE);
    errno = 0;
    result = syscall(SYS_gettid);
    printf("trace %ld %d\n", result, errno);
    pid_t pid = fork();
    if (pid == 0) {
        errno = 0;
        result = syscall(SYS_getsid, 0);
        _exit(result == -1 && errno == 4095 ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("a child has them, too: %d\n", status);
    return 0;
}
