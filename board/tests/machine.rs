//! A machine with kernels of a few bytes: how it ends, and that nothing that a kernel does ends gretel.

use board::{End, Machine, Pause, Setup};
use x86_jit::Tuning;

/// Where the code is.
const CODE: u64 = 0x20_0000;

/// An ELF file with this code at [`CODE`].
fn kernel(code: &[u8]) -> Vec<u8> {
    let mut file = Vec::from(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0");
    for word in [CODE, 64, 0] {
        file.extend(u64::to_le_bytes(word));
    }
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 1, 0, 0, 0] {
        file.extend(half.to_le_bytes());
    }
    file.extend([1, 0, 0, 0, 7, 0, 0, 0]);
    for word in [120, CODE, CODE, code.len() as u64, code.len() as u64, 0] {
        file.extend(u64::to_le_bytes(word));
    }
    file.extend(code);
    file
}

fn machine(code: &[u8]) -> Machine {
    Machine::boot(&Setup { kernel: kernel(code), memory: 16 << 20, ..Setup::default() }).expect("it boots")
}

/// How it ends within a million instructions.
fn end(code: &[u8]) -> End {
    match machine(code).run(1_000_000) {
        Pause::Ended(end) => end,
        pause => panic!("{code:02x?}: {pause:?}"),
    }
}

fn refused(code: &[u8]) -> String {
    match end(code) {
        End::Refused(refused) => refused.what,
        end => panic!("{code:02x?}: {end:?}"),
    }
}

#[test]
fn each_end_is_what_the_kernel_did() {
    // mov dx, 0x604; mov ax, 0x3400; out dx, ax
    assert_eq!(end(&[0x66, 0xba, 0x04, 0x06, 0x66, 0xb8, 0x00, 0x34, 0x66, 0xef]), End::PowerOff);
    // mov al, 0xfe; out 0x64, al
    assert_eq!(end(&[0xb0, 0xfe, 0xe6, 0x64]), End::Reset);
    // mov eax, 77; out 0xf4, eax
    assert_eq!(end(&[0xb8, 77, 0, 0, 0, 0xe7, 0xf4]), End::Exit(77));
    // cli; hlt
    assert_eq!(end(&[0xfa, 0xf4]), End::Halted);
    // ud2, without a table of interrupts
    assert_eq!(end(&[0x0f, 0x0b]), End::TripleFault(CODE));
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    // mov rax, cr0; btr eax, 0; btr eax, 31; mov cr0, rax
    let real = [0x0f, 0x20, 0xc0, 0x0f, 0xba, 0xf0, 0x00, 0x0f, 0xba, 0xf0, 0x1f, 0x0f, 0x22, 0xc0];
    assert!(refused(&real).contains("real mode"));
    // mov eax, 0xfee00000; jmp rax
    assert!(refused(&[0xb8, 0, 0, 0xe0, 0xfe, 0xff, 0xe0]).contains("code in the memory of a device"));
    // mov edi, 0xfee00000; sgdt [rdi]
    assert!(refused(&[0xbf, 0, 0, 0xe0, 0xfe, 0x0f, 0x01, 0x07]).contains("reaches a device"));
}

/// A 32-bit ELF file at 1 MiB: a Multiboot header without flags, and behind it code.
fn multiboot(code: &[u8]) -> Vec<u8> {
    const START: u32 = 0x10_0000;
    const MAGIC: u32 = 0x1bad_b002;
    let mut content: Vec<u8> =
        [MAGIC, 0, MAGIC.wrapping_neg()].into_iter().flat_map(u32::to_le_bytes).collect();
    content.extend(code);
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    for half in [2, 3] {
        file.extend(u16::to_le_bytes(half));
    }
    for word in [1, START + 12, 52, 0, 0] {
        file.extend(u32::to_le_bytes(word));
    }
    for half in [52, 32, 1, 0, 0, 0] {
        file.extend(u16::to_le_bytes(half));
    }
    let length = u32::try_from(content.len()).expect("it is small");
    for word in [1, 84, START, START, length, length, 7, 4] {
        file.extend(u32::to_le_bytes(word));
    }
    file.extend(content);
    file
}

/// The state at the entry, and what ebx points to.
#[test]
fn a_multiboot_program_finds_what_the_specification_says() {
    let ended = |initrd: Option<&[u8]>, code: &[u8]| {
        let kernel = multiboot(&[code, &[0xe7, 0xf4]].concat());
        let initrd = initrd.map(<[u8]>::to_vec);
        let setup =
            Setup { kernel, initrd, command_line: "a b".to_owned(), memory: 16 << 20, ..Setup::default() };
        match Machine::boot(&setup).expect("it boots").run(100) {
            Pause::Ended(End::Exit(status)) => status,
            pause => panic!("{code:02x?}: {pause:?}"),
        }
    };
    // sub eax, 0x2badb002; add eax, [ebx]
    let flags = [0x2d, 0x02, 0xb0, 0xad, 0x2b, 0x03, 0x03];
    assert_eq!((ended(None, &flags), ended(Some(b"file"), &flags)), (0x245, 0x24d));
    // mov eax, [ebx+8]
    assert_eq!(ended(None, &[0x8b, 0x43, 0x08]), 15 << 10, "KiB above the first MiB");
    // movzx eax, word [0x40e]; the same of 0x413
    assert_eq!(
        ended(None, &[0x0f, 0xb7, 0x05, 0x0e, 0x04, 0, 0]),
        0x9f00,
        "the segment of the firmware's data"
    );
    assert_eq!(ended(None, &[0x0f, 0xb7, 0x05, 0x13, 0x04, 0, 0]), 636, "KiB below it, as mem_lower has");
    // mov eax, [ebx+4]
    assert_eq!(ended(None, &[0x8b, 0x43, 0x04]), 636);
    // mov esi, [ebx+16]; mov eax, [esi+7]
    assert_eq!(ended(None, &[0x8b, 0x73, 0x10, 0x8b, 0x46, 0x07]), u32::from_le_bytes(*b"a b\0"));
    // mov esi, [ebx+24]; mov esi, [esi]; mov eax, [esi]
    let module = [0x8b, 0x73, 0x18, 0x8b, 0x36, 0x8b, 0x06];
    assert_eq!(ended(Some(b"file"), &module), u32::from_le_bytes(*b"file"));
    // mov esi, [ebx+48]; mov eax, [esi+52]; the second entry's length of three
    assert_eq!(ended(None, &[0x8b, 0x73, 0x30, 0x8b, 0x46, 0x34]), 0x10_0000, "RAM begins again at 1 MiB");
    // mov eax, cr0
    assert_eq!(ended(None, &[0x0f, 0x20, 0xc0]), 0x11, "protected, and no paging");
}

/// A debug exception follows each instruction under RFLAGS.TF, those of the system, too.
#[test]
fn instructions_of_the_system_are_stepped() {
    const HANDLER: u64 = CODE + 0x80;
    #[rustfmt::skip]
    let mut code = vec![
        0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,         // mov rax, the low half of the gate
        0x48, 0xa3, 0x10, 0, 0x40, 0, 0, 0, 0, 0,   // mov [0x400010], rax
        0x0f, 0x01, 0x1c, 0x25, 0, 0, 0, 0,         // lidt [operand]
        0x9c,                                       // pushfq
        0x80, 0x4c, 0x24, 0x01, 0x01,               // or byte [rsp+1], 1
        0x9d,                                       // popfq
        0x0f, 0x20, 0xc0,                           // mov rax, cr0
        0x0f, 0xa2,                                 // cpuid
        0x90,                                       // nop
        0x31, 0xc0,                                 // xor eax, eax: not reached
    ];
    let gate = HANDLER & 0xffff | 0x10 << 16 | 0x8e00 << 32 | (HANDLER >> 16 & 0xffff) << 48;
    code[2..10].copy_from_slice(&gate.to_le_bytes());
    let operand = u32::try_from(CODE + 0x70).expect("it is low");
    code[24..28].copy_from_slice(&operand.to_le_bytes());
    code.resize(0x70, 0x90);
    code.extend(0x1f_u16.to_le_bytes());
    code.extend(0x40_0000_u64.to_le_bytes());
    code.resize(0x80, 0);
    #[rustfmt::skip]
    code.extend([
        0x45, 0x6b, 0xff, 0x0a,                     // imul r15d, r15d, 10
        0x41, 0xff, 0xc7,                           // inc r15d
        0x41, 0x81, 0xff, 0x6f, 0, 0, 0,            // cmp r15d, 111
        0x72, 0x05,                                 // jb on
        0x8b, 0x04, 0x24,                           // mov eax, [rsp]
        0xe7, 0xf4,                                 // out 0xf4, eax
        0x48, 0xcf,                                 // on: iretq
    ]);
    let behind_nop = u32::try_from(CODE + 41).expect("it is low");
    assert_eq!(end(&code), End::Exit(behind_nop), "the third exception is behind the third instruction");
}

/// A debug exception comes before an armed instruction, unless RF is set, and behind an access to armed data.
#[test]
fn hardware_breakpoints_are_met() {
    const HANDLER: u64 = CODE + 0x80;
    const DATA: u32 = 0x60_0000;
    #[rustfmt::skip]
    let mut code = vec![
        0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,         // mov rax, the low half of the gate
        0x48, 0xa3, 0x10, 0, 0x40, 0, 0, 0, 0, 0,   // mov [0x400010], rax
        0x0f, 0x01, 0x1c, 0x25, 0, 0, 0, 0,         // lidt [operand]
        0xb8, 0, 0, 0, 0,                           // 28: mov eax, the address of the nop
        0x0f, 0x23, 0xc0,                           // mov dr0, rax
        0xbe, 0, 0, 0x60, 0,                        // mov esi, DATA
        0x0f, 0x23, 0xce,                           // mov dr1, rsi
        0xb8, 0x05, 0, 0xd0, 0,                     // mov eax, 0xd00005: DR0 code, DR1 stores of four bytes
        0x0f, 0x23, 0xf8,                           // mov dr7, rax
        0xc6, 0x46, 0x04, 0x07,                     // mov byte [rsi+4], 7: beside it
        0x8b, 0x06,                                 // mov eax, [rsi]: a load
        0x90,                                       // 58: nop
        0xc6, 0x46, 0x03, 0x07,                     // mov byte [rsi+3], 7
        0x44, 0x89, 0xf8,                           // 63: mov eax, r15d
        0xe7, 0xf4,                                 // out 0xf4, eax
    ];
    let low = |at: u64| u32::try_from(at).expect("it is low").to_le_bytes();
    let gate = HANDLER & 0xffff | 0x10 << 16 | 0x8e00 << 32 | (HANDLER >> 16 & 0xffff) << 48;
    code[2..10].copy_from_slice(&gate.to_le_bytes());
    code[24..28].copy_from_slice(&low(CODE + 0x70));
    code[29..33].copy_from_slice(&low(CODE + 58));
    assert_eq!(code[37..41], DATA.to_le_bytes());
    code.resize(0x70, 0x90);
    code.extend(0x1f_u16.to_le_bytes());
    code.extend(0x40_0000_u64.to_le_bytes());
    code.resize(0x80, 0);
    #[rustfmt::skip]
    code.extend([
        0x0f, 0x21, 0xf0,                           // mov rax, dr6
        0x83, 0xe0, 0x0f,                           // and eax, 15
        0x02, 0x04, 0x24,                           // add al, [rsp]: where it came from
        0x41, 0xc1, 0xe7, 0x08,                     // shl r15d, 8
        0x41, 0x09, 0xc7,                           // or r15d, eax
        0x80, 0x4c, 0x24, 0x12, 0x01,               // or byte [rsp+18], 1: RF
        0x48, 0xcf,                                 // iretq
    ]);
    assert_eq!(end(&code), End::Exit((58 + 1) << 8 | (63 + 2)));
}

/// The kernel of guest-images/kernel, with timers and a busy loop.
#[test]
fn compiled_or_not_a_kernel_does_the_same() {
    const IMAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../guest-images/build/bare-kernel");
    let kernel = std::fs::read(IMAGE).unwrap_or_else(|error| panic!("{IMAGE}: {error}: make guests"));
    let setup = Setup { kernel, command_line: "spin".to_owned(), memory: 16 << 20, ..Setup::default() };
    let mut machines = [None, Some(Tuning::eager(20)), Some(Tuning::default())]
        .map(|tuning| Machine::tuned(&setup, tuning).expect("it boots"));
    for until in (1..).map(|n| n * 777_777) {
        let [interpreted, compiled, mixed] = &mut machines;
        let pauses = [&mut *interpreted, &mut *compiled, &mut *mixed].map(|machine| {
            let mut pause = machine.run(until);
            while let Pause::Idle(Some(due)) = pause {
                machine.wait_until(due);
                pause = machine.run(until);
            }
            (pause, machine.moment(), machine.digests())
        });
        assert!(pauses[0] == pauses[1] && pauses[0] == pauses[2], "{pauses:?}");
        if let Pause::Ended(end) = &pauses[0].0 {
            assert_eq!(*end, End::PowerOff);
            return assert_eq!(interpreted.digests_of_all(), compiled.digests_of_all());
        }
    }
}

/// A kernel under SMAP, whose loop reaches a page of programs between STAC and CLAC, and once behind it.
#[test]
fn compiled_or_not_a_kernel_keeps_from_programs_pages() {
    #[rustfmt::skip]
    let code = [
        0x80, 0x0c, 0x25, 0x00, 0x90, 0, 0, 0x04,       // or byte [0x9000], 4: the page at 6 MiB is open to programs
        0x80, 0x0c, 0x25, 0x00, 0xa0, 0, 0, 0x04,       // or byte [0xa000], 4
        0x80, 0x0c, 0x25, 0x18, 0xb0, 0, 0, 0x04,       // or byte [0xb018], 4
        0x0f, 0x20, 0xe0, 0x0d, 0, 0, 0x20, 0,          // mov rax, cr4; or eax, SMAP
        0x0f, 0x22, 0xe0, 0xb9, 0x20, 0x4e, 0, 0,       // mov cr4, rax; mov ecx, 20000
        0x0f, 0x01, 0xcb,                               // again: stac
        0x48, 0x8b, 0x04, 0x25, 0, 0, 0x60, 0,          // mov rax, [0x600000]
        0x48, 0x01, 0xc8,                               // add rax, rcx
        0x48, 0x89, 0x04, 0x25, 0, 0, 0x60, 0,          // mov [0x600000], rax
        0x0f, 0x01, 0xca,                               // clac
        0xba, 0x32, 0, 0, 0, 0xff, 0xca, 0x75, 0xfc,    // mov edx, 50; dec edx; jnz to that
        0xff, 0xc9, 0x75, 0xda,                         // dec ecx; jnz again
        0x48, 0x8b, 0x04, 0x25, 0, 0, 0x60, 0,          // mov rax, [0x600000]
    ];
    let setup = Setup { kernel: kernel(&code), memory: 16 << 20, ..Setup::default() };
    let mut machines = [None, Some(Tuning::eager(20)), Some(Tuning::default())]
        .map(|tuning| Machine::tuned(&setup, tuning).expect("it boots"));
    for until in (1..).map(|n| n * 77_777) {
        let [interpreted, compiled, mixed] =
            machines.each_mut().map(|machine| (machine.run(until), machine.moment(), machine.digests()));
        assert!(interpreted == compiled && interpreted == mixed, "{interpreted:?}, {compiled:?}, {mixed:?}");
        if let Pause::Ended(end) = interpreted.0 {
            assert_eq!(end, End::TripleFault(CODE + code.len() as u64 - 8), "the load behind CLAC");
            let sum = machines[1].ram()[0x60_0000..0x60_0008].try_into().ok().map(u64::from_le_bytes);
            return assert_eq!(sum, Some(20_000 * 20_001 / 2));
        }
    }
}

/// Kernels of random bytes come to an end, or go on: they do not end gretel.
#[test]
fn no_kernel_ends_gretel() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let code: Vec<u8> = (0..64).flat_map(|_| random().to_le_bytes()).collect();
        let mut machine = machine(&code);
        for until in 1..20 {
            match machine.run(until * 500) {
                Pause::There | Pause::Seen(_) => machine.type_bytes(b"x"),
                Pause::Idle(Some(due)) => machine.wait_until(due),
                Pause::Idle(None) | Pause::Ended(_) => break,
            }
        }
        machine.digests();
    }
}
