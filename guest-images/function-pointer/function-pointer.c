// A corrupted function pointer: a stack machine whose `store` instruction does not check its index, so that a program
// can write a number over one of the handlers behind the variables.
//
// Usage: function-pointer PROGRAM, where PROGRAM is a string of: a digit (push it), + - * (on the two topmost),
// =D (store the topmost to variable D), ?D (push variable D).
#include <stdio.h>

enum { DEPTH = 16, VARIABLES = 4 };

typedef long (*handler)(long, long);

static long plus(long a, long b) { return a + b; }
static long minus(long a, long b) { return a - b; }
static long times(long a, long b) { return a * b; }

static struct {
    long variable[VARIABLES];
    handler apply[3];
} machine = {{0}, {plus, minus, times}};

static long stack[DEPTH];

void store(int index, long value)
{
    machine.variable[index] = value; // the bug: the index is not checked
}

long run(const char *program)
{
    int top = 0;
    for (const char *at = program; *at; at++) {
        if (*at >= '0' && *at <= '9' && top < DEPTH) {
            stack[top++] = *at - '0';
        } else if (*at == '=' && top > 0) {
            store(*++at - '0', stack[top - 1]);
        } else if (*at == '?' && top < DEPTH) {
            stack[top++] = machine.variable[(*++at - '0') % VARIABLES];
        } else if (top > 1) {
            int which = *at == '+' ? 0 : *at == '-' ? 1 : 2;
            top--;
            stack[top - 1] = machine.apply[which](stack[top - 1], stack[top]); // crash: a number is called
        }
    }
    return stack[0];
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 1;
    printf("running %s\n", argv[1]);
    fflush(stdout);
    printf("%ld\n", run(argv[1]));
    return 0;
}
