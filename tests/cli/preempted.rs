//! Tasks that are preempted: where a replay found it, the next one knows it.

use crate::{Place, engines};
use std::fs;

const TWO_COMPUTE: &str = r#"
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    volatile long *board = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    long passes = 0;
    for (int round = 0; round < 3; round++) {
        board[pid == 0] = round + 1;
        // The count is in a register: a loop whose registers stay the same is searched by its memory, which takes long.
        while (board[pid != 0] <= round) passes++;
    }
    board[2] = passes;
    if (pid == 0) return 0;
    wait(0);
    puts("three rounds");
    return 0;
}"#;

#[test]
fn what_a_replay_found_is_known_to_the_next() {
    let place = Place::new();
    if place.compile("two", TWO_COMPUTE).is_none() {
        return;
    }
    for engine in engines() {
        let recorded = place.gretel(&["record", "--engine", engine, "-o", engine, "--", "./two"]);
        assert_eq!((recorded.code, recorded.out().as_str()), (0, "three rounds\n"), "{}", recorded.err);
        let file = place.path(engine).join("positions");
        let digests: Vec<_> = (0..3)
            .map(|_| place.replay(engine, "soft")["digest"].clone())
            .chain(engines().into_iter().map(|other| place.replay(engine, other)["digest"].clone()))
            .collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
        // The software CPU's recordings have counts from the start.
        assert_eq!(file.exists(), engine == "kvm");
        if let Ok(found) = fs::read(&file) {
            assert!(found.len() > 32, "no preemption was found");
            let half = &found[..found.len() / 2];
            fs::write(&file, half).unwrap();
            assert_eq!(place.replay(engine, "soft")["digest"], digests[0], "a cut file is as good as none");
            assert_eq!(fs::read(&file).unwrap(), found, "it was found again");
        }
    }
}
