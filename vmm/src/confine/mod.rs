//! What gretel's own threads may no longer do once the program runs: a program that breaks out into gretel, through a bug of the
//! personality, finds no power there that it did not have before ([decision 26](../../../docs/decisions/0026-sandbox.md)).
//!
//! Two layers, each of which does without the other: [`calls`] is a filter of system calls (seccomp), [`files`] takes away the right to
//! execute files (landlock). Both are for good, and for the threads that are started later.
//!
//! Example: `gretel record` opens its processor and the recording, calls [`confine`], and runs the program. An `execve` by gretel is EPERM
//! from then on; the program's own `execve` is served by the personality and needs none.

mod calls;
mod files;

/// What could be taken away, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confined {
    /// System calls that gretel does not need.
    pub calls: Result<(), String>,
    /// The execution of files.
    pub files: Result<(), String>,
}

impl Confined {
    /// Why a layer is missing, if one is.
    #[must_use]
    pub fn missing(&self) -> Vec<&str> {
        [&self.calls, &self.files]
            .into_iter()
            .filter_map(|layer| layer.as_ref().err())
            .map(String::as_str)
            .collect()
    }
}

/// Confines this process: all of its threads to the calls, and the calling one with all that it starts to the files.
pub fn confine() -> Confined {
    // Landlock first: its own calls are none of those that the filter lets through on every kernel.
    let files = files::confine();
    Confined { calls: calls::confine(), files }
}

/// What [`confine`] would do, found out without doing it.
#[must_use]
pub fn offered() -> Confined {
    Confined { calls: calls::offered(), files: files::offered() }
}
