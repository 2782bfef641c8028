//! Builds the programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds a source file of this folder; `None` when the compiler is not installed.
pub(crate) fn build(
    folder: &Path,
    source: &str,
    name: &str,
    compiler: &str,
    flags: &[&str],
) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native").join(source);
    let output = folder.join(name);
    let status = Command::new(compiler).args(flags).arg("-o").arg(&output).arg(source).arg("-lm").status();
    match status {
        Ok(status) => assert!(status.success(), "{compiler} {flags:?} builds {name}"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: {compiler} is not installed");
            return None;
        }
        Err(error) => panic!("{compiler}: {error}"),
    }
    Some(output)
}
