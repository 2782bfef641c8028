// A null pointer that another thread handed over, some switches before it is used: a letter that the table does not have.
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { LETTERS = 26 };

struct entry {
    long seen;
    long weight;
};

static struct entry table[LETTERS];
static const char *letters = "gretel?hansel";

// One place for an entry, and two pipes with a token each time that it is filled, and that it is free.
static struct entry *handed;
static int filled[2];
static int taken[2];

struct entry *locate(char letter)
{
    if (letter < 'a' || letter > 'z')
        return NULL; // The bug: nobody looks whether there is one.
    return &table[letter - 'a'];
}

void hand_over(struct entry *entry)
{
    char token;
    if (read(taken[0], &token, 1) == 1)
        handed = entry;
    write(filled[1], &token, 1);
}

void *reader(void *unused)
{
    (void)unused;
    for (const char *letter = letters; *letter; letter++)
        hand_over(locate(*letter));
    return NULL;
}

struct entry *take(void)
{
    struct entry *entry = NULL;
    char token;
    if (read(filled[0], &token, 1) == 1)
        entry = handed;
    write(taken[1], &token, 1);
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
    static long total;
    struct entry *entry = take();
    for (;;) {
        struct entry *next = take();
        total += count(entry);
        entry = next;
    }
}

int main(void)
{
    pthread_t one, other;
    if (pipe(filled) || pipe(taken) || write(taken[1], "", 1) != 1)
        return 1;
    pthread_create(&one, NULL, reader, NULL);
    pthread_create(&other, NULL, counter, NULL);
    pthread_join(other, NULL);
    return (int)strlen(letters);
}
