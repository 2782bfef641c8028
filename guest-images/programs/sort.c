// Sorting: qsort of records by several keys, a merge sort of a list, heap sort of doubles, radix sort, binary search.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 3000 };

typedef struct Node {
    struct Node *next;
    char name[12];
    int32_t number;
    double weight;
} Node;

static uint64_t state = 42;

static uint32_t next(void) { return (uint32_t)((state = state * 6364136223846793005u + 1442695040888963407u) >> 33); }

static int by_name(const void *a, const void *b) {
    const Node *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

static Node *merge(Node *a, Node *b) {
    Node *head = NULL, **tail = &head;
    while (a && b) {
        Node **from = a->number <= b->number ? &a : &b;
        *tail = *from, *from = (*from)->next, tail = &(*tail)->next;
    }
    *tail = a ? a : b;
    return head;
}

static Node *merge_sort(Node *list) {
    if (!list || !list->next) return list;
    Node *slow = list;
    for (Node *fast = list->next; fast && fast->next; fast = fast->next->next) slow = slow->next;
    Node *half = slow->next;
    slow->next = NULL;
    return merge(merge_sort(list), merge_sort(half));
}

static void sift(double *v, size_t at, size_t n) {
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && v[child] < v[child + 1]) child++;
        if (v[at] >= v[child]) return;
        double t = v[at];
        v[at] = v[child], v[child] = t;
    }
}

static void heap_sort(double *v, size_t n) {
    for (size_t at = n / 2; at--;) sift(v, at, n);
    while (n-- > 1) {
        double t = v[0];
        v[0] = v[n], v[n] = t;
        sift(v, 0, n);
    }
}

static void radix_sort(uint32_t *v, uint32_t *other, size_t n) {
    for (int shift = 0; shift < 32; shift += 8) {
        size_t count[257] = {0};
        for (size_t i = 0; i < n; i++) count[(v[i] >> shift & 255) + 1]++;
        for (int i = 0; i < 256; i++) count[i + 1] += count[i];
        for (size_t i = 0; i < n; i++) other[count[v[i] >> shift & 255]++] = v[i];
        memcpy(v, other, n * sizeof *v);
    }
}

int main(void) {
    Node *nodes = calloc(N, sizeof *nodes);
    static double weights[N];
    static uint32_t keys[N], other[N];
    if (!nodes) return 1;
    for (int i = 0; i < N; i++) {
        for (int c = 0; c < 3; c++) nodes[i].name[c] = (char)('a' + next() % 6);
        nodes[i].number = (int32_t)next() - (1 << 30);
        nodes[i].weight = weights[i] = next() / 977.0;
        keys[i] = next() * 2 + (next() & 1);
    }
    qsort(nodes, N, sizeof *nodes, by_name);
    for (int i = 0; i < N; i += 271) printf("%s %d %.3f\n", nodes[i].name, nodes[i].number, nodes[i].weight);
    Node wanted = nodes[N / 3], *found = bsearch(&wanted, nodes, N, sizeof *nodes, by_name);
    printf("found at %td\n", found - nodes);

    for (int i = 0; i + 1 < N; i++) nodes[i].next = nodes + i + 1;
    int64_t sum = 0, place = 1;
    for (Node *n = merge_sort(nodes); n; n = n->next) {
        if (n->next && n->number > n->next->number) return 2;
        sum += n->number * place++;
    }
    heap_sort(weights, N);
    radix_sort(keys, other, N);
    for (int i = 1; i < N; i++)
        if (weights[i - 1] > weights[i] || keys[i - 1] > keys[i]) return 3;
    printf("%ld %.6f %.6f %u %u\n", sum, weights[0], weights[N / 2], keys[0], keys[N / 2]);
    free(nodes);
    return 0;
}
