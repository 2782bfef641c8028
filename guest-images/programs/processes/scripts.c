// exec of scripts: #! with an argument, a script run by a script, what the program then finds of itself, and all that fails.
#include "processes.h"
#include <sys/auxv.h>
#include <sys/prctl.h>

extern char **environ;

static void make(const char *name, const char *text, mode_t mode) {
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(fchmod(fd, mode) == 0 && close(fd) == 0);
}

static const char *last(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

// What a program that was started finds.
static int found(int count, char **arguments) {
    char comm[17] = {0}, line[17] = {0};
    prctl(PR_GET_NAME, comm);
    FILE *file = fopen("/proc/self/comm", "r");
    CHECK(file != NULL && fgets(line, sizeof line, file));
    fclose(file);
    line[strcspn(line, "\n")] = 0;
    // Of one started by descriptor, Linux's versions give different names.
    if (strcmp(getenv("STARTED"), "by descriptor"))
        printf("comm %s %s, AT_EXECFN %s, ", comm, line, last((const char *)getauxval(AT_EXECFN)));
    printf("%d arguments:", count);
    for (int n = 0; n < count; n++) printf(" [%s]", last(arguments[n]));
    printf("\n");
    return 0;
}

static void run(const char *name, char *const arguments[]) {
    pid_t pid = split();
    if (pid == 0) {
        execv(name, arguments);
        int why = errno;
        printf("%s: %s\n", name, error(why));
        exit(40);
    }
    printf("%s: %s\n", name, ended(finish(pid)));
}

int main(int count, char **arguments) {
    if (getenv("STARTED")) return found(count, arguments);
    const char *path = itself(arguments), *folder = enter_folder();
    setenv("STARTED", "1", 1);
    char text[5000];
    char *two[] = {"zeroth", "first", "second one", NULL};

    CHECK(symlink(path, "a-name-of-more-than-16-letters") == 0);
    run("./a-name-of-more-than-16-letters", two);

    snprintf(text, sizeof text, "#!%s\nwhat follows does not matter\n", path);
    make("plain", text, 0700);
    run("./plain", two);
    snprintf(text, sizeof text, "#! \t %s   one argument with blanks  \t\n", path);
    make("blanks", text, 0700);
    run("./blanks", two);
    snprintf(text, sizeof text, "#!%s", path);
    make("no-newline", text, 0700);
    run("./no-newline", two);
    snprintf(text, sizeof text, "#!%s/plain -o\n", folder);
    make("by-script", text, 0700);
    run("./by-script", two);
    snprintf(text, sizeof text, "#!%s/by-script\n", folder);
    make("by-that", text, 0700);
    run("./by-that", two);
    // A shell that runs a script, and one that runs it by its first line.
    make("shell", "#!/bin/sh\necho \"shell: $# $1 $0\"\nexit $((40 + $#))\n", 0700);
    run("./shell", two);

    snprintf(text, sizeof text, "#!%s/endless\n", folder);
    make("endless", text, 0700);
    run("./endless", two);
    make("missing", "#!/there/is/no/such/interpreter\n", 0700);
    run("./missing", two);
    make("nothing", "#!\n", 0700);
    run("./nothing", two);
    make("text", "echo this is no program\n", 0700);
    run("./text", two);
    make("empty", "", 0700);
    run("./empty", two);
    make("cut", "\177ELF", 0700);
    run("./cut", two);
    make("forbidden", "#!/bin/sh\n", 0600);
    run("./forbidden", two);
    snprintf(text, sizeof text, "#!%s/forbidden\n", folder);
    make("by-forbidden", text, 0700);
    run("./by-forbidden", two);
    run("./is-not-there", two);
    run("./plain/below", two);
    run(".", two);

    // execvp runs a text that is no program with the shell.
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        execvp("./text", (char *[]){"./text", NULL});
        _exit(41);
    }
    printf("execvp: %s\n", ended(finish(pid)));

    // By descriptor.
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        setenv("STARTED", "by descriptor", 1);
        execveat(fd, "", two, environ, AT_EMPTY_PATH);
        _exit(42);
    }
    CHECK(close(fd) == 0);
    printf("by descriptor: %s\n", ended(finish(pid)));

    // A script, too, if what reads it can open the descriptor by its name.
    for (int closed = 0; closed < 2; closed++) {
        fd = open("shell", O_RDONLY | (closed ? O_CLOEXEC : 0));
        fflush(NULL);
        pid = fork();
        if (pid == 0) {
            execveat(fd, "", two, environ, AT_EMPTY_PATH);
            printf("no script by a descriptor that is closed: %s\n", error(errno));
            exit(43);
        }
        CHECK(close(fd) == 0);
        printf("a script by descriptor: %s\n", ended(finish(pid)));
    }
    CHECK(execveat(AT_FDCWD, "", two, environ, AT_EMPTY_PATH) == -1);
    printf("the working directory: %s\n", error(errno));

    static const char *const names[] = {
        "a-name-of-more-than-16-letters", "plain", "blanks", "no-newline", "by-script", "by-that", "shell", "endless", "missing",
        "nothing", "text", "empty", "cut", "forbidden", "by-forbidden",
    };
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) CHECK(unlink(names[n]) == 0);
    leave_folder(folder);
    return 0;
}
