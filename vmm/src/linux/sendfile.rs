//! sendfile: the host's own, to sockets and pipes, where the bytes do not come by the program's memory, nor by the journal; to other
//! files by reading and writing.

use super::host::sockets;
use super::wait::{WOULD_WAIT, Wait, wait};
use super::{Guest, Kernel, Served, Stop, errno, int, transfer, word};

/// The most that one call sends.
const LONGEST: u64 = 0x7fff_f000;

/// As much as goes at once; only what cannot begin is waited for, as the position is told when the call is over.
pub(super) fn sendfile(kernel: &mut Kernel, guest: &mut Guest<'_>, a: &[u64; 6]) -> Served {
    let (to, from) = (kernel.files().get(int(a[0]))?, kernel.files().get(int(a[1]))?);
    if to.standard.is_some() || to.inode().is_some() {
        return transfer::copy(kernel, guest, a);
    }
    if from.source().is_some() || from.queue().is_some() || to.source().is_some() || to.queue().is_some() {
        return errno(libc::EINVAL);
    }
    let mut offset = match a[2] {
        0 => None,
        at => Some(i64::from_le_bytes(guest.read_array(at)?)),
    };
    if offset.is_some_and(|offset| offset < 0) {
        return errno(libc::EINVAL);
    }
    let count = a[3].min(LONGEST);
    kernel.before_read(guest, &from, offset, usize::try_from(count).unwrap_or(usize::MAX))?;
    let sent = guest.input_number(|| {
        let result = sockets::sendfile(to.host(), from.host(), &mut offset.clone(), count);
        let waits = result == -i64::from(libc::EAGAIN) && sockets::waits(to.host());
        if waits { -i64::from(WOULD_WAIT) } else { result }
    });
    match sent {
        Ok(sent) => {
            if let Some(offset) = &mut offset {
                *offset = offset.saturating_add_unsigned(sent);
                guest.write_words(a[2], &[word(*offset)])?;
            }
            Ok(sent)
        }
        Err(Stop::Errno(WOULD_WAIT)) => wait(Wait::file(&to, libc::POLLOUT, 0)),
        Err(stop) => {
            if matches!(stop, Stop::Errno(libc::EPIPE)) {
                kernel.raise_here(libc::SIGPIPE, libc::SI_USER);
            }
            Err(stop)
        }
    }
}
