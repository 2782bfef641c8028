// Compression: LZ77 with a hash chain, then an adaptive binary arithmetic coder over its tokens; and the way back.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX = 1 << 16, WINDOW = 1 << 14, LONGEST = 255, SHORTEST = 4 };

typedef struct {
    uint8_t *bytes;
    size_t at, end;
    uint32_t low, high, code;
} Coder;

// Probabilities that the next bit is a one, for each context.
static uint16_t flag_model[2], literal_model[256], length_model[256], distance_model[WINDOW];

static void reset(void) {
    for (int i = 0; i < 2; i++) flag_model[i] = 1 << 15;
    for (int i = 0; i < 256; i++) literal_model[i] = length_model[i] = 1 << 15;
    for (int i = 0; i < WINDOW; i++) distance_model[i] = 1 << 15;
}

static uint32_t split(const Coder *c, uint16_t p) { return c->low + (uint32_t)((uint64_t)(c->high - c->low) * p >> 16); }

static void learn(uint16_t *p, int bit) { *p += bit ? (65535 - *p) >> 4 : -(*p >> 4); }

static void put(Coder *c, uint16_t *p, int bit) {
    uint32_t mid = split(c, *p);
    if (bit) c->high = mid;
    else c->low = mid + 1;
    learn(p, bit);
    for (; (c->low ^ c->high) >> 24 == 0; c->low <<= 8, c->high = c->high << 8 | 255) c->bytes[c->at++] = c->high >> 24;
}

static int get(Coder *c, uint16_t *p) {
    uint32_t mid = split(c, *p);
    int bit = c->code <= mid;
    if (bit) c->high = mid;
    else c->low = mid + 1;
    learn(p, bit);
    for (; (c->low ^ c->high) >> 24 == 0; c->low <<= 8, c->high = c->high << 8 | 255)
        c->code = c->code << 8 | (c->at < c->end ? c->bytes[c->at++] : 0);
    return bit;
}

static void put_number(Coder *c, uint16_t *model, int bits, unsigned v) {
    for (unsigned context = 1; bits--; context = context * 2 + (v >> bits & 1)) put(c, model + context, v >> bits & 1);
}

static unsigned get_number(Coder *c, uint16_t *model, int bits) {
    unsigned context = 1;
    for (int n = bits; n--;) context = context * 2 + get(c, model + context);
    return context - (1u << bits);
}

static unsigned hash(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v * 2654435761u >> 18;
}

static size_t compress(const uint8_t *from, size_t len, uint8_t *to) {
    static int32_t head[1 << 14], chain[MAX];
    Coder c = {to, 0, 0, 0, ~0u, 0};
    reset();
    memset(head, -1, sizeof head);
    for (size_t at = 0; at < len;) {
        size_t best = 0, distance = 0;
        if (at + SHORTEST <= len)
            for (int32_t old = head[hash(from + at)], tries = 32; old >= 0 && at - old < WINDOW && tries--; old = chain[old]) {
                size_t same = 0;
                while (same < LONGEST && at + same < len && from[old + same] == from[at + same]) same++;
                if (same > best) best = same, distance = at - old;
            }
        int match = best >= SHORTEST;
        put(&c, flag_model + 1, match);
        if (match) put_number(&c, length_model, 8, best), put_number(&c, distance_model, 14, distance);
        else put_number(&c, literal_model, 8, from[at]), best = 1;
        for (; best--; at++)
            if (at + SHORTEST <= len) chain[at] = head[hash(from + at)], head[hash(from + at)] = (int32_t)at;
    }
    for (int i = 0; i < 4; i++, c.low <<= 8) to[c.at++] = c.low >> 24;
    return c.at;
}

static void expand(uint8_t *packed, size_t size, uint8_t *to, size_t len) {
    Coder c = {packed, 0, size, 0, ~0u, 0};
    reset();
    for (int i = 0; i < 4; i++) c.code = c.code << 8 | packed[c.at++];
    for (size_t at = 0; at < len;)
        if (get(&c, flag_model + 1)) {
            unsigned n = get_number(&c, length_model, 8), distance = get_number(&c, distance_model, 14);
            for (; n-- && at < len; at++) to[at] = to[at - distance];
        } else
            to[at++] = get_number(&c, literal_model, 8);
}

int main(void) {
    static uint8_t text[MAX], packed[MAX * 2], back[MAX];
    size_t len = fread(text, 1, sizeof text, stdin);
    size_t size = compress(text, len, packed);
    uint32_t sum = 1;
    for (size_t i = 0; i < size; i++) sum = sum * 31 + packed[i];
    expand(packed, size, back, len);
    int same = memcmp(text, back, len) == 0;
    printf("%zu bytes become %zu, checksum %08x, and back: %s\n", len, size, sum, same ? "equal" : "different");
    return same ? 0 : 1;
}
