// Big integers: factorials, Fibonacci numbers, powers modulo a Mersenne prime, and digits of pi by Machin.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LIMBS = 80, DIGITS = 300 };
typedef struct {
    uint64_t limb[LIMBS];
} Big;

static Big small(uint64_t v) { return (Big){{v}}; }

static void multiply(Big *a, uint64_t by) {
    unsigned __int128 carry = 0;
    for (int i = 0; i < LIMBS; i++) carry += (unsigned __int128)a->limb[i] * by, a->limb[i] = (uint64_t)carry, carry >>= 64;
}

static uint64_t divide(Big *a, uint64_t by) {
    unsigned __int128 rest = 0;
    for (int i = LIMBS; i--;) {
        rest = rest << 64 | a->limb[i];
        a->limb[i] = (uint64_t)(rest / by), rest %= by;
    }
    return (uint64_t)rest;
}

static void add(Big *a, const Big *b) {
    unsigned char carry = 0;
    for (int i = 0; i < LIMBS; i++) carry = __builtin_ia32_addcarryx_u64(carry, a->limb[i], b->limb[i], (unsigned long long *)&a->limb[i]);
}

static void subtract(Big *a, const Big *b) {
    uint64_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        unsigned __int128 d = (unsigned __int128)a->limb[i] - b->limb[i] - borrow;
        a->limb[i] = (uint64_t)d, borrow = (uint64_t)(d >> 64) & 1;
    }
}

static int is_zero(const Big *a) {
    for (int i = 0; i < LIMBS; i++)
        if (a->limb[i]) return 0;
    return 1;
}

static void print(const char *what, Big a) {
    char text[LIMBS * 20];
    char *at = text + sizeof text;
    *--at = 0;
    do {
        uint64_t digits = divide(&a, 1000000000);
        for (int i = 0; i < 9; i++, digits /= 10) *--at = (char)('0' + digits % 10);
    } while (!is_zero(&a));
    while (*at == '0' && at[1]) at++;
    printf("%s %s\n", what, at);
}

// arctan(1 / x) * scale
static Big arctan(const Big *scale, uint64_t x) {
    Big term = *scale, sum;
    divide(&term, x);
    sum = term;
    for (uint64_t n = 3; !is_zero(&term); n += 2) {
        divide(&term, x * x);
        Big part = term;
        divide(&part, n);
        if (n & 2) subtract(&sum, &part);
        else add(&sum, &part);
    }
    return sum;
}

static uint64_t power(uint64_t base, uint64_t exponent, uint64_t modulus) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1) {
        if (exponent & 1) result = (uint64_t)((unsigned __int128)result * base % modulus);
        base = (uint64_t)((unsigned __int128)base * base % modulus);
    }
    return result;
}

int main(void) {
    Big f = small(1), a = small(0), b = small(1), scale = small(1);
    for (int n = 2; n <= 200; n++) multiply(&f, (uint64_t)n);
    print("200!", f);
    for (int n = 0; n < 500; n++) {
        Big next = a;
        add(&next, &b);
        a = b, b = next;
    }
    print("F(500)", a);
    for (int n = 0; n < DIGITS; n++) multiply(&scale, 10);
    Big pi = arctan(&scale, 5), minus = arctan(&scale, 239);
    multiply(&pi, 16), multiply(&minus, 4), subtract(&pi, &minus);
    print("pi", pi);
    uint64_t mersenne = (1ul << 61) - 1;
    for (uint64_t n = 2; n < 20; n++) printf("%lu ", power(n, mersenne / n, mersenne));
    putchar('\n');
    return 0;
}
