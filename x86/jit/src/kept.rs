//! Compiled code that outlives its run: what the next run of the same program need not compile again.
//!
//! A [`Piece`] is the code of one region with the guest's bytes that it was made from. It is found by the region's first address, and
//! holds where the guest has those bytes at those addresses; so nothing has to be known of what else has changed. Code is the same
//! wherever it lies, but for the addresses of its [outcalls](crate::outcall): where those stand in it is noted, and they are written when
//! it is installed.
//!
//! Example: `python3` is recorded for the second time. Its evaluation loop begins at an address that is known here; the interpreter
//! runs that block some times instead of 5,000, the driver compares a few hundred bytes, and the code of the first run goes on.
//!
//! Where it is kept is the caller's affair ([`Kept::to_bytes`]), and that nobody else writes there: the bytes of a piece are run. Of bytes
//! that are damaged all that is promised here is that reading them ends.

use rustc_hash::FxHashMap;
use x86::decode::MAX_INSTRUCTION;

use crate::compiler::{Compiled, OutcallAt, host};

/// The first bytes, with the version of the format.
const MAGIC: &[u8; 8] = b"gretelC2";
/// Bytes of code that are kept at most: beyond, what this run had no use for is left out.
const MOST: usize = 32 << 20;
/// Pieces of one address at most: programs that start one another lie at the same addresses.
const MOST_AT_ONE: usize = 16;

/// What a region was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Source {
    /// The guest's bytes by address. Each part is in one page, that of the first instruction first.
    pub(crate) parts: Vec<(u64, Vec<u8>)>,
    /// Where its instructions begin, in order.
    pub(crate) addresses: Vec<u64>,
    /// Where the instructions are that the code has the CPU run, in the order of their numbers.
    pub(crate) outcalls: Vec<u64>,
}

impl Source {
    /// Whether one of its instructions is at `address`.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.addresses.binary_search(&address).is_ok()
    }

    /// The bytes from `address` on, of one instruction at the most; it may be in two pages.
    pub(crate) fn instruction(&self, address: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = Vec::new();
        while bytes.len() < MAX_INSTRUCTION {
            let next = address.wrapping_add(bytes.len() as u64);
            let Some(part) = self.part_from(next) else { break };
            bytes.extend(part.iter().take(MAX_INSTRUCTION - bytes.len()));
        }
        bytes
    }

    /// The bytes of the part that has `address`, from there on.
    fn part_from(&self, address: u64) -> Option<&[u8]> {
        self.parts.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..).filter(|bytes| !bytes.is_empty())
        })
    }
}

/// The code of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) source: Source,
    pub(crate) compiled: Compiled,
    /// This run has made it, or run it.
    pub(crate) is_used: bool,
}

/// The code of a program.
#[derive(Default)]
pub struct Kept {
    by_head: FxHashMap<u64, Vec<Piece>>,
    /// Bytes of code that were made in this run.
    made: usize,
}

impl Kept {
    /// Nothing.
    #[must_use]
    pub fn new() -> Kept {
        Kept::default()
    }

    /// The bytes of code that were made since it was read, and those of all code.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.made, self.pieces().map(|(_, piece)| piece.compiled.bytes.len()).sum())
    }

    /// Where pieces begin.
    pub(crate) fn heads(&self) -> impl Iterator<Item = u64> {
        self.by_head.keys().copied()
    }

    /// Those of the region that begins at `head`.
    pub(crate) fn at(&mut self, head: u64) -> &mut [Piece] {
        self.by_head.get_mut(&head).map_or(&mut [], Vec::as_mut_slice)
    }

    /// Adds one, in place of what was made from the same bytes.
    pub(crate) fn add(&mut self, head: u64, source: Source, compiled: Compiled) {
        self.made += compiled.bytes.len();
        let pieces = self.by_head.entry(head).or_default();
        pieces.retain(|piece| piece.source.parts != source.parts);
        if pieces.len() >= MOST_AT_ONE {
            pieces.remove(0);
        }
        pieces.push(Piece { source, compiled, is_used: true });
    }

    /// Forgets those that have the instruction at `address`.
    pub(crate) fn forget(&mut self, address: u64) {
        for pieces in self.by_head.values_mut() {
            pieces.retain(|piece| !piece.source.has(address));
        }
    }

    fn pieces(&self) -> impl Iterator<Item = (u64, &Piece)> {
        self.by_head.iter().flat_map(|(head, pieces)| pieces.iter().map(|piece| (*head, piece)))
    }

    /// All of it, to be kept; where that is very much, what this run had a use for.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let is_much = self.sizes().1 > MOST;
        let mut to = Writer(MAGIC.to_vec());
        to.bytes(host().unwrap_or_default().as_bytes());
        for (head, piece) in self.pieces().filter(|(_, piece)| piece.is_used || !is_much) {
            to.number(head);
            to.piece(piece);
        }
        to.0
    }

    /// What was kept on this processor; `None` if that is not what it is.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Kept> {
        let mut from = Reader(bytes.strip_prefix(MAGIC)?);
        if from.bytes()? != host()?.as_bytes() {
            return None;
        }
        let mut kept = Kept::new();
        while !from.0.is_empty() {
            let head = from.number()?;
            let piece = from.piece()?;
            kept.by_head.entry(head).or_default().push(piece);
        }
        Some(kept)
    }
}

/// Numbers of eight bytes, little-endian; lists with their lengths before them.
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) {
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.number(numbers.len() as u64);
        numbers.iter().for_each(|number| self.number(*number));
    }

    fn piece(&mut self, piece: &Piece) {
        let Piece { source, compiled, is_used: _ } = piece;
        self.number(source.parts.len() as u64);
        for (address, bytes) in &source.parts {
            self.number(*address);
            self.bytes(bytes);
        }
        self.numbers(&source.addresses);
        self.numbers(&source.outcalls);
        self.bytes(&compiled.bytes);
        let places: Vec<u64> =
            compiled.outcalls.iter().flat_map(|it| [it.at, it.number].map(u64::from)).collect();
        self.numbers(&places);
    }
}

/// What is left of what a [`Writer`] wrote.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    /// A length, of items of so many bytes at least.
    fn length(&mut self, each: usize) -> Option<usize> {
        let length = usize::try_from(self.number()?).ok()?;
        (length <= self.0.len() / each).then_some(length)
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        let length = self.length(1)?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn numbers(&mut self) -> Option<Vec<u64>> {
        (0..self.length(size_of::<u64>())?).map(|_| self.number()).collect()
    }

    fn piece(&mut self) -> Option<Piece> {
        let parts = (0..self.length(2 * size_of::<u64>())?)
            .map(|_| Some((self.number()?, self.bytes()?.to_vec())))
            .collect::<Option<_>>()?;
        let source = Source { parts, addresses: self.numbers()?, outcalls: self.numbers()? };
        let bytes = self.bytes()?.to_vec();
        let places = self.numbers()?;
        let (places, []) = places.as_chunks() else { return None };
        let outcalls = places.iter().map(|[at, number]| {
            let it = OutcallAt { at: u32::try_from(*at).ok()?, number: u32::try_from(*number).ok()? };
            it.is_in(&bytes, source.outcalls.len()).then_some(it)
        });
        let outcalls = outcalls.collect::<Option<_>>()?;
        Some(Piece { source, compiled: Compiled { bytes, outcalls }, is_used: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(byte: u8) -> Source {
        Source {
            parts: vec![(0x1000, vec![byte, 2, 3]), (0x2000, vec![4])],
            addresses: vec![0x1000, 0x2000],
            outcalls: vec![0x1001],
        }
    }

    fn compiled(byte: u8) -> Compiled {
        Compiled { bytes: vec![byte; 20], outcalls: vec![OutcallAt { at: 12, number: 0 }] }
    }

    #[test]
    fn what_is_kept_is_read_again_and_what_is_cut_or_changed_never_panics() {
        let mut kept = Kept::new();
        kept.add(0x1000, source(1), compiled(0x90));
        kept.add(0x1000, source(7), compiled(0xcc));
        let bytes = kept.to_bytes();
        let mut read = Kept::from_bytes(&bytes).expect("as it was written");
        assert_eq!(read.sizes(), (0, 40));
        let pieces = read.at(0x1000);
        assert_eq!(pieces.iter().map(|piece| &piece.source).collect::<Vec<_>>(), [&source(1), &source(7)]);
        assert_eq!(pieces[1].compiled, compiled(0xcc));
        for n in 0..bytes.len() {
            let _ = Kept::from_bytes(&bytes[..n]);
            for bit in 0..8 {
                let mut other = bytes.clone();
                other[n] ^= 1 << bit;
                let _ = Kept::from_bytes(&other);
            }
        }
        assert!(Kept::from_bytes(&bytes[..bytes.len() - 1]).is_none());
    }

    #[test]
    fn an_outcall_that_is_none_or_not_in_the_code_is_refused() {
        let with = |at, number| {
            let mut kept = Kept::new();
            let outcalls = vec![OutcallAt { at, number }];
            kept.add(0x1000, source(1), Compiled { outcalls, ..compiled(0xcc) });
            Kept::from_bytes(&kept.to_bytes()).is_some()
        };
        assert!(with(12, 0));
        assert!(!with(13, 0), "its address would be written behind the code");
        assert!(!with(u32::MAX, 0));
        assert!(!with(12, 1), "there is one outcall");
    }

    #[test]
    fn a_piece_takes_the_place_of_one_of_the_same_bytes_and_is_forgotten_by_any_of_its_instructions() {
        let mut kept = Kept::new();
        kept.add(0x1000, source(1), compiled(0x90));
        kept.add(0x1000, source(1), compiled(0xc3));
        assert_eq!(kept.at(0x1000).len(), 1);
        assert_eq!(kept.at(0x1000)[0].compiled, compiled(0xc3));
        kept.forget(0x1fff);
        assert_eq!(kept.at(0x1000).len(), 1);
        kept.forget(0x2000);
        assert!(kept.at(0x1000).is_empty());
    }
}
