//! Which steps of a slice say something.
//!
//! A value is copied from register to register and saved on the stack and taken back many times in one function. Such a step is left out
//! where the step that wants it is in the same function, and what it was copied from takes its place. A loop that makes a value byte by
//! byte is one step, which has run several times.

use crate::symbols::Place;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use vmm::slice::{Made, Node, Role, Slice};

/// The steps that are shown, the newest first.
pub(super) struct Folded {
    pub(super) steps: Vec<Step>,
    /// How many nodes are left out.
    pub(super) left_out: usize,
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
        let hidden = if all { BTreeSet::new() } else { hidden(slice, &functions) };
        let wanted = wanted(slice, &hidden);
        let mut steps: Vec<Step> = Vec::new();
        let mut step_of: BTreeMap<usize, usize> = BTreeMap::new();
        let mut same: HashMap<_, usize> = HashMap::new();
        for number in (0..slice.nodes.len()).filter(|number| !hidden.contains(number)) {
            let writer = &slice.nodes[number].writer;
            let repeats = !all && matches!(writer.made, Made::Instruction(_));
            let by = wanted.get(&number);
            // A loop in which one round's result is the next one's operand.
            let own = |(_, user): &(Role, usize)| functions[*user] == functions[number];
            let is_inner = functions[number].is_some() && by.is_some_and(|by| by.iter().all(own));
            let key = (
                writer.rip,
                writer.place,
                by.filter(|_| !is_inner).cloned(),
                if repeats { 0 } else { number + 1 },
            );
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
        Folded { steps, left_out: hidden.len() }
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

/// The copies each of whose users is in the same function.
fn hidden<At>(slice: &Slice<At>, functions: &[Option<String>]) -> BTreeSet<usize> {
    let mut users: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); slice.nodes.len()];
    for (number, node) in slice.nodes.iter().enumerate() {
        for source in &node.sources {
            users[source.node].insert(number);
        }
    }
    let is_root = |number: usize| slice.roots.iter().any(|root| root.node == number);
    let same = |number: usize| users[number].iter().all(|user| functions[*user] == functions[number]);
    (0..slice.nodes.len())
        .filter(|number| is_copy(&slice.nodes[*number]) && !is_root(*number) && same(*number))
        .collect()
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
