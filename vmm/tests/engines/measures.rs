//! What the processor tells of an execution: its time, its counters, its branch records.

use super::{CODE, RAX, each_engine, exception, load, regs, run, skipped, stand_at};
use iced_x86::code_asm::*;
use vmm::engine::{EngineKind, Exit, Until};
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
                skipped("branch records on engine kvm", &why);
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
