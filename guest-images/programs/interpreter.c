// An interpreter: a small Forth with a dictionary of words, a return stack, loops and a computed goto, fed by standard input.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACK = 256, CODE = 4096, WORDS = 100 };
enum { LIT, CALL, RET, JUMP, ZERO, ADD, SUB, MUL, DIV, MOD, DUP, DROP, SWAP, OVER, ROT, LT, EQ, TO_R, R_FROM, R_AT, DOT, EMIT, LOAD, STORE };

static const char *const primitives[] = {
    [ADD] = "+", [SUB] = "-", [MUL] = "*", [DIV] = "/", [MOD] = "mod", [DUP] = "dup", [DROP] = "drop", [SWAP] = "swap",
    [OVER] = "over", [ROT] = "rot", [LT] = "<", [EQ] = "=", [TO_R] = ">r", [R_FROM] = "r>", [R_AT] = "r@", [DOT] = ".",
    [EMIT] = "emit", [LOAD] = "@", [STORE] = "!",
};

static long code[CODE], stack[STACK], returns[STACK], cells[CODE], steps;
static int here, words;
static struct {
    char name[16];
    int at;
} dictionary[WORDS];

static void fail(const char *why, const char *word) {
    fflush(stdout);
    fprintf(stderr, "forth: %s: %s\n", why, word);
    exit(3);
}

static long *sp = stack;

static void run(int at) {
    static const void *const labels[] = {
        [LIT] = &&lit, [CALL] = &&call, [RET] = &&ret, [JUMP] = &&jump, [ZERO] = &&zero, [ADD] = &&add, [SUB] = &&sub,
        [MUL] = &&mul, [DIV] = &&div, [MOD] = &&mod, [DUP] = &&dup, [DROP] = &&drop, [SWAP] = &&swap, [OVER] = &&over,
        [ROT] = &&rot, [LT] = &&lt, [EQ] = &&eq, [TO_R] = &&to_r, [R_FROM] = &&r_from, [R_AT] = &&r_at, [DOT] = &&dot,
        [EMIT] = &&emit, [LOAD] = &&load, [STORE] = &&store,
    };
    long *rp = returns, *pc = code + at, t;
#define NEXT \
    do { \
        steps++; \
        if (sp < stack || sp > stack + STACK - 4) fail("stack", sp < stack ? "underflow" : "overflow"); \
        goto *labels[*pc++]; \
    } while (0)
#define BINARY(expression) \
    do { \
        sp--; \
        sp[-1] = (expression); \
        NEXT; \
    } while (0)
    NEXT;
lit: *sp++ = *pc++; NEXT;
call: *rp++ = pc + 1 - code; pc = code + *pc; NEXT;
ret:
    if (rp == returns) return;
    pc = code + *--rp; NEXT;
jump: pc = code + *pc; NEXT;
zero: t = *pc++; if (!*--sp) pc = code + t; NEXT;
add: BINARY(sp[-1] + *sp);
sub: BINARY(sp[-1] - *sp);
mul: BINARY(sp[-1] * *sp);
div: if (!sp[-1]) fail("division by zero", "/"); BINARY(sp[-1] / *sp);
mod: if (!sp[-1]) fail("division by zero", "mod"); BINARY(sp[-1] % *sp);
lt: BINARY(-(sp[-1] < *sp));
eq: BINARY(-(sp[-1] == *sp));
dup: *sp = sp[-1]; sp++; NEXT;
drop: sp--; NEXT;
swap: t = sp[-1]; sp[-1] = sp[-2]; sp[-2] = t; NEXT;
over: *sp = sp[-2]; sp++; NEXT;
rot: t = sp[-3]; sp[-3] = sp[-2]; sp[-2] = sp[-1]; sp[-1] = t; NEXT;
to_r: *rp++ = *--sp; NEXT;
r_from: *sp++ = *--rp; NEXT;
r_at: *sp++ = rp[-1]; NEXT;
dot: printf("%ld ", *--sp); NEXT;
emit: putchar((int)*--sp); NEXT;
load: sp[-1] = cells[sp[-1] & (CODE - 1)]; NEXT;
store: sp -= 2; cells[sp[1] & (CODE - 1)] = *sp; NEXT;
}

// Compiles one word; `depth` and `marks` are the open control structures.
static void compile(const char *word, int *marks, int *depth) {
    char *end;
    long number = strtol(word, &end, 10);
    if (!*end) { code[here++] = LIT, code[here++] = number; return; }
    if (!strcmp(word, "if")) { code[here++] = ZERO, marks[(*depth)++] = here++; return; }
    if (!strcmp(word, "else")) { code[here++] = JUMP, code[marks[*depth - 1]] = here + 1, marks[*depth - 1] = here++; return; }
    if (!strcmp(word, "then")) { code[marks[--*depth]] = here; return; }
    if (!strcmp(word, "begin")) { marks[(*depth)++] = here; return; }
    if (!strcmp(word, "until")) { code[here++] = ZERO, code[here++] = marks[--*depth]; return; }
    for (int w = words; w--;)
        if (!strcmp(word, dictionary[w].name)) { code[here++] = CALL, code[here++] = dictionary[w].at; return; }
    for (int p = ADD; p <= STORE; p++)
        if (!strcmp(word, primitives[p])) { code[here++] = p; return; }
    fail("no such word", word);
}

int main(void) {
    char word[16];
    int marks[16], depth = 0, defining = 0, start = 0;
    while (scanf("%15s", word) == 1) {
        if (here > CODE - 8 || depth > 14 || words == WORDS) fail("full", word);
        if (!strcmp(word, ":")) {
            defining = 1;
            if (scanf("%15s", dictionary[words].name) != 1) fail("no name", word);
            dictionary[words++].at = here;
        } else if (!strcmp(word, ";")) {
            code[here++] = RET, defining = 0, start = here;
        } else if (!strcmp(word, "go") && !defining) {
            code[here++] = RET;
            run(start);
            putchar('\n');
            here = start;
        } else
            compile(word, marks, &depth);
    }
    printf("%ld steps, %td on the stack\n", steps, sp - stack);
    return 0;
}
