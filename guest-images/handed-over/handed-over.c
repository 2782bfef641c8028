// A null pointer that another thread handed over, some switches before it is used: a letter that the table does not have.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LETTERS = 26 };

struct entry {
    long seen;
    long weight;
};

static struct entry table[LETTERS];
static int letters[2];

static struct entry *handed;
static int full;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t taken = PTHREAD_COND_INITIALIZER;

struct entry *locate(char letter)
{
    if (letter < 'a' || letter > 'z')
        return NULL; // The bug: nobody looks whether there is one.
    return &table[letter - 'a'];
}

void hand_over(struct entry *entry)
{
    pthread_mutex_lock(&lock);
    while (full)
        pthread_cond_wait(&taken, &lock);
    handed = entry;
    full = 1;
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&lock);
}

void *reader(void *unused)
{
    (void)unused;
    char letter;
    while (read(letters[0], &letter, 1) == 1)
        hand_over(locate(letter));
    return NULL;
}

struct entry *take(void)
{
    pthread_mutex_lock(&lock);
    while (!full)
        pthread_cond_wait(&filled, &lock);
    struct entry *entry = handed;
    full = 0;
    pthread_cond_signal(&taken);
    pthread_mutex_unlock(&lock);
    return entry;
}

long count(struct entry *entry)
{
    long sum = 0;
    for (int n = 0; n < LETTERS; n++)
        if (table[n].seen)
            sum += table[n].seen * table[n].weight;
    entry->seen++; // crash: of the letter before the last that was taken
    entry->weight += sum % 7 + 1;
    return sum;
}

void *counter(void *unused)
{
    (void)unused;
    long total = 0;
    struct entry *entry = take();
    for (;;) {
        struct entry *next = take();
        total += count(entry);
        printf("%ld\n", total);
        entry = next;
    }
}

int main(void)
{
    static const char text[] = "gretel?hansel";
    pthread_t one, other;
    if (pipe(letters) || write(letters[1], text, strlen(text)) < 0)
        return 1;
    pthread_create(&one, NULL, reader, NULL);
    pthread_create(&other, NULL, counter, NULL);
    pthread_join(other, NULL);
    return 0;
}
