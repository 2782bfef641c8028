//! Code that is mapped, or becomes executable: the instructions in it that read the machine are rewritten.

use super::layout::PAGE_BYTES;
use super::searched::Part;
use super::sites::Known;
use super::space::{AddressSpace, SpaceError};
use super::tables;
use super::vma::{Backing, page_of};
use crate::ram::{Memory, StalePage, Virt};
use std::ops::Range;
use std::sync::Arc;

/// What is larger is not searched for instructions.
const LARGEST_CODE: u64 = 1 << 30;

impl AddressSpace {
    /// Rewrites the machine reads in `range`, which has become executable, by what the tables of its file say.
    pub(super) fn rewrite_by_tables(
        &mut self,
        memory: &mut Memory,
        range: Range<Virt>,
    ) -> Result<(), SpaceError> {
        let part = self.untouched_part(memory, &range);
        if let Some(part) = &part
            && let Some(found) = part.found_before()
        {
            self.sites.add_found(range.start, &found, &part.code[part.at..]);
            return Ok(());
        }
        let bodies = self.start_of_file(range.start).map(|(base, bytes)| tables::bodies(bytes, base));
        let mut bodies = bodies.unwrap_or_default();
        // Where an instruction begins is known from the start of a function on.
        bodies.retain(|body| body.start >= range.start);
        self.rewrite(memory, range.clone(), Known { functions: &[], bodies: &bodies })?;
        part.iter().for_each(|part| part.keep(self.sites.distances(&range)));
        Ok(())
    }

    /// A range in which nothing was touched or rewritten yet, as a part of the content that is mapped there.
    fn untouched_part(&self, memory: &Memory, range: &Range<Virt>) -> Option<Part> {
        let (start, mapping) = self.mappings.find(range.start)?;
        let Backing::File(content, at) = &mapping.backing else { return None };
        let is_touched = self.tables.mapped(memory.ram(), range.start, range.end).next().is_some();
        let behind = usize::try_from(range.end - range.start).ok()?;
        if mapping.end < range.end || is_touched || self.sites.reaches_into(range) {
            return None;
        }
        let at = usize::try_from(at + (range.start - start)).ok()?;
        let file = self.start_of_file(range.start);
        let distance = file.map_or(0, |(base, _)| range.start.wrapping_sub(base));
        let file = file.map(|(_, bytes)| Arc::clone(bytes));
        (at <= content.bytes.len()).then(|| Part {
            file,
            distance,
            code: Arc::clone(&content.bytes),
            at,
            length: behind,
        })
    }

    /// Where the start of the file is mapped that is mapped at `address`, and its bytes from there on.
    fn start_of_file(&self, address: Virt) -> Option<(Virt, &Arc<Vec<u8>>)> {
        let Backing::File(file, _) = &self.mappings.find(address)?.1.backing else { return None };
        let mut begins = None;
        for (start, mapping) in self.mappings.iter().take_while(|(start, _)| *start <= address) {
            match &mapping.backing {
                Backing::File(found, 0) if found.file_offset == 0 && found.name == file.name => {
                    begins = Some((start, &found.bytes));
                }
                _ => {}
            }
        }
        begins
    }

    /// The instructions that were rewritten in a range, and what the program has there.
    pub(crate) fn rewritten_in(&self, range: Range<Virt>) -> Vec<(Virt, [u8; 2])> {
        self.sites.originals_in(range).collect()
    }

    /// The same instructions are rewritten in the same program, of which nothing is resident yet.
    pub(crate) fn rewritten_before(&mut self, found: &[(Virt, [u8; 2])]) {
        self.sites.extend(found);
    }

    /// Rewrites the machine reads in `range`, which is executable.
    pub fn rewrite(
        &mut self,
        memory: &mut Memory,
        range: Range<Virt>,
        known: Known<'_>,
    ) -> Result<(), SpaceError> {
        // What others see as well is left as it is.
        if self.mappings.find(range.start).is_some_and(|(_, mapping)| mapping.backing.is_shared()) {
            return Ok(());
        }
        let Some(code) = self.code(memory, &range) else { return Ok(()) };
        let mut stale = Vec::new();
        for address in self.sites.add(range.start, code.bytes(), known) {
            for page in [page_of(address), page_of(address + 1)] {
                let Some(mut frame) = self.frame(memory.ram(), page) else { continue };
                if memory.frames().owners(frame) > 1 {
                    let rights = self.mappings.find(page).map(|(_, mapping)| mapping.rights);
                    self.unshare(memory, page, frame, rights.unwrap_or_default())?;
                    frame = self.frame(memory.ram(), page).unwrap_or(frame);
                }
                self.sites.hide(page, memory.ram_mut().frame_mut(frame));
                stale.push(StalePage { page, frame });
            }
        }
        memory.invalidate(stale);
        Ok(())
    }

    /// The bytes of `range`, if a file or a resident page holds any of them: zeroes hold no instruction to
    /// rewrite. No code fills a range that is larger than memory.
    fn code(&self, memory: &Memory, range: &Range<Virt>) -> Option<Code> {
        if range.end - range.start > LARGEST_CODE {
            return None;
        }
        if let Some(part) = self.untouched_part(memory, range)
            && part.at + part.length <= part.code.len()
        {
            return Some(Code::OfFile(part));
        }
        let file = self
            .mappings
            .find(range.start)
            .is_some_and(|(_, found)| matches!(found.backing, Backing::File(..) | Backing::Copied(..)));
        if !file && self.tables.mapped(memory.ram(), range.start, range.end).next().is_none() {
            return None;
        }
        let mut code = vec![0; usize::try_from(range.end - range.start).ok()?];
        for (page, bytes) in (range.start..).step_by(PAGE_BYTES).zip(code.chunks_mut(PAGE_BYTES)) {
            self.copy_page(memory, page, bytes);
        }
        Some(Code::Copied(code))
    }
}

/// The bytes of some code.
enum Code {
    /// As a file has them.
    OfFile(Part),
    /// Put together from pages.
    Copied(Vec<u8>),
}

impl Code {
    fn bytes(&self) -> &[u8] {
        match self {
            Code::OfFile(part) => &part.code[part.at..][..part.length],
            Code::Copied(bytes) => bytes,
        }
    }
}
