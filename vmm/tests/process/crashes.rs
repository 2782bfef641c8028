//! How programs end by signals, and that their handlers see what Linux would show them.

use crate::harness::{Ran, Run, each_libc};
use crate::{each_engine, prints};
use vmm::engine::Exception;
use vmm::process::{Death, Step};

/// Runs `body` as a C program's main with each C library on each engine, until a signal ends it.
fn dies(name: &str, body: &str, check: impl Fn(&Death, &Ran)) {
    let source = format!(
        "#include <stdlib.h>\n#include <string.h>\n#include <signal.h>\n#include <unistd.h>\n#include <sys/mman.h>\n\
         #include <assert.h>\n#include <fcntl.h>\n\
         volatile long zero = 0; const char fixed[] = \"constant\";\n\
         int deeper(volatile char *above) {{ volatile char here[4096]; here[0] = above[0]; return deeper(here) + here[1]; }}\n\
         void faults(int n) {{ static int deep; if (++deep > 200) _exit(1); *(volatile int *)(zero + 0x18) = n; }}\n\
         int main(int argc, char **argv) {{ {body}\n return 0; }}"
    );
    each_libc(name, &source, &["-O0"], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            let Step::Killed(death) = ran.end else { panic!("{name}: {:?}", ran.end) };
            check(&death, ran);
        });
    });
}

const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;

#[test]
fn a_null_dereference() {
    dies("null", "*(volatile int *)(zero + 0x18) = 1;", |death, _| {
        assert_eq!((death.signal, death.code, death.address), (libc::SIGSEGV, SEGV_MAPERR, 0x18));
        assert!(matches!(death.exception, Some(Exception { vector: 14, error_code: 6, address: 0x18 })));
    });
}

#[test]
fn a_write_to_a_constant() {
    dies("constant", "*(volatile char *)fixed = 1;", |death, ran| {
        assert_eq!((death.signal, death.code), (libc::SIGSEGV, SEGV_ACCERR));
        let mut bytes = [0; 8];
        assert!(ran.process.read_memory(death.address, &mut bytes));
        assert_eq!(&bytes, b"constant");
    });
}

#[test]
fn a_division_by_zero() {
    dies("division", "return argc / zero;", |death, ran| {
        assert_eq!((death.signal, death.code), (libc::SIGFPE, 1));
        assert_eq!(death.address, ran.process.cpu().regs().rip);
    });
}

#[test]
fn a_jump_to_data_and_an_undefined_instruction() {
    dies("jump", "((void (*)(void))fixed)();", |death, ran| {
        assert_eq!((death.signal, death.code), (libc::SIGSEGV, SEGV_ACCERR));
        assert_eq!(death.address, ran.process.cpu().regs().rip);
    });
    dies("undefined", "__asm__ volatile(\"ud2\");", |death, ran| {
        assert_eq!((death.signal, death.address), (libc::SIGILL, ran.process.cpu().regs().rip));
    });
}

#[test]
fn an_abort_and_a_breakpoint() {
    dies("abort", "abort();", |death, _| {
        assert_eq!((death.signal, death.code, death.exception), (libc::SIGABRT, libc::SI_TKILL, None));
    });
    dies("assert", "assert(argc == 7);", |death, ran| {
        assert_eq!(death.signal, libc::SIGABRT);
        assert!(String::from_utf8_lossy(&ran.told).contains("argc == 7"));
    });
    dies("breakpoint", "__asm__ volatile(\"int3\");", |death, _| assert_eq!(death.signal, libc::SIGTRAP));
}

#[test]
fn an_endless_recursion_ends_at_the_stack_limit() {
    dies("recursion", "return deeper((char *)argv);", |death, _| {
        assert_eq!((death.signal, death.code), (libc::SIGSEGV, SEGV_MAPERR));
        let depth = 0x7fff_ffff_f000 - death.address;
        assert!((8 << 20..(8 << 20) + 65536).contains(&depth), "{depth:#x} bytes deep");
    });
}

#[test]
fn a_file_mapping_behind_the_end() {
    let body = "int file = open(\"/bin/sh\", O_RDONLY);\n\
        long end = lseek(file, 0, SEEK_END), after = (end + 4095) & ~4095L;\n\
        volatile char *map = mmap(0, after + 4096, PROT_READ, MAP_PRIVATE, file, 0);\n\
        if (map[0] != 0x7f || map[end] != 0) return 1; return map[after];";
    dies("behind", body, |death, _| {
        assert_eq!((death.signal, death.code, death.address & 0xfff), (libc::SIGBUS, 2, 0));
    });
}

#[test]
fn handlers_that_fault_end_where_the_alternate_stack_does() {
    // Below the stack there is room for more frames, which must not be used.
    let body = r#"
        static struct { char before[1 << 20], stack[65536]; } area __attribute__((aligned(4096)));
        stack_t alternate = {.ss_sp = area.stack, .ss_size = sizeof area.stack};
        sigaltstack(&alternate, 0);
        struct sigaction again = {.sa_handler = faults, .sa_flags = SA_ONSTACK | SA_NODEFER};
        sigaction(SIGSEGV, &again, 0);
        faults(0);"#;
    dies("altstack", body, |death, _| assert_eq!(death.signal, libc::SIGSEGV));
}

#[test]
fn handlers_see_the_fault_and_can_go_on() {
    let source = r#"
        #define _GNU_SOURCE
        #include <stdio.h>
        #include <signal.h>
        #include <setjmp.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        #include <ucontext.h>
        #include <unistd.h>
        static sigjmp_buf back;
        static char *page;
        static volatile int usr;
        static void jumps(int n, siginfo_t *info, void *context) {
            ucontext_t *u = context;
            printf("signal %d code %d at %p trap %d\n", n, info->si_code, info->si_addr,
                (int)u->uc_mcontext.gregs[REG_TRAPNO]);
            siglongjmp(back, 1);
        }
        static void mends(int n, siginfo_t *info, void *context) {
            mprotect(page, 4096, PROT_READ | PROT_WRITE);
        }
        static void skips(int n, siginfo_t *info, void *context) {
            ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
        }
        static void counts(int n) { usr++; }
        static void handle(int n, void (*f)(int, siginfo_t *, void *), int flags) {
            struct sigaction a = {0};
            a.sa_sigaction = f; a.sa_flags = SA_SIGINFO | flags;
            sigaction(n, &a, 0);
        }
        int main(void) {
            static char stack[65536];
            stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
            sigaltstack(&alternate, 0);
            handle(SIGSEGV, jumps, SA_ONSTACK);
            if (!sigsetjmp(back, 1)) *(volatile int *)16 = 1;
            page = mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            handle(SIGSEGV, mends, 0);
            double kept = 1.5; page[5] = 7; kept *= 2;
            printf("mended %d %.1f\n", page[5], kept);
            handle(SIGILL, skips, 0);
            __asm__ volatile("ud2");
            puts("skipped");
            signal(SIGUSR1, counts);
            sigset_t set, pending; sigemptyset(&set); sigaddset(&set, SIGUSR1);
            sigprocmask(SIG_BLOCK, &set, 0);
            raise(SIGUSR1);
            sigpending(&pending);
            printf("pending %d, handled %d\n", sigismember(&pending, SIGUSR1), usr);
            sigprocmask(SIG_UNBLOCK, &set, 0);
            printf("handled %d\n", usr);
            signal(SIGUSR1, SIG_IGN);
            raise(SIGUSR1);
            signal(SIGUSR1, SIG_DFL);
            fflush(stdout);
            kill(getpid(), SIGUSR1);
        }"#;
    each_libc("handlers", source, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            let Step::Killed(death) = ran.end else { panic!("{:?}: {}", ran.end, prints(ran)) };
            assert_eq!((death.signal, death.code), (libc::SIGUSR1, libc::SI_USER));
            let wanted =
                "signal 11 code 1 at 0x10 trap 14\nmended 7 3.0\nskipped\npending 1, handled 0\nhandled 1\n";
            assert_eq!(prints(ran), wanted);
        });
    });
}

#[test]
fn a_call_of_text_has_stored_where_it_came_from() {
    let body =
        "char text[8]; memcpy(text, \"AAAAAAAA\", 8); ((void (*)(void))*(volatile long *)text)(); return 0;";
    dies("text", body, |death, ran| {
        assert!(matches!(death.exception, Some(Exception { vector: 13, error_code: 0, .. })), "{death:?}");
        let regs = ran.process.cpu().regs();
        let mut stored = [0; 8];
        assert!(ran.process.read_memory(regs.gpr[4] - 8, &mut stored));
        let behind = u64::from_le_bytes(stored).wrapping_sub(regs.rip);
        assert!((2..8).contains(&behind), "{behind:#x} behind the call");
    });
}

/// Follows pointers that are nowhere, and such as are not aligned, by instructions of all kinds; tells of each signal.
const REFUSED: &str = r#"
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    static sigjmp_buf back;
    static char bytes[64] __attribute__((aligned(64)));
    static void handler(int signal, siginfo_t *info, void *context) {
        printf("signal %d code %d\n", signal, info->si_code);
        siglongjmp(back, 1);
    }
    #define TRY(instruction, address) do { if (!sigsetjmp(back, 1)) { \
            asm volatile(instruction :: "r"(address) : "memory", "rax", "xmm0"); puts("done"); } } while (0)
    int main(void) {
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
        sigaction(SIGSEGV, &action, 0);
        sigaction(SIGILL, &action, 0);
        sigaction(SIGBUS, &action, 0);
        void *nowhere = (void *)0x4141414141414141, *askew = bytes + 4;
        TRY("mov (%0), %%rax", nowhere);
        TRY("movsd (%0), %%xmm0", nowhere);
        TRY("movups %%xmm0, (%0)", nowhere);
        TRY("pcmpeqb (%0), %%xmm0", nowhere);
        TRY("fldl (%0)", nowhere);
        TRY("fstpl (%0)", nowhere);
        TRY("cvtsi2sdl (%0), %%xmm0", nowhere);
        TRY("popcnt (%0), %%rax", nowhere);
        TRY("ldmxcsr (%0)", nowhere);
        TRY("addps (%0), %%xmm0", askew);
        TRY("movaps (%0), %%xmm0", askew);
        TRY("movups (%0), %%xmm0", askew);
        TRY("ud2", askew);
        return 0;
    }"#;

#[test]
fn a_refused_operand_is_the_signal_that_it_is_natively() {
    each_libc("refused", REFUSED, &[], |program| {
        let run = Run::new(program, &[]);
        let (natively, _) = run.natively();
        each_engine(&run, |ran| {
            assert_eq!(
                (String::from_utf8_lossy(&ran.stdout), ran.end),
                (String::from_utf8_lossy(&natively), Step::Exited(0))
            );
        });
    });
}
