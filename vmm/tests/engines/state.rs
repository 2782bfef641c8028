//! Memory and registers: what the host writes is what the guest sees, at once, and the other way round.

use super::{DATA, R, RAX, RSP, RW, STACK, each_engine, exception, load, load_bytes, regs, run, word};
use iced_x86::code_asm::*;
use vmm::engine::Exit;
use vmm::ram::PAGE;
use x86::state::Regs;

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
        state.fpu.set_xmm(3, [1, u64::MAX]);
        state.fpu.set_xmm(15, [2, 3]);
        state.fpu.st[0] = (0xc000_0000_0000_0000, 0x4000);
        state.fpu.tag = 1;
        state.fpu.mxcsr = 0x1fa0;
        sandbox.load(&state).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall);
        let after = sandbox.state().unwrap();
        assert_eq!((after.regs.gpr[RAX], after.regs.gpr[2]), (11, 22));
        assert_eq!((after.regs.fs_base, after.regs.gs_base), (DATA, DATA + 0x100));
        let mut expected = state.fpu;
        expected.set_xmm(3, [3, 2]);
        assert_eq!(after.fpu, expected);
    });
}

#[test]
fn segment_registers_take_what_linux_gives_them() {
    each_engine(|sandbox| {
        load(sandbox, |a| {
            a.mov(r8d, ds)?;
            a.mov(r9d, es)?;
            a.mov(r10d, fs)?;
            a.mov(r12d, gs)?;
            a.mov(r13d, ss)?;
            a.xor(eax, eax)?;
            a.mov(ds, ax)?;
            a.mov(es, eax)?;
            a.mov(gs, rax)?;
            a.mov(word_ptr(DATA), 0)?;
            a.mov(fs, word_ptr(DATA))?;
            a.push(0x2b)?;
            a.pop(rcx)?;
            a.mov(ss, ecx)?;
            a.push(0)?;
            a.pop(gs)?;
            a.syscall()
        });
        let start = Regs { fs_base: 0x1000, gs_base: 0x2000, ..regs(sandbox) };
        sandbox.cpu_mut().set_regs(&start).unwrap();
        assert_eq!(run(sandbox), Exit::Syscall);
        let end = regs(sandbox);
        assert_eq!((end.fs_base, end.gs_base, end.gpr[RSP]), (0, 0, start.gpr[RSP]));
        assert_eq!([8, 9, 10, 12, 13].map(|register| end.gpr[register]), [0, 0, 0, 0, 0x2b], "selectors");
    });
}
