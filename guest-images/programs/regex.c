// Regular expressions: POSIX regcomp and regexec over the lines of standard input, basic and extended, with groups.
#include <regex.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *pattern;
    int flags;
} patterns[] = {
    {"^[a-z]+", REG_EXTENDED},
    {"([0-9]+)[.-]([0-9]+)", REG_EXTENDED},
    {"(fox|dog|cat)s?$", REG_EXTENDED | REG_ICASE},
    {"\\(a\\)\\(b*\\)\\1", 0},
    {"[[:upper:]][[:alpha:]]*", REG_EXTENDED},
    {"(x+x+)+y", REG_EXTENDED},
    {"^$", 0},
    {"[^[:space:]]{12,}", REG_EXTENDED},
    {"(^| )([aeiou][^ ]*)", REG_EXTENDED | REG_NEWLINE},
    {"*a**", 0},
    {"(unclosed", REG_EXTENDED},
    {"a{2,1}", REG_EXTENDED},
};

int main(void) {
    static char lines[64][200];
    int count = 0, hits = 0;
    while (count < 64 && fgets(lines[count], sizeof *lines, stdin)) lines[count][strcspn(lines[count], "\n")] = 0, count++;
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        regex_t compiled;
        int error = regcomp(&compiled, patterns[p].pattern, patterns[p].flags);
        printf("/%s/\n", patterns[p].pattern);
        if (error) {
            char text[100];
            regerror(error, &compiled, text, sizeof text);
            printf("  %d %s\n", error, text);
            continue;
        }
        for (int n = 0; n < count; n++) {
            regmatch_t groups[4];
            const char *at = lines[n];
            for (int flags = 0; regexec(&compiled, at, 4, groups, flags) == 0; flags = REG_NOTBOL) {
                hits++;
                printf("  %d:", n + 1);
                for (int g = 0; g < 4 && groups[g].rm_so >= 0; g++)
                    printf(" '%.*s'", (int)(groups[g].rm_eo - groups[g].rm_so), at + groups[g].rm_so);
                putchar('\n');
                if (groups[0].rm_eo == 0 || !*(at += groups[0].rm_eo)) break;
            }
        }
        regfree(&compiled);
    }
    printf("%d hits in %d lines\n", hits, count);
    return hits ? 0 : 1;
}
