// The C library's memory and string functions at every alignment and many lengths, up to the end of a page that may be read.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <wchar.h>

enum { PAGE = 4096 };

static uint64_t sum;

static void note(uint64_t v) { sum = (sum ^ v) * 0x9e3779b97f4a7c15u, sum ^= sum >> 29; }

static int sign(int v) { return (v > 0) - (v < 0); }

// A page of memory with nothing behind it.
static char *page(void) {
    char *p = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + PAGE, PAGE, PROT_NONE)) exit(2);
    return p;
}

// Where `p` is in `s`, if anywhere.
static void place(const char *p, const char *s) { note(p ? (uint64_t)(p - s) : ~0ul); }

static void searches(char *s, size_t n) {
    memset(s, 'a', n), s[n] = 0;
    note(strlen(s)), note(strnlen(s, n / 2)), place(memchr(s, 0, n + 1), s);
    if (n) s[n * 2 / 3] = 'b';
    place(strchr(s, 'b'), s), place(strrchr(s, 'a'), s), place(strchrnul(s, 'c'), s), place(memrchr(s, 'a', n), s);
    place(strpbrk(s, "xb"), s), place(strstr(s, "ba"), s), place(memmem(s, n, "ab", 2), s);
    note(strspn(s, "a")), note(strcspn(s, "xb"));
}

static void comparisons(char *s, char *t, size_t n) {
    memset(s, 'm', n), s[n] = 0;
    memcpy(t, s, n + 1);
    note((uint64_t)(strcmp(s, t) == 0 && memcmp(s, t, n + 1) == 0));
    for (size_t at = 0; at < n; at += 7) {
        t[at] = at % 2 ? 'z' : (char)0xe0;
        note((uint64_t)(sign(memcmp(s, t, n)) + 3 * sign(strcmp(s, t)) + 9 * sign(strncmp(s, t, at)) + 27 * sign(strcasecmp(s, t))));
        t[at] = 'm';
    }
}

static void copies(char *s, char *t, size_t n) {
    for (size_t i = 0; i < n; i++) s[i] = (char)(i * 7 + 1) ? (char)(i * 7 + 1) : 'x';
    s[n] = 0;
    note((uint64_t)(stpcpy(t, s) - t)), note((uint64_t)(strcmp(s, t) == 0));
    memset(t, 0, n + 1), memcpy(t, s, n), note((uint64_t)(memcmp(s, t, n) == 0));
    strncpy(t, s, n / 2), note((unsigned char)t[n / 3]);
    if (n > 8) memmove(t + 3, t, n - 3), memmove(t, t + 5, n - 5), note((unsigned char)t[n / 2]), note((unsigned char)t[1]);
    if (n > 2) t[n / 2] = 0, note(strlen(strncat(t, s, n / 4)));
}

static void wide(void) {
    static wchar_t w[300], v[300];
    for (size_t n = 0; n < 290; n += 13) {
        wmemset(w, L'q', n), w[n] = 0;
        wcscpy(v, w);
        note(wcslen(w)), note(wcsnlen(w, 100)), note((uint64_t)(wcscmp(v, w) == 0));
        if (n) v[n / 2] = L'r', note((uint64_t)(wcschr(v, L'r') - v)), note((uint64_t)sign(wmemcmp(v, w, n)));
    }
}

int main(void) {
    char *a = page(), *b = page();
    for (size_t n = 0; n < 700; n += n < 70 ? 1 : n < 280 ? 23 : 97) {
        for (size_t shift = 0; shift < 64; shift += n < 40 ? 5 : 17) {
            char *s = a + PAGE - n - 1 - shift, *t = b + PAGE - n - 1 - (shift * 3) % 64;
            searches(s, n), comparisons(s, t, n), copies(s, t, n);
        }
        if (n % 23 == 0) printf("%zu %016lx\n", n, sum);
    }
    static char large[2][200000];
    for (size_t i = 0; i < sizeof large[0]; i++) large[0][i] = (char)(i * i >> 3);
    memcpy(large[1], large[0], sizeof large[0]), note((uint64_t)memcmp(large[0], large[1], sizeof large[0]));
    memmove(large[1] + 1, large[1], sizeof large[1] - 1), memset(large[0] + 50000, 3, 100000);
    for (size_t i = 0; i < sizeof large[0]; i += 61) note((unsigned char)(large[0][i] ^ large[1][i]));
    wide();
    printf("%016lx\n", sum);
    return 0;
}
