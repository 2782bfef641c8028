//! The files that gdb asks the target for: those of /proc that say what is mapped. All others are this machine's.

use super::target::Debugged;
use gdbstub::target::ext::host_io::{
    HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoOpen, HostIoOpenFlags,
    HostIoOpenMode, HostIoOpenOps, HostIoPread, HostIoPreadOps, HostIoResult,
};
use std::fmt::Write;
use vmm::process::Process;

impl HostIo for Debugged {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }
}

impl HostIoOpen for Debugged {
    fn open(&mut self, name: &[u8], _: HostIoOpenFlags, _: HostIoOpenMode) -> HostIoResult<u32, Self> {
        if !name.starts_with(b"/proc/") || !name.ends_with(b"/maps") {
            return Err(HostIoError::Errno(HostIoErrno::ENOENT));
        }
        let text = maps(self.travel.process()).into_bytes();
        let number = (0..).find(|number| !self.files.contains_key(number)).unwrap_or(u32::MAX);
        self.files.insert(number, text);
        Ok(number)
    }
}

impl HostIoClose for Debugged {
    fn close(&mut self, number: u32) -> HostIoResult<(), Self> {
        self.files.remove(&number).map(drop).ok_or(HostIoError::Errno(HostIoErrno::EBADF))
    }
}

impl HostIoPread for Debugged {
    fn pread(
        &mut self,
        number: u32,
        count: usize,
        offset: u64,
        buffer: &mut [u8],
    ) -> HostIoResult<usize, Self> {
        let file = self.files.get(&number).ok_or(HostIoError::Errno(HostIoErrno::EBADF))?;
        Ok(super::target::part(file, offset, count, buffer))
    }
}

/// What /proc/PID/maps says, but for devices and inodes.
fn maps(process: &Process) -> String {
    let mut text = String::new();
    for mapping in process.mappings() {
        let right = |has: bool, letter: char| if has { letter } else { '-' };
        let rights = mapping.rights;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:08x}-{:08x} {}{}{}p {:08x} 00:00 0 {}",
            mapping.start,
            mapping.end,
            right(rights.read, 'r'),
            right(rights.write, 'w'),
            right(rights.execute, 'x'),
            mapping.file_offset,
            mapping.name
        );
    }
    text
}
