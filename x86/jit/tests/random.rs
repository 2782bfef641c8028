//! Compiled code does what the interpreter does, to the last flag and counter, in random programs to which random things happen.

mod differential;
#[expect(dead_code, reason = "its states are for other tests")]
#[path = "../../tests/support/mod.rs"]
mod support;

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

/// Runs a program.
fn run(pool: &Pool, seed: u64, begin: impl FnOnce(&mut Pair)) -> Pair {
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
