//! The certificate against the truth: a program is watched to its crash, its real last instructions make a
//! suffix, and this suffix must be certified; any change to it must not.

use crate::compiler::build;
use crate::tracee::Tracee;
use iced_x86::Mnemonic;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use synth::certificate::{Request, Verdict, certify};
use synth::evidence::Anchors;
use synth::program::Program;
use synth::report::{self, Listing};
use synth::suffix::{Coverage, Forced, Origin, RegisterOrigins, StartMemory, Suffix, SuffixInput};
use vmm::elfcore::write::{Area, Contents, write};
use vmm::elfcore::{Core, SignalInfo};
use x86::op::BranchKind;
use x86::state::State;

/// How long the suffixes are.
const LENGTH: usize = 700;
type Pages = BTreeMap<u64, Vec<u8>>;

/// A crash that was watched.
struct Watched {
    core: Core,
    suffix: Suffix,
    /// The taken branches of the suffix, newest first.
    branches: Vec<(u64, u64)>,
}

fn pages(tracee: &Tracee, areas: &[Area]) -> Pages {
    let mut pages = Pages::new();
    for area in areas.iter().filter(|area| area.rights.read) {
        for at in (area.start..area.end).step_by(4096) {
            let mut bytes = vec![0; 4096];
            tracee.read(at, &mut bytes);
            pages.insert(at, bytes);
        }
    }
    pages
}

fn save_core(folder: &Path, state: &State, signal: SignalInfo, areas: &[Area], memory: &Pages) -> Core {
    let path = folder.join("core");
    let contents = Contents { state: *state, signal, ..Contents::default() };
    write(File::create(&path).expect("a file"), &contents, areas, &mut |at, page| {
        memory.get(&at).is_some_and(|bytes| {
            page.copy_from_slice(bytes);
            true
        })
    })
    .expect("the core is written");
    Core::open(&path).expect("the core is read")
}

/// Runs `program` twice: to find where it ends, and to look at the state `LENGTH` instructions before.
fn watch(program: &Path, folder: &Path) -> Watched {
    let mut first = Tracee::start(program);
    let mut total = 0;
    while first.step().is_none() {
        total += 1;
    }
    drop(first);
    let mut tracee = Tracee::start(program);
    for _ in 0..total - LENGTH {
        assert_eq!(tracee.step(), None);
    }
    let (start, before) = (tracee.state(), pages(&tracee, &tracee.areas()));
    let mut states = vec![start];
    let signo = loop {
        match tracee.step() {
            None => states.push(tracee.state()),
            Some(signal) => break signal,
        }
    };
    let (code, address) = tracee.signal();
    let areas = tracee.areas();
    let after = pages(&tracee, &areas);
    let signal = SignalInfo { signo, code, address: if code > 0 { address } else { 0 } };
    let state = tracee.state();
    if state.regs.rip != states.last().expect("states").regs.rip {
        states.push(state);
    }
    let core = save_core(folder, &state, signal, &areas, &after);
    let suffix = true_suffix(&states, &before, &after);
    let decoded = Program::from_bytes(&std::fs::read(program).expect("it"), 0).expect("it parses");
    let edge = |pair: &[State]| (pair[0].regs.rip, pair[1].regs.rip);
    // Nothing in these programs branches to itself or to the next instruction.
    let taken = states.windows(2).map(edge).filter(|(from, to)| {
        decoded.instruction_at(*from).is_some_and(|i| i.next_ip() != *to && i.ip() != *to)
    });
    let mut branches: Vec<(u64, u64)> = taken.collect();
    branches.reverse();
    Watched { core, suffix, branches }
}

fn true_suffix(states: &[State], before: &Pages, after: &Pages) -> Suffix {
    let mut memory = Vec::new();
    for (at, bytes) in before.iter().filter(|(at, bytes)| after.get(at) != Some(*bytes)) {
        memory.push(StartMemory {
            address: *at,
            bytes: bytes.clone(),
            origins: vec![Origin::Forced; bytes.len()],
        });
    }
    let path: Vec<u64> = states[..states.len() - 1].iter().map(|state| state.regs.rip).collect();
    // SYSCALL leaves the next address in rcx, and rflags in r11.
    let called = states.windows(2).enumerate().filter(|(_, pair)| {
        let (before, after) = (&pair[0].regs, &pair[1].regs);
        after.rip == before.rip + 2 && after.gpr[1] == after.rip && before.gpr[1] != after.gpr[1]
    });
    let inputs = called.map(|(step, pair)| SuffixInput {
        step,
        late: false,
        result: pair[1].regs.gpr[0],
        writes: Vec::new(),
        origin: Origin::Forced,
        clock: Vec::new(),
    });
    Suffix {
        start: states[0],
        inactive_gs: None,
        answers: Vec::new(),
        registers: RegisterOrigins { gpr: [Origin::Chosen; 16], ..RegisterOrigins::default() },
        memory,
        inputs: inputs.collect(),
        path,
        coverage: Coverage { records: 16, instructions: 150 },
        forced: Forced::default(),
        turns: Vec::new(),
        others: Vec::new(),
        signals: Vec::new(),
    }
}

static NO_CRUMBS: Anchors = Anchors::NONE;

fn request<'a>(watched: &'a Watched, suffix: &'a Suffix) -> Request<'a> {
    let records = &watched.branches[..watched.branches.len().min(16)];
    let time = Duration::from_secs(5);
    let recorded = &BranchKind::ALL[..6];
    Request { core: &watched.core, suffix, records, recorded, anchors: &NO_CRUMBS, time, kvm: true }
}

fn check(name: &str, flags: &[&str]) -> Option<(tempfile::TempDir, Watched)> {
    let folder = tempfile::tempdir().expect("a folder");
    let program = build(folder.path(), "crash.c", name, "gcc", &[&["-static", "-O1", "-g"], flags].concat())?;
    let watched = watch(&program, folder.path());
    match certify(&request(&watched, &watched.suffix)).expect("a verdict") {
        Verdict::Certified(certificate) => {
            assert_eq!(certificate.records, watched.branches.len().min(16), "all records are reproduced");
            assert!(certificate.compared_bytes > 500_000, "{} bytes", certificate.compared_bytes);
            eprintln!("{name}: {:?} {:?}", certificate.engines, certificate.without_kvm);
            for entry in &certificate.dont_care {
                eprintln!("  not compared: {} ({})", entry.what, entry.why);
            }
            let kvm = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
            assert_eq!(certificate.engines.len(), if kvm { 2 } else { 1 });
        }
        other => panic!("{name}: the truth is not certified: {other:?} of {:?}", watched.core.signal),
    }
    Some((folder, watched))
}

#[test]
fn the_true_end_of_a_null_dereference_is_certified_and_nothing_else() {
    let Some((folder, watched)) = check("null", &[]) else { return };
    let suffix = &watched.suffix;
    assert!(suffix.path.len() >= LENGTH, "{}", suffix.path.len());

    let mut other = suffix.clone();
    let piece = other.memory.first_mut().expect("memory changed");
    let unused = piece.bytes.len() - 1;
    piece.bytes[unused] ^= 1;
    let verdict = certify(&request(&watched, &other)).expect("a verdict");
    assert!(matches!(&verdict, Verdict::Rejected(d) if d.what.starts_with("memory at")), "{verdict:?}");

    let mut other = suffix.clone();
    other.path[400] += 1;
    let verdict = certify(&request(&watched, &other)).expect("a verdict");
    assert!(
        matches!(&verdict, Verdict::Rejected(d) if d.step == Some(400) && d.what == "rip"),
        "{verdict:?}"
    );

    let mut other = suffix.clone();
    other.start.fpu.vector[9][1] ^= 1 << 40;
    let verdict = certify(&request(&watched, &other)).expect("a verdict");
    assert!(matches!(&verdict, Verdict::Rejected(d) if d.what == "xmm9"), "{verdict:?}");

    let mut records = watched.branches[..16].to_vec();
    records[7].0 += 1;
    let verdict = certify(&Request { records: &records, ..request(&watched, suffix) }).expect("a verdict");
    assert!(matches!(&verdict, Verdict::Rejected(d) if d.what == "branch record"), "{verdict:?}");

    show(&folder.path().join("null"), &watched);
}

/// The listing of a suffix has every instruction and fits the page.
fn show(program: &Path, watched: &Watched) {
    let program = Program::from_bytes(&std::fs::read(program).expect("it"), 0).expect("it parses");
    let request = request(watched, &watched.suffix);
    let Verdict::Certified(certificate) = certify(&request).expect("a verdict") else {
        panic!("certified above")
    };
    let listing = Listing::new(&program, &watched.core, &watched.suffix, &certificate).expect("a listing");
    let text = listing.to_string();
    assert!(text.lines().all(|line| line.chars().count() <= report::COLUMNS), "{text}");
    assert!(text.contains("mix") && text.contains("crash.c:"), "{text}");
    assert!(text.contains("oldest branch record"), "{text}");
    let steps = listing.steps.iter().map(|step| step.iterations).sum::<usize>();
    assert_eq!(steps, watched.suffix.len());
    let json = serde_json::to_value(&listing).expect("JSON");
    assert_eq!(json["steps"].as_array().map(Vec::len), Some(listing.steps.len()));
    if std::env::var_os("SHOW_LISTING").is_some() {
        println!("{text}");
    }
}

/// The program died of the page fault all the same, where a handler for it could not be entered: the signal then has
/// no address.
#[test]
fn a_page_fault_whose_handler_could_not_be_entered_is_certified() {
    let Some((_folder, mut watched)) = check("handler", &[]) else { return };
    watched.core.signal = SignalInfo { signo: 11, code: 0x80, address: 0 };
    let verdict = certify(&request(&watched, &watched.suffix)).expect("a verdict");
    assert!(matches!(verdict, Verdict::Certified(_)), "{verdict:?}");
    watched.core.signal = SignalInfo { signo: 11, code: 1, address: 0x1234_5678 };
    let verdict = certify(&request(&watched, &watched.suffix)).expect("a verdict");
    let end = watched.suffix.path.len();
    assert!(matches!(&verdict, Verdict::Rejected(d) if d.step == Some(end)), "{verdict:?}");
}

#[test]
fn an_instruction_that_cannot_be_judged_is_named_by_its_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["-static", "-O1", "-g", "-DCPUID"];
    let Some(program) = build(folder.path(), "crash.c", "cpuid", "gcc", &flags) else { return };
    let watched = watch(&program, folder.path());
    let decoded = Program::from_bytes(&std::fs::read(program).expect("it"), 0).expect("it parses");
    let is_cpuid = |at: &u64| decoded.instruction_at(*at).is_some_and(|i| i.mnemonic() == Mnemonic::Cpuid);
    let expected = watched.suffix.path.iter().position(is_cpuid).expect("it is in the last instructions");
    assert!(expected > 0 && expected < watched.suffix.path.len() - 1);
    let verdict = certify(&request(&watched, &watched.suffix)).expect("a verdict");
    assert!(
        matches!(&verdict, Verdict::Refused { step, .. } if *step == expected),
        "{expected}: {verdict:?}"
    );
}

#[test]
fn the_true_end_of_a_division_by_zero_is_certified() {
    check("divide", &["-DDIVIDE"]);
}

#[test]
fn the_true_end_of_an_abort_is_certified() {
    check("abort", &["-DABORT"]);
}
