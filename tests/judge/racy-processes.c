// Two processes add to one counter in memory that they share, without a lock. Prints the sum; 8000 when no update was
// lost.
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 4000 };

static void add(volatile int *counter) {
    for (int n = 0; n < ROUNDS; n++) {
        int seen = *counter;
        // The compiler must not make one instruction of the two.
        __asm__ volatile("" : "+r"(seen));
        *counter = seen + 1;
    }
}

int main(void) {
    volatile int *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counter == MAP_FAILED) return 1;
    pid_t pid = fork();
    if (pid < 0) return 2;
    add(counter);
    if (pid == 0) _exit(0);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0) return 3;
    printf("%d\n", *counter);
    return 0;
}
