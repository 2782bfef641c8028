//! `--net`: where a machine's network card leads to.
//!
//! A TAP interface of this host, or two Unix datagram sockets: frames come to LOCAL, and go to REMOTE, as with QEMU's `-netdev dgram`.

use crate::exit::{Code, Failure};
use crate::shell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use vmm::journal::schema::digest_executable as digest;
use vmm::tap;

/// What was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given {
    Tap(std::ffi::OsString),
    Unix { local: PathBuf, remote: PathBuf },
}

/// The network at the other end.
pub(super) struct Link {
    from: Socket,
    to: Socket,
    /// The socket's file, which goes when the recording ends.
    local: Option<PathBuf>,
}

enum Socket {
    Tap(File),
    Unix(UnixDatagram),
}

impl Given {
    /// Reads `none`, `tap=NAME` or `unix=LOCAL,REMOTE`.
    pub(super) fn parse(text: &OsStr) -> Result<Option<Given>, Failure> {
        let bytes = text.as_bytes();
        if bytes == b"none" {
            return Ok(None);
        }
        if let Some(name) = bytes.strip_prefix(b"tap=") {
            return Ok(Some(Given::Tap(OsStr::from_bytes(name).to_owned())));
        }
        let sockets = bytes.strip_prefix(b"unix=").and_then(|both| {
            let comma = both.iter().position(|byte| *byte == b',')?;
            let [local, remote] =
                [&both[..comma], &both[comma + 1..]].map(|path| PathBuf::from(OsStr::from_bytes(path)));
            Some(Given::Unix { local, remote })
        });
        sockets.map(Some).ok_or_else(|| {
            let text = text.display();
            Failure::new(Code::Usage, format!("--net {text}: it is none, tap=NAME or unix=LOCAL,REMOTE"))
        })
    }

    /// The Ethernet address of the machine's card: of QEMU's kind, another for each name, so that two machines can meet.
    pub(super) fn address(&self) -> [u8; 6] {
        let name = match self {
            Given::Tap(name) => name.as_bytes(),
            Given::Unix { local, .. } => local.as_os_str().as_bytes(),
        };
        let [a, b, c, ..] = digest(name).to_le_bytes();
        [0x52, 0x54, 0x00, a, b, c]
    }

    /// Opens it.
    pub(super) fn open(&self) -> Result<Link, Failure> {
        match self {
            Given::Tap(name) => {
                let opened = tap::open(name).and_then(|file| Ok((file.try_clone()?, file)));
                let (from, to) = opened.map_err(|error| {
                    let help = help_with_tap(name, &error);
                    Failure::new(Code::Host, format!("--net tap={}: {error}{help}", name.display()))
                })?;
                Ok(Link { from: Socket::Tap(from), to: Socket::Tap(to), local: None })
            }
            Given::Unix { local, remote } => {
                let failed = |path: &PathBuf, help: &str, error: io::Error| {
                    Failure::new(Code::Host, format!("--net unix: {}: {error}{help}", path.display()))
                };
                let socket = UnixDatagram::bind(local)
                    .map_err(|error| failed(local, "; remove it if nobody uses it", error))?;
                let connected = socket.connect(remote).and_then(|()| {
                    // Whoever does not read loses frames.
                    socket.set_write_timeout(Some(Duration::from_millis(10)))?;
                    socket.try_clone()
                });
                match connected {
                    Ok(to) => Ok(Link {
                        from: Socket::Unix(socket),
                        to: Socket::Unix(to),
                        local: Some(local.clone()),
                    }),
                    Err(error) => {
                        // It was made here; where it cannot be removed, the next one is told.
                        let _ = fs::remove_file(local);
                        Err(failed(remote, "; the other end is started first", error))
                    }
                }
            }
        }
    }
}

/// What to do where a TAP interface cannot be opened.
fn help_with_tap(name: &OsStr, error: &io::Error) -> String {
    use io::ErrorKind::{InvalidInput, NotFound, PermissionDenied, ResourceBusy};
    let name = shell::word(Path::new(name));
    // The one of the kernel has a number, the one of `tap::open` has none.
    match (error.kind(), error.raw_os_error()) {
        (NotFound, None) => format!(
            "; make it first: `sudo ip tuntap add dev {name} mode tap user $USER`, give it an address (`sudo ip address add \
             10.213.45.1/30 dev {name}`) and switch it on (`sudo ip link set {name} up`)"
        ),
        (NotFound, Some(_)) => {
            "; this host has no /dev/net/tun: `sudo modprobe tun`, or --net unix=LOCAL,REMOTE".to_owned()
        }
        (InvalidInput, Some(_)) => {
            "; it is an interface of another kind than TAP: `ip tuntap` lists those".to_owned()
        }
        (PermissionDenied, _) => {
            format!(
                "; it belongs to somebody else: `sudo ip tuntap add dev {name} mode tap user $USER` makes one of yours"
            )
        }
        (ResourceBusy, _) => "; another program has it open".to_owned(),
        _ => String::new(),
    }
}

/// Takes what comes.
pub(super) struct Receiver(Socket);

impl Receiver {
    /// The next frame.
    pub(super) fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; 1 << 17];
        let length = match &mut self.0 {
            Socket::Tap(file) => file.read(&mut bytes)?,
            Socket::Unix(socket) => socket.recv(&mut bytes)?,
        };
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// Sends.
pub(super) struct Sender {
    to: Socket,
    local: Option<PathBuf>,
    /// Frames that nobody took.
    pub(super) lost: u64,
}

impl Link {
    pub(super) fn split(self) -> (Receiver, Sender) {
        (Receiver(self.from), Sender { to: self.to, local: self.local, lost: 0 })
    }
}

impl Sender {
    /// Sends a frame, or loses it.
    pub(super) fn send(&mut self, frame: &[u8]) {
        let sent = match &mut self.to {
            Socket::Tap(file) => file.write(frame),
            Socket::Unix(socket) => socket.send(frame),
        };
        self.lost += u64::from(sent.is_err());
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        if let Some(local) = &self.local {
            // There is nobody to tell; the next recording says that it is there.
            let _ = fs::remove_file(local);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_network_is_refused() {
        let parse = |text: &str| Given::parse(OsStr::new(text));
        assert!(matches!(parse("none"), Ok(None)));
        assert!(matches!(parse("tap=t0"), Ok(Some(Given::Tap(name))) if name == "t0"));
        let expected = Given::Unix { local: "a".into(), remote: "b,c".into() };
        assert!(matches!(parse("unix=a,b,c"), Ok(Some(given)) if given == expected));
        for text in ["", "tap", "unix=a", "user", "none,"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_ne!(Given::Tap("t0".into()).address(), Given::Tap("t1".into()).address());
    }
}
