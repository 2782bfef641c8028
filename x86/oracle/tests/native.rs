//! The native half on cases whose outcome is known without a semantics.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use x86::op::Gpr;
use x86::state::State;
use x86_oracle::case::{Case, Ending, Image, Outcome};
use x86_oracle::layout::{CODE, DATA, DATA_SIZE, PAGE, READ_ONLY, WRITABLE};
use x86_oracle::native::Worker;

static IMAGE: Image = [0x5a; DATA_SIZE];

fn state() -> State {
    let mut state = State::default();
    state.regs.rip = CODE + 0x100;
    state.regs.rflags = 0x202;
    state
}

fn run(cases: &[Case]) -> Vec<Outcome> {
    Worker::start().unwrap().run(&IMAGE, cases, || ()).unwrap()
}

fn run_one(code: &[u8], state: State) -> Outcome {
    run(&[Case::new(code, state).unwrap()])[0]
}

#[test]
fn every_register_goes_in_and_comes_back() {
    let mut state = state();
    for (n, gpr) in state.regs.gpr.iter_mut().enumerate() {
        *gpr = 0x1111_0000_0000_0000 * n as u64 + 7;
    }
    (state.regs.fs_base, state.regs.gs_base) = (DATA, DATA + 8);
    state.regs.rflags = 0x202 | 0x8d5 | 0x400;
    for n in 0..16 {
        state.fpu.set_xmm(n, [0xabcd << n, 0xef01 << n]);
    }
    if std::is_x86_feature_detected!("avx512f") {
        for (n, part) in (1..).zip(state.fpu.vector.as_flattened_mut()) {
            *part = 0x0123_4567_89ab_cdef ^ n;
        }
        state.fpu.opmask = [1, 2, 4, 8, 16, 32, 64, u64::MAX];
    }
    state.fpu.mxcsr = 0x7f80;
    state.fpu.status = 3 << 11;
    state.fpu.tag = 0b0111_1000;
    state.fpu.st[3] = (0x8000_0000_0000_0001, 0x4000);
    let after = run_one(&[0x90], state);
    assert_eq!(after.ending, Ending::Completed);
    state.regs.rip += 1;
    assert_eq!(after.state, state);
    assert_eq!(after.writes.count, 0);
}

#[test]
fn stores_are_seen_and_undone() {
    let mut state = state();
    state.regs.gpr[usize::from(Gpr::RDI.0)] = DATA + 0x1040;
    let store = Case::new(&[0x89, 0x07], state).unwrap(); // mov [rdi], eax
    let outcomes = run(&[store, Case::new(&[0x90], state).unwrap(), store]);
    for outcome in [&outcomes[0], &outcomes[2]] {
        assert_eq!(outcome.writes.count, 1);
        assert_eq!(outcome.writes.first[0].offset, 0x1040);
        assert_eq!(outcome.writes.first[0].bytes[..5], [0, 0, 0, 0, 0x5a]);
    }
    assert_eq!(outcomes[1].writes.count, 0);
}

#[test]
fn faults_are_told_with_their_details() {
    let mut state = state();
    let rax = usize::from(Gpr::RAX.0);
    let fault = |vector, error, address| Ending::Fault { vector, error, address };
    let mut load_from = |at: u64| {
        state.regs.gpr[rax] = at;
        run_one(&[0x8b, 0x00], state).ending // mov eax, [rax]
    };
    let end = READ_ONLY + PAGE as u64;
    assert_eq!(load_from(end - 4), Ending::Completed);
    assert_eq!(load_from(end - 3), fault(14, 4, end));
    assert_eq!(load_from(DATA - 4), fault(14, 4, DATA - 4));
    assert_eq!(load_from(0x8000_0000_0000_0000), fault(13, 0, 0));
    state.regs.gpr[rax] = READ_ONLY;
    assert_eq!(run_one(&[0x89, 0x00], state).ending, fault(14, 7, READ_ONLY)); // mov [rax], eax
    state.regs.gpr[rax] = DATA + WRITABLE as u64 - 3;
    let store = run_one(&[0x89, 0x00], state);
    assert_eq!(store.ending, fault(14, 6, DATA + WRITABLE as u64));
    assert_eq!((store.writes.count, store.state.regs.rip), (0, state.regs.rip));
    assert_eq!(run_one(&[0x0f, 0x0b], state).ending, fault(6, 0, 0));
    assert_eq!(run_one(&[0xf7, 0xf1], state).ending, fault(0, 0, 0)); // div ecx
}

#[test]
fn code_that_runs_off_its_page_faults_on_the_next() {
    let mut state = state();
    let guard = CODE + PAGE as u64;
    state.regs.rip = guard - 1;
    let outcome = run_one(&[0x90], state);
    assert_eq!(outcome.ending, Ending::Fault { vector: 14, error: 0x14, address: guard });
    assert_eq!(outcome.state.regs.rip, guard);
}

#[test]
fn a_case_that_does_not_end_is_lost_and_the_others_run() {
    let nop = Case::new(&[0x90], state()).unwrap();
    let forever = Case::new(&[0xeb, 0xfe], state()).unwrap();
    let syscall = Case::new(&[0x0f, 0x05], state()).unwrap();
    let endings: Vec<Ending> = run(&[nop, forever, nop, syscall, nop]).iter().map(|o| o.ending).collect();
    use Ending::{Completed, Lost, SystemCall};
    assert_eq!(endings, [Completed, Lost, Completed, SystemCall, Completed]);
}
