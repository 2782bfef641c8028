//! The journal of a machine: what was booted, what came from outside and when, and digests that a replay compares.
//!
//! A file is the magic `GRETELM\n`, the format's version (u32) and frames ([`vmm::journal::frame`], marker `GMFR`). The first frame is
//! the [`Header`], the others hold whole [`Record`]s. Numbers are LEB128, digests eight bytes, byte strings have their length before
//! them. The kernel and the initial file system are beside the journal, as `files/DIGEST`.
//!
//! A journal that is torn is used up to its last whole frame.

mod reader;
mod writer;

pub use reader::{Damage, Reader};
pub use writer::Writer;

use crate::devices::Extras;
use crate::devices::console::Size;
use crate::machine::{Digests, Moment};
use std::path::PathBuf;
use vmm::journal::numbers::{Cursor, put_bytes, put_digest, put_u64};

/// The version of the format.
pub const VERSION: u32 = 5;
/// The version of all that a guest sees and the journal does not hold: the devices, what takes how long, CPUID, what is in memory at
/// the start, the semantics of instructions. A change of any of these raises it.
pub const BEHAVIOUR: u32 = 8;
const MARKER: &[u8; 4] = b"GMFR";

/// What a disk begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// XXH3-64 of the image.
    pub image: u64,
    /// The guest may only read it.
    pub read_only: bool,
    /// What the guest writes may take so many bytes of memory.
    pub room: u64,
}

/// What was booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version of gretel that recorded. First in every version of the format.
    pub gretel: String,
    /// The recorder's [`BEHAVIOUR`].
    pub behaviour: u32,
    /// XXH3-64 of the kernel's file.
    pub kernel: u64,
    /// XXH3-64 of the initial file system.
    pub initrd: Option<u64>,
    /// The command line.
    pub command_line: String,
    /// Bytes of RAM.
    pub memory: u64,
    /// The time of day at the start, in seconds since 1970.
    pub start: u64,
    /// The disk.
    pub disk: Option<Disk>,
    /// The devices of virtio beside that.
    pub extras: Extras,
    /// It begins at this checkpoint of its file, and not at a boot; those before are another recording's.
    pub from: Option<u64>,
}

impl Header {
    /// gretel `b`, behaviour `u`, kernel `d`, initrd (a list of none or one) `d`, command line `b`, memory `u`, start `u`,
    /// disk (a list of none or one): image `d`, read-only `u`, room `u`; network card (a list of none or one): address `b`;
    /// other devices `u` (1 a source of random bytes, 2 a console, 4 a vsock); checkpoint (a list of none or one) `u`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.gretel.as_bytes());
        put_u64(&mut out, self.behaviour.into());
        put_digest(&mut out, self.kernel);
        put_u64(&mut out, self.initrd.is_some().into());
        self.initrd.iter().for_each(|digest| put_digest(&mut out, *digest));
        put_bytes(&mut out, self.command_line.as_bytes());
        put_u64(&mut out, self.memory);
        put_u64(&mut out, self.start);
        put_u64(&mut out, self.disk.is_some().into());
        if let Some(Disk { image, read_only, room }) = self.disk {
            put_digest(&mut out, image);
            put_u64(&mut out, read_only.into());
            put_u64(&mut out, room);
        }
        let Extras { net, rng, console, vsock } = self.extras;
        put_u64(&mut out, net.is_some().into());
        net.iter().for_each(|address| put_bytes(&mut out, address));
        put_u64(&mut out, u64::from(rng) | u64::from(console) << 1 | u64::from(vsock) << 2);
        put_u64(&mut out, self.from.is_some().into());
        self.from.iter().for_each(|from| put_u64(&mut out, *from));
        out
    }

    /// Reads an encoding; `None` if it is not one.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let mut c = Cursor(bytes);
        let header = Header {
            gretel: c.string()?,
            behaviour: c.u64()?.try_into().ok()?,
            kernel: c.digest()?,
            initrd: c.list(Cursor::digest)?.first().copied(),
            command_line: c.string()?,
            memory: c.u64()?,
            start: c.u64()?,
            disk: c.list(Disk::decode)?.first().copied(),
            extras: decode_extras(&mut c)?,
            from: c.list(Cursor::u64)?.first().copied(),
        };
        c.0.is_empty().then_some(header)
    }
}

fn decode_extras(c: &mut Cursor<'_>) -> Option<Extras> {
    let net = c.list(|c| c.bytes()?.try_into().ok())?.first().copied();
    let others = c.u64().filter(|others| *others < 8)?;
    let has = |bit: u64| others & bit != 0;
    Some(Extras { net, rng: has(1), console: has(2), vsock: has(4) })
}

impl Disk {
    fn decode(c: &mut Cursor<'_>) -> Option<Disk> {
        Some(Disk { image: c.digest()?, read_only: c.u64()? != 0, room: c.u64()? })
    }
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The machine ended.
    Machine(crate::machine::End),
    /// Whoever recorded it ended it.
    Stopped,
    /// The guest waited, and nothing more could come.
    Idle,
}

/// What comes from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Tag 1: bytes that were typed on the console `b`.
    Typed(Vec<u8>),
    /// Tag 4: a frame that came to the network card `b`.
    Frame(Vec<u8>),
    /// Tag 5: random bytes that the guest had asked for `b`.
    Random(Vec<u8>),
    /// Tag 6: the terminal has another size: columns `u`, rows `u`.
    Resized(Size),
    /// Tag 7: a packet that came to the vsock `b`.
    Packet(Vec<u8>),
    /// Tag 8: all connections of the vsock are gone.
    Severed,
}

impl Input {
    fn tag(&self) -> u8 {
        match self {
            Input::Typed(_) => 1,
            Input::Frame(_) => 4,
            Input::Random(_) => 5,
            Input::Resized(_) => 6,
            Input::Packet(_) => 7,
            Input::Severed => 8,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Input::Typed(bytes) | Input::Frame(bytes) | Input::Random(bytes) | Input::Packet(bytes) => {
                put_bytes(out, bytes);
            }
            Input::Resized(size) => [size.columns, size.rows].iter().for_each(|n| put_u64(out, (*n).into())),
            Input::Severed => {}
        }
    }

    fn decode(tag: u8, c: &mut Cursor<'_>) -> Option<Input> {
        let half = |c: &mut Cursor<'_>| c.u64()?.try_into().ok();
        Some(match tag {
            1 => Input::Typed(c.bytes()?.to_vec()),
            4 => Input::Frame(c.bytes()?.to_vec()),
            5 => Input::Random(c.bytes()?.to_vec()),
            6 => Input::Resized(Size { columns: half(c)?, rows: half(c)? }),
            7 => Input::Packet(c.bytes()?.to_vec()),
            8 => Input::Severed,
            _ => return None,
        })
    }
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// The moment, the digests before, and what the tag has.
    Input {
        /// When.
        at: Moment,
        /// The state before.
        digests: Digests,
        /// What came.
        input: Input,
    },
    /// Tag 2: the moment, the digests. Nothing happened.
    Check {
        /// When.
        at: Moment,
        /// The state.
        digests: Digests,
    },
    /// Tag 3: the moment, the digests of all memory, how it ended `u`: 0 power-off, 1 reset, 2 panic: its reason `b`, 3 triple fault:
    /// where `u`, 4 halted, 5 refused: where `u` and what `b`, 6 stopped, 7 idle,
    /// 8 ended by the guest: its status `u`. Nothing follows.
    End {
        /// When.
        at: Moment,
        /// The state, with all memory.
        digests: Digests,
        /// How.
        end: End,
    },
}

impl Record {
    /// When it was.
    #[must_use]
    pub fn at(&self) -> Moment {
        match self {
            Record::Input { at, .. } | Record::Check { at, .. } | Record::End { at, .. } => *at,
        }
    }

    /// What the state was.
    #[must_use]
    pub fn digests(&self) -> Digests {
        match self {
            Record::Input { digests, .. } | Record::Check { digests, .. } | Record::End { digests, .. } => {
                *digests
            }
        }
    }

    /// Tag, instructions `u`, time `u`, digest of the state `d`, of memory `d`; then what the tag has.
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Record::Input { input, .. } => input.tag(),
            Record::Check { .. } => 2,
            Record::End { .. } => 3,
        });
        let (at, digests) = (self.at(), self.digests());
        put_u64(out, at.retired);
        put_u64(out, at.time);
        put_digest(out, digests.state);
        put_digest(out, digests.memory);
        match self {
            Record::Input { input, .. } => input.encode(out),
            Record::Check { .. } => {}
            Record::End { end, .. } => end.encode(out),
        }
    }

    fn decode(c: &mut Cursor<'_>) -> Option<Record> {
        let tag = c.byte()?;
        let at = Moment { retired: c.u64()?, time: c.u64()? };
        let digests = Digests { state: c.digest()?, memory: c.digest()? };
        Some(match tag {
            2 => Record::Check { at, digests },
            3 => Record::End { at, digests, end: End::decode(c)? },
            tag => Record::Input { at, digests, input: Input::decode(tag, c)? },
        })
    }
}

impl End {
    fn encode(&self, out: &mut Vec<u8>) {
        use crate::machine::End as Machine;
        let kind = match self {
            End::Machine(Machine::PowerOff) => 0,
            End::Machine(Machine::Reset) => 1,
            End::Machine(Machine::Panic(_)) => 2,
            End::Machine(Machine::TripleFault(_)) => 3,
            End::Machine(Machine::Halted) => 4,
            End::Machine(Machine::Refused(_)) => 5,
            End::Stopped => 6,
            End::Idle => 7,
            End::Machine(Machine::Exit(_)) => 8,
        };
        put_u64(out, kind);
        match self {
            End::Machine(Machine::Panic(reason)) => put_bytes(out, reason.as_bytes()),
            End::Machine(Machine::TripleFault(at)) => put_u64(out, *at),
            End::Machine(Machine::Exit(status)) => put_u64(out, (*status).into()),
            End::Machine(Machine::Refused(refused)) => {
                put_u64(out, refused.at);
                put_bytes(out, refused.what.as_bytes());
            }
            _ => {}
        }
    }

    fn decode(c: &mut Cursor<'_>) -> Option<End> {
        use crate::machine::End as Machine;
        Some(match c.u64()? {
            0 => End::Machine(Machine::PowerOff),
            1 => End::Machine(Machine::Reset),
            2 => End::Machine(Machine::Panic(c.string()?)),
            3 => End::Machine(Machine::TripleFault(c.u64()?)),
            4 => End::Machine(Machine::Halted),
            5 => End::Machine(Machine::Refused(x86_system::Refused { at: c.u64()?, what: c.string()? })),
            6 => End::Stopped,
            7 => End::Idle,
            8 => End::Machine(Machine::Exit(c.u64()?.try_into().ok()?)),
            _ => return None,
        })
    }
}

/// Why a journal cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read.
    #[error("cannot read journal {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// It is some other file.
    #[error("{} is not the journal of a machine: it does not begin with the magic GRETELM", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// It is of another version.
    #[error("journal {} has {what} {found}, this gretel replays {current}: replay it with the gretel that recorded it, or \
        record again", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Which version.
        what: &'static str,
        /// The file's.
        found: u32,
        /// This gretel's.
        current: u32,
    },
    /// Not even the header is whole.
    #[error("journal {} is damaged before its first record: {why}; record again", path.display())]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::End as Machine;

    pub(super) fn header() -> Header {
        Header {
            gretel: "1.0".to_owned(),
            behaviour: BEHAVIOUR,
            kernel: 7,
            initrd: Some(9),
            command_line: "console=ttyS0".to_owned(),
            memory: 512 << 20,
            start: 1_700_000_000,
            disk: Some(Disk { image: 11, read_only: true, room: 1 << 30 }),
            extras: Extras { net: Some([2, 0, 0, 0, 0, 9]), rng: true, console: false, vsock: true },
            from: Some(2),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Header::decode(&header().encode()), Some(header()));
        let at = Moment { retired: 1 << 40, time: 3 };
        let digests = Digests { state: 5, memory: 6 };
        let refused = x86_system::Refused { at: 4, what: "32-bit code".to_owned() };
        let ends = [
            Machine::PowerOff,
            Machine::Reset,
            Machine::Panic("why".to_owned()),
            Machine::TripleFault(3),
            Machine::Halted,
            Machine::Refused(refused),
            Machine::Exit(77),
        ];
        let ends = ends.map(End::Machine).into_iter().chain([End::Stopped, End::Idle]);
        let mut records: Vec<Record> = ends.map(|end| Record::End { at, digests, end }).collect();
        let inputs = [
            Input::Typed(b"ls\r".to_vec()),
            Input::Frame(vec![7; 60]),
            Input::Random(vec![8; 64]),
            Input::Resized(Size { columns: 132, rows: 50 }),
            Input::Packet(vec![9; 44]),
            Input::Severed,
        ];
        records.extend(inputs.map(|input| Record::Input { at, digests, input }));
        records.push(Record::Check { at, digests });
        for record in records {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            assert_eq!(Record::decode(&mut Cursor(&bytes)).as_ref(), Some(&record));
            for cut in 0..bytes.len() {
                assert_eq!(Record::decode(&mut Cursor(&bytes[..cut])), None, "{record:?} cut at {cut}");
            }
        }
    }
}
