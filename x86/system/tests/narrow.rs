//! Code of 32 bits: before long mode, into it, and as a part of it.

mod world;

use world::{CODE, GDT, IDT, STACK, World, selector};
use x86::interpreter::{Interpreter, Stop, Until};
use x86::state::Regs;
use x86_system::{Next, Physical, Refused, Registers, Segment, System, SystemCpu};

/// Runs what is at rip, up to so many instructions, and serves what ends a run.
struct Runner {
    interpreter: Interpreter<Physical>,
    system: System,
}

impl Runner {
    fn new(world: World, code: &[u8]) -> Runner {
        let World { mut cpu, system } = world;
        let at = usize::try_from(cpu.rip()).unwrap();
        cpu.bus_mut().ram_mut()[at..][..code.len()].copy_from_slice(code);
        Runner { interpreter: Interpreter::new(cpu), system }
    }

    fn cpu(&self) -> &SystemCpu {
        self.interpreter.cpu()
    }

    /// Until so many have retired.
    fn run(&mut self, until: u64) -> Result<(), Refused> {
        while self.cpu().retired() < until {
            let stop = self.interpreter.run(Until::retired(until), &mut ());
            if !matches!(stop, Stop::Budget) {
                let served = self.system.serve(self.interpreter.cpu_mut(), &stop, &mut world::Nowhere)?;
                assert_eq!(served, Next::Run);
            }
        }
        Ok(())
    }

    fn regs(&self) -> Regs {
        self.cpu().regs()
    }
}

/// As a boot loader leaves it.
fn before_long_mode() -> World {
    let mut world = World::new(0);
    let mut segments = [Segment::flat_32(selector::DATA, false); 6];
    segments[1] = Segment::flat_32(selector::CODE_32, true);
    let old = world.system.registers;
    let registers = Registers { cr0: 0x11, cr4: 0, efer: 0, segments, ..old };
    world.system.restore(&mut world.cpu, registers, None);
    world
}

#[test]
fn it_computes_calls_and_returns() {
    #[rustfmt::skip]
    let code = [
        0xb8, 0xff, 0xff, 0xff, 0xff,       // mov eax, -1
        0x40,                               // inc eax
        0x6a, 0xfe,                         // push -2
        0xe8, 0x03, 0x00, 0x00, 0x00,       // call f
        0x5b,                               // pop ebx
        0xeb, 0x06,                         // jmp end
        0x8b, 0x4c, 0x24, 0x04,             // f: mov ecx, [esp+4]
        0xc3,                               // ret
        0x90,
        0x9c,                               // end: pushfd
    ];
    let mut runner = Runner::new(before_long_mode(), &code);
    runner.run(9).unwrap();
    let regs = runner.regs();
    assert_eq!((regs.gpr[0], regs.gpr[1], regs.gpr[3]), (0, 0xffff_fffe, 0xffff_fffe));
    assert_eq!((regs.gpr[4], regs.rip), (STACK - 4, CODE + code.len() as u64));
}

/// The way that boot loaders' programs go: PAE, the tables, EFER.LME, CR0.PG, and a far jump to 64-bit code.
#[test]
fn it_leads_into_long_mode() {
    #[rustfmt::skip]
    let code = [
        0x0f, 0x01, 0x15, 0x00, 0x80, 0x00, 0x00, // lgdt [0x8000]
        0x0f, 0x20, 0xe0,                         // mov eax, cr4
        0x0f, 0xba, 0xe8, 0x05,                   // bts eax, 5
        0x0f, 0x22, 0xe0,                         // mov cr4, eax
        0xb8, 0x00, 0x10, 0x00, 0x00,             // mov eax, 0x1000
        0x0f, 0x22, 0xd8,                         // mov cr3, eax
        0xb9, 0x80, 0x00, 0x00, 0xc0,             // mov ecx, EFER
        0x0f, 0x32,                               // rdmsr
        0x0f, 0xba, 0xe8, 0x08,                   // bts eax, 8
        0x0f, 0x30,                               // wrmsr
        0x0f, 0x20, 0xc0,                         // mov eax, cr0
        0x0f, 0xba, 0xe8, 0x1f,                   // bts eax, 31
        0x0f, 0x22, 0xc0,                         // mov cr0, eax
        0xea, 0x37, 0x00, 0x01, 0x00, 0x08, 0x00, // jmp 0x08:0x10037
        0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, // mov rax, -1
    ];
    let mut world = before_long_mode();
    world.system.registers.gdtr = Default::default();
    // Behind the six bytes of LGDT's operand there is more.
    world.put(0x8000, GDT << 16 | 0x57 | 0xdead << 48);
    world.put(0x8008, u64::MAX);
    let mut runner = Runner::new(world, &code);
    runner.run(13).unwrap();
    let registers = runner.system.registers;
    assert!(registers.is_long() && registers.is_narrow(), "compatibility mode");
    assert_eq!((registers.gdtr.base, registers.gdtr.limit), (GDT, 0x57));
    runner.run(15).unwrap();
    assert!(!runner.system.registers.is_narrow());
    assert_eq!(runner.regs().gpr[0], u64::MAX);
}

#[test]
fn what_it_may_not_have_is_refused_by_name() {
    let refused = |prepare: fn(&mut World), code: &[u8]| {
        let mut world = before_long_mode();
        prepare(&mut world);
        Runner::new(world, code).run(1).unwrap_err().what
    };
    let paging = |world: &mut World| world.set(0, 0x8000_0011);
    assert!(refused(paging, &[0x0f, 0x22, 0xc0]).contains("without EFER.LME"));
    let short = |world: &mut World| world.put(IDT + 8 * 6, gate(CODE_32, 6, 0x5_0000));
    assert!(refused(short, &[0x0f, 0x0b]).contains("a gate of 16 bits (vector 6)"));
    let to_16_bits = |world: &mut World| world.put(IDT + 8 * 6, gate(selector::CODE, 14, 0x5_0000));
    assert!(refused(to_16_bits, &[0x0f, 0x0b]).contains("16-bit code"));
    assert!(refused(|_| {}, &[0x60]).contains("without semantics"), "pusha");
    assert!(refused(|_| {}, &[0x64, 0xa1, 0, 0, 0, 0]).contains("without semantics"), "mov eax, fs:[0]");
    assert!(refused(|_| {}, &[0x67, 0x8b, 0x07]).contains("without semantics"), "mov eax, [bx]");
    let based = |world: &mut World| {
        world.put(GDT + 0x28, 0x00cf_9300_1000_ffff);
        world.set(0, 0x28);
    };
    assert!(refused(based, &[0x8e, 0xd8]).contains("not flat"), "mov ds, ax");
}

const CODE_32: u16 = selector::CODE_32;

/// A gate of eight bytes.
fn gate(selector: u16, kind: u64, target: u64) -> u64 {
    target & 0xffff | u64::from(selector) << 16 | (0x80 | kind) << 40 | (target & 0xffff_0000) << 32
}

/// Before long mode a gate has eight bytes, a frame three words of 32 bits and an error code, and IRETD leads back.
#[test]
fn an_exception_before_long_mode_comes_through_a_gate_of_32_bits() {
    const HANDLER: u64 = 0x5_0000;
    for (kind, keeps_interrupts) in [(14, false), (15, true)] {
        let mut world = before_long_mode();
        for vector in [6, 13, 0x30] {
            world.put(IDT + 8 * vector, gate(CODE_32, kind, HANDLER + 16 * vector));
        }
        let ram = world.cpu.bus_mut().ram_mut();
        // add dword [esp], 2; iretd: behind UD2. pop ecx; pop eax: the error code, and rip.
        ram[0x5_0060..][..5].copy_from_slice(&[0x83, 0x04, 0x24, 0x02, 0xcf]);
        ram[0x5_00d0..][..4].copy_from_slice(&[0x59, 0x58, 0x90, 0x90]);
        ram[0x5_0300] = 0xcf;
        #[rustfmt::skip]
        let code = [
            0x0f, 0x0b,                   // ud2
            0xfb,                         // sti
            0xcd, 0x30,                   // int 0x30
            0xfa,                         // cli
            0xb8, 0x58, 0x00, 0x00, 0x00, // mov eax, a selector behind the table
            0x8e, 0xd8,                   // mov ds, ax
        ];
        let mut runner = Runner::new(world, &code);
        // UD2 does not retire, its handler's two do.
        runner.run(2).unwrap();
        assert_eq!((runner.regs().rip, runner.regs().gpr[4]), (CODE + 2, STACK));
        runner.run(4).unwrap();
        assert_eq!((runner.regs().rip, runner.regs().gpr[4]), (HANDLER + 16 * 0x30, STACK - 12));
        assert_eq!(runner.regs().rflags & 0x200 != 0, keeps_interrupts);
        runner.run(7).unwrap();
        assert_eq!((runner.regs().rip, runner.regs().rflags & 0x200), (CODE + 11, 0));
        runner.run(9).unwrap();
        let regs = runner.regs();
        assert_eq!((regs.gpr[1], regs.gpr[0], regs.gpr[4]), (0x58, CODE + 11, STACK - 8), "code, rip, rsp");
        assert_eq!(runner.system.delivered, 3);
    }
}

/// Without a table there is no handler, nor one for that: the processor shuts down, as in long mode.
#[test]
fn an_exception_without_a_table_is_a_triple_fault() {
    let mut world = before_long_mode();
    world.system.registers.idtr = Default::default();
    let mut runner = Runner::new(world, &[0x0f, 0x0b]);
    let stop = runner.interpreter.run(Until::retired(1), &mut ());
    let served = runner.system.serve(runner.interpreter.cpu_mut(), &stop, &mut world::Nowhere);
    assert_eq!(served.map_err(|refused| refused.what), Ok(Next::Shutdown));
    assert_eq!(runner.regs().rip, CODE);
}

#[test]
fn an_exception_of_32_bit_code_in_long_mode_comes_through_the_idt() {
    let mut world = World::new(0);
    world.system.registers.segments = [Segment::flat_32(selector::DATA, false); 6];
    world.system.registers.segments[1] = Segment::flat_32(selector::CODE_32, true);
    let registers = world.system.registers;
    world.set(0, u64::MAX);
    world.system.restore(&mut world.cpu, registers, None);
    assert_eq!(world.cpu.regs().gpr[0], 0xffff_ffff, "the upper halves are gone");
    assert_eq!(registers.idtr.base, IDT);
    let mut runner = Runner::new(world, &[0x0f, 0x0b]);
    let stop = runner.interpreter.run(Until::retired(1), &mut ());
    runner.system.serve(runner.interpreter.cpu_mut(), &stop, &mut world::Nowhere).unwrap();
    assert!(!runner.system.registers.is_narrow());
    assert_eq!(runner.regs().rip, world::HANDLERS + 6);
    // Back by IRETQ: the frame has the selector of 32-bit code.
    let handler = usize::try_from(runner.regs().rip).unwrap();
    runner.interpreter.cpu_mut().bus_mut().ram_mut()[handler..][..2].copy_from_slice(&[0x48, 0xcf]);
    runner.run(1).unwrap();
    assert!(runner.system.registers.is_narrow());
    assert_eq!(runner.regs().rip, CODE);
}
