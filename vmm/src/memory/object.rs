//! Memory that several mappings see: what one writes, all the others read. Anonymous shared memory, memfds, files that are
//! mapped shared, System V segments, and the time page are such objects.
//!
//! An [`Object`] is a name; its frames are in [`Memory`], by the object's number. Each frame has one owner for the object and
//! one for each mapping of the page. What a page without a frame holds is in [`crate::ram::Contents`], and so is an object's size
//! once it can change.

use super::space::SpaceError;
use crate::plain::{plain, shared};
use crate::ram::{Memory, PAGE, PAGE_LEN, Phys, pieces};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// The number of an object.
pub type ObjectId = u64;

/// An object, as mappings refer to it. Two of the same id are the same.
#[derive(Debug)]
pub struct Object {
    /// Its number; never used again.
    pub id: ObjectId,
    /// How /proc/PID/maps names it.
    pub name: String,
    /// What pages hold before they are first touched, from the object's start; those behind are zero.
    pub initial: Vec<u8>,
    /// Its size in bytes, if its content is not in [`crate::ram::Contents`]; pages wholly behind it raise SIGBUS.
    pub size: u64,
}
plain!(struct Object { id, name, initial, size });
shared!(Arc<Object>);

impl Object {
    /// An object of `size` bytes, which begins with `initial`.
    #[must_use]
    pub fn new(id: ObjectId, name: &str, initial: Vec<u8>, size: u64) -> Object {
        Object { id, name: name.to_owned(), initial, size }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self, memory: &Memory) -> u64 {
        memory.contents().size(self.id).unwrap_or(self.size)
    }

    /// What a page holds that has no frame, without the zeroes behind.
    fn underlying<'a>(&'a self, memory: &'a Memory, index: u64) -> &'a [u8] {
        if let Some(bytes) = memory.contents().page(self.id, index) {
            return bytes;
        }
        let from = usize::try_from(index.saturating_mul(PAGE)).unwrap_or(usize::MAX);
        let rest = self.initial.get(from..).unwrap_or(&[]);
        &rest[..rest.len().min(PAGE_LEN)]
    }

    /// The frame of the page number `index`, made if there is none yet; `None` behind the object's end.
    ///
    /// # Errors
    /// When all frames are in use.
    pub fn frame(&self, memory: &mut Memory, index: u64) -> Result<Option<Phys>, SpaceError> {
        if let Some(frame) = memory.object_frame(self.id, index) {
            return Ok(Some(frame));
        }
        if index.saturating_mul(PAGE) >= self.size(memory) {
            return Ok(None);
        }
        let mut page = [0; PAGE_LEN];
        let bytes = self.underlying(memory, index);
        page[..bytes.len()].copy_from_slice(bytes);
        let frame = memory.allocate()?;
        *memory.ram_mut().frame_mut(frame) = page;
        memory.set_object_frame(self.id, index, frame);
        Ok(Some(frame))
    }

    /// Reads inside the page of the byte `at`; false behind the object's end.
    #[must_use]
    pub fn read(&self, memory: &Memory, at: u64, bytes: &mut [u8]) -> bool {
        let (index, from) = (at / PAGE, usize::try_from(at % PAGE).expect("inside a page"));
        if let Some(frame) = memory.object_frame(self.id, index) {
            bytes.copy_from_slice(&memory.ram().frame(frame)[from..from + bytes.len()]);
            return true;
        }
        bytes.fill(0);
        let known = self.underlying(memory, index).get(from..).unwrap_or(&[]);
        let length = known.len().min(bytes.len());
        bytes[..length].copy_from_slice(&known[..length]);
        index.saturating_mul(PAGE) < self.size(memory)
    }

    /// Changes bytes of the object as a system call does it: what pages without a frame hold, and the frames that there are. The
    /// object grows up to what is written. Frames that are executed are the caller's to invalidate.
    pub fn write(&self, memory: &mut Memory, at: u64, bytes: &[u8]) {
        let end = at.saturating_add(bytes.len() as u64);
        if end > self.size(memory) {
            self.clear_tail(memory);
            memory.contents_mut().resize(self.id, end);
        }
        memory.contents_mut().write(self.id, at, bytes);
        for (at, part) in pieces(at, bytes) {
            if let Some(frame) = memory.object_frame(self.id, at / PAGE) {
                let from = usize::try_from(at % PAGE).expect("inside a page");
                memory.ram_mut().frame_mut(frame)[from..from + part.len()].copy_from_slice(part);
            }
        }
    }

    /// Fills a range with zeroes, in the same way; the object does not grow.
    pub fn zero(&self, memory: &mut Memory, range: Range<u64>) {
        let end = range.end.min(self.size(memory));
        for page in self.held(memory, &(range.start / PAGE..end.div_ceil(PAGE))) {
            let (from, to) = (range.start.max(page * PAGE), end.min(page * PAGE + PAGE));
            let length = usize::try_from(to.saturating_sub(from)).expect("at most a page");
            self.write(memory, from, &[0; PAGE_LEN][..length]);
        }
    }

    /// The pages of a range that may hold anything but zeroes, in order. Most of a large file may be holes.
    #[must_use]
    pub fn held(&self, memory: &Memory, pages: &Range<u64>) -> BTreeSet<u64> {
        let framed = memory.object_pages(self.id, pages.start).map(|(page, _)| page);
        let mut held = memory.contents().held(self.id, pages);
        held.extend(framed.take_while(|page| *page < pages.end));
        held.extend(pages.start..pages.end.min((self.initial.len() as u64).div_ceil(PAGE)));
        held
    }

    /// Changes the size. Pages that are cut off must not be mapped any more.
    pub fn resize(&self, memory: &mut Memory, size: u64) {
        // What was stored behind the end is no part of the object when it grows.
        self.clear_tail(memory);
        memory.contents_mut().resize(self.id, size);
        memory.drop_object(self.id, size.div_ceil(PAGE));
        self.clear_tail(memory);
    }

    /// Fills with zeroes what lies behind the end in the last page.
    fn clear_tail(&self, memory: &mut Memory) {
        let size = self.size(memory);
        let tail = usize::try_from(size % PAGE).expect("inside a page");
        if tail > 0
            && let Some(frame) = memory.object_frame(self.id, size / PAGE)
        {
            memory.ram_mut().frame_mut(frame)[tail..].fill(0);
        }
    }

    /// The bytes of pages inside `range` that differ from what the object's file holds, each with where it begins; those behind
    /// the object's end do not count.
    #[must_use]
    pub fn dirty(&self, memory: &Memory, range: Range<u64>) -> Vec<(u64, Vec<u8>)> {
        let size = self.size(memory);
        let mut found: Vec<(u64, Vec<u8>)> = Vec::new();
        for (index, frame) in memory.object_pages(self.id, range.start / PAGE) {
            let start = index * PAGE;
            if start >= range.end || start >= size {
                break;
            }
            let (bytes, known) = (memory.ram().frame(frame), self.underlying(memory, index));
            let (same, behind) = bytes.split_at(known.len());
            if same == known && behind.iter().all(|byte| *byte == 0) {
                continue;
            }
            let length = usize::try_from((size - start).min(PAGE)).expect("at most a page");
            match found.last_mut() {
                Some((at, run)) if *at + run.len() as u64 == start => run.extend_from_slice(&bytes[..length]),
                _ => found.push((start, bytes[..length].to_vec())),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn file(size: u64) -> (Memory, Object) {
        let mut memory = Memory::new(64 * PAGE).unwrap();
        memory.contents_mut().add(7, size);
        memory.contents_mut().know(7, 0..16, Arc::new(vec![1; 5000]));
        (memory, Object::new(7, "file", Vec::new(), 0))
    }

    #[test]
    fn only_what_was_stored_is_dirty() {
        let (mut memory, object) = file(3 * PAGE);
        let frame = object.frame(&mut memory, 1).unwrap().unwrap();
        assert!(object.dirty(&memory, 0..u64::MAX).is_empty());
        memory.ram_mut().frame_mut(frame)[4] = 9;
        let dirty = object.dirty(&memory, 0..u64::MAX);
        assert_eq!((dirty.len(), dirty[0].0, dirty[0].1[4]), (1, PAGE, 9));
        assert!(object.dirty(&memory, 2 * PAGE..u64::MAX).is_empty());
        for (at, bytes) in dirty {
            object.write(&mut memory, at, &bytes);
        }
        assert!(object.dirty(&memory, 0..u64::MAX).is_empty());
    }

    #[test]
    fn a_call_changes_frames_and_what_has_none() {
        let (mut memory, object) = file(2 * PAGE);
        let frame = object.frame(&mut memory, 0).unwrap().unwrap();
        object.write(&mut memory, PAGE - 1, &[5, 6]);
        assert_eq!(memory.ram().frame(frame)[PAGE_LEN - 1], 5);
        let mut byte = [0];
        assert!(object.read(&memory, PAGE, &mut byte) && byte == [6]);
        assert!(object.dirty(&memory, 0..u64::MAX).is_empty());
        object.write(&mut memory, 9 * PAGE, &[1]);
        assert_eq!(object.size(&memory), 9 * PAGE + 1);
    }

    #[test]
    fn what_lies_behind_the_end_is_no_memory() {
        let (mut memory, object) = file(2 * PAGE);
        object.frame(&mut memory, 1).unwrap().unwrap();
        object.resize(&mut memory, PAGE + 1);
        let mut byte = [0];
        assert!(object.read(&memory, PAGE + 1, &mut byte) && byte == [0]);
        object.resize(&mut memory, 10);
        assert!(object.frame(&mut memory, 1).unwrap().is_none());
        assert!(!object.read(&memory, PAGE, &mut byte));
        object.resize(&mut memory, PAGE * 2);
        assert!(object.read(&memory, PAGE, &mut byte) && byte == [0]);
    }

    #[test]
    fn what_was_stored_behind_the_end_does_not_come_into_the_object() {
        let (mut memory, object) = file(100);
        let frame = object.frame(&mut memory, 0).unwrap().unwrap();
        let mut byte = [0];
        memory.ram_mut().frame_mut(frame)[200] = 7;
        object.resize(&mut memory, 2 * PAGE);
        assert!(object.read(&memory, 200, &mut byte) && byte == [0]);
        object.resize(&mut memory, 100);
        memory.ram_mut().frame_mut(frame)[200] = 7;
        object.write(&mut memory, 300, &[1]);
        assert!(object.read(&memory, 200, &mut byte) && byte == [0]);
    }
}
