//! Threads as Rust's standard library has them: channels, scoped threads, mutexes and condition variables, read-write locks,
//! a barrier, atomics with a spin loop, thread-local values, a panic that is caught by join, parking.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, RwLock, mpsc};
use std::thread;
use std::time::Duration;

thread_local! {
    static MINE: Cell<u64> = const { Cell::new(1) };
}

fn collatz(start: u64) -> u32 {
    let mut n = start;
    let mut steps = 0;
    while n != 1 {
        n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
        steps += 1;
    }
    steps
}

fn channels() {
    let (send, receive) = mpsc::channel();
    let workers: Vec<_> = (0..4)
        .map(|worker| {
            let send = send.clone();
            thread::spawn(move || {
                for start in (1 + worker..2000).step_by(4) {
                    send.send((start, collatz(start))).expect("there is a receiver");
                }
                MINE.with(|mine| mine.replace(worker) + worker)
            })
        })
        .collect();
    drop(send);
    let all: HashMap<u64, u32> = receive.iter().collect();
    let longest = all.iter().max_by_key(|&(start, steps)| (*steps, *start)).expect("some");
    let results: Vec<u64> = workers.into_iter().map(|worker| worker.join().expect("no panic")).collect();
    println!("{} paths, the longest {longest:?}; {results:?}, mine {}", all.len(), MINE.get());
    let (send, receive) = mpsc::sync_channel(2);
    let producer = thread::spawn(move || (0..100_u64).try_for_each(|n| send.send(n * n)));
    let sum: u64 = receive.iter().take(50).sum();
    drop(receive);
    println!("bounded {sum}, the rest {:?}", producer.join().expect("no panic").map_err(|error| error.0 > 0));
}

fn scoped() {
    let mut values: Vec<u64> = (0..1000).map(|n| n * 7919 % 1009).collect();
    let (low, high) = values.split_at_mut(500);
    thread::scope(|scope| {
        scope.spawn(|| low.sort_unstable());
        scope.spawn(|| high.sort_unstable_by(|a, b| b.cmp(a)));
    });
    println!("{:?} {:?}", &values[..5], &values[500..505]);
}

fn turns() {
    let turn = Arc::new((Mutex::new(0_u32), Condvar::new()));
    let log = Arc::new(Mutex::new(String::new()));
    let players: Vec<_> = (0..3)
        .map(|player| {
            let (turn, log) = (Arc::clone(&turn), Arc::clone(&log));
            thread::spawn(move || {
                for _ in 0..5 {
                    let (lock, changed) = &*turn;
                    let mut at = changed.wait_while(lock.lock().unwrap(), |at| *at % 3 != player).unwrap();
                    log.lock().unwrap().push(char::from(b'a' + player as u8));
                    *at += 1;
                    changed.notify_all();
                }
            })
        })
        .collect();
    players.into_iter().for_each(|player| player.join().unwrap());
    println!("{}", log.lock().unwrap());
    let never = Condvar::new();
    let waited = never.wait_timeout(turn.0.lock().unwrap(), Duration::from_millis(5)).unwrap();
    println!("timed out: {}", waited.1.timed_out());
}

fn spinning() {
    let (flag, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let barrier = Barrier::new(3);
    let table = RwLock::new(vec![0; 3]);
    thread::scope(|scope| {
        for n in 0..2 {
            let (flag, count, barrier, table) = (&flag, &count, &barrier, &table);
            scope.spawn(move || {
                barrier.wait();
                while !flag.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                table.write().unwrap()[n] = count.fetch_add(10, Ordering::SeqCst) / 10 + 1;
            });
        }
        barrier.wait();
        flag.store(true, Ordering::Release);
    });
    let table = table.into_inner().unwrap();
    println!("spun: {} {}", count.into_inner(), table.iter().sum::<u64>());
}

fn ends() {
    static ONCE: Once = Once::new();
    std::panic::set_hook(Box::new(|_| {}));
    let panicked = thread::spawn(|| {
        ONCE.call_once(|| ());
        panic!("on purpose")
    });
    let why = panicked.join().expect_err("it panics");
    println!("joined: {:?}, once {}", why.downcast_ref::<&str>(), ONCE.is_completed());
    let parked = thread::Builder::new().name("parked".into()).spawn(|| {
        thread::park();
        thread::current().name().map(str::to_owned)
    });
    let parked = parked.expect("a thread");
    thread::sleep(Duration::from_millis(2));
    parked.thread().unpark();
    println!("{:?}", parked.join().expect("no panic"));
}

fn main() {
    channels();
    scoped();
    turns();
    spinning();
    ends();
}
