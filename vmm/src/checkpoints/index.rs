//! Reading checkpoints: what there is is found by the outlines of frames; a checkpoint is read and checked when it is asked for.

use super::loaded::Same;
use super::{About, CHECKPOINT, CheckpointError, IDENTITY, MAGIC, MARK, PAGES, VERSION};
use crate::failure::ProcessError;
use crate::journal::frame::{self, Outline};
use crate::memory::space::SpaceError;
use crate::plain::numbers::Cursor;
use crate::plain::{In, Plain};
use crate::process::{Checkpoint, Process};
use crate::ram::{Memory, PAGE_LEN, Phys, Virt};
use lbr::regular;
use rustc_hash::FxHashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PREAMBLE: u64 = 12;

/// A frame.
#[derive(Clone, Copy, Debug)]
struct Found {
    offset: u64,
    sequence: u32,
}

/// A frame of pages.
#[derive(Clone, Copy, Debug)]
struct Pages {
    frame: Found,
    /// The number of its first page.
    first: u64,
    count: u64,
}

/// What a file of checkpoints holds.
pub(crate) struct Index {
    path: PathBuf,
    pages: Vec<Pages>,
    /// The checkpoints in order: what is known of each, and its frame.
    all: Vec<(About, Found)>,
    /// Why the file is not used to its end.
    damage: Option<CheckpointError>,
}

impl Index {
    /// Looks through a file, which belongs to the journal with this identity.
    ///
    /// # Errors
    /// When it cannot be read, or is something else. Damage behind its beginning is no error.
    pub(crate) fn open(path: &Path, identity: u64) -> Result<Index, CheckpointError> {
        let io = |error| CheckpointError::Io { path: path.to_owned(), error };
        let mut input = BufReader::new(regular::open(path).map_err(io)?);
        let mut preamble = Vec::new();
        (&mut input).take(PREAMBLE).read_to_end(&mut preamble).map_err(io)?;
        let mut index = Index { path: path.to_owned(), pages: Vec::new(), all: Vec::new(), damage: None };
        let cut = || index.damaged(preamble.len() as u64, "the file ends before the first frame".to_owned());
        if frame::ends_in_magic(&preamble, MAGIC) {
            return Err(cut());
        }
        let Some(version) = preamble.strip_prefix(MAGIC) else {
            return Err(CheckpointError::NotCheckpoints { path: path.to_owned() });
        };
        let found = version.try_into().map(u32::from_le_bytes).map_err(|_| cut())?;
        if found != VERSION {
            return Err(CheckpointError::Version { path: path.to_owned(), found });
        }
        let first = frame::unpack_as(IDENTITY, &mut input, 0).map_err(io)?;
        let first =
            first.and_then(|first| first.ok_or_else(|| "the file ends before the first frame".into()));
        let first = first.map_err(|why| index.damaged(PREAMBLE, why))?;
        if first.records != identity.to_le_bytes() {
            return Err(CheckpointError::OtherRecording { path: path.to_owned() });
        }
        index.damage = index.look_through(&mut input, PREAMBLE + first.size).map_err(io)?;
        Ok(index)
    }

    fn damaged(&self, offset: u64, why: String) -> CheckpointError {
        CheckpointError::Damaged { path: self.path.clone(), offset, why }
    }

    /// Finds the frames from `offset` on; says what is wrong where they end.
    fn look_through(
        &mut self,
        input: &mut BufReader<File>,
        mut offset: u64,
    ) -> std::io::Result<Option<CheckpointError>> {
        let end = input.get_ref().metadata()?.len();
        let (mut sequence, mut pages, mut checkpoint) = (1, 0, None);
        while offset < end {
            let Some(outline) = Outline::read(input)?.filter(|outline| offset + outline.size <= end) else {
                return Ok(Some(self.damaged(offset, "the file ends inside a frame".to_owned())));
            };
            if outline.sequence != sequence {
                let why = format!("frame {} stands where frame {sequence} should", outline.sequence);
                return Ok(Some(self.damaged(offset, why)));
            }
            let frame = Found { offset, sequence };
            match &outline.marker {
                PAGES => {
                    let count = u64::from(outline.length) / PAGE_LEN as u64;
                    self.pages.push(Pages { frame, first: pages, count });
                    pages += count;
                }
                CHECKPOINT => checkpoint = Some(frame),
                MARK => {
                    let about = match (self.mark(input, frame)?, checkpoint.take()) {
                        (Ok(about), Some(checkpoint)) => (about, checkpoint),
                        (Ok(_), None) => {
                            return Ok(Some(self.damaged(offset, "a mark has no checkpoint".to_owned())));
                        }
                        (Err(why), _) => return Ok(Some(self.damaged(offset, why))),
                    };
                    if self.all.last().is_some_and(|(last, _)| last.position >= about.0.position) {
                        return Ok(Some(self.damaged(offset, "checkpoints are not in order".to_owned())));
                    }
                    self.all.push(about);
                }
                _ => return Ok(Some(self.damaged(offset, "there is no frame here".to_owned()))),
            }
            offset += outline.size;
            input.seek(SeekFrom::Start(offset))?;
            sequence = sequence.wrapping_add(1);
        }
        Ok(None)
    }

    /// Reads a mark.
    fn mark(&self, input: &mut BufReader<File>, frame: Found) -> std::io::Result<Result<About, String>> {
        input.seek(SeekFrom::Start(frame.offset))?;
        let read = frame::unpack_as(MARK, input, frame.sequence)?;
        Ok(read.and_then(|found| {
            let content = found.map(|found| found.records).unwrap_or_default();
            let mut from = In::new(&content, &[]);
            let about = About::take(&mut from).filter(|_| from.is_at_end());
            about.ok_or_else(|| "a mark does not decode".to_owned())
        }))
    }

    /// What is known of the checkpoints, in order.
    pub(crate) fn all(&self) -> impl DoubleEndedIterator<Item = &About> + ExactSizeIterator {
        self.all.iter().map(|(about, _)| about)
    }

    /// What is wrong behind the last checkpoint, if something is.
    pub(crate) fn damage(&self) -> Option<&CheckpointError> {
        self.damage.as_ref()
    }

    /// Brings the `n`-th checkpoint into a program's memory, and what its frames are known by; whoever gets them owns them. One that is
    /// `there` is not read.
    ///
    /// # Errors
    /// When it is damaged, and when the frames of memory are used up.
    pub(super) fn load(
        &self,
        n: usize,
        process: &mut Process,
        there: impl Fn(Same) -> Option<Phys>,
    ) -> Result<(Checkpoint, Filled), CheckpointError> {
        let io = |error| CheckpointError::Io { path: self.path.clone(), error };
        let (_, found) = self.all[n];
        let mut input = BufReader::new(regular::open(&self.path).map_err(io)?);
        let content = self.unpack(&mut input, CHECKPOINT, found)?;
        let undecodable = || self.damaged(found.offset, "a checkpoint does not decode".to_owned());
        let parts = Parts::take(&mut Cursor(&content)).ok_or_else(undecodable)?;
        let blobs: Vec<Arc<Vec<u8>>> = self.blobs(&mut input, &parts)?.into_iter().map(Arc::new).collect();
        let stored = process.read_stored(parts.head, &blobs, parts.frames.len()).ok_or_else(undecodable)?;
        let known_by = parts.frames.iter().zip(&parts.versions);
        let known_by: Vec<Same> =
            known_by.map(|(page, version)| Same { page: *page, version: *version }).collect();
        let frames = self.fill_frames(&mut input, &known_by, process.memory_mut(), there)?;
        match process.build(stored, &frames) {
            Ok(built) => Ok((built, Filled { known_by, frames })),
            Err(error) => {
                let owned = process.memory_mut().frames_mut();
                frames.iter().for_each(|frame| owned.release(*frame));
                Err(error.into())
            }
        }
    }

    /// The versions of the frames of these processes' pages at the `n`-th checkpoint, without bringing it into memory: those of another
    /// checkpoint of this file are the same where nothing was stored in between. `None` where a page is not there, where others store to
    /// it, and where the checkpoint is damaged.
    pub(crate) fn versions(&self, n: usize, process: &Process, pages: &[(i32, Virt)]) -> Option<Vec<u64>> {
        let (_, found) = self.all.get(n)?;
        let mut input = BufReader::new(regular::open(&self.path).ok()?);
        let content = self.unpack(&mut input, CHECKPOINT, *found).ok()?;
        let parts = Parts::take(&mut Cursor(&content))?;
        // What files held is of no interest.
        let blobs = vec![Arc::default(); parts.blobs.len()];
        let stored = process.look_at_stored(parts.head, &blobs, parts.frames.len())?;
        let version = |(pid, page): &(i32, Virt)| {
            let frame = stored.private_frame(*pid, *page)?;
            parts.versions.get(usize::try_from(frame).ok()?).copied()
        };
        pages.iter().map(version).collect()
    }

    fn unpack(
        &self,
        input: &mut BufReader<File>,
        marker: &[u8; 4],
        found: Found,
    ) -> Result<Vec<u8>, CheckpointError> {
        let io = |error| CheckpointError::Io { path: self.path.clone(), error };
        input.seek(SeekFrom::Start(found.offset)).map_err(io)?;
        let frame = frame::unpack_as(marker, input, found.sequence).map_err(io)?;
        let frame = frame.and_then(|frame| frame.ok_or_else(|| "the file ends here".to_owned()));
        frame.map(|frame| frame.records).map_err(|why| self.damaged(found.offset, why))
    }

    /// What files held.
    fn blobs(&self, input: &mut BufReader<File>, parts: &Parts<'_>) -> Result<Vec<Vec<u8>>, CheckpointError> {
        let mut blobs: Vec<Vec<u8>> =
            parts.blobs.iter().map(|(_, pages)| vec![0; pages.len() * PAGE_LEN]).collect();
        let places = parts.blobs.iter().enumerate();
        let wanted =
            places.flat_map(|(blob, (_, pages))| (0_usize..).zip(pages).map(move |(at, n)| (*n, (blob, at))));
        self.each_page(input, wanted.collect(), |(blob, at), page| {
            blobs[blob][at * PAGE_LEN..][..PAGE_LEN].copy_from_slice(page);
        })?;
        for (blob, (length, _)) in blobs.iter_mut().zip(&parts.blobs) {
            blob.truncate(*length);
            blob.shrink_to_fit();
        }
        Ok(blobs)
    }

    /// Frames of memory that hold these pages, each with one owner more.
    fn fill_frames(
        &self,
        input: &mut BufReader<File>,
        known_by: &[Same],
        memory: &mut Memory,
        there: impl Fn(Same) -> Option<Phys>,
    ) -> Result<Vec<Phys>, CheckpointError> {
        let (mut frames, mut wanted) = (Vec::with_capacity(known_by.len()), Vec::new());
        let (mut shared, mut filled) = (FxHashSet::default(), Ok(()));
        for same in known_by {
            // A forged file may have one twice.
            if let Some(frame) = there(*same).filter(|frame| shared.insert(*frame)) {
                memory.frames_mut().share(frame);
                frames.push(frame);
                continue;
            }
            match memory.allocate() {
                Ok(frame) => {
                    frames.push(frame);
                    wanted.push((same.page, frame));
                }
                Err(error) => {
                    filled = Err(ProcessError::from(SpaceError::from(error)).into());
                    break;
                }
            }
        }
        let filled = filled.and_then(|()| {
            self.each_page(input, wanted, |frame, page| {
                memory.ram_mut().frame_mut(frame).copy_from_slice(page);
            })
        });
        if let Err(error) = filled {
            frames.iter().for_each(|frame| memory.frames_mut().release(*frame));
            return Err(error);
        }
        memory.invalidate_all();
        Ok(frames)
    }

    /// Gives the pages of these numbers, each with what belongs to it.
    fn each_page<T: Copy>(
        &self,
        input: &mut BufReader<File>,
        mut wanted: Vec<(u64, T)>,
        mut give: impl FnMut(T, &[u8]),
    ) -> Result<(), CheckpointError> {
        wanted.sort_by_key(|(number, _)| *number);
        let mut wanted = wanted.as_slice();
        while let Some((number, _)) = wanted.first() {
            let behind = self.pages.partition_point(|pages| pages.first <= *number);
            let Some(pages) =
                behind.checked_sub(1).map(|n| self.pages[n]).filter(|it| *number - it.first < it.count)
            else {
                return Err(self.damaged(PREAMBLE, format!("page {number} is not in the file")));
            };
            let content = self.unpack(input, PAGES, pages.frame)?;
            let here = wanted.partition_point(|(number, _)| *number - pages.first < pages.count);
            for (number, whose) in &wanted[..here] {
                let at = usize::try_from(number - pages.first).expect("inside a frame") * PAGE_LEN;
                give(*whose, &content[at..][..PAGE_LEN]);
            }
            wanted = &wanted[here..];
        }
        Ok(())
    }
}

/// Frames that hold pages, each with an owner more than the checkpoint they were filled for.
pub(super) struct Filled {
    pub(super) known_by: Vec<Same>,
    pub(super) frames: Vec<Phys>,
}

/// A checkpoint's frame.
struct Parts<'a> {
    /// The numbers of the pages that frames hold.
    frames: Vec<u64>,
    /// The versions of these frames: of two checkpoints, a frame with the same version was not stored to in between.
    versions: Vec<u64>,
    /// The length of each byte string, and the numbers of its pages.
    blobs: Vec<(usize, Vec<u64>)>,
    head: &'a [u8],
}

impl<'a> Parts<'a> {
    fn take(from: &mut Cursor<'a>) -> Option<Parts<'a>> {
        let frames = take_numbers(from)?;
        let versions = take_numbers(from).filter(|versions| versions.len() == frames.len())?;
        let blobs = from.list(|from| {
            let length = usize::try_from(from.u64()?).ok()?;
            let pages = take_numbers(from)?;
            (length.div_ceil(PAGE_LEN) == pages.len()).then_some((length, pages))
        })?;
        let head = from.bytes()?;
        from.0.is_empty().then_some(Parts { frames, versions, blobs, head })
    }
}

fn take_numbers(from: &mut Cursor<'_>) -> Option<Vec<u64>> {
    let mut last = 0_u64;
    from.list(|from| {
        last = last.wrapping_add(from.i64()?.cast_unsigned());
        Some(last)
    })
}
