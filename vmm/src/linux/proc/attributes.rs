//! What stat and statx tell of a file of /proc, and who may open it.

use super::super::passthrough::check;
use super::super::time::NANOSECONDS;
use super::super::{Guest, Kernel, Served, errno};
use super::tree::What;
use super::{Kind, Node, system};
use crate::ram::Virt;
use xxhash_rust::xxh3::xxh3_64;

/// The device of /proc, as some number without a name.
const DEVICE: u64 = 0x15;
/// The sizes of blocks in /proc.
const BLOCK: u64 = 1024;
/// Fields of `struct statx` that are told: STATX_BASIC_STATS.
const BASIC: u32 = 0x7ff;

/// What a file is.
struct Attributes {
    mode: u32,
    owner: [u32; 2],
    links: u64,
    size: u64,
    number: u64,
    /// When it was made: now, in nanoseconds.
    time: u64,
}

impl Node {
    /// Whether it is a folder.
    pub(super) fn is_folder(&self, guest: &mut Guest<'_>) -> Served<bool> {
        Ok(self.mode(guest)? & libc::S_IFMT == libc::S_IFDIR)
    }

    /// Type and rights.
    pub(super) fn mode(&self, guest: &mut Guest<'_>) -> Served<u32> {
        Ok(match self {
            Node::Root | Node::Task(_) | Node::Tasks(_) => libc::S_IFDIR | 0o555,
            Node::RootLink(..) => libc::S_IFLNK | 0o777,
            Node::Descriptors(..) => libc::S_IFDIR | 0o500,
            Node::Descriptor(_, Kind::Link, _) => libc::S_IFLNK | 0o700,
            Node::Descriptor(_, Kind::Info, _) => libc::S_IFREG | 0o444,
            Node::Entry(_, entry) => {
                let is = match entry.what {
                    What::Text(_) | What::Memory => libc::S_IFREG,
                    _ => libc::S_IFLNK,
                };
                is | entry.mode
            }
            Node::System(path) => system::mode(guest, path)?,
            Node::Processors(_) => libc::S_IFREG | 0o444,
        })
    }

    /// The user and group that it belongs to.
    fn owner(&self, kernel: &Kernel) -> [u32; 2] {
        let group = self.of().and_then(|of| kernel.groups.get(of.group));
        match group {
            // What is not dumpable is root's, but for the folder itself.
            Some(group) if group.dumpable || matches!(self, Node::Task(_)) => {
                [group.credentials.uid[1], group.credentials.gid[1]]
            }
            _ => [0, 0],
        }
    }

    /// Whether the program may use it so: bits of R_OK, W_OK and X_OK.
    pub(super) fn permits(&self, kernel: &Kernel, guest: &mut Guest<'_>, wanted: u32) -> Served<bool> {
        let mode = self.mode(guest)?;
        let own = &kernel.group().credentials;
        let [uid, gid] = self.owner(kernel);
        if own.uid[1] == 0 {
            let executable = mode & 0o111 != 0 || mode & libc::S_IFMT == libc::S_IFDIR;
            return Ok(wanted & 1 == 0 || executable);
        }
        let bits = match () {
            () if own.uid[1] == uid => mode >> 6,
            () if own.gid[1] == gid || own.groups.contains(&gid) => mode >> 3,
            () => mode,
        };
        Ok(wanted & !bits & 7 == 0)
    }

    fn attributes(&self, kernel: &Kernel, guest: &mut Guest<'_>) -> Served<Attributes> {
        let mode = self.mode(guest)?;
        let path = self.path();
        let size = if matches!(self, Node::Descriptor(_, Kind::Link, _)) { 64 } else { 0 };
        Ok(Attributes {
            mode,
            owner: self.owner(kernel),
            links: if mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 },
            size: if matches!(self, Node::Processors(_)) { 4096 } else { size },
            number: inode(&path),
            time: kernel.now().real,
        })
    }
}

/// The number of a file: a digest of its path.
pub(super) fn inode(path: &str) -> u64 {
    if path == "/proc" { 1 } else { xxh3_64(path.as_bytes()) >> 32 | 1 << 32 }
}

/// stat: writes the `struct stat` of asm/stat.h.
pub(super) fn stat(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node, at: Virt) -> Served {
    check(guest, at, size_of::<libc::stat>() as u64)?;
    let Attributes { mode, owner: [uid, gid], links, size, number, time } = node.attributes(kernel, guest)?;
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let moment = [time / NANOSECONDS, time % NANOSECONDS];
    let head = [DEVICE, number, links, pair(mode, uid), pair(gid, 0), 0, size, BLOCK, 0];
    let words = [&head[..], &moment, &moment, &moment, &[0; 3]].concat();
    guest.write_words(at, &words)?;
    Ok(0)
}

/// statx: writes the `struct statx` of linux/stat.h.
pub(super) fn statx(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node, at: Virt) -> Served {
    let Attributes { mode, owner: [uid, gid], links, size, number, time } = node.attributes(kernel, guest)?;
    let mut bytes = vec![0; size_of::<libc::statx>()];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
    put(0, &BASIC.to_le_bytes());
    put(4, &word(BLOCK));
    put(16, &word(links));
    put(20, &uid.to_le_bytes());
    put(24, &gid.to_le_bytes());
    put(28, &mode.to_le_bytes()[..2]);
    put(32, &number.to_le_bytes());
    put(40, &size.to_le_bytes());
    for at in [64, 96, 112] {
        put(at, &(time / NANOSECONDS).to_le_bytes());
        put(at + 8, &word(time % NANOSECONDS));
    }
    put(140, &word(DEVICE));
    guest.write(at, &bytes)?;
    Ok(0)
}

/// statfs: writes the `struct statfs` of a /proc.
pub(in super::super) fn statfs(guest: &mut Guest<'_>, at: Virt) -> Served {
    const NAME_LENGTH: u64 = 255;
    /// ST_VALID, and mounted nosuid, nodev, noexec and relatime.
    const FLAGS: u64 = 0x20 | 2 | 4 | 8 | 4096;
    let magic = super::super::word(libc::PROC_SUPER_MAGIC);
    guest.write_words(at, &[magic, 4096, 0, 0, 0, 0, 0, 0, NAME_LENGTH, 4096, FLAGS, 0, 0, 0, 0])?;
    Ok(0)
}

/// access and its kin.
pub(super) fn access(kernel: &Kernel, guest: &mut Guest<'_>, node: &Node, wanted: u64) -> Served {
    let Some(wanted) = u32::try_from(wanted).ok().filter(|wanted| *wanted <= 7) else {
        return errno(libc::EINVAL);
    };
    if node.permits(kernel, guest, wanted)? { Ok(0) } else { errno(libc::EACCES) }
}
