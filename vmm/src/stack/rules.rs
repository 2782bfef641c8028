//! Which rule holds where: each address is looked into once.
//!
//! What lies at an address depends on which files are mapped: what was found is kept by that ([`Layout`]), so that a program that
//! becomes another one, or one process beside another, is not taken for what ran there before.

use super::module::Module;
use super::rule::Rule;
use super::space::Space;
use crate::elf::ElfError;
use crate::engine::Virt;
use crate::memory::layout::VDSO;
use crate::ram::PAGE;
use lbr::context::word;
use rustc_hash::FxHashMap;
use std::ops::Range;

/// How many places of the innermost function are kept: a program that makes code can be anywhere.
const MOST: usize = 1 << 16;
/// How many layouts are.
const MOST_LAYOUTS: usize = 8;

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
    executable: Module,
    /// What was mapped where the executable is, and whether that was itself.
    compared: Vec<(Range<Virt>, String, bool)>,
    /// The other files, each with where it is mapped; those that are no programs have nothing.
    mapped: Vec<(Range<Virt>, String, Option<Module>)>,
    /// The newest last.
    layouts: Vec<Layout>,
    /// How to get to the caller, the likelier first: few different ones, for many places.
    all: Vec<[Rule; 2]>,
}

/// What is known while the same code is mapped.
struct Layout {
    number: u64,
    /// The executable's own code is there.
    executable: bool,
    /// By the address inside the instruction that the innermost function is at.
    inner: FxHashMap<Virt, Which>,
    returns: FxHashMap<Virt, Return>,
}

impl Rules {
    pub(super) fn new(executable: &[u8]) -> Result<Rules, ElfError> {
        let executable = Module::of_executable(executable)?;
        let (compared, mapped, layouts, all) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Ok(Rules { executable, compared, mapped, layouts, all })
    }

    /// Goes over to what is mapped now.
    pub(super) fn enter(&mut self, space: &dyn Space) {
        let number = space.layout();
        if self.layouts.last().is_some_and(|layout| layout.number == number) {
            return;
        }
        let known = self.layouts.iter().position(|layout| layout.number == number);
        let layout = known.map(|at| self.layouts.remove(at));
        let layout = layout.unwrap_or_else(|| Layout {
            number,
            executable: self.is_executable_in(space),
            inner: FxHashMap::default(),
            returns: FxHashMap::default(),
        });
        if self.layouts.len() == MOST_LAYOUTS {
            self.layouts.remove(0);
        }
        self.layouts.push(layout);
    }

    /// Whether the executable is where it would be. Where no files are known, nothing else can be.
    fn is_executable_in(&mut self, space: &dyn Space) -> bool {
        let Some(file) = space.file(self.executable.entry()) else { return true };
        let same =
            |(range, name, _): &&(Range<Virt>, String, bool)| *range == file.range && name == file.name;
        if let Some((.., known)) = self.compared.iter().find(same) {
            return *known;
        }
        let found = self.executable.is_in(space);
        self.compared.push((file.range.clone(), file.name.to_owned(), found));
        found
    }

    fn layout(&mut self) -> &mut Layout {
        self.layouts.last_mut().expect("it was entered")
    }

    /// The rules.
    pub(super) fn get(&self, which: Which) -> &[Rule; 2] {
        &self.all[which.0]
    }

    /// The rules where the innermost function stands.
    pub(super) fn at(&mut self, space: &dyn Space, rip: Virt, behind: bool) -> Which {
        let within = rip.wrapping_sub(u64::from(behind));
        if let Some(rules) = self.layout().inner.get(&within) {
            return *rules;
        }
        let rules = self.find(space, within, Some(rip));
        let rules = self.named(rules);
        let inner = &mut self.layout().inner;
        if inner.len() == MOST {
            inner.clear();
        }
        inner.insert(within, rules);
        rules
    }

    /// What is at a return address; `None` if no call ends there, so that it is none.
    pub(super) fn returns_to(&mut self, space: &dyn Space, address: Virt) -> Option<Return> {
        if let Some(known) = self.layout().returns.get(&address) {
            return Some(*known);
        }
        let module = self.module(space, address)?;
        let found = if module.is_signal_return(address) {
            Return::Signal
        } else {
            let (call, next) = module.call_before(address)?;
            let rules = self.find(space, call.ip(), next);
            Return::Site { id: word::id(address), rules: self.named(rules) }
        };
        self.layout().returns.insert(address, found);
        Some(found)
    }

    fn named(&mut self, rules: [Rule; 2]) -> Which {
        let known = self.all.iter().position(|known| *known == rules);
        Which(known.unwrap_or_else(|| {
            self.all.push(rules);
            self.all.len() - 1
        }))
    }

    /// The rules for a frame at the instruction around `within`, which goes on at `next` if it does.
    fn find(&mut self, space: &dyn Space, within: Virt, next: Option<Virt>) -> [Rule; 2] {
        if (VDSO..VDSO + PAGE).contains(&within) {
            return [Rule::LEAF, Rule::Unknown];
        }
        self.module(space, within).map_or([Rule::Unknown; 2], |module| module.find(within, next))
    }

    /// The file whose code is at an address. Of the executable the file itself is known, with all that it says.
    fn module(&mut self, space: &dyn Space, address: Virt) -> Option<&mut Module> {
        if self.layout().executable && self.executable.covers(address) {
            return Some(&mut self.executable);
        }
        let file = space.file(address)?;
        let known = self.mapped.iter().position(|(range, name, _)| *range == file.range && name == file.name);
        let at = known.unwrap_or_else(|| {
            let module = Module::mapped(space, &file);
            self.mapped.push((file.range.clone(), file.name.to_owned(), module));
            self.mapped.len() - 1
        });
        self.mapped[at].2.as_mut().filter(|module| module.covers(address))
    }
}
