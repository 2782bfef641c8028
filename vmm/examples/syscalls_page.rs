//! Prints the page `docs/syscalls.md`: `cargo run -p vmm --example syscalls_page >docs/syscalls.md`.

fn main() {
    print!("{}", vmm::syscalls::page::page());
}
