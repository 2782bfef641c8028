// Hashing: SHA-256 with constants worked out in 128 bits, CRC-32 by table, FNV-1a, over bytes of many lengths.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

// The first 32 bits of the fractional parts of roots of primes, by integer Newton steps on 128 bits.
static uint32_t root_bits(unsigned prime, int cube) {
    unsigned __int128 low = 0, high = (unsigned __int128)1 << 36;
    while (high - low > 1) {
        unsigned __int128 mid = (low + high) / 2;
        unsigned __int128 power = cube ? mid * mid * mid : mid * mid;
        unsigned __int128 wanted = (unsigned __int128)prime << (cube ? 96 : 64);
        if (power <= wanted) low = mid;
        else high = mid;
    }
    return (uint32_t)low;
}

static uint32_t k[64], start[8];

static void constants(void) {
    int found = 0;
    for (unsigned n = 2; found < 64; n++) {
        int prime = 1;
        for (unsigned d = 2; d * d <= n; d++)
            if (n % d == 0) prime = 0;
        if (!prime) continue;
        if (found < 8) start[found] = root_bits(n, 0);
        k[found++] = root_bits(n, 1);
    }
}

static void block(uint32_t h[8], const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | p[4 * i + 1] << 16 | p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotr(a, 7) ^ rotr(a, 18) ^ a >> 3) + w[i - 7] + (rotr(b, 17) ^ rotr(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + k[i] + w[i];
        uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

static void sha256(const uint8_t *data, size_t len, uint32_t h[8]) {
    uint8_t tail[128] = {0};
    size_t whole = len / 64 * 64, rest = len - whole, padded = rest < 56 ? 64 : 128;
    memcpy(h, start, sizeof start);
    for (size_t at = 0; at < whole; at += 64) block(h, data + at);
    memcpy(tail, data + whole, rest);
    tail[rest] = 0x80;
    for (int i = 0; i < 8; i++) tail[padded - 1 - i] = (uint8_t)((uint64_t)len * 8 >> 8 * i);
    for (size_t at = 0; at < padded; at += 64) block(h, tail + at);
}

static uint32_t crc32(const uint8_t *data, size_t len) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t n = 0; n < 256; n++) {
            table[n] = n;
            for (int bit = 0; bit < 8; bit++) table[n] = table[n] >> 1 ^ (table[n] & 1 ? 0xedb88320 : 0);
        }
    uint32_t crc = ~0u;
    while (len--) crc = crc >> 8 ^ table[(crc ^ *data++) & 255];
    return ~crc;
}

int main(void) {
    static uint8_t data[20000];
    uint64_t x = 88172645463325252u, fnv = 0xcbf29ce484222325u;
    for (size_t i = 0; i < sizeof data; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        data[i] = (uint8_t)x;
        fnv = (fnv ^ data[i]) * 0x100000001b3u;
    }
    constants();
    printf("fnv %016lx\n", fnv);
    static const size_t lengths[] = {0, 1, 3, 55, 56, 63, 64, 65, 1000, sizeof data};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        uint32_t h[8];
        sha256(data, lengths[i], h);
        printf("%5zu crc %08x sha256 ", lengths[i], crc32(data, lengths[i]));
        for (int n = 0; n < 8; n++) printf("%08x", h[n]);
        putchar('\n');
    }
    return 0;
}
