//! Programs whose every block is compiled before it runs the second time make the same recordings as interpreted ones, and replay
//! from them.

use crate::harness::{Run, each_libc, tuned};
use vmm::process::Step;
use x86_jit::Tuning;

/// Recursion, indirect calls, a table, strings, floats, and a handler that takes a fault in the middle of a loop.
const SOURCE: &str = r#"
    #define _GNU_SOURCE
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    static char *page;
    static int faults;
    static void handler(int n) { faults++; mprotect(page, 4096, PROT_READ | PROT_WRITE); }
    static int up(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
    static int down(const void *a, const void *b) { return *(const int *)b - *(const int *)a; }
    static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    int main(void) {
        signal(SIGSEGV, handler);
        page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        static int table[2000];
        unsigned seed = 1, sum = 0;
        double x = 0;
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < 2000; i++) { seed = seed * 1103515245 + 12345; table[i] = seed >> 8; x += table[i] / 3.0; }
            qsort(table, 2000, sizeof *table, round & 1 ? up : down);
            for (int i = 0; i < 2000; i++) sum = sum * 31 + table[i];
            mprotect(page, 4096, PROT_READ);
            for (int i = 4000; i < 4200; i += 2) memcpy(page + i % 4096 + (i & 8), &sum, 4);
            sum += fib(15) + strlen(memset(page, 'a', 4095));
        }
        printf("%x %d %.6f\n", sum, faults, x);
        return 7;
    }"#;

#[test]
fn compiled_programs_make_the_recordings_that_interpreted_ones_make() {
    each_libc("compiled", SOURCE, &["-O2"], |program| {
        let run = Run::new(program, &[]);
        let (stdout, status) = run.natively();
        let tunings = [Some(Tuning::eager(1)), Some(Tuning { waits: false, ..Tuning::eager(20) }), None];
        let recordings = tunings.map(|tuning| run.on_machine(tuned(tuning)));
        for ran in &recordings {
            assert_eq!((&ran.end, status), (&Step::Exited(7), Some(7)));
            assert_eq!(ran.stdout, stdout);
            // Not their memory, where the time of day is: replays compare that.
            assert_eq!(ran.process.cpu().counters(), recordings[0].process.cpu().counters());
            for tuning in tunings {
                ran.replay_on_machine(tuned(tuning));
            }
        }
    });
}
