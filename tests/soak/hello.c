#include <stdio.h>

struct pair { int first, second; };

static int sum(const struct pair *pairs, int count) {
    int sum = 0;
    for (int n = 0; n < count; n++) sum += pairs[n].first * pairs[n].second;
    return sum;
}

int main(void) {
    struct pair pairs[] = {{1, 2}, {3, 4}, {5, 6}};
    printf("hello, %d\n", sum(pairs, 3));
    return 0;
}
