//! Exceptions and interrupts through the IDT, and the way back.

mod world;

use world::{CODE, IST1, RSP0, STACK, World, selector};
use x86::interpreter::Stop;
use x86::machine::Trap;
use x86_system::Next;

/// RFLAGS.RF, in the image of a fault.
const RF: u64 = 1 << 16;
const IRETQ: [u8; 2] = [0x48, 0xcf];

#[test]
fn an_interrupt_of_a_program_changes_the_stack_and_returns() {
    let mut world = World::new(3);
    let before = (world.cpu.regs(), world.system.registers);
    world.system.interrupt(&mut world.cpu, 0x31).unwrap();
    assert_eq!(world.handled(), Some(0x31));
    let [rip, cs, rflags, rsp, ss] = world.stack();
    assert_eq!((rip, rflags, rsp), (CODE, 0x202, STACK));
    assert_eq!([cs, ss], [selector::USER_CODE, selector::USER_DATA].map(u64::from));
    assert_eq!(world.cpu.regs().gpr[4], RSP0 - 40);
    assert_eq!((world.system.registers.privilege, world.cpu.regs().rflags), (0, 2), "interrupts are off");
    assert_eq!(world.system.registers.segments[2].selector, 0, "SS is null in ring 0");
    assert_eq!(world.execute(&IRETQ), Ok(Next::Run));
    assert_eq!(world.cpu.regs(), before.0);
    let now = world.system.registers;
    assert_eq!((now.privilege, now.segments[1].selector), (3, selector::USER_CODE));
    assert_eq!(now.segments[3].selector, 0, "DS of ring 0 is taken away");
}

#[test]
fn a_fault_pushes_its_code_and_is_run_again() {
    let mut world = World::new(0);
    world.set(4, STACK + 8);
    world.trap(Trap::General).unwrap();
    let [code, rip, cs, rflags, rsp, ss] = world.stack();
    assert_eq!((code, rip, rflags, rsp), (0, CODE, 0x202 | RF, STACK + 8));
    assert_eq!([cs, ss], [selector::CODE, selector::DATA].map(u64::from));
    assert_eq!(world.cpu.regs().gpr[4], STACK - 48, "the frame is aligned to 16 bytes");
}

#[test]
fn an_interrupt_stack_is_taken_at_any_level() {
    let mut world = World::new(0);
    world.gate(2, 0x8e01, selector::CODE);
    world.system.interrupt(&mut world.cpu, 2).unwrap();
    assert_eq!(world.cpu.regs().gpr[4], IST1 - 40);
}

#[test]
fn a_trap_gate_leaves_interrupts_on() {
    let mut world = World::new(0);
    world.gate(3, 0x8f00, selector::CODE);
    world.trap(Trap::Breakpoint).unwrap();
    assert_eq!((world.handled(), world.cpu.regs().rflags), (Some(3), 0x202));
}

#[test]
fn a_fault_without_a_way_is_another_one_and_then_the_end() {
    let absent =
        |world: &mut World, vectors: &[u8]| vectors.iter().for_each(|vector| world.gate(*vector, 0x0e00, 8));
    let mut world = World::new(0);
    absent(&mut world, &[6]);
    world.trap(Trap::Undefined).unwrap();
    assert_eq!((world.handled(), world.stack::<1>()[0]), (Some(11), 6 * 8 + 3), "#NP with the vector");
    let mut world = World::new(0);
    absent(&mut world, &[13]);
    world.trap(Trap::General).unwrap();
    assert_eq!(
        (world.handled(), world.stack::<1>()[0]),
        (Some(8), 0),
        "#NP on the way of #GP is a double fault"
    );
    let mut world = World::new(0);
    absent(&mut world, &[13, 8]);
    assert_eq!(world.trap(Trap::General), Ok(Next::Shutdown));
}

#[test]
fn a_stack_that_is_not_there_is_a_double_fault_on_its_own_stack() {
    let mut world = World::new(0);
    world.set(4, 0x4000_0000);
    world.gate(8, 0x8e01, selector::CODE);
    // #DE and then #PF are served one after the other; the second #PF, on the way of the first, is the double fault.
    world.trap(Trap::Divide).unwrap();
    assert_eq!((world.handled(), world.stack::<1>()[0]), (Some(8), 0));
    assert_eq!((world.cpu.regs().gpr[4], world.system.registers.cr2), (IST1 - 48, 0x3fff_fff8));
}

#[test]
fn software_interrupts_ask_the_gate_for_its_level() {
    let int_20 = [0xcd, 0x20];
    assert_eq!(World::exception(3, |_| {}, &int_20), Some((13, Some(0x20 * 8 + 2))));
    let mut world = World::new(3);
    world.gate(0x20, 0xee00, selector::CODE);
    world.execute(&int_20).unwrap();
    assert_eq!((world.handled(), world.stack::<1>()[0]), (Some(0x20), CODE + 2), "behind the instruction");
    assert_eq!(world.cpu.retired(), 1);
}

#[test]
fn a_handler_of_32_bits_is_no_handler() {
    let mut world = World::new(0);
    world.gate(6, 0x8e00, selector::CODE_32);
    world.trap(Trap::Undefined).unwrap();
    assert_eq!((world.handled(), world.stack::<1>()[0]), (Some(13), u64::from(selector::CODE_32) | 1));
}

#[test]
fn page_faults_write_cr2() {
    let mut world = World::new(0);
    world.set(4, 0x1234_5678);
    world.gate(14, 0x8e01, selector::CODE);
    world.execute(&IRETQ).unwrap();
    assert_eq!(
        (world.handled(), world.stack::<1>()[0]),
        (Some(14), 0),
        "a load by the kernel of what is absent"
    );
    assert_eq!(world.system.registers.cr2, 0x1234_5678);
}

#[test]
fn iret_refuses_what_is_no_return() {
    let frame = |cs: u16, ss: u16, rip: u64| {
        move |world: &mut World| {
            for (n, word) in (0..).zip([rip, cs.into(), 0x202, STACK, ss.into()]) {
                world.put(STACK + 8 * n, word);
            }
        }
    };
    let general = |selector: u16| Some((13, Some(u64::from(selector & !3))));
    let (user, data) = (selector::USER_CODE, selector::USER_DATA);
    let cases = [
        (0, frame(user, data, CODE), None),
        (0, frame(0, data, CODE), general(0)),
        (0, frame(selector::DATA, 0, CODE), general(selector::DATA)),
        (0, frame(selector::BEHIND, 0, CODE), general(selector::BEHIND)),
        (0, frame(user, 0, CODE), general(0)),
        (0, frame(user, selector::READ_ONLY, CODE), general(selector::READ_ONLY)),
        (0, frame(user, data, 1 << 50), general(0)),
        (3, frame(selector::CODE, selector::DATA, CODE), general(selector::CODE)),
    ];
    for (n, (level, prepare, expected)) in cases.into_iter().enumerate() {
        assert_eq!(World::exception(level, prepare, &IRETQ), expected, "case {n}");
    }
    let mut world = World::new(0);
    frame(selector::CODE_32, 0, CODE)(&mut world);
    world.execute(&IRETQ).unwrap();
    assert_eq!(world.handled(), Some(13), "32-bit code has a stack segment");
}

/// What fails in the delivery of INT n is a fault of that instruction, which runs again behind the handler.
#[test]
fn an_interrupt_by_software_that_fails_has_not_happened() {
    for (bytes, stop) in
        [(&[0xcd, 0x03][..], Stop::System), (&[0xcc], Stop::Trap { trap: Trap::Breakpoint, at: CODE })]
    {
        let mut world = World::new(0);
        world.gate(3, 0x0e00, selector::CODE);
        world.cpu.bus_mut().ram_mut()[0x1_0000..][..bytes.len()].copy_from_slice(bytes);
        if bytes.len() == 1 {
            // As the interpreter leaves it.
            world.cpu.set_rip(CODE + 1);
            world.cpu.retire(1);
        }
        world.serve(&stop).unwrap();
        let [code, rip] = world.stack::<2>();
        assert_eq!((world.handled(), code, rip), (Some(11), 3 << 3 | 2, CODE), "{bytes:02x?}");
        assert_eq!((world.cpu.retired(), world.system.delivered), (0, 1));
    }
}

#[test]
fn an_nmi_waits_for_the_iret_of_the_one_before() {
    let mut world = World::new(0);
    assert!(world.system.takes_nmi(&world.cpu));
    world.system.nmi(&mut world.cpu).unwrap();
    assert_eq!((world.handled(), world.system.takes_nmi(&world.cpu)), (Some(2), false));
    world.execute(&IRETQ).unwrap();
    assert!(world.system.takes_nmi(&world.cpu));
    assert_eq!(world.cpu.rip(), CODE);
}

/// Who looks at what an instruction raises has it noted, and nothing else changes: neither registers nor memory.
#[test]
fn an_exception_that_is_held_is_noted_alone() {
    let mut world = World::new(0);
    world.system.holds_exceptions = true;
    let before = (world.cpu.regs(), world.system.registers);
    assert_eq!(world.trap(Trap::General), Ok(Next::Run));
    let raised = world.system.raised.take().expect("it was raised");
    assert_eq!((raised.vector, raised.code, raised.address), (13, 0, None));
    assert_eq!((raised.rip, raised.rsp, raised.privilege), (CODE, STACK, 0));
    assert_eq!((world.cpu.regs(), world.system.registers, world.system.delivered), (before.0, before.1, 0));
    assert_eq!(world.stack::<1>(), [0], "nothing was pushed");
    // INT3 fails in place of what it asks for where there is no gate.
    world.gate(3, 0, selector::CODE);
    world.cpu.retire(1);
    world.trap(Trap::Breakpoint).unwrap();
    assert_eq!(world.system.raised.take().map(|raised| raised.vector), Some(13));
    // Delivered, it is noted, too.
    world.system.holds_exceptions = false;
    world.trap(Trap::General).unwrap();
    assert_eq!(world.system.raised.map(|raised| raised.vector), Some(13));
    assert_eq!(world.system.delivered, 1);
}
