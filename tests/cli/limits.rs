//! Limits of resources: a program begins with those that gretel was started with.

use crate::{Place, engines};

/// Sets limits, soft and hard, and shows them all with the command.
fn limited(command: &str) -> String {
    format!(
        "ulimit -n 333; ulimit -Ss 4096; ulimit -v 90000000; ulimit -d 80000000; ulimit -u 5000; \
         ulimit -St 3000; ulimit -Sc 0; ulimit -l 64; exec {command}"
    )
}

#[test]
fn are_those_of_the_recorder() {
    let place = Place::new();
    let bash = |line: &str| crate::ran(&mut place.command("bash", &["-c", line]));
    let natively = bash(&limited("cat /proc/self/limits"));
    assert_eq!(natively.code, 0, "{}", natively.err);
    assert!(
        natively.out().contains("Max open files            333                  333 "),
        "{}",
        natively.out()
    );
    for engine in engines() {
        let gretel = env!("CARGO_BIN_EXE_gretel");
        let record = format!("{gretel} record --engine {engine} -o {engine} -- cat /proc/self/limits");
        let recorded = bash(&limited(&record));
        assert_eq!(recorded.code, 0, "{}", recorded.err);
        assert_eq!(recorded.out(), natively.out(), "{engine}");
        // A replay looks at none of its own.
        assert_eq!(place.replay(engine, "soft")["end"], "exited");
    }
}
