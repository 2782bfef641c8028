//! The heap's first part is to consist of large pages: without the harness, whose threads have heaps of their own.

use std::fs;

/// The advice as the kernel shows it (proc(5), VmFlags): huge.
const ADVISED: &str = "hg";

fn main() {
    vmm::host::keep_freed_memory();
    vmm::host::take_large_pages();
    if !fs::exists("/sys/kernel/mm/transparent_hugepage").unwrap_or(false) {
        println!("this kernel has no large pages on request: nothing to test");
        return;
    }
    let block = vec![1_u8; 12 << 20];
    let at = block.as_ptr().addr();
    let maps = fs::read_to_string("/proc/self/smaps").expect("the mappings of this process");
    let (mut begin, mut advised, mut found) = (0, 0, false);
    for line in maps.lines() {
        let bounds = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        let number = |text: &str| usize::from_str_radix(text, 16).ok();
        if let Some((Some(from), Some(to))) = bounds.map(|(from, to)| (number(from), number(to))) {
            // How much of the block lies in this mapping.
            begin = (to.min(at + block.len())).saturating_sub(from.max(at));
        } else if line.starts_with("VmFlags:") && line.split(' ').any(|flag| flag == ADVISED) {
            advised += begin;
            found = true;
        }
    }
    assert!(found, "no mapping is advised to have large pages:\n{maps}");
    // All but what lies before the first multiple of 2 MiB.
    assert!(advised >= block.len() - (4 << 20), "{advised} bytes of {} are advised", block.len());
    println!("{advised} bytes of {} are advised", block.len());
}
