// Job control on a terminal of its own: the group in the foreground, reads from the background, keys that are signals.
#include "processes.h"
#include <sys/ioctl.h>
#include <termios.h>

static int master, report[2];
static volatile int signals[65];
static void note(int number) { (void)number, signals[number]++; }

static int reads_in_background(void) {
    setpgid(0, 0);
    char byte;
    // Stopped here until it is in the foreground and goes on.
    return read(0, &byte, 1) == 1 && byte == 'x' ? 51 : 52;
}

static int waits_for_key(void) {
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    tell(report);
    while (pause() == -1) {}
    return 0;
}

static int session(void) {
    char name[100];
    CHECK(ptsname_r(master, name, sizeof name) == 0 && setsid() == getpid());
    int terminal = open(name, O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && ioctl(terminal, TIOCSCTTY, 0) == 0 && dup2(terminal, 0) == 0);
    struct termios settings;
    CHECK(tcgetattr(0, &settings) == 0);
    settings.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    CHECK(tcsetattr(0, TCSANOW, &settings) == 0);
    printf("the foreground is this group: %d, the session %d\n", tcgetpgrp(0) == getpgrp(), tcgetsid(0) == getpid());
    signal(SIGTTOU, SIG_IGN);

    pid_t pid = start(reads_in_background);
    int status;
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    printf("a read in the background: %s\n", ended(status));
    CHECK(tcsetpgrp(0, pid) == 0 && write(master, "x", 1) == 1 && kill(-pid, SIGCONT) == 0);
    printf("in the foreground: %s\n", ended(finish(pid)));
    CHECK(tcsetpgrp(0, getpgrp()) == 0);

    pid = start(waits_for_key);
    await(report);
    setpgid(pid, pid);
    CHECK(tcsetpgrp(0, pid) == 0 && write(master, "\003", 1) == 1);
    printf("the key for SIGINT: %s\n", ended(finish(pid)));
    CHECK(tcsetpgrp(0, getpgrp()) == 0);
    pid = start(waits_for_key);
    await(report);
    CHECK(tcsetpgrp(0, pid) == 0 && write(master, "\032", 1) == 1);
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    printf("the key for SIGTSTP: %s\n", ended(status));
    kill(pid, SIGKILL);
    finish(pid);
    CHECK(tcsetpgrp(0, getpgrp()) == 0);
    CHECK(tcsetpgrp(0, 0x3fffffff) == -1);
    printf("no such group: %s\n", error(errno));

    handle(SIGWINCH, note, 0);
    struct winsize size = {.ws_row = 33, .ws_col = 77};
    CHECK(ioctl(master, TIOCSWINSZ, &size) == 0);
    while (signals[SIGWINCH] == 0) usleep(500);
    memset(&size, 0, sizeof size);
    CHECK(ioctl(0, TIOCGWINSZ, &size) == 0);
    printf("size %d %d\n", size.ws_row, size.ws_col);
    return 53;
}

int main(void) {
    CHECK(pipe(report) == 0);
    master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    printf("%s\n", ended(finish(start(session))));
    return 0;
}
