//! An executable as the loader reads it, and as the walk of the stack does.

#![no_main]

use vmm::elf::Image;
use vmm::stack::{Place, Walker};
use x86::state::Regs;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(image) = Image::parse(bytes) else { return };
    let Ok(mut walker) = Walker::new(bytes) else { return };
    let mut stack = Vec::new();
    let functions = image.instructions(bytes).functions;
    let starts = functions.into_iter().take(8).chain([image.entry]);
    for rip in starts.flat_map(|start| [start, start.wrapping_add(5)]) {
        let mut regs = Regs { rip, ..Regs::default() };
        regs.gpr[4] = 0x7fff_0000_0000;
        walker.walk(Place { regs: &regs, behind: false }, &|address| Some(address ^ rip), &mut stack);
    }
});
