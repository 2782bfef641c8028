//! execve and execveat: another program in the place of this one.
//!
//! The program's file, its dynamic linker and each script on the way are inputs: the journal has their bytes, once for each
//! content. Nothing of the old program is touched before the new one's address space is complete, so an error leaves the
//! caller as it was.

use super::descriptors::OpenFile;
use super::load::script::{DEEPEST, Script};
use super::load::{self, Program};
use super::proc::start::Start;
use super::proc::{Last, Place, find};
use super::signals::TaskSignals;
use super::{Guest, Kernel, Outcome, Served, Stop, busy, errno, host, int, memory};
use crate::elf::Image;
use crate::failure::ProcessError;
use crate::gate::{FileContent, Input};
use crate::program::Ids;
use crate::ram::Virt;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use x86::state::Fpu;

/// How many arguments, and how many bytes of them, a program may have (an eighth of the largest stack, as MAX_ARG_STRLEN and
/// the stack's limit come to).
const MOST_TEXTS: usize = 0x10_0000;
const LONGEST_TEXT: usize = 32 << 12;
const MOST_BYTES: usize = 2 << 20;

/// What is to be started.
struct Request {
    path: CString,
    /// The path leads by a descriptor that exec closes: what reads a script cannot open it (BINPRM_FLAGS_PATH_INACCESSIBLE).
    closed: bool,
    argv: Vec<Vec<u8>>,
    envp: Vec<Vec<u8>>,
}

/// What a program's file holds, and the file itself, but at replay.
type Read = (Arc<FileContent>, Option<Rc<OpenFile>>);

/// A program that was found, at the end of a chain of scripts.
struct Found {
    file: Arc<FileContent>,
    program: Option<Rc<OpenFile>>,
    argv: Vec<Vec<u8>>,
}

pub(super) fn execve(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served<Outcome> {
    start(kernel, guest, libc::AT_FDCWD, a[0], a[1], a[2], 0)
}

pub(super) fn execveat(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served<Outcome> {
    let flags = int(a[4]);
    if flags & !(libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW) != 0 {
        return errno(libc::EINVAL);
    }
    start(kernel, guest, int(a[0]), a[1], a[2], a[3], flags)
}

fn start(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    directory: i32,
    path: Virt,
    argv: Virt,
    envp: Virt,
    flags: i32,
) -> Served<Outcome> {
    kernel.write_all_back(guest)?;
    let path = super::passthrough::path(guest, path)?;
    let mut argv = texts(guest, argv)?;
    let envp = texts(guest, envp)?;
    if argv.is_empty() {
        // As Linux since 5.18: a program has a name.
        argv.push(Vec::new());
    }
    if argv.iter().chain(&envp).map(|text| text.len() + 9).sum::<usize>() > MOST_BYTES {
        return errno(libc::E2BIG);
    }
    let ((file, program), name) = open_first(kernel, guest, directory, &path, flags)?;
    let by_descriptor = directory != libc::AT_FDCWD && !path.to_bytes().starts_with(b"/");
    let closed = by_descriptor && kernel.files().close_on_exec(directory)?;
    let request = Request { path: name, closed, argv, envp };
    let found = Found { file, program, argv: request.argv.clone() };
    let found = through_scripts(kernel, guest, found, &request)?;
    let interpreter = match Image::parse(&found.file.bytes) {
        Ok(Image { interpreter: Some(path), .. }) if path.is_empty() => return errno(libc::ENOENT),
        Ok(Image { interpreter: Some(path), .. }) => {
            let name = CString::new(path.clone()).map_err(|_| Stop::Errno(libc::ENOEXEC))?;
            Some((path, kernel.read_program(guest, libc::AT_FDCWD, &name, 0)?.0))
        }
        Ok(_) => None,
        Err(error) => {
            tracing::debug!(%error, "exec");
            return errno(libc::ENOEXEC);
        }
    };
    let random = guest.random16()?;
    let path = String::from_utf8_lossy(&found.file.name).into_owned();
    let credentials = &kernel.group().credentials;
    let ids = Ids {
        uid: credentials.uid[0],
        euid: credentials.uid[1],
        gid: credentials.gid[0],
        egid: credentials.gid[1],
    };
    let program = Program {
        path: &path,
        name: request.path.as_bytes(),
        executable: &found.file.bytes,
        interpreter: interpreter.as_ref().map(|(path, file)| (path.as_str(), &file.bytes)),
        argv: &found.argv,
        envp: &request.envp,
        random,
        ids,
        cpu: guest.model,
        time: kernel.clock.page(),
    };
    let (space, regs) = match load::load(guest.memory, &program) {
        Ok(loaded) => loaded,
        Err(ProcessError::Program { error, .. }) => {
            tracing::debug!(%error, "exec");
            return errno(libc::ENOEXEC);
        }
        Err(ProcessError::Launch(_)) => return errno(libc::E2BIG),
        Err(ProcessError::Memory(_)) => return errno(libc::ENOMEM),
        Err(error) => return Err(Stop::Fatal(error)),
    };
    let begin = Start::read(&space, guest.memory, regs.gpr[4]);
    kernel.replace(guest, space)?;
    let task = kernel.tasks.current_mut();
    task.name = super::identity::name_of(request.path.as_bytes());
    let group = kernel.group_mut();
    group.program = found.program;
    group.path = CString::new(found.file.name.clone()).unwrap_or_default();
    group.arguments = found.argv;
    group.start = begin;
    group.executed = true;
    kernel.persona_after_exec();
    guest.cpu.set_regs(&regs)?;
    guest.cpu.set_fpu(&Fpu::default())?;
    Ok(Outcome::Resumed)
}

/// Opens what is asked for; gives it with the name that the program is told (AT_EXECFN).
fn open_first(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    directory: i32,
    path: &CStr,
    flags: i32,
) -> Served<(Read, CString)> {
    let empty = path.is_empty();
    if empty && flags & libc::AT_EMPTY_PATH == 0 {
        return errno(libc::ENOENT);
    }
    let file = kernel.read_program(guest, directory, path, flags)?;
    let name = match directory {
        libc::AT_FDCWD => path.to_owned(),
        _ if path.to_bytes().starts_with(b"/") => path.to_owned(),
        number if empty => CString::new(format!("/dev/fd/{number}")).expect("no zero byte"),
        number => {
            let name = [format!("/dev/fd/{number}/").as_bytes(), path.to_bytes()].concat();
            CString::new(name).expect("no zero byte")
        }
    };
    Ok((file, name))
}

/// Follows scripts to the program that reads the first of them.
fn through_scripts(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    mut found: Found,
    request: &Request,
) -> Served<Found> {
    let mut path = request.path.to_bytes().to_vec();
    for _ in 0..=DEEPEST {
        let script = match Script::parse(&found.file.bytes) {
            None => return Ok(found),
            Some(Err(_)) => return errno(libc::ENOEXEC),
            Some(Ok(_)) if request.closed => return errno(libc::ENOENT),
            Some(Ok(script)) => script,
        };
        found.argv = script.arguments(&path, &found.argv);
        let name = CString::new(script.interpreter.clone()).map_err(|_| Stop::Errno(libc::ENOEXEC))?;
        (found.file, found.program) = kernel.read_program(guest, libc::AT_FDCWD, &name, 0)?;
        path = script.interpreter;
    }
    errno(libc::ELOOP)
}

/// A vector of texts, as the guest wrote it; null is an empty one.
fn texts(guest: &mut Guest<'_>, mut at: Virt) -> Served<Vec<Vec<u8>>> {
    let mut texts = Vec::new();
    if at == 0 {
        return Ok(texts);
    }
    loop {
        let [text] = guest.read_words(at)?;
        if text == 0 {
            return Ok(texts);
        }
        match guest.string(text, LONGEST_TEXT)? {
            Some(text) if texts.len() < MOST_TEXTS => texts.push(text),
            _ => return errno(libc::E2BIG),
        }
        at = at.wrapping_add(8);
    }
}

impl Kernel {
    /// The bytes of a program's file, which must be a regular one that the program's user may execute, and that nobody has open to
    /// write; and that file, but at replay.
    fn read_program(
        &mut self,
        guest: &mut Guest<'_>,
        directory: i32,
        path: &CStr,
        flags: i32,
    ) -> Served<Read> {
        let (open, mut program) = (self.open_regular(), None);
        let mut taken = std::mem::take(&mut self.taken);
        let mut read = |file: OwnedFd| {
            let checked = busy::check_run(file.as_raw_fd(), &open);
            let kept = file.try_clone().ok().map(busy::program);
            let whole = memory::part(file.as_raw_fd(), 0, u64::MAX);
            let file = std::fs::File::from(file);
            host::check_executable(&file)?;
            checked.map(|()| program = kept)?;
            match taken.unchanged(whole, file.as_raw_fd()) {
                Some(known) => Ok(known),
                None => Ok(taken.share(whole, host::program(file)?)),
            }
        };
        let content = self.read_found(guest, (directory, path, flags), &mut read);
        self.taken = taken;
        Ok((content?, program))
    }

    fn read_found(
        &self,
        guest: &mut Guest<'_>,
        (directory, path, flags): (i32, &CStr, i32),
        read: &mut dyn FnMut(OwnedFd) -> Result<Arc<FileContent>, i64>,
    ) -> Served<Arc<FileContent>> {
        if path.is_empty() {
            if directory == libc::AT_FDCWD {
                // The working directory itself, which is no program.
                return errno(libc::EACCES);
            }
            let file = self.files().get(directory)?;
            if self.proc_file(&file).is_some() {
                return errno(libc::EACCES);
            }
            return read_input(guest, &mut || read(host::reopen_for_reading(file.host())?));
        }
        let last = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { Last::Kept } else { Last::Followed };
        let follow = if last == Last::Kept { libc::O_NOFOLLOW } else { 0 };
        match find(self, guest, directory, path, last)? {
            Place::Proc(_) => errno(libc::EACCES),
            Place::Open(file) => read_input(guest, &mut || read(host::reopen_for_reading(file.host())?)),
            Place::Host(directory, name) => read_input(guest, &mut || {
                let flags = libc::O_RDONLY | libc::O_NONBLOCK | follow;
                read(host::open(directory, &name, flags, 0)?)
            }),
        }
    }

    /// Puts an address space in the place of the loaded task's, which is the only one of its process from then on.
    fn replace(&mut self, guest: &mut Guest<'_>, space: crate::memory::AddressSpace) -> Served<()> {
        let id = self.tasks.id();
        self.end_others(guest, id)?;
        self.leave_memory(guest)?;
        let group = self.tasks.current().group;
        if id != group {
            self.tasks.rename_current(group);
        }
        self.end_vfork(group);
        let old = self.tasks.current().space;
        let new = guest.spaces.insert(space);
        self.tasks.current_mut().space = new;
        guest.enter(new);
        guest.release_space(old);
        self.sweep_shared(guest)?;
        self.timers_exec(group);

        let (files, handlers) = (self.tasks.current().files, self.tasks.current().handlers);
        let mut own = self.tables.get(files).clone();
        let closed = own.close_for_exec();
        let own = self.tables.insert(own);
        self.tables.release(files);
        closed.into_iter().for_each(|file| self.unlock_closed(file));
        self.sweep_queues();
        self.sweep_flights(guest)?;
        let mut kept = self.handlers.get(handlers).clone();
        kept.retain(|_, action| action.ignores());
        let kept = self.handlers.insert(kept);
        self.handlers.release(handlers);
        let task = self.tasks.current_mut();
        (task.files, task.handlers) = (own, kept);
        (task.clear_at_end, task.robust, task.parent_death_signal) = (0, 0, 0);
        task.signals = TaskSignals::after_exec(&task.signals);
        let group = self.group_mut();
        group.dumpable = true;
        group.barriers = 0;
        group.credentials.executed();
        Ok(())
    }
}

/// Asks for the content of a file through the gate.
fn read_input(
    guest: &mut Guest<'_>,
    read: &mut dyn FnMut() -> Result<Arc<FileContent>, i64>,
) -> Served<Arc<FileContent>> {
    let input = guest.gate.input(&mut || Input::File(read()))?;
    match input {
        Input::File(Ok(file)) => Ok(file),
        Input::File(Err(error)) => Err(super::result(error).err().unwrap_or(Stop::Errno(libc::EIO))),
        other => Err(guest.unexpected(&other)),
    }
}

/// The content of a file that is open: for [`host::executable`].
pub(super) fn content_of(file: &impl AsRawFd, bytes: Vec<u8>) -> Result<FileContent, i64> {
    let name = host::path_of(file)?;
    Ok(FileContent { name, bytes: Arc::new(bytes) })
}
