// Computes and makes no system call while it does: the program for measuring what recording costs.
//
// Usage: spin ROUNDS (about a second of work per 2000 rounds)
#include <stdio.h>
#include <stdlib.h>

enum { LIMIT = 1 << 18 };

static unsigned char composite[LIMIT];

static int count_primes(int salt)
{
    int count = 0;
    for (int i = 0; i < LIMIT; i++)
        composite[i] = 0;
    for (int i = 2; i < LIMIT - salt % 2; i++) {
        if (composite[i])
            continue;
        count++;
        for (int multiple = 2 * i; multiple < LIMIT; multiple += i)
            composite[multiple] = 1;
    }
    return count;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 2000;
    long total = 0;
    for (int round = 0; round < rounds; round++)
        total += count_primes(round);
    printf("%ld\n", total);
    return 0;
}
