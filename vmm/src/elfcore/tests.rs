use super::write::{Area, Contents, write};
use super::*;
use std::process::Command;

const R: Rights = Rights { read: true, write: false, execute: false };
const RW: Rights = Rights { read: true, write: true, execute: false };

fn contents() -> Contents {
    let mut state = State::default();
    for (value, n) in state.regs.gpr.iter_mut().zip(0x1111_0000_0000_0000..) {
        *value = n;
    }
    state.regs.rip = 0x40_1234;
    state.regs.rflags = 0x246;
    state.regs.fs_base = 0x7000_0000;
    state.regs.gs_base = 0x7000_1000;
    state.fpu.set_xmm(3, [5, 6]);
    let mut other = State::default();
    other.regs.rip = 0x40_2222;
    other.fpu.set_xmm(3, [7, 8]);
    Contents {
        state,
        thread: 78,
        others: vec![(77, other)],
        signal: SignalInfo { signo: 11, code: 1, address: 0xdead_beef },
        process: ProcessInfo { pid: 77, name: "prog".into(), arguments: "prog a b".into() },
        auxv: vec![(3, 0x40_0040), (9, 0x40_1000)],
        files: vec![FileMapping {
            start: 0x40_0000,
            end: 0x40_2000,
            offset: 0x1000,
            path: "/bin/prog".into(),
        }],
        trail: Some(vec![1, 2, 3]),
        counters: Some(crate::engine::Counters {
            instructions: 9,
            taken_branches: 4,
            conditional_branches: 5,
        }),
        crumbs: Some(vec![4, 5]),
        contexts: Some(vec![6]),
        origin: "engine: soft\n".into(),
    }
}

/// A core with a page of data between two pages of zeros, and a mapping that cannot be read.
fn sample(dir: &Path) -> PathBuf {
    let path = dir.join("core");
    let areas = [
        Area { start: 0x40_0000, end: 0x40_3000, rights: RW },
        Area { start: 0x50_0000, end: 0x50_1000, rights: Rights::default() },
        Area { start: 0x60_0000, end: 0x60_1000, rights: R },
    ];
    let file = std::fs::File::create(&path).unwrap();
    write(file, &contents(), &areas, &mut |at, page| {
        page.fill(if at == 0x40_1000 || at == 0x60_0000 { 0xab } else { 0 });
        true
    })
    .unwrap();
    path
}

#[test]
fn what_is_written_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let core = Core::open(&sample(dir.path())).unwrap();
    let wrote = contents();
    assert_eq!(core.state, wrote.state);
    assert_eq!(core.threads, [(78, wrote.state), (77, wrote.others[0].1)]);
    assert!(core.had_threads());
    assert_eq!(core.signal, wrote.signal);
    assert_eq!(core.process, wrote.process);
    assert_eq!((core.auxv.clone(), core.files.clone()), (wrote.auxv, wrote.files));
    assert_eq!((core.trail_bytes.clone(), core.counters), (wrote.trail, wrote.counters));
    assert_eq!((&core.crumb_bytes, &core.context_bytes), (&wrote.crumbs, &wrote.contexts));
    assert!(
        core.crumbs().is_err() && core.contexts().is_err() && core.trail().is_err(),
        "notes of this kind, but not in order"
    );
    assert_eq!(core.origin.as_deref(), Some("engine: soft\n"));
    assert!(core.damage.is_empty(), "{:?}", core.damage);
    assert_eq!(core.segments.len(), 3);
    assert_eq!(core.byte(0x40_0fff), Some(0));
    assert_eq!(core.byte(0x40_1000), Some(0xab));
    assert_eq!(core.word(0x40_1ffc), Some(0xabab_abab));
    assert_eq!(core.byte(0x50_0000), None, "not readable, so not in the core");
    assert!(core.segment(0x50_0000).is_some());
    let mut across = [0; 8];
    assert!(!core.read(0x60_0ffc, &mut across), "behind the last segment there is nothing");
}

/// Every cut: an error or a core that says what it lacks, and never a byte that the whole core has otherwise.
#[test]
fn a_cut_core_says_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let whole = std::fs::read(&path).unwrap();
    let reference = Core::open(&path).unwrap();
    let cut = dir.path().join("cut");
    for length in (0..whole.len()).step_by(61) {
        std::fs::write(&cut, &whole[..length]).unwrap();
        match Core::open(&cut) {
            Err(error) => assert!(error.to_string().contains("cut"), "{error}"),
            Ok(core) => {
                assert!(!core.damage.is_empty(), "a core of {length} bytes must not pass for whole");
                assert_eq!(core.state.regs, reference.state.regs);
                for va in [0x40_0000, 0x40_1000, 0x40_2fff, 0x60_0800] {
                    assert!(core.byte(va).is_none_or(|b| Some(b) == reference.byte(va)));
                }
            }
        }
    }
}

/// An executable of one segment, `copies` times in its headers, which is all 0xcd but for those.
fn executable(dir: &Path, copies: u16) -> PathBuf {
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([2_u16, 62].iter().flat_map(|half| half.to_le_bytes()));
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend([0x40_1000_u64, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend([0, 0, 64, 56, copies, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    for _ in 0..copies {
        bytes.extend([1_u32, 6].iter().flat_map(|half| half.to_le_bytes()));
        bytes
            .extend([0, 0x40_0000, 0, 0x3000, 0x3000, 0x1000_u64].iter().flat_map(|word| word.to_le_bytes()));
    }
    bytes.resize(0x3000, 0xcd);
    let path = dir.join("program");
    std::fs::write(&path, bytes).unwrap();
    path
}

/// What was dumped and is cut off is not what the executable has there: the program may have written to it.
#[test]
fn a_cut_core_is_not_filled_up_from_the_executable() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let whole = std::fs::read(&path).unwrap();
    // One page of the last area, one of the first, and a half.
    std::fs::write(&path, &whole[..whole.len() - 0x2800]).unwrap();
    let core = Core::open(&path).unwrap().with_executable(&executable(dir.path(), 1)).unwrap();
    assert!(!core.damage.is_empty());
    assert_eq!((core.byte(0x40_17ff), core.byte(0x40_1800), core.byte(0x40_2fff)), (Some(0xab), None, None));
}

#[test]
fn what_is_known_is_found_without_looking_at_what_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    // Of the first mapping the core holds a page, of the last one it holds one of 2^34.
    let header = |n: usize| 64 + 56 * n;
    bytes[header(1) + 32..header(1) + 40].copy_from_slice(&0x1000_u64.to_le_bytes());
    bytes[header(3) + 40..header(3) + 48].copy_from_slice(&(1_u64 << 46).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let core = Core::open(&path).unwrap();
    let known = |core: &Core, range| core.known(range).map(|(at, it)| (at, it.len())).collect::<Vec<_>>();
    assert_eq!(known(&core, 0..u64::MAX), [(0x40_0000, 0x1000), (0x60_0000, 0x1000)]);
    let core = core.with_executable(&executable(dir.path(), 1)).unwrap();
    let pieces = [(0x40_0000, 0x1000), (0x40_1000, 0x2000), (0x60_0000, 0x1000)];
    assert_eq!(known(&core, 0..u64::MAX), pieces);
    assert_eq!(known(&core, 0x40_0800..0x40_1001), [(0x40_0800, 0x800), (0x40_1000, 1)]);
}

#[test]
fn an_executable_whose_segments_share_their_bytes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let core = Core::open(&sample(dir.path())).unwrap();
    let error = core.with_executable(&executable(dir.path(), 20)).unwrap_err();
    assert!(error.to_string().contains("segment at 0x400000 shares its bytes"), "{error}");
}

/// A program header may name any offset; what is behind the end of the file is damage, not an error.
#[test]
fn an_offset_beyond_all_files_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = sample(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    // The last program header's p_offset.
    let at = 64 + 3 * 56 + 8;
    bytes[at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    let core = Core::open(&path).unwrap();
    assert_eq!((core.damage.len(), core.byte(0x60_0000), core.byte(0x40_1000)), (1, None, Some(0xab)));
}

proptest::proptest! {
    #[test]
    fn damaged_cores_do_not_panic(flips in proptest::collection::vec((0_usize..2500, 0_u8..8), 1..12)) {
        let dir = tempfile::tempdir().unwrap();
        let path = sample(dir.path());
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, bit) in flips {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(core) = Core::open(&path) {
            let mut buffer = [0; 64];
            for segment in &core.segments {
                let _ = core.read(segment.start, &mut buffer);
                let _ = core.byte(segment.end.wrapping_sub(1));
            }
        }
    }
}

/// The core that this machine's kernel writes for a C program, and the program; `None`, and a word on why, where it
/// cannot be had.
fn kernel_core(dir: &Path, source: &str) -> Option<(Core, PathBuf)> {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        eprintln!("skipped: core_pattern is {pattern:?}, so the kernel's core would go elsewhere");
        return None;
    }
    std::fs::write(dir.join("c.c"), source).unwrap();
    let script = "gcc -g -O1 -static -o c c.c || exit 77; ulimit -c unlimited; ./c; exit 0";
    let ran = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    let core = std::fs::read_dir(dir)
        .unwrap()
        .filter_map(|e| Some(e.ok()?.path()))
        .find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("core")));
    let (Some(core), Some(0)) = (core, ran.status.code()) else {
        eprintln!("skipped: no static gcc, or the kernel wrote no core here");
        return None;
    };
    Some((Core::open(&core).unwrap(), dir.join("c")))
}

/// The kernel leaves out what is as it is in a file, here the text; the executable has it.
#[test]
fn a_kernel_core_is_read_with_its_executable() {
    let dir = tempfile::tempdir().unwrap();
    let source = "int main(int c, char **v) { *(volatile int *)0x1234 = c; }";
    let Some((core, executable)) = kernel_core(dir.path(), source) else { return };
    assert_eq!(core.signal, SignalInfo { signo: 11, code: 1, address: 0x1234 });
    assert_eq!(core.byte(core.state.regs.rip), None, "coredump_filter leaves the text out");
    let core = core.with_executable(&executable).unwrap();
    let mut faulting = [0; 7];
    assert!(core.read(core.state.regs.rip, &mut faulting));
    assert_eq!(faulting, [0x89, 0x3c, 0x25, 0x34, 0x12, 0, 0], "mov %edi,0x1234, from the executable");
    assert!(core.files.iter().any(|f| f.path.ends_with("/c")));
}

/// The functions on the stack of a core, the innermost first, up to main.
fn functions(core: &Core, executable: &[u8]) -> Vec<String> {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(executable).unwrap();
    let name = |address: u64| {
        let inside = |s: &object::Symbol| (s.address()..s.address() + s.size()).contains(&address);
        file.symbols().find(inside).and_then(|s| s.name().ok().map(str::to_owned)).unwrap_or_default()
    };
    let trace = unwind::backtrace(core, &[Module { bytes: executable, bias: 0, debug: None }]);
    trace.frames.iter().map(|f| name(f.lookup_address())).take_while(|n| n != "main").collect()
}

#[test]
fn the_stack_is_unwound_by_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let source = "__attribute__((noinline)) int inner(int n) { *(volatile int *)0 = n; return n; }\n\
        __attribute__((noinline)) int outer(int n) { volatile char b[100]; b[n] = n; return inner(n) + b[n] + 1; }\n\
        int main(int c, char **v) { return outer(c) + 1; }";
    let Some((core, executable)) = kernel_core(dir.path(), source) else { return };
    let core = core.with_executable(&executable).unwrap();
    assert_eq!(functions(&core, &std::fs::read(&executable).unwrap()), ["inner", "outer"]);
}

#[test]
fn a_call_to_nowhere_shows_its_caller() {
    let dir = tempfile::tempdir().unwrap();
    let source = "int (*volatile f)(int) = (int (*)(int))0x1230;\n\
        __attribute__((noinline)) int outer(int n) { return f(n) + 1; }\n\
        int main(int c, char **v) { return outer(c) + 1; }";
    let Some((core, executable)) = kernel_core(dir.path(), source) else { return };
    let core = core.with_executable(&executable).unwrap();
    assert_eq!(core.state.regs.rip, 0x1230);
    assert_eq!(functions(&core, &std::fs::read(&executable).unwrap()), ["", "outer"]);
}

/// What a signal interrupted is on the stack of its handler, behind the frame that the kernel built.
#[test]
fn a_signal_handler_shows_what_it_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let source = "#include <signal.h>\n#include <stdlib.h>\nstatic char other[1 << 16];\n\
        __attribute__((noinline)) void handler(int n) { *(volatile int *)0x10 = n; }\n\
        __attribute__((noinline)) int outer(int n) { raise(SIGUSR1 + n - 1); return n + 1; }\n\
        int main(int c, char **v) {\n\
            stack_t stack = { .ss_sp = other, .ss_size = sizeof other };\n\
            struct sigaction on = { .sa_handler = handler, .sa_flags = SA_ONSTACK };\n\
            sigaltstack(&stack, 0); sigaction(SIGUSR1, &on, 0);\n\
            return outer(c) + 1; }";
    let Some((core, executable)) = kernel_core(dir.path(), source) else { return };
    let core = core.with_executable(&executable).unwrap();
    let bytes = std::fs::read(&executable).unwrap();
    let functions = functions(&core, &bytes);
    assert_eq!(functions.first().map(String::as_str), Some("handler"), "{functions:?}");
    assert_eq!(functions.last().map(String::as_str), Some("outer"), "{functions:?}");
    let trace = unwind::backtrace(&core, &[Module { bytes: &bytes, bias: 0, debug: None }]);
    assert!(trace.frames.iter().any(|frame| frame.by == unwind::FoundBy::Signal), "{trace:?}");
    assert_eq!(trace.stopped, None, "{trace:?}");
    // The same by the kernel's layout, without any table.
    let restorer = trace.frames.iter().position(|frame| frame.by == unwind::FoundBy::Signal).unwrap() - 1;
    let frame = trace.frames[restorer];
    assert!(signal_frame::is_restorer(&core, frame.rip));
    let interrupted = signal_frame::interrupted(&core, frame.rsp).unwrap();
    let next = trace.frames[restorer + 1];
    assert_eq!(
        (interrupted.get(gimli::X86_64::RA), interrupted.get(gimli::X86_64::RSP)),
        (Some(next.rip), Some(next.rsp))
    );
}

/// A file and the memory that it was loaded into have one build-id.
#[test]
fn a_build_id_is_found_in_memory_as_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let Some((core, executable)) = kernel_core(dir.path(), "int main() { *(volatile int *)0 = 1; }") else {
        return;
    };
    let file = std::fs::read(&executable).unwrap();
    let id = build_id::of_file(&file);
    if id.is_none() {
        eprintln!("skipped: this linker makes no build-id");
        return;
    }
    let start = core.files.iter().find(|f| f.path.ends_with("/c") && f.offset == 0).unwrap().start;
    assert_eq!(core.build_id_at(start), id);
    assert_eq!(core.build_id_at(start + 0x1000), None);
}
