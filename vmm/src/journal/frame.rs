//! Frames: a run of whole records, compressed, with a checksum.
//!
//! File: magic `GRETELJ\n` (8 bytes), format version (u32), then frames. Frame, all numbers little-endian:
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | marker `GFRM` |
//! | 4 | sequence number, 0 for the first |
//! | 4 | length of the records before compression |
//! | 4 | length of the payload |
//! | 4 | CRC-32 of the 12 bytes before it and of the payload |
//! | payload | the records as one zstd frame |
//!
//! The sequence number makes a frame that is missing, doubled or from another place as visible as a flipped bit.

use super::schema::VERSION;
use std::io::Read;

/// The file's first bytes.
pub const MAGIC: &[u8; 8] = b"GRETELJ\n";
/// The first bytes of the journal of a machine, which is another file (the crate `board`).
pub const MAGIC_OF_MACHINES: &[u8; 8] = b"GRETELM\n";
/// Size of what precedes the first frame.
pub const PREAMBLE_SIZE: usize = 12;
/// Size of what precedes a frame's payload.
pub const FRAME_HEADER_SIZE: usize = 20;
/// A frame of more than this is taken for damage: the writer makes them as large as one input at most, and a
/// guest reads no more than 2 GiB at once.
const MAX_LENGTH: u32 = 0x8800_0000;
const MARKER: &[u8; 4] = b"GFRM";
/// The journal competes with the guest for the processor; higher levels gain little on system calls' data.
const ZSTD_LEVEL: i32 = 1;

/// Magic and version.
#[must_use]
pub fn preamble() -> Vec<u8> {
    [MAGIC.as_slice(), &VERSION.to_le_bytes()].concat()
}

/// Whether a file whose first bytes these are ends within its magic, as one does whose writer was killed between making and filling it.
#[must_use]
pub fn ends_in_magic(preamble: &[u8], magic: &[u8]) -> bool {
    preamble.len() < magic.len() && magic.starts_with(preamble)
}

/// Packs records into a frame.
///
/// # Errors
/// When they are longer than a frame can be.
pub fn pack(sequence: u32, records: &[u8]) -> std::io::Result<Vec<u8>> {
    pack_as(MARKER, sequence, records)
}

/// The same for a frame of another kind, of which other files consist.
///
/// # Errors
/// As [`pack`].
pub fn pack_as(marker: &[u8; 4], sequence: u32, records: &[u8]) -> std::io::Result<Vec<u8>> {
    let too_long = || std::io::Error::other("a single input is too long for a journal frame");
    let length = u32::try_from(records.len()).ok().filter(|n| *n <= MAX_LENGTH).ok_or_else(too_long)?;
    let payload = zstd::bulk::compress(records, ZSTD_LEVEL)?;
    let payload_length = u32::try_from(payload.len()).map_err(|_| too_long())?;
    let mut out = Vec::with_capacity(FRAME_HEADER_SIZE + payload.len());
    out.extend(marker);
    for number in [sequence, length, payload_length] {
        out.extend(number.to_le_bytes());
    }
    let checksum = checksum(&out[4..], &payload);
    out.extend(checksum.to_le_bytes());
    out.extend(payload);
    Ok(out)
}

fn checksum(lengths: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(lengths);
    hasher.update(payload);
    hasher.finalize()
}

/// Reads the next frame and unpacks its records. `Ok(None)` at the end of the file; the error says what is wrong
/// with the frame.
pub(super) fn unpack(input: &mut impl Read, sequence: u32) -> std::io::Result<Result<Option<Frame>, String>> {
    unpack_as(MARKER, input, sequence)
}

/// The same for a frame of another kind.
///
/// # Errors
/// When the file cannot be read.
pub fn unpack_as(
    marker: &[u8; 4],
    input: &mut impl Read,
    sequence: u32,
) -> std::io::Result<Result<Option<Frame>, String>> {
    Ok(match read_as(marker, input, sequence)? {
        Ok(Some(Packed { length, payload })) => {
            let size = FRAME_HEADER_SIZE as u64 + payload.len() as u64;
            decompress(&payload, length).map(|records| Some(Frame { records, size }))
        }
        Ok(None) => Ok(None),
        Err(why) => Err(why),
    })
}

/// The size of the next frame of a journal in the file, if it is whole as far as its checksum tells; it is not unpacked.
pub(super) fn skip(input: &mut impl Read, sequence: u32) -> std::io::Result<Option<u64>> {
    let packed = read_as(MARKER, input, sequence)?.ok().flatten();
    Ok(packed.map(|packed| FRAME_HEADER_SIZE as u64 + packed.payload.len() as u64))
}

/// What a frame has behind its header, as it is in the file.
struct Packed {
    /// How long its content is.
    length: u32,
    payload: Vec<u8>,
}

/// Reads the next frame and compares its checksum.
fn read_as(
    marker: &[u8; 4],
    input: &mut impl Read,
    sequence: u32,
) -> std::io::Result<Result<Option<Packed>, String>> {
    let mut header = Vec::new();
    input.take(FRAME_HEADER_SIZE as u64).read_to_end(&mut header)?;
    if header.is_empty() {
        return Ok(Ok(None));
    }
    let Some(header) = header.first_chunk::<FRAME_HEADER_SIZE>() else {
        return Ok(Err("the file ends inside a frame".to_owned()));
    };
    let number = |at: usize| number(header, at);
    if &header[..4] != marker {
        return Ok(Err("there is no frame here (its marker is missing)".to_owned()));
    }
    let (length, payload_length) = (number(8), number(12));
    if length > MAX_LENGTH {
        return Ok(Err(format!("a frame cannot hold {length} bytes")));
    }
    let mut payload = Vec::new();
    input.take(payload_length.into()).read_to_end(&mut payload)?;
    if payload.len() as u64 != u64::from(payload_length) {
        return Ok(Err("the file ends inside a frame".to_owned()));
    }
    if checksum(&header[4..16], &payload) != number(16) {
        return Ok(Err("a frame's checksum is wrong".to_owned()));
    }
    if number(4) != sequence {
        return Ok(Err(format!("frame {} stands where frame {sequence} should", number(4))));
    }
    Ok(Ok(Some(Packed { length, payload })))
}

/// An unpacked frame.
pub struct Frame {
    /// Its content.
    pub records: Vec<u8>,
    /// Its size in the file.
    pub size: u64,
}

fn number(header: &[u8; FRAME_HEADER_SIZE], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// What precedes a frame's payload, unchecked.
pub struct Outline {
    /// Of which kind it is.
    pub marker: [u8; 4],
    /// Its number in the file.
    pub sequence: u32,
    /// How long its content is before compression.
    pub length: u32,
    /// Its size in the file.
    pub size: u64,
}

impl Outline {
    /// Reads what precedes a payload, and leaves that; `None` at the end of the file, and where it is cut.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(input: &mut impl Read) -> std::io::Result<Option<Outline>> {
        let mut header = Vec::new();
        input.take(FRAME_HEADER_SIZE as u64).read_to_end(&mut header)?;
        let Some(header) = header.first_chunk::<FRAME_HEADER_SIZE>() else { return Ok(None) };
        Ok(Some(Outline {
            marker: [header[0], header[1], header[2], header[3]],
            sequence: number(header, 4),
            length: number(header, 8),
            size: FRAME_HEADER_SIZE as u64 + u64::from(number(header, 12)),
        }))
    }
}

/// Decompresses, and never makes more than was announced. At once and not as a stream, which would take each byte through a buffer of its
/// own: checkpoints of a machine have tens of megabytes.
fn decompress(payload: &[u8], length: u32) -> Result<Vec<u8>, String> {
    let fails = |error: std::io::Error| format!("a frame does not decompress: {error}");
    let mut records: Vec<u8> = Vec::new();
    records.try_reserve_exact(length as usize).map_err(|error| fails(error.into()))?;
    let mut unpacker = zstd::bulk::Decompressor::new().map_err(fails)?;
    let made = unpacker.decompress_to_buffer(payload, &mut records).map_err(fails)?;
    if made as u64 != u64::from(length) {
        return Err("a frame has another length than it says".to_owned());
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_the_length_that_it_says_or_is_damaged() {
        for records in [&b""[..], b"x", &[7; 100_000]] {
            let payload = zstd::bulk::compress(records, ZSTD_LEVEL).unwrap();
            let length = u32::try_from(records.len()).unwrap();
            assert_eq!(decompress(&payload, length).as_deref(), Ok(records));
            assert!(decompress(&payload, length + 1).unwrap_err().contains("another length"));
            for shorter in [length.checked_sub(1), (length > 0).then_some(0)].into_iter().flatten() {
                assert!(decompress(&payload, shorter).unwrap_err().contains("does not decompress"));
            }
            for cut in 1..payload.len() {
                assert!(decompress(&payload[..cut], length).is_err(), "{length} bytes, cut at {cut}");
            }
        }
    }
}
