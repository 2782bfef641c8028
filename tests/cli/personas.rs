//! What a program may set about the system that it finds: personality, and PR_SET_TSC.

use crate::{Place, engines, finished};

const PERSONAS: &str = r#"
    #define _GNU_SOURCE
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/personality.h>
    #include <sys/prctl.h>
    #include <sys/select.h>
    #include <sys/utsname.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static sigjmp_buf back;
    static void handler(int signal, siginfo_t *info, void *context) {
        printf("signal %d code %d\n", signal, info->si_code);
        siglongjmp(back, 1);
    }
    static void read_counter(void) {
        unsigned low, high;
        if (!sigsetjmp(back, 1)) {
            asm volatile("rdtsc" : "=a"(low), "=d"(high));
            puts("read");
        }
    }
    static void show(void) {
        struct utsname name;
        char text[20] = "";
        FILE *file = fopen("/proc/self/personality", "r");
        uname(&name);
        if (file) {
            fgets(text, sizeof text, file);
            fclose(file);
        }
        printf("%x %s %d %s", personality(0xffffffff), name.machine, strncmp(name.release, "2.6.", 4) == 0, text);
        fflush(stdout);
    }
    int main(void) {
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
        int mode = 0;
        personality(UNAME26 | ADDR_NO_RANDOMIZE);
        show();
        printf("%x\n", personality(PER_LINUX32));
        fflush(stdout);
        if (fork() == 0) {
            show();
            _exit(0);
        }
        wait(0);
        struct timeval time = { 0, 1000 };
        personality(STICKY_TIMEOUTS);
        select(0, 0, 0, 0, &time);
        printf("%d\n", (int)time.tv_usec);
        personality(0);
        select(0, 0, 0, 0, &time);
        printf("%d\n", (int)time.tv_usec);

        sigaction(SIGSEGV, &action, 0);
        read_counter();
        printf("%d %d\n", prctl(PR_SET_TSC, 7), prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
        read_counter();
        fflush(stdout);
        if (fork() == 0) {
            prctl(PR_GET_TSC, &mode);
            printf("%d\n", mode);
            read_counter();
            fflush(stdout);
            _exit(0);
        }
        wait(0);
        prctl(PR_SET_TSC, PR_TSC_ENABLE);
        read_counter();
        return 0;
    }"#;

#[test]
fn a_task_has_a_persona_of_its_own() {
    let place = Place::new();
    let Some(program) = place.compile("personas", PERSONAS) else { return };
    let natively = finished(&place.command(&program, &[]).output().unwrap());
    for engine in engines() {
        let recorded =
            place.gretel(&["record", "--force", "--engine", engine, "-o", "rec", "--", "./personas"]);
        assert_eq!(recorded.code, 0, "{engine}: {}", recorded.err);
        assert_eq!(recorded.out(), natively.out(), "{engine}: {}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay("rec", replayer)["equal"], true, "{engine}, {replayer}");
        }
    }
}

/// Code in the heap, in mapped memory and on the stack.
const RUNS_DATA: &str = r#"
    #define _GNU_SOURCE
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/personality.h>
    #include <unistd.h>
    static sigjmp_buf back;
    static void handler(int signal) { siglongjmp(back, signal); }
    static void run(const char *what, char *at) {
        memcpy(at, "\xb8\x07\0\0\0\xc3", 6); // mov eax, 7; ret
        int signal = sigsetjmp(back, 1);
        if (signal) printf("%s: signal %d\n", what, signal);
        else printf("%s: %d\n", what, ((int (*)(void))at)());
    }
    static void everywhere(void) {
        char *heap = sbrk(0);
        brk(heap + 65536);
        run("heap", heap + 32768);
        run("map", mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        char *page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        run("mprotect", page);
    }
    int main(int count, char **arguments) {
        int called = 0;
        void nested(int more) { called += more; }
        void (*volatile through)(int) = nested; // a trampoline, for which the linker asks for a stack that is executed
        signal(SIGSEGV, handler);
        setvbuf(stdout, 0, _IONBF, 0);
        through(5);
        printf("%d; %x\n", called, personality(0xffffffff));
        everywhere();
        if (count > 1) return 0;
        personality(READ_IMPLIES_EXEC);
        everywhere();
        execl(arguments[0], arguments[0], "again", (char *)0);
        return 1;
    }"#;

#[test]
fn what_may_be_read_is_executed_where_that_is_asked_for() {
    let place = Place::new();
    let Some(program) = place.compile("data", RUNS_DATA) else { return };
    let natively = finished(&place.command(&program, &[]).output().unwrap());
    assert!(natively.out().contains("map: signal 11") && natively.out().contains("map: 7"));
    for engine in engines() {
        let recorded = place.gretel(&["record", "--force", "--engine", engine, "-o", "rec", "--", "./data"]);
        assert_eq!(recorded.code, 0, "{engine}: {}", recorded.err);
        assert_eq!(recorded.out(), natively.out(), "{engine}: {}", recorded.err);
        for replayer in engines() {
            assert_eq!(place.replay("rec", replayer)["equal"], true, "{engine}, {replayer}");
        }
    }
}
