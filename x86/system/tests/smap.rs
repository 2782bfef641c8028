//! SMAP: a kernel reaches pages of programs while RFLAGS.AC is set, and no longer, whatever translations are cached.

mod world;

use world::{CODE, RSP0, STACK, World, index, selector};
use x86::machine::{Machine, Trap};
use x86_system::Next;

const STAC: [u8; 3] = [0x0f, 0x01, 0xcb];
const CLAC: [u8; 3] = [0x0f, 0x01, 0xca];
const POPFQ: [u8; 1] = [0x9d];
const IRETQ: [u8; 2] = [0x48, 0xcf];
const MOV_CR4_RAX: [u8; 3] = [0x0f, 0x22, 0xe0];
const SMAP: u64 = 1 << 21;
const AC: u64 = 1 << 18;

/// Where pages are with rights of their own, and the frames that they lead to.
const PAGES: u64 = 0x20_0000;
const PAGE_TABLE: u64 = 0x7000;
const FRAMES: u64 = 0x18_0000;
/// Rights of the page with a number: every other is a program's, every third may not be written.
const HOW_MANY: u64 = 12;

fn is_programs(page: u64) -> bool {
    page.is_multiple_of(2)
}

fn is_writable(page: u64) -> bool {
    !page.is_multiple_of(3)
}

/// A kernel in pages of its own, and [`PAGES`].
fn kernel() -> World {
    let mut world = World::new(0);
    world.put(0x3000, 0x83);
    world.put(0x3008, PAGE_TABLE | 7);
    for page in 0..HOW_MANY {
        let rights = 1 | u64::from(is_writable(page)) << 1 | u64::from(is_programs(page)) << 2;
        world.put(PAGE_TABLE + 8 * page, (FRAMES + 0x1000 * page) | rights);
    }
    world.cpu.flush_tlb();
    world
}

/// Executes an instruction of ring 0 at a place of its own.
fn execute(world: &mut World, bytes: &[u8]) -> Next {
    world.cpu.set_rip(CODE);
    world.execute(bytes).unwrap()
}

fn set_smap(world: &mut World, on: bool) {
    let cr4 = world.system.registers.cr4;
    world.set(0, if on { cr4 | SMAP } else { cr4 & !SMAP });
    assert_eq!(execute(world, &MOV_CR4_RAX), Next::Run);
}

#[test]
fn stac_and_clac_open_and_close_what_is_cached() {
    let mut world = kernel();
    set_smap(&mut world, true);
    let load = |world: &mut World, page: u64| world.cpu.load(64, PAGES + 0x1000 * page);
    for _ in 0..3 {
        assert_eq!((load(&mut world, 2), load(&mut world, 1)), (Err(Trap::Page), Ok(0)));
        let code = world.cpu.last_page_fault().map(|fault| fault.error_code);
        assert_eq!(code, Some(1), "a page that is there, by the kernel");
        execute(&mut world, &STAC);
        assert_eq!((load(&mut world, 2), load(&mut world, 1)), (Ok(0), Ok(0)));
        execute(&mut world, &CLAC);
    }
    set_smap(&mut world, false);
    assert_eq!(load(&mut world, 2), Ok(0));
}

/// The processor's own loads of its tables are not lifted by RFLAGS.AC.
#[test]
fn tables_in_a_programs_page_are_closed() {
    let ends = |mut world: World| {
        set_smap(&mut world, true);
        execute(&mut world, &STAC);
        world.cpu.set_rip(CODE);
        // ud2
        world.put(CODE, 0x0b0f);
        world.cpu.written(CODE, 2);
        world.trap(Trap::Undefined).map(|next| (next, world.handled()))
    };
    assert_eq!(ends(kernel()), Ok((Next::Run, Some(6))));
    assert!(matches!(ends(World::new(0)), Ok((Next::Shutdown, _))), "the IDT is in a page of programs");
}

/// Random changes of what decides, and accesses whose outcome is known.
#[test]
fn random_changes_of_level_and_flag_are_obeyed() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut world = kernel();
    let (mut refused, mut lifted) = (0, 0);
    for step in 0..40_000 {
        let is_user = world.system.registers.privilege == 3;
        match (is_user, random(8)) {
            (true, 0..3) => drop(world.system.interrupt(&mut world.cpu, 0x20).unwrap()),
            (false, 0) => drop(execute(&mut world, &STAC)),
            (false, 1) => drop(execute(&mut world, &CLAC)),
            (false, 2) => {
                let flags = 2 | (random(2) * AC);
                world.put(STACK, flags);
                world.set(4, STACK);
                execute(&mut world, &POPFQ);
            }
            (false, 3) => {
                let on = random(4) > 0;
                set_smap(&mut world, on);
            }
            (false, 4) => {
                let frame = [
                    CODE,
                    selector::USER_CODE.into(),
                    0x202 | (random(2) * AC),
                    STACK,
                    selector::USER_DATA.into(),
                ];
                (0..).zip(frame).for_each(|(n, word)| world.put(RSP0 - 40 + 8 * n, word));
                world.set(4, RSP0 - 40);
                execute(&mut world, &IRETQ);
            }
            _ => {}
        }
        let (page, is_store) = (random(HOW_MANY), random(2) == 0);
        let user = world.system.registers.privilege == 3;
        let access = world.cpu.regs().rflags & AC != 0;
        let smap = world.system.registers.cr4 & SMAP != 0;
        let may_reach = if user { is_programs(page) } else { !(is_programs(page) && smap && !access) };
        let may = may_reach && (!is_store || is_writable(page));
        let at = PAGES + 0x1000 * page + 8 * random(8);
        let done = if is_store {
            // The same as is there, so that loads know what they find.
            world.cpu.store(64, at, 0)
        } else {
            world.cpu.load(64, at).map(|found| assert_eq!(found, 0))
        };
        assert_eq!(
            done.is_ok(),
            may,
            "step {step}: page {page}, store {is_store}, user {user}, {access}, {smap}"
        );
        refused += u32::from(!may_reach && !user);
        lifted += u32::from(!user && smap && access && is_programs(page));
    }
    assert!(refused > 1000 && lifted > 1000, "{refused} refused, {lifted} lifted");
    assert_eq!(world.cpu.bus().ram()[index(FRAMES)], 0);
}
