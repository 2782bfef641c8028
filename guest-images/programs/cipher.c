// Ciphers: AES-128 with its box worked out, in counter mode; ChaCha20; both against their published vectors.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint8_t box[256];

static uint8_t times2(uint8_t x) { return (uint8_t)(x << 1 ^ (x & 0x80 ? 0x1b : 0)); }

static void make_box(void) {
    uint8_t p = 1, q = 1;
    do {
        p = p ^ times2(p);
        q ^= q << 1, q ^= q << 2, q ^= q << 4;
        if (q & 0x80) q ^= 0x09;
        uint8_t x = q;
        for (int n = 1; n < 5; n++) x ^= (uint8_t)(q << n | q >> (8 - n));
        box[p] = x ^ 0x63;
    } while (p != 1);
    box[0] = 0x63;
}

static void aes_schedule(const uint8_t key[16], uint8_t round[11][16]) {
    uint8_t *w = round[0], constant = 1;
    memcpy(w, key, 16);
    for (int i = 16; i < 176; i += 4) {
        uint8_t t[4];
        memcpy(t, w + i - 4, 4);
        if (i % 16 == 0) {
            uint8_t first = t[0];
            for (int n = 0; n < 4; n++) t[n] = box[n < 3 ? t[n + 1] : first];
            t[0] ^= constant, constant = times2(constant);
        }
        for (int n = 0; n < 4; n++) w[i + n] = w[i + n - 16] ^ t[n];
    }
}

static void aes(uint8_t round[11][16], uint8_t s[16]) {
    for (int i = 0; i < 16; i++) s[i] ^= round[0][i];
    for (int r = 1; r <= 10; r++) {
        uint8_t t[16];
        for (int i = 0; i < 16; i++) t[i] = box[s[(i * 5) & 15]];
        for (int c = 0; c < 16 && r < 10; c += 4) {
            uint8_t all = t[c] ^ t[c + 1] ^ t[c + 2] ^ t[c + 3], first = t[c];
            for (int n = 0; n < 4; n++) t[c + n] ^= all ^ times2(t[c + n] ^ (n < 3 ? t[c + n + 1] : first));
        }
        for (int i = 0; i < 16; i++) s[i] = t[i] ^ round[r][i];
    }
}

static uint32_t rotl(uint32_t x, int n) { return x << n | x >> (32 - n); }

static void quarter(uint32_t *x, int a, int b, int c, int d) {
    x[a] += x[b], x[d] = rotl(x[d] ^ x[a], 16), x[c] += x[d], x[b] = rotl(x[b] ^ x[c], 12);
    x[a] += x[b], x[d] = rotl(x[d] ^ x[a], 8), x[c] += x[d], x[b] = rotl(x[b] ^ x[c], 7);
}

static void chacha(const uint32_t in[16], uint32_t out[16]) {
    memcpy(out, in, 64);
    for (int i = 0; i < 10; i++)
        for (int n = 0; n < 8; n++) {
            int turn = n < 4 ? 0 : 1, c = n & 3;
            quarter(out, c, 4 + ((c + turn) & 3), 8 + ((c + 2 * turn) & 3), 12 + ((c + 3 * turn) & 3));
        }
    for (int i = 0; i < 16; i++) out[i] += in[i];
}

static void show(const char *what, const void *bytes, size_t len) {
    printf("%s ", what);
    for (size_t i = 0; i < len; i++) printf("%02x", ((const uint8_t *)bytes)[i]);
    putchar('\n');
}

int main(void) {
    uint8_t key[16], text[16], round[11][16];
    make_box();
    for (int i = 0; i < 16; i++) key[i] = (uint8_t)i, text[i] = (uint8_t)(i * 0x11);
    aes_schedule(key, round);
    aes(round, text);
    show("aes", text, 16); // FIPS 197, appendix C.1
    static const uint8_t expected[4] = {0x69, 0xc4, 0xe0, 0xd8};
    if (memcmp(text, expected, 4)) return 1;

    uint8_t sum[16] = {0};
    for (uint32_t n = 0; n < 300; n++) {
        uint8_t counter[16] = {0};
        memcpy(counter, &n, 4);
        aes(round, counter);
        for (int i = 0; i < 16; i++) sum[i] ^= counter[i] + (uint8_t)n;
    }
    show("aes, 300 blocks", sum, 16);

    uint32_t in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, out[16];
    for (int i = 0; i < 32; i++) ((uint8_t *)in)[16 + i] = (uint8_t)i;
    in[12] = 1, in[13] = 0x09000000, in[14] = 0x4a000000, in[15] = 0;
    chacha(in, out);
    show("chacha20", out, 64); // RFC 8439, 2.3.2
    if (out[0] != 0xe4e7f110) return 2;
    for (int n = 0; n < 300; n++) {
        chacha(in, out);
        memcpy(in + 4, out, 32);
        in[12]++;
    }
    show("chacha20, 300 blocks", out, 64);
    return 0;
}
