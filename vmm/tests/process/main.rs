//! Real programs on both engines: what they print, how they end, and that they replay to the same memory.

mod alarms;
mod applets;
mod behaviour;
mod clock_call;
mod compiled;
mod crashes;
mod handlers;
mod harness;
mod hostile;
mod itself;
mod made;
mod mappings;
mod named;
mod oom;
mod owners;
mod queues;
mod ready;
mod refused;
mod sharing;
mod stacks;
mod stuck;
mod threads;
mod turns;
mod upper_half;
mod vectors;
mod version;
mod x87;

use harness::{Engine, Run, each_libc, engines};
use vmm::process::Step;

/// What a program printed.
fn prints(ran: &harness::Ran) -> String {
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

/// Runs a program on each engine, checks it, and replays each recording on every engine; and on both in turns, where there
/// are two.
fn each_engine(run: &Run, check: impl Fn(&harness::Ran)) {
    let engines = engines();
    let turns = (engines.len() > 1).then_some(Engine::Turns);
    for engine in engines.iter().copied().chain(turns) {
        let ran = run.on(engine);
        check(&ran);
        engines.iter().for_each(|other| ran.replay_on(*other));
        if engine != Engine::Soft {
            turns.into_iter().for_each(|both| ran.replay_on(both));
        }
    }
}

#[test]
fn hello_prints_its_arguments_and_exits() {
    let source = r#"
        #include <stdio.h>
        int main(int argc, char **argv) { printf("hello, %s (%d) %.3f\n", argv[1], argc, 2.5); return 3; }"#;
    each_libc("hello", source, &[], |program| {
        let run = Run::new(program, &["world"]);
        each_engine(&run, |ran| {
            assert_eq!(ran.end, Step::Exited(3));
            assert_eq!(String::from_utf8_lossy(&ran.stdout), "hello, world (2) 2.500\n");
            assert_eq!(ran.told, ran.stdout);
        });
    });
}
