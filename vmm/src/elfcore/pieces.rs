//! How mappings become segments of a core: each is one, unless the file would then be much larger than what the program has
//! used. Sanitizers and runtimes with large heaps map terabytes and touch little of them.

use super::write::Area;
use crate::ram::PAGE;
use std::ops::Range;

/// A segment to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) area: Area,
    /// The pages that may not be zero, in order; `None` if the piece's bytes are left out of the file.
    pub(super) held: Option<Vec<Range<u64>>>,
}

impl Piece {
    /// How many bytes of the file it takes, holes included.
    pub(super) fn stored(&self) -> u64 {
        if self.held.is_some() { self.area.end - self.area.start } else { 0 }
    }

    /// How many of these are certainly zero.
    fn zeros(&self) -> u64 {
        let held: u64 = self.held.iter().flatten().map(|run| run.end - run.start).sum();
        self.stored() - held
    }
}

/// As many bytes of zeros may be in a core, in holes of the file: whoever reads it into memory reads them as well.
const ZEROS: u64 = 256 << 20;
/// From which size on untouched memory is left out where there are more, the first that suffices.
const GAPS: [u64; 4] = [16 << 20, 1 << 20, 64 << 10, PAGE];

/// The segments of `areas`; `held` says which pages of an area may not be zero, in order.
pub(super) fn pieces(areas: &[Area], held: &mut dyn FnMut(&Area) -> Vec<Range<u64>>) -> Vec<Piece> {
    let whole: Vec<Piece> =
        areas.iter().map(|area| Piece { area: *area, held: area.rights.read.then(|| held(area)) }).collect();
    let suffices = |pieces: &Vec<Piece>| pieces.iter().map(Piece::zeros).sum::<u64>() <= ZEROS;
    if suffices(&whole) {
        return whole;
    }
    let cut = |gap: u64| whole.iter().flat_map(|piece| without_gaps(piece, gap)).collect::<Vec<Piece>>();
    let [coarse @ .., finest] = GAPS;
    coarse.into_iter().map(cut).find(suffices).unwrap_or_else(|| cut(finest))
}

/// The same memory with untouched parts of at least `gap` bytes left out.
fn without_gaps(piece: &Piece, gap: u64) -> Vec<Piece> {
    let Some(held) = &piece.held else { return vec![piece.clone()] };
    let Area { start, end, rights } = piece.area;
    let mut cut = Vec::new();
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut from = start;
    let mut put = |range: Range<u64>, held| {
        if range.start < range.end {
            cut.push(Piece { area: Area { start: range.start, end: range.end, rights }, held });
        }
    };
    for run in held.iter().cloned().chain(std::iter::once(end..end)) {
        let untouched = runs.last().map_or(from, |last| last.end)..run.start;
        if untouched.end - untouched.start >= gap {
            put(from..untouched.start, Some(std::mem::take(&mut runs)));
            put(untouched.clone(), None);
            from = untouched.end;
        }
        runs.push(run);
    }
    runs.pop();
    put(from..end, Some(runs));
    cut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Rights;

    const MIB: u64 = 1 << 20;
    const READ: Rights = Rights { read: true, write: false, execute: false };

    fn area(start: u64, end: u64) -> Area {
        Area { start, end, rights: READ }
    }

    /// The ranges of the pieces, and whether they are stored.
    fn shape(areas: &[Area], held: &[Range<u64>]) -> Vec<(u64, u64, bool)> {
        let pieces = pieces(areas, &mut |area| {
            held.iter().filter(|run| (area.start..area.end).contains(&run.start)).cloned().collect()
        });
        pieces.iter().map(|piece| (piece.area.start, piece.area.end, piece.held.is_some())).collect()
    }

    #[test]
    fn ordinary_mappings_are_one_segment_each() {
        let areas = [area(0, 100 * MIB), area(200 * MIB, 300 * MIB)];
        assert_eq!(shape(&areas, &[]), [(0, 100 * MIB, true), (200 * MIB, 300 * MIB, true)]);
    }

    #[test]
    fn what_was_never_touched_of_a_large_mapping_is_left_out() {
        let (first, second) = (MIB..MIB + PAGE, MIB * 900..MIB * 900 + 2 * PAGE);
        let shape = shape(&[area(0, 1 << 40)], &[first.clone(), second.clone()]);
        let expected =
            [(0, first.end, true), (first.end, second.start, false), (second.start, second.end, true)];
        assert_eq!(shape, [&expected[..], &[(second.end, 1 << 40, false)]].concat());
    }

    #[test]
    fn scattered_pages_are_cut_finer() {
        let held: Vec<_> = (0..100).map(|n| n * 8 * MIB..n * 8 * MIB + PAGE).collect();
        let shape = shape(&[area(0, 800 * MIB)], &held);
        assert_eq!(shape.len(), 200);
        let stored: u64 =
            shape.iter().filter(|(.., stored)| *stored).map(|(start, end, _)| end - start).sum();
        assert_eq!(stored, 100 * PAGE);
        assert!(shape.windows(2).all(|pair| pair[0].1 == pair[1].0), "nothing is missing");
    }

    #[test]
    fn what_cannot_be_read_is_not_asked_for() {
        let closed = Area { start: 0, end: 1 << 40, rights: Rights::default() };
        let pieces = pieces(&[closed], &mut |_| panic!("it is left out"));
        assert_eq!(pieces, [Piece { area: closed, held: None }]);
    }
}
