# Writes table.c: the squares of the digits.
echo '#include "sum.h"'
printf 'const int table[10] = {'
for n in 0 1 2 3 4 5 6 7 8 9; do printf '%s, ' $((n * n)); done
echo '};'
