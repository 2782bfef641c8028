//! What a function takes and gives, from debug information, and in which registers (System V ABI for x86-64, 3.2.3).
//!
//! Where the debug information says that a parameter is in a register when the function begins, it is there: so it is with copies that
//! the compiler made for some callers. Else the ABI says where it is.
//!
//! Example: of `int order(const char *name, double price, long count)`, `name` is in rdi, `price` in xmm0, `count` in rsi; the result is
//! the low half of rax.

use super::value::Kind;
use crate::symbols::Loaded;
use gimli::{
    AttributeValue, DebuggingInformationEntry, DwAt, EndianArcSlice, Expression, LittleEndian, Operation,
    Unit, UnitOffset, constants as dw,
};

type Reader = EndianArcSlice<LittleEndian>;
type Entry = DebuggingInformationEntry<Reader>;

/// Types may be made of types so often; damaged ones of themselves.
const DEEPEST: usize = 24;
/// A value of more bytes is in memory.
const IN_REGISTERS: u64 = 16;
/// Parts of a structure of so few bytes.
const MOST_PARTS: usize = 64;

/// What a function takes and gives.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) parameters: Vec<Parameter>,
    /// `None` of a function that gives nothing.
    pub(crate) result: Option<Kind>,
    /// It takes more than is named.
    pub(crate) variadic: bool,
}

/// A parameter.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) at: Where,
}

/// Where a parameter is when the function begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// In a general register, by hardware number.
    General(usize),
    /// In the low part of a vector register.
    Vector(usize),
    /// So many bytes above the stack pointer.
    Stack(u64),
    /// The compiler left it out, or it is in several registers.
    Nowhere,
}

/// rdi, rsi, rdx, rcx, r8, r9: the registers of integers and pointers.
pub(super) const GENERAL: [usize; 6] = [7, 6, 2, 1, 8, 9];
const VECTORS: usize = 8;
/// Hardware numbers of DWARF registers 0 to 7.
const HARDWARE: [usize; 8] = [0, 2, 1, 3, 6, 7, 5, 4];
const FIRST_XMM: u16 = 17;

/// The signature of the function that begins at `entry`; `None` where the module's debug information says nothing of it.
pub(crate) fn of(module: &Loaded, entry: u64) -> Option<Signature> {
    let dwarf = module.dwarf()?;
    let own = entry.wrapping_sub(module.bias());
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Ok(unit) = dwarf.unit(header) else { continue };
        let mut ranges = dwarf.unit_ranges(&unit).ok()?;
        let mut covers = false;
        while let Ok(Some(range)) = ranges.next() {
            covers |= (range.begin..range.end).contains(&own);
        }
        if covers && is_assembly(&unit) {
            return None;
        }
        if covers && let Some(function) = function_at(dwarf, &unit, own) {
            let made = module.names().symbols().iter().any(|it| it.start == entry && !it.name.contains('.'));
            return Source { dwarf, unit: &unit }.signature(&function, own, made);
        }
    }
    None
}

/// Whether a unit was written by hand: its functions have no types.
fn is_assembly(unit: &Unit<Reader>) -> bool {
    let mut entries = unit.entries();
    let root = entries.next_dfs().ok().flatten();
    let language = root.and_then(|root| root.attr_value(dw::DW_AT_language));
    matches!(language, Some(AttributeValue::Language(dw::DW_LANG_Mips_Assembler)))
}

fn function_at(dwarf: &gimli::Dwarf<Reader>, unit: &Unit<Reader>, address: u64) -> Option<UnitOffset> {
    let mut entries = unit.entries();
    while let Ok(Some(entry)) = entries.next_dfs() {
        if entry.tag() == dw::DW_TAG_subprogram
            && let Some(low) = entry.attr_value(dw::DW_AT_low_pc)
            && dwarf.attr_address(unit, low).ok().flatten() == Some(address)
        {
            return Some(entry.offset());
        }
    }
    None
}

/// What a value is passed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    General,
    Vector,
}

/// The unit that a function is in.
struct Source<'a> {
    dwarf: &'a gimli::Dwarf<Reader>,
    unit: &'a Unit<Reader>,
}

impl Source<'_> {
    fn signature(&self, function: &UnitOffset, low: u64, by_abi: bool) -> Option<Signature> {
        let mut tree = self.unit.entries_tree(Some(*function)).ok()?;
        let root = tree.root().ok()?;
        let result = self.attr(root.entry(), dw::DW_AT_type).map(|it| self.kind(self.follow(&it), 0));
        let result_type = self.attr(root.entry(), dw::DW_AT_type).and_then(|it| self.follow(&it));
        let mut places = Places::default();
        if result_type.is_some_and(|it| self.classes(it).is_none() && self.is_aggregate(it)) {
            // The caller says where the result goes.
            places.general = 1;
        }
        let (mut parameters, mut variadic) = (Vec::new(), false);
        let mut children = root.children();
        while let Ok(Some(child)) = children.next() {
            let entry = child.entry();
            variadic |= entry.tag() == dw::DW_TAG_unspecified_parameters;
            if entry.tag() != dw::DW_TAG_formal_parameter {
                continue;
            }
            let of = self.attr(entry, dw::DW_AT_type).and_then(|it| self.follow(&it));
            let by_rules = places.take(of.map_or(Passed::InMemory(8), |of| self.passed(of)));
            let at = self.register(entry, low).unwrap_or(if by_abi { by_rules } else { Where::Nowhere });
            let name = self.attr(entry, dw::DW_AT_name).and_then(|it| self.text(it)).unwrap_or_default();
            parameters.push(Parameter { name, kind: self.kind(of, 0), at });
        }
        Some(Signature { parameters, result, variadic })
    }

    /// An attribute of an entry, or of the one that it is an instance of.
    fn attr(&self, entry: &Entry, name: DwAt) -> Option<AttributeValue<Reader>> {
        let mut entry = entry.clone();
        for _ in 0..DEEPEST {
            if let Some(value) = entry.attr_value(name) {
                return Some(value);
            }
            let origin = entry
                .attr_value(dw::DW_AT_abstract_origin)
                .or_else(|| entry.attr_value(dw::DW_AT_specification))?;
            entry = self.unit.entry(self.follow(&origin)?).ok()?;
        }
        None
    }

    /// What refers to an entry of this unit. Those of other units (link-time optimisation) are not known.
    fn follow(&self, reference: &AttributeValue<Reader>) -> Option<UnitOffset> {
        match reference {
            AttributeValue::UnitRef(offset) => Some(*offset),
            AttributeValue::DebugInfoRef(offset) => offset.to_unit_offset(&self.unit.header),
            _ => None,
        }
    }

    fn text(&self, value: AttributeValue<Reader>) -> Option<String> {
        let string = self.dwarf.attr_string(self.unit, value).ok()?;
        gimli::Reader::to_string_lossy(&string).ok().map(std::borrow::Cow::into_owned)
    }

    /// The type without names and qualifiers.
    fn bare(&self, mut of: UnitOffset) -> Option<Entry> {
        for _ in 0..DEEPEST {
            let entry = self.unit.entry(of).ok()?;
            let qualifies = matches!(
                entry.tag(),
                dw::DW_TAG_typedef
                    | dw::DW_TAG_const_type
                    | dw::DW_TAG_volatile_type
                    | dw::DW_TAG_restrict_type
                    | dw::DW_TAG_atomic_type
            );
            if !qualifies {
                return Some(entry);
            }
            of = self.follow(&entry.attr_value(dw::DW_AT_type)?)?;
        }
        None
    }

    fn size(&self, entry: &Entry) -> u64 {
        self.attr(entry, dw::DW_AT_byte_size).and_then(|size| size.udata_value()).unwrap_or(0)
    }

    /// How values of a type are shown.
    fn kind(&self, of: Option<UnitOffset>, depth: usize) -> Kind {
        let Some(entry) = of.and_then(|of| self.bare(of)) else { return Kind::Other };
        let size = self.size(&entry);
        let target = || entry.attr_value(dw::DW_AT_type).and_then(|it| self.follow(&it));
        match entry.tag() {
            dw::DW_TAG_base_type => base(&entry, size),
            dw::DW_TAG_pointer_type if depth == 0 => match self.kind(target(), 1) {
                Kind::Char => Kind::Text,
                _ => Kind::Pointer,
            },
            dw::DW_TAG_pointer_type
            | dw::DW_TAG_reference_type
            | dw::DW_TAG_rvalue_reference_type
            | dw::DW_TAG_unspecified_type => Kind::Pointer,
            dw::DW_TAG_enumeration_type => self.enumeration(&entry, size),
            _ => Kind::Other,
        }
    }

    fn enumeration(&self, entry: &Entry, size: u64) -> Kind {
        let mut names = Vec::new();
        if let Ok(mut tree) = self.unit.entries_tree(Some(entry.offset()))
            && let Ok(root) = tree.root()
        {
            let mut children = root.children();
            while let Ok(Some(child)) = children.next() {
                let value = child.entry().attr_value(dw::DW_AT_const_value);
                let value =
                    value.and_then(|it| it.sdata_value().or_else(|| it.udata_value().map(u64::cast_signed)));
                let name = child.entry().attr_value(dw::DW_AT_name).and_then(|it| self.text(it));
                names.extend(value.zip(name));
            }
        }
        Kind::Enumeration { bytes: size, names: names.into() }
    }

    fn is_aggregate(&self, of: UnitOffset) -> bool {
        self.bare(of).is_some_and(|entry| is_aggregate(&entry))
    }

    fn passed(&self, of: UnitOffset) -> Passed {
        let Some(entry) = self.bare(of) else { return Passed::InMemory(8) };
        if by_reference(&entry) {
            return Passed::In([Some(Class::General), None]);
        }
        let size = self.size(&entry);
        match self.classes(of) {
            Some(classes) => Passed::In(classes),
            None => Passed::InMemory(size.max(8).next_multiple_of(8)),
        }
    }

    /// The classes of the one or two words of a value; `None` of one that is passed in memory.
    fn classes(&self, of: UnitOffset) -> Option<[Option<Class>; 2]> {
        let entry = self.bare(of)?;
        let is_pointer = !is_aggregate(&entry) && entry.tag() != dw::DW_TAG_base_type;
        let size = if is_pointer { self.size(&entry).max(1) } else { self.size(&entry) };
        if size > IN_REGISTERS || by_reference(&entry) {
            return None;
        }
        let mut parts = Vec::new();
        self.parts(of, 0, 0, &mut parts)?;
        let class = |word: u64| {
            let mut inside = parts.iter().filter(|(at, _)| at / 8 == word).peekable();
            inside.peek()?;
            let vector = inside.all(|(_, class)| *class == Class::Vector);
            Some(if vector { Class::Vector } else { Class::General })
        };
        Some([class(0), class(1)])
    }

    /// The scalars that a value is made of, with where they begin; `None` where one is passed in memory (long double), or not known.
    fn parts(&self, of: UnitOffset, at: u64, depth: usize, parts: &mut Vec<(u64, Class)>) -> Option<()> {
        let entry = self.bare(of).filter(|_| depth < DEEPEST && parts.len() < MOST_PARTS)?;
        let size = self.size(&entry);
        match entry.tag() {
            dw::DW_TAG_base_type => {
                let is_float = encoding(&entry) == Some(dw::DW_ATE_float);
                if is_float && size > 8 {
                    return None;
                }
                let class = if is_float { Class::Vector } else { Class::General };
                parts.extend((0..size.div_ceil(8).max(1)).map(|word| (at + 8 * word, class)));
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let mut tree = self.unit.entries_tree(Some(entry.offset())).ok()?;
                let mut members = tree.root().ok()?.children();
                while let Ok(Some(member)) = members.next() {
                    let member = member.entry();
                    let is_static = member.attr_value(dw::DW_AT_external).is_some();
                    if !matches!(member.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance) || is_static {
                        continue;
                    }
                    let offset = member.attr_value(dw::DW_AT_data_member_location);
                    let offset = offset.and_then(|it| it.udata_value()).unwrap_or(0);
                    let of = self.follow(&member.attr_value(dw::DW_AT_type)?)?;
                    self.parts(of, at.checked_add(offset)?, depth + 1, parts)?;
                }
            }
            // Its length is that of what it is in; each word has the class of its elements.
            dw::DW_TAG_array_type => {
                let of = self.follow(&entry.attr_value(dw::DW_AT_type)?)?;
                self.parts(of, at, depth + 1, parts)?;
                if at < 8 {
                    self.parts(of, 8, depth + 1, parts)?;
                }
            }
            _ => parts.push((at, Class::General)),
        }
        Some(())
    }

    /// The register that a parameter is in where the function begins, if its debug information names one.
    fn register(&self, entry: &Entry, low: u64) -> Option<Where> {
        let location = entry.attr_value(dw::DW_AT_location)?;
        if let AttributeValue::Exprloc(expression) = location {
            return self.only_register(expression);
        }
        let mut list = self.dwarf.attr_locations(self.unit, location).ok().flatten()?;
        while let Ok(Some(part)) = list.next() {
            if (part.range.begin..part.range.end).contains(&low) {
                return self.only_register(part.data);
            }
        }
        None
    }

    fn only_register(&self, expression: Expression<Reader>) -> Option<Where> {
        let mut operations = expression.operations(self.unit.encoding());
        let Ok(Some(Operation::Register { register })) = operations.next() else { return None };
        if operations.next().ok()?.is_some() {
            return None;
        }
        match register.0 {
            n @ 0..=15 => {
                let n = usize::from(n);
                Some(Where::General(HARDWARE.get(n).copied().unwrap_or(n)))
            }
            n @ FIRST_XMM..=32 => Some(Where::Vector(usize::from(n - FIRST_XMM))),
            _ => None,
        }
    }
}

/// How a value is passed.
enum Passed {
    In([Option<Class>; 2]),
    /// On the stack, in so many bytes.
    InMemory(u64),
}

/// What is taken of the places of parameters.
#[derive(Default)]
struct Places {
    general: usize,
    vectors: usize,
    stack: u64,
}

impl Places {
    fn take(&mut self, passed: Passed) -> Where {
        let classes = match passed {
            Passed::InMemory(bytes) => return self.on_stack(bytes),
            Passed::In(classes) => classes,
        };
        let words: Vec<Class> = classes.into_iter().flatten().collect();
        let count = |class| words.iter().filter(|it| **it == class).count();
        let (general, vectors) = (count(Class::General), count(Class::Vector));
        if self.general + general > GENERAL.len() || self.vectors + vectors > VECTORS {
            return self.on_stack(8 * words.len() as u64);
        }
        let at = match words[..] {
            [Class::General] => Where::General(GENERAL[self.general]),
            [Class::Vector] => Where::Vector(self.vectors),
            _ => Where::Nowhere,
        };
        self.general += general;
        self.vectors += vectors;
        at
    }

    fn on_stack(&mut self, bytes: u64) -> Where {
        // Above the return address.
        let at = 8 + self.stack;
        self.stack = self.stack.saturating_add(bytes);
        Where::Stack(at)
    }
}

fn is_aggregate(entry: &Entry) -> bool {
    matches!(
        entry.tag(),
        dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type | dw::DW_TAG_array_type
    )
}

/// A class that is not copied as its bytes are.
fn by_reference(entry: &Entry) -> bool {
    let convention = entry.attr_value(dw::DW_AT_calling_convention);
    matches!(convention, Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference)))
}

fn encoding(entry: &Entry) -> Option<dw::DwAte> {
    match entry.attr_value(dw::DW_AT_encoding)? {
        AttributeValue::Encoding(encoding) => Some(encoding),
        _ => None,
    }
}

fn base(entry: &Entry, size: u64) -> Kind {
    match (encoding(entry), size) {
        (Some(dw::DW_ATE_boolean), _) => Kind::Bool,
        (Some(dw::DW_ATE_signed_char | dw::DW_ATE_unsigned_char), 1) => Kind::Char,
        (Some(dw::DW_ATE_signed | dw::DW_ATE_signed_char), 1..=8) => {
            Kind::Integer { bytes: size, signed: true }
        }
        (Some(dw::DW_ATE_unsigned | dw::DW_ATE_unsigned_char | dw::DW_ATE_UTF), 1..=8) => {
            Kind::Integer { bytes: size, signed: false }
        }
        (Some(dw::DW_ATE_float), 4) => Kind::Float,
        (Some(dw::DW_ATE_float), 8) => Kind::Double,
        _ => Kind::Other,
    }
}
