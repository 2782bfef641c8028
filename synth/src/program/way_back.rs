//! Functions without a way back: those that a program calls to give up, after it has decided to.
//!
//! Example: the kernel's `skb_panic` prints what is wrong with a packet, and ends in UD2. What it decides on the way is which words
//! it prints; that the packet was too long was decided where it was called.

use super::code::direct_target;
use super::{Function, Program};
use iced_x86::{FlowControl, Instruction};

impl Program {
    /// Whether the function around `va` only gives up: it goes forward, without a loop, to an end from which it does not return. Its
    /// part that stands elsewhere, since it seldom runs (`.cold`), counts.
    #[must_use]
    pub fn only_gives_up(&self, va: u64) -> bool {
        let parts = self.parts_of(va);
        let part_of = |va: u64| parts.iter().position(|part| (part.start..part.end).contains(&va));
        let goes_forward = |from: &Instruction| {
            let Some(to) = direct_target(from) else { return false };
            let (source, target) = (part_of(from.ip()), part_of(to));
            target.is_some() && (target != source || to > from.ip())
        };
        let mut instructions = parts.iter().flat_map(|part| self.code.between(part.start, part.end));
        !parts.is_empty()
            && instructions.all(|instruction| match instruction.flow_control() {
                FlowControl::Return | FlowControl::IndirectBranch => false,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    goes_forward(instruction)
                }
                _ => true,
            })
    }

    /// The function around `va`, and what of it stands elsewhere.
    pub(super) fn parts_of(&self, va: u64) -> Vec<&Function> {
        let Some(function) = self.function_at(va) else { return Vec::new() };
        let name = whole_name(&function.name);
        self.functions().iter().filter(|it| whole_name(&it.name) == name).collect()
    }
}

/// The name of a function that this is a part of: `walk.cold.3 [ext4]` is one of `walk [ext4]`.
fn whole_name(name: &str) -> (&str, &str) {
    match name.split_once(".cold") {
        Some((stem, rest)) => (stem, rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit())),
        None => match name.split_once(' ') {
            Some((stem, _)) => (stem, &name[stem.len()..]),
            None => (name, ""),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::whole_name;

    #[test]
    fn what_seldom_runs_is_a_part_of_its_function() {
        for (part, whole) in [("walk.cold", "walk"), ("walk.cold.3 [ext4]", "walk [ext4]")] {
            assert_eq!(whole_name(part), whole_name(whole));
        }
        assert_ne!(whole_name("walk [ext4]"), whole_name("walk [xfs]"));
        assert_ne!(whole_name("walk"), whole_name("walk_on.cold"));
    }
}
