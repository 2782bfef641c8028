//! What a machine's recording begins with: the machine before its first instruction, its folder, and its journal.

use super::{Given, Line, Machine, disk, from, network, start, unwritable, vsock};
use crate::exit::{Code, Failure};
use crate::keeping;
use crate::log::say;
use board::journal::{BEHAVIOUR, Header, Writer};
use board::{Extras, Machine as Board, Setup, checkpoints};
use lbr::regular;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use vmm::contents::{FOLDER, name, place};
use vmm::journal::schema::digest_executable as digest;
use vmm::recording::Recording;

/// The memory of a machine for which none is given.
const MEMORY: u64 = 512 << 20;

/// What a recording begins with.
pub(super) struct Begun {
    pub(super) board: Board,
    pub(super) recording: Recording,
    pub(super) header: Header,
    pub(super) checkpoints: checkpoints::Writer,
    /// The other end of its network card.
    pub(super) link: Option<network::Link>,
    /// The other end of its vsock.
    pub(super) socket: Option<vsock::Socket>,
}

/// A machine before its first instruction, and its journal. Where that fails, the folder is left as it was found, so that the next
/// attempt may use it.
pub(super) fn begin(
    machine: &Machine,
    given: &Given,
    net: Option<&network::Given>,
    folder: impl FnOnce() -> Result<Recording, Failure>,
) -> Result<(Begun, Writer), Failure> {
    let mut made = None;
    let folder = || folder().inspect(|recording| made = Some(recording.clone()));
    let begun = match (&machine.kernel, &machine.from) {
        (Some(kernel), _) => boot(machine, kernel, given, net, folder),
        (None, Some(from)) => go_on(machine, from, given, net, folder),
        (None, None) => Err(Failure::new(Code::Usage, "a machine has a --kernel, or is --from another")),
    };
    let begun = begun.and_then(|begun| {
        let journal = begun.recording.journal();
        let writer = Writer::create(&journal, &begun.header).map_err(|error| unwritable(&journal, error))?;
        Ok((begun, writer))
    });
    if let (Err(_), Some(recording)) = (&begun, &made) {
        // What cannot be removed is refused by name next time.
        let _ = fs::remove_dir_all(recording.dir().join(FOLDER));
        let _ = fs::remove_file(recording.checkpoints());
        let _ = fs::remove_file(recording.journal());
    }
    begun
}

/// A machine before its kernel's first instruction.
fn boot(
    machine: &Machine,
    kernel: &Path,
    given: &Given,
    net: Option<&network::Given>,
    folder: impl FnOnce() -> Result<Recording, Failure>,
) -> Result<Begun, Failure> {
    let mut setup = setup(machine, kernel, given.memory.unwrap_or(MEMORY))?;
    let disk = given.disk.map(|disk| disk::Given::parse(disk, machine.room()));
    setup.disk = disk.as_ref().map(disk::Given::image).transpose()?;
    setup.extras = Extras {
        net: net.map(network::Given::address),
        rng: machine.rng,
        console: machine.console == Line::Virtio,
        vsock: machine.vsock.is_some(),
    };
    // Before there is a folder: a kernel that cannot be booted leaves nothing behind.
    let mut board = Board::boot(&setup).map_err(|error| start::not_booted(kernel, &error))?;
    let link = net.map(network::Given::open).transpose()?;
    let socket = machine.vsock.as_deref().map(vsock::Socket::open).transpose()?;
    let recording = folder()?;
    let mut header = keep(&recording, &setup)?;
    if let Some(disk) = &disk {
        let (kept, copy) = disk.keep(&recording)?;
        header.disk = Some(kept);
        board.set_disk_image(copy);
    }
    let path = recording.checkpoints();
    let checkpoints = checkpoints::Writer::create(&path).map_err(|error| unwritable(&path, error))?;
    Ok(Begun { board, recording, header, checkpoints, link, socket })
}

/// A machine at a checkpoint of another recording.
fn go_on(
    machine: &Machine,
    from: &OsStr,
    given: &Given,
    net: Option<&network::Given>,
    folder: impl FnOnce() -> Result<Recording, Failure>,
) -> Result<Begun, Failure> {
    if given.memory.is_some() || given.disk.is_some() {
        let why = "the machine of a checkpoint has its memory and its disk: leave --memory and --disk out";
        return Err(Failure::new(Code::Usage, why));
    }
    let (from, notes) = from::Chosen::parse(from)?;
    notes.iter().for_each(|note| say!("gretel: {note}"));
    if net.is_some() && !from.machine.has_network() {
        let why = "the machine of the checkpoint has no network card: leave --net out";
        return Err(Failure::new(Code::Usage, why));
    }
    if machine.vsock.is_some() && !from.machine.has_vsock() {
        let why = "the machine of the checkpoint has no vsock: leave --vsock out";
        return Err(Failure::new(Code::Usage, why));
    }
    let link = net.map(network::Given::open).transpose()?;
    let socket = machine.vsock.as_deref().map(vsock::Socket::open).transpose()?;
    let recording = folder()?;
    let (header, checkpoints) = from.keep(&recording)?;
    Ok(Begun { board: from.machine, recording, header, checkpoints, link, socket })
}

/// What is to be booted, read.
fn setup(machine: &Machine, kernel: &Path, memory: u64) -> Result<Setup, Failure> {
    let read = |path: &Path| {
        let unreadable =
            |error| Failure::new(Code::Program, format!("cannot read {}: {error}", path.display()));
        regular::read(path).map_err(unreadable)
    };
    Ok(Setup {
        kernel: read(kernel)?,
        initrd: machine.initrd.as_deref().map(read).transpose()?,
        command_line: machine.command_line(),
        memory,
        start: machine.clock.start(),
        disk: None,
        extras: Extras::default(),
    })
}

/// Puts the kernel and the initial file system beside the journal: its header.
fn keep(recording: &Recording, setup: &Setup) -> Result<Header, Failure> {
    let store = recording.store(&keeping::stores());
    let files = recording.dir().join(FOLDER);
    fs::create_dir(&files).map_err(|error| unwritable(&files, error))?;
    for bytes in [Some(&setup.kernel), setup.initrd.as_ref()].into_iter().flatten() {
        let path = files.join(name(digest(bytes)));
        place(store.as_ref(), &path, digest(bytes), bytes).map_err(|error| unwritable(&path, error))?;
    }
    Ok(Header {
        gretel: env!("CARGO_PKG_VERSION").to_owned(),
        behaviour: BEHAVIOUR,
        kernel: digest(&setup.kernel),
        initrd: setup.initrd.as_deref().map(digest),
        command_line: setup.command_line.clone(),
        memory: setup.memory,
        start: setup.start,
        disk: None,
        extras: setup.extras,
        from: None,
    })
}
