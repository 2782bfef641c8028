// A buffer overflow, in the shape of Figure 5.1 of the thesis: two blocks may precede the copy, and the core says which
// one did, since `layout` is 1 in it and only one of the two ever stores a 1 there.
//
// Reads a label from standard input: one byte that names the layout, then the text.
#include <stdio.h>
#include <string.h>

static struct {
    char text[24];
    char *end;
} label;

static int layout;

void copy(char *to, const char *from, int count)
{
    for (int i = 0; i < count; i++)
        to[i] = from[i];
}

void set_label(const char *text, int wide)
{
    int count = (int)strlen(text);
    if (wide) {
        layout = 1; // the bug: a wide label is not cut to the field
    } else {
        layout = 2;
        if (count > (int)sizeof label.text - 1)
            count = (int)sizeof label.text - 1;
    }
    copy(label.text, text, count);
    *label.end = '\0'; // crash: `end` was overwritten by the copy
}

int main(void)
{
    char line[128];
    if (!fgets(line, sizeof line, stdin) || strlen(line) < 2)
        return 1;
    line[strcspn(line, "\n")] = '\0';
    printf("label of %zu characters\n", strlen(line + 1));
    fflush(stdout);
    label.end = label.text;
    set_label(line + 1, line[0] == 'w');
    printf("%s, layout %d\n", label.text, layout);
    return 0;
}
