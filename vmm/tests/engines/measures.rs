//! What the processor tells of an execution: its time, its counters, its branch records.

use super::{CODE, MEMORY, RAX, each_engine, exception, load, regs, run, skipped};
use iced_x86::code_asm::*;
use lbr::{Armed, CaptureError, Filter, Provenance, Unavailable, msr};
use vmm::engine::kvm::{KvmCpu, Landing};
use vmm::engine::{self, EngineError, EngineKind, Exit, Until};
use vmm::sandbox::Sandbox;
use x86::machine::MachineRead;

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
            Exit::Syscall if sandbox.cpu().kind() == EngineKind::Kvm => {
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
        if sandbox.cpu().kind() == EngineKind::Kvm {
            assert!(sandbox.cpu().counters().is_none());
            assert!(sandbox.run(Until::Retired(5)).is_err());
            // What the processor counts, if it does, it counts like the software CPU.
            let before = sandbox.cpu().counts().conditional_branches;
            assert_eq!(run(sandbox), Exit::Syscall);
            let after = sandbox.cpu().counts().conditional_branches;
            assert_eq!(after.zip(before).map(|(after, before)| after - before), before.map(|_| 1000));
            return;
        }
        for (bound, count, offset) in [(1, 0, 5), (2, 1, 8), (4, 1, 5), (1 + 3 * 500 + 1, 501, 8)] {
            assert_eq!(sandbox.run(Until::Retired(bound)).unwrap(), Exit::Budget);
            assert_eq!(sandbox.cpu().counters().unwrap().instructions, bound);
            assert_eq!((regs(sandbox).gpr[RAX], regs(sandbox).rip - CODE), (count, offset), "at {bound}");
        }
        assert_eq!(run(sandbox), Exit::Syscall);
        let counters = sandbox.cpu().counters().unwrap();
        assert_eq!(counters.instructions, 1 + 3 * 1000 + 1);
        assert_eq!((counters.taken_branches, counters.conditional_branches), (999, 1000));
    });
}

/// Runs `body` on each engine that records branches; says why the others do not.
fn each_recording_engine(filter: Filter, body: impl Fn(&mut Sandbox, Armed)) {
    let mut soft = Sandbox::new(engine::open(EngineKind::Soft, MEMORY).unwrap()).unwrap();
    let armed = Armed::arm(soft.cpu_mut(), filter).unwrap();
    body(&mut soft, armed);
    match KvmCpu::recording(MEMORY, filter) {
        Ok((machine, Ok(armed))) => {
            body(&mut Sandbox::new(machine.any()).unwrap(), armed);
        }
        Ok((_, Err(why @ CaptureError::Unavailable(_)))) => skipped("branch records on engine kvm", &why),
        Err(why @ EngineError::KvmUnavailable { .. }) => skipped("branch records on engine kvm", &why),
        Ok((_, Err(error))) => panic!("{error}"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn branch_records_are_read_back() {
    each_recording_engine(Filter::ANY, |sandbox, armed| {
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
        assert_eq!(run(sandbox), Exit::Syscall);
        assert_eq!(run(sandbox), exception(6, 0, 0));
        let trail = armed.capture(sandbox.cpu_mut(), Provenance::Hardware).unwrap();
        let once = [(again, function), (function, after_call), (jnz, again)];
        let mut expected = [once, once, once].concat();
        expected[8] = (jmp, end);
        let found: Vec<(u64, u64)> = trail.records.iter().map(|r| (r.from, r.to)).collect();
        assert_eq!(found, expected, "{found:x?}");
    });
}

#[test]
fn the_way_to_the_kernel_and_back_is_recorded_where_the_filter_lets_it() {
    let mut sandbox = Sandbox::new(engine::open(EngineKind::Soft, MEMORY).unwrap()).unwrap();
    load(&mut sandbox, |a| {
        a.syscall()?;
        a.ud2()
    });
    let armed = Armed::arm(sandbox.cpu_mut(), Filter::EVERYTHING).unwrap();
    assert_eq!(run(&mut sandbox), Exit::Syscall);
    assert_eq!(run(&mut sandbox), exception(6, 0, 0));
    let trail = armed.capture(sandbox.cpu_mut(), Provenance::Derived).unwrap();
    let ends: Vec<bool> = trail.records.iter().map(|r| r.to >> 63 != 0).collect();
    assert_eq!(ends, [true, false, true], "SYSCALL, back, UD2: {trail:x?}");
}

/// What this host's KVM really does where it has no branch records: it refuses, or takes a write and forgets it. In no
/// case does recording seem to be on; and a vCPU that was refused it runs as any other.
#[test]
fn a_kvm_without_branch_records_says_why_and_runs_all_the_same() {
    let (machine, armed) = match KvmCpu::recording(MEMORY, Filter::ANY) {
        Err(why @ EngineError::KvmUnavailable { .. }) => {
            return skipped("branch records on engine kvm", &why);
        }
        Err(error) => panic!("{error}"),
        Ok((_, Ok(_))) => return skipped("the refusal of branch records", &"this KVM has them"),
        Ok((machine, Err(why))) => (machine, why),
    };
    let why = match armed {
        CaptureError::Unavailable(why) => why,
        other => panic!("{other}"),
    };
    println!("{why}");
    let landing = machine.cpu.landing();
    let counted = machine.cpu.counted().map(<[_]>::to_vec);
    let mut sandbox = Sandbox::new(machine.any()).unwrap();
    if landing == Landing::Ring3 {
        assert!(matches!(why, Unavailable::NotOffered(_)), "kvm_pvm has no PMU: {why:?}");
        assert!(counted.is_err(), "and the processor does not know of its guests");
    }
    // As the kernel's source has it, each register: the records are refused, the switch is taken and forgotten.
    let engine = sandbox.cpu_mut();
    for index in
        [msr::SELECT, msr::TOP, msr::FROM, msr::TO, msr::INFO, msr::ARCH_CTL, msr::AMD_DEBUG_EXTN_CTL]
    {
        assert_eq!(engine.read_msrs(&[index]).unwrap(), [0_u64; 0], "{index:#x}");
        assert_eq!(engine.write_msrs(&[(index, 0)]).unwrap(), 0, "{index:#x}");
    }
    engine.write_msrs(&[(msr::DEBUGCTL, msr::DEBUGCTL_LBR)]).unwrap();
    assert!(matches!(engine.read_msrs(&[msr::DEBUGCTL]).unwrap()[..], [] | [0]));
    assert!(matches!(
        Armed::arm(engine, Filter::ANY),
        Err(CaptureError::Unavailable(Unavailable::NoFormat | Unavailable::NoRegisters))
    ));
    load(&mut sandbox, |a| {
        a.mov(eax, 7)?;
        a.syscall()
    });
    assert_eq!((run(&mut sandbox), regs(&sandbox).gpr[RAX]), (Exit::Syscall, 7));
    if counted.is_err() {
        assert_eq!(
            sandbox.cpu().counts(),
            lbr::crumb::Counts::default(),
            "nothing counts, so nothing is said"
        );
    }
}
