// A null pointer in the second of three threads: a chain of jobs is handed over, and its end is forgotten.
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { JOBS = 6 };

struct job {
    int amount;
    struct job *next;
};

static struct job jobs[JOBS];
static struct job *first;
static long total;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;

// One job more than there are: the bug is that the chain's end is not looked for.
void work(const struct job *job, int count)
{
    for (int done = 0; done <= count; done++) {
        total += job->amount; // crash: `job` is null behind the last
        if (job->amount % 2)
            total *= 2;
        job = job->next;
    }
}

void *worker(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!first)
        pthread_cond_wait(&filled, &lock);
    const struct job *chain = first;
    pthread_mutex_unlock(&lock);
    work(chain, JOBS);
    return NULL;
}

void *sleeper(void *unused)
{
    (void)unused;
    sleep(1000);
    return NULL;
}

int main(void)
{
    pthread_t one, other;
    pthread_create(&one, NULL, worker, NULL);
    pthread_create(&other, NULL, sleeper, NULL);
    puts("filling");
    fflush(stdout);
    pthread_mutex_lock(&lock);
    for (int n = 0; n < JOBS; n++)
        jobs[n] = (struct job){ 7 * n + 1, first }, first = &jobs[n];
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&lock);
    pthread_join(one, NULL);
    printf("%ld\n", total);
    return 0;
}
