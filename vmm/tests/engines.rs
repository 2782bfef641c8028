//! What an engine must do, one body for every engine.

use iced_x86::code_asm::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmm::engine::{self, EngineError, EngineKind, Exception, Exit, Until};
use vmm::paging::Rights;
use vmm::ram::PAGE;
use vmm::sandbox::Sandbox;
use x86::machine::MachineRead;
use x86::state::{RFLAGS_FIXED, RFLAGS_IF, Regs, State};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x60_0000;
const STACK: u64 = 0x7fff_0000_0000;
const RX: Rights = Rights { write: false, execute: true };
const RW: Rights = Rights { write: true, execute: false };
const R: Rights = Rights { write: false, execute: false };
const MEMORY: u64 = 64 << 20;
const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;

/// Runs `body` on each engine that this host has.
fn each_engine(body: impl Fn(&mut Sandbox)) {
    for kind in [EngineKind::Soft, EngineKind::Kvm] {
        match engine::open(kind, MEMORY) {
            Ok(engine) => {
                println!("engine {}", kind.name());
                body(&mut Sandbox::new(engine).unwrap());
            }
            Err(EngineError::KvmUnavailable(why)) => println!("SKIPPED on engine kvm: {why}"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Maps what `assemble` writes, a page of data and a stack, and stands at the first instruction.
fn load(sandbox: &mut Sandbox, assemble: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) {
    let mut asm = CodeAssembler::new(64).unwrap();
    assemble(&mut asm).unwrap();
    load_bytes(sandbox, &asm.assemble(CODE).unwrap());
}

fn load_bytes(sandbox: &mut Sandbox, code: &[u8]) {
    sandbox.map(CODE, code, RX).unwrap();
    sandbox.map(DATA, &[0; 4096], RW).unwrap();
    sandbox.map(STACK, &[0; 4096], RW).unwrap();
    stand_at(sandbox, CODE);
}

fn stand_at(sandbox: &mut Sandbox, rip: u64) {
    let mut regs = Regs { rip, rflags: RFLAGS_FIXED | RFLAGS_IF, ..Regs::default() };
    regs.gpr[RSP] = STACK + 4096;
    sandbox.load(&State { regs, ..State::default() }).unwrap();
}

fn run(sandbox: &mut Sandbox) -> Exit {
    sandbox.run(Until::Exit).unwrap()
}

fn regs(sandbox: &Sandbox) -> Regs {
    *sandbox.engine().regs()
}

fn exception(vector: u8, error_code: u32, address: u64) -> Exit {
    Exit::Exception(Exception { vector, error_code, address })
}

fn word(sandbox: &Sandbox, va: u64) -> u64 {
    let mut bytes = [0; 8];
    sandbox.read(va, &mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

#[test]
fn a_system_call_comes_out_and_goes_back_in() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.mov(rax, 39u64)?;
            a.mov(rdi, 0x1234_5678_9abc_def0u64)?;
            a.stc()?;
            a.syscall()?;
            a.add(rax, rdi)?;
            a.syscall()
        });
        assert_eq!(run(sandbox), Exit::Syscall);
        let mut at = regs(sandbox);
        assert_eq!((at.gpr[RAX], at.gpr[7]), (39, 0x1234_5678_9abc_def0));
        assert_eq!((at.gpr[RCX], at.gpr[11]), (at.rip, at.rflags));
        assert_eq!(at.rflags, 0x203, "CF, bit 1 and IF");
        assert_eq!(at.gpr[RSP], STACK + 4096);
        at.gpr[RAX] = 7;
        sandbox.engine_mut().set_regs(&at).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall);
        assert_eq!(regs(sandbox).gpr[RAX], 0x1234_5678_9abc_def7);
        assert_eq!(regs(sandbox).rip, at.rip + 3 + 2);
    });
}

#[test]
fn page_faults_tell_the_address_and_what_was_tried() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.mov(rbx, DATA + 4096 + 17)?;
            a.mov(rax, ptr(rbx))?;
            a.syscall()
        });
        assert_eq!(run(sandbox), exception(14, 0b00100, DATA + 4096 + 17), "read of nothing");
        let at = regs(sandbox);
        assert_eq!(at.gpr[RSP], STACK + 4096);
        assert_eq!(at.rflags, 0x202);
        sandbox.map(DATA + 4096, &[0xab; 4096], RW).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall, "the instruction runs again");
        assert_eq!(regs(sandbox).gpr[RAX], 0xabab_abab_abab_abab);

        load(sandbox, |a| {
            a.mov(rbx, DATA + 0x9008)?;
            a.mov(qword_ptr(rbx), 1)
        });
        assert_eq!(run(sandbox), exception(14, 0b00110, DATA + 0x9008), "write of nothing");

        load(sandbox, |a| {
            a.mov(rbx, CODE)?;
            a.mov(byte_ptr(rbx), 1)
        });
        assert_eq!(run(sandbox), exception(14, 0b00111, CODE), "write to a page that is read-only");
    });
}

#[test]
fn jumps_to_where_no_code_is_fault_at_the_target() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.mov(rbx, 0x1357_0000u64)?;
            a.jmp(rbx)
        });
        assert_eq!(run(sandbox), exception(14, 0b10100, 0x1357_0000), "nothing mapped");
        assert_eq!(regs(sandbox).rip, 0x1357_0000);

        load(sandbox, |a| {
            a.mov(rbx, DATA)?;
            a.call(rbx)
        });
        assert_eq!(run(sandbox), exception(14, 0b10101, DATA), "mapped, but not executable");
        assert_eq!(regs(sandbox).rip, DATA);
        assert_eq!(regs(sandbox).gpr[RSP], STACK + 4088);
    });
}

#[test]
fn non_canonical_addresses_are_general_protection_faults() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.mov(rbx, 0x8000_0000_0000_0000u64)?;
            a.mov(rax, ptr(rbx))
        });
        let faulting = CODE + 10;
        assert_eq!(run(sandbox), exception(13, 0, 0));
        assert_eq!(regs(sandbox).rip, faulting);
    });
}

#[test]
fn instructions_that_fault_by_themselves() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.xor(ecx, ecx)?;
            a.mov(eax, 1)?;
            a.cdq()?;
            a.idiv(ecx)
        });
        assert_eq!(run(sandbox), exception(0, 0, 0), "division by zero");
        assert_eq!(regs(sandbox).rip, CODE + 8);

        load(sandbox, |a| {
            a.nop()?;
            a.ud2()
        });
        assert_eq!(run(sandbox), exception(6, 0, 0), "UD2");
        assert_eq!(regs(sandbox).rip, CODE + 1);

        load(sandbox, |a| {
            a.nop()?;
            a.int3()
        });
        assert_eq!(run(sandbox), exception(3, 0, 0), "INT3");
        assert_eq!(regs(sandbox).rip, CODE + 2, "behind it");
    });
}

#[test]
fn software_interrupts_are_refused_but_for_those_that_ring_3_may_raise() {
    each_engine(|sandbox| {
        for (number, expected, offset) in [
            (0x80, exception(13, 0x402, 0), 0),
            (13, exception(13, 0x6a, 0), 0),
            (3, exception(3, 0, 0), 2),
            (4, exception(4, 0, 0), 2),
        ] {
            load_bytes(sandbox, &[0xcd, number]);
            assert_eq!((run(sandbox), regs(sandbox).rip - CODE), (expected, offset), "INT {number:#x}");
        }
    });
}

#[test]
fn privileged_instructions_are_general_protection_faults_and_change_nothing() {
    // OUT to the port that the KVM engine itself uses for system calls, with nops around it; the others.
    let cases: [(&str, &[u8]); 6] = [
        ("out imm8", &[0x90, 0xe6, 0xe0, 0x90]),
        ("out dx", &[0x90, 0xee, 0x90]),
        ("in", &[0x90, 0xe4, 0x60, 0x90]),
        ("hlt", &[0x90, 0xf4, 0x90]),
        ("mov cr3", &[0x90, 0x0f, 0x20, 0xd8]),
        ("cli", &[0x90, 0xfa, 0x90]),
    ];
    each_engine(|sandbox| {
        for (name, code) in cases {
            load_bytes(sandbox, code);
            let mut before = regs(sandbox);
            before.gpr[RAX] = 0x55;
            sandbox.engine_mut().set_regs(&before).unwrap();
            assert_eq!(run(sandbox), exception(13, 0, 0), "{name}");
            assert_eq!(regs(sandbox), Regs { rip: CODE + 1, ..before }, "{name}");
            assert_eq!(run(sandbox), exception(13, 0, 0), "{name} again");
            assert_eq!(regs(sandbox), Regs { rip: CODE + 1, ..before }, "{name} again");
        }
    });
}

#[test]
fn a_withdrawn_page_is_gone_and_a_moved_one_has_its_new_content() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.mov(rbx, DATA)?;
            a.set_label(&mut again)?;
            a.mov(rax, ptr(rbx))?;
            a.syscall()?;
            a.jmp(again)
        });
        sandbox.map(DATA, &1u64.to_le_bytes(), RW).unwrap();
        assert_eq!((run(sandbox), regs(sandbox).gpr[RAX]), (Exit::Syscall, 1));
        sandbox.protect(DATA, PAGE, None).unwrap();
        assert_eq!(run(sandbox), exception(14, 0b00100, DATA), "all rights withdrawn");
        sandbox.protect(DATA, PAGE, Some(R)).unwrap();
        assert_eq!((run(sandbox), regs(sandbox).gpr[RAX]), (Exit::Syscall, 1), "content kept");
        sandbox.unmap(DATA, PAGE).unwrap();
        assert_eq!(run(sandbox), exception(14, 0b00100, DATA));
        sandbox.map(STACK + PAGE, &[9; 16], RW).unwrap();
        sandbox.map(DATA, &2u64.to_le_bytes(), R).unwrap();
        assert_eq!((run(sandbox), regs(sandbox).gpr[RAX]), (Exit::Syscall, 2), "another frame");
    });
}

#[test]
fn a_page_that_loses_its_write_right_faults_and_gets_it_back_without_a_flush() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.mov(rbx, DATA)?;
            a.set_label(&mut again)?;
            a.inc(qword_ptr(rbx))?;
            a.syscall()?;
            a.jmp(again)
        });
        assert_eq!(run(sandbox), Exit::Syscall);
        sandbox.protect(DATA, PAGE, Some(R)).unwrap();
        assert_eq!(run(sandbox), exception(14, 0b00111, DATA));
        assert_eq!(word(sandbox, DATA), 1);
        sandbox.protect(DATA, PAGE, Some(RW)).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall);
        assert_eq!(word(sandbox, DATA), 2);
    });
}

#[test]
fn code_that_the_host_rewrites_is_the_code_that_runs() {
    each_engine(|sandbox| {
        for value in [1u8, 2, 3] {
            let code = [0xb8, value, 0, 0, 0, 0x0f, 0x05];
            load_bytes(sandbox, &code);
            assert_eq!((run(sandbox), regs(sandbox).gpr[RAX]), (Exit::Syscall, value.into()));
        }
    });
}

#[test]
fn memory_is_shared_both_ways() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.mov(rbx, DATA + 4090)?;
            a.set_label(&mut again)?;
            a.mov(rax, ptr(rbx))?;
            a.add(rax, 5)?;
            a.mov(ptr(rbx), rax)?;
            a.syscall()?;
            a.jmp(again)
        });
        sandbox.map(DATA + 4096, &[0; 4096], RW).unwrap();
        for value in [100u64, 1 << 40] {
            sandbox.write(DATA + 4090, &value.to_le_bytes()).unwrap();
            assert_eq!(run(sandbox), Exit::Syscall);
            assert_eq!(word(sandbox, DATA + 4090), value + 5, "across two pages");
        }
    });
}

#[test]
fn segment_bases_and_vector_registers_are_carried() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.mov(rax, ptr(8).fs())?;
            a.mov(rdx, ptr(8).gs())?;
            a.paddq(xmm3, xmm15)?;
            a.syscall()
        });
        sandbox.write(DATA + 8, &11u64.to_le_bytes()).unwrap();
        sandbox.write(DATA + 0x108, &22u64.to_le_bytes()).unwrap();
        let mut state = sandbox.state().unwrap();
        state.regs.fs_base = DATA;
        state.regs.gs_base = DATA + 0x100;
        state.fpu.xmm[3] = [1, u64::MAX];
        state.fpu.xmm[15] = [2, 3];
        state.fpu.st[0] = (0xc000_0000_0000_0000, 0x4000);
        state.fpu.tag = 1;
        state.fpu.mxcsr = 0x1fa0;
        sandbox.load(&state).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall);
        let after = sandbox.state().unwrap();
        assert_eq!((after.regs.gpr[RAX], after.regs.gpr[2]), (11, 22));
        assert_eq!((after.regs.fs_base, after.regs.gs_base), (DATA, DATA + 0x100));
        let mut expected = state.fpu;
        expected.xmm[3] = [3, 2];
        assert_eq!(after.fpu, expected);
    });
}

#[test]
fn an_endless_loop_can_be_interrupted_and_goes_on() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.inc(rax)?;
            a.jmp(again)
        });
        let mut last = 0;
        for _ in 0..3 {
            let interrupter = sandbox.engine().interrupter();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                interrupter.interrupt();
            });
            let begun = Instant::now();
            assert_eq!(run(sandbox), Exit::Interrupted);
            assert!(begun.elapsed() < Duration::from_secs(5));
            thread.join().unwrap();
            let now = regs(sandbox).gpr[RAX];
            assert!(now > last, "no progress since {last}");
            last = now;
        }
    });
}

/// Interrupts that come at any moment of an exit must neither lose nor repeat one.
#[test]
fn no_system_call_is_lost_or_repeated_under_a_storm_of_interrupts() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.inc(rbx)?;
            a.syscall()?;
            a.jmp(again)
        });
        let stop = Arc::new(AtomicBool::new(false));
        let storm = {
            let (interrupter, stop) = (sandbox.engine().interrupter(), Arc::clone(&stop));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    interrupter.interrupt();
                    std::thread::sleep(Duration::from_micros(30));
                }
            })
        };
        let (mut calls, mut interrupts) = (0, 0);
        while calls < 3000 || interrupts < 20 {
            match run(sandbox) {
                Exit::Syscall => calls += 1,
                Exit::Interrupted => interrupts += 1,
                other => panic!("{other:?}"),
            }
            assert!(regs(sandbox).rip < CODE + 16, "rip {:#x}", regs(sandbox).rip);
            assert!([calls, calls + 1].contains(&regs(sandbox).gpr[3]), "{calls} calls");
        }
        stop.store(true, Ordering::Relaxed);
        storm.join().unwrap();
    });
}

#[test]
fn an_interrupt_before_the_run_is_not_lost() {
    each_engine(|sandbox| {
        load(sandbox, |a| a.syscall());
        sandbox.engine().interrupter().interrupt();
        assert_eq!(run(sandbox), Exit::Interrupted);
        assert_eq!(regs(sandbox).rip, CODE, "nothing ran");
        assert_eq!(run(sandbox), Exit::Syscall);
    });
}

#[test]
fn a_loop_that_dirties_memory_all_the_time_can_be_interrupted() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.set_label(&mut again)?;
            a.mov(rdi, 0x1000_0000u64)?;
            a.mov(ecx, 0x4_0000 / 8)?;
            a.rep().stosq()?;
            a.inc(rax)?;
            a.jmp(again)
        });
        sandbox.map(0x1000_0000, &vec![0; 0x4_0000], RW).unwrap();
        let interrupter = sandbox.engine().interrupter();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            interrupter.interrupt();
        });
        let begun = Instant::now();
        assert_eq!(run(sandbox), Exit::Interrupted);
        assert!(begun.elapsed() < Duration::from_secs(5));
        thread.join().unwrap();
    });
}

#[test]
fn rdtsc_is_trapped_where_the_host_can() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.rdtsc()?;
            a.syscall()
        });
        match run(sandbox) {
            Exit::MachineRead(MachineRead::Rdtsc) => assert_eq!(regs(sandbox).rip, CODE),
            // kvm_pvm ignores CR4.TSD; then nothing traps, and the personality rewrites the instruction.
            Exit::Syscall if sandbox.engine().kind() == EngineKind::Kvm => {
                assert_ne!(regs(sandbox).gpr[RAX] | regs(sandbox).gpr[2], 0);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn the_software_engine_stops_at_an_exact_count_and_kvm_says_that_it_cannot() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let mut again = a.create_label();
            a.mov(ecx, 1000)?;
            a.set_label(&mut again)?;
            a.inc(rax)?;
            a.dec(ecx)?;
            a.jnz(again)?;
            a.syscall()
        });
        if sandbox.engine().kind() == EngineKind::Kvm {
            assert!(sandbox.engine().counters().is_none());
            assert!(sandbox.run(Until::Retired(5)).is_err());
            return;
        }
        for (bound, count, offset) in [(1, 0, 5), (2, 1, 8), (4, 1, 5), (1 + 3 * 500 + 1, 501, 8)] {
            assert_eq!(sandbox.run(Until::Retired(bound)).unwrap(), Exit::Budget);
            assert_eq!(sandbox.engine().counters().unwrap().instructions, bound);
            assert_eq!((regs(sandbox).gpr[RAX], regs(sandbox).rip - CODE), (count, offset), "at {bound}");
        }
        assert_eq!(run(sandbox), Exit::Syscall);
        let counters = sandbox.engine().counters().unwrap();
        assert_eq!(counters.instructions, 1 + 3 * 1000 + 1);
        assert_eq!((counters.taken_branches, counters.conditional_branches), (999, 1000));
    });
}

#[test]
fn branch_records_are_read_back_or_their_absence_has_a_reason() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            let (mut again, mut function, mut end) = (a.create_label(), a.create_label(), a.create_label());
            a.mov(ecx, 3)?;
            a.set_label(&mut again)?;
            a.call(function)?;
            a.dec(ecx)?;
            a.jnz(again)?;
            a.jmp(end)?;
            a.set_label(&mut function)?;
            a.ret()?;
            a.set_label(&mut end)?;
            a.syscall()?;
            a.ud2()
        });
        let (again, after_call, jnz, jmp, function, end) =
            (CODE + 5, CODE + 10, CODE + 12, CODE + 14, CODE + 16, CODE + 17);
        let armed = match lbr::Armed::arm(sandbox.engine_mut(), lbr::Filter::ANY) {
            Ok(armed) => armed,
            Err(lbr::CaptureError::Unavailable(why)) if sandbox.engine().kind() == EngineKind::Kvm => {
                println!("SKIPPED on engine kvm: {why}");
                // Such a host may take the write all the same; it must not read back.
                sandbox.engine_mut().write_msrs(&[(lbr::msr::DEBUGCTL, 1)]).unwrap();
                let value = sandbox.engine_mut().read_msrs(&[lbr::msr::DEBUGCTL]).unwrap();
                assert!(matches!(value[..], [] | [0]), "{value:x?}");
                return;
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(run(sandbox), Exit::Syscall);
        assert_eq!(run(sandbox), exception(6, 0, 0));
        let trail = armed.capture(sandbox.engine_mut(), lbr::Provenance::Derived).unwrap();
        let once = [(again, function), (function, after_call), (jnz, again)];
        let mut expected = [once, once, once].concat();
        expected[8] = (jmp, end);
        let found: Vec<(u64, u64)> = trail.records.iter().map(|r| (r.from, r.to)).collect();
        assert_eq!(found, expected, "{found:x?}");

        stand_at(sandbox, end);
        let armed = lbr::Armed::arm(sandbox.engine_mut(), "0x0".parse().unwrap()).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall);
        assert_eq!(run(sandbox), exception(6, 0, 0));
        let trail = armed.capture(sandbox.engine_mut(), lbr::Provenance::Derived).unwrap();
        let ends: Vec<bool> = trail.records.iter().map(|r| r.to >> 63 != 0).collect();
        assert_eq!(ends, [false, true, false, true], "the way back from UD2, SYSCALL, back, UD2: {trail:x?}");
    });
}
