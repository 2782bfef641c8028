//! Descriptors whose content is computed: timers' and signals' (timerfd, signalfd). The host's side is an eventfd, for poll and
//! epoll alone.

use super::descriptors::{OpenFile, Source};
use super::files::open_host;
use super::signals::calls;
use super::timers::descriptor;
use super::transfer::{Segment, usable};
use super::wait::{Interrupted, On, Wait, wait};
use super::{Guest, Kernel, Served, errno, host, int};
use crate::memory::space::Access;
use crate::plain::plain;
use crate::ram::Virt;
use crate::signal::{Cause, Raised};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The size of `struct signalfd_siginfo`.
const SIGNAL: usize = 128;

/// A signal descriptor.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignalFile {
    mask: u64,
    /// What poll was shown.
    readable: bool,
}
plain!(struct SignalFile { mask, readable });

/// The signal descriptors by object.
pub(super) type SignalFiles = BTreeMap<u64, SignalFile>;

/// signalfd and signalfd4: a new descriptor, or another mask for one.
pub(super) fn signalfd(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    descriptor: i32,
    mask: Virt,
    size: u64,
    flags: i32,
) -> Served {
    if flags & !(libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) != 0 || mask == 0 || size != 8 {
        return errno(libc::EINVAL);
    }
    let mask = calls::mask_argument(guest, mask, size)?.unwrap_or(0) & !super::signals::UNSTOPPABLE;
    let number = if descriptor == -1 {
        kernel.files().free(0)?;
        let file = open_host(guest, &mut || host::eventfd(0, flags & libc::SFD_NONBLOCK))?;
        let object = kernel.new_object();
        kernel.signal_files.insert(object, SignalFile { mask, readable: false });
        let file = OpenFile::computed(file, Source::Signals(object));
        kernel.files_mut().install(file, flags & libc::SFD_CLOEXEC != 0, 0)?
    } else {
        let Some(Source::Signals(object)) = kernel.files().get(descriptor)?.source() else {
            return errno(libc::EINVAL);
        };
        if let Some(file) = kernel.signal_files.get_mut(&object) {
            file.mask = mask;
        }
        u64::from(descriptor.unsigned_abs())
    };
    kernel.refresh_signalfds();
    Ok(number)
}

/// read of such a descriptor.
pub(super) fn read(
    kernel: &mut Kernel,
    guest: &mut Guest<'_>,
    file: &Rc<OpenFile>,
    source: Source,
    segments: &[Segment],
    offset: Option<u64>,
) -> Served {
    if source != Source::Set && offset.is_some() {
        return errno(libc::ESPIPE);
    }
    let segments = usable(guest, segments, Access::Write)?;
    let room: usize = segments.iter().map(|(_, length)| length).sum();
    let (bytes, on) = match source {
        // Those are read by `super::proc`.
        Source::Proc(_) | Source::Set => return errno(libc::EINVAL),
        Source::Timer(_) if room < 8 => return errno(libc::EINVAL),
        Source::Timer(object) => {
            let times = descriptor::take(kernel, file, object);
            let bytes = if times == 0 { Vec::new() } else { times.to_le_bytes().to_vec() };
            (bytes, On::Files(vec![(Rc::clone(file), libc::POLLIN)]))
        }
        Source::Signals(_) if room < SIGNAL => return errno(libc::EINVAL),
        Source::Signals(object) => {
            let mask = kernel.signal_files.get(&object).map_or(0, |file| file.mask);
            (signals(kernel, mask, room / SIGNAL), On::Signals(mask))
        }
    };
    if bytes.is_empty() {
        let flags = guest.input_number(|| host::fcntl(file.host(), libc::F_GETFL, 0))?;
        if int(flags) & libc::O_NONBLOCK != 0 {
            return errno(libc::EAGAIN);
        }
        return wait(Wait::new(on, None, Interrupted::MayRestart));
    }
    let mut rest = &bytes[..];
    for (address, length) in segments {
        let (part, behind) = rest.split_at(length.min(rest.len()));
        guest.write(address, part)?;
        rest = behind;
    }
    Ok(bytes.len() as u64)
}

/// Takes up to `count` pending signals of a set.
fn signals(kernel: &mut Kernel, mask: u64, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let Some(raised) = kernel.take_of(mask) else { break };
        bytes.extend(info(&raised));
    }
    bytes
}

/// The `struct signalfd_siginfo` of a signal (linux/signalfd.h).
fn info(raised: &Raised) -> [u8; SIGNAL] {
    let Raised { death, cause } = raised;
    let mut info = [0; SIGNAL];
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &death.signal.to_le_bytes());
    put(8, &death.code.to_le_bytes());
    let (sender, value) = match *cause {
        Cause::Kernel => {
            put(72, &death.address.to_le_bytes());
            (None, None)
        }
        Cause::Sender { pid, uid } => (Some((pid, uid)), None),
        Cause::Queued { pid, uid, value } => (Some((pid, uid)), Some(value)),
        Cause::Child { pid, uid, status } => {
            put(40, &status.to_le_bytes());
            (Some((pid, uid)), None)
        }
        Cause::Timer { id, overrun, value } => {
            put(24, &id.to_le_bytes());
            put(32, &overrun.to_le_bytes());
            (None, Some(value))
        }
        Cause::File { number, band } => {
            put(20, &number.to_le_bytes());
            put(28, &int(super::word(band)).to_le_bytes());
            (None, None)
        }
        Cause::Syscall { address, .. } => {
            put(72, &address.to_le_bytes());
            (None, None)
        }
    };
    if let Some((pid, uid)) = sender {
        put(12, &pid.to_le_bytes());
        put(16, &uid.to_le_bytes());
    }
    if let Some(value) = value {
        put(44, &int(value).to_le_bytes());
        put(48, &value.to_le_bytes());
    }
    info
}

impl Kernel {
    /// Makes each signal descriptor readable while a process that has it open has a signal of its set pending.
    pub(super) fn refresh_signalfds(&mut self) {
        if self.signal_files.is_empty() {
            return;
        }
        let mut found: BTreeMap<u64, (Rc<OpenFile>, bool)> = BTreeMap::new();
        for (table, files) in self.tables.iter() {
            let owners = self.tasks.living().filter(|(_, task)| task.files == table);
            let pending = owners.fold(0, |set, (id, _)| set | self.pending_for(id));
            for (_, file) in files.iter() {
                if let Some(Source::Signals(object)) = file.source()
                    && let Some(known) = self.signal_files.get(&object)
                {
                    let entry = found.entry(object).or_insert_with(|| (Rc::clone(file), false));
                    entry.1 |= pending & known.mask != 0;
                }
            }
        }
        for (object, file) in &mut self.signal_files {
            let Some((open, ready)) = found.get(object) else { continue };
            if file.readable != *ready {
                open.set_readable(*ready);
                file.readable = *ready;
            }
        }
        // Those that nobody has open any more are forgotten.
        self.signal_files.retain(|object, _| found.contains_key(object));
    }
}
