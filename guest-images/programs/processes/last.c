// The first process ends while the tasks of one that it has killed are still to end: they do so behind the last event.
#include "processes.h"
#include <pthread.h>

static void *sleeps(void *unused) {
    (void)unused;
    sleep(1000);
    return NULL;
}

int main(void) {
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t threads[3];
        for (int n = 0; n < 3; n++) pthread_create(&threads[n], NULL, sleeps, NULL);
        CHECK(write(ready[1], &byte, 1) == 1);
        sleep(1000);
        return 1;
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(kill(pid, SIGKILL) == 0);
    puts("killed the other one");
    return 0;
}
