// POSIX message queues: priorities, limits, notice by signal, waiting with a time, between processes.
#include "processes.h"
#include <mqueue.h>

static volatile int value, code, count;
static void told(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    value = info->si_value.sival_int, code = info->si_code, count++;
}

int main(void) {
    const char *folder = enter_folder();
    char name[64], text[65] = {0};
    unsigned priority;
    snprintf(name, sizeof name, "/gretel-%s", strrchr(folder, '-') + 1);
    CHECK(mq_open(name, O_RDWR) == (mqd_t)-1);
    printf("not there: %s\n", error(errno));
    struct mq_attr attributes = {.mq_maxmsg = 4, .mq_msgsize = 64};
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(queue != (mqd_t)-1);
    pid_t pid = split();
    if (pid == 0) {
        static const unsigned priorities[] = {1, 30, 1, 7};
        for (int n = 0; n < 4; n++) {
            int length = snprintf(text, sizeof text, "message %d", n);
            CHECK(mq_send(queue, text, (size_t)length, priorities[n]) == 0);
        }
        _exit(0);
    }
    printf("%s\n", ended(finish(pid)));
    CHECK(mq_getattr(queue, &attributes) == 0);
    printf("%ld of %ld, size %ld\n", attributes.mq_curmsgs, attributes.mq_maxmsg, attributes.mq_msgsize);
    struct timespec past = {1, 0};
    CHECK(mq_timedsend(queue, "x", 1, 0, &past) == -1);
    printf("full: %s\n", error(errno));
    CHECK(mq_receive(queue, text, 10, NULL) == -1);
    printf("no room: %s\n", error(errno));
    for (int n = 0; n < 4; n++) {
        memset(text, 0, sizeof text);
        ssize_t got = mq_receive(queue, text, 64, &priority);
        printf("%zd bytes, priority %u: %s\n", got, priority, text);
    }
    CHECK(mq_timedreceive(queue, text, 64, NULL, &past) == -1);
    printf("empty: %s\n", error(errno));
    struct mq_attr flags = {.mq_flags = O_NONBLOCK};
    CHECK(mq_setattr(queue, &flags, NULL) == 0);
    CHECK(mq_receive(queue, text, 64, NULL) == -1);
    printf("without waiting: %s\n", error(errno));
    flags.mq_flags = 0;
    CHECK(mq_setattr(queue, &flags, NULL) == 0);

    handle_with_info(SIGUSR1, told, 0);
    block(SIGUSR1);
    sigset_t open;
    sigemptyset(&open);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 321};
    CHECK(mq_notify(queue, &event) == 0);
    CHECK(mq_notify(queue, &event) == -1);
    printf("told twice: %s\n", error(errno));
    pid = split();
    if (pid == 0) _exit(mq_send(queue, "wake", 4, 2) == 0 ? 0 : 1);
    while (count == 0) sigsuspend(&open);
    printf("told %d, code is SI_MESGQ %d\n", value, code == SI_MESGQ);
    finish(pid);
    CHECK(mq_receive(queue, text, 64, NULL) == 4);

    // Two that wait for each other, with room for few.
    pid = split();
    if (pid == 0) {
        uint64_t hash = 0;
        for (int n = 0; n < 200; n++) {
            int number;
            CHECK(mq_receive(queue, text, 64, NULL) == 4);
            memcpy(&number, text, 4);
            hash = hash * 31 + (uint64_t)number;
        }
        printf("hash %016llx\n", (unsigned long long)hash);
        exit(0);
    }
    for (int n = 0; n < 200; n++) CHECK(mq_send(queue, (const char *)&n, 4, 0) == 0);
    printf("%s\n", ended(finish(pid)));
    CHECK(mq_unlink(name) == 0 && mq_unlink(name) == -1);
    printf("gone: %s\n", error(errno));
    CHECK(mq_send(queue, "still", 5, 0) == 0 && mq_receive(queue, text, 64, NULL) == 5);
    printf("still a queue\n");
    leave_folder(folder);
    return 0;
}
