#include "sum.h"

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    int sum = 0, squares = 0, entries = 0;
    for (int n = 1; n < count; n++) {
        sum = add(sum, atoi(arguments[n]));
        squares = add(squares, square(atoi(arguments[n])));
    }
    for (int n = 0; n < 10; n++) entries = add(entries, table[n]);
    printf("sum %d squares %d table %d\n", sum, squares, entries);
    return 0;
}
