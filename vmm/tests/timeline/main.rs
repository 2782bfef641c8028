//! Checkpoints and time travel: a program that goes back is, bit for bit, what it was, on each engine.

mod counted;
mod flight;
mod harness;
#[path = "../support/journals.rs"]
mod journals;
mod queried;
mod retracing;
mod seeking;
mod stored;
mod travel;

use harness::{compiled, engines, launch, machine};
use std::time::Instant;
use vmm::gate::Unrecorded;
use vmm::process::{Process, Step};

/// Touches 100 MB, asks for its id, touches them again a page at a time, asks again.
const LARGE: &str = r"
    #include <stdlib.h>
    #include <unistd.h>
    #define SIZE (100L << 20)
    int main(void) {
        volatile char *large = malloc(SIZE);
        for (long n = 0; n < SIZE; n += 4096) large[n] = 1;
        getppid();
        for (long n = 0; n < SIZE; n += 4096) large[n] += 1;
        getppid();
        for (long n = 0; n < SIZE; n += 4096) large[n] += 1;
        getppid();
        return large[SIZE / 2];
    }";

/// Runs up to the next call of getppid, which is served.
fn run_to_call(process: &mut Process) {
    loop {
        let events = process.position().event;
        assert_eq!(process.step().unwrap(), Step::Running);
        if process.position().event > events && at_call(process) {
            return;
        }
    }
}

/// Whether the call that was served last is getppid: libc loads its number right before.
fn at_call(process: &Process) -> bool {
    let mut code = [0; 7];
    let rip = process.cpu().regs().rip;
    process.read_memory(rip - 7, &mut code);
    code[..5] == [0xb8, 110, 0, 0, 0]
}

/// Prints what a checkpoint of 100 MB costs.
#[test]
#[ignore = "a measurement: cargo test -p vmm --test timeline -- --ignored --nocapture pause"]
fn pause_of_100_megabytes() {
    let Some(program) = compiled("large", LARGE, &[]) else { return };
    for kind in engines() {
        let gate = Box::new(Unrecorded(|_: &vmm::gate::AtExit<'_>| ()));
        let mut process = Process::start(machine(kind), gate, &launch(program.path())).unwrap();
        run_to_call(&mut process);
        let timed = |what: &str, process: &mut Process, act: &mut dyn FnMut(&mut Process)| {
            let before = Instant::now();
            act(process);
            println!("{:4} {what}: {:.2} ms", kind.name(), before.elapsed().as_secs_f64() * 1e3);
        };
        timed("100 MB stored to", &mut process, &mut run_to_call);
        let mut kept = None;
        timed("checkpoint", &mut process, &mut |process| kept = Some(process.checkpoint().unwrap()));
        let mut kept = kept.unwrap();
        timed("100 MB stored to behind it", &mut process, &mut run_to_call);
        timed("restore", &mut process, &mut |process| process.restore(&mut kept).unwrap());
        timed("release", &mut process, &mut |process| {
            let other = process.checkpoint().unwrap();
            process.release(other);
        });
        timed("100 MB stored to behind a restore", &mut process, &mut run_to_call);
    }
}
