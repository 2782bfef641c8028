//! What is started, and what it is given: plain data that recorder, journal and personality share.

use crate::cpu_model::Model;
use crate::plain::plain;
use std::os::fd::OwnedFd;
use x86::state::MxcsrMask;

/// What to run, and all that it can see of the one who runs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The program file's bytes.
    pub executable: Vec<u8>,
    /// Its absolute path, as the guest sees it (/proc/self/exe).
    pub path: String,
    /// The name by which it was started: AT_EXECFN, and the first task's name. For a script, the script's.
    pub name: Vec<u8>,
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
    /// Its process id; the ids of other tasks follow.
    pub pid: i32,
    /// Its parent's, process group's and session's.
    pub parents: Parents,
    /// The terminal of its session.
    pub terminal: Option<OuterTerminal>,
    /// What it has open besides its standard streams, by number.
    pub inherited: Vec<Inherited>,
    /// Its supplementary groups.
    pub groups: Vec<u32>,
    /// What it may do.
    pub capabilities: Capabilities,
    /// The rights that new files do not get.
    pub umask: u32,
    /// The signals that it ignores and blocks from the start: nohup, for one, has SIGHUP ignored.
    pub signals: Signals,
    /// How much it may use of what Linux counts.
    pub limits: Limits,
    /// What random schedules are drawn from; `None` for an ordinary one.
    pub seed: Option<u64>,
    /// How many bytes of memory its processes may use; zero if it does not matter.
    pub memory: u64,
    /// The processor.
    pub cpu: Model,
    /// What FXSAVE of the processor where it is recorded stores as MXCSR_MASK, where KVM runs it as it is: no CPU model tells of
    /// that.
    pub mxcsr_mask: MxcsrMask,
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

/// The ids that a process has from the one who starts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parents {
    /// The parent's process id.
    pub parent: i32,
    /// The process group.
    pub group: i32,
    /// The session.
    pub session: i32,
}

/// The terminal of the session that a program is started in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OuterTerminal {
    /// Its number in /dev/pts, if it is there.
    pub index: Option<u32>,
    /// Which of the standard streams are it.
    pub streams: [bool; 3],
}

/// An open file that a program begins with, besides its standard streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// The descriptor.
    pub number: u32,
    /// The lowest descriptor of the same open file, if that is another one.
    pub copy_of: Option<u32>,
    /// Family and kind of a socket.
    pub socket: Option<[u32; 2]>,
    /// Device and number of a regular file.
    pub file: Option<[u64; 2]>,
    /// It is the terminal of the session.
    pub terminal: bool,
}

/// The sets of signals that a program takes over, bit N-1 for signal N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signals {
    /// It ignores them.
    pub ignored: u64,
    /// Its first task blocks them.
    pub blocked: u64,
}

/// Limits of resources (getrlimit(2)): soft and hard, by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits(pub [[u64; 2]; Limits::COUNT]);

impl Limits {
    /// How many kinds there are.
    pub const COUNT: usize = 16;
    /// None.
    pub const UNLIMITED: u64 = u64::MAX;
}

impl Default for Limits {
    /// As most systems have it: a stack of 8 MiB, no core, 1024 descriptors.
    fn default() -> Limits {
        let mut limits = [[Limits::UNLIMITED; 2]; Limits::COUNT];
        (limits[3][0], limits[4][0], limits[7]) = (8 << 20, 0, [1024, 1 << 20]);
        Limits(limits)
    }
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

/// Sets of capabilities, a bit for each, and the securebits (capabilities(7)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// What is allowed now.
    pub effective: u64,
    /// What may become effective.
    pub permitted: u64,
    /// What exec keeps, of files that say so.
    pub inheritable: u64,
    /// What exec gives at most.
    pub bounding: u64,
    /// What exec keeps.
    pub ambient: u64,
    /// How users and capabilities go together.
    pub securebits: u32,
}

plain!(struct Capabilities { effective, permitted, inheritable, bounding, ambient, securebits });

impl Capabilities {
    /// The last that there is: CAP_CHECKPOINT_RESTORE.
    pub const LAST: u32 = 40;
    /// All.
    pub const ALL: u64 = (1 << (Self::LAST + 1)) - 1;

    /// Those of root, or of any other user, where nothing was taken away.
    #[must_use]
    pub fn usual(root: bool) -> Capabilities {
        let set = if root { Self::ALL } else { 0 };
        Capabilities { effective: set, permitted: set, bounding: Self::ALL, ..Capabilities::default() }
    }
}

/// The program's standard input, output and error, and what else it begins with.
#[derive(Debug)]
pub enum Streams {
    /// Ours.
    Inherited,
    /// Ours, and these for what is inherited besides ([`Launch::inherited`]), in the same order.
    AndOthers(Vec<OwnedFd>),
    /// These.
    Given([OwnedFd; 3]),
}

impl Streams {
    /// The standard streams, if they are not ours, and the others.
    pub(crate) fn apart(self) -> (Option<[OwnedFd; 3]>, Vec<OwnedFd>) {
        match self {
            Streams::Inherited => (None, Vec::new()),
            Streams::AndOthers(others) => (None, others),
            Streams::Given(standard) => (Some(standard), Vec::new()),
        }
    }
}
