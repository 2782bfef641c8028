//! Compiled code does what the interpreter does, to the last flag and counter, in random programs to which random things happen.

mod differential;
#[expect(dead_code, reason = "its states are for other tests")]
#[path = "../../tests/support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use differential::program::{Pool, Program};
use differential::{Pair, Source};

/// Programs that are run.
const PROGRAMS: u64 = 8000;
/// Those that are run again with the code of the first run.
const KEPT_PROGRAMS: u64 = 1500;
/// Runs of each.
const RUNS: u64 = 40;

/// Xorshift: the same numbers each time.
fn random(seed: u64) -> Source<'static> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Source(Box::new(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    }))
}

/// Says, when something fails, in which program.
struct Number(u64);

impl Drop for Number {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the program of number {}", self.0);
        }
    }
}

/// Runs a program.
fn run(pool: &Pool, seed: u64, begin: impl FnOnce(&mut Pair)) -> Pair {
    let _number = Number(seed);
    let mut source = random(seed);
    let program = Program::new(pool, &mut source);
    let mut pair = Pair::new(program, &mut source);
    begin(&mut pair);
    for _ in 0..RUNS {
        pair.run(&mut source);
        pair.happen(&mut source);
    }
    pair
}

#[test]
fn random_programs_do_on_compiled_code_what_they_do_on_the_interpreter() {
    let pool = Pool::new(support::encodings());
    let (mut regions, mut in_code, mut all) = (0, 0, 0);
    for seed in 1..=PROGRAMS {
        let pair = run(&pool, seed, |_| {});
        let work = pair.work();
        (regions, in_code, all) =
            (regions + work.regions, in_code + work.instructions, all + pair.instructions());
    }
    println!("{regions} regions; {in_code} of {all} instructions ran as compiled code");
    assert!(
        regions > PROGRAMS && in_code > all / 4,
        "too little was compiled for the comparison to mean anything"
    );
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect(name))
}

/// Other programs than those of the tests: from the one of number RANDOM_SEED on, for RANDOM_SECONDS.
#[test]
#[ignore = "takes half an hour; make long-test runs it"]
fn random_programs_for_as_long_as_is_asked_do_the_same() {
    let pool = Pool::new(support::encodings());
    let (begin, seconds) = (number("RANDOM_SEED", 1_000_000), number("RANDOM_SECONDS", 1800));
    let (since, mut in_code, mut all) = (Instant::now(), 0, 0);
    let mut seed = begin;
    while since.elapsed() < Duration::from_secs(seconds) {
        let pair = run(&pool, seed, |_| {});
        (seed, in_code, all) = (seed + 1, in_code + pair.work().instructions, all + pair.instructions());
    }
    println!("{} programs; {in_code} of {all} instructions ran as compiled code", seed - begin);
}

#[test]
fn code_that_an_earlier_run_has_made_does_the_same_in_programs_that_are_the_same_or_have_changed() {
    let pool = Pool::new(support::encodings());
    let (mut compiled, mut again, mut taken) = (0, 0, 0);
    for seed in 1..=KEPT_PROGRAMS {
        let first = run(&pool, seed, |pair| pair.keep(None));
        let code = first.kept();
        let second = run(&pool, seed, |pair| pair.keep(Some(&code)));
        let of_another = run(&pool, seed + 1, |pair| pair.keep(Some(&code)));
        (compiled, again) = (compiled + first.work().regions, again + second.work().regions);
        taken += second.work().taken;
        drop(of_another);
    }
    println!("{compiled} regions compiled in first runs, {again} in second ones, which took {taken}");
    assert!(again < compiled / 10 && taken > compiled / 2, "second runs take what first ones have made");
}
