//! Where the core's memory has some content, each looked for once: the search asks for the same again behind each choice.

use super::image::Image;
use crate::fuel::Fuel;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// So many bytes are looked through for a unit of fuel.
const BYTES_OF_CONTENT: u64 = 256;
/// More places with one content are not looked for.
const MOST_MATCHES: usize = 4096;

/// The contents that were looked for, and the addresses at which they begin.
#[derive(Debug, Default)]
pub(super) struct Contents(RefCell<FxHashMap<Vec<u8>, Rc<[u64]>>>);

impl Contents {
    /// Where `content` is in the memory of `image`, always the same one.
    pub(super) fn places(&self, image: &dyn Image, content: &[u8], fuel: &Fuel) -> Rc<[u64]> {
        if let Some(known) = self.0.borrow().get(content) {
            return Rc::clone(known);
        }
        fuel.burn(image.regions().iter().map(|r| r.end - r.start).sum::<u64>() / BYTES_OF_CONTENT);
        let finder = memchr::memmem::Finder::new(content);
        let places = image.regions().into_iter().flat_map(|region| {
            let bytes = image.bytes(region.start);
            let len = usize::try_from(region.end - region.start).unwrap_or(usize::MAX);
            finder.find_iter(&bytes[..bytes.len().min(len)]).map(move |at| region.start + at as u64)
        });
        let found: Rc<[u64]> = places.take(MOST_MATCHES).collect();
        self.0.borrow_mut().insert(content.to_vec(), Rc::clone(&found));
        found
    }
}
