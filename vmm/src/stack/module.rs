//! A file whose code runs: the executable itself, or one that is mapped, as it lies in memory.

use super::ahead::Ahead;
use super::code::{Code, Part};
use super::heights::Heights;
use super::rule::Rule;
use super::space::{MappedFile, Space};
use super::tables::Tables;
use crate::elf::{ElfError, Image};
use crate::engine::Virt;
use iced_x86::Instruction;

pub(super) struct Module {
    code: Code,
    tables: Tables,
    heights: Heights,
    ahead: Ahead,
}

impl Module {
    /// The executable, where it is loaded.
    pub(super) fn of_executable(bytes: &[u8]) -> Result<Module, ElfError> {
        let code = Code::parse(bytes)?;
        let tables = Tables::parse(bytes, code.bias());
        Ok(Module { code, tables, heights: Heights::default(), ahead: Ahead::default() })
    }

    /// A file as it lies in memory, without what is not loaded: its symbols and its section headers.
    pub(super) fn mapped(space: &dyn Space, file: &MappedFile<'_>) -> Option<Module> {
        let image = Image::mapped(&file.range, &|at, bytes| space.read(at, bytes)).ok()?;
        let read = |range: std::ops::Range<Virt>| {
            let mut bytes = vec![0; usize::try_from(range.end.checked_sub(range.start)?).ok()?];
            space.read(range.start, &mut bytes).then_some(bytes)
        };
        let tables = Tables::mapped(&image, &read);
        let code = Code::mapped(image.image, &read)?;
        Some(Module { code, tables, heights: Heights::default(), ahead: Ahead::default() })
    }

    /// What the kernel starts; zero if that is not said.
    pub(super) fn entry(&self) -> Virt {
        self.code.entry()
    }

    /// Whether its code is what is in memory.
    pub(super) fn is_in(&self, space: &dyn Space) -> bool {
        self.code.is_as(&|at, bytes| space.read(at, bytes))
    }

    /// Whether it has code at an address.
    pub(super) fn covers(&self, address: Virt) -> bool {
        self.code.covers(address)
    }

    /// Whether a signal handler returns to `address`.
    pub(super) fn is_signal_return(&self, address: Virt) -> bool {
        self.code.is_signal_return(address)
    }

    /// The call that ends right before `address`, and where it comes back to, if it does.
    pub(super) fn call_before(&mut self, address: Virt) -> Option<(Instruction, Option<Virt>)> {
        let call = self.code.call_before(address)?;
        let next = self.ahead.comes_back(&self.code, &call).then_some(address);
        Some((call, next))
    }

    /// The rules for a frame at the instruction around `within`, which goes on at `next` if it does.
    pub(super) fn find(&mut self, within: Virt, next: Option<Virt>) -> [Rule; 2] {
        let only = |rule| [rule, Rule::Unknown];
        let part = self.code.part(within);
        match (part, self.tables.rule(within)) {
            (Some((Part::Entry, ..)), _) => return only(Rule::Outermost),
            (_, Some(rule)) if rule != Rule::Unknown => return only(rule),
            _ if self.code.is_linkage(within) => return only(Rule::LEAF),
            _ => {}
        }
        let by_return = next.map_or(Rule::Unknown, |next| self.ahead.rule(&self.code, next));
        let Module { code, heights, ahead, .. } = self;
        let mut height = |start, end| heights.rule(code, ahead, (start, end), within);
        // Where a function begins is certain by a symbol; without, its returns are more certain than its beginning.
        match part {
            Some((Part::Function, start, end)) => [height(start, end), by_return],
            Some((Part::Likely, start, end)) => [by_return, height(start, end)],
            _ => only(by_return),
        }
    }
}
