//! Breakpoints and watched data, each of one process, as a debugger has inserted them.

use super::agent::{self, World};
use std::collections::BTreeMap;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::travel::Stop;

/// A breakpoint, or data that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) kind: Kind,
    pub(super) address: u64,
    /// Of data, how many bytes; of code, what the debugger would write there.
    pub(super) len: u64,
    /// It is none where there are some and all are false ([`agent`]).
    pub(super) conditions: Vec<Vec<u8>>,
}

/// What it is. Nothing is ever written into the program: the processor looks for both kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Software,
    Hardware,
    Data(Access),
}

/// No more bytes can be watched by one point: each is compared behind each system call.
const LONGEST: u64 = 1 << 20;

impl Point {
    /// Whether it watches more bytes than can be.
    pub(super) fn is_too_long(&self) -> bool {
        self.watch().is_some() && self.len > LONGEST
    }

    fn is_same(&self, other: &Point) -> bool {
        (self.kind, self.address, self.len) == (other.kind, other.address, other.len)
    }

    fn watch(&self) -> Option<Watch> {
        match self.kind {
            Kind::Data(access) => {
                Some(Watch { range: self.address..self.address.saturating_add(self.len), access })
            }
            _ => None,
        }
    }

    /// Whether it is what a journey has stopped for.
    fn is_at(&self, stop: Stop) -> bool {
        let watches = |address: u64, writes: bool| {
            self.watch().is_some_and(|it| it.range.contains(&address) && it.access.includes(writes))
        };
        match stop {
            Stop::Breakpoint(address) => self.watch().is_none() && self.address == address,
            Stop::Accessed(accessed) => watches(accessed.address, accessed.writes),
            Stop::Changed(address) => watches(address, true),
            _ => false,
        }
    }

    /// Whether its conditions let it be one. One that cannot be evaluated does: the debugger evaluates it again, and says why not.
    fn holds(&self, world: &dyn World) -> bool {
        self.conditions.is_empty()
            || self.conditions.iter().any(|it| agent::evaluate(it, world).is_none_or(|value| value != 0))
    }
}

/// All of them, by process.
#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    own: BTreeMap<i32, Vec<Point>>,
    /// Children of a vfork that run in their parent's memory: there a debugger's breakpoints are both's, and it sets them once.
    shared: BTreeMap<i32, i32>,
}

impl Points {
    /// Adds one, or replaces its conditions.
    pub(super) fn insert(&mut self, pid: i32, point: Point) {
        self.remove(pid, &point);
        self.own.entry(pid).or_default().push(point);
    }

    /// Takes one away, if it is there.
    pub(super) fn remove(&mut self, pid: i32, point: &Point) {
        if let Some(points) = self.own.get_mut(&pid) {
            points.retain(|it| !it.is_same(point));
            if points.is_empty() {
                self.forget(pid);
            }
        }
    }

    /// Takes those of a process away.
    pub(super) fn forget(&mut self, pid: i32) {
        self.own.remove(&pid);
    }

    /// A child runs in its parent's memory from here on.
    pub(super) fn share(&mut self, child: i32, parent: i32) {
        self.shared.insert(child, parent);
    }

    /// No child does any more, where this process is one or its parent. A child that ends without another program stays one for the
    /// debugger.
    pub(super) fn part(&mut self, pid: i32) {
        self.shared.retain(|child, parent| *child != pid && *parent != pid);
    }

    /// What to look for in each process.
    pub(super) fn lookouts(&self) -> BTreeMap<i32, Lookout> {
        let all = self.own.keys().chain(self.shared.keys());
        let looked_for = all.map(|pid| (*pid, lookout(self.of(*pid))));
        looked_for.filter(|(_, lookout)| !lookout.is_empty()).collect()
    }

    /// Those of a process.
    fn of(&self, pid: i32) -> impl Iterator<Item = &Point> + Clone {
        let parent = self.shared.get(&pid).copied();
        [Some(pid), parent].into_iter().flatten().filter_map(|pid| self.own.get(&pid)).flatten()
    }

    /// The first that a journey has stopped for in this process, and whose conditions hold there.
    pub(super) fn hit(&self, pid: i32, stop: Stop, world: &dyn World) -> Option<&Point> {
        self.of(pid).find(|point| point.is_at(stop) && point.holds(world))
    }
}

fn lookout<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Lookout {
    let code = points.clone().filter(|point| point.watch().is_none());
    let mut at: Vec<_> = code.map(|point| point.address).collect();
    at.sort_unstable();
    at.dedup();
    Lookout { at, data: points.filter_map(Point::watch).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gdb::agent::Nothing;

    #[test]
    fn a_breakpoint_is_of_its_process_and_of_its_conditions() {
        let mut points = Points::default();
        let point = |conditions| Point { kind: Kind::Software, address: 16, len: 1, conditions };
        points.insert(1, point(Vec::new()));
        let stop = Stop::Breakpoint(16);
        assert!(points.hit(1, stop, &Nothing).is_some() && points.hit(2, stop, &Nothing).is_none());
        // const8 0; end
        points.insert(1, point(vec![vec![0x22, 0, 0x27]]));
        assert!(points.hit(1, stop, &Nothing).is_none(), "what is inserted again has its new conditions");
        points.insert(1, point(vec![vec![0x22, 0, 0x27], vec![0x22, 1, 0x27]]));
        assert!(points.hit(1, stop, &Nothing).is_some(), "one of them is enough");
        points.insert(1, point(vec![vec![0xff]]));
        assert!(points.hit(1, stop, &Nothing).is_some(), "one that is not understood is a reason to stop");
        assert_eq!(points.lookouts()[&1].at, [16]);
        points.share(2, 1);
        assert!(points.hit(2, stop, &Nothing).is_some(), "in the memory of both");
        assert_eq!(points.lookouts()[&2].at, [16]);
        points.part(2);
        assert!(points.hit(2, stop, &Nothing).is_none() && !points.lookouts().contains_key(&2));
        points.remove(1, &point(Vec::new()));
        assert!(points.lookouts().is_empty());
    }
}
