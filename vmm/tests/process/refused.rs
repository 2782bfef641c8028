//! Instructions that processors and hosts refuse in different ways, or not at all: here in one way.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use vmm::process::Step;

const REFUSED: &str = r#"
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    static sigjmp_buf back;
    static char buffer[64] __attribute__((aligned(64)));
    static void handler(int signal, siginfo_t *info, void *context) {
        printf("%d", signal);
        siglongjmp(back, 1);
    }
    #define TRY(code) do { \
        printf(" " code " "); \
        if (!sigsetjmp(back, 1)) { \
            asm volatile(code :: "c"(0L), "S"(buffer), "D"(buffer), "d"(0x80), "a"(0) : "memory"); \
            printf("-"); \
        } } while (0)
    int main(void) {
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
        sigaction(SIGSEGV, &action, 0);
        sigaction(SIGILL, &action, 0);
        TRY("rep outsb"); TRY("rep insl"); TRY("outsb"); TRY("addr32 rep outsw");
        TRY("monitor"); TRY("mwait"); TRY("monitorx"); TRY("mwaitx");
        TRY("vmcall"); TRY("vmmcall"); TRY("vmrun"); TRY("stgi"); TRY("xsaves (%%rsi)"); TRY("xrstors (%%rsi)");
        return 0;
    }"#;

const EXPECTED: &str = " rep outsb 11 rep insl 11 outsb 11 addr32 rep outsw 11 monitor 4 mwait 4 monitorx 4 mwaitx 4 vmcall 4 \
    vmmcall 4 vmrun 4 stgi 4 xsaves (%%rsi) 4 xrstors (%%rsi) 4";

#[test]
fn what_hosts_refuse_in_different_ways_is_refused_in_one() {
    each_libc("refused", REFUSED, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((prints(ran), ran.end), (EXPECTED.replace("%%", "%"), Step::Exited(0)));
        });
    });
}
