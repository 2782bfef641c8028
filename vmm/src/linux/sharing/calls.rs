//! Calls that read, write or cut files that are mapped shared: the object follows the file, and the file the object.

use super::super::descriptors::OpenFile;
use super::super::{Guest, Kernel, Served, errno, host, int, passthrough};
use super::{ALL, Inode, invalidate_code};
use std::rc::Rc;
use std::sync::Arc;

/// FALLOC_FL_*.
const KEEP_SIZE: i32 = 1;
const PUNCH_HOLE: i32 = 2;
const COLLAPSE: i32 = 8;
const ZERO: i32 = 0x10;
const INSERT: i32 = 0x20;

const MOVES_PARTS: &str = "fallocate that moves parts of a file that is mapped shared";

impl Kernel {
    /// What was stored in a mapped file is in the file when a call reads it.
    pub(in super::super) fn before_read(
        &mut self,
        guest: &mut Guest<'_>,
        file: &Rc<OpenFile>,
        offset: Option<i64>,
        length: usize,
    ) -> Served<()> {
        let Some(inode) = self.mapped_shared(file) else { return Ok(()) };
        let range = match offset.and_then(|offset| u64::try_from(offset).ok()) {
            Some(from) => from..from.saturating_add(length as u64),
            None => ALL,
        };
        self.write_back(guest, inode, range)
    }

    /// A call has written bytes to a file, at `offset` or at its position.
    pub(in super::super) fn after_write(
        &mut self,
        guest: &mut Guest<'_>,
        file: &Rc<OpenFile>,
        offset: Option<i64>,
        bytes: &[u8],
    ) -> Served<()> {
        let Some(inode) = self.mapped_shared(file) else { return Ok(()) };
        if bytes.is_empty() {
            return Ok(());
        }
        let end = guest.input_number(|| end_of_write(file.host(), offset, bytes.len()))?;
        let Some(mapped) = self.shared.files.get(&inode) else { return Ok(()) };
        let object = Arc::clone(&mapped.object);
        object.write(guest.memory, end.saturating_sub(bytes.len() as u64), bytes);
        invalidate_code(guest, object.id);
        Ok(())
    }

    /// A file was opened: it may have been cut by that.
    pub(in super::super) fn after_open(
        &mut self,
        guest: &mut Guest<'_>,
        inode: Option<Inode>,
        flags: i32,
    ) -> Served<()> {
        match inode {
            Some(inode) if flags & libc::O_TRUNC != 0 => self.shared_resized(guest, inode, 0),
            _ => Ok(()),
        }
    }
}

/// Where in the file a write of so many bytes has just ended.
fn end_of_write(file: i32, offset: Option<i64>, length: usize) -> i64 {
    let appends = host::fcntl(file, libc::F_GETFL, 0) & i64::from(libc::O_APPEND) != 0;
    match offset {
        None => host::seek(file, 0, libc::SEEK_CUR),
        Some(_) if appends => {
            host::stat(file).map_or_else(|error| error, |[.., size]| i64::try_from(size).unwrap_or(0))
        }
        Some(offset) => offset.saturating_add(i64::try_from(length).unwrap_or(0)),
    }
}

/// Serves a call that wants the files themselves to hold what was stored in them: fsync, sync and their kin.
pub(in super::super) fn settled(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    call: i64,
    a: &[u64; 6],
) -> Served {
    kernel.write_all_back(guest)?;
    passed(kernel, guest, call, a)
}

fn passed(kernel: &mut Kernel, guest: &mut Guest<'_>, call: i64, a: &[u64; 6]) -> Served {
    passthrough::serve(kernel, guest, call, a).unwrap_or_else(|| errno(libc::ENOSYS))
}

pub(in super::super) fn ftruncate(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let file = kernel.files().get(int(a[0]));
    let done = passed(kernel, guest, libc::SYS_ftruncate, a)?;
    let file = file?;
    if let Some(inode) = kernel.mapped_shared(&file) {
        kernel.shared_resized(guest, inode, a[1])?;
    }
    Ok(done)
}

pub(in super::super) fn fallocate(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let file = kernel.files().get(int(a[0]))?;
    let (inode, mode) = (kernel.mapped_shared(&file), int(a[1]));
    let (from, end) = (a[2], a[2].saturating_add(a[3]));
    match inode {
        Some(_) if mode & (COLLAPSE | INSERT) != 0 => {
            return kernel.refuse(MOVES_PARTS, libc::EOPNOTSUPP);
        }
        // The pages at the ends are cleared in part.
        Some(inode) => kernel.write_back(guest, inode, from..end)?,
        None => {}
    }
    let done = passed(kernel, guest, libc::SYS_fallocate, a)?;
    let Some(mapped) = inode.and_then(|inode| kernel.shared.files.get(&inode)) else { return Ok(done) };
    let object = Arc::clone(&mapped.object);
    if mode & KEEP_SIZE == 0 && end > object.size(guest.memory) {
        object.resize(guest.memory, end);
    }
    if mode & (PUNCH_HOLE | ZERO) != 0 {
        object.zero(guest.memory, from..end);
    }
    Ok(done)
}
