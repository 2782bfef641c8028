//! Interrupts from another thread: none is lost, and no exit is lost or repeated for one.

use super::{CODE, RAX, RW, each_engine, load, regs, run};
use iced_x86::code_asm::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use vmm::engine::Exit;

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
            let interrupter = sandbox.cpu().interrupter();
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
            let (interrupter, stop) = (sandbox.cpu().interrupter(), Arc::clone(&stop));
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
        sandbox.cpu().interrupter().interrupt();
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
        let interrupter = sandbox.cpu().interrupter();
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
