//! Programs that go where none can be: the half of the address space that is the system's, and where there are no addresses.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use vmm::process::Step;

/// Jumps to the KVM engine's own pages and elsewhere, and comes there from a signal handler that has changed its frame.
const STRAYS: &str = r#"
    #define _GNU_SOURCE
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <string.h>
    #include <ucontext.h>
    static sigjmp_buf back;
    static unsigned long target;
    static char stack[1 << 16];
    static void stray(int signal, siginfo_t *info, void *context) {
        greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
        printf("%lx: signal %d code %d at %p, rip %llx error %llx trap %lld\n", target, signal, info->si_code,
            info->si_addr, regs[REG_RIP], regs[REG_ERR], regs[REG_TRAPNO]);
        siglongjmp(back, 1);
    }
    static void divert(int signal, siginfo_t *info, void *context) {
        ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] = target;
    }
    int main(void) {
        sigaltstack(&(stack_t){ .ss_sp = stack, .ss_size = sizeof stack }, 0);
        struct sigaction action = { .sa_sigaction = stray, .sa_flags = SA_SIGINFO | SA_ONSTACK };
        sigaction(SIGSEGV, &action, 0);
        sigaction(SIGBUS, &action, 0);
        action.sa_sigaction = divert;
        sigaction(SIGUSR1, &action, 0);
        unsigned long targets[] = { 0xffffffff80004000, 0xffffffff80004060, 0xffffffff80004800, 0xffffffff8000a800,
            0xffffffff8000a820, 0xffffffff8000a001, 0xffff800000000000, 0xffffffffffffe000, 0x7ffffffff000 };
        for (int i = 0; i < 9; i++) {
            target = targets[i];
            if (!sigsetjmp(back, 1)) asm volatile("xor %%ecx, %%ecx; jmp *%0" :: "r"(target) : "rcx");
            if (!sigsetjmp(back, 1)) raise(SIGUSR1);
        }
        target = 0x8000000000401000;
        if (!sigsetjmp(back, 1)) raise(SIGUSR1);
        return 0;
    }"#;

#[test]
fn whoever_strays_into_the_upper_half_gets_the_signal_that_linux_sends() {
    each_libc("strays", STRAYS, &[], |program| {
        let run = Run::new(program, &[]);
        let (native, _) = run.natively();
        each_engine(&run, |ran| {
            assert_eq!(prints(ran), String::from_utf8_lossy(&native));
            assert_eq!(ran.end, Step::Exited(0));
        });
    });
}
