//! Whose memory is not taken, and what is left when that is everybody's; more of this is in the command's tests.

use crate::harness::{Run, each_libc, engines};
use crate::{each_engine, prints};
use vmm::process::{ProcessError, Step};

/// A child has little memory and may be killed or not, as the argument says; its parent may not, and takes more and more.
const TAKES: &str = r#"
    #include <fcntl.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void take(size_t size) {
        char *at = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t n = 0; at != MAP_FAILED && n < size; n += 4096) at[n] = 1;
    }
    static void adjust(const char *value) {
        int file = open("/proc/self/oom_score_adj", O_WRONLY);
        if (write(file, value, strlen(value)) < 0) _exit(4);
        close(file);
    }
    static char *slurp(const char *path) {
        static char text[100];
        int file = open(path, O_RDONLY);
        text[read(file, text, sizeof text - 1)] = 0;
        close(file);
        return text;
    }
    int main(int argc, char **argv) {
        int status;
        printf("score %s", slurp("/proc/self/oom_score"));
        fflush(stdout);
        adjust("-1000");
        pid_t child = fork();
        if (child == 0) {
            // It has inherited that.
            if (!strcmp(argv[1], "may")) adjust("0");
            take(8 << 20);
            for (;;) pause();
        }
        for (int n = 0; n < 70; n++) {
            take(1 << 20);
            if (waitpid(child, &status, WNOHANG) == child) {
                printf("%d score %s", WTERMSIG(status), slurp("/proc/self/oom_score"));
                return 7;
            }
        }
        return 6;
    }"#;

fn in_64_mib(program: &std::path::Path, argument: &str) -> Run {
    Run { memory: 64 << 20, privileged: true, ..Run::new(program, &[argument]) }
}

#[test]
fn who_is_never_to_be_killed_is_not() {
    each_libc("takes", TAKES, &[], |program| {
        each_engine(&in_64_mib(program, "may"), |ran| {
            assert_eq!(ran.end, Step::Exited(7));
            let printed = prints(ran);
            assert!(printed.ends_with("\n9 score 0\n"), "{printed}");
            assert!(printed.starts_with("score 6"), "two thirds of a thousand and a little: {printed}");
            let killed: Vec<i32> = ran.process.killed_for_memory().iter().map(|it| it.adjustment).collect();
            assert_eq!(killed, [0]);
        });
    });
}

#[test]
fn where_nobody_may_be_killed_the_program_cannot_go_on() {
    each_libc("takes", TAKES, &[], |program| {
        for kind in engines() {
            let mut process = in_64_mib(program, "never").start(kind);
            let error = loop {
                match process.step() {
                    Ok(Step::Running) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, ProcessError::Memory(_)), "{error}");
            assert!(error.to_string().contains("--memory"), "{error}");
        }
    });
}
