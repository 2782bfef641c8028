// Files: in a folder that mkdtemp makes: writing, seeking, appending, mapping, renaming, directories, pipes, errors.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int ok, const char *what) {
    if (ok) return;
    printf("%s: %s\n", what, strerror(errno));
    exit(1);
}

static int names(const char *folder) {
    DIR *dir = opendir(folder);
    int count = 0;
    check(dir != NULL, "opendir");
    for (struct dirent *entry; (entry = readdir(dir));) count += (int)strlen(entry->d_name);
    closedir(dir);
    return count;
}

int main(void) {
    char folder[] = "/tmp/programs-XXXXXX", line[100];
    check(mkdtemp(folder) != NULL && chdir(folder) == 0, "mkdtemp");
    FILE *file = fopen("numbers", "w+");
    check(file != NULL, "fopen");
    for (int n = 0; n < 5000; n++) fprintf(file, "%d %x\n", n * n, n);
    printf("%ld bytes\n", ftell(file));
    fseek(file, 777, SEEK_SET);
    check(fgets(line, sizeof line, file) && fgets(line, sizeof line, file), "fgets");
    printf("line: %s", line);
    fclose(file);

    int fd = open("numbers", O_RDWR | O_APPEND);
    check(fd >= 0 && write(fd, "appended\n", 9) == 9, "append");
    check(pread(fd, line, 5, 100) == 5, "pread");
    struct stat status;
    check(fstat(fd, &status) == 0, "fstat");
    printf("%.5s, size %ld, regular %d, mode %o\n", line, (long)status.st_size, S_ISREG(status.st_mode), status.st_mode & 0700);
    char *map = mmap(NULL, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    check(map != MAP_FAILED, "mmap");
    unsigned sum = 0;
    for (long i = 0; i < status.st_size; i++) sum = sum * 33 + (unsigned char)map[i];
    printf("sum %08x, ends in %.9s", sum, map + status.st_size - 9);
    munmap(map, (size_t)status.st_size), close(fd);

    check(mkdir("sub", 0700) == 0 && rename("numbers", "sub/renamed") == 0 && symlink("sub/renamed", "link") == 0, "rename");
    check(truncate("link", 10) == 0 && stat("link", &status) == 0, "truncate");
    printf("size %ld, names %d and %d\n", (long)status.st_size, names("."), names("sub"));
    printf("link to %.*s\n", (int)readlink("link", line, sizeof line), line);
    printf("open: %s\n", open("nothing", O_RDONLY) < 0 ? strerror(errno) : "opened");
    printf("rmdir: %s\n", rmdir("sub") < 0 ? strerror(errno) : "removed");

    int ends[2];
    check(pipe(ends) == 0 && write(ends[1], "through a pipe", 14) == 14, "pipe");
    int other = dup2(ends[0], 20);
    close(ends[0]), close(ends[1]);
    long got = read(other, line, sizeof line), end = read(other, line + 50, 10);
    printf("%.*s, then %ld\n", (int)got, line, end);

    check(unlink("sub/renamed") == 0 && rmdir("sub") == 0 && unlink("link") == 0 && chdir("/") == 0 && rmdir(folder) == 0, "clean up");
    return 0;
}
