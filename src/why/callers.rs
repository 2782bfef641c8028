//! Where the steps of a slice are: each in the program that its process ran; and of what a library did, the line of the program itself
//! that called for it.

use super::folded::Folded;
use crate::exit::Failure;
use crate::replay::failure;
use crate::symbols::{Place, Symbols};
use std::collections::BTreeMap;
use vmm::position::Position;
use vmm::slice::recorded::Recorded;
use vmm::slice::{Made, Slice};

/// Of so many steps at most: each is a place to go to.
const MOST: usize = 100;
/// A library calls itself so deep at most.
const DEEP: usize = 24;

/// Where each node is, as seen from a process at a position. Another process has other programs at the same addresses, and so had
/// this one before it called exec; a library may be gone: there one has to go and see.
pub(super) fn places(
    history: &mut Recorded<'_>,
    slice: &Slice<Position>,
    symbols: &mut Symbols,
    (at, pid): (Position, i32),
) -> Result<Vec<Option<Place>>, Failure> {
    let mut places: Vec<_> = slice.nodes.iter().map(|node| symbols.place(node.writer.rip)).collect();
    let was_another = was_another(history, slice, (at, pid))?;
    for (node, place) in slice.nodes.iter().zip(&mut places) {
        let writer = &node.writer;
        let is_gone = matches!(writer.made, Made::Instruction(_))
            && place.as_ref().is_none_or(|place| place.function().is_none());
        let is_here = writer.place.pid == pid && !was_another && !is_gone;
        if is_here || writer.rip == 0 {
            continue;
        }
        *place = None;
        let travel = history.travel();
        travel.seek(writer.at).map_err(failure)?;
        if travel.process().pid() == writer.place.pid {
            symbols.look(travel.process());
            *place = symbols.place(writer.rip);
        }
    }
    Ok(places)
}

/// Whether the process was another program at the oldest step of its own than it is at `at`.
fn was_another(
    history: &mut Recorded<'_>,
    slice: &Slice<Position>,
    (at, pid): (Position, i32),
) -> Result<bool, Failure> {
    let Some(oldest) = slice.nodes.iter().rfind(|node| node.writer.place.pid == pid) else {
        return Ok(false);
    };
    let travel = history.travel();
    travel.seek(at).map_err(failure)?;
    let now = travel.process().command().0.to_owned();
    travel.seek(oldest.writer.at).map_err(failure)?;
    let process = travel.process();
    Ok(process.pid() == pid && process.command().0 != &*now)
}

/// By the number of a node of a library, or of what was compiled into the program of one, the innermost caller that is in none.
pub(super) fn callers(
    history: &mut Recorded<'_>,
    slice: &Slice<Position>,
    symbols: &mut Symbols,
    places: &[Option<Place>],
) -> Result<BTreeMap<usize, Place>, Failure> {
    let shown = Folded::of(slice, places, false);
    let mut found = BTreeMap::new();
    for number in shown.steps.iter().map(|step| step.nodes[0]).take(MOST) {
        let writer = &slice.nodes[number].writer;
        let is_library = places[number].as_ref().is_some_and(|it| it.is_library() || it.is_foreign());
        if !is_library || !matches!(writer.made, Made::Instruction(_) | Made::Call { .. }) {
            continue;
        }
        let travel = history.travel();
        travel.seek(writer.at).map_err(failure)?;
        let process = travel.process();
        if process.pid() != writer.place.pid {
            continue;
        }
        symbols.look(process);
        let stack = symbols.backtrace(process, writer.place.thread, DEEP);
        // What every program begins with says nothing.
        let tells = |place: &Place| place.function().is_some_and(|name| name != "_start");
        let mut own =
            stack.frames.into_iter().map(|(_, place)| place).filter(|it| !it.is_library() && tells(it));
        // Templates of a library are compiled into the program. Where there are no lines, any function is as good.
        let first = own.next();
        let of_source = first.iter().cloned().chain(own).find_map(Place::of_own_source);
        found.extend(of_source.or(first).map(|place| (number, place)));
    }
    Ok(found)
}
