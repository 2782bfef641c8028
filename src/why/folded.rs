//! Which steps of a slice say something.
//!
//! A value is copied from register to register and saved on the stack and taken back many times in one function. Such a step is left out
//! where the step that wants it is in the same function, and what it was copied from takes its place. So is a register that a function
//! saves and takes back: its caller has it as it was. A store of some bytes alone of what is loaded later is no such copy. What moves the
//! stack pointer by a constant is left out wherever it is. What a hash function computes is left out as well: what comes of it is as good
//! as random, and what the value was made of is the key that was hashed. A loop that makes a value byte by byte is one step, which has run
//! several times.

use crate::symbols::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use vmm::slice::{Byte, Made, Node, Origin, Role, Slice, Source};

/// The steps that are shown, the newest first.
pub(super) struct Folded {
    pub(super) steps: Vec<Step>,
    pub(super) left_out: LeftOut,
}

/// How many nodes are left out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftOut {
    pub(crate) copies: usize,
    /// Moves of the stack pointer.
    pub(crate) moves: usize,
    /// Steps of hash functions.
    pub(crate) hashes: usize,
}

/// Of functions that hash keys: Rust's tables, libstdc++'s, CPython's.
const HASHES: [&str; 4] = ["::make_hash", "core::hash::sip", "_Hash_bytes", "siphash13"];

impl LeftOut {
    /// That steps are not shown, and what shows them; `None` where all are.
    pub(crate) fn words(self, how: &str) -> Option<String> {
        let one_or_more = |n: usize, one: &str, more: &str| match n {
            0 => None,
            1 => Some(format!("1 {one}")),
            n => Some(format!("{n} {more}")),
        };
        let copies = one_or_more(self.copies, "copy within a function", "copies within a function");
        let moves = one_or_more(self.moves, "move of the stack pointer", "moves of the stack pointer");
        let hashes = one_or_more(self.hashes, "step of a hash function", "steps of hash functions");
        let what: Vec<String> = copies.into_iter().chain(moves).chain(hashes).collect();
        let are = if self.copies + self.moves + self.hashes == 1 { "is" } else { "are" };
        (!what.is_empty()).then(|| format!("{} {are} left out ({how})", what.join(" and ")))
    }
}

/// One instruction that is shown, for all the times that it ran to the same end.
pub(super) struct Step {
    /// The numbers of its nodes in the slice, the newest first.
    pub(super) nodes: Vec<usize>,
    /// The steps, by number, that its values were made of.
    pub(super) sources: BTreeSet<(Role, usize)>,
}

impl Folded {
    /// All that say something; or simply all.
    pub(super) fn of<At>(slice: &Slice<At>, places: &[Option<Place>], all: bool) -> Folded {
        let functions: Vec<_> = places.iter().map(function).collect();
        let hashes = if all { BTreeSet::new() } else { hashes(slice, places) };
        let mut hidden = if all { BTreeSet::new() } else { hidden(slice, &functions) };
        hidden.extend(&hashes);
        let wanted = wanted(slice, &hidden);
        let mut steps: Vec<Step> = Vec::new();
        let mut step_of: BTreeMap<usize, usize> = BTreeMap::new();
        let mut same: HashMap<_, usize> = HashMap::new();
        for number in (0..slice.nodes.len()).filter(|number| !hidden.contains(number)) {
            let writer = &slice.nodes[number].writer;
            let repeats = !all && matches!(writer.made, Made::Instruction(_));
            let by = wanted.get(&number);
            // Who wants it is newer, and has its step unless it is hidden: rounds of a loop that led to the rounds of another are one
            // step.
            let step_or_node = |user: usize| step_of.get(&user).copied().ok_or(user);
            let ends = by.map(|by| {
                let ends = by.iter().map(|(role, user)| (*role, step_or_node(*user)));
                ends.collect::<BTreeSet<_>>()
            });
            // A loop in which one round's result is the next one's operand.
            let own = |(_, user): &(Role, usize)| functions[*user] == functions[number];
            let is_inner = functions[number].is_some() && by.is_some_and(|by| by.iter().all(own));
            let key =
                (writer.rip, writer.place, ends.filter(|_| !is_inner), if repeats { 0 } else { number + 1 });
            let step = *same.entry(key).or_insert_with(|| {
                steps.push(Step { nodes: Vec::new(), sources: BTreeSet::new() });
                steps.len() - 1
            });
            steps[step].nodes.push(number);
            step_of.insert(number, step);
        }
        for (number, step) in steps.iter_mut().enumerate() {
            let from = step.nodes.iter().flat_map(|number| through(slice, *number, &hidden));
            let from = from.map(|(role, number)| (role, step_of[&number]));
            step.sources = from.filter(|(_, source)| *source != number).collect();
        }
        let others = hidden.difference(&hashes);
        let moves = others.filter(|number| slice.nodes[**number].writer.moves_stack()).count();
        let copies = hidden.len() - hashes.len() - moves;
        Folded { steps, left_out: LeftOut { copies, moves, hashes: hashes.len() } }
    }
}

/// Which shown nodes want what a node wrote.
fn wanted<At>(slice: &Slice<At>, hidden: &BTreeSet<usize>) -> BTreeMap<usize, BTreeSet<(Role, usize)>> {
    let mut wanted: BTreeMap<usize, BTreeSet<(Role, usize)>> = BTreeMap::new();
    for number in (0..slice.nodes.len()).filter(|number| !hidden.contains(number)) {
        for (role, source) in through(slice, number, hidden) {
            wanted.entry(source).or_default().insert((role, number));
        }
    }
    wanted
}

fn function(place: &Option<Place>) -> Option<String> {
    place.as_ref()?.function().map(str::to_owned)
}

fn is_copy<At>(node: &Node<At>) -> bool {
    matches!(node.writer.made, Made::Instruction(_))
        && node.writer.given.values().all(|(_, origin)| origin.copied)
}

/// What is computed in hash functions, but for what the slice is about.
fn hashes<At>(slice: &Slice<At>, places: &[Option<Place>]) -> BTreeSet<usize> {
    let is_hash = |number: usize| {
        let made = &slice.nodes[number].writer.made;
        matches!(made, Made::Instruction(_))
            && places[number].as_ref().is_some_and(|place| place.is_within(&HASHES))
    };
    let is_root = |number: usize| slice.roots.iter().any(|root| root.node == number);
    (0..slice.nodes.len()).filter(|number| is_hash(*number) && !is_root(*number)).collect()
}

/// What says nothing: the copies each of whose users is in the same function, what is saved and taken back, what moves the stack pointer.
fn hidden<At>(slice: &Slice<At>, functions: &[Option<String>]) -> BTreeSet<usize> {
    let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); slice.nodes.len()];
    for (number, node) in slice.nodes.iter().enumerate() {
        for source in &node.sources {
            users[source.node].insert(number);
        }
    }
    let is_root = |number: usize| slice.roots.iter().any(|root| root.node == number);
    let same = |number: usize| users[number].iter().all(|user| functions[*user] == functions[number]);
    let is_apart = |number: usize| users[number].iter().any(|user| puts_together(slice, *user, number));
    let says_nothing = |number: usize| {
        let node = &slice.nodes[number];
        let is_left =
            is_copy(node) && (same(number) && !is_apart(number) || is_taken_back(slice, functions, number));
        is_left || node.writer.moves_stack()
    };
    (0..slice.nodes.len()).filter(|number| !is_root(*number) && says_nothing(*number)).collect()
}

/// Whether a register is loaded of more bytes than a store has written of them: what is written apart is no variable of that size, or
/// it was overwritten, as a pointer is by a string.
fn puts_together<At>(slice: &Slice<At>, load: usize, store: usize) -> bool {
    let size = |node: usize| match &slice.nodes[node].writer.made {
        Made::Instruction(it) => it.memory_size().size(),
        _ => 0,
    };
    let loads = &slice.nodes[load];
    let is_load = loads.writer.given.keys().all(|byte| matches!(byte, Byte::General(..))) && is_copy(loads);
    let is_from = loads.sources.iter().any(|it| it.node == store && it.byte.is_memory());
    is_load && is_from && size(store) < size(load)
}

/// Whether a register is given back what it held when the same function saved it.
fn is_taken_back<At>(slice: &Slice<At>, functions: &[Option<String>], number: usize) -> bool {
    let node = &slice.nodes[number];
    let was_saved = |source: &Source| {
        let saved = &slice.nodes[source.node];
        let from = saved.writer.given.get(&source.byte).and_then(|(_, origin)| origin.source());
        let held = |(byte, (_, origin)): (&Byte, &(Option<u8>, Origin))| {
            origin.source() == Some(source.byte) && Some(*byte) == from
        };
        functions[source.node].is_some()
            && functions[source.node] == functions[number]
            && source.byte.is_memory()
            && is_copy(saved)
            && node.writer.given.iter().any(held)
    };
    !node.sources.is_empty() && node.sources.iter().all(was_saved)
}

/// What a step is made of, over those that are hidden.
fn through<At>(slice: &Slice<At>, number: usize, hidden: &BTreeSet<usize>) -> BTreeSet<(Role, usize)> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut open: Vec<(Role, usize)> =
        slice.nodes[number].sources.iter().map(|source| (source.role, source.node)).collect();
    while let Some((role, node)) = open.pop() {
        if !seen.insert((role, node)) {
            continue;
        }
        if !hidden.contains(&node) {
            found.insert((role, node));
            continue;
        }
        // What led to a copy's source led to the copy.
        open.extend(slice.nodes[node].sources.iter().map(|source| (role.max(source.role), source.node)));
    }
    found
}
