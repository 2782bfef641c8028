// posix_spawn: file actions in order, attributes, programs found by the path, errors; forty at a time.
#include "processes.h"
#include <spawn.h>

extern char **environ;

static int show(void) {
    sigset_t blocked;
    struct sigaction one, two;
    sigprocmask(SIG_BLOCK, NULL, &blocked), sigaction(SIGUSR1, NULL, &one), sigaction(SIGUSR2, NULL, &two);
    printf("blocked %d %d, ignored %d %d, own group %d, own session %d\n", sigismember(&blocked, SIGTERM),
           sigismember(&blocked, SIGHUP), one.sa_handler == SIG_IGN, two.sa_handler == SIG_IGN, getpgrp() == getpid(),
           getsid(0) == getpid());
    return 3;
}

static void run(const char *path, char **arguments, posix_spawn_file_actions_t *actions, posix_spawnattr_t *attributes) {
    pid_t pid = 0;
    fflush(NULL);
    int result = posix_spawn(&pid, path, actions, attributes, arguments, environ);
    if (result) printf("posix_spawn: %s\n", error(result));
    else printf("%s\n", ended(finish(pid)));
}

int main(int count, char **arguments) {
    if (count > 1 && !strcmp(arguments[1], "show")) return show();
    if (count > 1) return atoi(arguments[1]);
    const char *path = itself(arguments), *folder = enter_folder();
    char *showing[] = {"spawn", "show", NULL};
    run(path, showing, NULL, NULL);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "out", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addclose(&actions, 9);
    char *shell[] = {"sh", "-c", "echo to out; echo to err >&2; cat; exit 6", NULL};
    run("/bin/sh", shell, &actions, NULL);
    char text[100] = {0};
    int fd = open("out", O_RDONLY);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    printf("[%s]\n", text);
    posix_spawn_file_actions_destroy(&actions);

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "is-not-there", O_RDONLY, 0);
    run("/bin/sh", shell, &actions, NULL);
    posix_spawn_file_actions_destroy(&actions);
    run("/there/is/no/such/program", shell, NULL, NULL);
    run("out", shell, NULL, NULL);
    run(folder, shell, NULL, NULL);

    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    posix_spawnattr_setsigmask(&attributes, &set);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    posix_spawnattr_setsigdefault(&attributes, &set);
    signal(SIGUSR1, SIG_IGN), signal(SIGUSR2, SIG_IGN);
    block(SIGHUP);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    run(path, showing, NULL, &attributes);
    run(path, showing, NULL, NULL);
#ifdef POSIX_SPAWN_SETSID
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    run(path, showing, NULL, &attributes);
#endif
    posix_spawnattr_destroy(&attributes);

    pid_t pids[40];
    int sum = 0;
    for (int n = 0; n < 40; n++) {
        char number[12];
        snprintf(number, sizeof number, "%d", n + 1);
        CHECK(posix_spawn(&pids[n], path, NULL, NULL, (char *[]){"spawn", number, NULL}, environ) == 0);
    }
    for (int n = 0; n < 40; n++) sum += WEXITSTATUS(finish(pids[n]));
    printf("forty: %d\n", sum);
    pid_t pid;
    CHECK(posix_spawnp(&pid, "true", NULL, NULL, (char *[]){"true", NULL}, environ) == 0);
    printf("by the path: %s\n", ended(finish(pid)));
    printf("not in the path: %s\n", error(posix_spawnp(&pid, "there-is-no-such-program", NULL, NULL, shell, environ)));
    unlink("out");
    leave_folder(folder);
    return 0;
}
