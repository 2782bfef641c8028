// Text formatting: printf's integers, strings and positions, wide characters, time, scanf, string functions, 64-bit divisions.
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <wchar.h>

static void integers(void) {
    static const long long values[] = {0, 1, -1, 255, -4096, INT_MAX, INT_MIN, LLONG_MAX, LLONG_MIN, 1234567890123456789};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        long long v = values[i];
        printf("%lld|%20lld|%-20lld|%+lld|% lld|%020lld|%.5lld|%llx|%#llX|%#llo|%hhd|%hd|%d|%llu\n", v, v, v, v, v, v, v, v, v, v,
               (char)v, (short)v, (int)v, v);
    }
    printf("%2$s %1$s %2$.2s\n", "world", "hello");
    printf("|%*d|%-*d|%.*s|%c%%|%5c|\n", 7, 42, 7, 42, 3, "abcdef", 'x', 'y');
    printf("%zu %td %jd %" PRIu64 "\n", sizeof(long), (ptrdiff_t)-3, (intmax_t)-9, UINT64_MAX);
}

static void scanning(void) {
    int day, year, n;
    char month[10], rest[20];
    unsigned hex;
    n = sscanf("17 November 2026, 0xbeef:tail end", "%d %9s %d, %x:%19[^\n]", &day, month, &year, &hex, rest);
    printf("%d: %d %s %d %#x '%s'\n", n, day, month, year, hex, rest);
    errno = 0;
    printf("%ld %lu %ld", strtol("-0x7fz", NULL, 0), strtoul("777", NULL, 8), strtol("99999999999999999999", NULL, 10));
    printf(" errno %d %s\n", errno, strerror(errno));
}

static void times(void) {
    char text[100];
    for (int i = 0; i < 8; i++) {
        time_t t = (time_t)i * 987654321 - 1000000000;
        struct tm tm;
        gmtime_r(&t, &tm);
        strftime(text, sizeof text, "%A %d %B %Y %H:%M:%S week %V day %j %G-%u", &tm);
        printf("%ld: %s, back %ld\n", (long)t, text, (long)timegm(&tm));
    }
}

static void strings(void) {
    char buffer[200];
    strcpy(buffer, "the quick brown fox jumps over the lazy dog");
    printf("%zu %s %s %s\n", strlen(buffer), strchr(buffer, 'q') + 6, strrchr(buffer, 'o'), strstr(buffer, "jumps"));
    printf("%zu %zu %s\n", strspn(buffer, "eht "), strcspn(buffer, "xyz"), strpbrk(buffer, "zx"));
    printf("%d %d %d\n", strcmp("abc", "abd") < 0, strncmp("abcdef", "abcxyz", 3), strcasecmp("HeLLo", "hEllO"));
    char *save;
    for (char *word = strtok_r(buffer, " ", &save); word; word = strtok_r(NULL, " ", &save)) printf("[%s]", word);
    printf("\n%s\n", (char *)memchr("needle in hay", 'i', 13));
    memmove(buffer + 3, buffer, 20);
    printf("%.10s\n", buffer + 3);
}

static void wide(void) {
    wchar_t text[40];
    swprintf(text, 40, L"%ls %d %5.2f", L"wide", 42, 2.5);
    printf("%ls %zu %d\n", text, wcslen(text), wcscmp(text, L"wide") > 0);
    printf("%ld %ls\n", wcstol(L"-123", NULL, 10), wcsstr(text, L"42"));
}

int main(void) {
    setvbuf(stdout, NULL, _IOFBF, 300);
    integers(), scanning(), times(), strings(), wide();
    unsigned long sum = 0;
    for (long a = -50000; a < 50000; a += 997)
        for (long b = 1; b < 100000; b = b * 3 + 1) sum = sum * 31 + (unsigned long)(a * b / (b + 7) + a % b);
    lldiv_t d = lldiv(-1000000007LL * 1000, 12345);
    printf("%lu %lld %lld\n", sum, d.quot, d.rem);
    fprintf(stderr, "a line for standard error\n");
    return 7;
}
