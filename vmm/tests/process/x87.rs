//! What is stored of the last x87 instruction: nothing, on every engine and processor.

use crate::harness::{Run, each_libc};
use crate::{each_engine, prints};
use vmm::process::Step;

/// Loads and adds, so that a processor has an instruction, an operand and an opcode to tell of; stores them over memory
/// full of 0xcc in each way that there is.
const FIELDS: &str = r#"
    #include <stdio.h>
    #include <string.h>
    static unsigned char image[512] __attribute__((aligned(64)));
    static volatile double operand = 2.5;
    #define SHOW(name, instruction, fields, n) do { \
        unsigned short control = 0; \
        memset(image, 0xcc, 512); \
        asm volatile("fninit; fldl %2; faddl %2; fstpl %2; fldl %2; fldcw %3\n\t" instruction "\n\tfnstcw %0" \
            : "=m"(control), "=m"(image) : "m"(operand), "m"((unsigned short){0x360})); \
        printf("%s", name); \
        for (int i = 0; i < n; i++) printf(" %02x", image[(fields) + i]); \
        printf(", control %x, st0 %02x%02x, behind %02x\n", control, image[0], image[1], image[n > 16 ? 416 : 108]); \
    } while (0)
    int main(void) {
        SHOW("fnstenv", "fnstenv %1", 12, 14);
        SHOW("fstenv", "fstenv %1", 12, 14);
        SHOW("fnstenv16", "data16 fnstenv %1", 6, 8);
        SHOW("fnsave", "fnsave %1", 12, 14);
        SHOW("fnsave16", "data16 fnsave %1", 6, 8);
        SHOW("fxsave", "fxsave %1", 6, 18);
        SHOW("fxsave64", "fxsave64 %1", 6, 18);
        return 0;
    }"#;

const EXPECTED: &str = "\
fnstenv 00 00 00 00 00 00 00 00 00 00 00 00 00 00, control 37f, st0 6003, behind cc
fstenv 00 00 00 00 00 00 00 00 00 00 00 00 00 00, control 37f, st0 6003, behind cc
fnstenv16 00 00 00 00 00 00 00 00, control 37f, st0 6003, behind cc
fnsave 00 00 00 00 00 00 00 00 00 00 00 00 00 00, control 37f, st0 6003, behind cc
fnsave16 00 00 00 00 00 00 00 00, control 37f, st0 6003, behind cc
fxsave 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00, control 360, st0 6003, behind cc
fxsave64 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00, control 360, st0 6003, behind cc
";

#[test]
fn the_last_x87_instruction_is_stored_as_zero() {
    each_libc("fields", FIELDS, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            assert_eq!((prints(ran).as_str(), ran.end), (EXPECTED, Step::Exited(0)));
        });
    });
}

/// Stores to operands that cannot be written, whole or in part. Processors differ in which byte of a page they name.
const FAULTS: &str = r#"
    #include <setjmp.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    static sigjmp_buf back;
    static char *base;
    static void handler(int signal, siginfo_t *info, void *context) {
        printf("signal %d code %d in page %ld\n", signal, info->si_code,
            info->si_code == 128 ? 0 : (long)((char *)info->si_addr - base) / 4096);
        siglongjmp(back, 1);
    }
    #define TRY(instruction, address) do { \
        if (!sigsetjmp(back, 1)) { \
            asm volatile(instruction :: "r"(address) : "memory"); puts("stored"); \
        } } while (0)
    int main(void) {
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
        sigaction(SIGSEGV, &action, 0);
        sigaction(SIGBUS, &action, 0);
        base = mmap(0, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(base + 4096, 4096);
        mprotect(base + 3 * 4096, 4096, PROT_READ);
        char *wild = (char *)0x8000000000000000;
        TRY("fxsave64 (%0)", base + 8);
        TRY("fxsave64 (%0)", base + 4096 - 512);
        TRY("fxsave64 (%0)", base + 4096);
        TRY("fnstenv (%0)", base + 4096 - 28);
        TRY("fnstenv (%0)", base + 4096 - 27);
        TRY("fnstenv (%0)", base + 3 * 4096 - 14);
        TRY("fnsave (%0)", base + 3 * 4096 - 1);
        TRY("data16 fnsave (%0)", base + 3 * 4096 - 94);
        TRY("fnstenv (%0)", wild);
        TRY("fxsave (%0)", wild);
        TRY("mov %%rbp, %%rcx; mov %0, %%rbp; jmp 1f; 1: fnstenv (%%rbp); mov %%rcx, %%rbp", base + 2 * 4096);
        printf("%d %d\n", base[4096 - 27], base[3 * 4096 - 1]);
        return 0;
    }"#;

#[test]
fn an_operand_that_cannot_be_written_is_the_fault_that_it_is_natively() {
    each_libc("faults", FAULTS, &[], |program| {
        let run = Run::new(program, &[]);
        let (native, _) = run.natively();
        each_engine(&run, |ran| {
            assert_eq!(
                (prints(ran), ran.end),
                (String::from_utf8_lossy(&native).into_owned(), Step::Exited(0))
            );
        });
    });
}

/// Writes FXSAVE over and over into a page that it may write and execute at once, until that page is left with the program's own
/// bytes, and then stores the state with it.
const LEFT_ALONE: &str = r#"
    #include <stdio.h>
    #include <string.h>
    #include <sys/mman.h>
    static unsigned char image[512] __attribute__((aligned(64)));
    int main(void) {
        char *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED) return 1;
        for (int n = 0; n < 10; n++) {
            /* fxsave64 [rdi]; ret */
            memcpy(page + 64 * n, "\x48\x0f\xae\x07\xc3", 5);
            memset(image, 0, sizeof image);
            ((void (*)(void *))(page + 64 * n))(image);
        }
        printf("%02x%02x%02x%02x\n", image[31], image[30], image[29], image[28]);
        return 0;
    }"#;

#[test]
fn the_mask_of_mxcsr_is_that_of_the_processor_where_it_was_recorded() {
    each_libc("left-alone", LEFT_ALONE, &[], |program| {
        let run = Run::new(program, &[]);
        let (natively, _) = run.natively();
        each_engine(&run, |ran| {
            assert_eq!((ran.stdout.as_slice(), ran.end), (natively.as_slice(), Step::Exited(0)));
        });
    });
}
