// An assertion that fails after a long loop: a ring of recent values keeps its sum up to date, and forgets to subtract
// the value that falls out when the ring wraps on a multiple of eight.
//
// Usage: assert-loop VALUES SEED
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 12 };

static unsigned ring[SLOTS];
static unsigned head, sum;

static unsigned next_value(unsigned previous)
{
    return previous * 1664525u + 1013904223u;
}

static void push(unsigned value)
{
    if (head % 8 != 0 || head < 640) // the bug: the second condition hides it for a while
        sum -= ring[head % SLOTS];
    ring[head % SLOTS] = value;
    sum += value;
    head++;
}

static unsigned recount(void)
{
    unsigned total = 0;
    for (int i = 0; i < SLOTS; i++)
        total += ring[i];
    return total;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 1;
    int values = atoi(argv[1]);
    unsigned value = (unsigned)atoi(argv[2]);
    printf("%d values\n", values);
    fflush(stdout);
    for (int i = 0; i < values; i++) {
        value = next_value(value);
        push(value >> 20);
    }
    assert(sum == recount()); // crash: a value was not subtracted
    printf("sum %u\n", sum);
    return 0;
}
