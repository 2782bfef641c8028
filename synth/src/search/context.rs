//! The calls that the path runs under: found at their returns, or told by the contexts of crumbs; left at the calls.

use super::Search;
use std::rc::Rc;
use x86::op::BranchKind;

/// A call whose return the path has gone back through, and not yet the call itself.
pub(super) struct Context {
    pub(super) call: u64,
    pub(super) outer: Option<Rc<Context>>,
}

impl Search<'_> {
    /// The call that the present start runs under: found at its return, or told by the context of an exit; left at the call.
    pub(super) fn next_context(&mut self) -> Option<Rc<Context>> {
        self.context_at_exit().or_else(|| self.context_behind_newest())
    }

    fn context_behind_newest(&self) -> Option<Rc<Context>> {
        let frame = self.frames.last()?;
        if self.has_switched() {
            return self.context_of_entered();
        }
        let candidate = &frame.candidates[frame.next - 1];
        if candidate.is_of_signal() {
            // Nothing of what ran on the other side of it is known.
            return None;
        }
        let newest = &candidate.prepared;
        let next = self.hypothesis.path().last()?.next;
        match newest.branch {
            Some(BranchKind::Return) => {
                let call = self.cfg.call_before(next)?;
                Some(Rc::new(Context { call, outer: frame.context.clone() }))
            }
            Some(BranchKind::RelativeCall | BranchKind::IndirectCall) => {
                frame.context.as_ref()?.outer.clone()
            }
            // longjmp leaves any number of calls at once.
            Some(BranchKind::IndirectJump) if self.cfg.call_before(next).is_some() => None,
            // Records lead out of what the map has of the called function: through the dynamic linker to one that is called
            // for the first time.
            _ => frame.context.clone().filter(|context| self.cfg.is_inside(newest.address(), context.call)),
        }
    }

    /// The call that the present start runs under, if that is known.
    pub(super) fn context(&self) -> Option<Rc<Context>> {
        self.frames.last()?.context.clone()
    }
}
