int add(int a, int b);
int square(int n);
extern const int table[10];
