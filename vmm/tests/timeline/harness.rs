//! Compiles programs and records them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use vmm::cpu_model::Model;
use vmm::engine::{self, EngineError, EngineKind, Machine};
use vmm::launch::launch_here;
use vmm::process::Launch;
use vmm::record::Options;
use vmm::recording::Recording;

const MEMORY: u64 = 1 << 30;

/// A program in a folder of its own.
pub(crate) struct Compiled {
    folder: tempfile::TempDir,
    name: &'static str,
}

impl Compiled {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }

    /// Records it with these arguments.
    pub(crate) fn record(&self, kind: EngineKind, arguments: &[&str]) -> Recording {
        self.record_with(kind, arguments, Options::default())
    }

    /// The same with other options.
    pub(crate) fn record_with(&self, kind: EngineKind, arguments: &[&str], options: Options) -> Recording {
        let recording =
            Recording::create(&self.folder.path().join(format!("rec-{}", kind.name())), true).unwrap();
        let mut launch = launch(self.path());
        launch.argv.extend(arguments.iter().map(|argument| argument.as_bytes().to_vec()));
        vmm::record::record(&recording, machine(kind), &launch, options, &mut |_, _, _| ()).unwrap();
        recording
    }
}

/// Compiles a C program statically; `None` where there is no compiler.
pub(crate) fn compiled(name: &'static str, source: &str, flags: &[&str]) -> Option<Compiled> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let program = Compiled { folder, name };
    let mut command = Command::new("gcc");
    command.args(["-static", "-O1", "-g", "-w", "-o"]).arg(program.path()).arg(&file).args(flags);
    match command.output() {
        Err(error) => {
            eprintln!("skipped: {name}, since gcc: {error}");
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(program)
        }
    }
}

pub(crate) fn launch(program: impl AsRef<Path>) -> Launch {
    launch_here(&OsString::from(program.as_ref()), &[], Model::V2).unwrap()
}

/// The engines that this host has.
pub(crate) fn engines() -> Vec<EngineKind> {
    match engine::open(EngineKind::Kvm, 1 << 20) {
        Err(error @ EngineError::KvmUnavailable { .. }) => {
            eprintln!("skipped: engine kvm, since {error}");
            vec![EngineKind::Soft]
        }
        other => other.map(|_| vec![EngineKind::Soft, EngineKind::Kvm]).unwrap(),
    }
}

pub(crate) fn machine(kind: EngineKind) -> Machine {
    engine::open(kind, MEMORY).unwrap()
}
