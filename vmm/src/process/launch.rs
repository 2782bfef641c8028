//! What is started, and what it is given.

use crate::cpu_model::Model;
use std::os::fd::OwnedFd;

/// What to run, and all that it can see of the one who runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program file's bytes.
    pub executable: Vec<u8>,
    /// Its absolute path, as the guest sees it (AT_EXECFN, /proc/self/exe).
    pub path: String,
    /// The dynamic linker that it asks for.
    pub interpreter: Option<Interpreter>,
    /// The arguments, the program's name first; none may contain a zero byte.
    pub argv: Vec<Vec<u8>>,
    /// The environment, each as NAME=value.
    pub envp: Vec<Vec<u8>>,
    /// The bytes at AT_RANDOM.
    pub random: [u8; 16],
    /// The working directory's path.
    pub cwd: Vec<u8>,
    /// Who runs it.
    pub ids: Ids,
    /// The processor.
    pub cpu: Model,
}

impl Launch {
    /// The same with the files' bytes left out, as a journal's header has it.
    #[must_use]
    pub fn without_files(&self) -> Launch {
        let interpreter = self.interpreter.as_ref();
        let interpreter = interpreter
            .map(|Interpreter { path, .. }| Interpreter { path: path.clone(), executable: Vec::new() });
        Launch { executable: Vec::new(), interpreter, ..self.clone() }
    }
}

/// The dynamic linker of a program, which is loaded beside it and runs first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Its path, as the program names it.
    pub path: String,
    /// The file's bytes.
    pub executable: Vec<u8>,
}

/// User and group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// Real user.
    pub uid: u32,
    /// Effective user.
    pub euid: u32,
    /// Real group.
    pub gid: u32,
    /// Effective group.
    pub egid: u32,
}

/// The program's standard input, output and error.
#[derive(Debug)]
pub enum Streams {
    /// Ours.
    Inherited,
    /// These.
    Given([OwnedFd; 3]),
}
