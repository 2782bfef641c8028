// Terminals that a session loses and takes: the name of its own, output from the background, quoted keys, other sessions, the
// end of the leader and of the master.
#include "processes.h"
#include <sys/ioctl.h>
#include <termios.h>

static int master, report[2];
static char name[100];
static volatile int signals[65];
static void note(int number) { (void)number, signals[number]++; }

static const char *tried(int result) { return result < 0 ? error(errno) : "done"; }

static void settings(int terminal, tcflag_t off, tcflag_t on) {
    struct termios now;
    CHECK(tcgetattr(terminal, &now) == 0);
    now.c_lflag = (now.c_lflag & ~off) | on;
    CHECK(tcsetattr(terminal, TCSANOW, &now) == 0);
}

static int writes_in_background(void) {
    setpgid(0, 0);
    signal(SIGTTOU, SIG_DFL);
    CHECK(write(0, "", 0) == 0);
    return write(0, "from behind\n", 12) == 12 ? 61 : 62;
}

static int ignores(void) {
    setpgid(0, 0);
    signal(SIGTTIN, SIG_IGN);
    char byte;
    CHECK(read(0, &byte, 1) == -1);
    return errno == EIO ? 63 : 64;
}

static int another_session(void) {
    CHECK(setsid() == getpid());
    int own = open("/dev/tty", O_RDWR);
    printf("without one: %s", own < 0 ? error(errno) : "opened");
    printf(", of another session: %s", tried(ioctl(0, TIOCSCTTY, 0)));
    pid_t group;
    printf(", its foreground: %s\n", tried(ioctl(0, TIOCGPGRP, &group)));
    return 65;
}

static int waits(void) {
    signal(SIGHUP, SIG_DFL);
    tell(report);
    while (pause() == -1) {}
    return 0;
}

static int session(void) {
    CHECK(setsid() == getpid());
    int terminal = open(name, O_RDWR);
    CHECK(terminal >= 0 && dup2(terminal, 0) == 0);
    int own = open("/dev/tty", O_RDWR);
    printf("opened: the session %d, /dev/tty %s\n", tcgetsid(terminal) == getpid(), own < 0 ? error(errno) : "opened");
    CHECK(tcgetpgrp(own) == getpgrp());
    printf("once more: %s\n", tried(ioctl(0, TIOCSCTTY, 0)));
    close(own);
    signal(SIGTTOU, SIG_IGN);
    settings(0, ICANON | ECHO, TOSTOP);

    pid_t pid = start(writes_in_background);
    int status;
    CHECK(waitpid(pid, &status, WUNTRACED) == pid);
    printf("a write in the background: %s", ended(status));
    settings(0, TOSTOP, 0);
    CHECK(kill(pid, SIGCONT) == 0);
    printf(", then: %s\n", ended(finish(pid)));
    printf("a read of one that ignores it: %s\n", ended(finish(start(ignores))));
    printf("%s\n", ended(finish(start(another_session))));

    handle(SIGINT, note, 0);
    char text[10] = {0};
    settings(0, ISIG, 0);
    CHECK(write(master, "\003", 1) == 1 && read(0, text, 1) == 1);
    printf("a key that is none: %d, %d\n", text[0], signals[SIGINT]);
    settings(0, 0, ISIG);
    CHECK(write(master, "a\003b", 3) == 3);
    while (signals[SIGINT] == 0) usleep(500);
    printf("one that is: %d\n", signals[SIGINT]);

    pid = start(waits);
    await(report);
    CHECK(ioctl(0, TIOCNOTTY) == 0);
    printf("given up: %s, ", ended(finish(pid)));
    own = open("/dev/tty", O_RDWR);
    printf("then %s\n", own < 0 ? error(errno) : "opened");
    return 66;
}

static int leader(void) {
    CHECK(setsid() == getpid());
    int terminal = open(name, O_RDWR);
    CHECK(terminal >= 0);
    start(waits);
    await(report);
    return 67;
}

static int hung_up(void) {
    CHECK(setsid() == getpid());
    handle(SIGHUP, note, 0);
    int terminal = open(name, O_RDWR);
    CHECK(terminal >= 0);
    close(master);
    tell(report);
    while (signals[SIGHUP] == 0) usleep(500);
    char byte;
    ssize_t got = read(terminal, &byte, 1);
    int own = open("/dev/tty", O_RDWR);
    printf("the master closed: %zd, %s\n", got, own < 0 ? error(errno) : "opened");
    return 68;
}

int main(void) {
    signal(SIGHUP, SIG_IGN);
    CHECK(pipe(report) == 0);
    master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 && ptsname_r(master, name, sizeof name) == 0);
    // So that the terminal stays while no session has it.
    int slave = open(name, O_RDWR | O_NOCTTY);
    CHECK(slave >= 0);
    printf("%s\n", ended(finish(start(session))));
    printf("%s\n", ended(finish(start(leader))));
    pid_t pid = start(hung_up);
    await(report);
    close(master);
    printf("%s\n", ended(finish(pid)));
    return 0;
}
