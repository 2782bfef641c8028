// More tries to get out of gretel and at its recording, whose folder is the first argument. The second says which: `paths`, `frames`,
// `instructions`, `far` or `later`. Prints each try that did what it must not do.
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define KERNEL 0xffffffff80000000
#define GATE 0xffffffff8000a000

// The recording is not there, by any call that takes a path.
static void absent(const char *what, const char *path, long result) {
    if (result != -1 || errno != ENOENT) printf("%s %s: %ld (%s)\n", what, path, result, strerror(errno));
}

static void named(int at, const char *path, int exists) {
    char buffer[4096];
    char *none[] = {0};
    long times[4] = {1, 0, 1, 0};
#define R(call, ...) absent(#call, path, syscall(SYS_##call, __VA_ARGS__))
    R(statx, at, path, 0, 0x7ff, buffer);
    R(lstat, path, buffer);
    R(faccessat2, at, path, 0, AT_EACCESS);
    R(utime, path, 0);
    R(utimes, path, 0);
    R(futimesat, at, path, 0);
    R(utimensat, at, path, times, AT_SYMLINK_NOFOLLOW);
    R(lchown, path, 0, 0);
    R(fchownat, at, path, 0, 0, AT_SYMLINK_NOFOLLOW);
    R(getxattr, path, "user.x", buffer, 10);
    R(lgetxattr, path, "user.x", buffer, 10);
    R(setxattr, path, "user.x", "y", 1, 0);
    R(lsetxattr, path, "user.x", "y", 1, 0);
    R(listxattr, path, buffer, 100);
    R(llistxattr, path, buffer, 100);
    R(removexattr, path, "user.x");
    R(readlink, path, buffer, 100);
    R(readlinkat, at, path, buffer, 100);
    R(rmdir, path);
    R(renameat, at, path, at, "taken");
    R(execveat, at, path, none, none, 0);
    R(inotify_add_watch, 30, path, 0xfff);
    if (geteuid() == 0) R(chroot, path);
    // What would be made there.
    R(creat, path, 0600);
    R(mkdirat, at, path, 0700);
    R(mknodat, at, path, S_IFREG | 0600, 0);
    R(symlinkat, "own", at, path);
    if (exists) return;
    struct sockaddr_un name = {AF_UNIX, ""};
    if (strlen(path) >= sizeof name.sun_path) return;
    strcpy(name.sun_path, path);
    int s = socket(AF_UNIX, SOCK_DGRAM, 0);
    R(bind, s, &name, sizeof name);
    R(connect, s, &name, sizeof name);
    R(sendto, s, "x", 1, 0, &name, sizeof name);
    close(s);
}

// A program that is written here, whose reader of its own is in the recording.
static void interpreted(const char *by) {
    char *none[] = {0};
    int script = open("script", O_CREAT | O_TRUNC | O_WRONLY, 0700);
    dprintf(script, "#!%s\n", by);
    close(script);
    absent("script of", by, execve("./script", none, none));
    struct { Elf64_Ehdr header; Elf64_Phdr programs[2]; char path[4200]; } file = {
        .header = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, EV_CURRENT}, .e_type = ET_EXEC, .e_machine = EM_X86_64,
                   .e_version = EV_CURRENT, .e_entry = 0x400000, .e_phoff = sizeof(Elf64_Ehdr), .e_ehsize = sizeof(Elf64_Ehdr),
                   .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = 2},
        .programs = {{.p_type = PT_INTERP, .p_flags = PF_R, .p_offset = offsetof(typeof(file), path), .p_filesz = strlen(by) + 1},
                     {.p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_vaddr = 0x400000, .p_filesz = sizeof file, .p_memsz = sizeof file}}};
    strcpy(file.path, by);
    int to = open("loaded", O_CREAT | O_TRUNC | O_WRONLY, 0700);
    if (write(to, &file, sizeof file) != sizeof file) puts("the program is not written");
    close(to);
    absent("program of", by, execve("./loaded", none, none));
}

static void paths(const char *folder) {
    const char *names[] = {"", "/journal", "/program", "/crumbs-0", "/new"};
    const char *ways[] = {"%s%s", "%s/.//../rec%s", "/proc/thread-self/cwd/rec%s%s", "/proc/self/fd/20/rec%s%s", "rec%s%s"};
    char path[8192];
    close(open("own", O_CREAT | O_RDWR, 0600));
    dup2(open(".", O_PATH | O_DIRECTORY), 20);
    dup2(syscall(SYS_inotify_init1, 0), 30);
    for (unsigned n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned w = 0; w < sizeof ways / sizeof *ways; w++) {
            snprintf(path, sizeof path, ways[w], w < 2 ? folder : "", names[n]);
            named(w == 4 ? 20 : AT_FDCWD, path, n < 4);
        }
    for (unsigned n = 1; n < sizeof names / sizeof *names; n++) {
        snprintf(path, 4000, "%s%s", folder, names[n]);
        interpreted(path);
    }
}

#define CAUGHT 9
static void caught(int signal) { (void)signal, _exit(CAUGHT); }

// Runs one try in a child, which must come to a signal of a fault; when it goes on to the end its status is 7. Faults are handled, where
// they can be: a core for each would take long.
static void ended(const char *what, unsigned long which, void (*try)(unsigned long)) {
    static const int faults[] = {SIGSEGV, SIGILL, SIGBUS, SIGTRAP, SIGFPE};
    static char other[1 << 14];
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        sigaltstack(&(stack_t){.ss_sp = other, .ss_size = sizeof other}, 0);
        struct sigaction action = {.sa_handler = caught, .sa_flags = SA_ONSTACK};
        for (unsigned n = 0; n < sizeof faults / sizeof *faults; n++) sigaction(faults[n], &action, 0);
        try(which);
        _exit(7);
    }
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) && WEXITSTATUS(status) != CAUGHT) printf("%s %#lx: status %#x\n", what, which, status);
}

static unsigned long random_word(void) {
    static unsigned long state = 88172645463325252;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

static unsigned char *code;

// Behind what is tried: exit_group(7).
static void run(const unsigned char *bytes, int length) {
    static const unsigned char leave[] = {0xb8, 231, 0, 0, 0, 0xbf, 7, 0, 0, 0, 0x0f, 0x05};
    memcpy(code, bytes, length);
    memcpy(code + length, leave, sizeof leave);
    __asm__ volatile("push %%rbx; mov %0, %%rbx; xor %%ecx, %%ecx; mov %%rsp, %%rdx; sub $256, %%rsp; call *%%rbx"
                     : : "r"(code) : "rax", "rcx", "rdx", "rdi", "rsi", "r11", "memory");
}

// Frames of signals that somebody has written: what they lead to may not read CR3 (0) or clear the interrupt flag (1).
static volatile unsigned long frame;
static void altered(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    static const unsigned short selectors[] = {0x08, 0x10, 0x18, 0x20, 0x28, 0x30, 0x23, 0x38, 0x00, 0x04, 0xffff, 0x0b};
    static const unsigned char ring[] = {0x0f, 0x20, 0xd8}, flag[] = {0xfa, 0x90, 0x90};
    static const unsigned char leave[] = {0xb8, 231, 0, 0, 0, 0xbf, 7, 0, 0, 0, 0x0f, 0x05};
    ucontext_t *c = context;
    greg_t *r = c->uc_mcontext.gregs;
    int kind = frame % 8;
    memcpy(code, kind & 1 ? flag : ring, sizeof ring);
    memcpy(code + sizeof ring, leave, sizeof leave);
    r[REG_RIP] = (greg_t)code;
    unsigned long word = random_word();
    switch (kind >> 1) {
    case 0:
        r[REG_CSGSFS] = selectors[word % 12] | word << 16;
        break;
    case 1:
        r[REG_EFL] = word | 0x3000;
        break;
    case 2:
        r[REG_EFL] |= 0x3000;
        r[REG_CSGSFS] = (r[REG_CSGSFS] & ~0xffffUL) | selectors[word % 12];
        break;
    case 3: {
        unsigned long ways[] = {KERNEL, GATE, 0x7ffffffff000, (unsigned long)code + 1, word, 8, (unsigned long)code + 4096 - 512};
        if (word & 0x100) c->uc_mcontext.fpregs = (void *)ways[word % 7];
        else memset((char *)c->uc_mcontext.fpregs + word % 800, 0xff, 64);
        break;
    }
    }
}

static void return_by(unsigned long which) {
    for (unsigned long n = 0; n <= which; n++) random_word();
    struct sigaction action = {.sa_sigaction = altered, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &action, 0);
    frame = which;
    raise(SIGUSR1);
}

static void frames(void) {
    for (unsigned long n = 0; n < 240; n++) ended("frame", n, return_by);
}

struct try { unsigned char bytes[16]; int length; };

static const struct try privileged[] = {
    {{0xfa}, 1}, {{0xfb}, 1}, {{0xf4}, 1},                                     // cli, sti, hlt
    {{0x0f, 0x01, 0x14, 0x24}, 4}, {{0x0f, 0x01, 0x1c, 0x24}, 4},              // lgdt, lidt
    {{0x0f, 0x00, 0xd0}, 3}, {{0x0f, 0x00, 0xd8}, 3}, {{0x0f, 0x01, 0xf0}, 3}, // lldt, ltr, lmsw
    {{0x0f, 0x06}, 2}, {{0x0f, 0x08}, 2}, {{0x0f, 0x09}, 2},                   // clts, invd, wbinvd
    {{0x0f, 0x01, 0x3c, 0x24}, 4}, {{0x0f, 0x32}, 2}, {{0x0f, 0x30}, 2},       // invlpg, rdmsr, wrmsr
    {{0x0f, 0x20, 0xc0}, 3}, {{0x0f, 0x20, 0xd0}, 3}, {{0x0f, 0x20, 0xd8}, 3}, // from cr0, cr2, cr3
    {{0x0f, 0x20, 0xe0}, 3}, {{0x44, 0x0f, 0x20, 0xc0}, 4},                    // from cr4, cr8
    {{0x0f, 0x22, 0xc0}, 3}, {{0x0f, 0x22, 0xd8}, 3}, {{0x0f, 0x22, 0xe0}, 3}, // to cr0, cr3, cr4
    {{0x0f, 0x21, 0xf8}, 3}, {{0x0f, 0x23, 0xf8}, 3}, {{0x0f, 0x23, 0xc0}, 3}, // dr7, dr0
    {{0x0f, 0x35}, 2}, {{0x48, 0x0f, 0x35}, 3}, {{0x48, 0x0f, 0x07}, 3}, {{0x0f, 0x07}, 2}, // sysexit, sysret
    {{0x0f, 0x01, 0xf8}, 3}, {{0x0f, 0xaa}, 2}, {{0x0f, 0x01, 0xd1}, 3},       // swapgs, rsm, xsetbv
    {{0x0f, 0x01, 0xc1}, 3}, {{0x0f, 0x01, 0xd9}, 3}, {{0x0f, 0x01, 0xc2}, 3}, // vmcall, vmmcall, vmlaunch
    {{0x0f, 0x01, 0xd8}, 3}, {{0x0f, 0x01, 0xda}, 3}, {{0x0f, 0x01, 0xdd}, 3}, // vmrun, vmload, clgi
    {{0xe4, 0x80}, 2}, {{0xe6, 0x80}, 2}, {{0xe5, 0x80}, 2}, {{0xe7, 0x80}, 2}, // in, out
    {{0x6c}, 1}, {{0x6e}, 1}, {{0xf3, 0x6d}, 2}, {{0xf3, 0x6f}, 2},            // ins, outs
    {{0x0f, 0xc7, 0x34, 0x24}, 4}, {{0xf3, 0x0f, 0xc7, 0x34, 0x24}, 5},        // vmptrld, vmxon
    {{0x66, 0x0f, 0x38, 0x82, 0x04, 0x24}, 6},                                 // invpcid
    {{0x0f, 0x01, 0xca}, 3}, {{0x0f, 0x01, 0xcb}, 3},                          // clac, stac
};

static void execute(unsigned long which) { run(privileged[which].bytes, privileged[which].length); }

static void interrupt(unsigned long vector) {
    unsigned char bytes[] = {0xcd, (unsigned char)vector};
    run(bytes, 2);
}

static sigjmp_buf back;
static void jump_back(int signal) { siglongjmp(back, signal); }

// Each port, by each instruction: all are faults.
static void ports(void) {
    struct sigaction action = {.sa_handler = jump_back, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    for (unsigned port = 0; port < 0x10000; port += port < 0x600 ? 1 : 61)
        for (int kind = 0; kind < 3; kind++) {
            if (sigsetjmp(back, 0)) continue;
            unsigned value = 0x1234;
            if (kind == 0) __asm__ volatile("inb %w1, %b0" : "+a"(value) : "d"(port));
            if (kind == 1) __asm__ volatile("outb %b0, %w1" : : "a"(value), "d"(port));
            if (kind == 2) __asm__ volatile("outl %0, %w1" : : "a"(value), "d"(port));
            printf("port %#x by %d: no fault\n", port, kind);
        }
    signal(SIGSEGV, SIG_DFL);
}

static void instructions(void) {
    for (unsigned long n = 0; n < sizeof privileged / sizeof *privileged; n++) ended("instruction", n, execute);
    for (unsigned long vector = 0; vector < 256; vector++)
        // The call of 32-bit programs; and three that kvm_pvm has pass by.
        if (vector != 0x80 && vector != 0x17 && vector != 0x19 && vector != 0x1a) ended("interrupt", vector, interrupt);
    ports();
}

// Far jumps, calls and returns to each selector, and IRETQ with frames of its own. At what they lead to, CR3 is read.
static void leave_far(unsigned long which) {
    unsigned long selector = which >> 3, flags = which & 4 ? 0x3202 : 0x202;
    static const unsigned char reads[] = {0x0f, 0x20, 0xd8};
    memcpy(code + 1024, reads, sizeof reads);
    struct __attribute__((packed)) { unsigned long to; unsigned short selector; } far = {(unsigned long)code + 1024, selector};
    unsigned long words[5] = {(unsigned long)code + 1024, selector, flags, (unsigned long)code + 3000, (selector + 8) | (which & 2)};
    switch (which & 3) {
    case 0: __asm__ volatile("rex.w ljmp *%0" : : "m"(far)); break;
    case 1: __asm__ volatile("rex.w lcall *%0" : : "m"(far) : "memory"); break;
    case 2: __asm__ volatile("mov %0, %%rsp; iretq" : : "r"(words), "m"(words)); break;
    case 3: __asm__ volatile("mov %0, %%rsp; rex.w lret" : : "r"(words), "m"(words)); break;
    }
}

static void far(void) {
    for (unsigned long selector = 0; selector < 0x80; selector += selector % 8 == 3 ? 5 : selector % 8 == 0 ? 3 : 1)
        for (unsigned long kind = 0; kind < 8; kind++) {
            // The program's own, and that of 32-bit programs.
            if (selector == 0x33 || selector == 0x23) continue;
            ended("far", selector << 3 | kind, leave_far);
        }
}

// Where the kernel is to store or to go later.
static const unsigned long places[] = {KERNEL, KERNEL + 0x4000, GATE, 0x800000000000, ~0UL, ~7UL, 16};

static void handled(int signal) { (void)signal; }

static void on_stack(unsigned long which) {
    stack_t stack = {.ss_sp = (void *)places[which], .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = handled, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, 0);
    if (sigaltstack(&stack, 0)) abort();
    raise(SIGUSR1);
}

static void handler_at(unsigned long which) {
    struct { unsigned long handler, flags, restorer, mask; } action = {places[which], 0x04000000, places[which], 0};
    if (syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8)) abort();
    raise(SIGUSR1);
}

static void restored_at(unsigned long which) {
    struct { unsigned long handler, flags, restorer, mask; } action = {(unsigned long)handled, 0x04000000, places[which], 0};
    if (syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8)) abort();
    raise(SIGUSR1);
}

static void with_base(unsigned long which) {
    // Refused, or harmless: the next use is a fault.
    syscall(SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, places[which]);
    __asm__ volatile("movq $1, %%gs:0" : : : "memory");
}

// Ends that make the kernel store: none may, and each child just exits.
static void exits_with(unsigned long at) {
    struct { void *next; long offset; void *pending; } list = {(void *)at, -8, (void *)at}, *loop = (void *)&list;
    if (fork() == 0) {
        syscall(SYS_set_tid_address, at);
        _exit(0);
    }
    if (fork() == 0) {
        syscall(SYS_set_robust_list, &list, 24);
        _exit(0);
    }
    if (fork() == 0) {
        loop->next = &list.pending, list.pending = &list.pending;
        syscall(SYS_set_robust_list, &list, 24);
        _exit(0);
    }
    if (fork() == 0) {
        syscall(SYS_set_robust_list, at, 24);
        _exit(0);
    }
    if (fork() == 0) {
        syscall(SYS_rseq, at & ~31UL, 32, 0, 0x53053053);
        syscall(SYS_clone, SIGCHLD | 0x01200000 | 0x00100000, 0, at, at, 0);
        _exit(0);
    }
    int status;
    while (wait(&status) > 0)
        if (status) printf("an end with %#lx: status %#x\n", at, status);
}

static void later(void) {
    struct sigaction action = {.sa_handler = jump_back, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &action, 0);
    // Never written to by the program itself.
    for (unsigned n = 0; n < sizeof places / sizeof *places; n++)
        if (!sigsetjmp(back, 0)) {
            *(volatile char *)places[n] = 0;
            printf("stored at %#lx\n", places[n]);
        }
    signal(SIGSEGV, SIG_DFL);
    for (unsigned long n = 0; n < sizeof places / sizeof *places; n++) {
        ended("stack", n, on_stack);
        ended("handler", n, handler_at);
        ended("restorer", n, restored_at);
        ended("base", n, with_base);
        exits_with(places[n]);
    }
    // Nobody outside is signalled, nor is gretel. The children of children, for whom nobody waits, end meanwhile.
    fflush(stdout);
    usleep(200000);
    for (pid_t pid = 2; pid < 70000; pid += pid < 5000 ? 1 : 17)
        if (pid != getpid() && pid != getppid() && kill(pid, 0) == 0) printf("process %d is there\n", pid);
    fflush(stdout);
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    kill(-1, SIGTERM);
    if (fork() == 0) {
        setsid();
        kill(-1, SIGSTOP), kill(-getppid(), SIGKILL), kill(-1, SIGCONT);
        _exit(0);
    }
    int status;
    wait(&status);
}

int main(int argc, char **argv) {
    if (argc != 3) return 1;
    code = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!strcmp(argv[2], "paths")) paths(argv[1]);
    if (!strcmp(argv[2], "frames")) frames();
    if (!strcmp(argv[2], "instructions")) instructions();
    if (!strcmp(argv[2], "far")) far();
    if (!strcmp(argv[2], "later")) later();
    puts("all tried");
    return 0;
}
