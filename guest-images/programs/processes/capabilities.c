// Capabilities: the bounding and the ambient set, what exec and a change of users make of them, locks on how, and files without.
#include "processes.h"
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/prctl.h>

static struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
static struct __user_cap_data_struct sets[2];

// Of the capabilities that are asked for here, those that a set has.
static const char *some(const struct __user_cap_data_struct *set, int which) {
    static char text[4][8];
    static int next;
    static const struct { int number; char letter; } asked[] = {
        {CAP_CHOWN, 'c'}, {CAP_DAC_OVERRIDE, 'd'}, {CAP_KILL, 'k'}, {CAP_SETUID, 's'}, {CAP_NET_RAW, 'n'}};
    char *to = text[next++ % 4], *at = to;
    unsigned word = which == 0 ? set->effective : which == 1 ? set->permitted : set->inheritable;
    for (size_t n = 0; n < sizeof asked / sizeof *asked; n++)
        if (word & 1u << asked[n].number) *at++ = asked[n].letter;
    if (at == to) *at++ = '-';
    *at = 0;
    return to;
}

static void show(const char *when) {
    CHECK(syscall(SYS_capget, &head, sets) == 0);
    printf("%s: effective %s, permitted %s, inheritable %s", when, some(sets, 0), some(sets, 1), some(sets, 2));
    printf(", bounds %d%d, ambient %d%d, bits %x\n", prctl(PR_CAPBSET_READ, CAP_KILL, 0, 0, 0),
           prctl(PR_CAPBSET_READ, CAP_NET_RAW, 0, 0, 0), prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_KILL, 0, 0),
           prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_NET_RAW, 0, 0), (unsigned)prctl(PR_GET_SECUREBITS, 0, 0, 0, 0));
}

static const char *tried(int result) { return result < 0 ? error(errno) : "done"; }

static const char *path;

static int executed(void) {
    fflush(NULL);
    execl(path, "capabilities", "again", (char *)NULL);
    return 1;
}

static int bounded(void) {
    printf("dropped: %s", tried(prctl(PR_CAPBSET_DROP, CAP_KILL, 0, 0, 0)));
    printf(", one that there is not: %s\n", tried(prctl(PR_CAPBSET_DROP, 63, 0, 0, 0)));
    show("bounded");
    return executed();
}

static int kept(void) {
    show("at first");
    sets[0].inheritable = 1 << CAP_KILL | 1 << CAP_SETUID;
    printf("inheritable: %s", tried((int)syscall(SYS_capset, &head, sets)));
    printf(", ambient: %s", tried(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0)));
    printf(", what is not inheritable: %s\n", tried(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0)));
    printf("another user who keeps them: %s", tried(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)));
    printf(", %s\n", tried(setresuid(444, 444, 444)));
    show("then");
    return executed();
}

static int ambient(void) {
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
    CHECK(syscall(SYS_capget, &head, sets) == 0);
    sets[0].inheritable = 1 << CAP_KILL;
    printf("inheritable: %s", tried((int)syscall(SYS_capset, &head, sets)));
    printf(", ambient: %s", tried(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0)));
    printf(", another user: %s\n", tried(setresuid(444, 444, 444)));
    show("ambient");
    return executed();
}

static int locked(void) {
    int bits = SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
    printf("locked: %s", tried(prctl(PR_SET_SECUREBITS, bits, 0, 0, 0)));
    printf(", unlocked: %s", tried(prctl(PR_SET_SECUREBITS, 0, 0, 0, 0)));
    printf(", raised: %s\n", tried(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0)));
    show("locked");
    return 0;
}

// Root, but without the right to pass over those of files.
static int plain(void) {
    CHECK(syscall(SYS_capget, &head, sets) == 0);
    sets[0].effective &= ~(1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH | 1u << CAP_CHOWN);
    CHECK(syscall(SYS_capset, &head, sets) == 0);
    printf("another's file: %s", tried(open("others", O_RDONLY)));
    printf(", given away: %s", tried(chown("own", 444, 444)));
    sets[0].effective |= sets[0].permitted & 1u << CAP_DAC_OVERRIDE;
    CHECK(syscall(SYS_capset, &head, sets) == 0);
    printf(", again: %s\n", tried(open("others", O_RDONLY)));
    return 0;
}

static int asks(void) {
    printf("as the one that it became: %s", tried(setresuid((uid_t)-1, 444, (uid_t)-1)));
    printf(", access: %s", tried(access("own", R_OK)));
    printf(", as who it is for files: %s", tried(faccessat(AT_FDCWD, "own", R_OK, AT_EACCESS)));
    printf(", opened: %s", tried(open("own", O_RDONLY)));
    printf(", made: %s", tried(open("here/new", O_CREAT | O_WRONLY, 0600)));
    struct stat state;
    CHECK(stat("here/new", &state) == 0);
    printf(", by %d\n", state.st_uid == geteuid());
    return 0;
}

int main(int count, char **arguments) {
    if (count > 1) {
        show("behind exec");
        return 0;
    }
    path = itself(arguments);
    const char *folder = enter_folder();
    CHECK(chmod(".", 0755) == 0 && mkdir("here", 0777) == 0 && chmod("here", 0777) == 0);
    int own = open("own", O_CREAT | O_WRONLY, 0600), others = open("others", O_CREAT | O_WRONLY, 0600);
    CHECK(own >= 0 && others >= 0);
    int root = geteuid() == 0 && chown("others", 444, 444) == 0;
    int (*const steps[])(void) = {bounded, kept, ambient, locked, plain, asks};
    for (size_t n = 0; n < sizeof steps / sizeof *steps; n++)
        if (root || n < 4) printf("%s\n", ended(finish(start(steps[n]))));
    unlink("own"), unlink("others"), unlink("here/new"), rmdir("here");
    leave_folder(folder);
    return 0;
}
