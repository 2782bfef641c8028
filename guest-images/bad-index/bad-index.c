// An integer overflow that becomes a bad index: the offset of a cell is computed in 32 bits, wraps to a negative number,
// and so passes the check against the end of the table.
//
// Usage: bad-index ROW COLUMN STRIDE
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 4096 };

static int cells[CELLS];

void fill(int seed)
{
    for (int i = 0; i < CELLS; i++)
        cells[i] = seed + 7 * i;
}

// The sum of up to 16 cells to the left of a cell, the cell included.
long sum_left(int row, int column, int stride)
{
    int offset = row * stride + column; // the bug
    long sum = 0;
    for (int back = 0; back < 16; back++) {
        if (offset - back >= CELLS)
            continue;
        sum += cells[offset - back]; // crash: `offset` is far below zero
    }
    return sum;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 1;
    int row = atoi(argv[1]), column = atoi(argv[2]), stride = atoi(argv[3]);
    fill(argc);
    printf("row %d, column %d of a table %d wide\n", row, column, stride);
    fflush(stdout);
    long total = 0;
    for (int r = 0; r < 12; r++)
        total += sum_left(r, column, 64);
    total += sum_left(row, column, stride);
    printf("%ld\n", total);
    return 0;
}
