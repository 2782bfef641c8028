//! What an address space knows of the shared objects that it maps.

use super::object::ObjectId;
use super::space::{AddressSpace, SpaceError};
use super::vma::{Attributes, Mapping, Mappings};
use crate::ram::{Memory, PAGE, Virt};
use std::collections::BTreeSet;
use std::ops::Range;

impl Mappings {
    /// The mappings of objects in `range`, each with the object's number and where in it the part begins.
    pub fn of_objects(
        &self,
        range: &Range<Virt>,
    ) -> impl Iterator<Item = (Range<Virt>, ObjectId, u64, &Mapping)> {
        let whole = self.parts(range);
        whole.filter_map(|(part, mapping)| {
            let (object, at) = mapping.backing.object()?;
            let (start, _) = self.find(part.start)?;
            Some((part.clone(), object.id, at + (part.start - start), mapping))
        })
    }

    /// Those of them whose stores others see.
    pub fn shared(
        &self,
        range: &Range<Virt>,
    ) -> impl Iterator<Item = (Range<Virt>, ObjectId, u64, &Mapping)> {
        self.of_objects(range).filter(|(.., mapping)| mapping.backing.is_shared())
    }

    /// The objects that are mapped.
    pub fn objects(&self, into: &mut BTreeSet<ObjectId>) {
        into.extend(self.iter().filter_map(|(_, mapping)| Some(mapping.backing.object()?.0.id)));
    }

    /// What a child has of it.
    #[must_use]
    pub fn forked(&self) -> Mappings {
        let mut twin = Mappings::default();
        for (start, mapping) in self.iter().filter(|(_, mapping)| !mapping.attributes.not_forked) {
            let mut copy = mapping.clone();
            copy.attributes.locked = false;
            twin.insert(start, copy);
        }
        twin
    }
}

impl AddressSpace {
    /// Changes what was asked for all of `range`.
    pub(crate) fn set_attributes(&mut self, range: &Range<Virt>, change: impl Fn(&mut Attributes)) {
        self.mappings.set_attributes(range, change);
    }

    /// Takes the pages of an object out of the page tables that lie behind its first `size` bytes.
    ///
    /// # Errors
    /// When its page tables cannot be changed.
    pub fn cut_off(&mut self, memory: &mut Memory, object: ObjectId, size: u64) -> Result<(), SpaceError> {
        let all = 0..super::layout::USER_END;
        let kept = size.div_ceil(PAGE).saturating_mul(PAGE);
        let cut: Vec<Range<Virt>> = self
            .mappings
            .of_objects(&all)
            .filter(|(_, id, ..)| *id == object)
            .map(|(part, _, at, _)| {
                let first = part.start.saturating_add(kept.saturating_sub(at)).min(part.end);
                first..part.end
            })
            .filter(|part| !part.is_empty())
            .collect();
        cut.iter().try_for_each(|part| self.discard(memory, part))
    }
}
