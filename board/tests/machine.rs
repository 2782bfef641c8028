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
