// A null pointer behind branches that the input decides: named counters, and a script that works on them.
//
// The script is read from standard input, one command per line: `new A`, `use A`, `add N`, `drop A`; names are letters.
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 64 };

struct command {
    char verb;
    char name;
    int amount;
};

struct counter {
    char name;
    long value;
    struct counter *next;
};

static struct command script[MOST];
static struct counter pool[MOST];
static struct counter *counters;
static struct counter *current;

int parse(void)
{
    char line[64];
    int count = 0;
    while (count < MOST && fgets(line, sizeof line, stdin)) {
        struct command *command = &script[count];
        if (sscanf(line, "add %d", &command->amount) == 1)
            command->verb = 'a';
        else if (sscanf(line, "%c%*s %c", &command->verb, &command->name) != 2)
            continue;
        count++;
    }
    return count;
}

void create(int slot, char name)
{
    struct counter *counter = &pool[slot];
    counter->name = name;
    counter->next = counters;
    counters = counter;
}

// Leaves a null pointer when there is no counter of that name: the bug is that nobody looks.
void use(char name)
{
    struct counter *counter = counters;
    while (counter && counter->name != name)
        counter = counter->next;
    current = counter;
}

void drop(char name)
{
    struct counter **link = &counters;
    while (*link && (*link)->name != name)
        link = &(*link)->next;
    if (*link)
        *link = (*link)->next;
}

// In steps, as on an abacus: hundreds, tens, ones.
void add(int amount)
{
    int step = 100;
    while (amount > 0) {
        while (step > amount)
            step /= 10;
        current->value += step; // crash: `current` is null
        amount -= step;
    }
}

int main(void)
{
    int count = parse();
    printf("%d commands\n", count);
    fflush(stdout);
    for (int i = 0; i < count; i++) {
        const struct command *command = &script[i];
        switch (command->verb) {
        case 'n': create(i, command->name); break;
        case 'u': use(command->name); break;
        case 'd': drop(command->name); break;
        case 'a': add(command->amount); break;
        }
    }
    for (const struct counter *counter = counters; counter; counter = counter->next)
        printf("%c %ld\n", counter->name, counter->value);
    return 0;
}
