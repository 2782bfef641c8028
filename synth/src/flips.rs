//! Cores that no execution ends in: which single bit, were it the other way round, would explain one.
//!
//! Memory and processors lose bits (Hwang, Stefanovici and Schroeder, ASPLOS 2012), and a core with one wrong bit looks like a
//! bug that cannot be. Each bit of the registers and of the memory that the refuted ways looked at is turned in its turn, and the
//! search is run on what that gives; where it comes well behind the point at which every way had died, the suffix is certified
//! against the core so changed. Several bits may explain a core: these are possibilities, ordered by how far they reach.

use crate::evidence::Anchors;
use crate::fuel::{UNITS_A_SECOND, Until};
use crate::past::hypothesis::Kernel;
use crate::past::image::Image;
use crate::program::cfg::Cfg;
use crate::search::{Found, Records, Search, Stop};
use crate::synthesis::Request;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use vmm::elfcore::Core;
use x86::op::Gpr;
use x86::state::State;

/// A place in a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A general register, by its number.
    Register(u8),
    /// The instruction pointer.
    Rip,
    /// A byte of memory.
    Memory(u64),
}

/// One bit of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bit {
    /// Where.
    pub place: Place,
    /// Which, counted from the lowest.
    pub number: u32,
}

/// A bit that explains a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flip {
    /// The bit.
    pub bit: Bit,
    /// So many instructions are certified with it turned.
    pub certified: usize,
}

/// What came of all bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flips {
    /// Those that explain the core, the one that reaches farthest first.
    pub explain: Vec<Flip>,
    /// How many bits were turned.
    pub tried: usize,
    /// How many there are to turn.
    pub all: usize,
}

impl Display for Bit {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "bit {} of ", self.number)?;
        match self.place {
            Place::Register(number) => f.write_str(Gpr::NAMES[usize::from(number)]),
            Place::Rip => f.write_str("rip"),
            Place::Memory(va) => write!(f, "the byte at {va:#x}"),
        }
    }
}

/// A bit explains a core if the search comes so many instructions further with it turned.
const FURTHER: usize = 16;
/// The search for one bit may take no more fuel.
const FUEL_OF_ONE: u64 = UNITS_A_SECOND / 4;
/// So many are certified at most.
const MOST: usize = 8;

impl Bit {
    /// All bits that the refuted ways depend on: those of the registers, and of the bytes that they touched.
    fn all(touched: &[u64]) -> Vec<Bit> {
        let of = |place, bits| (0..bits).map(move |number| Bit { place, number });
        let registers = (0..16).map(Place::Register).chain([Place::Rip]);
        let memory = touched.iter().map(|&va| Place::Memory(va));
        // Memory loses more bits than processors do.
        memory.flat_map(|place| of(place, 8)).chain(registers.flat_map(|place| of(place, 64))).collect()
    }

    /// The core with this bit turned.
    fn turned(self, core: &Core) -> Core {
        let mut turned = core.clone();
        let mask = 1_u64 << self.number;
        match self.place {
            Place::Register(number) => turned.state.regs.gpr[usize::from(number)] ^= mask,
            Place::Rip => turned.state.regs.rip ^= mask,
            Place::Memory(va) => {
                if let Some(byte) = core.byte(va) {
                    turned.set_byte(va, byte ^ mask.to_le_bytes()[0]);
                }
            }
        }
        turned
    }
}

/// A core's memory with one byte changed, or with none.
struct Turned<'a> {
    image: &'a dyn Image,
    changed: Option<(u64, [u8; 1])>,
}

impl Image for Turned<'_> {
    fn bytes(&self, va: u64) -> &[u8] {
        match &self.changed {
            Some((at, byte)) if *at == va => byte,
            Some((at, _)) if *at > va => {
                let bytes = self.image.bytes(va);
                &bytes[..bytes.len().min(usize::try_from(at - va).unwrap_or(usize::MAX))]
            }
            _ => self.image.bytes(va),
        }
    }
    fn is_mapped(&self, va: u64) -> bool {
        self.image.is_mapped(va)
    }
    fn is_writable(&self, va: u64) -> bool {
        self.image.is_writable(va)
    }
    fn regions(&self) -> Vec<Range<u64>> {
        self.image.regions()
    }
    fn is_shared(&self) -> bool {
        self.image.is_shared()
    }
    fn crashed(&self) -> u32 {
        self.image.crashed()
    }
    fn thread(&self, id: u32) -> Option<&State> {
        self.image.thread(id)
    }
    fn anchors(&self) -> &Anchors {
        self.image.anchors()
    }
}

/// What the bits are turned in.
pub(crate) struct Turner<'a> {
    pub(crate) request: &'a Request<'a>,
    pub(crate) cfg: &'a Cfg<'a>,
    pub(crate) image: &'a dyn Image,
    pub(crate) records: &'a Records,
    /// Nothing is begun when this is over.
    pub(crate) until: Until,
}

impl Turner<'_> {
    /// Turns each bit; `refuted` is what the search found in the core as it is, and `certify` gives how many instructions of what
    /// it finds in another are certified.
    pub(crate) fn explain<E>(
        &self,
        refuted: &Found,
        certify: &mut dyn FnMut(&Core, &Found) -> Result<usize, E>,
    ) -> Result<Flips, E> {
        let bits = Bit::all(&refuted.touched);
        let mut flips = Flips { all: bits.len(), ..Flips::default() };
        let goal = refuted.path.len() + FURTHER;
        for bit in bits {
            if self.until.is_over() || flips.explain.len() == MOST {
                break;
            }
            flips.tried += 1;
            let found = self.search(bit, goal);
            if found.path.len() < goal && found.stop != Stop::ProgramStart {
                continue;
            }
            let certified = certify(&bit.turned(self.request.core), &found)?;
            if certified > refuted.path.len() {
                flips.explain.push(Flip { bit, certified });
            }
        }
        flips.explain.sort_by_key(|flip| std::cmp::Reverse(flip.certified));
        Ok(flips)
    }

    /// The search in the core with this bit turned.
    fn search(&self, bit: Bit, goal: usize) -> Found {
        let mut state = self.request.core.state;
        let mask = 1_u64 << bit.number;
        let mut changed = None;
        match bit.place {
            Place::Register(number) => state.regs.gpr[usize::from(number)] ^= mask,
            Place::Rip => state.regs.rip ^= mask,
            Place::Memory(va) => {
                changed = self.image.byte(va).map(|byte| (va, [byte ^ mask.to_le_bytes()[0]]))
            }
        }
        let image = Turned { image: self.image, changed };
        let kernel = Kernel::of(self.request.core);
        let fuel = self.until.fuel();
        let Request { program, samples, .. } = *self.request;
        let search = Search::new(program, self.cfg, &image, &state, self.records, kernel, fuel);
        let search = search.with_samples(samples);
        search.run(goal, &self.until.at_most(FUEL_OF_ONE), &mut |_, _| ())
    }
}
