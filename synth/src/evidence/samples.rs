//! How the program mostly comes to a place, by branch records that were taken now and then while it ran.
//!
//! They prove nothing of the way to a crash, and refute nothing. But a program does what it did: on the newest 3,000 instructions of
//! 34 crashes, at places that several ways lead to, what stood before the same branches in 59 samples was right 95 times of 100, where
//! there was any; what compilers make likely ([`crate::search`]) 65 times.
//!
//! Example: a loop jumps back to its head at 0x40, and `jne` at 0x20 led to it once. In the samples, (0x60, 0x40) stands before
//! another (0x60, 0x40) 300 times, and (0x20, 0x40) 10 times. Asked for the ways to 0x40 before a jump from 0x60 to 0x40, the first
//! weighs thirty times as much.

use lbr::Sampled;
use rustc_hash::FxHashMap;
use vmm::elfcore::Core;

/// A taken branch: where it is, where it leads.
pub(crate) type Branch = (u64, u64);

/// Samples of branch records, at the addresses of a core.
#[derive(Debug, Default)]
pub struct Samples {
    /// Taken branches that followed each other, oldest first, and how often just these were sampled.
    stretches: Vec<(Vec<Branch>, u32)>,
    /// Where a branch stands that has others before it: in which stretch, and at which place.
    places: FxHashMap<Branch, Vec<(u32, u32)>>,
    taken: Taken,
}

/// What came of placing samples in a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Samples that are used.
    pub samples: usize,
    /// Their branches.
    pub branches: usize,
    /// Branches that are not, since the core does not have their files mapped.
    pub elsewhere: usize,
}

/// How the program came to a place.
#[derive(Debug, Default)]
pub struct Ways {
    straight: u64,
    by_branch: FxHashMap<u64, u64>,
}

/// Of the places of one branch so many are looked at: those of a loop are many, and alike.
const MOST_PLACES: usize = 4096;
/// A stretch that goes on as the path does for one branch more weighs so many times as much, in bits.
const BITS_A_BRANCH: u32 = 2;
/// For so many branches at most.
const MOST_BRANCHES: usize = 12;

impl Samples {
    /// Those of a file, at the addresses of a core. Where the file does not say what was mapped, addresses are those of the core.
    #[must_use]
    pub fn of(sampled: &Sampled, core: &Core) -> Samples {
        let mut samples = Samples::default();
        let mut counted: FxHashMap<Vec<Branch>, u32> = FxHashMap::default();
        for sample in sampled.iter() {
            let place = |address: u64| match sampled.has_mappings() {
                true => sample.place(address).and_then(|(file, offset)| address_in(core, file, offset)),
                false => Some(address),
            };
            let before = samples.taken.branches;
            let mut stretch = Vec::new();
            for record in &sample.trail.records {
                let is_user = !record.from_is_hidden() && record.from >> 63 == 0 && record.to >> 63 == 0;
                let branch = is_user.then(|| Some((place(record.from)?, place(record.to)?))).flatten();
                samples.taken.elsewhere += usize::from(is_user && branch.is_none());
                if branch.is_none() || record.after_gap {
                    samples.take(&mut stretch, &mut counted);
                }
                stretch.extend(branch);
            }
            samples.take(&mut stretch, &mut counted);
            samples.taken.samples += usize::from(samples.taken.branches > before);
        }
        samples.stretches = counted.into_iter().collect();
        samples.stretches.sort_unstable();
        samples.index();
        samples
    }

    /// Keeps a stretch, which is empty then.
    fn take(&mut self, stretch: &mut Vec<Branch>, counted: &mut FxHashMap<Vec<Branch>, u32>) {
        let stretch = std::mem::take(stretch);
        if stretch.len() > 1 {
            self.taken.branches += stretch.len();
            *counted.entry(stretch).or_default() += 1;
        }
    }

    fn index(&mut self) {
        for (n, (stretch, _)) in (0..).zip(&self.stretches) {
            for (place, &branch) in (0..).zip(stretch).skip(1) {
                self.places.entry(branch).or_default().push((n, place));
            }
        }
        for places in self.places.values_mut().filter(|places| places.len() > MOST_PLACES) {
            let every = places.len().div_ceil(MOST_PLACES);
            let mut n = 0;
            places.retain(|_| {
                n += 1;
                n % every == 0
            });
        }
    }

    /// What came of placing them.
    #[must_use]
    pub fn taken(&self) -> Taken {
        self.taken
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    /// How the program came to `at`, where it then took the branches `ahead`, the next one first; and how much was looked at.
    #[must_use]
    pub fn ways(&self, at: u64, ahead: &[Branch]) -> (Ways, usize) {
        let mut ways = Ways::default();
        let places = ahead.first().and_then(|next| self.places.get(next)).map_or(&[][..], Vec::as_slice);
        for &(n, place) in places {
            let (stretch, times) = &self.stretches[n as usize];
            let (before, on) = (stretch[place as usize - 1], &stretch[place as usize..]);
            if !(before.1..=on[0].0).contains(&at) {
                continue;
            }
            let same = on.iter().zip(ahead).take_while(|(a, b)| a == b).count().min(MOST_BRANCHES);
            let weight = u64::from(*times) << (BITS_A_BRANCH * u32::try_from(same - 1).unwrap_or(0));
            *match before.1 == at {
                true => ways.by_branch.entry(before.0).or_default(),
                false => &mut ways.straight,
            } += weight;
        }
        (ways, places.len())
    }
}

impl Ways {
    /// How much speaks for the instruction before, in bits; 0 where nothing does.
    #[must_use]
    pub fn straight(&self) -> u32 {
        bits(self.straight)
    }

    /// And for a branch at `from`.
    #[must_use]
    pub fn by_branch(&self, from: u64) -> u32 {
        bits(self.by_branch.get(&from).copied().unwrap_or(0))
    }
}

/// How many bits a number has.
fn bits(weight: u64) -> u32 {
    u64::BITS - weight.leading_zeros()
}

/// Where a core has this byte of a file; a file of the same name stands for one that is elsewhere, as in a container.
fn address_in(core: &Core, file: &str, offset: u64) -> Option<u64> {
    let name = |path: &str| path.rsplit('/').next().map(str::to_owned);
    let of = |is: &dyn Fn(&str) -> bool| {
        let mut mappings = core.files.iter().filter(|mapping| is(&mapping.path));
        mappings.find_map(|mapping| {
            let at = mapping.start.checked_add(offset.checked_sub(mapping.offset)?)?;
            (mapping.start..mapping.end).contains(&at).then_some(at)
        })
    };
    of(&|path| path == file).or_else(|| of(&|path| name(path) == name(file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(stretches: &[&[Branch]]) -> Samples {
        let stretches = stretches.iter().map(|stretch| (stretch.to_vec(), 1)).collect();
        let mut samples = Samples { stretches, ..Samples::default() };
        samples.index();
        samples
    }

    const IN: Branch = (0x20, 0x40);
    const ROUND: Branch = (0x60, 0x40);
    const OUT: Branch = (0x58, 0x80);

    #[test]
    fn what_went_on_alike_for_longer_speaks_louder() {
        // Three rounds of a loop, twice; the path has two of them behind it, and goes out.
        let samples =
            samples(&[&[IN, ROUND, ROUND, OUT], &[IN, ROUND, ROUND, OUT], &[ROUND, ROUND, ROUND, ROUND]]);
        let first = samples.ways(0x40, &[ROUND, ROUND, OUT]).0;
        assert!(first.by_branch(0x20) > first.by_branch(0x60), "{first:?}");
        let second = samples.ways(0x40, &[ROUND, OUT]).0;
        assert!(second.by_branch(0x60) > second.by_branch(0x20), "{second:?}");
        assert_eq!((first.straight(), first.by_branch(0x99)), (0, 0));
    }

    #[test]
    fn what_a_stretch_runs_through_is_come_to_from_the_instruction_before() {
        let samples = samples(&[&[IN, OUT]]);
        let ways = |at, ahead: &[Branch]| {
            let ways = samples.ways(at, ahead).0;
            (ways.straight() > 0, ways.by_branch(0x20) > 0)
        };
        assert_eq!(ways(0x40, &[OUT]), (false, true));
        assert_eq!(ways(0x50, &[OUT]), (true, false));
        assert_eq!(ways(0x60, &[OUT]), (false, false), "it is behind the branch");
        assert_eq!(ways(0x40, &[IN]), (false, false), "nothing is known of what came before it");
        assert_eq!(ways(0x40, &[]), (false, false));
    }
}
