//! A call as strace prints it: `openat(AT_FDCWD, "/etc/passwd", O_RDONLY|O_CLOEXEC) = 3`.
//!
//! A [`Line`] is begun when the call is, since what the kernel reads may change; it is finished with the result, when
//! what the kernel wrote can be read. Unlike strace, a line shows no names for dates and ages, most structures as `{...}`,
//! and entries of directories as an address.
//!
//! [`value`] prints numbers, [`memory`] what an argument points to, [`forms`] the structures, [`text`] strings.

mod forms;
mod memory;
pub mod text;
mod value;

use super::commands::{DUPFD, GETFD, GETFL};
use super::constants::{FD_FLAGS, OPEN};
use super::effects::{Known, Read, actual};
use super::errors;
use super::shape::{Call, Extent, Form, Kind, Returns};
use super::structs::POLLED;
use std::fmt::Write as _;
pub use value::signal;

/// Where strace puts the equals sign of a short line.
const RESULT_COLUMN: usize = 40;
/// As many bytes of a buffer as are shown.
pub const SHOWN: usize = 32;

/// A call that has begun.
#[derive(Debug)]
pub struct Line {
    number: u64,
    call: Option<&'static Call>,
    arguments: [u64; 6],
    /// The arguments as far as they can be shown at the beginning.
    entered: Vec<Option<String>>,
}

impl Line {
    /// Begins the line of call `number`, which reads its memory by `read`.
    #[must_use]
    pub fn begin(number: u64, arguments: [u64; 6], read: &Read<'_>) -> Line {
        let call = super::find(number);
        let mut line = Line { number, call, arguments, entered: Vec::new() };
        let known = line.known(None, read);
        line.entered = match call {
            Some(call) => (0..call.arguments.len()).map(|n| line.entered(n, &known)).collect(),
            None => arguments.iter().map(|argument| Some(format!("{argument:#x}"))).collect(),
        };
        line
    }

    /// The line with the call's result.
    #[must_use]
    pub fn finish(&self, result: u64, read: &Read<'_>) -> String {
        self.ended(&format!("{}({}", self.name(), self.shown(result, read).join(", ")), result, read)
    }

    /// The rest of a line of which the beginning was printed by [`Line::unfinished`].
    #[must_use]
    pub fn resume(&self, result: u64, read: &Read<'_>) -> String {
        let begun = self.begun().len();
        let rest = self.shown(result, read).split_off(begun);
        self.ended(&format!("<... {} resumed>{}", self.name(), rest.join(", ")), result, read)
    }

    /// The line of a call that has not returned, while something else happens.
    #[must_use]
    pub fn unfinished(&self) -> String {
        let begun = self.begun();
        let comma = if begun.is_empty() || begun.len() == self.entered.len() { "" } else { ", " };
        format!("{}({}{comma} <unfinished ...>", self.name(), begun.join(", "))
    }

    /// The line of a call that was served again, and has not returned yet.
    #[must_use]
    pub fn waits_on(&self) -> String {
        format!("<... {} resumed> <unfinished ...>", self.name())
    }

    /// The line of a call that does not return: exit, exit_group, or one that a signal ended together with its process.
    #[must_use]
    pub fn never(&self) -> String {
        let arguments: Vec<String> = self.ordered(|n| match &self.entered[n] {
            Some(shown) => shown.clone(),
            None => value::address(self.arguments[n]),
        });
        aligned(&format!("{}({}", self.name(), arguments.join(", "))) + "?"
    }

    fn name(&self) -> String {
        self.call.map_or_else(|| format!("syscall_{:#x}", self.number), |call| call.name.to_owned())
    }

    fn known<'a>(&self, result: Option<u64>, read: &'a Read<'a>) -> Known<'a> {
        Known { arguments: self.arguments.map(Some), result, read }
    }

    /// Argument `n` at the beginning; `None` if it is shown when the call has returned.
    fn entered(&self, n: usize, known: &Known<'_>) -> Option<String> {
        let call = self.call?;
        match actual(call.arguments[n].kind, known) {
            Kind::Out(_) => None,
            Kind::In(extent) | Kind::InOut(extent) => Some(memory::shown(extent, n, known)),
            // The time that was left is shown only after an interruption.
            Kind::Left(_) => None,
            kind => Some(value::shown(kind, self.arguments[n], known)),
        }
    }

    /// The arguments that can be shown before the call returns, up to the first that cannot.
    fn begun(&self) -> Vec<String> {
        self.entered.iter().map_while(Clone::clone).filter(|shown| !shown.is_empty()).collect()
    }

    /// The arguments of a call that returned.
    fn shown(&self, result: u64, read: &Read<'_>) -> Vec<String> {
        let Some(call) = self.call else { return self.begun() };
        let known = self.known(Some(result), read);
        let failed = errors::of(result).is_some();
        self.ordered(|n| match (actual(call.arguments[n].kind, &known), &self.entered[n]) {
            (Kind::Out(extent), _) if !failed => memory::shown(extent, n, &known),
            (Kind::Left(extent), _) if result == 0_u64.wrapping_sub(4) => memory::shown(extent, n, &known),
            (Kind::InOut(extent), Some(before)) if !failed => {
                self.changed(before, memory::shown(extent, n, &known), extent)
            }
            (_, Some(before)) => before.clone(),
            _ => value::address(self.arguments[n]),
        })
    }

    /// What the call read and wrote: both, if it is one number; what it wrote, of a lock; else what it read.
    fn changed(&self, before: &str, after: String, extent: Extent) -> String {
        let number = matches!(extent, Extent::Struct(shape) if matches!(shape.form, Form::Number(_)));
        if before == after {
            after
        } else if number {
            format!("{} => {}", before.trim_end_matches(']'), after.trim_start_matches('['))
        } else if self.call.is_some_and(|call| call.returns == Returns::Fcntl) {
            after
        } else {
            before.to_owned()
        }
    }

    /// The arguments in the order in which strace prints them, without those that the call does not look at.
    fn ordered(&self, shown: impl Fn(usize) -> String) -> Vec<String> {
        /// clone, whose arguments have labels.
        const CLONE: [(usize, &str); 5] =
            [(1, "child_stack="), (0, "flags="), (2, "parent_tid="), (4, "tls="), (3, "child_tidptr=")];
        let order: Vec<(usize, &str)> = match self.call {
            Some(call) if call.name == "clone" => CLONE.to_vec(),
            _ => (0..self.entered.len()).map(|n| (n, "")).collect(),
        };
        let arguments = order.into_iter().map(|(n, label)| (label, shown(n)));
        arguments
            .filter(|(_, shown)| !shown.is_empty())
            .map(|(label, shown)| format!("{label}{shown}"))
            .collect()
    }

    /// The line with its result behind it.
    fn ended(&self, line: &str, result: u64, read: &Read<'_>) -> String {
        aligned(line) + &self.result(result, read)
    }

    /// What stands behind the equals sign.
    fn result(&self, result: u64, read: &Read<'_>) -> String {
        if let Some(error) = errors::of(result) {
            return errors::shown(error);
        }
        let number = value::signed(result);
        match self.call.map_or(Returns::Int, |call| call.returns) {
            Returns::Int | Returns::Fd | Returns::Size => self.with_sets(number.to_string(), result, read),
            Returns::Address => format!("{result:#x}"),
            Returns::Mode => value::octal(result),
            Returns::Never => "?".to_owned(),
            Returns::Ready => self.with_ready(number.to_string(), result, read),
            Returns::Fcntl => match self.arguments[1] & 0xffff_ffff {
                GETFL => format!("{result:#x} (flags {})", value::flags(&OPEN, result)),
                GETFD if result != 0 => format!("{result:#x} (flags {})", value::flags(&FD_FLAGS, result)),
                command if DUPFD.contains(&command) => number.to_string(),
                _ => number.to_string(),
            },
        }
    }

    /// The result of poll and ppoll: which descriptors are ready.
    fn with_ready(&self, number: String, result: u64, read: &Read<'_>) -> String {
        if result == 0 {
            return number + " (Timeout)";
        }
        let mut ready = Vec::new();
        for n in 0..self.arguments[1].min(MOST_POLLED) {
            let mut bytes = [0; 8];
            if !read(self.arguments[0].wrapping_add(8 * n), &mut bytes) {
                return number;
            }
            if bytes[6..] != [0, 0] {
                ready.push(forms::shown(&POLLED, &bytes));
            }
        }
        let mut shown = format!("{number} ([{}]", ready.join(", "));
        self.add_time_left(&mut shown, 2, read);
        shown + ")"
    }

    /// The result of select and pselect6: the descriptors of each set that are ready.
    fn with_sets(&self, number: String, result: u64, read: &Read<'_>) -> String {
        let Some(call) = self.call.filter(|call| ["select", "pselect6"].contains(&call.name)) else {
            return number;
        };
        if result == 0 {
            return number + " (Timeout)";
        }
        let known = self.known(Some(result), read);
        let mut shown = String::new();
        for (n, name) in [(1, "in"), (2, "out"), (3, "except")] {
            let set = memory::shown(Extent::Bits(0), n, &known);
            if self.arguments[n] != 0 && set != "[]" {
                let comma = if shown.is_empty() { "" } else { ", " };
                write!(shown, "{comma}{name} {set}").expect("a string takes all");
            }
        }
        debug_assert!(call.arguments.len() > 4);
        self.add_time_left(&mut shown, 4, read);
        format!("{number} ({shown})")
    }

    /// Adds the time that was left, at argument `n`, if there was a limit.
    fn add_time_left(&self, shown: &mut String, n: usize, read: &Read<'_>) {
        let known = self.known(None, read);
        if let Some(Kind::InOut(extent)) = self.call.and_then(|call| call.arguments.get(n)).map(|of| of.kind)
            && self.arguments[n] != 0
        {
            write!(shown, ", left {}", memory::shown(extent, n, &known)).expect("a string takes all");
        }
    }
}

/// As many descriptors as are looked at for the result of poll.
const MOST_POLLED: u64 = 1024;

/// The line with its bracket closed, up to the equals sign.
fn aligned(line: &str) -> String {
    format!("{:<RESULT_COLUMN$}= ", format!("{line}) "))
}

#[cfg(test)]
mod tests;
