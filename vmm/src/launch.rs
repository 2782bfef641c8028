//! What a program that is started here and now gets from its surroundings: the inputs that it sees at its start.

use crate::cpu_model::Model;
use crate::elf::Image;
use crate::host::{is_terminal, limits, mxcsr_mask, terminals_device};
use crate::linux::load::script::{DEEPEST, NoInterpreter, Script};
use crate::program::{Capabilities, Ids, Interpreter, Launch, Limits, OuterTerminal, Parents, Signals};
use lbr::regular;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Why there is nothing to start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// No such program.
    #[error("cannot find {0:?} in PATH")]
    NotFound(OsString),
    /// It cannot be read or executed.
    #[error("cannot run {}: {error}", path.display())]
    Program {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The dynamic linker that it asks for cannot be read.
    #[error("cannot run {program}: its dynamic linker {path} cannot be read: {error}")]
    Interpreter {
        /// The program.
        program: String,
        /// The dynamic linker.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// The surroundings cannot be read.
    #[error("cannot read {what}: {error}")]
    Surroundings {
        /// What.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

/// The launch of `program` (searched in PATH as execvp does) with `arguments`, in this process's environment and
/// working directory, by its user, with fresh random bytes, on the given processor; with no more than its standard streams open
/// ([`crate::linux::inherited`] has the rest).
///
/// # Errors
/// When the program cannot be found, read or executed.
pub fn launch_here(program: &OsStr, arguments: &[OsString], cpu: Model) -> Result<Launch, LaunchError> {
    let found = find(program)?;
    let name = found.clone().into_os_string().into_vec();
    let argv = std::iter::once(program).chain(arguments.iter().map(OsString::as_os_str));
    let argv: Vec<Vec<u8>> = argv.map(|argument| argument.as_bytes().to_vec()).collect();
    let Found { path, executable, argv } = through_scripts(&found, argv)?;
    let path = path.to_string_lossy().into_owned();
    let interpreter = interpreter(&path, &executable)?;
    let surroundings = |what| move |error| LaunchError::Surroundings { what, error };
    let status = fs::read_to_string("/proc/thread-self/status");
    let status = status.map_err(surroundings("/proc/thread-self/status"))?;
    let cwd = env::current_dir().map_err(surroundings("the working directory"))?;
    let name_value = |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    Ok(Launch {
        executable,
        path,
        interpreter,
        argv,
        envp: env::vars_os().map(name_value).collect(),
        random: random()?,
        cwd: cwd.into_os_string().into_vec(),
        ids: ids(),
        name,
        pid: i32::try_from(std::process::id()).unwrap_or(1),
        parents: parents(),
        terminal: terminal(),
        inherited: Vec::new(),
        groups: groups(),
        capabilities: capabilities(&status),
        umask: umask(&status),
        signals: signals(&status),
        limits: Limits(limits()),
        seed: None,
        memory: 0,
        cpu,
        mxcsr_mask: mxcsr_mask(),
    })
}

/// A program that was found: its path and bytes, and its arguments.
struct Found {
    path: PathBuf,
    executable: Vec<u8>,
    argv: Vec<Vec<u8>>,
}

/// Follows scripts to the program that reads the first of them: its path and bytes, and its arguments.
fn through_scripts(found: &Path, mut argv: Vec<Vec<u8>>) -> Result<Found, LaunchError> {
    let failed = |why: &str| LaunchError::Program { path: found.to_owned(), error: io::Error::other(why) };
    let mut asked = found.to_owned();
    for _ in 0..=DEEPEST {
        let (path, bytes) = executable(&asked)?;
        let script = match Script::parse(&bytes) {
            None => return Ok(Found { path, executable: bytes, argv }),
            Some(Err(NoInterpreter)) => return Err(failed("it is a script that names no interpreter")),
            Some(Ok(script)) => script,
        };
        argv = script.arguments(asked.as_os_str().as_bytes(), &argv);
        asked = PathBuf::from(OsString::from_vec(script.interpreter));
    }
    Err(failed("its scripts name one another"))
}

/// The real path and the bytes of a file that may be executed.
fn executable(asked: &Path) -> Result<(PathBuf, Vec<u8>), LaunchError> {
    let failed = |error| LaunchError::Program { path: asked.to_owned(), error };
    let path = fs::canonicalize(asked).map_err(failed)?;
    let metadata = fs::metadata(&path).map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("it is not a file")));
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(failed(io::Error::other("it is not executable (chmod +x)")));
    }
    let bytes = regular::read(&path).map_err(failed)?;
    Ok((path, bytes))
}

/// The number behind a name in a task's status.
fn number(status: &str, name: &str, radix: u32) -> Option<u64> {
    let text = status.lines().find_map(|line| line.strip_prefix(name))?;
    u64::from_str_radix(text.trim(), radix).ok()
}

/// The rights that new files of this process do not get.
fn umask(status: &str) -> u32 {
    number(status, "Umask:", 8).and_then(|mask| mask.try_into().ok()).unwrap_or(0o022)
}

/// The signals that this process was told to ignore, and those that the calling thread blocks. That SIGPIPE and SIGXFSZ are ignored is our
/// own doing: Rust's runtime and [`crate::interrupt::survive_file_size_limit`].
fn signals(status: &str) -> Signals {
    let own = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);
    Signals {
        ignored: number(status, "SigIgn:", 16).unwrap_or(0) & !own,
        blocked: number(status, "SigBlk:", 16).unwrap_or(0),
    }
}

/// This process's capabilities.
fn capabilities(status: &str) -> Capabilities {
    let set = |name: &str| number(status, name, 16).unwrap_or_default() & Capabilities::ALL;
    // SAFETY: this option of prctl takes no pointer.
    let securebits = unsafe { libc::prctl(libc::PR_GET_SECUREBITS, 0, 0, 0, 0) };
    Capabilities {
        effective: set("CapEff:"),
        permitted: set("CapPrm:"),
        inheritable: set("CapInh:"),
        bounding: set("CapBnd:"),
        ambient: set("CapAmb:"),
        securebits: u32::try_from(securebits).unwrap_or_default(),
    }
}

/// This process's parent, process group and session.
fn parents() -> Parents {
    // SAFETY: these calls take no pointer; they cannot fail for the calling process.
    unsafe { Parents { parent: libc::getppid(), group: libc::getpgrp(), session: libc::getsid(0) } }
}

/// The terminal of this process's session.
fn terminal() -> Option<OuterTerminal> {
    const SLAVES: std::ops::RangeInclusive<u32> = 136..=143;
    let (major, minor) = terminals_device()?;
    Some(OuterTerminal {
        index: SLAVES.contains(&major).then(|| (major - SLAVES.start()) << 8 | minor),
        streams: [0, 1, 2].map(is_terminal),
    })
}

/// This process's supplementary groups.
fn groups() -> Vec<u32> {
    // SAFETY: with a size of zero nothing is written.
    let count = unsafe { libc::getgroups(0, std::ptr::null_mut()) };
    let mut groups = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the vector has room for as many as are asked for.
    let count = unsafe { libc::getgroups(count, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}

/// The dynamic linker that a program asks for. What is wrong with the program itself is said by those who load it.
fn interpreter(program: &str, executable: &[u8]) -> Result<Option<Interpreter>, LaunchError> {
    let Some(path) = Image::parse(executable).ok().and_then(|image| image.interpreter) else {
        return Ok(None);
    };
    match regular::read(Path::new(&path)) {
        Ok(executable) => Ok(Some(Interpreter { path, executable })),
        Err(error) => Err(LaunchError::Interpreter { program: program.to_owned(), path, error }),
    }
}

/// The file that a command name means: itself if it has a slash, else the first executable of that name in PATH.
fn find(program: &OsStr) -> Result<PathBuf, LaunchError> {
    if program.as_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let executable =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| Path::new(&dir).join(program)).find(executable);
    found.ok_or_else(|| LaunchError::NotFound(program.to_owned()))
}

/// Sixteen bytes of the host's randomness.
fn random() -> Result<[u8; 16], LaunchError> {
    let mut bytes = [0; 16];
    // SAFETY: the pointer and the length are those of `bytes`.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 16 {
        let error = io::Error::last_os_error();
        return Err(LaunchError::Surroundings { what: "random bytes", error });
    }
    Ok(bytes)
}

/// Who runs this process.
fn ids() -> Ids {
    // SAFETY: these calls have no arguments and cannot fail.
    unsafe { Ids { uid: libc::getuid(), euid: libc::geteuid(), gid: libc::getgid(), egid: libc::getegid() } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_searched_and_a_path_is_not() {
        let launch = launch_here(OsStr::new("sh"), &["-c".into()], Model::V3).unwrap();
        assert!(launch.path.starts_with('/'));
        assert_eq!(launch.argv, [b"sh".to_vec(), b"-c".to_vec()]);
        assert!(launch.executable.starts_with(b"\x7fELF"));
        assert!(matches!(
            launch_here(OsStr::new("no-such-program"), &[], Model::V2),
            Err(LaunchError::NotFound(_))
        ));
        assert!(matches!(launch_here(OsStr::new("./sh"), &[], Model::V2), Err(LaunchError::Program { .. })));
        assert!(matches!(
            launch_here(OsStr::new("/etc/passwd"), &[], Model::V2),
            Err(LaunchError::Program { .. })
        ));
        assert!(matches!(launch_here(OsStr::new("/etc/"), &[], Model::V2), Err(LaunchError::Program { .. })));
    }
}
