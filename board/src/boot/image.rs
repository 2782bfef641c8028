//! From a kernel's file to its ELF: a vmlinux is one, a bzImage has one inside, compressed (Documentation/arch/x86/boot.rst).
//!
//! The code in a bzImage that would decompress it passes through 32-bit mode, which the software CPU has not; so the host does it.

use super::BootError;
use std::io::Read;

/// Where the setup header is, in a bzImage as in the page of parameters.
pub(super) const HEADER: usize = 0x1f1;
/// No kernel is larger than this when it is decompressed.
const LARGEST: u64 = 1 << 30;
/// The bytes of a sector.
const SECTOR: usize = 512;
/// The end of `HdrS`, by which a bzImage is known.
const BEHIND_MAGIC: usize = 0x206;

/// A kernel's file, taken apart.
pub(super) struct Image {
    /// The ELF file.
    pub(super) elf: Vec<u8>,
    /// The setup header of a bzImage.
    pub(super) header: Option<Vec<u8>>,
}

impl Image {
    /// Takes a kernel's file apart.
    pub(super) fn of(file: &[u8]) -> Result<Image, BootError> {
        if file.starts_with(b"\x7fELF") {
            return Ok(Image { elf: file.to_vec(), header: None });
        }
        if file.get(BEHIND_MAGIC - 4..BEHIND_MAGIC) != Some(b"HdrS") {
            return Err(other(file));
        }
        if names_no_payload(file) {
            return Err(BootError::NotLinux);
        }
        let (header, payload) = parts(file).ok_or(BootError::Cut)?;
        let elf = decompress(payload)?;
        if !elf.starts_with(b"\x7fELF") {
            return Err(BootError::Payload("it holds no ELF file".to_owned()));
        }
        Ok(Image { elf, header: Some(header.to_vec()) })
    }
}

/// What a file is that is no kernel, if that is to be seen.
fn other(file: &[u8]) -> BootError {
    match file {
        [0x1f, 0x8b, ..] => BootError::Packed("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => BootError::Packed("zstd"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => BootError::Packed("xz"),
        [b'B', b'Z', b'h', ..] => BootError::Packed("bzip2"),
        // So a bzImage begins as well, since it is a program of UEFI, too.
        [b'M', b'Z', ..] if file.len() < BEHIND_MAGIC => BootError::Cut,
        [b'M', b'Z', ..] => BootError::Efi,
        _ => BootError::NotAKernel,
    }
}

/// Whether the header is of a protocol before 2.08, which has no fields for a payload, or says that there is none. Then the code
/// behind the setup is a program, in whatever form.
fn names_no_payload(file: &[u8]) -> bool {
    const WITH_PAYLOAD: u16 = 0x208;
    let version = file.get(0x206..).and_then(<[u8]>::first_chunk).copied().map(u16::from_le_bytes);
    version.is_some_and(|version| version < WITH_PAYLOAD) || file.get(0x24c..0x250) == Some(&[0; 4])
}

/// The setup header and the payload.
fn parts(file: &[u8]) -> Option<(&[u8], &[u8])> {
    let byte = |at: usize| file.get(at).copied().map(usize::from);
    let long = |at: usize| usize::try_from(u32::from_le_bytes(*file.get(at..)?.first_chunk()?)).ok();
    // The header's length is in the jump over it.
    let header = file.get(HEADER..0x202 + byte(0x201)?)?;
    // Zero sectors are four, for the sake of very old kernels.
    let sectors = if byte(HEADER)? == 0 { 4 } else { byte(HEADER)? };
    let start = ((sectors + 1) * SECTOR).checked_add(long(0x248)?)?;
    Some((header, file.get(start..start.checked_add(long(0x24c)?)?)?))
}

fn decompress(payload: &[u8]) -> Result<Vec<u8>, BootError> {
    let unserved = |name| Err(BootError::Compression(name));
    let mut out = Vec::new();
    let read = match payload {
        [0x1f, 0x8b, ..] => flate2::read::GzDecoder::new(payload).take(LARGEST).read_to_end(&mut out),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd::stream::read::Decoder::with_buffer(payload)
            .and_then(|decoder| decoder.single_frame().take(LARGEST).read_to_end(&mut out)),
        [0x02, 0x21, 0x4c, 0x18, rest @ ..] => return lz4(rest),
        // What the kernel's own decompressor has: one stream, which may have a filter for code of x86.
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            lzma_rust2::XzReader::new(payload, false).take(LARGEST).read_to_end(&mut out)
        }
        [0x7f, b'E', b'L', b'F', ..] => return Ok(payload.to_vec()),
        [b'B', b'Z', b'h', ..] => return unserved("bzip2"),
        [0x5d, 0, ..] => return unserved("lzma"),
        [0x89, b'L', b'Z', b'O', ..] => return unserved("lzo"),
        _ => return unserved("a way that is not known"),
    };
    read.map(|_| out).map_err(|error| BootError::Payload(error.to_string()))
}

/// The legacy form of LZ4: blocks of 8 MiB, each behind its compressed length. The last four bytes are the length of it all.
fn lz4(mut rest: &[u8]) -> Result<Vec<u8>, BootError> {
    const BLOCK: usize = 8 << 20;
    const TRAILER: usize = 4;
    let wrong = |why: &str| BootError::Payload(format!("LZ4: {why}"));
    let mut out = Vec::new();
    let mut block = vec![0; BLOCK];
    while rest.len() > TRAILER {
        let (length, behind) = rest.split_first_chunk().ok_or_else(|| wrong("a block's length is cut"))?;
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let (compressed, behind) = behind.split_at_checked(length).ok_or_else(|| wrong("a block is cut"))?;
        let n = lz4_flex::block::decompress_into(compressed, &mut block)
            .map_err(|error| wrong(&error.to_string()))?;
        out.extend_from_slice(&block[..n]);
        if out.len() as u64 > LARGEST {
            return Err(wrong("it is larger than any kernel"));
        }
        rest = behind;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lzma_rust2::{FilterConfig, XzOptions, XzWriter};
    use std::io::Write;

    /// As Linux's build has it.
    fn with_a_filter() -> XzOptions {
        let mut options = XzOptions::with_preset(1);
        options.filters.push(FilterConfig::new_bcj_x86(0));
        options
    }

    /// A bzImage with nothing in it but its header and this payload.
    fn bz_image(payload: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 2 * SECTOR];
        file[HEADER] = 1;
        file[0x201] = 0x66;
        file[0x202..0x208].copy_from_slice(b"HdrS\x0f\x02");
        file[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        file.extend_from_slice(payload);
        file
    }

    fn elf() -> Vec<u8> {
        [b"\x7fELF".as_slice(), &[7; 10_000]].concat()
    }

    #[test]
    fn each_compression_that_is_served_gives_the_elf() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&elf()).unwrap();
        let mut xz = XzWriter::new(Vec::new(), with_a_filter()).unwrap();
        xz.write_all(&elf()).unwrap();
        let block = lz4_flex::block::compress(&elf());
        let length = u32::try_from(block.len()).unwrap().to_le_bytes();
        let lz4 = [[0x02, 0x21, 0x4c, 0x18].as_slice(), &length, &block, &[0; 4]].concat();
        let trailed = |mut payload: Vec<u8>| {
            payload.extend([1, 2, 3, 4]);
            payload
        };
        for payload in [
            trailed(gzip.finish().unwrap()),
            trailed(xz.finish().unwrap()),
            trailed(zstd::bulk::compress(&elf(), 1).unwrap()),
            lz4,
        ] {
            let image = Image::of(&bz_image(&payload)).unwrap();
            assert_eq!((image.elf, image.header.unwrap().len()), (elf(), 0x202 + 0x66 - HEADER));
        }
    }

    #[test]
    fn what_is_no_kernel_is_told_from_one_that_is_cut_or_damaged() {
        let said = |file: &[u8]| Image::of(file).err().unwrap().to_string();
        assert!(said(b"#!/bin/sh").contains("neither"));
        assert!(said(&[0x1f, 0x8b, 8, 0]).contains("unpack it first: gzip -dc"));
        assert!(said(b"\xfd7zXZ\0rest").contains("xz -dc"));
        assert!(said(b"MZ\x90").contains("cut"));
        assert!(said(&[b"MZ".as_slice(), &[0; 0x1000]].concat()).contains("UEFI"));
        // As memtest86+ is, which names no payload, and iPXE, whose protocol is older than payloads: text is where they would be.
        assert!(said(&bz_image(&[])).contains("no compressed kernel"));
        let mut older = bz_image(b"BZh");
        older[0x206] = 7;
        older[0x248..0x250].copy_from_slice(b"1.0.0+gi");
        assert!(said(&older).contains("no compressed kernel"));
        let whole = bz_image(&[0x1f, 0x8b, 8, 0]);
        assert!(said(&whole[..1024 + 2]).contains("cut"));
        assert!(said(&whole).contains("cannot be decompressed"));
        assert!(said(&bz_image(b"\xfd7zXZ\0cut")).contains("cannot be decompressed"));
        assert!(said(&bz_image(b"BZh")).contains("bzip2"));
        assert!(said(&bz_image(&[0x02, 0x21, 0x4c, 0x18, 255, 255, 255, 255, 0])).contains("LZ4"));
    }
}
