#include "sum.h"

int square(int n) { return n * n; }
