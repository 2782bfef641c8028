//! Panics: caught ones that unwind through frames with destructors, a poisoned lock, and one that ends the program with 101.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;

struct Noisy(&'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        println!("dropped {} {}", self.0, if std::thread::panicking() { "while panicking" } else { "in order" });
    }
}

#[inline(never)]
fn element(values: &[u32], at: usize) -> u32 {
    let _noisy = Noisy("frame");
    values[at]
}

fn main() {
    panic::set_hook(Box::new(|info| eprintln!("hook: {info}")));
    let lock = Mutex::new(5);
    let values = vec![1, 2, 3];
    for at in [1, 7] {
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            let mut guard = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            *guard += element(&values, at);
            *guard
        }));
        println!("{at}: {:?}, poisoned {}", result.map_err(|_| "panicked"), lock.is_poisoned());
    }
    let zero = std::env::args().count() as i32 - 1;
    let result = panic::catch_unwind(|| 10 / zero);
    println!("division: {}", result.is_err());
    let message = panic::catch_unwind(|| panic::panic_any(String::from("a payload"))).unwrap_err();
    println!("{:?}", message.downcast_ref::<String>());
    let _last = Noisy("last");
    let none: Option<u8> = None;
    println!("{}", none.expect("nothing is here"));
}
