/* Crashes in the way that its build asks for, after some work that the last instructions show. */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int table[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
static unsigned char text[64];
static volatile double ratio = 2.5;

__attribute__((noinline)) static int mix(int seed) {
    for (int i = 0; i < 16; i++) {
        table[i] = table[i] * 31 + seed;
        seed ^= table[i] >> 3;
    }
    ratio = ratio * 1.5 + seed % 7;
    return seed;
}

__attribute__((noinline)) static void fill(void *to, int byte, unsigned long count) {
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(byte) : "memory");
}

int main(int argc, char **argv) {
    int value = mix(argc);
    fill(text, value, 40);
    value += (int)syscall(SYS_getppid) & 0;
#if defined(CPUID)
    int leaf = 0, b, c, d;
    __asm__ volatile("cpuid" : "+a"(leaf), "=b"(b), "=c"(c), "=d"(d));
#endif
    value += mix(value);
#if defined(DIVIDE)
    table[1] = value / (argc - 1);
#elif defined(ABORT)
    syscall(SYS_kill, getpid(), 6);
#else
    *(volatile int *)(long)(value & 0xff) = text[3];
#endif
    return table[value & 15];
}
