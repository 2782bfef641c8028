//! What the program asked for and was not given, or not as kernels give it: said once by name with the call that asked first, and counted
//! for the end.

use super::{Guest, Kernel, NO_CALLS, Outcome, Served, call_name, errno};
use crate::ram::Virt;
use crate::syscalls::call_error;
use crate::syscalls::show::Line;

/// Something that was not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// What, by name.
    pub what: String,
    /// What was answered instead: an error's name, or a signal's; empty where the call did something all the same.
    pub answer: String,
    /// The call that asked first, as `record --trace` shows it; the words behind pointers are shown for whole calls only.
    pub first: String,
    /// How often.
    pub times: u64,
}

impl Kernel {
    /// What was not served, in the order in which it was asked for first.
    pub(crate) fn unserved(&self) -> &[Unserved] {
        &self.unserved
    }

    /// Answers a system call that is not served; nothing is said of numbers that no kernel knows.
    pub(super) fn unknown(&mut self, guest: &Guest<'_>, number: u64) -> Served<Outcome> {
        if number < NO_CALLS {
            let read = |at: Virt, bytes: &mut [u8]| guest.space().read_original(guest.memory, at, bytes);
            let what = format!("system call {} ({number})", call_name(number));
            self.note(what, "ENOSYS".to_owned(), &read);
        }
        errno(libc::ENOSYS)
    }

    /// Answers a call that nobody in the guest may make.
    pub(super) fn forbid(&mut self, guest: &Guest<'_>, number: u64) -> Served<Outcome> {
        let read = |at: Virt, bytes: &mut [u8]| guest.space().read_original(guest.memory, at, bytes);
        self.note(format!("system call {} ({number})", call_name(number)), "EPERM".to_owned(), &read);
        errno(libc::EPERM)
    }

    /// Refuses what kernels do.
    pub(super) fn refuse(&mut self, what: &str, error: i32) -> Served {
        let named = call_error(super::word(-i64::from(error))).filter(|(_, name)| !name.is_empty());
        let answer = named.map_or_else(|| format!("error {error}"), |(_, name)| name.to_owned());
        self.note(what.to_owned(), answer, &|_, _| false);
        errno(error)
    }

    /// Notes a request of ioctl that is not served.
    pub(super) fn say_ioctl(&mut self, request: u64) {
        self.note(format!("ioctl {request:#x}"), "ENOTTY".to_owned(), &|_, _| false);
    }

    /// Notes what is not done as kernels do it.
    pub(super) fn say_once(&mut self, what: &str) {
        self.note(what.to_owned(), String::new(), &|_, _| false);
    }

    /// Notes why INT 0x80 is a fault.
    pub(crate) fn report_32_bit_call(&mut self) {
        let what = "INT 0x80, the system call of 32-bit programs,";
        self.note(what.to_owned(), "SIGSEGV".to_owned(), &|_, _| false);
    }

    /// Notes that a page of code is searched for machine reads no more.
    pub(crate) fn report_code_left_alone(&mut self) {
        self.say_once("code in a page that is written and executed in turns is searched for CPUID no more");
    }

    fn note(&mut self, what: String, answer: String, read: &dyn Fn(Virt, &mut [u8]) -> bool) {
        if let Some(known) = self.unserved.iter_mut().find(|known| known.what == what) {
            known.times += 1;
            return;
        }
        let (number, arguments) = self.called;
        let line = Line::begin(number, arguments, &read).never();
        let first = line.rsplit_once(')').map_or(line.as_str(), |(call, _)| call).to_owned() + ")";
        let said = match answer.as_str() {
            "" => format!("{what}; first at {first}"),
            answer => format!("{what} is not supported: {answer}; first at {first}"),
        };
        if !self.is_silent {
            tracing::warn!("{said}");
        }
        self.unserved.push(Unserved { what, answer, first, times: 1 });
    }
}
