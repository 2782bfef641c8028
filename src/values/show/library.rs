//! Values of the types that libstdc++ and Rust's standard library define, as what they mean: a string as its text, a map as its pairs.
//!
//! What these types are made of is told by the debug information alone, by the names of their members, which have been the same for
//! years: `_M_start` and `_M_finish` of a vector. Where a member is missing (another library, another version) or what it holds
//! makes no sense (memory that was overwritten), the value is shown as the record that it is.
//!
//! Example: `std::vector<int>` whose `_M_start` is 0x5000 and whose `_M_finish` is 0x500c is `std::vector of length 3 = {1, 2, 3}`.

use super::{MOST_ELEMENTS, Shown, quoted};
use crate::values::types::{Record, Shape, Type};
use crate::values::value::{Place, Value};

/// What is longer has been overwritten.
const LARGEST: u64 = 1 << 40;
/// Records within each other that are looked through for one number or pointer.
const DEEPEST: usize = 8;
/// The links of a tree's node: colour, parent, left and right (`_Rb_tree_node_base`).
const TREE_LINKS: u64 = 32;
/// The link of a hash table's node (`_Hash_node_base`).
const HASH_LINK: u64 = 8;

/// Whether a type is a string of a standard library.
pub(super) fn is_text(ty: &Type) -> bool {
    ty.class().is_some_and(|class| matches!(class.as_str(), "basic_string" | "basic_string_view" | "String"))
}

impl Shown<'_> {
    /// Shows a value of a type of a standard library; false, and nothing shown, if it is none that is known.
    pub(super) fn of_library(&mut self, value: &Value, record: &Record, depth: usize) -> bool {
        if record.variants.is_some() {
            return self.alternative(value, record, depth).is_some();
        }
        let Some(class) = value.ty.class() else { return false };
        let shown = match class.as_str() {
            "basic_string" => self.cpp_string(value, "_M_p", "_M_string_length"),
            "basic_string_view" => self.cpp_string(value, "_M_str", "_M_len"),
            "vector" => self.vector(value, depth),
            "map" | "multimap" | "set" | "multiset" => self.tree(&class, value, depth),
            "unordered_map" | "unordered_set" => self.hash_table(&class, value, depth),
            "shared_ptr" | "weak_ptr" => self.shared_pointer(&class, value),
            "unique_ptr" => self.unique_pointer(value, depth),
            "optional" => self.optional(value, depth),
            "String" => self.rust_string(value),
            "Vec" => self.rust_vec(value, depth),
            "Rc" | "Arc" => self.counted(&class, value, depth),
            slice if slice.starts_with("&[") || slice.starts_with("&mut [") => self.rust_slice(value, depth),
            _ => None,
        };
        shown.is_some()
    }

    /// Bytes at an address as a text.
    fn text(&mut self, start: u64, len: u64) -> Option<()> {
        let mut bytes = vec![0; usize::try_from(len.min(MOST_ELEMENTS)).ok()?];
        if len > LARGEST || len > 0 && !self.world.read(start, &mut bytes) {
            return None;
        }
        self.push(&quoted(&bytes));
        if len > MOST_ELEMENTS {
            self.push(&format!("... ({len} characters)"));
        }
        Some(())
    }

    /// So many values of a type that lie one after the other.
    fn row(&mut self, ty: &Type, start: u64, count: u64, depth: usize) -> Option<()> {
        let size = ty.size()?;
        self.push("{");
        for n in 0..count {
            if n > 0 {
                self.push(", ");
            }
            if n >= MOST_ELEMENTS || self.is_full() {
                self.push("...");
                break;
            }
            let place = Place::Memory(start.wrapping_add(n.wrapping_mul(size)));
            self.value(&Value::new(ty.clone(), place), depth + 1);
        }
        self.push("}");
        Some(())
    }

    fn word(&self, value: &Value, name: &str) -> Option<u64> {
        value.member(self.world, name).ok()?.unsigned(self.world).ok()
    }

    fn cpp_string(&mut self, value: &Value, start: &str, len: &str) -> Option<()> {
        let len = self.word(value, len)?;
        let within = value.member(self.world, "_M_dataplus").unwrap_or_else(|_| value.clone());
        self.text(self.word(&within, start)?, len)
    }

    fn vector(&mut self, value: &Value, depth: usize) -> Option<()> {
        let implementation = value.member(self.world, "_M_impl").ok()?;
        let element = implementation.member(self.world, "_M_start").ok()?.target(self.world).ok()?.ty;
        let start = self.word(&implementation, "_M_start")?;
        let len = self.word(&implementation, "_M_finish")?.checked_sub(start)?;
        let count = len.checked_div(element.size()?).filter(|_| len < LARGEST)?;
        self.push(&format!("std::vector of length {count} = "));
        self.row(&element, start, count, depth)
    }

    /// A red-black tree, in order.
    fn tree(&mut self, class: &str, value: &Value, depth: usize) -> Option<()> {
        let tree = value.member(self.world, "_M_t").ok()?;
        let implementation = tree.member(self.world, "_M_impl").ok()?;
        let header = implementation.member(self.world, "_M_header").ok()?;
        let count = self.word(&implementation, "_M_node_count").filter(|count| *count < LARGEST)?;
        let (element, end) = (tree.ty.parameter("_Val")?, header.address()?);
        let word = |at: u64| {
            let mut word = [0; 8];
            self.world.read(at, &mut word).then(|| u64::from_le_bytes(word))
        };
        // Left is at 16, right at 24, the parent at 8.
        let next = |node: u64| {
            let mut right = word(node.wrapping_add(24))?;
            if right != 0 {
                for _ in 0..64 {
                    match word(right.wrapping_add(16))? {
                        0 => break,
                        left => right = left,
                    }
                }
                return Some(right);
            }
            let (mut node, mut parent) = (node, word(node.wrapping_add(8))?);
            for _ in 0..64 {
                if word(parent.wrapping_add(24))? != node {
                    break;
                }
                (node, parent) = (parent, word(parent.wrapping_add(8))?);
            }
            Some(parent)
        };
        let first = self.word(&header, "_M_left").filter(|_| count > 0);
        let wanted = usize::try_from(count.min(MOST_ELEMENTS)).ok()?;
        let nodes = std::iter::successors(first, |node| next(*node));
        let nodes: Vec<u64> = nodes.take_while(|node| *node != end).take(wanted).collect();
        self.nodes(class, &element, (&nodes, TREE_LINKS), count, depth);
        Some(())
    }

    fn hash_table(&mut self, class: &str, value: &Value, depth: usize) -> Option<()> {
        let table = value.member(self.world, "_M_h").ok()?;
        let count = self.word(&table, "_M_element_count").filter(|count| *count < LARGEST)?;
        let element = table.ty.parameter("_Value")?;
        let first = table.member(self.world, "_M_before_begin").ok()?;
        let first = self.word(&first, "_M_nxt").filter(|at| *at != 0);
        let next = |node: &u64| {
            let mut word = [0; 8];
            let there = self.world.read(*node, &mut word);
            there.then(|| u64::from_le_bytes(word)).filter(|next| *next != 0)
        };
        let wanted = usize::try_from(count.min(MOST_ELEMENTS)).ok()?;
        let nodes: Vec<u64> = std::iter::successors(first, next).take(wanted).collect();
        self.nodes(class, &element, (&nodes, HASH_LINK), count, depth);
        Some(())
    }

    /// The values of nodes, behind their links: pairs as `[key] = value`.
    fn nodes(
        &mut self,
        class: &str,
        element: &Type,
        (nodes, links): (&[u64], u64),
        count: u64,
        depth: usize,
    ) {
        let plural = if count == 1 { "" } else { "s" };
        self.push(&format!("std::{class} with {count} element{plural} = {{"));
        for (n, node) in nodes.iter().enumerate() {
            if n > 0 {
                self.push(", ");
            }
            if self.is_full() {
                break;
            }
            let value = Value::new(element.clone(), Place::Memory(node.wrapping_add(links)));
            match (value.member(self.world, "first"), value.member(self.world, "second")) {
                (Ok(first), Ok(second)) if class.ends_with("map") => {
                    self.push("[");
                    self.value(&first, depth + 1);
                    self.push("] = ");
                    self.value(&second, depth + 1);
                }
                _ => self.value(&value, depth + 1),
            }
        }
        if (nodes.len() as u64) < count {
            self.push(if count > MOST_ELEMENTS { ", ..." } else { " <the others cannot be found>" });
        }
        self.push("}");
    }

    fn shared_pointer(&mut self, class: &str, value: &Value) -> Option<()> {
        let pointer = value.member(self.world, "_M_ptr").ok()?;
        let counts = value.member(self.world, "_M_refcount").ok()?.member(self.world, "_M_pi").ok()?;
        if counts.unsigned(self.world).ok()? == 0 {
            self.push(&format!("std::{class} (empty) = "));
        } else {
            let uses = counts.member(self.world, "_M_use_count").ok()?.integer(self.world).ok()?;
            self.push(&format!("std::{class} (use count {uses}) = "));
        }
        self.value(&pointer, 0);
        Some(())
    }

    fn unique_pointer(&mut self, value: &Value, depth: usize) -> Option<()> {
        let tuple = value.member(self.world, "_M_t").ok()?.member(self.world, "_M_t").ok()?;
        // The first element of a tuple is its last base; the second, the deleter, may be a pointer, too.
        let pointer = self.last_pointer_within(&tuple, DEEPEST)?;
        self.push("std::unique_ptr = ");
        self.value(&pointer, depth);
        Some(())
    }

    fn optional(&mut self, value: &Value, depth: usize) -> Option<()> {
        let payload = value.member(self.world, "_M_payload").ok()?;
        let engaged = payload.member(self.world, "_M_engaged").ok()?.unsigned(self.world).ok()?;
        let inner = payload.member(self.world, "_M_payload").ok()?.member(self.world, "_M_value").ok()?;
        match engaged {
            0 => self.push("std::optional without a value"),
            _ => {
                self.push("std::optional = ");
                self.value(&inner, depth + 1);
            }
        }
        Some(())
    }

    /// An enumeration of Rust: `Some(5)`, `None`, `Point {x = 1}`.
    fn alternative(&mut self, value: &Value, record: &Record, depth: usize) -> Option<()> {
        let (tells, variants) = record.variants.as_ref()?;
        let tells = match value.part(tells).raw(self.world) {
            Ok((raw, _)) => i128::try_from(raw).ok()?,
            // Which one is there is not known, nor what is in it.
            Err(why) => {
                self.why(&why);
                return Some(());
            }
        };
        let known = variants.iter().find(|it| it.value == Some(tells));
        let member = &known.or_else(|| variants.iter().find(|it| it.value.is_none()))?.member;
        let there = value.part(member);
        let Shape::Record(fields) = there.ty.shape() else { return None };
        let is_tuple = fields.members.iter().all(|it| it.name.starts_with("__"));
        self.push(&member.name);
        if fields.members.is_empty() {
            return Some(());
        }
        if !is_tuple {
            self.push(" ");
            self.value(&there, depth + 1);
            return Some(());
        }
        self.push("(");
        for (n, (_, part)) in there.parts(self.world, fields).iter().enumerate() {
            if n > 0 {
                self.push(", ");
            }
            self.value(part, depth + 1);
        }
        self.push(")");
        Some(())
    }

    fn rust_string(&mut self, value: &Value) -> Option<()> {
        let vec = value.member(self.world, "vec").ok()?;
        let start = self.pointer_within(&vec.member(self.world, "buf").ok()?, DEEPEST)?;
        self.text(start.unsigned(self.world).ok()?, self.word(&vec, "len")?)
    }

    fn rust_vec(&mut self, value: &Value, depth: usize) -> Option<()> {
        let (element, count) = (value.ty.parameter("T")?, self.word(value, "len")?);
        let start = self.pointer_within(&value.member(self.world, "buf").ok()?, DEEPEST)?;
        let start = start.unsigned(self.world).ok()?;
        if count > LARGEST {
            return None;
        }
        self.push(&format!("Vec of length {count} = "));
        self.row(&element, start, count, depth)
    }

    fn rust_slice(&mut self, value: &Value, depth: usize) -> Option<()> {
        let data = value.member(self.world, "data_ptr").ok()?;
        let (element, count) = (data.target(self.world).ok()?.ty, self.word(value, "length")?);
        let start = data.unsigned(self.world).ok()?;
        if count > LARGEST {
            return None;
        }
        self.push(&format!("slice of length {count} = "));
        self.row(&element, start, count, depth)
    }

    /// `Rc` and `Arc`: how many own it, and what it is.
    fn counted(&mut self, class: &str, value: &Value, depth: usize) -> Option<()> {
        let inner = self.pointer_within(&value.member(self.world, "ptr").ok()?, DEEPEST)?;
        let inner = inner.target(self.world).ok()?;
        let (strong, weak) = (self.number_within(&inner, "strong")?, self.number_within(&inner, "weak")?);
        let held = inner.member(self.world, "value").or_else(|_| inner.member(self.world, "data")).ok()?;
        // All strong ones together count as one weak one.
        self.push(&format!("{class} (strong {strong}, weak {}) = ", weak.saturating_sub(1)));
        self.value(&held, depth + 1);
        Some(())
    }

    /// The first pointer in records within each other.
    fn pointer_within(&self, value: &Value, deep: usize) -> Option<Value> {
        match value.ty.shape() {
            Shape::Pointer { .. } => Some(value.clone()),
            Shape::Record(record) if deep > 0 => {
                let parts = value.parts(self.world, record);
                parts.iter().find_map(|(_, part)| self.pointer_within(part, deep - 1))
            }
            _ => None,
        }
    }

    /// The last one.
    fn last_pointer_within(&self, value: &Value, deep: usize) -> Option<Value> {
        match value.ty.shape() {
            Shape::Pointer { .. } => Some(value.clone()),
            Shape::Record(record) if deep > 0 => {
                let parts = value.parts(self.world, record);
                parts.iter().rev().find_map(|(_, part)| self.last_pointer_within(part, deep - 1))
            }
            _ => None,
        }
    }

    /// A number that is wrapped in records: cells and atomics.
    fn number_within(&self, value: &Value, name: &str) -> Option<u64> {
        let mut value = value.member(self.world, name).ok()?;
        for _ in 0..DEEPEST {
            match value.ty.shape() {
                Shape::Record(record) => value = value.parts(self.world, record).into_iter().next()?.1,
                _ => return value.unsigned(self.world).ok(),
            }
        }
        None
    }
}
