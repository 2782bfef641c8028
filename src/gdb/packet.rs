//! gdb's packets: `$BODY#XX` with a checksum, acknowledged by `+` or `-` until both ends leave that out, and the single byte of
//! Ctrl-C between them (gdb's manual, "Overview" of the remote protocol).
//!
//! Example: `$qC#b4` is the body `qC`; its bytes sum up to 0xb4. In a body `}` stands for the byte behind it with bit 5 turned. In what
//! we send, `*` and a byte stand for more of the byte before: `0* ` is `0000`.

/// What a debugger sends that wants the program to stop.
const INTERRUPT: u8 = 3;
/// Longer bodies are no packets of gdb's: it was told that this is the limit.
pub(super) const LONGEST: usize = 0x2_0000;

/// What was heard of a debugger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A packet, without its escapes.
    Packet(Vec<u8>),
    /// A packet whose checksum is wrong.
    Damaged,
    /// The last answer did not arrive.
    Again,
    /// Ctrl-C.
    Interrupt,
}

/// Takes bytes apart.
#[derive(Default)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
}

impl Decoder {
    /// More has come.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether something has come that was not taken.
    pub(super) fn has_more(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Takes a Ctrl-C that comes next.
    pub(super) fn take_interrupt(&mut self) {
        if self.bytes.first() == Some(&INTERRUPT) {
            self.bytes.remove(0);
        }
    }

    /// The next thing that has come whole.
    pub(super) fn next(&mut self) -> Option<Heard> {
        let noise = self.bytes.iter().take_while(|byte| !matches!(**byte, b'$' | b'-' | INTERRUPT)).count();
        self.bytes.drain(..noise);
        let (len, heard) = match *self.bytes.first()? {
            b'-' => (1, Heard::Again),
            INTERRUPT => (1, Heard::Interrupt),
            _ => packet(&self.bytes)?,
        };
        self.bytes.drain(..len);
        Some(heard)
    }
}

/// The packet that the bytes begin with, and how many they are; `None` where more has to come.
fn packet(bytes: &[u8]) -> Option<(usize, Heard)> {
    let Some(end) = bytes.iter().position(|byte| *byte == b'#') else {
        return (bytes.len() > LONGEST).then_some((bytes.len(), Heard::Damaged));
    };
    let (body, expected) = (&bytes[1..end], bytes.get(end + 1..end + 3)?);
    let expected = std::str::from_utf8(expected).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
    let heard = match expected == Some(checksum(body)) {
        true => Heard::Packet(unescaped(body)),
        false => Heard::Damaged,
    };
    Some((end + 3, heard))
}

fn checksum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

fn unescaped(body: &[u8]) -> Vec<u8> {
    let mut escaped = false;
    let mut plain = Vec::with_capacity(body.len());
    for byte in body {
        match byte {
            b'}' if !escaped => escaped = true,
            byte => plain.push(if std::mem::take(&mut escaped) { byte ^ 0x20 } else { *byte }),
        }
    }
    plain
}

/// The packet of a body, with runs of a byte by their length: gdb makes a system call for each byte that comes through a pipe, and most of
/// a program's memory is zeroes.
pub(super) fn framed(body: &[u8]) -> Vec<u8> {
    let mut packet = vec![b'$'];
    for run in body.chunk_by(|a, b| a == b) {
        match run[0] {
            byte @ (b'#' | b'$' | b'}' | b'*') => {
                run.iter().for_each(|_| packet.extend([b'}', byte ^ 0x20]));
            }
            byte => shorten(byte, run.len(), &mut packet),
        }
    }
    let sum = checksum(&packet[1..]);
    packet.extend(format!("#{sum:02x}").bytes());
    packet
}

/// A run of a byte: the byte, and for up to 97 more of it `*` and their number as a printable byte.
fn shorten(byte: u8, mut len: usize, packet: &mut Vec<u8>) {
    const LEAST: usize = 3;
    const MOST: usize = 97;
    while len > 0 {
        packet.push(byte);
        len -= 1;
        let mut more = len.min(MOST);
        // What would stand for these numbers has a meaning of its own: # $ * }.
        while matches!(more, 6 | 7 | 13 | 96) {
            more -= 1;
        }
        if let (LEAST.., Ok(number)) = (more, u8::try_from(more + 29)) {
            packet.extend([b'*', number]);
            len -= more;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As gdb (remote.c, `read_frame`) and lldb do it, before escapes are taken out.
    fn expanded(packet: &[u8]) -> Vec<u8> {
        let mut plain: Vec<u8> = Vec::new();
        let mut bytes = packet.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'*' => {
                    let more = usize::from(*bytes.next().expect("a number")) - 29;
                    plain.extend(vec![*plain.last().expect("a byte"); more]);
                }
                byte => plain.push(*byte),
            }
        }
        plain
    }

    fn read_again(body: &[u8]) -> Option<Heard> {
        let packet = framed(body);
        let end = packet.len() - 3;
        assert_eq!(packet[end..], *format!("#{:02x}", checksum(&packet[1..end])).as_bytes());
        assert!(packet[1..end].iter().all(|byte| !matches!(byte, b'$' | b'#')), "{packet:?}");
        Some(Heard::Packet(unescaped(&expanded(&packet[1..end]))))
    }

    #[test]
    fn runs_are_short_and_whole() {
        for len in 0..300 {
            for byte in [b'0', b'*', b'}', 3] {
                let body = [b"m", vec![byte; len].as_slice(), b"1"].concat();
                assert_eq!(read_again(&body), Some(Heard::Packet(body)));
            }
        }
        assert!(framed(&[b'0'; 0x2_0000]).len() < 0x2_0000 / 32);
        assert_eq!(framed(b"0000"), b"$0* #7a");
    }

    #[test]
    fn packets_come_in_pieces_and_with_noise() {
        let mut decoder = Decoder::default();
        decoder.push(b"++$qC#");
        assert_eq!(decoder.next(), None);
        decoder.push(b"b4-\x03$qC#b5");
        let heard = std::iter::from_fn(|| decoder.next()).collect::<Vec<_>>();
        assert_eq!(heard, [Heard::Packet(b"qC".to_vec()), Heard::Again, Heard::Interrupt, Heard::Damaged]);
        assert!(!decoder.has_more());
    }

    #[test]
    fn a_packet_without_end_is_given_up() {
        let mut decoder = Decoder::default();
        decoder.push(&vec![b'$'; LONGEST + 1]);
        assert_eq!(decoder.next(), Some(Heard::Damaged));
        assert!(!decoder.has_more());
    }

    proptest! {
        #[test]
        fn what_is_framed_is_read_again(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(read_again(&body), Some(Heard::Packet(body)));
        }

        #[test]
        fn no_bytes_are_too_bad(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while decoder.next().is_some() {}
        }
    }
}
