//! A kernel of anybody's making: an ELF file with any headers and notes, any Multiboot header, a bzImage with any header and payload. What
//! can be booted runs for a while and is given input of each kind, so that the processor and the devices meet code that no kernel has.

#![no_main]

use board::boot::LEAST_MEMORY;
use board::journal::Input;
use board::vsock::Header;
use board::{BootError, DiskImage, Extras, Machine, Pause, Setup, Size};
use std::fs::{self, File};
use std::sync::LazyLock;

/// Instructions between two things that come from outside, and how many there are of these.
const STRETCH: u64 = 4096;
const STRETCHES: u64 = 4;
/// Where the header of a bzImage is, and where its payload is in those that are made here.
const HEADER: usize = 0x1f1;
const PAYLOAD: usize = 1024;

/// Eight sectors, in a file without a name.
static DISK: LazyLock<DiskImage> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("gretel-fuzz-disk-{}", std::process::id()));
    fs::write(&path, [0x11; 4096]).expect("a file in the temporary directory");
    let file = File::open(&path).expect("the file");
    fs::remove_file(&path).expect("the file");
    DiskImage::new(file, false, 4096).expect("whole sectors")
});

/// These bytes as the payload of a bzImage that is right otherwise.
fn bz_image(payload: &[u8]) -> Vec<u8> {
    let mut file = vec![0; PAYLOAD];
    file[HEADER] = 1;
    file[0x201] = 0x66;
    file[0x202..0x206].copy_from_slice(b"HdrS");
    file[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    file.extend_from_slice(payload);
    file
}

/// Boots what the first bytes say, and runs it.
fn run(choice: u8, size: u8, kernel: Vec<u8>) {
    let setup = Setup {
        kernel,
        // Of four bytes, of some pages, or larger than memory.
        initrd: [None, Some(4), Some(0x3001), Some(18 << 20)][usize::from(choice & 3)].map(|n| vec![0xa5; n]),
        command_line: "x".repeat(usize::from(size) * 10),
        memory: LEAST_MEMORY + u64::from(size) * 4096,
        start: 1_700_000_000,
        disk: (choice & 4 != 0).then(|| DISK.clone()),
        extras: Extras {
            net: (choice & 8 != 0).then_some([2, 0, 0, 0, 0, 1]),
            rng: choice & 128 != 0,
            console: choice & 32 != 0,
            vsock: choice & 64 != 0,
        },
    };
    let mut machine = match Machine::tuned(&setup, None) {
        Ok(machine) => machine,
        // Then nothing would be booted at all.
        Err(BootError::Memory(bytes)) => panic!("a machine does not have {bytes} bytes of memory"),
        Err(_) => return,
    };
    for n in 1..=STRETCHES {
        match machine.run(n * STRETCH) {
            Pause::Ended(_) | Pause::Idle(None) => break,
            Pause::Idle(Some(due)) => machine.wait_until(due),
            Pause::There | Pause::Seen(_) => {}
        }
        let wanted = machine.random_wanted();
        let inputs = [
            Input::Typed(b"text\r".to_vec()),
            Input::Frame(vec![size; 64]),
            Input::Random(vec![size; wanted]),
            Input::Resized(Size { columns: 80, rows: size.into() }),
            Input::Packet(Header::default().packet(&[])),
            Input::Severed,
        ];
        inputs.iter().for_each(|input| machine.take_in(input));
        machine.take_printed();
    }
    let _ = machine.digests_of_all();
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [choice, size, kernel @ ..] = bytes else { return };
    run(*choice, *size, if choice & 16 == 0 { kernel.to_vec() } else { bz_image(kernel) });
});
