// Tries to get out of gretel, and to its recording, whose folder is the argument. Prints each try that did what it must not do.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void refused(const char *what, const char *on, long result) {
    if (result != -1) printf("%s %s: %ld\n", what, on, result);
}
#define NO(call, ...) refused(#call, "", syscall(SYS_##call, __VA_ARGS__))

static int here;
static char page_end[1], *edge; // edge: the last byte before memory that is not mapped

static void recording(const char *path) {
    char buffer[4096], socket_name[200];
    unsigned long how[] = {O_RDONLY, 0, 0x10}, make[] = {O_RDWR | O_CREAT, 0600, 0x08}, times[4] = {1, 0, 1, 0};
    char *none[] = {0};
#define R(call, ...) refused(#call, path, syscall(SYS_##call, __VA_ARGS__))
    R(open, path, O_RDONLY);
    R(open, path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    R(open, path, O_RDWR | O_TMPFILE, 0600);
    R(open, path, O_PATH);
    R(openat, here, path, O_PATH | O_NOFOLLOW);
    R(openat2, here, path, how, sizeof how);
    R(openat2, here, path, make, sizeof make);
    R(truncate, path, 0);
    R(stat, path, buffer);
    R(newfstatat, here, path, buffer, AT_SYMLINK_NOFOLLOW);
    R(access, path, 0);
    R(statfs, path, buffer);
    R(chdir, path);
    R(chmod, path, 0777);
    R(fchmodat, here, path, 0777);
    R(chown, path, 0, 0);
    R(utimensat, here, path, times, 0);
    R(rename, path, "taken");
    R(rename, "own", path);
    R(renameat2, here, "own", here, path, 2);
    R(unlink, path);
    R(unlinkat, here, path, AT_REMOVEDIR);
    R(link, path, "taken");
    R(linkat, here, path, here, "taken", AT_SYMLINK_FOLLOW);
    R(link, "own", path);
    R(symlink, "own", path);
    R(mkdir, path, 0700);
    R(mknod, path, S_IFIFO | 0600, 0);
    R(execve, path, none, none);
    struct sockaddr_un name = {AF_UNIX, ""};
    snprintf(socket_name, sizeof name.sun_path, "%s", path);
    memcpy(name.sun_path, socket_name, sizeof name.sun_path);
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    if (strlen(path) < sizeof name.sun_path) R(bind, s, &name, sizeof name);
    close(s);
}

static void every_way(const char *folder) {
    const char *names[] = {"", "/journal", "/crumbs-0", "/program", "/new", "/"};
    const char *ways[] = {"%s%s", "%s/../rec%s", "way%s%s", "./sub/../rec%s%s", "/proc/self/cwd/rec%s%s", "/proc/self/root%s%s"};
    char path[8192];
    symlink(folder, "way");
    symlink("rec/made", "dangling");
    mkdir("sub", 0700);
    close(open("own", O_CREAT | O_RDWR, 0600));
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
            int whole = w < 2 || w == 5;
            // A link itself is the program's own.
            if (w == 2 && !*names[n]) continue;
            snprintf(path, sizeof path, ways[w], whole ? folder : "", names[n]);
            recording(path);
        }
    refused("open", "dangling", open("dangling", O_CREAT | O_RDWR, 0600));
    DIR *dir = opendir(".");
    for (struct dirent *entry; (entry = readdir(dir));)
        if (!strcmp(entry->d_name, "rec")) puts("the folder is listed");
    closedir(dir);
    char above[4096];
    snprintf(above, sizeof above, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
    snprintf(path, sizeof path, "%s-moved", above);
    refused("rename", "the folder above", rename(above, path));
}

static void descriptors(void) {
    char buffer[256];
    int pair[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    for (int n = -3; n < 1100; n++) {
        if ((n >= 0 && n <= 2) || n == here || n == pair[0] || n == pair[1]) continue;
        struct stat status;
        char what[20];
        snprintf(what, sizeof what, "%d", n);
        refused("fcntl", what, fcntl(n, F_GETFD));
        refused("fstat", what, fstat(n, &status));
        refused("dup", what, dup(n));
        refused("read", what, read(n, buffer, 1));
        refused("ioctl", what, ioctl(n, 0xAE00, 0)); // KVM_GET_API_VERSION
        refused("fchdir", what, fchdir(n));
        refused("mmap", what, (long)mmap(0, 4096, PROT_READ, MAP_SHARED, n, 0));
        union { struct cmsghdr header; char bytes[CMSG_SPACE(4)]; } control = {.header = {CMSG_LEN(4), SOL_SOCKET, SCM_RIGHTS}};
        memcpy(CMSG_DATA(&control.header), &n, 4);
        struct iovec part = {"x", 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        refused("sendmsg", what, sendmsg(pair[0], &message, MSG_DONTWAIT));
        control.header.cmsg_len = n < 0 ? SIZE_MAX : (size_t)n % 15;
        refused("sendmsg, a length", what, sendmsg(pair[0], &message, MSG_DONTWAIT));
    }
    close(pair[0]);
    close(pair[1]);
}

static void processes(int own) {
    char byte = 0, path[100];
    struct iovec local = {&byte, 1}, remote = {(void *)0x400000, 1};
    int others[] = {1, 2, own + 1, own + 2, own + 3, getppid()};
    for (unsigned n = 0; n < sizeof others / sizeof *others; n++) {
        int pid = others[n];
        NO(ptrace, 16 /* attach */, pid, 0, 0);
        NO(ptrace, 0x4206 /* seize */, pid, 0, 0);
        NO(process_vm_readv, pid, &local, 1, &remote, 1, 0);
        NO(process_vm_writev, pid, &local, 1, &remote, 1, 0);
        if (n < 5) NO(kill, pid, SIGKILL), NO(pidfd_open, pid, 0);
        const char *names[] = {"mem", "maps", "fd/3", "exe", "root/etc/passwd", "task"};
        for (unsigned k = 0; k < sizeof names / sizeof *names; k++) {
            snprintf(path, sizeof path, "/proc/%d/%s", pid, names[k]);
            refused("open", path, open(path, O_RDONLY));
        }
    }
    // Outside of what the program has mapped there is nothing in its memory.
    int memory = open("/proc/self/mem", O_RDWR);
    for (unsigned long at = 0x1000; at < 0x7fff00000000; at = at * 2 + 0x1000)
        if (at < 0x400000 || at > 0x10000000) refused("pwrite", "memory", pwrite(memory, "x", 1, at));
    close(memory);
    unsigned long filter[2] = {1UL << 40, 0x1000};
    NO(seccomp, 1, 0, filter);
    NO(mount, "none", "sub", "tmpfs", 0, 0);
    NO(setns, here, 0);
    NO(open_by_handle_at, here, page_end, 0);
    NO(bpf, 0, 0, 0);
    NO(io_uring_setup, 8, filter);
    NO(userfaultfd, 0);
    NO(perf_event_open, filter, 0, -1, -1, 0);
    NO(init_module, filter, 0, "");
    NO(reboot, 0, 0, 0, 0);
    NO(iopl, 3);
}

static void lengths(void) {
    struct iovec many[1025], wrap[2] = {{edge, 1}, {edge, -1UL}};
    for (int n = 0; n < 1025; n++) many[n] = (struct iovec){edge, 1};
    int pair[2], ends[2], zero = open("/dev/zero", O_RDWR);
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pipe(ends);
    char *megabyte = malloc(1 << 20), *far = (char *)0x700000000000, *high = (char *)0xffffffff80004000;
    memset(megabyte, 'a', 1 << 20);
    int length = -1;
    NO(readv, zero, many, 1025);
    NO(writev, zero, many, -1);
    NO(readv, zero, wrap, 2);
    NO(preadv, zero, wrap, 1UL << 40, 0);
    NO(process_vm_readv, getpid(), wrap, 2, many, 1024, 0);
    NO(read, zero, far, 1UL << 62);
    NO(read, zero, high, 1);
    NO(write, ends[1], high, 4096);
    NO(open, megabyte, O_CREAT | O_RDWR, 0600);
    NO(open, edge, O_RDONLY);
    NO(stat, "/", high);
    NO(stat, "/", edge);
    NO(getcwd, edge - 1, 1UL << 40);
    NO(readlink, "/proc/self/exe", far, 1UL << 31);
    NO(getdents64, here, far, 1UL << 32);
    NO(connect, pair[0], edge, 128);
    NO(bind, pair[0], edge, -1);
    NO(sendto, pair[0], far, 1UL << 50, 0, 0, 0);
    NO(sendto, zero, "x", 1, 0, edge, 5);
    NO(getsockname, pair[0], edge, &length);
    NO(getsockopt, pair[0], SOL_SOCKET, SO_TYPE, edge, &length);
    NO(getsockopt, pair[0], SOL_SOCKET, SO_TYPE, far, edge);
    NO(setsockopt, pair[0], SOL_SOCKET, SO_RCVBUF, far, 1 << 30);
    NO(setsockopt, pair[0], SOL_SOCKET, SO_RCVBUF, edge, -4);
    struct msghdr message = {.msg_iov = many, .msg_iovlen = -1UL};
    NO(sendmsg, pair[0], &message, 0);
    message = (struct msghdr){.msg_iov = many, .msg_iovlen = 1, .msg_control = far, .msg_controllen = 1UL << 40};
    NO(sendmsg, pair[0], &message, 0);
    message = (struct msghdr){.msg_name = far, .msg_namelen = -1, .msg_iov = many, .msg_iovlen = 1};
    NO(recvmsg, pair[0], &message, MSG_DONTWAIT);
    NO(ioctl, ends[0], FIONREAD, edge);
    NO(ioctl, pair[0], 0x8912, edge);
    NO(poll, far, 1UL << 40, 0);
    NO(select, -1, far, 0, 0, 0);
    NO(epoll_ctl, epoll_create1(0), EPOLL_CTL_ADD, ends[0], edge);
    NO(getgroups, -1, far);
    NO(setgroups, 1 << 30, far);
    NO(sched_setaffinity, 0, 1UL << 40, far);
    NO(getrandom, far, 1UL << 40, 0);
    NO(fcntl, zero, F_GETLK, edge);
    NO(fcntl, zero, F_DUPFD, 1 << 30);
    NO(dup2, zero, 1 << 20);
    NO(dup2, zero, -1);
    NO(execve, "/proc/self/exe", edge, 0);
    NO(mremap, edge - 4095, 8192, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, edge - 4095 + 4096);
    NO(mremap, edge - 4095, 4096, -4096UL, MREMAP_MAYMOVE);
    NO(mmap, 0, -1UL, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NO(mmap, high, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NO(munmap, high, 4096);
    NO(mprotect, high, 4096, PROT_READ);
    NO(mprotect, edge - 4095, -4096UL, PROT_READ);
    NO(mincore, edge - 4095, 1UL << 45, far);
    NO(sendfile, ends[1], zero, edge, 1UL << 60);
    NO(futex, high, 0, 0, 0);
    NO(rt_sigaction, SIGUSR1, high, 0, 8);
    NO(rt_sigaction, 65, 0, 0, 8);
    NO(rt_sigprocmask, 0, edge, 0, 8);
    NO(sigaltstack, edge, 0);
    NO(prctl, 15 /* PR_SET_NAME */, high);
    NO(capget, edge, 0);
    NO(timer_settime, 77, 0, far, 0);
    close(pair[0]), close(pair[1]), close(ends[0]), close(ends[1]), close(zero);
}

// What has addresses or descriptors of the caller inside of what it points to, or would be filled later: the host must not take them for
// those of gretel.
static void addresses_within(void) {
    int stream = socket(AF_INET, SOCK_STREAM, 0), datagram = socket(AF_INET, SOCK_DGRAM, 0), one = 1;
    unsigned long far = 0x7f0000000000, out[16] = {far, 4096}, list[2] = {4096, far}, request[5] = {0x6f6c, 0, far};
    unsigned length = sizeof out;
    struct { unsigned short length; void *filter; } program = {1, (void *)far};
    NO(setsockopt, datagram, SOL_SOCKET, 26 /* SO_ATTACH_FILTER */, &program, sizeof program);
    NO(setsockopt, datagram, SOL_SOCKET, 51 /* SO_ATTACH_REUSEPORT_CBPF */, &program, sizeof program);
    NO(setsockopt, datagram, SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &one, 4);
    NO(getsockopt, datagram, SOL_SOCKET, 26 /* SO_GET_FILTER */, out, &length);
    NO(setsockopt, stream, SOL_SOCKET, 60 /* SO_ZEROCOPY */, &one, 4);
    NO(getsockopt, stream, 6, 35 /* TCP_ZEROCOPY_RECEIVE */, out, &length);
    NO(getsockopt, datagram, SOL_SOCKET, 77 /* SO_PEERPIDFD */, out, &length);
    NO(setsockopt, datagram, 0, 64 /* IPT_SO_SET_REPLACE */, out, sizeof out);
    NO(setsockopt, datagram, 41, 64 /* IP6T_SO_SET_REPLACE */, out, sizeof out);
    NO(ioctl, datagram, 0x8912 /* SIOCGIFCONF */, list);
    NO(ioctl, datagram, 0x8946 /* SIOCETHTOOL */, request);
    NO(ioctl, datagram, 0x89f0 /* SIOCDEVPRIVATE */, request);
    NO(ioctl, datagram, 0x8b01 /* SIOCGIWNAME */, request);
    refused("mmap", "a socket", (long)mmap(0, 4096, PROT_READ, MAP_SHARED, stream, 0));
    NO(seccomp, 1, 8 /* a listener */, out);
    NO(prctl, 35 /* PR_SET_MM */, 14 /* PR_SET_MM_MAP */, out, 104, 0);
    NO(prctl, 59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &one);
    NO(io_setup, 8, out);
    NO(process_madvise, getpid(), out, 1, 4 /* MADV_DONTNEED */, 0);
    NO(quotactl, 0x80000700, 0, 0, far);
    NO(keyctl, 0, 0, 0, 0, 0);
    // By what they are written, addresses get to these drivers, where there are any: SCSI's and RDMA's.
    if (mknod("generic", S_IFCHR | 0600, makedev(21, 0)) == 0) refused("open", "sg", open("generic", O_RDWR));
    if (mknod("verbs", S_IFCHR | 0600, makedev(231, 192)) == 0) refused("open", "verbs", open("verbs", O_RDWR));
    // Machines in gretel's machine, memory that faults to the caller, and disks of files.
    const char *devices[] = {"/dev/kvm", "/dev/userfaultfd", "/dev/loop-control", "/dev/net/tun", "/dev/fuse", "/dev/vhost-net"};
    unsigned long asked[] = {0xae00, 0xae01, 0xaa00, 0x4c82, 0x400454ca, 0x8004e500, 0xaf01};
    for (unsigned n = 0; n < sizeof devices / sizeof *devices; n++) {
        int device = open(devices[n], O_RDWR);
        for (unsigned k = 0; device >= 0 && k < sizeof asked / sizeof *asked; k++)
            refused("ioctl", devices[n], ioctl(device, asked[k], out));
        if (device >= 0) refused("mmap", devices[n], (long)mmap(0, 4096, PROT_READ, MAP_SHARED, device, 0));
        close(device);
    }
    int families[] = {17 /* PACKET */, 38 /* ALG */, 40 /* VSOCK */, 44 /* XDP */, 29, 30, 31, 21, 16};
    for (unsigned n = 0; n < sizeof families / sizeof *families; n++) {
        // Of netlink, what changes the host's filters (NETFILTER), its policies (XFRM), its audit.
        int protocols[] = {0, 12, 6, 9};
        for (unsigned k = families[n] == 16; k < (families[n] == 16 ? 4 : 1); k++)
            NO(socket, families[n], SOCK_RAW, protocols[k]);
    }
    close(stream);
    close(datagram);
}

// A file without a name, given one in the recording's folder.
static void unnamed(const char *folder) {
    char from[100], to[4096];
    int file = open(".", O_TMPFILE | O_RDWR, 0600), memory = memfd_create("x", 0);
    snprintf(to, sizeof to, "%s/new", folder);
    int files[] = {file, memory};
    for (int n = 0; n < 2 && files[n] >= 0; n++) {
        snprintf(from, sizeof from, "/proc/self/fd/%d", files[n]);
        NO(linkat, AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
        NO(linkat, files[n], "", AT_FDCWD, to, AT_EMPTY_PATH);
        NO(renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
        close(files[n]);
    }
    NO(mount, folder, "sub", "", 4096 /* MS_BIND */, 0);
    NO(unshare, 0x10020000 /* a user's namespace, with mounts of its own */);
    NO(open_tree, AT_FDCWD, folder, 1);
    NO(fsopen, "tmpfs", 0);
    NO(name_to_handle_at, AT_FDCWD, folder, from, to, 0);
    NO(fanotify_init, 0, 0);
    NO(inotify_add_watch, inotify_init1(0), folder, 0xfff);
}

// A child that goes there is ended by SIGSEGV.
static void jump(unsigned long to) {
    int status;
    if (!fork()) {
        __asm__ volatile("xor %%ecx, %%ecx; jmp *%0" : : "r"(to) : "rcx");
        _exit(0);
    }
    wait(&status);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV) printf("jump to %lx: status %x\n", to, status);
}

// Out of another root, and from there to the recording.
static void root(const char *recording) {
    static const char *const ways[] = {"/etc/passwd", "/../../etc/passwd", "../../../../../etc/passwd", "absolute/passwd",
                                       "/up/etc/passwd", "/proc/self/maps", "/sub"};
    if (symlink("/etc", "sub/absolute") || symlink("../../../../../..", "sub/up")) puts("no links in sub");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        // Who is not root may not.
        if (chroot("sub")) _exit(0);
        if (chdir("/")) puts("the root cannot be entered");
        for (unsigned n = 0; n < sizeof ways / sizeof *ways; n++) refused("open", ways[n], open(ways[n], O_RDONLY));
        refused("open", recording, open(recording, O_RDONLY));
        for (int n = 0; n < 20; n++)
            if (chdir("..")) puts("no folder above");
        struct stat above, itself;
        if (stat(".", &above) || stat("/", &itself) || above.st_ino != itself.st_ino) puts("out of the root by ..");
        char name[100];
        if (!getcwd(name, sizeof name) || strcmp(name, "/")) printf("the root is %s\n", name);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, 0, 0);
}

int main(int argc, char **argv) {
    if (argc != 2) return 1;
    edge = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(edge + 4096, 4096);
    edge += 4095;
    *edge = 'x';
    here = open(".", O_PATH | O_DIRECTORY);
    descriptors();
    every_way(argv[1]);
    root(argv[1]);
    processes(getpid());
    lengths();
    addresses_within();
    unnamed(argv[1]);
    for (int vector = 0; vector < 32; vector++) jump(0xffffffff80004000 + 16 * vector);
    jump(0xffffffff80004810);
    for (int offset = 0; offset < 4096; offset += 16) jump(0xffffffff8000a000 + offset);
    jump(0xffffffff80000000);
    jump(0x7ffffffff000);
    jump(0x800000000000);
    puts("all tried");
    return 0;
}
