//! AVX and AVX2 programs: what they compute, what a signal's handler leaves of it, and the extended state as a program
//! reads and writes it; on each CPU model that the host can show.

use crate::harness::Engine;
use crate::harness::{self, Run, each_libc, engines, skipped};
use crate::{each_engine, prints};
use vmm::cpu_model::Model;
use vmm::process::Step;

/// Whether this host runs AVX2 programs.
fn has_avx2() -> bool {
    let has = std::is_x86_feature_detected!("avx2");
    if !has {
        skipped("AVX2 programs", &"this processor lacks AVX2");
    }
    has
}

/// Runs a program on each engine as model `cpu`, compares it with what the host makes of it, and replays it.
fn as_natively(program: &std::path::Path, cpu: Model) {
    let run = Run { cpu, ..Run::new(program, &[]) };
    let (output, status) = run.natively();
    each_engine(&run, |ran| {
        assert_eq!(prints(ran), String::from_utf8_lossy(&output), "{}", cpu.name());
        assert_eq!(ran.end, Step::Exited(status.expect("it exits")), "{}", cpu.name());
    });
}

const SUMS: &str = r#"
    #include <stdio.h>
    #include <string.h>
    #include <immintrin.h>
    static float a[999], b[999];
    static unsigned char text[5000];
    int main(void) {
        for (int i = 0; i < 999; i++) { a[i] = i * 0.5f; b[i] = 1.0f / (i + 1); }
        float sum = 0;
        for (int i = 0; i < 999; i++) sum += a[i] * b[i];
        for (int i = 0; i < 4999; i++) text[i] = i * 7 % 251 + 1;
        __m256i v = _mm256_setzero_si256();
        for (int i = 0; i + 32 <= 5000; i += 32)
            v = _mm256_add_epi64(v, _mm256_sad_epu8(_mm256_loadu_si256((void *)(text + i)), _mm256_setzero_si256()));
        long long parts[4];
        _mm256_storeu_si256((void *)parts, v);
        __m256i index = _mm256_setr_epi32(1, 30, 2, 40, 3, 50, 4, 60);
        __m256i gathered = _mm256_i32gather_epi32((int *)text, index, 4);
        int lanes[8];
        _mm256_storeu_si256((void *)lanes, _mm256_permutevar8x32_epi32(gathered, index));
        printf("%.6f %lld %zu %d %d %p\n", sum, parts[0] + parts[1] + parts[2] + parts[3],
            strlen((char *)text), lanes[0], lanes[7], memchr(text, 250, 4000) ? (void *)1 : (void *)0);
        return memcmp(text, text + 251, 2000) != 0;
    }"#;

#[test]
fn an_avx2_program_computes_what_it_does_natively_whatever_model_is_shown() {
    if has_avx2() {
        each_libc("sums", SUMS, &["-O3", "-mavx2"], |program| {
            for cpu in [Model::V2, Model::V3] {
                as_natively(program, cpu);
            }
        });
    }
}

/// The handler overwrites every vector register, in all its width.
const HANDLER: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <immintrin.h>
    static volatile int calls;
    static void handler(int signal, siginfo_t *info, void *context) {
        calls++;
        asm volatile("vpcmpeqd %%ymm0,%%ymm0,%%ymm0; vpcmpeqd %%ymm5,%%ymm5,%%ymm5; vpcmpeqd %%ymm15,%%ymm15,%%ymm15"
            ::: "xmm0", "xmm5", "xmm15");
    }
    int main(void) {
        struct sigaction action = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO };
        sigaction(SIGUSR1, &action, 0);
        long long before[4] = { 1, -2, 3, -4 }, after[4];
        asm volatile("vmovdqu %1, %%ymm5\n\tmov $39, %%eax\n\tsyscall\n\tmov %%eax, %%edi\n\tmov $10, %%esi\n\t"
            "mov $62, %%eax\n\tsyscall\n\tvmovdqu %%ymm5, %0"
            : "=m"(after) : "m"(before) : "rax", "rcx", "r11", "rdi", "rsi", "xmm5", "memory");
        printf("%d: %lld %lld %lld %lld\n", calls, after[0], after[1], after[2], after[3]);
    }"#;

#[test]
fn a_handler_does_not_disturb_the_wide_registers() {
    if has_avx2() {
        each_libc("handler", HANDLER, &["-mavx2"], |program| {
            for cpu in [Model::V2, Model::V3] {
                as_natively(program, cpu);
            }
        });
    }
}

/// XGETBV, and XSAVE and XRSTOR of SSE and AVX as a dynamic linker uses them; then AVX alone.
const STATE: &str = r#"
    #include <stdio.h>
    #include <string.h>
    #include <immintrin.h>
    static unsigned char image[4096] __attribute__((aligned(64)));
    int main(void) {
        unsigned low, high;
        asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        long long before[4] = { 1, 2, 3, 4 }, after[8];
        asm volatile("vmovdqu %1, %%ymm7\n\tmov $6, %%eax\n\txor %%edx, %%edx\n\txsave64 %2\n\t"
            "vpcmpeqd %%ymm7, %%ymm7, %%ymm7\n\txrstor64 %2\n\tvmovdqu %%ymm7, %0\n\t"
            "vpcmpeqd %%ymm7, %%ymm7, %%ymm7\n\tmov $4, %%eax\n\txrstor64 %2\n\tvmovdqu %%ymm7, 32+%0\n\t"
            : "=m"(after) : "m"(before), "m"(image) : "rax", "rdx", "xmm7", "memory");
        printf("%x ", (low & 6) == 6);
        for (int i = 0; i < 8; i++) printf("%lld ", after[i]);
        printf("header %02x, xmm7 %d, high %d\n", image[512] & 6, image[160 + 7 * 16], image[576 + 7 * 16]);
        return high;
    }"#;

#[test]
fn the_extended_state_is_saved_and_restored() {
    if has_avx2() {
        each_libc("state", STATE, &["-mavx2"], |program| as_natively(program, Model::V3));
    }
}

#[test]
fn a_model_without_xsave_refuses_its_instructions() {
    let source = "int main(void) { unsigned low, high; asm volatile(\"xgetbv\" : \"=a\"(low), \"=d\"(high) : \"c\"(0)); }";
    each_libc("xgetbv", source, &[], |program| {
        each_engine(&Run::new(program, &[]), |ran| {
            let Step::Killed(death) = ran.end else { panic!("{:?}", ran.end) };
            assert_eq!(death.signal, libc::SIGILL);
        });
    });
}

#[test]
fn the_image_of_bad_memory_or_of_another_processor_is_a_fault() {
    let source = |operand: &str| {
        format!(
            "static char image[4096] __attribute__((aligned(64)));
            int main(void) {{ image[512] = 0x80; asm volatile(\"mov $7, %%eax; xor %%edx, %%edx; {operand}\" ::
                \"r\"(image) : \"rax\", \"rdx\", \"rbx\", \"memory\"); }}"
        )
    };
    for operand in ["xsave 8(%0)", "xor %%ebx, %%ebx; xsave (%%rbx)", "xrstor (%0)"] {
        each_libc("bad", &source(operand), &[], |program| {
            let run = Run { cpu: Model::V3, ..Run::new(program, &[]) };
            for kind in engines().into_iter().filter(|kind| *kind == Engine::Soft || has_avx2()) {
                let ran: harness::Ran = run.on(kind);
                let Step::Killed(death) = ran.end else { panic!("{operand}: {:?}", ran.end) };
                assert_eq!(death.signal, libc::SIGSEGV, "{operand} on {}", kind.name());
            }
        });
    }
}
