// Timers of every kind: alarm, setitimer, timer_create, timerfd; what they leave, when they fire, who inherits them.
#include "processes.h"
#include <poll.h>
#include <sys/time.h>
#include <sys/timerfd.h>

static volatile int count, value, code;
static void tick(int number) { (void)number, count++; }
static void told(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    value = info->si_value.sival_int, code = info->si_code, count++;
}

static void alarms(void) {
    printf("no alarm: %u\n", alarm(100));
    unsigned left = alarm(0);
    printf("about a hundred are left: %d, then %u\n", left >= 90 && left <= 100, alarm(0));
    handle(SIGALRM, tick, 0);
    block(SIGALRM);
    sigset_t open;
    sigemptyset(&open);
    count = 0;
    struct itimerval timer = {.it_value = {0, 10000}}, old;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    while (count == 0) sigsuspend(&open);
    CHECK(getitimer(ITIMER_REAL, &old) == 0);
    printf("once: %d, nothing left %d\n", count, old.it_value.tv_sec == 0 && old.it_value.tv_usec == 0);
    timer.it_interval.tv_usec = 5000;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    while (count < 6) sigsuspend(&open);
    timer = (struct itimerval){0};
    CHECK(setitimer(ITIMER_REAL, &timer, &old) == 0);
    printf("again and again, every %d us\n", (int)old.it_interval.tv_usec);
    CHECK(setitimer(99, &timer, NULL) == -1);
    printf("no such timer: %s\n", error(errno));
    timer.it_value.tv_usec = 1000000;
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == -1);
    printf("no such time: %s\n", error(errno));

    // A sleep that an alarm ends early says what was left.
    unblock(SIGALRM);
    count = 0;
    timer = (struct itimerval){.it_value = {0, 20000}, .it_interval = {0, 20000}};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    struct timespec hour = {3600, 0}, rest = {0, 0};
    int result = nanosleep(&hour, &rest);
    int why = errno;
    timer = (struct itimerval){0};
    CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
    printf("a sleep: %d, %s, most of it left %d\n", result, error(why), rest.tv_sec > 3000);
}

// The processor's time: these run only while the process does.
static void processor_time(void) {
    static const struct { int timer, number; } kinds[] = {{ITIMER_VIRTUAL, SIGVTALRM}, {ITIMER_PROF, SIGPROF}};
    for (int n = 0; n < 2; n++) {
        handle(kinds[n].number, tick, 0);
        count = 0;
        struct itimerval timer = {.it_value = {0, 10000}, .it_interval = {0, 10000}};
        CHECK(setitimer(kinds[n].timer, &timer, NULL) == 0);
        while (count < 3) {}
        timer = (struct itimerval){0};
        CHECK(setitimer(kinds[n].timer, &timer, NULL) == 0);
        printf("timer %d fired\n", kinds[n].timer);
    }
}

static void posix_timers(void) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 4711};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    handle_with_info(SIGRTMIN + 1, told, 0);
    block(SIGRTMIN + 1);
    sigset_t open;
    sigemptyset(&open);
    struct itimerspec when = {.it_value = {0, 5000000}}, left;
    count = 0;
    CHECK(timer_settime(timer, 0, &when, NULL) == 0);
    while (count == 0) sigsuspend(&open);
    printf("value %d, code is SI_TIMER %d\n", value, code == SI_TIMER);
    CHECK(timer_gettime(timer, &left) == 0);
    printf("disarmed: %d\n", left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
    // Those that come while it is blocked are one signal; the others are counted.
    when = (struct itimerspec){.it_value = {0, 1000000}, .it_interval = {0, 1000000}};
    CHECK(timer_settime(timer, 0, &when, NULL) == 0);
    struct timespec some = {0, 30000000};
    nanosleep(&some, NULL);
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1);
    printf("overrun: %d, as timer_getoverrun says %d\n", info.si_overrun > 5, timer_getoverrun(timer) >= info.si_overrun);
    CHECK(timer_delete(timer) == 0);
    CHECK(timer_delete(timer) == -1 || 1);

    // Until a point in time, one that is over, and one that nobody is told of.
    struct timespec now;
    CHECK(timer_create(CLOCK_REALTIME, &event, &timer) == 0);
    clock_gettime(CLOCK_REALTIME, &now);
    when = (struct itimerspec){.it_value = {now.tv_sec - 10, 0}};
    CHECK(timer_settime(timer, TIMER_ABSTIME, &when, NULL) == 0);
    CHECK(sigwaitinfo(&set, &info) == SIGRTMIN + 1);
    printf("at once: value %d\n", info.si_value.sival_int);
    CHECK(timer_delete(timer) == 0);
    event.sigev_notify = SIGEV_NONE;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    when = (struct itimerspec){.it_value = {0, 1000000}};
    CHECK(timer_settime(timer, 0, &when, NULL) == 0);
    do CHECK(timer_gettime(timer, &left) == 0);
    while (left.it_value.tv_sec != 0 || left.it_value.tv_nsec != 0);
    printf("without a word: done\n");
    CHECK(timer_delete(timer) == 0);
    event.sigev_notify = 77;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == -1);
    printf("no such notice: %s\n", error(errno));
    CHECK(timer_create(12345, NULL, &timer) == -1);
    printf("no such clock: %s\n", error(errno));
    // The processor's time of this process.
    event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + 1, .sigev_value.sival_int = 12};
    CHECK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer) == 0);
    when = (struct itimerspec){.it_value = {0, 5000000}};
    count = 0;
    unblock(SIGRTMIN + 1);
    CHECK(timer_settime(timer, 0, &when, NULL) == 0);
    while (count == 0) {}
    printf("processor time: value %d\n", value);
    CHECK(timer_delete(timer) == 0);
}

static void descriptors(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(fd >= 0);
    uint64_t times;
    CHECK(read(fd, &times, sizeof times) == -1);
    printf("timerfd, not armed: %s\n", error(errno));
    struct itimerspec when = {.it_value = {0, 5000000}}, left;
    CHECK(timerfd_settime(fd, 0, &when, NULL) == 0);
    struct pollfd polled = {.fd = fd, .events = POLLIN};
    CHECK(poll(&polled, 1, 60000) == 1);
    CHECK(read(fd, &times, sizeof times) == sizeof times);
    printf("once: %d\n", (int)times);
    CHECK(read(fd, &times, sizeof times) == -1);
    printf("again: %s\n", error(errno));
    CHECK(read(fd, &times, 4) == -1);
    printf("too small: %s\n", error(errno));
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    when = (struct itimerspec){.it_value = {0, 1000000}, .it_interval = {0, 2000000}};
    CHECK(timerfd_settime(fd, 0, &when, NULL) == 0);
    uint64_t sum = 0;
    while (sum < 5) {
        CHECK(read(fd, &times, sizeof times) == sizeof times);
        sum += times;
    }
    CHECK(timerfd_gettime(fd, &left) == 0);
    printf("five times, every %d ns\n", (int)left.it_interval.tv_nsec);
    // A child reads of the same timer.
    pid_t pid = split();
    if (pid == 0) _exit(read(fd, &times, sizeof times) == sizeof times && times > 0 ? 5 : 6);
    printf("a child: %s\n", ended(finish(pid)));
    close(fd);
    fd = timerfd_create(CLOCK_REALTIME, 0);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    when = (struct itimerspec){.it_value = {now.tv_sec - 5, 0}};
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &when, NULL) == 0);
    CHECK(read(fd, &times, sizeof times) == sizeof times);
    printf("a time that is over: %d\n", (int)times);
    close(fd);
}

static int inherits(void) {
    struct itimerval timer;
    CHECK(getitimer(ITIMER_REAL, &timer) == 0);
    return timer.it_value.tv_sec == 0 && timer.it_value.tv_usec == 0 && alarm(0) == 0 ? 1 : 2;
}

static int ends_by_alarm(void) {
    signal(SIGALRM, SIG_DFL);
    unblock(SIGALRM);
    struct itimerval timer = {.it_value = {0, 10000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    while (pause() == -1) {}
    return 0;
}

int main(void) {
    alarms();
    processor_time();
    posix_timers();
    descriptors();
    alarm(1000);
    printf("a child has no alarm: %s\n", ended(finish(start(inherits))));
    printf("its parent still has: %d\n", alarm(0) > 900);
    printf("ended by its alarm: %s\n", ended(finish(start(ends_by_alarm))));
    return 0;
}
