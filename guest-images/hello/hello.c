// Says hello to its argument and to the environment, and ends with a status of its own.
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const char *home = getenv("HOME");
    printf("hello, %s\n", argc > 1 ? argv[1] : "world");
    fprintf(stderr, "home is %s\n", home ? "set" : "not set");
    return argc > 1 ? 3 : 0;
}
