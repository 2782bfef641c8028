//! The run loop: exact stops, counting, faults, self-modifying code.

use iced_x86::code_asm::*;
use x86::bus::{Bus, PAGE_SIZE, PageFault};
use x86::cpu::Cpu;
use x86::flat::{Flat, Protection};
use x86::interpreter::{Counters, Interpreter, Observer, Stop, Until};
use x86::machine::{MachineRead, Trap};
use x86::op::BranchKind;
use x86::state::{MxcsrMask, Regs};

const CODE: u64 = 0x40_0000;
const DATA: u64 = 0x50_0000;
const STACK: u64 = 0x70_0000;

type Assembled = Result<(), IcedError>;

/// A CPU with `code` at [`CODE`], two pages of data and one of stack, rip and rsp set.
fn machine(protection: Protection, code: impl FnOnce(&mut CodeAssembler) -> Assembled) -> Interpreter<Flat> {
    let mut a = CodeAssembler::new(64).unwrap();
    code(&mut a).unwrap();
    let mut memory = Flat::new();
    memory.map(CODE, &a.assemble(CODE).unwrap(), protection);
    memory.map(DATA, &[0; 8192], Protection::DATA);
    memory.map(STACK - PAGE_SIZE, &[0; 4096], Protection::DATA);
    let mut cpu = Cpu::new(memory);
    let mut regs = Regs { rip: CODE, rflags: 0x202, ..Regs::default() };
    regs.gpr[4] = STACK;
    cpu.set_regs(&regs);
    Interpreter::new(cpu)
}

#[derive(Default)]
struct Trail(Vec<(u64, u64, BranchKind)>);

impl Observer for Trail {
    fn branch(&mut self, from: u64, to: u64, kind: BranchKind) {
        self.0.push((from, to, kind));
    }
}

fn countdown(a: &mut CodeAssembler) -> Assembled {
    let mut again = a.create_label();
    a.mov(ecx, 5)?;
    a.set_label(&mut again)?;
    a.lea(rax, qword_ptr(rax + rcx * 2 + 1))?;
    a.dec(ecx)?;
    a.jne(again)?;
    a.syscall()
}

#[test]
fn a_run_stops_exactly_at_its_bound_and_goes_on_to_the_same_end() {
    let mut whole = machine(Protection::CODE, countdown);
    assert!(matches!(whole.run(Until::EVENT, &mut ()), Stop::Syscall));
    assert_eq!(whole.counters(), Counters { instructions: 17, taken: 4, conditionals: 5 });
    assert_eq!(whole.cpu().regs().gpr[0], 2 * 15 + 5);
    for bound in 0..17 {
        let mut parts = machine(Protection::CODE, countdown);
        assert!(matches!(parts.run(Until::retired(bound), &mut ()), Stop::Budget));
        assert_eq!(parts.counters().instructions, bound);
        let mut steps = machine(Protection::CODE, countdown);
        for _ in 0..bound {
            assert!(steps.step(&mut ()).is_none());
        }
        assert_eq!(steps.cpu().regs(), parts.cpu().regs(), "after {bound}");
        assert!(matches!(parts.run(Until::EVENT, &mut ()), Stop::Syscall));
        assert_eq!((parts.cpu().regs(), parts.counters()), (whole.cpu().regs(), whole.counters()));
    }
}

#[test]
fn taken_branches_are_reported_with_their_kind() {
    let mut m = machine(Protection::CODE, |a| {
        let (mut f, mut skip) = (a.create_label(), a.create_label());
        a.call(f)?;
        a.lea(rax, ptr(skip))?;
        a.jmp(rax)?;
        a.set_label(&mut f)?;
        a.ret()?;
        a.set_label(&mut skip)?;
        a.test(eax, eax)?;
        a.je(f)?;
        a.syscall()
    });
    let mut trail = Trail::default();
    assert!(matches!(m.run(Until::EVENT, &mut trail), Stop::Syscall));
    let kinds: Vec<_> = trail.0.iter().map(|b| b.2).collect();
    assert_eq!(kinds, [BranchKind::RelativeCall, BranchKind::Return, BranchKind::IndirectJump]);
    assert_eq!(trail.0[0].0, CODE);
    assert_eq!(trail.0[1].1, CODE + 5, "back behind the call");
    assert_eq!((m.counters().taken, m.counters().conditionals), (3, 1));
}

#[test]
fn a_fault_in_a_string_instruction_lands_between_two_iterations() {
    let mut m = machine(Protection::CODE, |a| {
        a.mov(rdi, DATA + 2 * PAGE_SIZE - 40)?;
        a.mov(rsi, DATA)?;
        a.mov(ecx, 100)?;
        a.rep().movsb()?;
        a.syscall()
    });
    let Stop::Trap { trap: Trap::Page, at } = m.run(Until::EVENT, &mut ()) else { panic!("no page fault") };
    let regs = m.cpu().regs();
    assert_eq!((regs.rip, regs.gpr[1], regs.gpr[7]), (at, 60, DATA + 2 * PAGE_SIZE));
    assert_eq!(m.counters().instructions, 3, "the string instruction has not retired");
    assert_eq!(m.cpu().last_page_fault().unwrap().address, DATA + 2 * PAGE_SIZE);
    m.cpu_mut().bus_mut().map(DATA + 2 * PAGE_SIZE, &[1; 4096], Protection::DATA);
    assert!(matches!(m.run(Until::retired(4), &mut ()), Stop::Budget));
    assert_eq!(m.cpu().regs().gpr[1], 0);
    assert_eq!(m.counters().instructions, 4, "it counts once");
}

#[test]
fn a_store_into_its_own_block_is_seen_by_the_next_instruction() {
    let mut m = machine(Protection::ALL, |a| {
        let mut patched = a.create_label();
        a.lea(rdi, ptr(patched))?;
        a.mov(byte_ptr(rdi + 1), 7)?;
        a.set_label(&mut patched)?;
        a.mov(eax, 1)?;
        a.syscall()
    });
    for _ in 0..2 {
        m.cpu_mut().set_rip(CODE);
        assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
        assert_eq!(m.cpu().regs().gpr[0], 7);
    }
    assert_eq!(m.counters().instructions, 8);
}

/// A Xeon (family 6, model 207) does the same, for as many elements as here.
#[test]
fn a_string_instruction_that_stores_into_itself_is_fetched_again() {
    const NOP: u32 = 0x90;
    // F3 AA: up, the prefix goes first, and the STOSB that is left stores once; down, F3 90 is left, which is PAUSE.
    for (down, first, retired, left) in [(false, -3_i64, 6, 96), (true, 1, 5, 99)] {
        let mut m = machine(Protection::ALL, |a| {
            let mut string = a.create_label();
            a.lea(rdi, ptr(string))?;
            a.mov(ecx, 100)?;
            a.mov(eax, NOP)?;
            a.set_label(&mut string)?;
            a.rep().stosb()?;
            a.syscall()
        });
        assert!(matches!(m.run(Until::retired(3), &mut ()), Stop::Budget));
        let mut regs = m.cpu().regs();
        regs.gpr[7] = regs.gpr[7].wrapping_add_signed(first);
        regs.rflags |= u64::from(down) << 10;
        m.cpu_mut().set_regs(&regs);
        assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall), "down: {down}");
        assert_eq!((m.counters().instructions, m.cpu().regs().gpr[1]), (retired, left), "down: {down}");
    }
}

#[test]
fn code_that_another_hand_rewrites_or_remaps_is_decoded_again() {
    let mut m = machine(Protection::CODE, |a| {
        a.mov(eax, 1)?;
        a.syscall()
    });
    m.run(Until::EVENT, &mut ());
    let at = m.cpu().bus().offset(CODE + 1).unwrap();
    m.cpu_mut().bus_mut().ram_mut()[usize::try_from(at).unwrap()] = 9;
    m.cpu_mut().written(at, 1);
    m.cpu_mut().set_rip(CODE);
    m.run(Until::EVENT, &mut ());
    assert_eq!(m.cpu().regs().gpr[0], 9);
    m.cpu_mut().bus_mut().map(CODE, &[0xb8, 5, 0, 0, 0, 0x0f, 0x05], Protection::CODE);
    m.cpu_mut().invalidate_page(CODE);
    m.cpu_mut().set_rip(CODE);
    m.run(Until::EVENT, &mut ());
    assert_eq!(m.cpu().regs().gpr[0], 5);
}

#[test]
fn pages_that_come_and_go_are_nothing_to_code_elsewhere() {
    let mut m = machine(Protection::CODE, |a| {
        a.mov(rax, qword_ptr(DATA))?;
        a.syscall()
    });
    let run = |m: &mut Interpreter<Flat>| {
        m.cpu_mut().set_rip(CODE);
        m.run(Until::EVENT, &mut ())
    };
    run(&mut m);
    let epoch = m.cpu().code_epoch();
    m.cpu_mut().bus_mut().unmap(DATA);
    m.cpu_mut().invalidate_page(DATA);
    assert!(matches!(run(&mut m), Stop::Trap { trap: Trap::Page, .. }));
    m.cpu_mut().bus_mut().map(DATA, &[7], Protection::DATA);
    m.cpu_mut().invalidate_page(DATA);
    run(&mut m);
    assert_eq!((m.cpu().regs().gpr[0], m.cpu().code_epoch()), (7, epoch));
    m.cpu_mut().invalidate_page(CODE);
    assert_ne!(m.cpu().code_epoch(), epoch);
    m.cpu_mut().bus_mut().unmap(CODE);
    m.cpu_mut().invalidate_page(CODE);
    assert!(matches!(run(&mut m), Stop::Trap { trap: Trap::Page, at: CODE, .. }));
}

#[test]
fn traps_leave_rip_where_linux_shows_it() {
    let mut m = machine(Protection::CODE, |a| {
        a.nop()?;
        a.int3()?;
        a.ud2()
    });
    assert!(
        matches!(m.run(Until::EVENT, &mut ()), Stop::Trap { trap: Trap::Breakpoint, at } if at == CODE + 1)
    );
    assert_eq!((m.cpu().rip(), m.counters().instructions), (CODE + 2, 2));
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Trap { trap: Trap::Undefined, .. }));
    assert_eq!((m.cpu().rip(), m.counters().instructions), (CODE + 2, 2));
}

#[test]
fn fetches_fault_where_the_bytes_are_missing() {
    // `mov eax, imm32` whose immediate is in the next page.
    let mut memory = Flat::new();
    let mut page = vec![0x90; 4096];
    page[4094] = 0xb8;
    memory.map(CODE, &page, Protection::CODE);
    let mut cpu = Cpu::new(memory);
    cpu.set_rip(CODE + 4090);
    let mut m = Interpreter::new(cpu);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Trap { trap: Trap::Page, at } if at == CODE + 4094));
    let fault = m.cpu().last_page_fault().unwrap();
    assert_eq!((fault.address, fault.error_code), (CODE + PAGE_SIZE, 0x14));
    m.cpu_mut().bus_mut().map(CODE + PAGE_SIZE, &[1, 2, 3, 0x0f, 0x05], Protection::CODE);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
    assert_eq!(m.cpu().regs().gpr[0], 0x0302_0190);
    m.cpu_mut().set_rip(0x1234_5678_0000_0000);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Trap { trap: Trap::General, .. }));
}

#[test]
fn stores_across_pages_are_all_or_nothing() {
    let mut m = machine(Protection::CODE, |a| {
        a.mov(qword_ptr(rdi), rax)?;
        a.syscall()
    });
    let mut regs = m.cpu().regs();
    regs.gpr[0] = u64::MAX;
    regs.gpr[7] = DATA + 2 * PAGE_SIZE - 3;
    m.cpu_mut().set_regs(&regs);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Trap { trap: Trap::Page, .. }));
    assert_eq!(m.cpu().bus().byte(regs.gpr[7]), Some(0));
    assert_eq!(m.cpu().last_page_fault().unwrap().address, DATA + 2 * PAGE_SIZE);
    regs.gpr[7] = DATA + PAGE_SIZE - 3;
    m.cpu_mut().set_regs(&regs);
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
    assert_eq!(m.cpu().bus().byte(DATA + PAGE_SIZE + 4), Some(0xff));
    assert_eq!(m.cpu().bus().byte(DATA + PAGE_SIZE + 5), Some(0));
}

#[test]
fn machine_reads_stop_behind_the_instruction_and_are_supplied() {
    let mut m = machine(Protection::CODE, |a| {
        a.rdtsc()?;
        a.syscall()
    });
    let Stop::MachineRead { read: MachineRead::Rdtsc, op } = m.run(Until::EVENT, &mut ()) else {
        panic!("rdtsc does not stop")
    };
    x86::sem::system::supply(m.cpu_mut(), &op, MachineRead::Rdtsc, [3, 4, 0, 0]).unwrap();
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
    let regs = m.cpu().regs();
    assert_eq!((regs.gpr[0], regs.gpr[2]), (3, 4));
}

#[test]
fn an_instruction_without_semantics_is_named_by_its_bytes() {
    let mut m = machine(Protection::CODE, |a| a.lar(eax, ecx));
    let Stop::NoSemantics { at, bytes } = m.run(Until::EVENT, &mut ()) else {
        panic!("LAR has no semantics")
    };
    assert_eq!((at, bytes.as_slice()), (CODE, &[0x0f, 0x02, 0xc1][..]));
}

/// What one way to run a string instruction left: registers, both pages and a half, and the trap if there was one.
type StringOutcome = (Regs, Vec<u8>, Option<(Trap, Option<PageFault>)>);

/// Runs the string instruction `code` with these places and this count over [`DATA`], three pages of which the last may not be
/// written, up or `down`, with a prefix (`rep`) or as one without a prefix for each iteration. The source is in FS.
fn string_instruction(
    code: &[u8],
    rep: Option<u8>,
    [source, target, count]: [u64; 3],
    down: bool,
) -> StringOutcome {
    let bytes: Vec<u8> = (0..4096_u32).map(|n| if n % 97 == 96 { 9 } else { 7 }).collect();
    let mut memory = Flat::new();
    memory.map(CODE, &[rep.as_slice(), &[0x64], code, &[0x0f, 0x05]].concat(), Protection::CODE);
    memory.map(DATA, &bytes, Protection::DATA);
    memory.map(DATA + PAGE_SIZE, &bytes, Protection::DATA);
    memory.map(DATA + 2 * PAGE_SIZE, &bytes, Protection::READ);
    let rflags = if down { 0x602 } else { 0x202 };
    let mut regs = Regs { rip: CODE, rflags, fs_base: 0x1000, ..Regs::default() };
    (regs.gpr[0], regs.gpr[1], regs.gpr[6], regs.gpr[7]) =
        (0x0707_0707_0707_0709, count, DATA + source - 0x1000, DATA + target);
    let mut cpu = Cpu::new(memory);
    cpu.set_regs(&regs);
    let mut m = Interpreter::new(cpu);
    let mut trap = None;
    loop {
        let left = m.cpu().regs().gpr[1];
        let stop = if left == 0 && rep.is_none() { None } else { m.step(&mut ()) };
        if let Some(Stop::Trap { trap: t, .. }) = stop {
            trap = Some((t, m.cpu().last_page_fault()));
            break;
        }
        if rep.is_some() || left == 0 {
            break;
        }
        let mut regs = m.cpu().regs();
        regs.rip = CODE;
        regs.gpr[1] -= 1;
        let compares = matches!(code.last(), Some(0xa6 | 0xa7 | 0xae | 0xaf));
        let equal = regs.rflags >> 6 & 1 != 0;
        m.cpu_mut().set_regs(&regs);
        if compares && !equal {
            break;
        }
    }
    let mut regs = m.cpu().regs();
    regs.rip = 0;
    if trap.is_some() {
        regs.rflags = 0; // restored under a prefix, those of the iteration before without one
    }
    let memory = (DATA..DATA + 3 * PAGE_SIZE).map(|va| m.cpu().bus().byte(va).unwrap()).collect();
    (regs, memory, trap)
}

/// The software CPU does many iterations at once. Whatever it takes together, the outcome is that of one at a time.
#[test]
fn repeated_string_instructions_do_what_their_iterations_do() {
    let elements: [&[u8]; 4] = [&[0xa4], &[0x66, 0xa5], &[0xa5], &[0x48, 0xa5]];
    let of_family = |offset: u8| elements.map(|e| [&e[..e.len() - 1], &[e[e.len() - 1] + offset]].concat());
    let mut traps = 0;
    // MOVS, CMPS, STOS, SCAS: the opcodes A4, A6, AA and AE.
    for code in [0, 2, 6, 10].into_iter().flat_map(of_family) {
        for [source, target] in
            [[0, 5000], [5000, 3], [100, 108], [108, 100], [64, 64], [4090, 4001], [1, 8191], [9000, 8100]]
        {
            for (count, down) in
                [0, 1, 2, 7, 100, 700, 3000].into_iter().flat_map(|n| [(n, false), (n, true)])
            {
                let whole = string_instruction(&code, Some(0xf3), [source, target, count], down);
                let parts = string_instruction(&code, None, [source, target, count], down);
                traps += u32::from(whole.2.is_some());
                assert!(
                    whole == parts,
                    "{code:x?} {source} {target} {count} {down}: {:x?}, one by one {:x?}",
                    whole.0,
                    parts.0
                );
            }
        }
    }
    assert!(traps > 10, "only {traps} ran into the page that may not be written");
}

/// REPNE SCASB finds a byte beyond a page boundary, and stops behind it.
#[test]
fn a_search_goes_on_in_the_next_page() {
    let mut m = machine(Protection::CODE, |a| {
        a.mov(rdi, DATA)?;
        a.mov(ecx, -1)?;
        a.mov(eax, 5)?;
        a.repne().scasb()?;
        a.syscall()
    });
    assert!(m.cpu_mut().bus_mut().set_byte(DATA + 5000, 5));
    assert!(matches!(m.run(Until::EVENT, &mut ()), Stop::Syscall));
    assert_eq!(m.cpu().regs().gpr[7], DATA + 5001);
    assert_eq!(m.cpu().regs().rflags >> 6 & 1, 1, "ZF: found");
    assert_eq!(m.counters().instructions, 5);
}

/// AMD's processors tell of bit 17 (APM vol. 1, 4.2.2); the image has the mask at 28 (Intel SDM vol. 1, 10.5.1).
#[test]
fn fxsave_stores_the_mask_that_it_was_told() {
    let save = |a: &mut CodeAssembler| {
        a.mov(edi, u32::try_from(DATA).unwrap())?;
        a.fxsave(byte_ptr(rdi))?;
        a.mov(eax, dword_ptr(rdi + 28))?;
        a.syscall()
    };
    for mask in [None, Some(0x2_ffff)] {
        let mut machine = machine(Protection::CODE, save);
        mask.into_iter().for_each(|mask| machine.cpu_mut().set_mxcsr_mask(MxcsrMask(mask)));
        assert!(matches!(machine.run(Until::EVENT, &mut ()), Stop::Syscall));
        assert_eq!(machine.cpu().regs().gpr[0], mask.unwrap_or(0xffff).into());
    }
}

#[test]
fn string_instructions_count_by_what_they_repeat() {
    // With 32-bit addresses ecx counts, and the upper half of rcx becomes zero.
    let addr32_rep_stosb = [0x67, 0xf3, 0xaa];
    let mut machine = machine(Protection::CODE, |a| {
        a.mov(rcx, 0xffff_ffff_0000_0010_u64)?;
        a.mov(edi, i32::try_from(DATA).unwrap())?;
        a.db(&addr32_rep_stosb)?;
        a.nop()?;
        a.mov(ecx, 40)?;
        a.rep().stosb()?;
        a.syscall()
    });
    machine.cpu_mut().allow_strings(56);
    assert!(matches!(machine.run(Until::retired(4), &mut ()), Stop::Budget));
    assert!(!machine.cpu().strings_are_over(), "sixteen bytes of 56");
    assert_eq!(machine.cpu().regs().gpr[1], 0);
    assert!(matches!(machine.run(Until::retired(6), &mut ()), Stop::Budget));
    assert!(machine.cpu().strings_are_over());
}
