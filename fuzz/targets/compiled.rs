//! Guests whose instructions, registers and fate the bytes choose, on the interpreter and as compiled code: all that can be seen
//! of the two must stay the same.

#![no_main]

#[path = "../../x86/jit/tests/differential/mod.rs"]
mod differential;
#[expect(dead_code, reason = "its states are for other tests")]
#[path = "../../x86/tests/support/mod.rs"]
mod support;

use differential::program::{Pool, Program};
use differential::{Pair, Source};
use std::sync::LazyLock;

/// Runs of a guest at most.
const RUNS: usize = 20;

static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(support::encodings()));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut numbers = bytes.chunks(2).map(|two| two.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    // When the bytes are used up, numbers that differ: a guest of zeros alone is dull.
    let mut next = 0_u64;
    let mut source = Source(Box::new(move || {
        next = next.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        numbers.next().unwrap_or(next >> 33)
    }));
    let program = Program::new(&POOL, &mut source);
    let mut pair = Pair::new(program, &mut source);
    for _ in 0..RUNS {
        pair.run(&mut source);
        pair.happen(&mut source);
    }
});
