//! What is on a disk: an image that is never written to, and the blocks that the guest has written, which are kept in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The bytes of a block.
pub(crate) const BLOCK: usize = 4096;

/// A block that was written.
pub(crate) type Block = [u8; BLOCK];

/// An image to begin with.
#[derive(Clone, Debug)]
pub struct Image {
    file: Arc<File>,
    size: u64,
    read_only: bool,
    room: u64,
}

impl Image {
    /// The image in a file, which must not change. What the guest writes may take so many bytes of this host's memory.
    ///
    /// # Errors
    /// What the file system says; also where the file is no image of a disk, since it has no whole sectors.
    pub fn new(file: File, read_only: bool, room: u64) -> io::Result<Image> {
        const SECTOR: u64 = 512;
        let size = file.metadata()?.len();
        if size == 0 || !size.is_multiple_of(SECTOR) {
            let why = format!("it has {size} bytes, an image of a disk has whole sectors of {SECTOR}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Image { file: Arc::new(file), size, read_only, room })
    }

    /// Its bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the guest may only read it.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }
}

/// An image, and what was written since.
#[derive(Clone, Debug)]
pub(crate) struct Layers {
    pub(crate) image: Image,
    /// By number. A clone shares them.
    pub(crate) written: BTreeMap<u64, Arc<Block>>,
}

impl Layers {
    pub(crate) fn new(image: Image) -> Layers {
        Layers { image, written: BTreeMap::new() }
    }

    /// Reads bytes that are all on the disk.
    pub(super) fn read(&self, mut at: u64, mut bytes: &mut [u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (block, offset) = place(at);
            let (piece, rest) = bytes.split_at_mut(bytes.len().min(BLOCK - offset));
            match self.written.get(&block) {
                Some(written) => piece.copy_from_slice(&written[offset..offset + piece.len()]),
                None => self.image.file.read_exact_at(piece, at)?,
            }
            at += piece.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// Whether there is room to write so many bytes, all of which are on the disk.
    pub(super) fn has_room(&self, at: u64, length: u64) -> bool {
        const SIZE: u64 = BLOCK as u64;
        let blocks = at / SIZE..(at + length).div_ceil(SIZE);
        let written = self.written.range(blocks.clone()).count() as u64;
        let needed = (self.written.len() as u64 + blocks.count() as u64).saturating_sub(written);
        needed.saturating_mul(SIZE) <= self.image.room
    }

    /// Writes bytes that are all on the disk. The numbers of the blocks that they are in go to `touched`.
    pub(super) fn write(&mut self, mut at: u64, mut bytes: &[u8], touched: &mut Vec<u64>) -> io::Result<()> {
        while !bytes.is_empty() {
            let (block, offset) = place(at);
            let (piece, rest) = bytes.split_at(bytes.len().min(BLOCK - offset));
            if !self.written.contains_key(&block) {
                let before = self.before(block)?;
                self.written.insert(block, Arc::new(before));
            }
            if let Some(written) = self.written.get_mut(&block) {
                Arc::make_mut(written)[offset..offset + piece.len()].copy_from_slice(piece);
            }
            touched.push(block);
            at += piece.len() as u64;
            bytes = rest;
        }
        Ok(())
    }

    /// A block of the image; zeros behind its end.
    fn before(&self, block: u64) -> io::Result<Block> {
        let mut bytes = [0; BLOCK];
        let start = block * BLOCK as u64;
        let there = usize::try_from(self.image.size.saturating_sub(start)).map_or(BLOCK, |n| n.min(BLOCK));
        self.image.file.read_exact_at(&mut bytes[..there], start)?;
        Ok(bytes)
    }
}

/// The block of a byte, and where in it.
#[expect(clippy::cast_possible_truncation, reason = "an offset in a block")]
const fn place(at: u64) -> (u64, usize) {
    (at / BLOCK as u64, (at % BLOCK as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_written_is_read_and_the_image_stays() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 3 * 4096 + 512]).unwrap();
        let mut layers = Layers::new(Image::new(file.try_clone().unwrap(), false, u64::MAX).unwrap());
        let mut touched = Vec::new();
        layers.write(4000, &[1; 5000], &mut touched).unwrap();
        layers.write(3 * 4096 + 500, &[2; 12], &mut touched).unwrap();
        assert_eq!(touched, [0, 1, 2, 3]);
        let mut all = vec![0; 3 * 4096 + 512];
        layers.read(0, &mut all).unwrap();
        let expected = [vec![7; 4000], vec![1; 5000], vec![7; 3 * 4096 + 500 - 9000], vec![2; 12]].concat();
        assert!(all == expected);
        let mut image = vec![0; all.len()];
        file.read_exact_at(&mut image, 0).unwrap();
        assert!(image.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn what_is_written_again_needs_no_more_room() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 * 4096).unwrap();
        let mut layers = Layers::new(Image::new(file, false, 2 * 4096).unwrap());
        assert!(layers.has_room(0, 8192) && layers.has_room(100, 8000) && !layers.has_room(100, 8192));
        layers.write(4096, &[1; 4096], &mut Vec::new()).unwrap();
        assert!(layers.has_room(0, 8192) && layers.has_room(4096, 8192) && !layers.has_room(8192, 8192));
        layers.write(0, &[1; 10], &mut Vec::new()).unwrap();
        assert!(layers.has_room(0, 8192) && !layers.has_room(8192, 512));
    }

    #[test]
    fn an_image_has_whole_sectors() {
        let file = tempfile::tempfile().unwrap();
        for size in [0, 511, 513] {
            file.set_len(size).unwrap();
            assert!(Image::new(file.try_clone().unwrap(), false, 0).is_err());
        }
    }
}
