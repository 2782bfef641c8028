//! The bytes of a thread's state, and of memory.

use std::fmt;
use x86::flags::Flag;
use x86::op::Gpr;

/// A byte of a register or of memory. Of registers it is said which and which byte of it, the lowest being 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Byte {
    /// Of a general register, by its hardware number.
    General(u8, u8),
    /// Of a vector register: xmm, ymm or zmm.
    Vector(u8, u8),
    /// Of an opmask register.
    Mask(u8, u8),
    /// Of a physical x87 register: eight of the significand, two of sign and exponent.
    X87(u8, u8),
    /// Of the base of FS (0) or GS (1).
    Base(u8, u8),
    /// An arithmetic flag, by its place in [`Flag::ALL`].
    Flag(u8),
    /// The direction flag.
    Direction,
    /// Of RFLAGS, but for the arithmetic flags and the direction.
    System(u8),
    /// Of MXCSR (0), the x87 control word (1), status word (2) or tag word (3).
    Control(u8, u8),
    /// Of memory, by its linear address.
    Memory(u64),
    /// Of what goes through a pipe or a socket, by the pipe's number and its own: no instruction's, but of those who follow a value
    /// through several programs.
    Stream(u32, u64),
}

impl Byte {
    /// The bytes of a general register.
    pub fn general(register: Gpr) -> impl Iterator<Item = Byte> {
        (0..8).map(move |n| Byte::General(register.0, n))
    }

    /// The bytes of memory from an address on.
    pub fn memory(address: u64, len: u64) -> impl Iterator<Item = Byte> {
        (0..len).map(move |n| Byte::Memory(address.wrapping_add(n)))
    }

    /// Whether it is one of memory.
    #[must_use]
    pub const fn is_memory(self) -> bool {
        matches!(self, Byte::Memory(_))
    }

    /// The register's name; of memory none.
    #[must_use]
    pub fn register(self) -> Option<String> {
        const CONTROL: [&str; 4] = ["mxcsr", "x87 control", "x87 status", "x87 tag"];
        const FLAGS: [&str; 6] = ["CF", "PF", "AF", "ZF", "SF", "OF"];
        Some(match self {
            Byte::General(n, _) => Gpr(n).name().to_owned(),
            Byte::Vector(n, byte) => {
                let size = ["xmm", "ymm", "zmm", "zmm"][usize::from((byte / 16) % 4)];
                format!("{size}{n}")
            }
            Byte::Mask(n, _) => format!("k{n}"),
            Byte::X87(n, _) => format!("x87 register {n}"),
            Byte::Base(n, _) => ["fs_base", "gs_base"][usize::from(n & 1)].to_owned(),
            Byte::Flag(n) => FLAGS[usize::from(n) % Flag::ALL.len()].to_owned(),
            Byte::Direction => "DF".to_owned(),
            Byte::System(_) => "rflags".to_owned(),
            Byte::Control(n, _) => CONTROL[usize::from(n & 3)].to_owned(),
            Byte::Memory(_) | Byte::Stream(..) => return None,
        })
    }
}

impl fmt::Display for Byte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (*self, self.register()) {
            (Byte::Memory(address), _) => write!(f, "[{address:#x}]"),
            (Byte::Stream(stream, n), _) => write!(f, "stream {stream}:{n}"),
            (
                Byte::General(_, n)
                | Byte::Vector(_, n)
                | Byte::Mask(_, n)
                | Byte::X87(_, n)
                | Byte::Base(_, n)
                | Byte::System(n)
                | Byte::Control(_, n),
                Some(name),
            ) => write!(f, "{name}:{n}"),
            (_, name) => f.write_str(name.as_deref().unwrap_or("?")),
        }
    }
}
