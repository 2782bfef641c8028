// An interpreter whose program is the addresses of its labels.
#include <stdlib.h>

// Gives its labels if it is asked for them.
__attribute__((noinline)) long threaded(void **code, long x, void *const **known) {
    static void *labels[] = {&&end, &&increment, &&twice, &&square};
    if (known) {
        *known = labels;
        return 0;
    }
    goto **code++;
increment:
    x += 1;
    goto **code++;
twice:
    x *= 2;
    goto **code++;
square:
    x *= x;
    goto **code++;
end:
    return x;
}

int main(void) {
    static const unsigned char bytes[] = {1, 2, 3, 2, 1, 3, 0};
    void *const *labels;
    threaded(NULL, 0, &labels);
    void **code = calloc(sizeof bytes, sizeof *code);
    for (unsigned n = 0; n < sizeof bytes; n++)
        code[n] = labels[bytes[n]];
    return threaded(code, 1, NULL) == 1089 ? 0 : 1;
}
