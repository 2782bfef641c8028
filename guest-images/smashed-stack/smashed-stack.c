// A smashed stack: decodes hexadecimal text into a buffer on the stack without looking at the length; the compiler's
// stack protector notices when the function returns.
//
// Usage: smashed-stack HEX
#include <stdio.h>

int nibble(char digit)
{
    if (digit >= '0' && digit <= '9')
        return digit - '0';
    if (digit >= 'a' && digit <= 'f')
        return digit - 'a' + 10;
    return -1;
}

int checksum(const char *hex)
{
    unsigned char bytes[16] = {0};
    int count = 0, sum = 0;
    for (const char *at = hex; nibble(at[0]) >= 0 && nibble(at[1]) >= 0; at += 2)
        bytes[count++] = (unsigned char)(16 * nibble(at[0]) + nibble(at[1])); // the bug
    for (int i = 0; i < (int)sizeof bytes; i++)
        sum += bytes[i];
    return sum;
} // crash: the canary behind `bytes` is gone

int main(int argc, char **argv)
{
    if (argc != 2)
        return 1;
    printf("decoding %s\n", argv[1]);
    fflush(stdout);
    printf("checksum %d\n", checksum(argv[1]));
    return 0;
}
