// Constants among functions, as assembly for cryptography has them. Each row holds the bytes of RDTSC and of CPUID where a
// disassembler finds instructions.
#include <stdio.h>

__asm__(".text\n"
        ".globl rows\n"
        ".type rows, @object\n"
        ".balign 16\n"
        "rows:\n"
        ".set n, 0\n"
        ".rept 512\n"
        ".byte 0x06, 0x0f, 0x31, 0x0f, 0xa2, 0x06, n & 255, 0x0e\n"
        ".set n, n + 37\n"
        ".endr\n"
        ".size rows, . - rows\n");

extern const unsigned char rows[512][8];

int main(void) {
    unsigned long sum = 0xcbf29ce484222325;
    for (int row = 0; row < 512; row++)
        for (int byte = 0; byte < 8; byte++) sum = (sum ^ rows[row][byte]) * 0x100000001b3;
    printf("%016lx\n", sum);
    unsigned low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    printf("%d\n", (high | low) != 0);
    return 0;
}
