//! Travelling: what is looked for is found where single steps see it, forwards and backwards.

use crate::harness::{compiled, engines, machine};
use std::sync::atomic::Ordering;
use std::time::Instant;
use vmm::engine::EngineKind;
use vmm::engine::lookout::{Access, Lookout, Watch};
use vmm::position::Position;
use vmm::ram::Virt;
use vmm::recording::Recording;
use vmm::travel::{Stop, Travel};

/// The eight bytes that are watched.
const SLOT: Virt = 0x1000_0100;
/// Stores to them in [`STORES`], and of these by a system call (the page is mapped, and read into), with no effect, and by each turn
/// of the loop.
const WRITES: usize = 8 + TURNS;
const BY_CALL: usize = 2;
const WITHOUT_EFFECT: usize = 3;
const TURNS: usize = 20;
/// Loads of them.
const READS: usize = 2 + TURNS;

/// Stores to the slot in every way, and beside it, with other tasks on the same page.
const STORES: &str = r#"
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        char *page = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        char *slot = page + 0x100;
        int pipes[2];
        pipe(pipes);
        write(pipes[1], "12345678", 8);
        asm volatile("movq $5, (%0)" :: "r"(slot) : "memory");
        asm volatile("movq $5, (%0)" :: "r"(slot) : "memory");
        asm volatile("movb $6, 8(%0); movb $6, -1(%0)" :: "r"(slot) : "memory");
        asm volatile("movq $-1, -4(%0)" :: "r"(slot) : "memory");
        if (fork() == 0) { *(volatile long *)slot = 99; _exit(0); }
        wait(0);
        read(pipes[0], slot, 8);
        for (int n = 0; n < 20; n++) asm volatile("addb $1, 3(%0)" :: "r"(slot) : "memory");
        asm volatile("movups (%0), %%xmm3; movups %%xmm3, 4(%0)" :: "r"(slot) : "memory", "xmm3");
        long count = 0x40, to = (long)slot - 0x20;
        asm volatile("rep stosb" : "+c"(count), "+D"(to) : "a"(7) : "memory");
        asm volatile("cmpb $9, 7(%0)" :: "r"(slot) : "cc");
        asm volatile("lock; xaddq %%rax, 8(%0); movq %%rax, (%0)" :: "r"(slot) : "rax", "memory");
        return page[0x20];
    }"#;

fn watching(access: Access) -> Lookout {
    Lookout { at: Vec::new(), data: vec![Watch { range: SLOT..SLOT + 8, access }] }
}

/// Where a program is, and what the slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    position: Position,
    rip: Virt,
    slot: [u8; 8],
}

fn seen(travel: &Travel) -> Seen {
    let mut slot = [0; 8];
    travel.process().read_memory(SLOT, &mut slot);
    Seen { position: travel.position(), rip: travel.process().cpu().regs().rip, slot }
}

/// All stops on the way to the end or the beginning.
fn stops(travel: &mut Travel, lookout: &Lookout, back: bool) -> Vec<(Stop, Seen)> {
    let mut found = Vec::new();
    loop {
        match if back { travel.backward(lookout) } else { travel.forward(lookout) }.unwrap() {
            Stop::Begin | Stop::End => return found,
            stop => found.push((stop, seen(travel))),
        }
    }
}

fn open(recording: &Recording, kind: EngineKind) -> Travel {
    Travel::open(recording, machine(kind)).unwrap()
}

#[test]
fn writes_are_found_where_single_steps_see_them_forwards_and_backwards() {
    let Some(program) = compiled("stores", STORES, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        let forwards = stops(&mut travel, &watching(Access::Write), false);
        let by_call = forwards.iter().filter(|(stop, _)| matches!(stop, Stop::Changed(_))).count();
        assert_eq!((forwards.len(), by_call), (WRITES, BY_CALL), "{forwards:x?}");

        // From just before the first write, one instruction at a time.
        let pid = travel.followed();
        travel.seek(forwards[0].1.position).unwrap();
        travel.step_back().unwrap();
        let mut changes = Vec::new();
        let mut before = seen(&travel);
        while travel.step().unwrap() == Stop::There {
            let now = seen(&travel);
            if travel.process().pid() == pid && now.slot != before.slot {
                changes.push(now);
            }
            before = now;
        }
        let found: Vec<Seen> = forwards.iter().map(|(_, seen)| *seen).collect();
        assert_eq!(changes.len(), WRITES - WITHOUT_EFFECT);
        assert!(changes.iter().all(|change| found.contains(change)), "{changes:x?} {found:x?}");

        travel.seek_end().unwrap();
        let mut backwards = stops(&mut travel, &watching(Access::Write), true);
        backwards.reverse();
        let whats = |stops: &[(Stop, Seen)]| stops.iter().map(|(stop, _)| *stop).collect::<Vec<_>>();
        assert_eq!(whats(&backwards), whats(&forwards));
        for ((stop, before), (_, after)) in backwards.iter().zip(&forwards) {
            assert!(before.position < after.position);
            if let Stop::Accessed(accessed) = stop {
                assert_eq!(before.rip, accessed.rip, "it is about to run");
            }
            travel.seek(before.position).unwrap();
            travel.step().unwrap();
            assert_eq!(seen(&travel), *after);
        }
    }
}

#[test]
fn reads_are_found_and_no_other_access() {
    let Some(program) = compiled("stores", STORES, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        let reads = stops(&mut travel, &watching(Access::Read), false);
        assert_eq!(reads.len(), READS, "{reads:x?}");
        assert!(reads.iter().all(|(stop, _)| matches!(stop, Stop::Accessed(it) if !it.writes)));
        let mut travel = open(&recording, kind);
        // An instruction that does both is one stop.
        assert_eq!(stops(&mut travel, &watching(Access::Any), false).len(), WRITES + READS - TURNS);
    }
}

#[test]
fn breakpoints_stop_as_often_in_both_directions() {
    let Some(program) = compiled("stores", STORES, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        let writes = stops(&mut travel, &watching(Access::Write), false);
        let of_loop = writes.iter().find_map(|(stop, _)| match stop {
            Stop::Accessed(it) if writes.iter().filter(|(other, _)| other == stop).count() == TURNS => {
                Some(it.rip)
            }
            _ => None,
        });
        let at = of_loop.expect("the loop's store is one instruction");
        // One behind it, too, and one where nothing is executed.
        let mut addresses = vec![at, at + 1, writes[0].1.rip];
        addresses.sort_unstable();
        let lookout = Lookout { at: addresses, data: Vec::new() };
        travel.seek(travel.begin()).unwrap();
        let forwards = stops(&mut travel, &lookout, false);
        assert_eq!(forwards.len(), TURNS + 1);
        let mut backwards = stops(&mut travel, &lookout, true);
        backwards.reverse();
        assert_eq!(backwards, forwards);

        // Who asks for a stop on the way back gets no hit that may not be the last, and stays.
        travel.seek_end().unwrap();
        let end = seen(&travel);
        travel.asks().store(true, Ordering::Relaxed);
        assert_eq!(travel.backward(&lookout).unwrap(), Stop::Asked);
        assert_eq!(seen(&travel), end);
        assert!(matches!(travel.backward(&lookout).unwrap(), Stop::Breakpoint(_)));
    }
}

#[test]
fn steps_back_are_the_steps_forwards_in_reverse() {
    let Some(program) = compiled("stores", STORES, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        travel.seek_end().unwrap();
        let last = stops(&mut travel, &watching(Access::Write), true).pop().map(|(_, seen)| seen.position);
        travel.seek(last.expect("it is written")).unwrap();
        let task = travel.process().thread();
        let mut steps = vec![seen(&travel)];
        while steps.len() < 200 && travel.step().unwrap() == Stop::There {
            assert_eq!(travel.process().thread(), task);
            steps.push(seen(&travel));
        }
        while let Some(expected) = steps.pop() {
            assert_eq!(seen(&travel), expected, "{} left", steps.len());
            if !steps.is_empty() {
                travel.step_back().unwrap();
            }
        }
    }
}

/// Counts in the slot and beside it.
const COUNTS: &str = r#"
    #include <sys/mman.h>
    int main(void) {
        volatile long *slot = mmap((void *)0x10000000, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        slot += 0x20;
        for (long n = 1; n <= 60000; n++) { if (n <= 50000) slot[0] = n; slot[n % 50 + 1] = n; }
        return 0;
    }"#;

#[test]
fn of_many_writes_the_last_is_found_and_before_it_the_one_before() {
    let Some(program) = compiled("counts", COUNTS, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        travel.seek_end().unwrap();
        for before in (49_996..50_000_u64).rev() {
            let stop = travel.backward(&watching(Access::Write)).unwrap();
            assert!(matches!(stop, Stop::Accessed(it) if it.writes && it.address == SLOT), "{stop:?}");
            assert_eq!(u64::from_le_bytes(seen(&travel).slot), before);
        }
    }
}

/// Computes for a second without a call, and crashes.
const LONG: &str = r"
    #include <unistd.h>
    int main(void) {
        volatile long sum = 0;
        getppid();
        for (long n = 0; n < 150000000; n++) sum += n;
        return *(volatile int *)8;
    }";

#[test]
fn a_step_back_into_a_long_computation_leaves_checkpoints_all_over_it() {
    let Some(program) = compiled("long", LONG, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = Travel::open(&recording, machine(kind)).unwrap();
        // Under KVM the end is reached sooner than the software CPU comes to the middle.
        travel.seek_end().unwrap();
        assert_eq!(travel.step_back().unwrap(), Stop::There);
        let here = travel.position();
        assert!(here.retired > 100_000_000, "{here}");
        let inside = travel.timeline().checkpoints().filter(|at| at.event == here.event);
        let newest = inside.max().expect("one at its beginning");
        assert!(
            newest.retired > here.retired / 4 * 3,
            "{newest} is the newest before {here}: {}",
            kind.name()
        );
    }
}

/// Whether there is a checkpoint far inside of the computation that ends here.
fn is_near(travel: &Travel) -> bool {
    let here = travel.position();
    let inside = travel.timeline().checkpoints().filter(|at| at.event + 1 == here.event);
    inside.max().is_some_and(|newest| newest.retired > 300_000_000)
}

#[test]
fn getting_ready_for_a_step_back_changes_nothing_and_makes_it_short() {
    let Some(program) = compiled("long", LONG, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        travel.seek_end().unwrap();
        let stands = |travel: &Travel| (seen(travel), travel.ended(), travel.process().death());
        let end = stands(&travel);
        assert!(end.1 && end.2.is_some(), "{end:?}");
        // Who asks for a stop gets it, and the place is the same.
        travel.asks().store(true, Ordering::Relaxed);
        travel.prepare().unwrap();
        assert_eq!(stands(&travel), end, "{}", kind.name());
        travel.prepare().unwrap();
        assert_eq!(stands(&travel), end, "{}", kind.name());
        assert!(is_near(&travel), "{}", kind.name());
        assert_eq!(travel.step_back().unwrap(), Stop::There);
        travel.seek_end().unwrap();
        assert_eq!(stands(&travel), end, "{}", kind.name());
    }
}

#[test]
fn a_segment_is_counted_once() {
    let Some(program) = compiled("long", LONG, &[]) else { return };
    // The software CPU has counted it on the way to the end.
    for kind in engines().into_iter().filter(|kind| *kind == EngineKind::Kvm) {
        let recording = program.record(kind, &[]);
        // The second step back is short, unless something else was at work just then.
        let mut tried = Vec::new();
        let is_short = (0..5).any(|_| {
            let mut travel = open(&recording, kind);
            let times = [(); 2].map(|()| {
                travel.seek_end().unwrap();
                let before = Instant::now();
                assert_eq!(travel.step_back().unwrap(), Stop::There);
                let took = before.elapsed();
                travel.seek(travel.begin()).unwrap();
                took
            });
            tried.push(times);
            times[1] * 3 < times[0]
        });
        assert!(is_short, "{tried:?} on {}", kind.name());
    }
}

#[test]
fn what_nobody_counted_is_not_told_as_a_count_since_the_start() {
    let Some(program) = compiled("stores", STORES, &[]) else { return };
    for kind in engines() {
        let recording = program.record(kind, &[]);
        let mut travel = open(&recording, kind);
        travel.seek_end().unwrap();
        travel.step_back().unwrap();
        let counts_all = kind == EngineKind::Soft;
        assert_eq!(travel.process().counts_late(), !counts_all, "{}", kind.name());
        // A checkpoint that was kept under KVM has no count, whichever processor goes on from it.
        travel.seek(travel.begin()).unwrap();
        travel.step().unwrap();
        assert_eq!(travel.process().counts_late(), !counts_all, "{}", kind.name());
    }
}
