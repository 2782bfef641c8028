/* Control flow of many kinds: jump tables, function pointers, setjmp, recursion, string functions, printf. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static jmp_buf back;

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
static int twice(int x) { return 2 * x; }
static int square(int x) { return x * x; }
static int (*const operations[])(int) = {twice, square, abs, twice};

__attribute__((noinline)) static int classify(int x) {
    switch (x) {
    case 0: return puts("zero");
    case 1: return puts("one");
    case 2: return twice(x) + 1;
    case 3: return (int)strlen("three") + 94;
    case 4: return atoi("44");
    case 5: return putchar('5');
    case 6: return x * 7 - 3;
    default: return -1;
    }
}

__attribute__((noinline)) static int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__attribute__((noinline)) static void leap(int n) {
    if (n == 0) longjmp(back, 7);
    leap(n - 1);
}

int main(int argc, char **argv) {
    char text[200], copy[200];
    int numbers[30], sum = 0;
    for (int i = 0; i < 30; i++) numbers[i] = (i * 7919) % 101;
    qsort(numbers, 30, sizeof numbers[0], compare);
    for (int i = 0; i < 8; i++) sum += classify(i) + operations[i & 3](i);
    snprintf(text, sizeof text, "%d %s %5.3f %x %c %lu %-8s|%Lg", sum, argv[0], 1.25 * argc, 255, 'x', 99UL, "pad", 2.5L);
    memcpy(copy, text, sizeof copy);
    memset(text, 'q', 64);
    puts(copy);
    char *heap = strdup(copy), *end;
    printf("%p %f %ld %s\n", (void *)0, strtod("3.25e2", &end), strtol("0x1f", NULL, 16), strchr(heap, ' '));
    free(heap);
    if (setjmp(back) == 0) leap(3);
    time_t now = time(NULL);
    sum += fibonacci(9) + (int)(now & 0) + (int)getpid() % 1;
    return write(1, text, 4) != 4 || sum == 12345;
}
