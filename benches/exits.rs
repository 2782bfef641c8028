//! What it costs to leave the guest and come back: a system call and a page fault on each engine, against a system call
//! of this process in the same run. `cargo bench --bench exits`.

use vmm::engine::{self, EngineKind};
use vmm::probe::ExitCost;
use vmm::sandbox::Sandbox;

const MEMORY: u64 = 1 << 20;

fn main() {
    println!(
        "{:<8} {:>12} {:>12} {:>12} {:>16}",
        "engine", "syscall µs", "fault µs", "native µs", "syscall/native"
    );
    for kind in [EngineKind::Kvm, EngineKind::Soft] {
        match engine::open(kind, MEMORY) {
            Ok(engine) => {
                let mut sandbox = Sandbox::new(engine).expect("an empty address space");
                print(kind, ExitCost::measure(&mut sandbox).expect("two exits in a loop"));
            }
            Err(why) => println!("{:<8} skipped: {why}", kind.name()),
        }
    }
}

fn print(kind: EngineKind, cost: ExitCost) {
    let ExitCost { syscall, page_fault, native_syscall } = cost;
    let ratio = syscall / native_syscall;
    println!("{:<8} {syscall:>12.3} {page_fault:>12.3} {native_syscall:>12.3} {ratio:>15.1}x", kind.name());
}
