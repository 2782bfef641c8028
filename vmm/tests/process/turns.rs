//! What only two processors that take turns can get wrong: code that the other one wrote, and instructions that they differ in.

use crate::harness::{Engine, Run, each_libc, engines};
use crate::{each_engine, prints};
use vmm::process::Step;

/// Writes code again and again and calls it, with exits between: in memory that it may write and execute at once, and through a
/// second mapping.
const CODE: &str = r#"
    #define _GNU_SOURCE
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    static int tried(char *write, char *run) {
        for (unsigned n = 0; n < 300; n++) {
            /* mov eax, n; ret */
            memcpy(write, "\xb8____\xc3", 6);
            memcpy(write + 1, &n, 4);
            for (unsigned exits = 0; exits < n % 5; exits++) syscall(SYS_getppid);
            if (((unsigned (*)(void))run)() != n) return n;
            /* Here the code has run that is written over next, perhaps by the other one. */
            for (unsigned exits = 0; exits < n % 4; exits++) syscall(SYS_getppid);
        }
        return -1;
    }
    int main(void) {
        char *both = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int file = memfd_create("code", 0);
        if (ftruncate(file, 4096)) return 1;
        char *write = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        char *run = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
        if (both == MAP_FAILED || write == MAP_FAILED || run == MAP_FAILED) return 2;
        printf("%d %d\n", tried(both, both), tried(write, run));
        return 0;
    }"#;

#[test]
fn code_that_the_other_processor_wrote_is_what_runs() {
    each_libc("code", CODE, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((ran.end, prints(ran).as_str()), (Step::Exited(0), "-1 -1\n"));
        });
    });
}

/// Prints the bits of a thousand sines, and the sum of a thousand reciprocals.
const DIFFERING: &str = r#"
    #include <stdio.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #include <xmmintrin.h>
    int main(void) {
        float sum = 0;
        for (int n = 1; n <= 1000; n++) {
            long double x = n * 0.37L, y;
            __asm__ volatile("fsin" : "=t"(y) : "0"(x));
            sum += _mm_cvtss_f32(_mm_rcp_ss(_mm_set_ss(n)));
            unsigned char *bytes = (void *)&y;
            for (int k = 0; k < 10; k++) printf("%02x", bytes[k]);
            if (n % 3 == 0) syscall(SYS_getppid);
        }
        printf("\n%a\n", sum);
        return 0;
    }"#;

/// The software CPU's last place of a sine is another one than the processor's, so such a program shows which of them ran.
#[test]
fn what_processors_differ_in_is_executed_by_kvm() {
    if engines().len() < 2 {
        return;
    }
    each_libc("differing", DIFFERING, &[], |program| {
        let run = Run::new(program, &[]);
        let (natively, _) = run.natively();
        for recorder in [Engine::Kvm, Engine::Turns] {
            let ran = run.on(recorder);
            assert_eq!(ran.end, Step::Exited(0));
            assert!(ran.stdout == natively, "{}: as the processor has it", recorder.name());
            [Engine::Kvm, Engine::Turns].into_iter().for_each(|replayer| ran.replay_on(replayer));
        }
    });
}
