// Counts lines, words and bytes of a file, or of standard input: reading through libc's buffers.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    FILE *file = argc > 1 ? fopen(argv[1], "r") : stdin;
    if (!file) {
        perror(argv[1]);
        return 1;
    }
    long lines = 0, words = 0, bytes = 0;
    int c, inside = 0;
    while ((c = getc(file)) != EOF) {
        bytes++;
        lines += c == '\n';
        words += !inside && !isspace(c);
        inside = !isspace(c);
    }
    printf("%ld %ld %ld\n", lines, words, bytes);
    return 0;
}
