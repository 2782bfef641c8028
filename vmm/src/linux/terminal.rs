//! ioctl: the requests of terminals, and the few that any file has.

use super::passthrough::check;
use super::{Guest, Kernel, Served, errno, host, network};
use crate::gate::{Input, MemoryWrite};
use crate::ram::Virt;

/// Which way a request's data goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The host reads it.
    In,
    /// The host writes it.
    Out,
}

/// The requests that are passed on: number, direction and size of what the argument points to
/// (asm-generic/ioctls.h).
const REQUESTS: &[(u64, Way, usize)] = &[
    (libc::TCGETS, Way::Out, KERNEL_TERMIOS),
    (libc::TCSETS, Way::In, KERNEL_TERMIOS),
    (libc::TCSETSW, Way::In, KERNEL_TERMIOS),
    (libc::TCSETSF, Way::In, KERNEL_TERMIOS),
    (libc::TIOCGWINSZ, Way::Out, size_of::<libc::winsize>()),
    (libc::TIOCSWINSZ, Way::In, size_of::<libc::winsize>()),
    (libc::TIOCGPGRP, Way::Out, 4),
    (libc::TIOCOUTQ, Way::Out, 4),
    (libc::FIONREAD, Way::Out, 4),
    (libc::FIONBIO, Way::In, 4),
];

/// Size of the kernel's `struct termios`, which is not libc's.
const KERNEL_TERMIOS: usize = 36;

pub(super) fn ioctl(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    number: i32,
    request: u64,
    address: Virt,
) -> Served {
    let file = kernel.files().get(number)?;
    let request = request & 0xffff_ffff;
    if request == libc::FIOCLEX || request == libc::FIONCLEX {
        kernel.files_mut().set_close_on_exec(number, request == libc::FIOCLEX)?;
        return Ok(0);
    }
    if file.endpoint().is_some()
        && let Some(served) = network::requests::serve(kernel, guest, &file, request, address)
    {
        return served;
    }
    let Some(&(_, way, size)) = REQUESTS.iter().find(|(known, ..)| *known == request) else {
        tracing::warn!("ioctl {request:#x} is not supported: ENOTTY");
        return errno(libc::ENOTTY);
    };
    let mut bytes = vec![0; size];
    match way {
        Way::In => guest.read(address, &mut bytes)?,
        Way::Out => check(guest, address, size as u64)?,
    }
    guest.input(&mut || {
        let result = host::ioctl(file.host(), request, &mut bytes);
        let told = way == Way::Out && result >= 0;
        let writes = told.then(|| MemoryWrite { address, bytes: bytes.clone() });
        Input::Bytes { result, writes: writes.into_iter().collect() }
    })
}
