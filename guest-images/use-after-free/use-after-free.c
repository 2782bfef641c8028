// A use after free: closing a session frees it, but the table still points to it, and the notes that are written next
// take its memory.
//
// Usage: use-after-free NOTE, where NOTE is the text that ends up in the freed session.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SESSIONS = 24, NOTES = 64 };

struct session {
    long id;
    long *visits;
    char user[16];
};

static struct session *table[SESSIONS];
static char *notes[NOTES];
static long visit_counts[SESSIONS];

void open_session(int slot, const char *user)
{
    struct session *session = malloc(sizeof *session);
    if (!session)
        exit(1);
    session->id = 100 + slot;
    session->visits = &visit_counts[slot];
    snprintf(session->user, sizeof session->user, "%s", user);
    table[slot] = session;
}

void close_session(int slot)
{
    free(table[slot]); // the bug: table[slot] stays
}

void write_note(int index, const char *text)
{
    char *note = malloc(sizeof(struct session));
    if (!note)
        exit(1);
    size_t length = strlen(text);
    for (size_t i = 0; i < sizeof(struct session) - 1; i++)
        note[i] = text[i % length];
    note[sizeof(struct session) - 1] = '\0';
    notes[index] = note;
}

void visit_all(void)
{
    for (int round = 0; round < 4; round++)
        for (int slot = SESSIONS - 1; slot >= 0; slot--)
            *table[slot]->visits += round; // crash: `visits` is a piece of a note
}

int main(int argc, char **argv)
{
    const char *users[] = {"anna", "bela", "cyril", "dora"};
    const char *text = argc > 1 && argv[1][0] ? argv[1] : "x";
    for (int slot = 0; slot < SESSIONS; slot++)
        open_session(slot, users[slot % 4]);
    visit_all();
    printf("%s left\n", table[9]->user);
    fflush(stdout);
    close_session(9);
    for (int index = 0; index < NOTES; index++)
        write_note(index, text);
    visit_all();
    printf("%ld visits, last note %s\n", visit_counts[0], notes[NOTES - 1]);
    return 0;
}
