// A division by zero: the mean of the samples between two bounds, when no sample is between them.
//
// Usage: division LOW HIGH, with the samples on standard input.
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 256 };

static int samples[MOST];

int read_samples(void)
{
    int count = 0;
    while (count < MOST && scanf("%d", &samples[count]) == 1)
        count++;
    return count;
}

int mean_between(int count, int low, int high)
{
    int sum = 0, inside = 0;
    for (int i = 0; i < count; i++) {
        if (samples[i] >= low && samples[i] <= high) {
            sum += samples[i];
            inside++;
        }
    }
    return sum / inside; // crash: no sample was inside
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 1;
    int count = read_samples();
    printf("%d samples\n", count);
    fflush(stdout);
    printf("mean %d\n", mean_between(count, atoi(argv[1]), atoi(argv[2])));
    return 0;
}
