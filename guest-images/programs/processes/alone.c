// A process that computes alone, without a call, for longer than gretel lets it run at a time: its alarm and its limit of processor
// time end it all the same.
#include "processes.h"
#include <sys/resource.h>

static int computes(void) {
    volatile unsigned n = 0;
    while (n < UINT32_MAX) n += 2;
    return 1;
}

static int until_its_alarm(void) {
    alarm(1);
    return computes();
}

static int until_its_limit(void) {
    struct rlimit limit = {1, 2};
    CHECK(setrlimit(RLIMIT_CPU, &limit) == 0);
    return computes();
}

int main(void) {
    printf("with an alarm: %s\n", ended(finish(start(until_its_alarm)) & ~0x80));
    printf("with a limit: %s\n", ended(finish(start(until_its_limit)) & ~0x80));
    return 0;
}
