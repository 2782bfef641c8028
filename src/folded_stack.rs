//! A stack as people read it: what recursion has put there hundreds of times is shown twice, and counted.
//!
//! Example: a stack of `leaf`, 250 times `deep` from the same call, and `main` has the lines `leaf`, `deep`, `deep`, `248 more frames`
//! and `main`. Functions that call each other in turns are folded in the same way, up to [`LONGEST`] of them.

/// A part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The frame of this number.
    Frame(usize),
    /// So many frames from this one on, which repeat the last so many before them.
    Repeated { first: usize, count: usize, period: usize },
}

/// So many functions may take turns.
const LONGEST: usize = 16;
/// What is repeated stands so often before it is folded.
const SHOWN: usize = 2;
/// No fewer frames than these are folded: a line is to be saved.
const FEWEST: usize = 4;

/// Folds frames that are equal to those one period before.
pub(crate) fn fold<T: PartialEq>(frames: &[T]) -> Vec<Part> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < frames.len() {
        match repeated(frames, at) {
            Some((count, period)) => {
                parts.push(Part::Repeated { first: at, count, period });
                at += count;
            }
            None => {
                parts.push(Part::Frame(at));
                at += 1;
            }
        }
    }
    parts
}

/// How many frames from here on go on with what the frames right before them repeat, and how many functions that are.
fn repeated<T: PartialEq>(frames: &[T], at: usize) -> Option<(usize, usize)> {
    (1..=LONGEST).find_map(|period| {
        let is_repeated = |n: usize| n >= period && frames.get(n).is_some_and(|it| *it == frames[n - period]);
        let stands = at >= period * SHOWN && (at - period * (SHOWN - 1)..at).all(is_repeated);
        let whole = (at..).take_while(|n| is_repeated(*n)).count() / period * period;
        (stands && whole >= FEWEST.max(period)).then_some((whole, period))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn recursion_is_shown_twice_and_counted() {
        let stack: Vec<char> = "l".chars().chain(['d'; 250]).chain("m".chars()).collect();
        let expected = [
            Part::Frame(0),
            Part::Frame(1),
            Part::Frame(2),
            Part::Repeated { first: 3, count: 248, period: 1 },
            Part::Frame(251),
        ];
        assert_eq!(fold(&stack), expected);
        let interpreted: Vec<char> = "abcdefg".chars().cycle().take(7 * 20 + 3).chain("m".chars()).collect();
        assert!(
            fold(&interpreted).contains(&Part::Repeated { first: 14, count: 126, period: 7 }),
            "seven in turns"
        );
        let turns: Vec<char> = "pq".chars().cycle().take(101).chain("m".chars()).collect();
        assert!(
            fold(&turns).contains(&Part::Repeated { first: 4, count: 96, period: 2 }),
            "{:?}",
            fold(&turns)
        );
        assert_eq!(fold(&['a', 'b', 'b', 'b', 'b', 'c']).len(), 6, "a few are no recursion");
    }

    proptest! {
        #[test]
        fn each_frame_is_in_one_part(frames in proptest::collection::vec(0_u8..3, 0..60)) {
            let mut shown: Vec<u8> = Vec::new();
            for part in fold(&frames) {
                match part {
                    Part::Frame(n) => {
                        prop_assert_eq!(n, shown.len());
                        shown.push(frames[n]);
                    }
                    Part::Repeated { first, count, period } => {
                        prop_assert_eq!(first, shown.len());
                        for _ in 0..count {
                            shown.push(shown[shown.len() - period]);
                        }
                    }
                }
            }
            prop_assert_eq!(shown, frames);
        }
    }
}
