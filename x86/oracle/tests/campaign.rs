//! The semantics against this processor: the slice of the long run that every test run makes.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use x86_oracle::campaign::{self, Options};
use x86_oracle::generate::Generator;
use x86_oracle::report;

#[test]
fn the_semantics_does_what_this_processor_does() {
    let options = Options { cases: 200_000, seed: 20_261_121, ..Options::default() };
    let summary = campaign::run(&options, |_| ()).unwrap();
    let findings: String = summary.findings.iter().map(report::finding).collect();
    assert_eq!(summary.different, 0, "{findings}");
    assert!(summary.skipped * 100 < summary.cases, "{} of {} not comparable", summary.skipped, summary.cases);
    let rare: Vec<_> = summary.mnemonics.iter().filter(|(_, count)| count.cases < 20).collect();
    assert!(rare.is_empty(), "hardly tested: {rare:?}");
}

#[test]
fn at_the_edges_the_semantics_does_what_this_processor_does() {
    let options = Options { directed: Some(50), cases: u64::MAX, ..Options::default() };
    let summary = campaign::run(&options, |_| ()).unwrap();
    let findings: String = summary.findings.iter().map(report::finding).collect();
    assert_eq!(summary.different, 0, "{findings}");
    assert!(summary.cases > 100_000, "only {} cases", summary.cases);
}

#[test]
fn the_same_seed_makes_the_same_cases() {
    let generator = Generator::new(&[], 8);
    let text = |seed, number| {
        let batch = generator.batch(seed, number, 64);
        format!("{:?} {:?}", batch.cases, batch.image)
    };
    assert_eq!(text(7, 3), text(7, 3));
    assert_ne!(text(7, 3), text(7, 4));
    assert_ne!(text(7, 3), text(8, 3));
}
