// Who a process is: users, groups, capabilities, masks; what it sets to what it has already, and what children get.
#include "processes.h"
#include <grp.h>
#include <linux/capability.h>

static int same(void) {
    uid_t real, effective, saved;
    gid_t groups[3];
    CHECK(getresuid(&real, &effective, &saved) == 0 && getresgid(&groups[0], &groups[1], &groups[2]) == 0);
    return real == getuid() && effective == geteuid() && saved == effective && groups[0] == getgid() &&
           groups[1] == getegid() && groups[2] == groups[1];
}

int main(int count, char **arguments) {
    if (count > 1) {
        printf("after exec: the same %d, umask %03o\n", same(), (unsigned)umask(0));
        return 0;
    }
    const char *path = itself(arguments), *folder = enter_folder();
    printf("user %d, group %d, one user %d\n", (int)getuid(), (int)getgid(), same());
    gid_t groups[64];
    int number = getgroups(64, groups);
    CHECK(number >= 0 && getgroups(0, NULL) == number);
    printf("%d groups:", number);
    for (int n = 0; n < number; n++) printf(" %d", (int)groups[n]);
    printf("\n");

    CHECK(setuid(getuid()) == 0 && setgid(getgid()) == 0);
    CHECK(setresuid((uid_t)-1, geteuid(), (uid_t)-1) == 0 && setreuid((uid_t)-1, (uid_t)-1) == 0);
    printf("set to what it was: %d\n", same());
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    CHECK(syscall(SYS_capget, &head, data) == 0);
    printf("capabilities %x %x\n", data[0].effective, data[1].effective);
    head.version = 1;
    CHECK(syscall(SYS_capget, &head, data) == -1);
    printf("another version: %s, then %x\n", error(errno), head.version);

    umask(027);
    int fd = open("file", O_CREAT | O_WRONLY, 0666);
    struct stat state;
    CHECK(fd >= 0 && fstat(fd, &state) == 0);
    printf("mode %o, the owner %d, the group %d\n", state.st_mode & 07777, state.st_uid == geteuid(), state.st_gid == getegid());
    close(fd);
    CHECK(mkdir("folder", 0777) == 0 && stat("folder", &state) == 0);
    printf("mode %o\n", state.st_mode & 07777);
    CHECK(chmod("file", 0) == 0);
    fd = open("file", O_RDONLY);
    printf("a file without leave: %s\n", fd >= 0 ? "opened" : error(errno));
    if (fd >= 0) close(fd);
    printf("access: %d %d\n", access("file", R_OK), access("file", X_OK));

    pid_t pid = split();
    if (pid == 0) {
        int is = same();
        umask(0);
        _exit(is ? 3 : 4);
    }
    printf("a child: %s\n", ended(finish(pid)));
    pid = split();
    if (pid == 0) {
        execl(path, "credentials", "show", (char *)NULL);
        _exit(1);
    }
    printf("%s\n", ended(finish(pid)));
    CHECK(unlink("file") == 0 && rmdir("folder") == 0);
    leave_folder(folder);
    return 0;
}
