//! The page of instructions is that of the table, and names every instruction there is.

use iced_x86::Code;
use x86_oracle::campaign::Summary;
use x86_oracle::generate::encodings;
use x86_oracle::{page, runs};

#[test]
fn the_page_is_up_to_date() {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let runs = runs::load(&here.join("runs")).unwrap();
    let written = std::fs::read_to_string(here.join("../../docs/instructions.md")).unwrap();
    let made = page::page(&runs);
    let differs = written.lines().zip(made.lines()).find(|(written, made)| written != made);
    assert!(
        written == made,
        "docs/instructions.md is out of date, run `make page`; the first difference: {differs:?}"
    );
}

#[test]
fn every_encoding_is_in_a_family() {
    let lost: Vec<_> = encodings().filter(|code| page::family(*code).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn what_a_run_passed_is_kept_and_shown() {
    let folder = tempfile::tempdir().unwrap();
    let passed = [
        (Code::Add_rm32_r32, 1200),
        (Code::Add_EAX_imm32, 34),
        (Code::EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64, 5),
    ];
    let summary = Summary { cases: 1239, passed: passed.into_iter().collect(), ..Summary::default() };
    for seed in [7, 8] {
        runs::save(folder.path(), &summary, seed).unwrap();
    }
    let page = page::page(&runs::load(folder.path()).unwrap());
    let row =
        |name: &str| page.lines().filter(|line| line.starts_with(&format!("| {name} |"))).collect::<Vec<_>>();
    assert_eq!(row("add"), ["| add | 19 | 2,468 |  |"]);
    // The VEX forms are in another family.
    let [vex, evex] = row("vaddpd")[..] else { panic!("{:?}", row("vaddpd")) };
    assert!(vex.ends_with("| - |  |") && evex.ends_with("| 10 |  |"), "{vex} {evex}");
}

#[test]
fn a_run_is_not_written_over_and_another_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    runs::save(folder.path(), &Summary::default(), 7).unwrap();
    let again = runs::save(folder.path(), &Summary::default(), 7).unwrap_err();
    assert!(again.to_string().ends_with("-seed-7.json is there already; run with another --seed"), "{again}");
    std::fs::write(folder.path().join("other.json"), "{").unwrap();
    let other = runs::load(folder.path()).unwrap_err();
    assert!(other.to_string().contains("other.json: not the figures of a run"), "{other}");
    let none = runs::load(&folder.path().join("none")).unwrap_err();
    assert!(none.to_string().contains("none: No such file"), "{none}");
}
