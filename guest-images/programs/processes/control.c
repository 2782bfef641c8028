// prctl: names, dumpable, no new privileges, slack, what children inherit of it, and what it refuses.
#include "processes.h"
#include <pthread.h>
#include <sys/prctl.h>

#ifndef PR_SET_NO_NEW_PRIVS
#define PR_SET_NO_NEW_PRIVS 38
#define PR_GET_NO_NEW_PRIVS 39
#endif

static void show(const char *what) {
    char name[17] = {0}, line[32] = {0};
    prctl(PR_GET_NAME, name);
    FILE *file = fopen("/proc/self/comm", "r");
    CHECK(file != NULL && fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    printf("%s: name %s %s, dumpable %d, no new privileges %d, slack %d\n", what, name, line, prctl(PR_GET_DUMPABLE),
           prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_TIMERSLACK));
}

static void *thread(void *unused) {
    (void)unused;
    char name[17] = {0};
    prctl(PR_GET_NAME, name);
    printf("a thread: %s, ", name);
    prctl(PR_SET_NAME, "the other");
    prctl(PR_GET_NAME, name);
    printf("%s\n", name);
    return NULL;
}

int main(int count, char **arguments) {
    if (count > 1) {
        show("after exec");
        return 0;
    }
    const char *path = itself(arguments);
    show("at first");
    CHECK(prctl(PR_SET_NAME, "a name that is too long") == 0);
    CHECK(prctl(PR_SET_TIMERSLACK, 70000) == 0);
    show("renamed");
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    show("the first thread");
    FILE *file = fopen("/proc/self/comm", "w");
    CHECK(file != NULL && fputs("by a file", file) >= 0 && fclose(file) == 0);
    show("by a file");
    CHECK(prctl(PR_SET_DUMPABLE, 0) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 7) == -1);
    printf("dumpable 7: %s\n", error(errno));
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0) == -1);
    printf("taken back: %s\n", error(errno));
    int signal = -1;
    CHECK(prctl(PR_SET_PDEATHSIG, SIGUSR2) == 0 && prctl(PR_GET_PDEATHSIG, &signal) == 0);
    printf("at the parent's end: signal %d\n", signal);
    CHECK(prctl(PR_SET_PDEATHSIG, 100) == -1);
    printf("no such signal: %s\n", error(errno));
    pid_t pid = split();
    if (pid == 0) {
        prctl(PR_GET_PDEATHSIG, &signal);
        printf("the child: signal %d, ", signal);
        show("it has");
        exit(0);
    }
    finish(pid);
    pid = split();
    if (pid == 0) {
        execl(path, "control", "show", (char *)NULL);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    CHECK(prctl(99999, 0, 0, 0, 0) == -1);
    printf("no such thing: %s\n", error(errno));
    CHECK(prctl(PR_SET_NAME, (void *)1) == -1);
    printf("no such name: %s\n", error(errno));
    return 0;
}
