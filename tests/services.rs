//! Services of Debian under load: the quick ones of those that are installed, each natively and recorded on each engine, and
//! replayed. All of them, installed first, are `make services`.

use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

#[test]
fn quick_services_answer_and_end_as_natively_and_replay() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = tempfile::tempdir().expect("a temporary folder");
    let ran = Command::new(root.join("scripts/services.sh"))
        .args(["--quick", "--replays", "1", "--gretel", env!("CARGO_BIN_EXE_gretel"), "--out"])
        .arg(out.path())
        .output()
        .expect("the script runs");
    let (table, errors) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    for line in table.lines().filter(|line| line.contains("skipped")) {
        // Where stderr is closed nobody can be told.
        let _ = writeln!(stderr(), "{line}");
    }
    assert!(ran.status.success(), "{table}{errors}");
    assert!(table.lines().count() > 1, "{table}");
}
