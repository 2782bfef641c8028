//! Values of a program with the names and types of its source: what DWARF says of variables, read from registers and memory.
//!
//! | part | its task |
//! | --- | --- |
//! | [`info`] | the debug information of one module: its units, the functions at an address, the names of globals |
//! | [`split`] | what of it is in files of its own (`-gsplit-dwarf`) |
//! | [`lines`] | where statements begin: the line table by function, and by source line |
//! | [`scope`] | the variables that are in scope at an address |
//! | [`location`] | where a variable is: location lists, DWARF expressions, entry values |
//! | [`types`] | what a type is: its shape, its members, its name as C writes it |
//! | [`value`] | a type at a place: members, elements, what it points to |
//! | [`show`] | a value as a line of text |
//! | [`signature`] | what a function takes and gives, and where that is, by the rules of [`passing`] and by the code ([`spilled`]) |
//! | [`expression`] | `a->b[3]`, `*p`, `&x`, `$rax`, comparisons |
//!
//! Example: at `order->amount`, the expression `order` is a name. [`scope`] finds its entry in the innermost block that contains the
//! program counter, [`location`] says that it is in rdx there, [`types`] that it is a pointer to a structure, and `->amount` is the
//! eight bytes at 16 behind what rdx holds.
//!
//! Nothing is read before it is asked for, and damaged debug information gives `None` or a value that says why it has none.

mod expression;
mod info;
mod lines;
mod location;
mod passing;
mod scope;
mod show;
mod signature;
mod spilled;
mod split;
#[cfg(test)]
mod tests;
mod types;
mod value;

pub(crate) use expression::{evaluate, is_true, number, register_name};
pub(crate) use info::Info;
pub(crate) use lines::{Line, Lines, Statement};
pub(crate) use scope::{Function, Variable};
pub(crate) use show::{show, show_within};
pub(crate) use signature::{Plain, Signature};
pub(crate) use value::{Child, Value};

use std::rc::Rc;

/// The program that values are read from, and its stack.
pub(crate) trait World {
    /// Reads memory; false where not all of it is mapped.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// A frame of the stack, the innermost is 0. Frames are those of calls: what is inlined shares one.
    fn frame(&self, n: usize) -> Option<Frame>;
    /// The debug information of the module that an address is in.
    fn info(&self, address: u64) -> Option<Rc<Info>>;
    /// That of all modules that have some.
    fn infos(&self) -> Vec<Rc<Info>>;
    /// The function or object at an address, as `name+0x12`.
    fn name(&self, address: u64) -> Option<String>;
}

/// A call on the stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    /// Where it goes on.
    pub(crate) rip: u64,
    /// An address in the instruction that it executes, which is the call's where it has called.
    pub(crate) pc: u64,
    /// The stack pointer before it was called.
    pub(crate) cfa: Option<u64>,
    /// General registers and the return address by DWARF number (System V ABI for x86-64, figure 3.36), where they are known.
    pub(crate) general: [Option<u64>; 17],
    /// The lower halves of ymm0 to ymm15, which are known in the innermost frame alone: calls do not keep them.
    pub(crate) vector: Option<[u128; 16]>,
    /// The base of FS: thread-local variables are below it.
    pub(crate) fs_base: u64,
}
