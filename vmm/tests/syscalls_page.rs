//! The page of system calls is what the table says.

#[test]
fn the_page_is_up_to_date() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/syscalls.md");
    let written = std::fs::read_to_string(path).expect("docs/syscalls.md can be read");
    let page = vmm::syscalls::page::page();
    let differs = written.lines().zip(page.lines()).find(|(written, now)| written != now);
    assert!(
        written == page,
        "docs/syscalls.md is out of date, run `make page`; the first difference: {differs:?}"
    );
}
