//! Which rule holds where: each address is looked into once.

use super::ahead::Ahead;
use super::code::{Code, Part};
use super::heights::Heights;
use super::rule::Rule;
use super::tables::Tables;
use crate::elf::ElfError;
use crate::engine::Virt;
use crate::memory::layout::VDSO;
use crate::ram::PAGE;
use lbr::context::word;
use rustc_hash::FxHashMap;

/// How many places of the innermost function are kept: a program that makes code can be anywhere.
const MOST: usize = 1 << 16;

/// Names the rules of a place.
#[derive(Clone, Copy)]
pub(super) struct Which(usize);

/// What is at a return address.
#[derive(Clone, Copy)]
pub(super) enum Return {
    /// A call site, with the number that contexts give it.
    Site { id: u64, rules: Which },
    /// What a signal handler returns to.
    Signal,
}

pub(super) struct Rules {
    code: Code,
    tables: Tables,
    heights: Heights,
    ahead: Ahead,
    /// By the address inside the instruction that the innermost function is at.
    inner: FxHashMap<Virt, Which>,
    returns: FxHashMap<Virt, Return>,
    /// How to get to the caller, the likelier first: few different ones, for many places.
    all: Vec<[Rule; 2]>,
}

impl Rules {
    pub(super) fn new(executable: &[u8]) -> Result<Rules, ElfError> {
        let code = Code::parse(executable)?;
        let tables = Tables::parse(executable, code.bias());
        let (heights, ahead) = (Heights::default(), Ahead::default());
        let (inner, returns) = (FxHashMap::default(), FxHashMap::default());
        Ok(Rules { code, tables, heights, ahead, inner, returns, all: Vec::new() })
    }

    /// The rules.
    pub(super) fn get(&self, which: Which) -> &[Rule; 2] {
        &self.all[which.0]
    }

    /// The rules where the innermost function stands.
    pub(super) fn at(&mut self, rip: Virt, behind: bool) -> Which {
        let within = rip.wrapping_sub(u64::from(behind));
        if let Some(rules) = self.inner.get(&within) {
            return *rules;
        }
        let rules = self.named(within, Some(rip));
        if self.inner.len() == MOST {
            self.inner.clear();
        }
        self.inner.insert(within, rules);
        rules
    }

    /// What is at a return address; `None` if no call ends there, so that it is none.
    pub(super) fn returns_to(&mut self, address: Virt) -> Option<Return> {
        if let Some(known) = self.returns.get(&address) {
            return Some(*known);
        }
        let found = if self.code.is_signal_return(address) {
            Return::Signal
        } else {
            let call = self.code.call_before(address)?;
            let next = self.ahead.comes_back(&self.code, &call).then_some(address);
            Return::Site { id: word::id(address), rules: self.named(call.ip(), next) }
        };
        self.returns.insert(address, found);
        Some(found)
    }

    fn named(&mut self, within: Virt, next: Option<Virt>) -> Which {
        let rules = self.find(within, next);
        let known = self.all.iter().position(|known| *known == rules);
        Which(known.unwrap_or_else(|| {
            self.all.push(rules);
            self.all.len() - 1
        }))
    }

    /// The rules for a frame at the instruction around `within`, which goes on at `next` if it does.
    fn find(&mut self, within: Virt, next: Option<Virt>) -> [Rule; 2] {
        let only = |rule| [rule, Rule::Unknown];
        if (VDSO..VDSO + PAGE).contains(&within) {
            return only(Rule::LEAF);
        }
        let part = self.code.part(within);
        match (part, self.tables.rule(within)) {
            (Some((Part::Entry, ..)), _) => return only(Rule::Outermost),
            (_, Some(rule)) if rule != Rule::Unknown => return only(rule),
            _ if self.code.is_linkage(within) => return only(Rule::LEAF),
            _ => {}
        }
        let by_return = next.map_or(Rule::Unknown, |next| self.ahead.rule(&self.code, next));
        let Rules { code, heights, ahead, .. } = self;
        let mut height = |start, end| heights.rule(code, ahead, (start, end), within);
        // Where a function begins is certain by a symbol; without, its returns are more certain than its beginning.
        match part {
            Some((Part::Function, start, end)) => [height(start, end), by_return],
            Some((Part::Likely, start, end)) => [by_return, height(start, end)],
            _ => only(by_return),
        }
    }
}
