//! A pack of anybody's making: any bytes, and any tar under zstd. Nothing is written but in the folder that it is unpacked to.

#![no_main]

use std::fs;
use vmm::pack::unpack;

fn unpacked(file: &[u8]) {
    let place = std::env::temp_dir().join(format!("gretel-fuzz-pack-{}", std::process::id()));
    let _ = fs::remove_dir_all(&place);
    fs::create_dir(&place).expect("a folder in the temporary directory");
    let pack = place.join("pack");
    fs::write(&pack, file).expect("a file in the temporary directory");
    let _ = unpack(&pack, &place.join("out"), |_| None);
    let others = fs::read_dir(&place).expect("the folder").flatten();
    assert!(others.map(|entry| entry.file_name()).all(|name| name == "pack" || name == "out"));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    unpacked(bytes);
    unpacked(&zstd::bulk::compress(bytes, 1).expect("compresses"));
});
