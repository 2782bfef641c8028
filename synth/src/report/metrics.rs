//! A suffix against the truth, where a recording or a log has it.

use serde::Serialize;

/// How much of the true path was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathMetrics {
    /// Whether the suffix is exactly the end of the truth.
    pub equal: bool,
    /// How many instructions, counted back from the crash, are the same.
    pub common: usize,
    /// The suffix's length.
    pub length: usize,
}

/// Compares the addresses of the instructions of a suffix with those of the true execution, both oldest first
/// and both ending at the crash.
#[must_use]
pub fn compare_paths(suffix: &[u64], truth: &[u64]) -> PathMetrics {
    let common =
        suffix.iter().rev().zip(truth.iter().rev()).take_while(|(found, real)| found == real).count();
    PathMetrics { equal: common == suffix.len(), common, length: suffix.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_end_is_counted_from_the_crash() {
        let truth = [1, 2, 3, 4, 5];
        assert_eq!(compare_paths(&[3, 4, 5], &truth), PathMetrics { equal: true, common: 3, length: 3 });
        assert_eq!(compare_paths(&[9, 4, 5], &truth), PathMetrics { equal: false, common: 2, length: 3 });
        assert_eq!(compare_paths(&[5, 1, 2, 3, 4, 5], &truth).common, 5);
    }
}
