//! The variables that are in scope at an address.

use super::info::{Die, Info};
use super::value::Value;
use super::{World, location};
use gimli::DwTag;
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// Blocks within blocks, and functions inlined into each other.
const DEEPEST: usize = 100;

/// A function of the source that an address belongs to: a compiled one, or one inlined there.
#[derive(Clone)]
pub(crate) struct Function {
    info: Rc<Info>,
    /// Its own entry, and the blocks in it that contain the address, the outermost first.
    blocks: Vec<Die>,
    variables: Rc<OnceCell<Vec<Variable>>>,
}

/// A variable or parameter.
#[derive(Clone)]
pub(crate) struct Variable {
    /// Its name.
    pub(crate) name: String,
    /// Whether it is a parameter.
    pub(crate) parameter: bool,
    info: Rc<Info>,
    die: Die,
}

impl Function {
    /// The functions at an address, the innermost inlined one first; the last is the compiled one.
    pub(crate) fn at(info: &Rc<Info>, pc: u64) -> Vec<Function> {
        let address = pc.wrapping_sub(info.bias);
        let Some(compiled) = info.function_at(address) else { return Vec::new() };
        let new = |die| Function { info: Rc::clone(info), blocks: vec![die], variables: Rc::default() };
        let mut functions = vec![new(compiled)];
        let mut block = compiled;
        for _ in 0..DEEPEST {
            let inner = info.children(block).into_iter().find(|(_, entry)| {
                is_block(entry.tag())
                    && info.ranges_of(block.unit, entry).iter().any(|range| range.contains(&address))
            });
            let Some((die, entry)) = inner else { break };
            match (entry.tag(), functions.last_mut()) {
                (gimli::DW_TAG_inlined_subroutine, _) | (_, None) => {
                    functions.push(new(die));
                }
                (_, Some(function)) => function.blocks.push(die),
            }
            block = die;
        }
        functions.reverse();
        functions
    }

    /// Its name in the source.
    pub(crate) fn name(&self) -> Option<String> {
        self.info.name_of(*self.blocks.first()?)
    }

    /// Parameters and local variables. Of those that have the same name, the innermost alone.
    pub(crate) fn variables(&self) -> &[Variable] {
        self.variables.get_or_init(|| self.find_variables())
    }

    fn find_variables(&self) -> Vec<Variable> {
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for block in self.blocks.iter().rev() {
            let of_block = self.info.children(*block).into_iter().filter_map(|(die, entry)| {
                let parameter = match entry.tag() {
                    gimli::DW_TAG_formal_parameter => true,
                    gimli::DW_TAG_variable => false,
                    _ => return None,
                };
                let name = self.info.name_of(die)?;
                Some(Variable { name, parameter, info: Rc::clone(&self.info), die })
            });
            let new: Vec<_> = of_block.filter(|variable| !seen.contains(&variable.name)).collect();
            seen.extend(new.iter().map(|variable| variable.name.clone()));
            // The outermost first, as the source has them.
            found.splice(0..0, new);
        }
        found
    }

    /// The variables of its compile unit that are not those of a function.
    pub(crate) fn globals(&self) -> Vec<Variable> {
        let Some(first) = self.blocks.first() else { return Vec::new() };
        let all = self.info.outside_functions(first.unit).into_iter();
        let variables = all.filter(|(tag, ..)| *tag == gimli::DW_TAG_variable);
        variables.filter_map(|(_, die, name)| Variable::global(&self.info, die, name)).collect()
    }
}

fn is_block(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block
    )
}

impl Variable {
    /// A global variable, if the entry says where it is.
    fn global(info: &Rc<Info>, die: Die, name: String) -> Option<Variable> {
        let has = |attribute| info.attribute(die, attribute).is_some();
        let is_there = has(gimli::DW_AT_location) || has(gimli::DW_AT_const_value);
        is_there.then(|| Variable { name, parameter: false, info: Rc::clone(info), die })
    }

    /// Whether the unit that contains `pc` has a global variable of this name.
    pub(crate) fn is_of_unit(info: &Rc<Info>, pc: u64, name: &str) -> bool {
        let Some(unit) = info.unit_at(pc.wrapping_sub(info.bias)) else { return false };
        let is_variable = |(tag, die): &(DwTag, Die)| *tag == gimli::DW_TAG_variable && die.unit == unit;
        let mut here = info.named(name).iter().filter(|it| is_variable(it));
        here.any(|(_, die)| Variable::global(info, *die, name.to_owned()).is_some())
    }

    /// The global variable, or function, of this name: of the unit that contains `pc`, else of that module, else of another.
    pub(crate) fn named(world: &dyn World, pc: u64, name: &str) -> Option<Variable> {
        let own = world.info(pc);
        let unit = own.as_ref().and_then(|info| info.unit_at(pc.wrapping_sub(info.bias)));
        let find = |info: &Rc<Info>, unit: Option<usize>| {
            let here = info.named(name).iter().filter(|(_, die)| unit.is_none_or(|unit| unit == die.unit));
            here.clone()
                .filter(|(tag, _)| *tag == gimli::DW_TAG_variable)
                .chain(here.filter(|(tag, _)| *tag == gimli::DW_TAG_subprogram))
                .find_map(|(tag, die)| match *tag {
                    gimli::DW_TAG_variable => Variable::global(info, *die, name.to_owned()),
                    _ => Some(Variable {
                        name: name.to_owned(),
                        parameter: false,
                        info: Rc::clone(info),
                        die: *die,
                    }),
                })
        };
        let in_own = own.as_ref().and_then(|info| find(info, unit).or_else(|| find(info, None)));
        in_own.or_else(|| world.infos().iter().find_map(|info| find(info, None)))
    }

    /// Its value in a frame.
    pub(crate) fn value(&self, world: &dyn World, frame: usize) -> Value {
        location::value(world, frame, &self.info, self.die)
    }
}
