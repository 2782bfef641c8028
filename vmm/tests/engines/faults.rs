//! What leaves the guest: system calls, and the exceptions of what it may not do.

use super::{
    CODE, DATA, RAX, RCX, RSP, RW, STACK, each_engine, exception, load, load_bytes, regs, run, stand_at,
};
use iced_x86::code_asm::*;
use vmm::engine::Exit;
use x86::state::Regs;

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
        sandbox.cpu_mut().set_regs(&at).unwrap();
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

/// The engine's own pages are in the upper half: a jump there is a fault, wherever it lands, but for the place to which
/// SYSCALL goes where that is in ring 3, and rcx is as SYSCALL leaves it.
#[test]
fn the_upper_half_is_no_place_for_a_program() {
    each_engine(|sandbox| {
        load_bytes(sandbox, &[0xff, 0xe0, 0x0f, 0x05]);
        let pages = [4, 10].map(|frame| 0xffff_ffff_8000_0000 + frame * 4096);
        let targets = pages.into_iter().flat_map(|page| {
            (0..4096).step_by(67).chain([0x800, 0x801, 0x810, 0x820]).map(move |at| page + at)
        });
        for target in targets.chain([0xffff_8000_0000_0000, u64::MAX - 1]) {
            for jumps in [true, false] {
                let mut before = regs(sandbox);
                (before.gpr[RAX], before.gpr[RCX]) = (target, 0x8000_0000_0000_0000);
                before.rip = if jumps { CODE } else { target };
                sandbox.cpu_mut().set_regs(&before).unwrap();
                let Exit::Exception(fault) = run(sandbox) else { panic!("{target:#x} is not a fault") };
                assert_eq!((fault.vector, fault.error_code | 1, fault.address), (14, 0b10101, target));
                assert_eq!(regs(sandbox), Regs { rip: target, ..before });
            }
        }
        let mut as_behind = regs(sandbox);
        (as_behind.rip, as_behind.gpr[RAX], as_behind.gpr[RCX]) = (CODE, pages[1] + 0x800, CODE + 4);
        sandbox.cpu_mut().set_regs(&as_behind).unwrap();
        assert!(matches!(run(sandbox), Exit::Syscall | Exit::Exception(_)));
        stand_at(sandbox, 0x8000_0000_0000_0000);
        assert_eq!(run(sandbox), exception(13, 0, 0), "no address at all");
        assert_eq!(regs(sandbox).rip, 0x8000_0000_0000_0000);
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
    let cases: [(&str, &[u8]); 7] = [
        ("outs", &[0x90, 0x6e, 0x90]),
        ("out imm8", &[0x90, 0xe6, 0xea, 0x90]),
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
            (before.gpr[RAX], before.gpr[6]) = (0x55, DATA);
            sandbox.cpu_mut().set_regs(&before).unwrap();
            assert_eq!(run(sandbox), exception(13, 0, 0), "{name}");
            assert_eq!(regs(sandbox), Regs { rip: CODE + 1, ..before }, "{name}");
            assert_eq!(run(sandbox), exception(13, 0, 0), "{name} again");
            assert_eq!(regs(sandbox), Regs { rip: CODE + 1, ..before }, "{name} again");
        }
    });
}
