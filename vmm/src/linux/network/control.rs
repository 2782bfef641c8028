//! Control messages: what a program puts beside the bytes that it sends, and what it finds beside those that it receives.

use super::Endpoint;
use super::credentials::Ucred;
use super::flight::Cargo;
use super::receive::Details;
use crate::linux::host::sockets::{Control, HEADER, MOST_FILES};
use crate::linux::{Guest, Kernel, Served, Stop, errno};
use crate::ram::Virt;

/// The longest that is read; the kernel has a limit too (optmem_max).
const LONGEST: u64 = 1 << 16;

/// Reads what goes with a message: for the host as it is, and what is ours.
pub(super) fn outgoing(
    kernel: &Kernel,
    guest: &mut Guest<'_>,
    endpoint: Endpoint,
    address: Virt,
    length: u64,
) -> Served<(Vec<u8>, Cargo)> {
    if length > LONGEST {
        return errno(libc::ENOBUFS);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    guest.read(address, &mut bytes)?;
    let Some(messages) = Control::parse(&bytes) else { return errno(libc::EINVAL) };
    let (mut plain, mut cargo) = (Vec::new(), Cargo::default());
    for message in messages {
        match (message.level, message.kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) if endpoint.is_unix() => {
                for number in message.data.as_chunks().0 {
                    cargo.files.push(kernel.files().get(i32::from_le_bytes(*number))?);
                }
                if cargo.files.len() > MOST_FILES {
                    return errno(libc::EINVAL);
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if endpoint.is_unix() => {
                let claimed = Ucred::from_bytes(&message.data).filter(|_| message.data.len() == Ucred::SIZE);
                let Some(claimed) = claimed else { return errno(libc::EINVAL) };
                kernel.may_claim(claimed)?;
                cargo.sender = Some(claimed);
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS | libc::SCM_CREDENTIALS) => {}
            (libc::SOL_SOCKET, _) if endpoint.is_unix() => return errno(libc::EINVAL),
            _ => plain.extend(message.bytes()),
        }
    }
    Ok((plain, cargo))
}

/// The program's room for control messages, filled in order.
struct Room {
    bytes: Vec<u8>,
    size: usize,
    /// Something did not fit.
    truncated: bool,
}

impl Room {
    fn left(&self) -> usize {
        self.size.saturating_sub(self.bytes.len())
    }

    /// Puts a message there, or as much of it as fits.
    fn put(&mut self, message: &Control) {
        let (left, whole) = (self.left(), HEADER + message.data.len());
        self.truncated |= left < whole;
        if left >= HEADER {
            let data = message.data[..message.data.len().min(left - HEADER)].to_vec();
            let mut bytes = Control { data, ..*message }.bytes();
            bytes.truncate(left);
            self.bytes.extend(bytes);
        }
    }

    /// How many descriptors fit.
    fn files(&self) -> usize {
        self.left().saturating_sub(HEADER) / 4
    }
}

/// Writes what came with a message: its length, and whether something did not fit. Files get their descriptors.
pub(super) fn incoming(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    details: &Details,
    (address, size): (Virt, u64),
    close_on_exec: bool,
) -> Served<(u64, bool)> {
    let size = if address == 0 { 0 } else { usize::try_from(size).unwrap_or(usize::MAX) };
    let mut room = Room { bytes: Vec::new(), size, truncated: false };
    if let Some(sender) = details.sender {
        let (level, kind) = (libc::SOL_SOCKET, libc::SCM_CREDENTIALS);
        room.put(&Control { level, kind, data: sender.bytes() });
    }
    if !details.files.is_empty() {
        let mut data = Vec::new();
        for file in details.files.iter().take(room.files()) {
            match kernel.files_mut().install(std::rc::Rc::clone(file), close_on_exec, 0) {
                Ok(number) => data.extend(crate::linux::int(number).to_le_bytes()),
                Err(Stop::Errno(_)) => break,
                Err(stop) => return Err(stop),
            }
        }
        room.truncated |= data.len() / 4 < details.files.len();
        if !data.is_empty() {
            room.put(&Control { level: libc::SOL_SOCKET, kind: libc::SCM_RIGHTS, data });
        }
    }
    details.control.iter().for_each(|message| room.put(message));
    guest.write(address, &room.bytes)?;
    Ok((room.bytes.len() as u64, room.truncated))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(size: usize, lengths: &[usize]) -> Room {
        let mut room = Room { bytes: Vec::new(), size, truncated: false };
        for length in lengths {
            room.put(&Control { level: 1, kind: 2, data: vec![7; *length] });
        }
        room
    }

    #[test]
    fn what_fits_is_put_and_the_rest_is_told() {
        let whole = fill(48, &[4, 8]);
        assert_eq!((whole.bytes.len(), whole.truncated), (48, false));
        let unaligned = fill(20, &[4]);
        assert_eq!(
            (unaligned.bytes.len(), unaligned.truncated),
            (20, false),
            "what aligns the next is not needed"
        );
        let cut = fill(44, &[4, 8]);
        assert_eq!((cut.bytes.len(), cut.truncated), (44, true));
        assert_eq!(cut.bytes[24], 20, "the length of what is there");
        let none = fill(30, &[4, 8]);
        assert_eq!((none.bytes.len(), none.truncated), (24, true), "no room for a header");
    }

    #[test]
    fn descriptors_fit_behind_a_header() {
        assert_eq!([0, 16, 19, 20, 24, 28].map(|size| fill(size, &[]).files()), [0, 0, 0, 1, 2, 3]);
    }
}
