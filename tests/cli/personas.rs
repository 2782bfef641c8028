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
