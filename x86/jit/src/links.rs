//! Where compiled code may go on as other compiled code, without the driver: a table of addresses and their code.
//!
//! It is filled as the driver meets addresses, and what it says holds for a turn: until mappings change or code is written, or the
//! driver wants to be asked for another reason. The turn is part of an address's tag, so that a new turn empties the table at once.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value, types};
use std::mem::{offset_of, size_of};

use crate::clif::{Clif, Two, own};
use crate::context::{Context, at};
use crate::native::Code;

/// Places; a power of two.
const PLACES: usize = 1 << 12;
const PLACE_BITS: u32 = size_of::<Link>().trailing_zeros();
/// Addresses have no more bits of their own.
const ADDRESS_BITS: u32 = 48;
const LAST_TURN: u64 = (1 << (64 - ADDRESS_BITS)) - 1;
/// That of no address in any turn: turn zero is never taken.
const NO_TAG: u64 = 0;

/// An address and its code.
#[derive(Clone, Copy)]
#[repr(C)]
struct Link {
    /// The address, and the turn above.
    tag: u64,
    code: u64,
}

pub(crate) struct Links {
    places: Box<[Link]>,
    /// In place, as [`Context::turn`] has it.
    turn: u64,
}

const EMPTY: Link = Link { tag: NO_TAG, code: 0 };

#[expect(clippy::cast_possible_truncation, reason = "only the low bits count")]
const fn place(rip: u64) -> usize {
    (rip ^ rip >> 12) as usize % PLACES
}

impl Links {
    pub(crate) fn new() -> Links {
        Links { places: vec![EMPTY; PLACES].into(), turn: 1 }
    }

    /// Forgets all links.
    pub(crate) fn begin_turn(&mut self) {
        self.turn += 1;
        if self.turn > LAST_TURN {
            self.places.fill(EMPTY);
            self.turn = 1;
        }
    }

    /// Says that code which goes to `rip` may go on as `code`.
    pub(crate) fn add(&mut self, rip: u64, code: Code) {
        self.places[place(rip)] = Link { tag: rip ^ self.turn << ADDRESS_BITS, code: code.address() };
    }

    pub(crate) fn point_to(&self, context: &mut Context) {
        context.links = self.places.as_ptr().cast();
        context.turn = self.turn << ADDRESS_BITS;
    }
}

/// Writes the look-up of `rip`: the address where the code's is, and whether it may be gone to.
pub(crate) fn write_look_up(d: &Clif<'_>, rip: Value) -> (Value, Value) {
    let mixed = d.two(Two::Xor, rip, d.two_known(Two::Shr, 64, rip, 12));
    let place = d.two_known(Two::And, 64, mixed, PLACES as u64 - 1);
    let offset = d.two_known(Two::Shl, 64, place, u64::from(PLACE_BITS));
    let link = d.two(Two::Add, d.load_context(types::I64, at!(links)), offset);
    let wanted = d.two(Two::Xor, rip, d.load_context(types::I64, at!(turn)));
    let field = |offset: usize| i32::try_from(offset).expect("a link is small");
    let tag = d.builder.borrow_mut().ins().load(types::I64, own(), link, field(offset_of!(Link, tag)));
    let code = d.two_known(Two::Add, 64, link, offset_of!(Link, code) as u64);
    (code, d.compare(IntCC::Equal, tag, wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_turn_forgets_all_links_and_so_does_the_first_after_the_last() {
        let mut links = Links::new();
        let tag = |links: &Links| links.places[place(0x1234)].tag;
        for _ in 0..2 * LAST_TURN {
            let rip = 0x1234;
            assert_ne!(tag(&links), rip ^ links.turn << ADDRESS_BITS);
            links.add(rip, Code::for_tests());
            assert_eq!(tag(&links), rip ^ links.turn << ADDRESS_BITS);
            links.begin_turn();
        }
    }
}
