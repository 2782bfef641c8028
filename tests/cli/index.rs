//! A question that looks back leaves checkpoints where a recording has none, and says so.

use crate::{Place, engines};
use std::fs;

/// Computes for a second and a half by the clock, however fast the machine is, in turns with two calls each; in one of them a word is
/// stored to that has a page of its own.
const COMPUTES: &str = r#"
    #include <time.h>
    #include <unistd.h>
    static struct { _Alignas(4096) volatile long often; _Alignas(4096) volatile long seldom; } words;
    static double seconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec + now.tv_nsec / 1e9;
    }
    int main(void) {
        double end = seconds() + 1.5;
        for (int turn = 0; turn < 8 || seconds() < end; turn++) {
            if (turn == 5) words.seldom = 7;
            for (long n = 0; n < 20000000; n++) words.often += n;
            getppid();
        }
        return words.seldom - 7;
    }"#;

#[test]
fn the_first_question_leaves_checkpoints_and_the_next_uses_them() {
    let place = Place::new();
    let Some(_program) = place.compile("computes", COMPUTES) else { return };
    let nm = place.sh("nm computes | sed -n 's/^0*\\([0-9a-f]*\\) b words$/\\1/p'");
    let words = u64::from_str_radix(nm.out().trim(), 16).expect("the address of `words`");
    let seldom = format!("{:#x}", words + 4096);
    for engine in engines() {
        let start =
            ["record", "--engine", engine, "-o", engine, "--checkpoint-every", "0", "--", "./computes"];
        assert_eq!(place.gretel(&start).code, 0);
        let question = ["last-write", engine, &seldom, "8", "--engine", engine];
        let (first, second) = (place.gretel(&question), place.gretel(&question));
        assert_eq!((first.code, second.code), (0, 0), "{}{}", first.err, second.err);
        assert!(first.out().contains("0x0 -> 0x7"), "{}", first.out());
        assert_eq!(first.out(), second.out());
        assert!(
            first.err.contains(" written, ") && first.err.contains("for later questions"),
            "{}",
            first.err
        );
        assert!(!second.err.contains("for later questions"), "{}", second.err);

        // Where none can be written, it is answered all the same.
        fs::remove_file(place.path(engine).join("checkpoints")).unwrap();
        fs::create_dir(place.path(engine).join("checkpoints.new")).unwrap();
        let without = place.gretel(&question);
        assert_eq!((without.code, without.out()), (0, first.out()));
        assert!(without.err.contains("later questions take as long"), "{}", without.err);
        // It replays as before.
        let replayed = place.gretel(&["replay", engine, "--engine", engine]);
        assert_eq!(replayed.code, 0, "{}", replayed.err);
    }
}
