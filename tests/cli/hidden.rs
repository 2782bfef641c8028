//! `gretel why` where the writer is hard to see: under another address, from another process, by a call that copies, in code that is gone.
//! Each program crashes at an address that its input tells, or a constant that one store alone has.

use crate::{Place, engines};
use serde_json::Value;

/// A program, what it reads, what one of the steps has to say, and which bytes of the input are found.
struct Case {
    name: &'static str,
    source: &'static str,
    input: &'static str,
    says: &'static str,
    read: Option<(u64, u64)>,
}

const CASES: [Case; 12] = [
    Case {
        name: "twice",
        source: r#"
            #include <sys/mman.h>
            #include <unistd.h>
            int main(void) {
                int fd = memfd_create("x", 0);
                ftruncate(fd, 4096);
                volatile unsigned *a = mmap(0, 4096, 3, MAP_SHARED, fd, 0), *b = mmap(0, 4096, 3, MAP_SHARED, fd, 0);
                *b = 0x11;
                unsigned in = 0;
                read(0, &in, 2);
                *a = in;
                return *(int *)(long)*b;
            }"#,
        input: "ab",
        says: "read(0",
        read: Some((0, 1)),
    },
    Case {
        name: "vforked",
        source: r#"
            #include <unistd.h>
            long v = 0x11;
            int main(void) {
                if (!vfork()) { v = 0x770; _exit(0); }
                return *(int *)v;
            }"#,
        input: "",
        says: ", 0x770  in main",
        read: None,
    },
    Case {
        name: "cloned",
        source: r#"
            #include <sched.h>
            #include <signal.h>
            #include <sys/wait.h>
            #include <unistd.h>
            volatile long v = 0x11;
            char stack[65536];
            static int child(void *argument) { long in = 0; read(0, &in, 2); v = in; return 0; }
            int main(void) {
                clone(child, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
                wait(0);
                return *(int *)v;
            }"#,
        input: "ab",
        says: "read(0",
        read: Some((0, 1)),
    },
    Case {
        name: "peer",
        source: r#"
            #include <sys/uio.h>
            #include <sys/wait.h>
            #include <unistd.h>
            volatile long v = 0x11;
            int main(void) {
                v = 0x22;
                int pid = getpid();
                if (!fork()) {
                    long in[2] = {0};
                    read(0, (char *)in + 8, 3);
                    struct iovec own = {in, 16}, theirs = {(long *)&v - 1, 16};
                    process_vm_writev(pid, &own, 1, &theirs, 1, 0);
                    _exit(0);
                }
                wait(0);
                return *(int *)v;
            }"#,
        input: "abc",
        says: "process_vm_writev(",
        read: Some((0, 2)),
    },
    Case {
        name: "mapped",
        source: r#"
            #include <fcntl.h>
            #include <sys/mman.h>
            #include <unistd.h>
            int main(void) {
                int fd = open("mapped.bin", O_RDWR | O_CREAT | O_TRUNC, 0600);
                ftruncate(fd, 4096);
                volatile long *a = mmap(0, 4096, 3, MAP_SHARED, fd, 0);
                a[1] = 0x11;
                char in[32] = {0};
                read(0, in + 8, 3);
                pwrite(fd, in, 16, 0);
                return *(int *)a[1];
            }"#,
        input: "abc",
        says: "pwrite64(",
        read: Some((0, 2)),
    },
    Case {
        name: "moved",
        source: r#"
            #include <sys/mman.h>
            #include <unistd.h>
            int main(void) {
                long *a = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                read(0, a, 3);
                long *b = mremap(a, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)0x10000000L);
                return *(int *)b[0];
            }"#,
        input: "abc",
        says: "mremap(",
        read: Some((0, 2)),
    },
    Case {
        name: "executed",
        source: r#"
            #include <string.h>
            #include <unistd.h>
            int main(int count, char **arguments) {
                if (count == 1) {
                    char in[64] = {0};
                    read(0, in, 40);
                    execve("/proc/self/exe", (char *[]){arguments[0], in, 0}, (char *[]){"A=b", 0});
                }
                unsigned long v = 0;
                memcpy(&v, arguments[1] + 2, 3);
                return *(int *)v;
            }"#,
        input: "abcdefgh",
        says: " was executed",
        read: Some((2, 4)),
    },
    Case {
        name: "signals",
        source: r#"
            #include <signal.h>
            #include <unistd.h>
            static void handle(int number, siginfo_t *info, void *context) {}
            int main(void) {
                struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
                sigaction(SIGUSR1, &action, 0);
                sigaction(SIGUSR2, &action, 0);
                sigset_t both, none;
                sigemptyset(&none);
                sigemptyset(&both);
                sigaddset(&both, SIGUSR1);
                sigaddset(&both, SIGUSR2);
                sigprocmask(SIG_BLOCK, &both, 0);
                raise(SIGUSR1);
                raise(SIGUSR2);
                long in = 0;
                read(0, &in, 3);
                asm volatile("mov %0, %%r12; mov $14, %%eax; mov $2, %%edi; mov %1, %%rsi; xor %%edx, %%edx; mov $8, %%r10d; syscall; "
                             "mov (%%r12), %%eax"
                             :: "r"(in), "r"(&none) : "rax", "rdi", "rsi", "rdx", "r10", "rcx", "r11", "r12", "memory");
            }"#,
        input: "abc",
        says: "rt_sigreturn",
        read: Some((0, 2)),
    },
    Case {
        name: "gone",
        source: r#"
            #include <string.h>
            #include <sys/mman.h>
            int main(void) {
                char *code = mmap(0, 4096, 7, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                memcpy(code, "\x49\xc7\xc4\x40\x04\0\0\xc3", 8);
                asm volatile("mov $5, %%r12; call *%0; mov %0, %%rdi; mov $4096, %%esi; mov $11, %%eax; syscall; mov (%%r12), %%eax"
                             :: "r"(code) : "rax", "rdi", "rsi", "rcx", "r11", "r12", "memory");
            }"#,
        input: "",
        says: "mov r12, 0x440",
        read: None,
    },
    Case {
        name: "private",
        source: r#"
            #include <sys/mman.h>
            #include <sys/wait.h>
            #include <unistd.h>
            int main(void) {
                volatile long *shared = mmap(0, 4096, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
                long in = 0;
                read(0, &in, 3);
                shared[0] = in;
                if (!fork()) {
                    mmap((void *)shared, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
                    shared[0] = 0x636261;
                    _exit(0);
                }
                wait(0);
                return *(int *)shared[0];
            }"#,
        input: "abc",
        says: "read(0",
        read: Some((0, 2)),
    },
    Case {
        name: "table",
        source: r#"
            #include <stdlib.h>
            #include <unistd.h>
            volatile int sink;
            __attribute__((noinline)) void act(int n) {
                switch (n) {
                case 0: sink = 1; break;
                case 1: sink = 7; break;
                case 2: sink = 9; break;
                case 3: sink = 11; break;
                case 4: abort();
                case 5: sink = 3; break;
                case 6: sink = 31; break;
                default: sink = 99;
                }
            }
            int main(void) {
                char in[4];
                read(0, in, 3);
                for (int i = 0; i < 3; i++) act(in[i] - '0');
            }"#,
        input: "214",
        says: "read(0",
        read: Some((2, 2)),
    },
    Case {
        name: "stack",
        source: r#"
            #include <unistd.h>
            long in[2];
            int main(void) {
                read(0, in, 8);
                asm volatile("mov %0, %%rsp; ret" :: "r"(in[0] & 0xffffff000));
            }"#,
        input: "abcdefgh",
        says: "read(0",
        read: Some((0, 7)),
    },
];

fn record(place: &Place, engine: &str, name: &str) {
    drop(std::fs::remove_dir_all(place.path("rec")));
    let gretel = env!("CARGO_BIN_EXE_gretel");
    let ran = place.sh(&format!("{gretel} record --engine {engine} -o rec -- ./{name} <input"));
    assert!(ran.code > 128, "{name}: {}", ran.err);
}

fn why(place: &Place) -> Value {
    let ran = place.gretel(&["why", "rec", "--json"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    serde_json::from_str(&ran.out()).expect("JSON")
}

#[test]
fn writers_that_are_hard_to_see_are_named() {
    let place = Place::new();
    for case in &CASES {
        if place.compile(case.name, &format!("#define _GNU_SOURCE\n{}", case.source)).is_none() {
            return;
        }
        place.write("input", case.input);
        for engine in engines() {
            record(&place, engine, case.name);
            let answer = why(&place);
            let nodes = answer["nodes"].as_array().expect("nodes");
            let says =
                |text: &str| nodes.iter().any(|it| it["what"].as_str().is_some_and(|it| it.contains(text)));
            assert!(says(case.says), "{} on {engine}: {answer:#}", case.name);
            assert!(!says("not followed"), "{} on {engine}: {answer:#}", case.name);
            let reads: Vec<(u64, u64)> = nodes
                .iter()
                .filter_map(|node| serde_json::from_value::<Vec<(u64, u64)>>(node["read"].clone()).ok())
                .flatten()
                .collect();
            assert_eq!(
                reads,
                case.read.into_iter().collect::<Vec<_>>(),
                "{} on {engine}: {answer:#}",
                case.name
            );
            let words = answer["question"]["words"].to_string();
            match case.name {
                "table" => assert!(words.contains("by a table"), "{words}"),
                "stack" => assert!(words.contains("accesses 0x"), "{words}"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_step_before_exec_has_the_names_of_the_program_then() {
    let place = Place::new();
    let first = r#"
        #include <unistd.h>
        __attribute__((noinline)) static void fill(char *text) { read(0, text, 8); }
        int main(void) {
            char text[16] = {0};
            fill(text);
            execl("./second", "second", text, (char *)0);
        }"#;
    let second = r#"
        #include <string.h>
        int main(int count, char **arguments) {
            unsigned long v = 0;
            memcpy(&v, arguments[1], 3);
            return *(int *)v;
        }"#;
    if place.compile("first", first).is_none() || place.compile("second", second).is_none() {
        return;
    }
    place.write("input", "abcdefgh");
    record(&place, "soft", "first");
    let answer = why(&place);
    let read = answer["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .find(|it| it["read"] == serde_json::json!([[0, 2]]));
    let read = read.unwrap_or_else(|| panic!("{answer:#}"));
    // At its address the second program has another function.
    assert!(read["function"].as_str().is_some_and(|name| name.contains("read")), "{answer:#}");
}
