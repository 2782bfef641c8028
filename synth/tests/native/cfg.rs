//! The map of predecessors against reality: every edge that a program takes, natively and one instruction at a
//! time, must be in the map.

use crate::compiler::build;
use crate::tracee::Tracee;
use iced_x86::Mnemonic;
use std::collections::BTreeSet;
use std::path::Path;
use synth::program::Program;
use synth::program::cfg::{Cfg, EdgeKind};

/// How much memory from the first segment on the map may read through its `cell`.
const SPAN: usize = 4 << 20;

/// What a run did.
struct Run {
    /// Each pair of addresses of instructions that ran one after the other.
    edges: BTreeSet<(u64, u64)>,
    /// How many instructions ran.
    steps: u64,
    /// The run-time address of the entry point.
    entry: u64,
    /// The memory from `below` before the entry point on, at the end.
    memory: Vec<u8>,
}

/// Single-steps the sample to its exit.
fn single_step(path: &Path, below: u64) -> Run {
    let mut tracee = Tracee::start(path);
    let mut run = Run { edges: BTreeSet::new(), steps: 0, entry: tracee.entry(), memory: vec![0; SPAN] };
    let mut before = tracee.rip();
    while tracee.step().is_none() {
        let now = tracee.rip();
        run.edges.insert((before, now));
        run.steps += 1;
        before = now;
    }
    tracee.read(run.entry - below, &mut run.memory);
    run
}

/// Runs the sample and gives every executed edge that the map misses.
fn missed(path: &Path) -> (Run, Vec<String>, usize) {
    let bytes = std::fs::read(path).expect("the sample");
    let unbiased = Program::from_bytes(&bytes, 0).expect("the sample parses");
    let low = unbiased.functions()[0].start & !0xffff;
    let below = unbiased.entry() - low;
    let run = single_step(path, below);
    let program = Program::from_bytes(&bytes, Program::load_bias(&bytes, run.entry).expect("a bias"))
        .expect("the sample parses");
    let start = run.entry - below;
    let cell = |va: u64| {
        let at = usize::try_from(va.checked_sub(start)?).ok()?;
        Some(u64::from_le_bytes(run.memory.get(at..at + 8)?.try_into().ok()?))
    };
    let clock = std::time::Instant::now();
    let cfg = Cfg::build(&program, &cell);
    let mut wrong = Vec::new();
    let mut predecessors = 0;
    for &(from, to) in &run.edges {
        // The vDSO is not the program's.
        if program.function_at(from).is_none() || program.function_at(to).is_none() {
            continue;
        }
        predecessors += cfg.predecessors(to).count();
        if cfg.is_complete(to) && !cfg.predecessors(to).any(|edge| edge.from == from) {
            let name = |va| program.function_at(va).map_or("?", |function| function.name.as_str());
            wrong.push(format!("{from:#x} {} -> {to:#x} {}", name(from), name(to)));
        }
        assert!(program.instruction_at(to).is_some(), "{to:#x} ran and is not a known instruction");
    }
    eprintln!(
        "{}: {} steps, {} edges, {predecessors} predecessors of them, {} instructions, {:?}",
        path.display(),
        run.steps,
        run.edges.len(),
        program.instruction_count(),
        clock.elapsed()
    );
    let incomplete = run
        .edges
        .iter()
        .filter(|(_, to)| program.function_at(*to).is_some() && !cfg.is_complete(*to))
        .count();
    (run, wrong, incomplete)
}

fn check(name: &str, compiler: &str, flags: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(path) = build(folder.path(), "sample.c", name, compiler, flags) else { return };
    let (run, wrong, incomplete) = missed(&path);
    assert!(run.steps > 5_000, "the sample does something: {} steps", run.steps);
    assert!(wrong.is_empty(), "{} executed edges are not in the map:\n{}", wrong.len(), wrong.join("\n"));
    eprintln!("{incomplete} edges arrive where the map is incomplete");
    assert!(incomplete * 20 < run.edges.len(), "{incomplete} of {} edges are doubtful", run.edges.len());
}

#[test]
fn glibc_optimised() {
    check("glibc-o2", "gcc", &["-static", "-O2"]);
}

#[test]
fn glibc_unoptimised() {
    check("glibc-o0", "gcc", &["-static", "-O0"]);
}

#[test]
fn glibc_position_independent() {
    check("glibc-pie", "gcc", &["-static-pie", "-fpie", "-O2"]);
}

#[test]
fn glibc_stripped() {
    check("glibc-stripped", "gcc", &["-static", "-O2", "-s"]);
}

#[test]
fn musl_optimised() {
    check("musl-o2", "musl-gcc", &["-static", "-O2"]);
}

#[test]
fn musl_unoptimised() {
    check("musl-o0", "musl-gcc", &["-static", "-O0", "-no-pie", "-fno-pie"]);
}

#[test]
fn a_jump_table_is_read_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let path =
        build(folder.path(), "sample.c", "table", "gcc", &["-static", "-O2"]).expect("gcc is a requirement");
    let program = Program::from_bytes(&std::fs::read(path).expect("the sample"), 0).expect("it parses");
    let cfg = Cfg::build(&program, &|_| None);
    let classify = program.functions().iter().find(|f| f.name == "classify").expect("a symbol");
    let sources = |va| cfg.predecessors(va).filter(|edge| edge.kind == EdgeKind::IndirectJump).count();
    let targets = (classify.start..classify.end).filter(|va| sources(*va) > 0).count();
    assert!((7..=8).contains(&targets), "seven cases and perhaps the default: {targets}");
}

#[test]
fn an_interpreter_whose_program_is_addresses_of_labels_is_mapped() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = build(folder.path(), "threaded.c", "threaded", "gcc", &["-static", "-O2"])
        .expect("gcc is a requirement");
    let program = Program::from_bytes(&std::fs::read(&path).expect("the sample"), 0).expect("it parses");
    let run = single_step(&path, program.entry() - (program.functions()[0].start & !0xffff));
    let cfg = Cfg::build(&program, &|_| None);
    let threaded = program.functions().iter().find(|f| f.name == "threaded").expect("a symbol");
    let inside = |va: &u64| (threaded.start..threaded.end).contains(va);
    let mut jumps = 0;
    for (from, to) in run.edges.iter().filter(|(from, to)| inside(from) && inside(to)) {
        let edge = cfg.predecessors(*to).find(|edge| edge.from == *from);
        let edge = edge.unwrap_or_else(|| panic!("{from:#x} -> {to:#x} is not in the map"));
        jumps += usize::from(edge.kind == EdgeKind::IndirectJump);
    }
    assert!(jumps >= 6, "six instructions went on to another one: {jumps} ways");
}

#[test]
fn the_cold_part_of_an_interpreter_is_no_end_of_its_table_where_it_has_no_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["-O2", "-no-pie", "-fno-pie", "-rdynamic", "-s"];
    let path = build(folder.path(), "bytecode.c", "bytecode", "gcc", &flags).expect("gcc is a requirement");
    let program = Program::from_bytes(&std::fs::read(path).expect("the sample"), 0).expect("it parses");
    let cfg = Cfg::build(&program, &|_| None);
    let bytecode = program.functions().iter().find(|f| f.name == "bytecode").expect("it is exported");
    let inside = |va: &u64| (bytecode.start..bytecode.end).contains(va);
    let targets = (bytecode.start..bytecode.end).find_map(|va| cfg.indirect_targets(va)).expect("its table");
    let (labels, cold): (Vec<u64>, Vec<u64>) = targets.iter().partition(|va| inside(va));
    assert_eq!(labels.len(), 2, "{targets:x?}");
    assert_eq!(cold.len(), 1, "{targets:x?}");
    assert!(
        (bytecode.start..bytecode.end).all(|va| program.instruction_at(va).is_none() || cfg.is_complete(va))
    );
}

#[test]
fn a_function_that_is_called_for_the_first_time_is_looked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["-O2", "-no-pie", "-fno-pie", "-fcf-protection=none", "-Wl,-z,lazy"];
    let path = build(folder.path(), "threaded.c", "lazy", "gcc", &flags).expect("gcc is a requirement");
    let program = Program::from_bytes(&std::fs::read(path).expect("the sample"), 0).expect("it parses");
    let main = program.functions().iter().find(|f| f.name == "main").expect("a symbol");
    // Every cell of the linker's table leads to the same place in the end.
    let cfg = Cfg::build(&program, &|_| Some(main.start));
    let pushes = program.functions().iter().flat_map(|f| f.start..f.end).filter(|va| {
        let instruction = program.instruction_at(*va);
        instruction.is_some_and(|it| it.mnemonic() == Mnemonic::Push && it.try_immediate(0).is_ok())
    });
    let jumps: Vec<bool> =
        pushes.map(|push| cfg.predecessors(push).any(|edge| edge.kind == EdgeKind::IndirectJump)).collect();
    assert!(!jumps.is_empty() && jumps.iter().all(|found| *found), "{jumps:?}");
}

#[test]
fn source_lines_come_from_debug_information() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = build(folder.path(), "sample.c", "lines", "gcc", &["-static", "-O0", "-g"])
        .expect("gcc is a requirement");
    let program = Program::from_bytes(&std::fs::read(path).expect("the sample"), 0).expect("it parses");
    let square = program.functions().iter().find(|f| f.name == "square").expect("a symbol");
    let frames = program.source_frames(square.start);
    let [frame] = frames.as_slice() else { panic!("nothing is inlined: {frames:?}") };
    assert_eq!(frame.function.as_deref(), Some("square"));
    assert!(frame.file.as_ref().is_some_and(|file| file.ends_with("sample.c")), "{frame:?}");
    assert_eq!(frame.line, Some(14));
}

#[test]
fn a_damaged_executable_is_refused_without_a_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = build(folder.path(), "sample.c", "damaged", "gcc", &["-static", "-O2"])
        .expect("gcc is a requirement");
    let bytes = std::fs::read(path).expect("the sample");
    assert!(Program::from_bytes(b"#!/bin/sh\n", 0).is_err());
    assert!(Program::from_bytes(&bytes[..1000], 0).is_err());
    assert!(Program::from_bytes(&bytes, u64::MAX - 0x1000).is_err());
    for at in 0..64 * 12 {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0xff;
        if let Ok(program) = Program::from_bytes(&flipped, 0) {
            assert!(program.functions().windows(2).all(|pair| pair[0].end <= pair[1].start), "byte {at}");
        }
    }
}
