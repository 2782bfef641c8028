//! Names of addresses: kallsyms (kernel/kallsyms.c), and those of the modules that are loaded (kernel/module).
//!
//! Kallsyms is in order of addresses. A name is a length and that many tokens, each of which is a piece of text; the first character is
//! the kind, as nm has it. Example: 3 tokens, `Tdo_`, `sys`, `call_64`: `do_syscall_64`, code that is seen everywhere.

use super::info::Info;
use super::kallsyms::{LONGEST_NAME, Table, name_length};
use super::space::{Bytes, Space};
use super::types::{Struct, Types};
use std::collections::HashMap;
use std::ops::Range;

/// More modules, or names of one module, are damage.
const MOST_MODULES: usize = 4096;
const MOST_OF_MODULE: u64 = 1 << 17;

/// A symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Symbol {
    address: u64,
    name: String,
}

/// A module in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    name: String,
    /// Where its parts are: first addresses and lengths.
    parts: Vec<(u64, u64)>,
    /// Those of them that are code.
    code: Vec<Range<u64>>,
    /// Its functions, in order of their addresses.
    functions: Vec<Symbol>,
    /// Where its ORC tables are (addresses, entries), and how many entries these have.
    pub(super) orc: Option<(u64, u64, u64)>,
}

impl Module {
    /// Where its data are: its parts, without the code that one may begin with.
    fn data(&self) -> impl Iterator<Item = Range<u64>> {
        self.parts.iter().filter_map(|&(start, size)| {
            let code = self.code.iter().find(|code| code.start == start);
            let data = code.map_or(start, |code| code.end)..start.saturating_add(size);
            (!data.is_empty()).then_some(data)
        })
    }
}

/// All names.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    /// The kernel's own functions, in order of their addresses.
    functions: Vec<Symbol>,
    by_name: HashMap<String, u64>,
    /// Where its code is.
    code: Vec<Range<u64>>,
    modules: Vec<Module>,
    /// Why modules are not known, or not all of them.
    pub without_modules: Option<String>,
}

/// A place in code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place<'s> {
    /// The function.
    pub function: &'s str,
    /// How far behind its beginning.
    pub offset: u64,
    /// The module that it is in, if it is not the kernel itself.
    pub module: Option<&'s str>,
}

impl Symbols {
    /// Reads kallsyms.
    pub(super) fn read(space: &Space<'_>, info: &Info<'_>) -> Result<Symbols, String> {
        let table = Table::of(space, info)?;
        let (tokens, offsets) = (table.tokens(space)?, table.offsets(space)?);
        let base = table.base.map(|at| space.long(at).ok_or("kallsyms_relative_base is not in memory"));
        let base = base.transpose()?;
        let mut names = Names { bytes: Bytes::new(space, table.names), tokens };
        let all = offsets.iter().map(|_| names.next()).collect::<Option<Vec<_>>>();
        let all = all.ok_or("the names of kallsyms are not in order")?;
        let address = addresses(info, base, table.offsets, &all, &offsets)?;
        let mut symbols = Symbols::default();
        for (n, ((kind, name), offset)) in (0..).zip(all.into_iter().zip(&offsets)) {
            let address = address(n, *offset);
            symbols.by_name.entry(name.clone()).or_insert(address);
            if matches!(kind, b't' | b'T' | b'w' | b'W') {
                symbols.functions.push(Symbol { address, name });
            }
        }
        let parts = [("_stext", "_etext"), ("_sinittext", "_einittext")];
        let part = |(start, end)| Some(symbols.address(start)?..symbols.address(end)?);
        symbols.code = parts.into_iter().filter_map(part).collect();
        symbols.functions.sort_by_key(|symbol| symbol.address);
        Ok(symbols)
    }

    /// Adds what is in modules, as far as that can be read.
    pub(super) fn add_modules(&mut self, space: &Space<'_>, types: &Types) {
        match modules(space, self, types) {
            Ok((modules, why)) => (self.modules, self.without_modules) = (modules, why),
            Err(why) => self.without_modules = Some(why),
        }
    }

    /// The address of a name of the kernel itself.
    #[must_use]
    pub fn address(&self, name: &str) -> Option<u64> {
        self.by_name.get(name).copied()
    }

    /// The function that an address is in.
    #[must_use]
    pub fn place(&self, address: u64) -> Option<Place<'_>> {
        let (functions, module) = match self.module(address) {
            Some(module) if module.code.iter().any(|part| part.contains(&address)) => {
                (&module.functions, Some(module.name.as_str()))
            }
            None if self.code.iter().any(|part| part.contains(&address)) => (&self.functions, None),
            // In a module's data, too.
            _ => return None,
        };
        let behind = functions.partition_point(|symbol| symbol.address <= address);
        let nearest = functions[..behind].last()?.address;
        // Of several names for one address the first is the kernel's choice, too.
        let first = functions[..behind].partition_point(|symbol| symbol.address < nearest);
        let function = &functions[first];
        Some(Place { function: &function.name, offset: address - nearest, module })
    }

    /// All functions, with the modules that they are in: first addresses and names.
    pub fn functions(&self) -> impl Iterator<Item = (u64, &str, Option<&str>)> {
        let own = self.functions.iter().map(|symbol| (symbol.address, symbol.name.as_str(), None));
        let of_modules = self.modules.iter().flat_map(|module| {
            let name = Some(module.name.as_str());
            module.functions.iter().map(move |symbol| (symbol.address, symbol.name.as_str(), name))
        });
        own.chain(of_modules)
    }

    /// Where code may be: the kernel's own, and all of its modules.
    pub fn code(&self) -> impl Iterator<Item = Range<u64>> {
        self.code.iter().chain(self.modules.iter().flat_map(|module| &module.code)).cloned()
    }

    /// Where the data of modules are, tables of functions among them.
    pub fn data_of_modules(&self) -> impl Iterator<Item = Range<u64>> {
        self.modules.iter().flat_map(Module::data)
    }

    /// The module that an address is in.
    pub(super) fn module(&self, address: u64) -> Option<&Module> {
        let has = |(start, size): &(u64, u64)| address.checked_sub(*start).is_some_and(|n| n < *size);
        self.modules.iter().find(|module| module.parts.iter().any(has))
    }

    /// Whether an address is in code, as far as that is known.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.place(address).is_some()
    }
}

/// Takes names off.
struct Names<'s, 'm> {
    bytes: Bytes<'s, 'm>,
    tokens: Vec<String>,
}

impl Names<'_, '_> {
    /// The next one: its kind, and its text.
    fn next(&mut self) -> Option<(u8, String)> {
        let length = name_length(&mut self.bytes)?;
        let mut text = String::new();
        for _ in 0..length {
            text.push_str(&self.tokens[usize::from(self.bytes.next()?)]);
            if text.len() > LONGEST_NAME {
                return None;
            }
        }
        let kind = *text.as_bytes().first().filter(|kind| kind.is_ascii())?;
        Some((kind, text.split_off(1)))
    }
}

/// What makes an offset, the `n`th, an address: it is added to a base; with variables of processors it is an address itself, unless it is
/// negative; where there is no base, it is from where it is itself in memory. Which of these it is, `_stext` tells, of which VMCOREINFO has
/// the address.
fn addresses(
    info: &Info<'_>,
    base: Option<u64>,
    table: u64,
    names: &[(u8, String)],
    offsets: &[u32],
) -> Result<impl Fn(u64, u32) -> u64 + use<>, String> {
    let text = info.symbol("_stext").ok_or("VMCOREINFO has no SYMBOL(_stext)")?;
    let at = names.iter().position(|(_, name)| name == "_stext").ok_or("kallsyms has no _stext")?;
    let forms: &[Form] = if base.is_none() { &[Form::Own] } else { &[Form::Plain, Form::Signed] };
    let base = base.unwrap_or(0);
    let address = move |form: Form, n: u64, offset: u32| match (form, offset.cast_signed()) {
        (Form::Own, offset) => table.wrapping_add(4 * n).wrapping_add_signed(offset.into()),
        (Form::Plain, _) => base.wrapping_add(offset.into()),
        (Form::Signed, 0..) => u64::from(offset),
        (Form::Signed, negative) => base.wrapping_sub(1).wrapping_add(u64::from(negative.unsigned_abs())),
    };
    let form = forms.iter().copied().find(|form| address(*form, at as u64, offsets[at]) == text);
    let form = form.ok_or("the addresses of kallsyms are in no form that is known")?;
    Ok(move |n, offset| address(form, n, offset))
}

/// The forms of offsets.
#[derive(Clone, Copy)]
enum Form {
    Own,
    Plain,
    Signed,
}

/// The modules, and why these are not all.
fn modules(
    space: &Space<'_>,
    symbols: &Symbols,
    types: &Types,
) -> Result<(Vec<Module>, Option<String>), String> {
    let Some(head) = symbols.address("modules") else { return Ok((Vec::new(), None)) };
    let layout = Layout::of(types)?;
    let (mut modules, mut at) = (Vec::new(), head);
    loop {
        let Some(next) = space.long(at) else {
            return Ok((modules, Some("the list of modules leads out of memory".to_owned())));
        };
        if next == head {
            return Ok((modules, None));
        }
        if modules.len() == MOST_MODULES {
            return Ok((modules, Some("the list of modules has no end".to_owned())));
        }
        match layout.module(space, next.wrapping_sub(layout.list)) {
            Some(module) => modules.push(module),
            None => return Ok((modules, Some("a module is not in memory".to_owned()))),
        }
        at = next;
    }
}

/// Where the fields of modules are.
struct Layout {
    list: u64,
    name: u64,
    /// The places of pairs of a first address and a length (u32).
    parts: Vec<(u64, u64)>,
    /// The same of code.
    code: Vec<(u64, u64)>,
    kallsyms: u64,
    /// Of `struct mod_kallsyms`.
    table: u64,
    count: u64,
    texts: u64,
    /// Addresses, entries, and their number.
    orc: Option<(u64, u64, u64)>,
}

impl Layout {
    fn of(types: &Types) -> Result<Layout, String> {
        let (module, names) = (types.structure("module")?, types.structure("mod_kallsyms")?);
        /// The numbers of code in `enum mod_mem_type`.
        const CODE: [usize; 2] = [0, 4];
        let part = |kind: &Struct, at: u64, size: &str| {
            Ok::<_, String>((at + kind.offset("base")?, at + kind.offset(size)?))
        };
        // One structure for each part of a module, or an array of them since 6.4.
        let (parts, code): (Vec<_>, Vec<_>) = match module.offset("mem") {
            Ok(at) => {
                let kind = types.structure("module_memory")?;
                let count = module.size_of("mem")? / kind.size.max(1);
                let parts = (0..count.min(16)).map(|n| part(&kind, at + n * kind.size, "size"));
                let parts = parts.collect::<Result<Vec<_>, _>>()?;
                let code = CODE.into_iter().filter_map(|n| parts.get(n).copied()).collect();
                (parts, code)
            }
            Err(_) => {
                let kind = types.structure("module_layout")?;
                let fields = ["core_layout", "init_layout"];
                let parts = |size| {
                    let of = fields.into_iter().map(|field| part(&kind, module.offset(field)?, size));
                    of.collect::<Result<Vec<_>, String>>()
                };
                // Code is at the beginning of each.
                (parts("size")?, parts("text_size")?)
            }
        };
        let orc = types.structure("mod_arch_specific").and_then(|arch| {
            let at = module.offset("arch")?;
            let of = |field| Ok::<u64, String>(at + arch.offset(field)?);
            Ok((of("orc_unwind_ip")?, of("orc_unwind")?, of("num_orcs")?))
        });
        Ok(Layout {
            list: module.offset("list")?,
            name: module.offset("name")?,
            parts,
            code,
            kallsyms: module.offset("kallsyms")?,
            table: names.offset("symtab")?,
            count: names.offset("num_symtab")?,
            texts: names.offset("strtab")?,
            orc: orc.ok(),
        })
    }

    fn module(&self, space: &Space<'_>, at: u64) -> Option<Module> {
        let field = |offset: u64| at.wrapping_add(offset);
        let part = |(base, size): &(u64, u64)| {
            Some((space.long(field(*base))?, u64::from(space.int(field(*size))?)))
        };
        let those = |of: &[(u64, u64)]| {
            let all: Vec<(u64, u64)> = of.iter().map(part).collect::<Option<_>>()?;
            Some(all.into_iter().filter(|(base, size)| *base != 0 && *size != 0).collect::<Vec<_>>())
        };
        let (parts, code) = (those(&self.parts)?, those(&self.code)?);
        let code = code.into_iter().map(|(start, size)| start..start.saturating_add(size)).collect();
        let orc = self.orc.and_then(|(addresses, entries, count)| {
            let count = u64::from(space.int(field(count))?);
            Some((space.long(field(addresses))?, space.long(field(entries))?, count))
        });
        let functions = self.functions(space, space.long(field(self.kallsyms))?, &parts)?;
        Some(Module { name: space.text(field(self.name), LONGEST_NAME)?, parts, code, functions, orc })
    }

    /// The functions in a module's symbol table, which is one of ELF.
    fn functions(&self, space: &Space<'_>, names: u64, parts: &[(u64, u64)]) -> Option<Vec<Symbol>> {
        const SIZE: u64 = 24;
        const ANY: u8 = 0;
        const FUNCTION: u8 = 2;
        let table = space.long(names.wrapping_add(self.table))?;
        let count = u64::from(space.int(names.wrapping_add(self.count))?).min(MOST_OF_MODULE);
        let texts = space.long(names.wrapping_add(self.texts))?;
        let inside = |address: u64| {
            parts.iter().any(|(start, size)| address.checked_sub(*start).is_some_and(|n| n < *size))
        };
        let mut functions = Vec::new();
        for n in 0..count {
            let at = table.wrapping_add(n * SIZE);
            let (name, address) = (space.int(at)?, space.long(at.wrapping_add(8))?);
            // Its kind and where it is seen, then a byte, then its section.
            let [kind, _, section @ ..] = space.int(at.wrapping_add(4))?.to_le_bytes();
            if !matches!(kind & 0xf, ANY | FUNCTION) || section == [0, 0] || !inside(address) {
                continue;
            }
            let name = space.text(texts.wrapping_add(name.into()), LONGEST_NAME)?;
            // Labels of the assembler are no functions.
            if !name.is_empty() && !name.starts_with('.') {
                functions.push(Symbol { address, name });
            }
        }
        functions.sort_by_key(|symbol| symbol.address);
        Some(functions)
    }
}
