//! A core, gretel's own or any other: its notes, its memory, its parts by gretel.

#![no_main]

use std::fs;
use vmm::elfcore::Core;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("gretel-fuzz-{}", std::process::id()));
    fs::write(&path, bytes).expect("a file in the temporary directory");
    if let Ok(core) = Core::open(&path) {
        let _ = (core.trail(), core.crumbs(), core.contexts());
        let regs = core.state.regs;
        for address in regs.gpr.into_iter().chain([regs.rip]) {
            let _ = (core.byte(address), core.word(address));
        }
    }
});
