//! The golden cases of x86 on this processor: what they say is what it does.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use iced_x86::{Decoder, DecoderOptions};
use std::fs;
use std::path::Path;
use x86::golden::{self, Situation};
use x86::machine::Trap;
use x86::state::Fpu;
use x86::xsave::Layout;
use x86_oracle::case::{Case, Ending, Image, Outcome};
use x86_oracle::compare;
use x86_oracle::dont_care;
use x86_oracle::generate::Generator;
use x86_oracle::host;
use x86_oracle::interpreter::Soft;
use x86_oracle::layout::{CODE, DATA, DATA_SIZE, WRITABLE};
use x86_oracle::native::Worker;

fn image(memory: &Situation) -> Image {
    let mut image = [0; DATA_SIZE];
    for (at, byte) in &memory.memory {
        image[usize::try_from(at - DATA).unwrap()] = *byte;
    }
    image
}

/// The outcome in the terms of a golden case: the trap, and the state and memory after.
fn situation(case: &golden::Case, image: &Image, outcome: &Outcome) -> (Option<Trap>, Situation) {
    let mut after = x86_oracle::golden::situation(image, outcome).unwrap();
    after.state.regs.rflags &= !case.undefined;
    let target = case.after.state.regs.rip;
    let trap = match outcome.ending {
        Ending::Completed => None,
        // It jumped to where there is nothing, and stopped there: that is where the case ends.
        Ending::Fault { vector: 14, error, address } if error & 0x10 != 0 && address == target => None,
        // Or to where the worker has INT3.
        Ending::Fault { vector: 3, .. } if case.trap != Some(Trap::Breakpoint) => {
            after.state.regs.rip -= 1;
            None
        }
        Ending::Fault { vector, .. } => Some(trap(vector)),
        other => panic!("{}: {other:?}", case.text),
    };
    (trap, after)
}

fn trap(vector: u8) -> Trap {
    match vector {
        0 => Trap::Divide,
        1 => Trap::Debug,
        3 => Trap::Breakpoint,
        6 => Trap::Undefined,
        12 => Trap::Stack,
        13 => Trap::General,
        14 => Trap::Page,
        16 => Trap::X87,
        19 => Trap::Simd,
        _ => panic!("no golden case has exception {vector}"),
    }
}

/// Whether what this processor does differs from the semantics only as processors do.
fn is_forgiven(image: &Image, case: &Case, native: &Outcome) -> bool {
    let mut soft = Soft::new();
    soft.load_image(image);
    let found = soft.run(case);
    compare::differences(&mut soft, case, native, &found).is_empty()
}

/// The registers without what this host lacks.
fn as_this_host_has_it(fpu: &Fpu) -> Fpu {
    let image = fpu.to_xsave(&Layout::MODEL, host::components());
    Fpu::from_xsave(&Layout::MODEL, &image).unwrap()
}

#[test]
fn this_processor_does_what_the_golden_cases_say() {
    assert_eq!((CODE, DATA), (golden::CODE, golden::DATA));
    assert_eq!(DATA + WRITABLE as u64, golden::DATA_END);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let mut worker = Worker::start().unwrap();
    let (mut failures, mut count) = (String::new(), 0);
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        for mut case in golden::parse(&fs::read_to_string(&file).unwrap()).unwrap() {
            let i = Decoder::with_ip(64, &case.bytes, CODE, DecoderOptions::NONE).decode();
            if dont_care::exclusion(&i, &case.bytes).is_some() || !host::runs(i.code()) {
                continue;
            }
            for situation in [&mut case.before, &mut case.after] {
                situation.state.fpu = as_this_host_has_it(&situation.state.fpu);
            }
            let image = image(&case.before);
            let native = Case::new(&case.bytes, case.before.state).unwrap();
            let outcome = worker.run(&image, &[native], || ()).unwrap()[0];
            count += 1;
            let (trap, after) = situation(&case, &image, &outcome);
            let wrong = golden::difference(&case.after, &after);
            if (trap != case.trap || !wrong.is_empty()) && !is_forgiven(&image, &native, &outcome) {
                failures += &format!("{name}:{}: {}: {trap:?} {wrong}\n", case.line, case.text);
            }
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(count > 100, "only {count} golden cases");
}

#[test]
fn every_mnemonic_has_a_golden_case() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../golden");
    let mut shown = std::collections::BTreeSet::new();
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        for case in golden::parse(&fs::read_to_string(&file).unwrap()).unwrap() {
            shown.insert(Decoder::with_ip(64, &case.bytes, CODE, DecoderOptions::NONE).decode().mnemonic());
        }
    }
    let missing: Vec<_> = Generator::new(&[], 1).mnemonics().filter(|m| !shown.contains(m)).collect();
    assert!(missing.is_empty(), "no golden case: {missing:?}");
}
