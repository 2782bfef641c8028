// popen and system: what a shell prints and reads, statuses, signals that system holds back.
#include "processes.h"

static volatile int children;
static void note(int number) { (void)number, children++; }

int main(void) {
    char line[200];
    fflush(NULL);
    FILE *from = popen("echo one; echo two | tr a-z A-Z; exit 5", "r");
    CHECK(from != NULL);
    while (fgets(line, sizeof line, from)) printf("read: %s", line);
    printf("%s\n", ended(pclose(from)));
    fflush(NULL);
    FILE *to = popen("sort -n", "w");
    CHECK(to != NULL);
    for (int n = 0; n < 10; n++) fprintf(to, "%d\n", n * 7 % 10);
    printf("%s\n", ended(pclose(to)));
    // Two at once.
    fflush(NULL);
    FILE *one = popen("cat", "w"), *two = popen("printf 'from two'", "r");
    CHECK(one && two && fgets(line, sizeof line, two));
    fprintf(one, "[%s]\n", line);
    printf("%s, ", ended(pclose(two)));
    printf("%s\n", ended(pclose(one)));
    CHECK(popen("true", "x") == NULL);
    printf("wrong mode: %s\n", error(errno));

    fflush(NULL);
    printf("%s\n", ended(system("echo by system; exit 9")));
    printf("a shell is there: %d\n", system(NULL) != 0);
    printf("%s\n", ended(system("there-is-no-such-command 2>/dev/null")));
    printf("%s\n", ended(system("kill -TERM $$")));
    fflush(NULL);
    // The parent does not end by what it ignores meanwhile, nor sees the shell's end as its child's.
    handle(SIGCHLD, note, SA_RESTART);
    printf("%s, ", ended(system("kill -INT $PPID; kill -QUIT $PPID; exit 2")));
    printf("children %d\n", children);
    fflush(NULL);
    printf("%s\n", ended(system("x=1; while [ $x -lt 50 ]; do x=$((x + 1)); done; (exit $x)")));
    fflush(NULL);
    printf("%s\n", ended(system("for n in 1 2 3; do echo $n | cat; done | wc -l; echo $(echo a$(echo b))")));
    return 0;
}
