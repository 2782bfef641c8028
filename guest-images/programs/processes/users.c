// A child that becomes another user, where this one may: what it may then do, and that its parent stays who it was.
#include "processes.h"
#include <grp.h>

static int other_user(void) {
    CHECK(setgroups(2, (gid_t[]){777, 888}) == 0);
    CHECK(setresgid(555, 555, 555) == 0 && setresuid(444, 444, 444) == 0);
    uid_t real, effective, saved;
    gid_t groups[10];
    CHECK(getresuid(&real, &effective, &saved) == 0);
    int number = getgroups(10, groups);
    printf("user %d %d %d, group %d, %d groups %d %d\n", (int)real, (int)effective, (int)saved, (int)getegid(), number,
           (int)groups[0], (int)groups[1]);
    int fd = open("secret", O_RDONLY);
    printf("the secret: %s\n", fd >= 0 ? "opened" : error(errno));
    fd = open("public", O_RDONLY);
    printf("what all may read: %s\n", fd >= 0 ? "opened" : error(errno));
    CHECK(setuid(0) == -1);
    printf("back: %s\n", error(errno));
    CHECK(kill(getppid(), 0) == -1);
    printf("a signal to the parent: %s\n", error(errno));
    fd = open("made", O_CREAT | O_WRONLY, 0644);
    printf("a file in the other's folder: %s\n", fd >= 0 ? "made" : error(errno));
    return 8;
}

static int for_a_while(void) {
    CHECK(seteuid(444) == 0);
    int fd = open("secret", O_RDONLY);
    printf("the secret: %s, ", fd >= 0 ? "opened" : error(errno));
    CHECK(seteuid(0) == 0);
    fd = open("secret", O_RDONLY);
    printf("then: %s\n", fd >= 0 ? "opened" : error(errno));
    return 9;
}

int main(void) {
    if (geteuid() != 0) {
        CHECK(setuid(geteuid() + 1) == -1);
        printf("another user: %s\n", error(errno));
        CHECK(setgid(getegid() + 1) == -1);
        printf("another group: %s\n", error(errno));
        CHECK(setgroups(0, NULL) == -1);
        printf("no groups: %s\n", error(errno));
        return 0;
    }
    const char *folder = enter_folder();
    CHECK(chmod(".", 0755) == 0);
    int fd = open("secret", O_CREAT | O_WRONLY, 0600);
    CHECK(fd >= 0 && close(fd) == 0);
    fd = open("public", O_CREAT | O_WRONLY, 0644);
    CHECK(fd >= 0 && close(fd) == 0);
    printf("%s\n", ended(finish(start(other_user))));
    printf("%s\n", ended(finish(start(for_a_while))));
    printf("the parent: %d %d\n", (int)getuid(), (int)geteuid());
    CHECK(chown("public", 444, 555) == 0);
    struct stat state;
    CHECK(stat("public", &state) == 0);
    printf("given away: %d %d\n", (int)state.st_uid, (int)state.st_gid);
    unlink("secret"), unlink("public");
    leave_folder(folder);
    return 0;
}
