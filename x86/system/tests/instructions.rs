//! Instructions of the system: what they need, what they change, and what they raise.

mod world;

use world::{CODE, STACK, TSS, World, selector};
use x86::interpreter::Stop;
use x86_system::Next;

const GENERAL: Option<(u64, Option<u64>)> = Some((13, Some(0)));
const CLI: [u8; 1] = [0xfa];
const STI: [u8; 1] = [0xfb];
const POPFQ: [u8; 1] = [0x9d];
const MOV_DS_AX: [u8; 2] = [0x8e, 0xd8];
const MOV_SS_AX: [u8; 2] = [0x8e, 0xd0];

#[test]
fn programs_may_not_run_the_kernels_instructions() {
    let instructions: &[&[u8]] = &[
        &CLI,
        &STI,
        &[0xf4],                   // hlt
        &[0x0f, 0x20, 0xc0],       // mov rax, cr0
        &[0x0f, 0x22, 0xd8],       // mov cr3, rax
        &[0x0f, 0x23, 0xf8],       // mov dr7, rax
        &[0x0f, 0x30],             // wrmsr
        &[0x0f, 0x32],             // rdmsr
        &[0x0f, 0x01, 0xf8],       // swapgs
        &[0x0f, 0x01, 0x14, 0x24], // lgdt [rsp]
        &[0x0f, 0x00, 0xd8],       // ltr ax
        &[0x0f, 0x01, 0x3c, 0x24], // invlpg [rsp]
        &[0x48, 0x0f, 0x07],       // sysretq
        &[0xe6, 0x80],             // out 0x80, al
    ];
    for bytes in instructions {
        assert_eq!(World::exception(3, |_| {}, bytes), GENERAL, "{bytes:02x?}");
    }
}

#[test]
fn interrupts_come_behind_the_instruction_that_follows_sti() {
    let mut world = World::new(0);
    world.execute(&CLI).unwrap();
    assert!(!world.system.takes_interrupts(&world.cpu));
    world.execute(&STI).unwrap();
    assert!(world.system.is_shielded(&world.cpu) && !world.system.takes_interrupts(&world.cpu));
    assert_eq!(world.execute(&[0xf4]), Ok(Next::Halt));
    assert!(world.system.takes_interrupts(&world.cpu), "behind HLT");
    assert_eq!((world.cpu.retired(), world.cpu.rip()), (3, CODE + 3));
}

#[test]
fn popf_changes_what_the_level_may() {
    let after = |level: u8, image: u64| {
        let mut world = World::new(level);
        world.put(STACK, image);
        world.execute(&POPFQ).unwrap();
        assert_eq!(world.cpu.regs().gpr[4], STACK + 8);
        world.cpu.regs().rflags
    };
    assert_eq!(after(0, 0), 2, "ring 0 switches interrupts off");
    assert_eq!(after(0, 0x3202), 0x3202, "and gives IOPL");
    assert_eq!(after(0, 0x18_0202), 0x202, "VIF and VIP are not its");
    assert_eq!(after(3, 0), 0x202, "a program does not");
    assert_eq!(after(3, 0x3ad7), 0xad7, "but its arithmetic flags change");
}

#[test]
fn loads_of_segments_check_type_level_and_presence() {
    let load = |level, selector: u16, bytes: &[u8]| {
        World::exception(level, |world| world.set(0, selector.into()), bytes)
    };
    let fault = |vector, selector: u16| Some((vector, Some(u64::from(selector & !3))));
    use selector::*;
    let cases = [
        (0, DATA, &MOV_DS_AX, None),
        (0, 0, &MOV_DS_AX, None),
        (0, READ_ONLY, &MOV_DS_AX, None),
        (3, DATA, &MOV_DS_AX, fault(13, DATA)),
        (3, USER_DATA, &MOV_DS_AX, None),
        (0, EXECUTE_ONLY, &MOV_DS_AX, fault(13, EXECUTE_ONLY)),
        (0, ABSENT_DATA, &MOV_DS_AX, fault(11, ABSENT_DATA)),
        (0, BEHIND, &MOV_DS_AX, fault(13, BEHIND)),
        (0, TASK, &MOV_DS_AX, fault(13, TASK)),
        (0, DATA | 4, &MOV_DS_AX, fault(13, DATA | 4)),
        (0, DATA, &MOV_SS_AX, None),
        (0, 0, &MOV_SS_AX, None),
        (3, 3, &MOV_SS_AX, fault(13, 0)),
        (0, USER_DATA, &MOV_SS_AX, fault(13, USER_DATA)),
        (3, READ_ONLY, &MOV_SS_AX, fault(13, READ_ONLY)),
        (0, ABSENT_DATA, &MOV_SS_AX, fault(12, ABSENT_DATA)),
    ];
    for (level, selector, bytes, expected) in cases {
        assert_eq!(
            load(level, selector, bytes),
            expected,
            "level {level} selector {selector:#x} {bytes:02x?}"
        );
    }
}

#[test]
fn ltr_makes_a_task_busy_and_takes_no_busy_one() {
    let mut world = World::new(0);
    world.set(0, selector::TASK.into());
    world.execute(&[0x0f, 0x00, 0xd8]).unwrap();
    assert_eq!((world.system.registers.tr.base, world.system.registers.tr.limit), (TSS, 0x67));
    assert_eq!(world.word(world::GDT + 0x40) >> 40 & 0xf, 11);
    world.execute(&[0x0f, 0x00, 0xd8]).unwrap();
    assert_eq!((world.handled(), world.stack::<1>()[0]), (Some(13), selector::TASK.into()));
}

#[test]
fn syscall_and_sysret_are_each_others_way_back() {
    let mut world = World::new(3);
    world.system.registers.star = 0x0010_0008_0000_0000;
    world.system.registers.lstar = 0x2_1000;
    world.system.registers.fmask = 0x200;
    world.cpu.set_rip(CODE + 2);
    world.cpu.retire(1);
    world.serve(&Stop::Syscall).unwrap();
    let regs = world.cpu.regs();
    assert_eq!((regs.rip, regs.gpr[1], regs.gpr[11], regs.rflags), (0x2_1000, CODE + 2, 0x202, 2));
    let system = world.system.registers;
    assert_eq!((system.privilege, system.segments[1].selector, system.segments[2].selector), (0, 8, 0x10));
    world.execute(&[0x48, 0x0f, 0x07]).unwrap();
    let (regs, system) = (world.cpu.regs(), world.system.registers);
    assert_eq!((regs.rip, regs.rflags, system.privilege), (CODE + 2, 0x202, 3));
    assert_eq!((system.segments[1].selector, system.segments[2].selector), (0x23, 0x1b));
    let mut world = World::new(3);
    world.system.registers.efer = 0xd00;
    world.cpu.set_rip(CODE + 2);
    world.cpu.retire(1);
    world.serve(&Stop::Syscall).unwrap();
    assert_eq!((world.handled(), world.cpu.retired()), (Some(6), 0), "without EFER.SCE it is no instruction");
}

#[test]
fn registers_that_do_not_exist_and_values_that_must_not_be_are_general_protection() {
    let wrmsr = |index: u64, value: u64| {
        let set = move |world: &mut World| {
            world.set(1, index);
            world.set(0, value & 0xffff_ffff);
            world.set(2, value >> 32);
        };
        World::exception(0, set, &[0x0f, 0x30])
    };
    assert_eq!(wrmsr(0xc000_0082, 0xffff_8000_0000_0000), None);
    assert_eq!(wrmsr(0xc000_0082, 0x8000_0000_0000), GENERAL, "LSTAR is canonical");
    assert_eq!(wrmsr(0xc000_0080, 1 << 13), GENERAL, "EFER has no such bit");
    assert_eq!(wrmsr(0x277, 2), GENERAL, "PAT has no such type");
    assert_eq!(wrmsr(0x1234, 0), GENERAL);
    assert_eq!(World::exception(0, |world| world.set(0, 1 << 17), &[0x0f, 0x22, 0xe0]), GENERAL, "CR4.PCIDE");
}

#[test]
fn swapgs_exchanges_the_bases() {
    let mut world = World::new(0);
    world.system.registers.kernel_gs_base = 0x1111;
    world.execute(&[0x0f, 0x01, 0xf8]).unwrap();
    assert_eq!((world.cpu.regs().gs_base, world.system.registers.kernel_gs_base), (0x1111, 0));
}

#[test]
fn lsl_and_lar_clear_zf_where_they_see_nothing() {
    let look = |selector: u16, opcode: u8| {
        let mut world = World::new(3);
        world.set(1, selector.into());
        world.execute(&[0x0f, opcode, 0xc1]).unwrap();
        let regs = world.cpu.regs();
        (regs.rflags & 0x40 != 0).then_some(regs.gpr[0])
    };
    assert_eq!(look(selector::USER_DATA, 0x03), Some(0xffff_ffff));
    assert_eq!(look(selector::USER_DATA, 0x02), Some(0xc0_f300));
    assert_eq!(look(selector::DATA, 0x03), None, "not for this level");
    assert_eq!(look(selector::BEHIND, 0x02), None);
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let mut world = World::new(0);
    let mov_cr0 = [0x0f, 0x22, 0xc0];
    world.set(0, 0x10);
    let refused = world.execute(&mov_cr0).unwrap_err();
    assert_eq!((refused.at, refused.what.contains("real mode")), (CODE, true));
    world.set(0, 0x2_0001);
    let refused = world.execute(&[0x0f, 0x23, 0xf8]).unwrap_err();
    assert!(refused.to_string().contains("hardware breakpoints on ports"), "{refused}");
    assert_eq!(world.cpu.retired(), 0);
}

#[test]
fn paging_stays_on_in_64_bit_code() {
    assert_eq!(World::exception(0, |world| world.set(0, 0x11), &[0x0f, 0x22, 0xc0]), GENERAL);
}

#[test]
fn what_is_of_an_extension_that_is_not_there_is_undefined() {
    const UNDEFINED: Option<(u64, Option<u64>)> = Some((6, None));
    let instructions: &[&[u8]] = &[
        &[0x0f, 0x01, 0xc1], // vmcall
        &[0x0f, 0x01, 0xd9], // vmmcall
        &[0x0f, 0x01, 0xfd], // rdpru
        &[0x0f, 0x01, 0xd1], // xsetbv
        &[0x0f, 0x34],       // sysenter
    ];
    for bytes in instructions {
        assert_eq!(World::exception(0, |_| {}, bytes), UNDEFINED, "{bytes:02x?}");
    }
    let refused = World::new(0).execute(&[0x66, 0x0f, 0x38, 0x37, 0xc1]);
    assert!(refused.is_err(), "PCMPGTQ is of SSE4.2, which is there: {refused:?}");
}

#[test]
fn dr4_and_dr5_are_other_names_unless_cr4_says_no() {
    let read_dr4 = [0x0f, 0x21, 0xe0];
    let mut world = World::new(0);
    world.execute(&read_dr4).unwrap();
    assert_eq!(world.cpu.regs().gpr[0], 0xffff_0ff0);
    assert_eq!(World::exception(0, |world| world.system.registers.cr4 |= 1 << 3, &read_dr4), Some((6, None)));
}

#[test]
fn the_base_of_a_task_is_canonical() {
    let high_half = world::GDT + u64::from(selector::TASK) + 8;
    let load = |high| {
        move |world: &mut World| {
            world.set(0, selector::TASK.into());
            world.put(high_half, high);
        }
    };
    let ltr = [0x0f, 0x00, 0xd8];
    assert_eq!(World::exception(0, load(0xffff_8000), &ltr), None);
    assert_eq!(World::exception(0, load(0x0001_0000), &ltr), Some((13, Some(u64::from(selector::TASK)))));
}

#[test]
fn an_access_to_a_guarded_debug_register_is_an_exception() {
    let mut world = World::new(0);
    world.set(0, 0x2000);
    world.execute(&[0x0f, 0x23, 0xf8]).unwrap();
    world.execute(&[0x0f, 0x21, 0xf0]).unwrap();
    assert_eq!((world.handled(), world.stack::<1>()[0]), (Some(1), CODE + 3), "mov rax, dr6");
    assert_eq!(world.system.registers.debug[6..], [0xffff_2ff0, 0x400]);
}
