//! Code that a program makes while it runs, in memory that it may write and execute at once.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use vmm::cpu_model::Model;
use vmm::process::Step;

const MADE: &str = r#"
    #define _GNU_SOURCE
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    #define PAGE 4096
    static char *code;

    /* push rbx; mov eax, leaf; xor ecx, ecx; cpuid; add eax, more; pop rbx; ret */
    static void make(char *at, int leaf, int more) {
        char bytes[] = "\x53\xb8____\x31\xc9\x0f\xa2\x05____\x5b\xc3";
        memcpy(bytes + 2, &leaf, 4);
        memcpy(bytes + 11, &more, 4);
        memcpy(at, bytes, sizeof bytes - 1);
    }
    static unsigned call(char *at) { return ((unsigned (*)(void))at)(); }

    int main(void) {
        code = mmap(0, 4 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (code == MAP_FAILED) return 1;
        for (int n = 0; n < 3; n++) {
            make(code + 1000 * n, 1, n);
            printf("%x ", call(code + 1000 * n) - n);
            /* What it reads is its own, once it writes. */
            code[900] = n;
            printf("%d ", !memcmp(code + 1000 * n + 8, "\x0f\xa2", 2));
        }
        /* Over the end of a page, and in memory that a read has filled. */
        make(code + 2 * PAGE - 5, 1, 0);
        printf("%x ", call(code + 2 * PAGE - 5));
        int ends[2];
        char bytes[32] = {0};
        make(bytes, 1, 0);
        if (pipe(ends) || write(ends[1], bytes, 32) != 32 || read(ends[0], code + 3 * PAGE, 32) != 32) return 2;
        printf("%x\n", call(code + 3 * PAGE));

        /* A child writes to its copy alone. */
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            make(code + 3 * PAGE, 1, 5);
            printf("%x ", call(code + 3 * PAGE) - 5);
            fflush(stdout);
            _exit(0);
        }
        waitpid(pid, 0, 0);
        printf("%x ", call(code + 3 * PAGE));
        /* Moved, thrown away, and made anew; made executable alone. */
        char *moved = mremap(code + 3 * PAGE, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
        printf("%x ", call(moved));
        madvise(moved, PAGE, MADV_DONTNEED);
        make(moved + 8, 1, 0);
        printf("%x ", call(moved + 8));
        madvise(moved, PAGE, MADV_DONTNEED);
        make(moved, 1, 0);
        mprotect(moved, PAGE, PROT_READ | PROT_EXEC);
        printf("%x\n", call(moved));

        /* mov byte [rip + 1], 7; nop; mov eax, 0 (the byte); ret: it writes to the page that it runs in. */
        memcpy(code, "\xc6\x05\x02\x00\x00\x00\x07\x90\xb8\x00\x00\x00\x00\xc3", 14);
        printf("%u ", call(code));
        for (unsigned n = 0; n < 20; n++) {
            memcpy(code + 64, "\xb8____\xc3", 6);
            memcpy(code + 65, &n, 4);
            if (call(code + 64) != n) return 3;
        }
        printf("done\n");
        return 0;
    }"#;

#[test]
fn code_that_is_made_asks_the_model() {
    each_libc("made", MADE, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            let told = Model::V2.cpuid(1, 0).eax;
            let made = format!("{told:x} 1 {told:x} 1 {told:x} 1 {told:x} {told:x}\n");
            let copied = format!("{told:x} {told:x} {told:x} {told:x} {told:x}\n");
            assert_eq!((prints(ran), ran.end), (format!("{made}{copied}7 done\n"), Step::Exited(0)));
        });
    });
}
