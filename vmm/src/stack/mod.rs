//! The calls on the stack of a running program, fast enough to look at it at every exit.
//!
//! How to get from a frame to its caller is worked out once for each address and kept ([`rules`]): by the unwind tables
//! where the program has them ([`tables`]), else from its code: from the beginning of the function on ([`heights`]:
//! musl is compiled without tables), or from the frame on to a return ([`ahead`]: stripped programs without tables).
//! Of the executable the file itself is known; shared libraries, the dynamic linker, and a program that took the executable's place are
//! read from memory ([`module`]), as they are come to.
//! A walk either reaches the outermost function or says that it did not; every return address on the way must stand
//! behind a call.

mod ahead;
mod code;
mod heights;
mod module;
mod rule;
mod rules;
mod space;
mod tables;

pub use space::{MappedFile, Piece, Space, Words};

use crate::elf::ElfError;
use crate::engine::Virt;
use lbr::context::Site;
use rule::{Base, Rbp, Rule};
use rules::{Return, Rules};
use x86::state::Regs;

/// Stacks deeper than this are not walked.
const MAX_DEPTH: usize = 1 << 14;

/// Walks the stack of one program.
pub struct Walker {
    rules: Rules,
}

/// Where a program stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its next instruction.
    pub rip: Virt,
    /// Its stack pointer.
    pub rsp: Virt,
    /// Its frame pointer, if that is known.
    pub rbp: Option<Virt>,
    /// Whether the instruction before rip has just retired, as SYSCALL has, rather than that at rip being about to begin.
    pub behind: bool,
}

impl Place {
    /// About to begin an instruction.
    #[must_use]
    pub fn before(regs: &Regs) -> Place {
        Place { rip: regs.rip, rsp: regs.gpr[4], rbp: Some(regs.gpr[5]), behind: false }
    }

    /// Right behind a SYSCALL.
    #[must_use]
    pub fn behind(regs: &Regs) -> Place {
        Place { behind: true, ..Place::before(regs) }
    }
}

/// A function that has not returned yet.
#[derive(Clone, Copy)]
struct Frame {
    rsp: u64,
    rbp: Option<u64>,
}

impl Walker {
    /// For the program in `executable`, at the addresses where [`crate::process`] loads it.
    ///
    /// # Errors
    /// When it is not a program that can be run.
    pub fn new(executable: &[u8]) -> Result<Walker, ElfError> {
        Ok(Walker { rules: Rules::new(executable)? })
    }

    /// Puts the calls on the stack into `stack`, the innermost first. False if the walk does not reach the outermost function, or the
    /// signal handler that nobody called; what it has got to by then is in `stack`.
    pub fn walk(&mut self, place: Place, space: &dyn Space, stack: &mut Vec<Site>) -> bool {
        stack.clear();
        self.rules.enter(space);
        let mut rules = self.rules.at(space, place.rip, place.behind);
        let mut frame = Frame { rsp: place.rsp, rbp: place.rbp };
        'frames: while stack.len() < MAX_DEPTH {
            for n in 0..2 {
                let rule = self.rules.get(rules)[n];
                if rule == Rule::Outermost {
                    return true;
                }
                let Some((address, caller)) = frame.caller(rule, space) else { continue };
                match self.rules.returns_to(space, address) {
                    Some(Return::Site { id, rules: next }) => {
                        stack.push(Site { address, id, slot: caller.rsp - 8 });
                        (frame, rules) = (caller, next);
                        continue 'frames;
                    }
                    Some(Return::Signal) => return true,
                    None => {}
                }
            }
            return false;
        }
        false
    }
}

impl Frame {
    /// The return address and the caller's frame by `rule`, if that leads to one.
    fn caller(self, rule: Rule, space: &dyn Space) -> Option<(Virt, Frame)> {
        let Rule::Frame { base, offset, through, rbp: saved } = rule else { return None };
        let word = |address| space.word(address);
        let from = match base {
            Base::Rsp => self.rsp,
            Base::Rbp => self.rbp?,
        };
        let sum = from.wrapping_add_signed(offset.into());
        let rsp = if through { word(sum)? } else { sum };
        // The stack grows down, and the return address is the last thing below the caller's part.
        if rsp <= self.rsp || rsp < 8 {
            return None;
        }
        let rbp = match saved {
            Rbp::Same => self.rbp,
            Rbp::InFrame(offset) => word(rsp.wrapping_add_signed(offset.into())),
            Rbp::Pointed(offset) => self.rbp.and_then(|rbp| word(rbp.wrapping_add_signed(offset.into()))),
            Rbp::Lost => None,
        };
        Some((word(rsp - 8)?, Frame { rsp, rbp }))
    }
}
