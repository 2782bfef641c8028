//! What a byte is made of.

use crate::byte::Byte;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// What a byte is made of, as bytes of the state before the instruction. All empty: it is a constant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// It is the one byte in `value`, unaltered.
    pub copied: bool,
    /// What its value is computed from.
    pub value: BTreeSet<Byte>,
    /// What told where in memory these were, and where it itself is.
    pub address: BTreeSet<Byte>,
    /// What chose among several values, this one with them.
    pub condition: BTreeSet<Byte>,
}

impl Origin {
    /// Whether nothing of the state before is in it.
    #[must_use]
    pub fn is_constant(&self) -> bool {
        self.value.is_empty() && self.address.is_empty() && self.condition.is_empty()
    }

    /// The byte that it is a copy of.
    #[must_use]
    pub fn source(&self) -> Option<Byte> {
        self.value.first().copied().filter(|_| self.copied)
    }

    /// All bytes that it depends on.
    pub fn all(&self) -> impl Iterator<Item = Byte> + '_ {
        self.value.iter().chain(&self.address).chain(&self.condition).copied()
    }

    /// Takes over what another is made of.
    pub(crate) fn join(&mut self, other: &Origin) {
        self.value.extend(&other.value);
        self.address.extend(&other.address);
        self.condition.extend(&other.condition);
    }
}

/// An origin in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(u32);

impl Id {
    /// That of constants.
    pub(crate) const CONSTANT: Id = Id(0);
}

/// The origins that an instruction has met, each once.
pub(crate) struct Origins(RefCell<Table>);

struct Table {
    all: Vec<Rc<Origin>>,
    known: FxHashMap<Rc<Origin>, Id>,
}

impl Origins {
    pub(crate) fn new() -> Origins {
        let constant = Rc::new(Origin::default());
        let known = FxHashMap::from_iter([(Rc::clone(&constant), Id::CONSTANT)]);
        Origins(RefCell::new(Table { all: vec![constant], known }))
    }

    pub(crate) fn get(&self, id: Id) -> Rc<Origin> {
        Rc::clone(&self.0.borrow().all[id.0 as usize])
    }

    fn id(&self, origin: Origin) -> Id {
        let mut table = self.0.borrow_mut();
        if let Some(id) = table.known.get(&origin) {
            return *id;
        }
        let id = Id(u32::try_from(table.all.len()).expect("an instruction meets fewer origins"));
        let origin = Rc::new(origin);
        table.all.push(Rc::clone(&origin));
        table.known.insert(origin, id);
        id
    }

    /// That of a byte of the state before.
    pub(crate) fn copy(&self, byte: Byte) -> Id {
        self.id(Origin { copied: true, value: BTreeSet::from([byte]), ..Origin::default() })
    }

    /// That of a byte of memory which these led to.
    pub(crate) fn loaded(&self, byte: Byte, address: &[Id]) -> Id {
        self.led(self.copy(byte), address)
    }

    /// That of a byte which is taken from where these told, or put there.
    pub(crate) fn led(&self, id: Id, address: &[Id]) -> Id {
        if address.iter().all(|id| *id == Id::CONSTANT) {
            return id;
        }
        let mut origin = (*self.get(id)).clone();
        for id in address {
            let by = self.get(*id);
            origin.address.extend(by.value.iter().chain(&by.address));
            origin.condition.extend(&by.condition);
        }
        self.id(origin)
    }

    /// That of a result of all these.
    pub(crate) fn made(&self, from: impl IntoIterator<Item = Id>) -> Id {
        let mut origin = Origin::default();
        let mut seen = Id::CONSTANT;
        for id in from {
            if id != Id::CONSTANT && id != seen {
                origin.join(&self.get(id));
                seen = id;
            }
        }
        self.id(origin)
    }

    /// That of the same byte, which `by` has chosen.
    pub(crate) fn chosen(&self, id: Id, by: Id) -> Id {
        if by == Id::CONSTANT {
            return id;
        }
        let mut origin = (*self.get(id)).clone();
        origin.condition.extend(self.get(by).all());
        self.id(origin)
    }
}
