// What a compiler makes of loops for x86-64-v3: integer and floating-point vectors, shuffles, conversions, bit tricks.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { N = 1003 };
static float f[N], g[N], matrix[3][32][32];
static double d[N];
static int32_t i32[N], j32[N];
static int16_t i16[N];
static uint8_t u8[N], v8[N];
static uint64_t u64[N];

static uint64_t sum_bytes(const void *p, size_t n) {
    uint64_t sum = 1469598103934665603u;
    for (size_t i = 0; i < n; i++) sum = (sum ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return sum;
}

int main(int argc, char **argv) {
    int seed = argc > 1 ? argv[1][0] : 1;
    for (int n = 0; n < N; n++) {
        i32[n] = n * 7919 * seed - 4000000, j32[n] = (n * n) ^ seed, u8[n] = (uint8_t)(n * 31), i16[n] = (int16_t)(n * 77 - 30000);
        u64[n] = (uint64_t)n * 0x9e3779b97f4a7c15u, f[n] = (float)n / 7 - 50, d[n] = n * 0.37 - 100;
    }
    int64_t dot = 0;
    int32_t highest = INT32_MIN, count = 0, sad = 0;
    for (int n = 0; n < N; n++) dot += (int64_t)i32[n] * j32[n], highest = i32[n] > highest ? i32[n] : highest, count += i32[n] > j32[n];
    for (int n = 0; n < N; n++) v8[n] = (uint8_t)((u8[n] + u8[N - 1 - n] + 1) / 2), sad += u8[n] > v8[n] ? u8[n] - v8[n] : v8[n] - u8[n];
    printf("%ld %d %d %d\n", dot, highest, count, sad);
    for (int n = 0; n < N; n++) {
        int v = i16[n] * 3 / 2;
        i16[n] = (int16_t)(v > 32767 ? 32767 : v < -32768 ? -32768 : v);
        j32[n] = (int32_t)f[n] + (j32[n] << (n & 15)), i32[n] = i32[n] >> (n % 7) ^ j32[n];
        g[n] = sqrtf(fabsf(f[n])) * (float)i16[n] + (float)d[n], d[n] = f[n] > g[n] ? d[n] * 3 : floor(d[n]) / 3;
    }
    printf("%016lx %016lx %016lx\n", sum_bytes(i16, sizeof i16), sum_bytes(i32, sizeof i32), sum_bytes(j32, sizeof j32));
    printf("%016lx %016lx\n", sum_bytes(g, sizeof g), sum_bytes(d, sizeof d));
    uint64_t bits = 0;
    for (int n = 0; n < N; n++) {
        uint64_t x = u64[n];
        bits += (uint64_t)__builtin_popcountll(x) + (uint64_t)__builtin_ctzll(x | 1ul << 60) + (uint64_t)__builtin_clzll(x | 1);
        bits ^= (x & -x) + (x & (x - 1)) + (~x & bits) + __builtin_bswap64(x) + (x << (n & 63) | x >> (-n & 63));
        u64[n] = x * (bits | 1);
    }
    printf("%016lx %016lx\n", bits, sum_bytes(u64, sizeof u64));
    for (int r = 0; r < 32; r++)
        for (int c = 0; c < 32; c++) matrix[0][r][c] = (float)(r - c) / 3, matrix[1][r][c] = (float)(r * c % 17);
    for (int r = 0; r < 32; r++)
        for (int k = 0; k < 32; k++)
            for (int c = 0; c < 32; c++) matrix[2][r][c] += matrix[0][r][k] * matrix[1][k][c];
    printf("%016lx %a\n", sum_bytes(matrix[2], sizeof matrix[2]), (double)matrix[2][5][7]);
    for (int n = 0; n + 3 < N; n += 4) {
        uint8_t t = v8[n];
        v8[n] = v8[n + 3], v8[n + 3] = t, t = v8[n + 1], v8[n + 1] = v8[n + 2], v8[n + 2] = t;
    }
    printf("%016lx\n", sum_bytes(v8, sizeof v8));
    return 0;
}
