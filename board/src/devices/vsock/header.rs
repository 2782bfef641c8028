//! The header of a vsock packet (virtio 1.2, 5.10.6).

use super::HEADER;

/// Operations (`VIRTIO_VSOCK_OP_*`).
pub mod op {
    /// Asks for a connection.
    pub const REQUEST: u16 = 1;
    /// Takes one.
    pub const RESPONSE: u16 = 2;
    /// There is none, or none any more.
    pub const RESET: u16 = 3;
    /// One of the two will not send any more, or not receive, as the flags say.
    pub const SHUTDOWN: u16 = 4;
    /// Data.
    pub const DATA: u16 = 5;
    /// Says how much room there is.
    pub const CREDIT_UPDATE: u16 = 6;
    /// Asks for that.
    pub const CREDIT_REQUEST: u16 = 7;
}

/// A stream of bytes; there are no other connections.
pub const STREAM: u16 = 1;

/// One of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Addresses: of who sends it, and of who receives it.
    pub from: u64,
    /// See `from`.
    pub to: u64,
    /// Their ports.
    pub from_port: u32,
    /// See `from_port`.
    pub to_port: u32,
    /// Bytes of data behind it.
    pub length: u32,
    /// [`STREAM`].
    pub kind: u16,
    /// One of [`op`].
    pub op: u16,
    /// Of a shutdown: 1 for who receives no more, 2 for who sends no more.
    pub flags: u32,
    /// The bytes that who sends it has room for.
    pub room: u32,
    /// How many bytes that one has taken since the connection began, modulo 2^32.
    pub taken: u32,
}

impl Header {
    /// Reads it from the front of a packet.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Header> {
        let bytes = packet.first_chunk::<HEADER>()?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|n| bytes[at + n]));
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Some(Header {
            from: long(0),
            to: long(8),
            from_port: word(16),
            to_port: word(20),
            length: word(24),
            kind: half(28),
            op: half(30),
            flags: word(32),
            room: word(36),
            taken: word(40),
        })
    }

    /// The packet with this data.
    #[must_use]
    pub fn packet(&self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER + data.len());
        [self.from, self.to].iter().for_each(|n| out.extend(n.to_le_bytes()));
        let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
        [self.from_port, self.to_port, length].iter().for_each(|n| out.extend(n.to_le_bytes()));
        [self.kind, self.op].iter().for_each(|n| out.extend(n.to_le_bytes()));
        [self.flags, self.room, self.taken].iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(data);
        out
    }
}
