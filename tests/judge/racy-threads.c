// Four threads add to one counter without a lock. Between the load and the store of one, another may add: its update
// is lost. Prints the sum; 8000 when none was.
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 2000 };

static volatile int counter;

static void *add(void *unused) {
    (void)unused;
    for (int n = 0; n < ROUNDS; n++) {
        int seen = counter;
        // The compiler must not make one instruction of the two.
        __asm__ volatile("" : "+r"(seen));
        counter = seen + 1;
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, add, NULL);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    printf("%d\n", counter);
    return 0;
}
