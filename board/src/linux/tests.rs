//! What is read of a kernel's memory, of one that is made here ([`made`]), whole and damaged.
#![expect(clippy::cast_possible_truncation, reason = "a kernel of four megabytes has small numbers")]

mod made;

use super::printk::Line;
use super::stack::By;
use super::*;
use made::*;

#[test]
fn the_log_is_read_in_order_and_what_is_being_written_is_left_out() {
    let ram = ram();
    let linux = Linux::new(&ram, DESCRIPTION).unwrap();
    let log = linux.log().unwrap();
    let line = |sequence, text: &str| Line {
        sequence,
        nanoseconds: (sequence - 100) * 1_000_000,
        level: 6,
        text: text.to_owned(),
    };
    assert_eq!(log.lines, [line(100, "first"), line(101, "two"), line(101, "lines"), line(102, "")]);
    assert_eq!((log.replaced, log.unread, linux.release()), (100, 0, Some("6.1-test")));
}

#[test]
fn addresses_have_names_in_the_kernel_and_in_modules() {
    let ram = ram();
    let linux = Linux::new(&ram, DESCRIPTION).unwrap();
    let symbols = linux.symbols().unwrap();
    assert_eq!(symbols.without_modules, None);
    let place = |at: usize| {
        symbols.place(virt(at)).map(|it| (it.function.to_owned(), it.offset, it.module.map(str::to_owned)))
    };
    let broken = Some("broken".to_owned());
    assert_eq!(place(TEXT + 0x11), Some(("panic".to_owned(), 1, None)));
    assert_eq!(place(TEXT + 0x104), Some(("fault".to_owned(), 4, None)), "the first of two names");
    assert_eq!(place(MODULE_TEXT + 0x7f), Some(("count".to_owned(), 0x7f, broken.clone())));
    assert_eq!(place(MODULE_TEXT + 0x80), Some(("write".to_owned(), 0, broken)));
    assert_eq!([place(TEXT + 0x300), place(MODULE_TEXT + 0x1000), place(RING)], [None, None, None]);
    assert_eq!(place(MODULE_TEXT + 0x800), None, "a module's data is no function");
    assert!(!symbols.code().any(|part| part.contains(&virt(MODULE_TEXT + 0x800))));
    let is_data = |at| symbols.data_of_modules().any(|part| part.contains(&virt(at)));
    assert_eq!([MODULE_TEXT + 0x7f, MODULE_TEXT + 0x800, TEXT].map(is_data), [false, true, false]);
    assert_eq!(symbols.address("current_task"), Some(0x40));
}

#[test]
fn the_task_of_a_processor_is_the_one_its_variable_names() {
    let ram = ram();
    let linux = Linux::new(&ram, DESCRIPTION).unwrap();
    assert_eq!(linux.task(0), Ok(Task { id: 263, process: 263, name: "sh".to_owned() }));
    assert!(linux.task(1).is_err(), "there is one processor");
}

#[test]
fn the_stack_goes_on_over_an_exception_in_a_module() {
    let mut ram = ram();
    let frames = |ram: &Ram| {
        let linux = Linux::new(ram, DESCRIPTION).unwrap();
        let trace = linux.stack(&regs());
        let frames: Vec<_> = trace.frames.iter().map(|it| ((it.rip - MAP) as usize, it.by)).collect();
        (frames, trace.stopped)
    };
    let sure = [
        (TEXT + 0x20, By::Registers),
        (TEXT + 0x120, By::Tables),
        (MODULE_TEXT + 5, By::Saved),
        (MODULE_TEXT + 0x90, By::Tables),
        (TEXT + 0x210, By::Tables),
    ];
    assert_eq!(frames(&ram), (sure.to_vec(), None));
    // Where the tables have nothing, what is behind a call is likely, and what is not is left out.
    ram.put(ORC, &[0xff, 0xff, 0xff, 0]);
    ram.put(TEXT + 0x120 - 5, &[0xe8]);
    let (found, stopped) = frames(&ram);
    assert_eq!(found, [(TEXT + 0x20, By::Registers), (TEXT + 0x120, By::Likely)]);
    assert!(stopped.unwrap().contains("have nothing of 0xffffffff80100020"));
    // A program that was interrupted is the end.
    let mut user = Regs { rip: 0x40_1000, ..regs() };
    user.gpr[4] = 0x7fff_f000;
    let linux = Linux::new(&ram, DESCRIPTION).unwrap();
    assert_eq!(linux.stack(&user).stopped.as_deref(), Some("the processor ran a program, not the kernel"));
}

/// The kernel came by a call to what is no code of its own: a program's address, null, its own data. By a jump it came there without a return
/// address, and only by the ring of the frame is a program told from that.
#[test]
fn the_stack_goes_on_over_a_call_of_what_is_no_code() {
    for wild in [0x40_1000, 0, virt(MODULE_TEXT + 0x800), virt(RING), 0x5a5a_5a5a_5a5a_5a5a] {
        let mut ram = ram();
        ram.interrupt(wild, 0x10);
        ram.call_from(MODULE_TEXT + 0x90);
        let frames = |ram: &Ram| {
            let trace = Linux::new(ram, DESCRIPTION).unwrap().stack(&regs());
            (trace.frames.iter().map(|it| (it.rip, it.by)).collect::<Vec<_>>(), trace.stopped)
        };
        let sure = [
            (virt(TEXT + 0x20), By::Registers),
            (virt(TEXT + 0x120), By::Tables),
            (wild, By::Saved),
            (virt(MODULE_TEXT + 0x90), By::Tables),
            (virt(TEXT + 0x210), By::Tables),
        ];
        assert_eq!(frames(&ram), (sure.to_vec(), None), "{wild:#x}");
        ram.call_from(RING);
        let (found, stopped) = frames(&ram);
        assert_eq!(found[..3], sure[..3], "{wild:#x}");
        assert_eq!(stopped, Some(format!("the tables of the kernel have nothing of {wild:#x}")));
        ram.interrupt(wild, 0x33);
        assert_eq!(frames(&ram), (sure[..2].to_vec(), Some(format!("a program was at {wild:#x}"))));
    }
    // So it is with the registers of the processor.
    let mut ram = ram();
    ram.call_from(MODULE_TEXT + 0x90);
    let mut regs = Regs { rip: 0x40_1000, ..regs() };
    regs.gpr[4] = ram.interrupted() + 8;
    let trace = Linux::new(&ram, DESCRIPTION).unwrap().stack(&regs);
    let at: Vec<u64> = trace.frames.iter().map(|it| it.rip).collect();
    assert_eq!(at, [0x40_1000, virt(MODULE_TEXT + 0x90), virt(TEXT + 0x210)]);
}

#[test]
fn what_a_kernel_does_not_say_is_said() {
    let ram = ram();
    let why = |without: &str| {
        let text: String =
            DESCRIPTION.lines().filter(|line| !line.contains(without)).map(|l| format!("{l}\n")).collect();
        let linux = match Linux::new(&ram, &text) {
            Ok(linux) => linux,
            Err(why) => return vec![why],
        };
        let whys =
            [linux.log().err(), linux.symbols().err(), linux.task(0).err(), linux.stack(&regs()).stopped];
        whys.into_iter().flatten().collect()
    };
    assert!(why("swapper_pg_dir")[0].contains("where its page tables are is not known"));
    assert_eq!(why("OFFSET(printk_info.seq)"), ["VMCOREINFO has no OFFSET(printk_info.seq)"]);
    let names = why("SYMBOL(kallsyms_names)");
    assert!(names.len() == 3 && names.iter().all(|why| why.contains("SYMBOL(kallsyms_names)")), "{names:?}");
}

/// Where kallsyms has no base, each offset is from where it is itself.
#[test]
fn offsets_from_themselves_are_addresses_too() {
    let (before, mut ram) = (ram(), ram());
    let text: String = DESCRIPTION
        .lines()
        .filter(|line| !line.contains("relative_base"))
        .map(|it| format!("{it}\n"))
        .collect();
    let (table, count) =
        (KALLSYMS + 0xa000, u32::from_le_bytes(ram.0[KALLSYMS..KALLSYMS + 4].try_into().unwrap()));
    for n in 0..count as usize {
        let at = table + 4 * n;
        let offset = i32::from_le_bytes(ram.0[at..at + 4].try_into().unwrap());
        // Variables of processors are no longer addresses of their own.
        let physical = if offset < 0 { -i64::from(offset) - 1 } else { i64::from(offset) };
        ram.int(at, ((physical - at as i64) as i32).cast_unsigned());
    }
    let linux = Linux::new(&ram, &text).unwrap();
    let with_base = Linux::new(&before, DESCRIPTION).unwrap();
    let named = |linux: &Linux<'_>| {
        linux.symbols().unwrap().functions().map(|(at, name, _)| (at, name.to_owned())).collect::<Vec<_>>()
    };
    assert_eq!(named(&linux), named(&with_base));
    // An offset of another form is told.
    let whys: Vec<String> = (0..count as usize)
        .filter_map(|n| {
            let at = table + 4 * n;
            let old = u32::from_le_bytes(ram.0[at..at + 4].try_into().unwrap());
            ram.int(at, old ^ 4);
            let why = Linux::new(&ram, &text).unwrap().symbols().err();
            ram.int(at, old);
            why
        })
        .collect();
    assert_eq!(whys, ["the addresses of kallsyms are in no form that is known"], "of _stext alone");
}

/// Before Linux 6.0 nothing says where kallsyms is: it is found by what it looks like, and damage to it is no other kallsyms.
#[test]
fn names_are_found_where_nothing_says_that_they_are() {
    let text: String =
        DESCRIPTION.lines().filter(|line| !line.contains("kallsyms")).map(|it| format!("{it}\n")).collect();
    let (said, mut packed) = (ram(), ram_with(Ram::packed_names));
    let named = |linux: &Linux<'_>| {
        linux.symbols().unwrap().functions().map(|(at, name, _)| (at, name.to_owned())).collect::<Vec<_>>()
    };
    let found = Linux::new(&packed, &text).unwrap();
    assert_eq!(named(&found), named(&Linux::new(&said, DESCRIPTION).unwrap()));
    assert_eq!(found.symbols().unwrap().address("variable_299"), Some(virt(RING)));
    assert_eq!(found.task(0), Ok(Task { id: 263, process: 263, name: "sh".to_owned() }));
    // 314 offsets, the base, the number, the names, two markers, 256 tokens, and the index.
    let number = PACKED.next_multiple_of(8) + 4 * 314 + 8;
    let index = (PACKED..SIZE - 8).rfind(|at| packed.0[*at..at + 6] == [0, 0, 2, 0, 4, 0]).unwrap();
    let tokens = index - 512;
    for (what, at) in
        [("number", number), ("name", number + 8), ("marker", tokens - 4), ("token", tokens + 1)]
    {
        packed.0[at] ^= 1;
        let why = Linux::new(&packed, &text).unwrap().symbols().err();
        assert!(why.is_some_and(|why| why.contains("not in memory as Linux 4.20 to 6.3")), "{what}");
        packed.0[at] ^= 1;
    }
    assert_eq!(Linux::new(&packed, &text).unwrap().symbols().err(), None);
}

/// Since Linux 7.1 the unwind tables have other numbers of registers: rsp is 3, and not 5.
#[test]
fn the_stack_goes_on_by_either_numbering_of_registers() {
    let mut ram = ram();
    let trace = |ram: &Ram| Linux::new(ram, DESCRIPTION).unwrap().stack(&regs());
    let before = trace(&ram);
    let entries: Vec<usize> = (0..3).map(|n| ORC + 0x1000 + 6 * n + 4).chain([MODULE + 0x414]).collect();
    entries.iter().for_each(|at| ram.0[*at] = 3);
    assert_eq!((trace(&ram), before.frames.len()), (before, 5));
    entries.iter().for_each(|at| ram.0[*at] = 0);
    let why = "the registers of the unwind tables have numbers that are not known";
    assert_eq!(trace(&ram).stopped.as_deref(), Some(why));
}

/// Whatever is in memory, it is read or refused, in a short time.
#[test]
fn no_memory_ends_gretel() {
    let unsaid: String =
        DESCRIPTION.lines().filter(|line| !line.contains("kallsyms")).map(|it| format!("{it}\n")).collect();
    damaged(&ram, DESCRIPTION, 3000);
    damaged(&|| ram_with(Ram::packed_names), &unsaid, 1000);
}

/// Reads so many damaged kernels.
fn damaged(ram: &dyn Fn() -> Ram, description: &str, times: u32) {
    let (mut ram, whole) = (ram(), ram().0);
    let mut seed = 11_u64;
    let mut random = || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        seed ^ seed >> 29
    };
    let used: Vec<usize> = (0..SIZE).step_by(4).filter(|at| whole[*at..at + 4] != [0; 4]).collect();
    let mut read = 0;
    for _ in 0..times {
        let places: Vec<usize> =
            (0..1 + random() % 3).map(|_| used[random() as usize % used.len()]).collect();
        for at in &places {
            let value = [random() as u32, u32::MAX, 1 << (random() % 32), 0][random() as usize % 4];
            ram.int(*at, value);
        }
        if let Ok(linux) = Linux::new(&ram, description) {
            read += usize::from(linux.log().is_ok()) + usize::from(linux.task(0).is_ok());
            read += linux.stack(&regs()).frames.len();
        }
        places.iter().for_each(|at| ram.put(*at, &whole[*at..at + 4]));
    }
    assert!(ram.0 == whole && read > 3 * times as usize, "{read} things were read");
}
