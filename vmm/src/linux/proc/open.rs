//! Open files of /proc: reading, writing, listing, seeking.
//!
//! What is read is made as text at the first read, and again whenever it is read from its start. The host's side of such a file is
//! another one, opened the same way ([`side`]), for the calls that any file has (poll, epoll, fcntl's flags, locks).

use super::super::descriptors::{OpenFile, Source};
use super::super::files::open_host;
use super::super::transfer::{Segment, usable};
use super::super::{Guest, Kernel, Served, errno, host, int, long};
use super::tree::{What, file, list, parent};
use super::{Kind, Node, attributes, gone, memory, settings, system, tasks};
use crate::memory::space::Access;
use crate::plain::plain;
use crate::ram::Virt;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// An open file of /proc.
#[derive(Clone, Debug)]
pub(in super::super) struct Opened {
    pub(super) node: Node,
    flags: i32,
    /// Where the next read begins; for a folder, how many entries were told.
    position: u64,
    /// What is read: of a folder, its records as getdents64 gives them.
    text: Option<Arc<Vec<u8>>>,
}

plain!(struct Opened { node, flags, position, text });

impl Opened {
    /// Its path.
    pub(in super::super) fn path(&self) -> Vec<u8> {
        self.node.path().into_bytes()
    }
}

/// Opens a file of /proc.
pub(in super::super) fn open(kernel: &mut Kernel, guest: &mut Guest<'_>, node: Node, flags: i32) -> Served {
    let only_path = flags & libc::O_PATH != 0;
    let mode = node.mode(guest)?;
    let is = mode & libc::S_IFMT;
    let access = flags & libc::O_ACCMODE;
    if flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0 {
        return errno(libc::EEXIST);
    }
    if is == libc::S_IFLNK && !only_path {
        return errno(libc::ELOOP);
    }
    if flags & libc::O_DIRECTORY != 0 && is != libc::S_IFDIR {
        return errno(libc::ENOTDIR);
    }
    if is == libc::S_IFDIR && !only_path && (access != libc::O_RDONLY || flags & libc::O_CREAT != 0) {
        return errno(libc::EISDIR);
    }
    if !only_path {
        may_open(kernel, guest, &node, access)?;
    }
    kernel.files().free(0)?;
    let kept = libc::O_ACCMODE | libc::O_PATH | libc::O_APPEND | libc::O_NONBLOCK;
    let side = if only_path || is == libc::S_IFDIR { Side::Unpolled } else { side(&node) };
    let opened = open_host(guest, &mut || match side {
        Side::Unpolled => host::open(libc::AT_FDCWD, c"/dev/null", flags & kept, 0),
        Side::Ready => host::open_ready(flags & kept),
        Side::Readable => host::open(libc::AT_FDCWD, c"/dev/random", flags & kept, 0),
    })?;
    let object = kernel.new_object();
    kernel.sweep_proc();
    kernel.proc_files.insert(object, Opened { node, flags, position: 0, text: None });
    let file = OpenFile::computed(opened, Source::Proc(object));
    kernel.files_mut().install(file, flags & libc::O_CLOEXEC != 0, 0)
}

/// The host's file that stands for one of /proc.
enum Side {
    /// It has no poll operation, and epoll refuses it.
    Unpolled,
    /// It is always ready for all.
    Ready,
    /// It can always be read, and not be written.
    Readable,
}

/// The host's side of a file that is no folder. In Linux, those of processes have no poll operation but for the mounts, and all others
/// have one. That mounts, swaps or a setting have changed is told to nobody here.
fn side(node: &Node) -> Side {
    match node {
        Node::Entry(_, entry) if matches!(entry.name, "mounts" | "mountinfo") => Side::Readable,
        Node::System(path) if path == "swaps" => Side::Readable,
        Node::System(_) | Node::Processors(_) => Side::Ready,
        _ => Side::Unpolled,
    }
}

fn may_open(kernel: &mut Kernel, guest: &mut Guest<'_>, node: &Node, access: i32) -> Served<()> {
    let wanted = match access {
        libc::O_RDONLY => 4,
        libc::O_WRONLY => 2,
        _ => 6,
    };
    if wanted & 2 != 0 && matches!(node, Node::System(_)) {
        return kernel.refuse("writing to a file of /proc that is the host's", libc::EACCES).map(drop);
    }
    if !node.permits(kernel, guest, wanted)? {
        return errno(libc::EACCES);
    }
    let private = match node {
        Node::Entry(_, entry) => entry.private,
        Node::Descriptors(..) | Node::Descriptor(..) => true,
        _ => false,
    };
    match node.of() {
        Some(of) if private && !kernel.may_see(of) => errno(libc::EACCES),
        _ => Ok(()),
    }
}

/// The path of a folder that is to be the working directory, opened as such.
pub(in super::super) fn open_directory(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    node: Node,
) -> Served<Rc<OpenFile>> {
    if !node.is_folder(guest)? {
        return errno(libc::ENOTDIR);
    }
    if !node.permits(kernel, guest, 1)? {
        return errno(libc::EACCES);
    }
    let opened = open_host(guest, &mut || host::open(libc::AT_FDCWD, c"/dev/null", libc::O_PATH, 0))?;
    let object = kernel.new_object();
    kernel.sweep_proc();
    kernel.proc_files.insert(object, Opened { node, flags: libc::O_PATH, position: 0, text: None });
    Ok(OpenFile::computed(opened, Source::Proc(object)))
}

impl Kernel {
    /// Forgets files that nobody has open any more.
    fn sweep_proc(&mut self) {
        if self.proc_files.is_empty() {
            return;
        }
        let tables = self.tables.iter().flat_map(|(_, table)| table.iter().map(|(_, file)| file));
        let places = self.places.iter().map(|(_, place)| &place.directory);
        let open: BTreeSet<u64> = tables
            .chain(places)
            .filter_map(|file| match file.source() {
                Some(Source::Proc(object)) => Some(object),
                _ => None,
            })
            .collect();
        self.proc_files.retain(|object, _| open.contains(object));
    }

    fn opened(&self, object: u64) -> Served<&Opened> {
        self.proc_files.get(&object).map_or_else(|| errno(libc::EBADF), Ok)
    }

    fn opened_mut(&mut self, object: u64) -> Served<&mut Opened> {
        self.proc_files.get_mut(&object).map_or_else(|| errno(libc::EBADF), Ok)
    }
}

/// What a file says now.
fn make(kernel: &mut Kernel, guest: &mut Guest<'_>, node: &Node) -> Served<Vec<u8>> {
    match node {
        Node::Entry(of, _) if !kernel.exists(*of) => gone(),
        Node::Entry(of, entry) => match entry.what {
            What::Text(make) => make(kernel, guest, *of),
            _ => errno(libc::EINVAL),
        },
        Node::Descriptor(of, Kind::Info, number) => match file(kernel, *of, *number) {
            Some(file) => tasks::descriptor(kernel, guest, *of, *number, &file),
            None => errno(libc::ENOENT),
        },
        Node::System(path) => system::text(kernel, guest, path),
        Node::Processors(_) => Ok(b"0\n".to_vec()),
        _ => errno(libc::EISDIR),
    }
}

/// read and its kin.
pub(in super::super) fn read(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    object: u64,
    segments: &[Segment],
    offset: Option<u64>,
) -> Served {
    let Opened { node, flags, position, text } = kernel.opened(object)?.clone();
    if flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == libc::O_WRONLY {
        return errno(libc::EBADF);
    }
    if offset.is_some_and(|offset| long(offset) < 0) {
        return errno(libc::EINVAL);
    }
    let segments = usable(guest, segments, Access::Write)?;
    let at = offset.unwrap_or(position);
    let mut done = 0;
    if let Node::Entry(of, entry) = &node
        && matches!(entry.what, What::Memory)
    {
        done = memory::read(kernel, guest, *of, at, &segments)?;
    } else {
        let text = match text {
            Some(text) if at != 0 => text,
            _ => Arc::new(make(kernel, guest, &node)?),
        };
        let mut rest = usize::try_from(at).ok().and_then(|at| text.get(at..)).unwrap_or(&[]);
        for (address, length) in segments {
            let (part, behind) = rest.split_at(length.min(rest.len()));
            guest.write(address, part)?;
            (rest, done) = (behind, done + part.len() as u64);
        }
        kernel.opened_mut(object)?.text = Some(text);
    }
    if offset.is_none() {
        kernel.opened_mut(object)?.position = at.saturating_add(done);
    }
    Ok(done)
}

/// write and its kin.
pub(in super::super) fn write(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    object: u64,
    bytes: &[u8],
    offset: Option<i64>,
) -> Served {
    let Opened { node, flags, position, .. } = kernel.opened(object)?.clone();
    if flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == libc::O_RDONLY {
        return errno(libc::EBADF);
    }
    let at = offset.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(position);
    let Node::Entry(of, entry) = node else { return errno(libc::EINVAL) };
    let done = match entry.name {
        "comm" => tasks::set_comm(kernel, of, bytes)?,
        "oom_score_adj" => tasks::set_oom_score_adj(kernel, of, bytes)?,
        "mem" => memory::write(kernel, guest, of, at, bytes)?,
        name if settings::is_fixed(name) => {
            return kernel.refuse(&format!("writing to /proc/PID/{name}"), libc::EPERM);
        }
        _ => return errno(libc::EINVAL),
    };
    if offset.is_none() {
        kernel.opened_mut(object)?.position = at.saturating_add(done);
    }
    Ok(done)
}

/// lseek.
pub(super) fn seek(kernel: &mut Kernel, object: u64, to: u64, whence: u64) -> Served {
    let opened = kernel.opened_mut(object)?;
    if opened.flags & libc::O_PATH != 0 {
        return errno(libc::EBADF);
    }
    let memory = matches!(&opened.node, Node::Entry(_, entry) if matches!(entry.what, What::Memory));
    let to = match int(whence) {
        libc::SEEK_SET => to,
        libc::SEEK_CUR => opened.position.wrapping_add(to),
        _ => return errno(libc::EINVAL),
    };
    if long(to) < 0 && !memory {
        return errno(libc::EINVAL);
    }
    opened.position = to;
    Ok(to)
}

/// getdents64, or getdents: as many records as there is room for.
pub(super) fn entries(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    object: u64,
    (buffer, room): (Virt, u64),
    wide: bool,
) -> Served {
    let Opened { node, flags, position, text } = kernel.opened(object)?.clone();
    if flags & libc::O_PATH != 0 {
        return errno(libc::EBADF);
    }
    if !node.is_folder(guest)? {
        return errno(libc::ENOTDIR);
    }
    let names = match text {
        Some(text) if position != 0 => text,
        _ => Arc::new(encode(&listing(kernel, guest, &node)?)),
    };
    let all = decode(&names);
    let room = guest.accessible(buffer, room.min(1 << 20), Access::Write);
    let mut bytes: Vec<u8> = Vec::new();
    let mut told = usize::try_from(position).unwrap_or(usize::MAX);
    for (name, is, number) in all.iter().skip(told) {
        let record = record(name, *is, *number, told as u64 + 1, wide);
        if (bytes.len() + record.len()) as u64 > room {
            if bytes.is_empty() {
                return errno(libc::EINVAL);
            }
            break;
        }
        bytes.extend(record);
        told += 1;
    }
    guest.write(buffer, &bytes)?;
    let opened = kernel.opened_mut(object)?;
    (opened.text, opened.position) = (Some(names), told as u64);
    Ok(bytes.len() as u64)
}

type Listed = (String, u8, u64);

/// All that a folder lists, itself and its parent first.
fn listing(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node) -> Served<Vec<Listed>> {
    let own = node.path();
    let up = if matches!(node, Node::Root) { "/".to_owned() } else { parent(node).path() };
    let mut all = vec![
        (".".to_owned(), libc::DT_DIR, attributes::inode(&own)),
        ("..".to_owned(), libc::DT_DIR, attributes::inode(&up)),
    ];
    let names = list(kernel, guest, node)?;
    all.extend(names.into_iter().map(|(name, is)| {
        let number = attributes::inode(&format!("{own}/{name}"));
        (name, is, number)
    }));
    Ok(all)
}

/// A listing as it is kept while it is read: number, type and name of each, with a zero byte.
fn encode(all: &[Listed]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, is, number) in all {
        bytes.extend(number.to_le_bytes());
        bytes.push(*is);
        bytes.extend(name.as_bytes());
        bytes.push(0);
    }
    bytes
}

fn decode(mut bytes: &[u8]) -> Vec<(&[u8], u8, u64)> {
    let mut all = Vec::new();
    while let Some((number, [is, rest @ ..])) = bytes.split_first_chunk() {
        let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        all.push((&rest[..end], *is, u64::from_le_bytes(*number)));
        bytes = rest.get(end + 1..).unwrap_or(&[]);
    }
    all
}

/// A `struct linux_dirent64`, or the older `struct linux_dirent`, which has the type at its end.
fn record(name: &[u8], is: u8, number: u64, next: u64, wide: bool) -> Vec<u8> {
    let length = (18 + usize::from(wide) + name.len() + usize::from(!wide) + 1).next_multiple_of(8);
    let mut bytes = [number.to_le_bytes(), next.to_le_bytes()].concat();
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_le_bytes());
    if wide {
        bytes.push(is);
    }
    bytes.extend(name);
    bytes.resize(length, 0);
    if !wide {
        bytes[length - 1] = is;
    }
    bytes
}

/// The name of a link's target, as readlink gives it.
pub(super) fn of_open(kernel: &Kernel, guest: &mut Guest<'_>, file: &OpenFile) -> Served<Vec<u8>> {
    if let Some(opened) = kernel.proc_file(file) {
        return Ok(opened.path());
    }
    let kind = match file.source() {
        Some(Source::Timer(_)) => Some("anon_inode:[timerfd]"),
        Some(Source::Signals(_)) => Some("anon_inode:[signalfd]"),
        Some(Source::Set) => Some("anon_inode:[eventpoll]"),
        _ if file.process().is_some() => Some("anon_inode:[pidfd]"),
        _ => None,
    };
    match kind {
        Some(kind) => Ok(kind.as_bytes().to_vec()),
        None => guest.input_bytes(&mut || host::path_of(&file.host())),
    }
}

/// The file of /proc that is open as an object.
pub(super) fn node_of(kernel: &Kernel, object: u64) -> Served<Node> {
    Ok(kernel.opened(object)?.node.clone())
}

/// How a file of /proc is open, and its position.
pub(super) fn flags_of(kernel: &Kernel, file: &OpenFile) -> Option<(i32, u64)> {
    kernel.proc_file(file).map(|opened| (opened.flags, opened.position))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_kept_whole() {
        let all = vec![(".".to_owned(), libc::DT_DIR, 7), ("maps".to_owned(), libc::DT_REG, u64::MAX)];
        let bytes = encode(&all);
        let decoded = decode(&bytes);
        assert_eq!(decoded, [(&b"."[..], libc::DT_DIR, 7), (b"maps", libc::DT_REG, u64::MAX)]);
        assert!(decode(b"").is_empty());
    }

    #[test]
    fn records_are_as_libc_reads_them() {
        let wide = record(b"maps", libc::DT_REG, 5, 3, true);
        assert_eq!((wide.len(), wide[16], wide[18]), (24, 24, libc::DT_REG));
        assert_eq!(&wide[19..], b"maps\0");
        let narrow = record(b"maps", libc::DT_REG, 5, 3, false);
        assert_eq!((narrow.len(), &narrow[18..23], narrow[23]), (24, &b"maps\0"[..], libc::DT_REG));
    }
}
