//! The walk of the stack against the calls and returns that were executed: at every instruction of a program, on the
//! software CPU.

use crate::harness::Engine;
use crate::harness::{Run, each_libc, skipped};
use iced_x86::{Decoder, DecoderOptions};
use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::process::Command;
use vmm::engine::Until;
use vmm::process::{Process, Step};
use vmm::stack::{Place, Walker, Words};
use x86::state::Regs;

/// Frames of all kinds: deep and mutual recursion, calls through pointers, a switch by a table, stacks whose size is only
/// known at run time or that are aligned, tail calls, callbacks from the library, and printing.
const SOURCE: &str = r#"
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #define KEEP __attribute__((noinline))
    static volatile int sink;
    KEEP static int odd(int n);
    KEEP static int even(int n) { return n == 0 ? 1 : odd(n - 1) + sink; }
    KEEP static int odd(int n) { return n == 0 ? 0 : even(n - 1) + sink; }
    KEEP static int deep(int n) { char local[24]; local[n % 24] = n; sink = local[3]; return n ? deep(n - 1) + 1 : 0; }
    KEEP static int one(int n) { return n + 1; }
    KEEP static int two(int n) { sink = n; return one(n * 2); }
    KEEP static int tail(int n) { sink = n; return two(n + 3); }
    KEEP static int sized(int n) { char room[n + 1]; memset(room, n, n + 1); sink = room[n]; return one(room[n / 2]); }
    KEEP static int aligned(int n) { _Alignas(64) char room[64]; memset(room, n, 64); sink = room[1]; return one(n); }
    KEEP static int choose(int n) {
        switch (n) {
        case 0: return one(5); case 1: return two(7); case 2: sink = 9; return sized(4); case 3: return aligned(2);
        case 4: return even(6); case 5: return one(2) * two(3); case 6: return deep(3); default: return 0;
        }
    }
    static int compare(const void *a, const void *b) { return one(*(const int *)a) - one(*(const int *)b); }
    int main(void) {
        int (*through[])(int) = { one, two, tail, sized, aligned, choose, deep, even };
        int list[40], sum = 0;
        for (int n = 0; n < 40; n++) list[n] = n * 7919 % 41;
        qsort(list, 40, sizeof *list, compare);
        for (int n = 0; n < 9; n++) sum += choose(n);
        for (int n = 0; n < 8; n++) sum += through[n](n + 1);
        char *text = malloc(100);
        snprintf(text, 100, "%d %s %.3f", sum, "text", sum / 3.0);
        int length = strlen(text);
        puts(text);
        free(text);
        return length > 100;
    }"#;

/// Steps the program, and compares at each instruction. How many were compared, and where the walk did not get to the
/// outermost function.
fn compare(process: &mut Process, walker: &mut Walker) -> (usize, Vec<u64>) {
    // Each with where it is on the stack.
    let mut shadow: Vec<(u64, u64)> = Vec::new();
    let mut stack = Vec::new();
    let (mut compared, mut incomplete) = (0, Vec::new());
    loop {
        let regs = *process.cpu().regs();
        if walker.walk(Place::before(&regs), &process.walked(), &mut stack) {
            let found: Vec<_> = stack.iter().rev().map(|site| (site.slot, site.address)).collect();
            assert!(found == shadow, "at {:#x}: {found:x?}, but it was {shadow:x?}", regs.rip);
            compared += 1;
        } else {
            incomplete.push(regs.rip);
        }
        let mut code = [0; 15];
        let end = (1..=15).rev().find(|end| process.read_memory(regs.rip, &mut code[..*end])).unwrap_or(0);
        let instruction = Decoder::with_ip(64, &code[..end], regs.rip, DecoderOptions::NONE).decode();
        let retired = process.cpu().counters().expect("it counts").instructions;
        match process.step_until(Until::Retired(retired + 1)).expect("it goes on") {
            Step::Running | Step::Budget => {}
            Step::Exited(0) => return (compared, incomplete),
            other => panic!("{other:?}"),
        }
        // A page that is brought in starts the instruction again.
        if process.cpu().regs().rip == regs.rip {
            continue;
        }
        let rsp = process.cpu().regs().gpr[4];
        if instruction.is_call_near() || instruction.is_call_near_indirect() {
            shadow.push((rsp, instruction.next_ip()));
        }
        // Returned from, or left by longjmp.
        while shadow.last().is_some_and(|(slot, _)| *slot < rsp) {
            shadow.pop();
        }
    }
}

fn check(name: &str, flags: &[&str], allowed: usize) {
    each_libc(name, SOURCE, flags, |program| check_program(&Run::new(program, &[]), allowed));
}

/// Of a thousand stacks, `allowed` may be incomplete.
fn check_program(run: &Run, allowed: usize) {
    let mut process = run.start(Engine::Soft);
    let mut walker = Walker::new(&fs::read(&run.program).expect("the program")).expect("a program");
    let (compared, mut incomplete) = compare(&mut process, &mut walker);
    let times = incomplete.len();
    incomplete.sort_unstable();
    incomplete.dedup();
    eprintln!("{:?}: {compared} stacks, {times} incomplete at {incomplete:x?}", run.argv);
    assert!(compared > 5000, "the program does something: {compared}");
    assert!(times * 1000 <= compared * allowed, "{times} of {compared} are incomplete: {incomplete:x?}");
}

#[test]
fn stacks_are_what_was_called_without_optimisation() {
    check("plain", &["-O0"], 1);
}

#[test]
fn stacks_are_what_was_called_with_frame_pointers() {
    check("pointers", &["-O2", "-fno-omit-frame-pointer"], 1);
}

#[test]
fn stacks_are_what_was_called_without_frame_pointers() {
    check("none", &["-O2"], 1);
}

/// Then only the code tells.
#[test]
fn stacks_are_what_was_called_without_unwind_tables() {
    let flags = ["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    check("bare", &flags, 1);
    check("bare-plain", &["-O0", flags[1], flags[2]], 1);
}

/// Then it is not even known where functions begin. What musl does before main is reached by a jump alone, and lost.
#[test]
fn stacks_are_what_was_called_in_stripped_programs() {
    let flags = ["-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-s"];
    check("stripped", &flags, 25);
    check("stripped-plain", &["-O0", flags[1], flags[2], "-s"], 25);
    check("stripped-small", &["-Os", flags[1], flags[2], "-s"], 25);
}

/// A large stripped program whose own code has no unwind tables, and whose library's has.
#[test]
fn stacks_of_busybox() {
    let found = ["/bin/busybox", "/usr/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(program) = found else { return skipped("busybox", &"it is not installed") };
    let script =
        "f() { if [ $1 -gt 0 ]; then f $(($1 - 1)); else echo x; fi; }; f 3; case a in a) echo b;; esac";
    let awk = "function f(n) { return n < 2 ? n : f(n - 1) + f(n - 2) } BEGIN { printf \"%d %s\\n\", f(5), toupper(\"a\") }";
    for arguments in [&["sh", "-c", script][..], &["awk", awk], &["expr", "3", "*", "4"], &["ls", "-l", "/"]]
    {
        check_program(&Run::new(program, arguments), 1);
    }
}

#[test]
fn stacks_of_position_independent_programs() {
    check("pie", &["-static-pie", "-fpie", "-O2"], 1);
}

/// Of the libraries and the dynamic linker there is what lies in memory, and no symbol: one stack in twenty, in entries of linkage
/// tables and in the dynamic linker, is not walked to its end. None is wrong.
#[test]
fn stacks_of_dynamic_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (folder.path().join("dynamic.c"), folder.path().join("dynamic"));
    fs::write(&source, SOURCE).expect("a file");
    for flags in [&["-O2"][..], &["-O2", "-s"], &["-O1", "-no-pie", "-Wl,-z,now"]] {
        let built =
            Command::new("gcc").arg("-o").arg(&program).arg(&source).args(flags).args(["-w"]).status();
        assert!(built.expect("there is a C compiler").success());
        check_program(&Run::new(&program, &[]), 60);
    }
}

/// Where a program becomes another one, that one's stack is walked. Right behind the code that the kernel starts lies a function that is
/// called at its end.
#[test]
fn stacks_behind_execve() {
    let Some(dash) = Some(Path::new("/bin/dash")).filter(|path| path.exists()) else {
        return skipped("dash", &"it is not installed");
    };
    check_program(&Run::new(dash, &["-c", "exec /bin/echo some words"]), 60);
}

/// Registers and memory of any content, and executables with any damage: an answer, and never a panic.
#[test]
fn stacks_and_programs_of_any_content_are_survived() {
    let state = Cell::new(1_u64);
    let random = |below: u64| {
        let next =
            state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.set(next);
        (next >> 33) % below
    };
    each_libc("damaged", SOURCE, &["-O1"], |program| {
        let whole = fs::read(program).expect("the program");
        for round in 0..60 {
            let mut bytes = whole.clone();
            for _ in 0..round {
                // The headers, mostly: they decide how the rest is read.
                let below = if random(2) == 0 { 1024 } else { bytes.len() as u64 };
                let at = usize::try_from(random(below)).expect("an index");
                bytes[at] ^= u8::try_from(random(256)).expect("a byte");
            }
            if round % 7 == 6 {
                bytes.truncate(usize::try_from(random(bytes.len() as u64)).expect("a length"));
            }
            let Ok(mut walker) = Walker::new(&bytes) else { continue };
            let any = || match random(5) {
                0 => random(64),
                1 => u64::MAX - random(64),
                2 => 0x7fff_0000_0000 + 8 * random(512),
                _ => 0x40_1000 + random(0x8_0000),
            };
            let memory: Vec<u64> = (0..512).map(|_| any()).collect();
            let word = |address: u64| {
                let at = usize::try_from(address.checked_sub(0x7fff_0000_0000)? / 8).ok()?;
                memory.get(at).copied()
            };
            let mut stack = Vec::new();
            for _ in 0..200 {
                let mut regs = Regs { rip: any(), ..Regs::default() };
                (regs.gpr[4], regs.gpr[5]) = (any(), any());
                let place = Place { behind: regs.rip.is_multiple_of(2), ..Place::before(&regs) };
                walker.walk(place, &Words(&word), &mut stack);
                assert!(stack.len() <= memory.len(), "each return address is on the stack once");
            }
        }
    });
}
