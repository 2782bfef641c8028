//! A counter of the calling thread that is read without a system call: the protocol of the page that the kernel shares.
//!
//! Linux, include/uapi/linux/perf_event.h, the comment at `struct perf_event_mmap_page`: the counter's value is what the
//! page says plus what the processor's own counter holds, provided that the page did not change meanwhile.

use super::event::{Event, OpenError, Scope, What};
use super::sys::{self, Control, Mapping};
use std::fs::File;
use std::io;

/// The page of a counter, and the processor's counter behind it.
pub trait Page {
    /// Rises before and after each change of the page.
    fn sequence(&self) -> u32;
    /// One more than the processor's counter that has the event; zero: none has.
    fn index(&self) -> u32;
    /// What is to be added to the processor's counter.
    fn offset(&self) -> u64;
    /// The bits of the processor's counter, if this process may read it.
    fn width(&self) -> Option<u16>;
    /// The processor's counter.
    fn counter(&self, number: u32) -> u64;
}

/// Why a counter cannot be read without a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No counter of the processor has the event now: it is software's, or waits for its turn.
    #[error("no counter of the processor has the event: read it by a system call")]
    NotCounting,
    /// The kernel does not allow it.
    #[error("the kernel does not let processes read counters (/sys/bus/event_source/devices/cpu/rdpmc)")]
    Forbidden,
    /// The page says that a counter has more than 64 bits, or none.
    #[error("a counter of {0} bits cannot be")]
    Width(u16),
    /// The page never stands still.
    #[error("the page of the counter changes all the time")]
    Unstable,
}

/// How often a page that changes is read again. The kernel changes it when the thread is scheduled.
const TRIES: u32 = 1000;

/// Reads a counter by its page.
///
/// # Errors
/// When there is nothing to be read that way.
pub fn read<P: Page + ?Sized>(page: &P) -> Result<u64, Unreadable> {
    for _ in 0..TRIES {
        let before = page.sequence();
        let attempt = attempt(page);
        // Odd while the kernel is at it.
        if before.is_multiple_of(2) && page.sequence() == before {
            return attempt;
        }
    }
    Err(Unreadable::Unstable)
}

fn attempt<P: Page + ?Sized>(page: &P) -> Result<u64, Unreadable> {
    let (index, offset) = (page.index(), page.offset());
    let number = index.checked_sub(1).ok_or(Unreadable::NotCounting)?;
    let width = page.width().ok_or(Unreadable::Forbidden)?;
    if !(1..=64).contains(&width) {
        return Err(Unreadable::Width(width));
    }
    let surplus = 64 - u32::from(width);
    let counter = (page.counter(number) << surplus).cast_signed() >> surplus;
    Ok(offset.wrapping_add_signed(counter))
}

impl Page for Mapping {
    fn sequence(&self) -> u32 {
        Mapping::sequence(self)
    }

    fn index(&self) -> u32 {
        Mapping::index(self)
    }

    fn offset(&self) -> u64 {
        Mapping::offset(self)
    }

    fn width(&self) -> Option<u16> {
        self.rdpmc_width()
    }

    fn counter(&self, number: u32) -> u64 {
        self.rdpmc(number)
    }
}

/// A counter of the calling thread's user mode, with its page. It stays on its thread.
#[derive(Debug)]
pub struct SelfCounter {
    /// Open for as long as its page is used.
    _event: File,
    page: Mapping,
}

impl SelfCounter {
    /// Opens the counter and starts it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(what: What) -> Result<SelfCounter, OpenError> {
        let failed = |error: io::Error| OpenError::Other(error.to_string());
        let event = Event::counter(what, Scope::User).open(0, None, 0, false)?;
        let page = Mapping::new(&event, 0, false).map_err(failed)?;
        sys::control(&event, Control::Enable).map_err(failed)?;
        Ok(SelfCounter { _event: event, page })
    }

    /// Reads it without a system call.
    ///
    /// # Errors
    /// When it cannot be read that way.
    pub fn read(&self) -> Result<u64, Unreadable> {
        read(&self.page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    /// A page that the kernel changes after every so many accesses: each state with the value that it stands for.
    struct Changing {
        states: Vec<State>,
        every: u32,
        accesses: Cell<u32>,
    }

    #[derive(Clone, Copy, Debug)]
    struct State {
        index: u32,
        offset: u64,
        width: u16,
        counter: u64,
    }

    impl State {
        fn value(&self) -> u64 {
            let bits = u32::from(self.width);
            let sign = if bits < 64 && self.counter >> (bits - 1) & 1 != 0 { u64::MAX << bits } else { 0 };
            let low = if bits < 64 { self.counter & !(u64::MAX << bits) } else { self.counter };
            self.offset.wrapping_add(low | sign)
        }
    }

    impl Changing {
        /// One of `every` times the page is found in the middle of a change.
        fn access(&self) -> (u32, State) {
            let n = self.accesses.get();
            self.accesses.set(n + 1);
            let done = (n / self.every).min(u32::try_from(self.states.len()).unwrap() - 1);
            let changing = n % self.every == self.every - 1 && (done as usize) < self.states.len() - 1;
            (2 * done + u32::from(changing), self.states[done as usize + usize::from(changing)])
        }
    }

    impl Page for Changing {
        fn sequence(&self) -> u32 {
            self.access().0
        }
        fn index(&self) -> u32 {
            self.access().1.index
        }
        fn offset(&self) -> u64 {
            self.access().1.offset
        }
        fn width(&self) -> Option<u16> {
            Some(self.access().1.width)
        }
        fn counter(&self, number: u32) -> u64 {
            let state = self.access().1;
            if number + 1 == state.index { state.counter } else { u64::MAX / 3 }
        }
    }

    proptest! {
        /// However the page changes under the reader, what it gives is the value of one state.
        #[test]
        fn a_value_is_never_made_of_two_states(
            states in prop::collection::vec((1..4u32, any::<u64>(), 1..=64u16, any::<u64>()), 1..20),
            every in 1..12u32,
        ) {
            let states: Vec<State> = states
                .into_iter()
                .map(|(index, offset, width, counter)| State { index, offset, width, counter })
                .collect();
            let page = Changing { states, every, accesses: Cell::new(0) };
            let value = read(&page).unwrap();
            prop_assert!(page.states.iter().any(|state| state.value() == value));
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        let page = |index, width| Changing {
            states: vec![State { index, offset: 5, width, counter: 0xffff_ffff_fffe }],
            every: 1,
            accesses: Cell::new(0),
        };
        assert_eq!(read(&page(0, 48)), Err(Unreadable::NotCounting));
        assert_eq!(read(&page(1, 0)), Err(Unreadable::Width(0)));
        assert_eq!(read(&page(1, 65)), Err(Unreadable::Width(65)));
        assert_eq!(read(&page(1, 48)), Ok(3), "the counter holds -2");
        struct Restless(Cell<u32>);
        impl Page for Restless {
            fn sequence(&self) -> u32 {
                self.0.set(self.0.get() + 2);
                self.0.get()
            }
            fn index(&self) -> u32 {
                1
            }
            fn offset(&self) -> u64 {
                0
            }
            fn width(&self) -> Option<u16> {
                None
            }
            fn counter(&self, _number: u32) -> u64 {
                0
            }
        }
        assert_eq!(read(&Restless(Cell::new(0))), Err(Unreadable::Unstable));
    }
}
