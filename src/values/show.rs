//! A value as a line of text, in the manner of gdb: `{key = 3, next = 0x5555555592a0}`. [`library`] knows types of C++ and Rust.

mod library;

use super::World;
use super::types::{Record, Shape};
use super::value::{Place, Value};
use gimli::DwAte;
use std::fmt::{Display, LowerExp};

/// Elements and characters of one array or string.
const MOST_ELEMENTS: u64 = 200;
/// Records within records.
const DEEPEST: usize = 3;
/// A line that is longer is cut: who wants more takes the value apart.
const LONGEST: usize = 1000;

/// The value, or in angle brackets why there is none.
pub(crate) fn show(value: &Value, world: &dyn World) -> String {
    show_within(value, world, LONGEST)
}

/// The same, cut behind so many bytes at the next element or member.
pub(crate) fn show_within(value: &Value, world: &dyn World, longest: usize) -> String {
    let mut text = String::new();
    Shown { world, text: &mut text, longest }.value(value, 0);
    text
}

/// A text in the making.
struct Shown<'a> {
    world: &'a dyn World,
    text: &'a mut String,
    longest: usize,
}

impl Shown<'_> {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn is_full(&self) -> bool {
        self.text.len() >= self.longest
    }

    fn why(&mut self, why: &str) {
        self.push(&format!("<{why}>"));
    }

    fn value(&mut self, value: &Value, depth: usize) {
        if let Place::Nowhere(why) = &value.place {
            return self.why(why);
        }
        match value.ty.shape() {
            Shape::Void => self.push("void"),
            Shape::Unknown(why) => self.why(why),
            Shape::Function => self.function(value),
            Shape::Number { encoding, .. } => self.number(value, encoding),
            Shape::Enumeration { names, .. } => self.enumeration(value, &names),
            Shape::Pointer { reference: true, .. } => self.reference(value, depth),
            Shape::Pointer { .. } => self.pointer(value),
            Shape::Array { count, element } => match count {
                Some(count) if is_character(&element.shape()) => self.characters(value, count),
                Some(count) => self.elements(value, count, depth),
                None => self.push("{...}"),
            },
            Shape::Record(record) => self.record(value, record, depth),
        }
    }

    fn function(&mut self, value: &Value) {
        let address = value.address();
        let name = address.and_then(|address| self.world.name(address));
        let address = address.map_or_else(|| "?".to_owned(), |address| format!("{address:#x}"));
        self.push(&format!("{{{}}} {address}", value.ty.name()));
        if let Some(name) = name {
            self.push(&format!(" <{name}>"));
        }
    }

    fn number(&mut self, value: &Value, encoding: DwAte) {
        let text = match encoding {
            gimli::DW_ATE_float => float(value, self.world),
            gimli::DW_ATE_boolean => value.integer(self.world).map(|it| match it {
                0 => "false".to_owned(),
                1 => "true".to_owned(),
                other => other.to_string(),
            }),
            gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char | gimli::DW_ATE_UTF => {
                value.integer(self.world).map(|number| format!("{number}{}", character(number)))
            }
            encoding if super::value::is_signed(encoding).is_some() => {
                value.integer(self.world).map(|number| number.to_string())
            }
            // Complex numbers, decimal ones, and others that are rare.
            _ => value.bytes(self.world).map(|bytes| {
                format!(
                    "bytes {}",
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
                )
            }),
        };
        match text {
            Ok(text) => self.push(&text),
            Err(why) => self.why(&why),
        }
    }

    fn enumeration(&mut self, value: &Value, names: &[(String, i128)]) {
        let (raw, bits) = match value.raw(self.world) {
            Ok((raw, bits)) => (raw, bits.min(64)),
            Err(why) => return self.why(&why),
        };
        let mask = (1_u128 << bits) - 1;
        let of = |number: i128| number.cast_unsigned() & mask;
        if let Some((name, _)) = names.iter().find(|(_, number)| of(*number) == raw) {
            return self.push(name);
        }
        // Flags that were put together.
        let flags: Vec<_> =
            names.iter().filter(|(_, it)| of(*it).is_power_of_two() && raw & of(*it) != 0).collect();
        let rest = flags.iter().fold(raw, |rest, (_, number)| rest & !of(*number));
        if flags.is_empty() || rest != 0 {
            return self.push(&raw.to_string());
        }
        let names: Vec<_> = flags.iter().map(|(name, _)| name.as_str()).collect();
        self.push(&format!("({})", names.join(" | ")));
    }

    fn reference(&mut self, value: &Value, depth: usize) {
        if let Ok(address) = value.unsigned(self.world) {
            self.push(&format!("@{address:#x}: "));
        }
        match value.target(self.world) {
            // A reference to a reference is not C++, and a circle of them would not end.
            Ok(target) if depth < DEEPEST => self.value(&target, depth + 1),
            Ok(_) => self.push("..."),
            Err(why) => self.why(&why),
        }
    }

    fn pointer(&mut self, value: &Value) {
        if let Place::Target(_) = value.place {
            return self.why("a pointer that the program does not keep; * shows what it points to");
        }
        let address = match value.unsigned(self.world) {
            Ok(address) => address,
            Err(why) => return self.why(&why),
        };
        self.push(&format!("{address:#x}"));
        let Ok(target) = value.target(self.world) else { return };
        match target.ty.shape() {
            shape if is_character(&shape) && target.ty.size() == Some(1) => {
                if let Some(text) = string(self.world, address) {
                    self.push(&format!(" {text}"));
                }
            }
            _ => {
                if let Some(name) = self.world.name(address) {
                    self.push(&format!(" <{name}>"));
                }
            }
        }
    }

    /// An array of characters: as a string, without the zeros that fill it.
    fn characters(&mut self, value: &Value, count: u64) {
        let size = match value.element(self.world, 0).ok().and_then(|element| element.ty.size()) {
            Some(1) => count,
            _ => return self.elements(value, count, 0),
        };
        let shown: Vec<u8> = (0..size.min(MOST_ELEMENTS))
            .map_while(|n| {
                let element = value.element(self.world, i128::from(n)).ok()?;
                u8::try_from(element.raw(self.world).ok()?.0).ok()
            })
            .collect();
        if shown.is_empty() && size > 0 {
            let why = value.bytes(self.world).err().unwrap_or_default();
            return self.why(&why);
        }
        let len = shown.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        self.push(&quoted(&shown[..len]));
        if size > MOST_ELEMENTS {
            self.push(&format!("... ({size} characters)"));
        }
    }

    fn elements(&mut self, value: &Value, count: u64, depth: usize) {
        if depth >= DEEPEST && count > 0 {
            return self.push("{...}");
        }
        self.push("{");
        for n in 0..count {
            if n > 0 {
                self.push(", ");
            }
            if n >= MOST_ELEMENTS || self.is_full() {
                self.push(&format!("... ({count} elements)"));
                break;
            }
            match value.element(self.world, i128::from(n)) {
                Ok(element) => self.value(&element, depth + 1),
                Err(why) => self.why(&why),
            }
        }
        self.push("}");
    }

    fn record(&mut self, value: &Value, record: Record, depth: usize) {
        if let Some(text) = rust_str(value, &record, self.world) {
            return self.push(&text);
        }
        // A text is short, and has nothing in it that is deeper.
        if (depth < DEEPEST || library::is_text(&value.ty)) && self.of_library(value, &record, depth) {
            return;
        }
        let parts = value.parts(self.world, record);
        if depth >= DEEPEST && !parts.is_empty() {
            return self.push("{...}");
        }
        self.push("{");
        for (n, (member, part)) in parts.iter().enumerate() {
            if n > 0 {
                self.push(", ");
            }
            if self.is_full() {
                self.push("...");
                break;
            }
            match (member.name.as_str(), member.base) {
                ("", _) => {}
                (name, true) => self.push(&format!("<{name}> = ")),
                (name, false) => self.push(&format!("{name} = ")),
            }
            self.value(part, depth + 1);
        }
        self.push("}");
    }
}

fn is_character(shape: &Shape) -> bool {
    matches!(shape, Shape::Number { encoding: gimli::DW_ATE_signed_char | gimli::DW_ATE_unsigned_char, .. })
}

fn character(number: i128) -> String {
    let byte = u8::try_from(number & 0xff).unwrap_or(0);
    match u32::try_from(number).ok().and_then(char::from_u32) {
        Some(it) if !it.is_control() => format!(" '{it}'"),
        _ => format!(" '\\{byte:03o}'"),
    }
}

/// The string at an address, up to its zero.
fn string(world: &dyn World, address: u64) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while (bytes.len() as u64) < MOST_ELEMENTS {
        if !world.read(address.wrapping_add(bytes.len() as u64), &mut byte) {
            return (!bytes.is_empty()).then(|| format!("{}... (not mapped behind)", quoted(&bytes)));
        }
        if byte[0] == 0 {
            return Some(quoted(&bytes));
        }
        bytes.push(byte[0]);
    }
    Some(format!("{}...", quoted(&bytes)))
}

fn quoted(bytes: &[u8]) -> String {
    let text = bytes.utf8_chunks().map(|chunk| {
        let valid = chunk.valid().chars().map(|it| match it {
            '"' | '\\' => format!("\\{it}"),
            '\n' => "\\n".to_owned(),
            '\t' => "\\t".to_owned(),
            '\r' => "\\r".to_owned(),
            it if it.is_control() => format!("\\{:03o}", u32::from(it)),
            it => it.to_string(),
        });
        let invalid = chunk.invalid().iter().map(|byte| format!("\\{byte:03o}"));
        valid.chain(invalid).collect::<String>()
    });
    format!("\"{}\"", text.collect::<String>())
}

/// A `&str` of Rust: its text.
fn rust_str(value: &Value, record: &Record, world: &dyn World) -> Option<String> {
    if !matches!(value.ty.name().as_str(), "&str" | "&mut str") {
        return None;
    }
    let part = |name: &str| {
        let member = record.members.iter().find(|member| member.name == name)?;
        value.member(world, &member.name).ok()?.unsigned(world).ok()
    };
    let (start, len) = (part("data_ptr")?, part("length")?);
    let mut bytes = vec![0; usize::try_from(len.min(MOST_ELEMENTS)).ok()?];
    let cut = if len > MOST_ELEMENTS { "..." } else { "" };
    world.read(start, &mut bytes).then(|| format!("{}{cut}", quoted(&bytes)))
}

/// A floating-point number. One of 80 bits is shown as the nearest of 64, which is said unless it is the same.
fn float(value: &Value, world: &dyn World) -> Result<String, String> {
    let bytes = value.bytes(world)?;
    let word = |n: usize| bytes.iter().take(n).rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    Ok(match bytes.len() {
        4 => decimal(f32::from_bits(u32::try_from(word(4)).unwrap_or(0))),
        8 => decimal(f64::from_bits(word(8))),
        16 => {
            let exponent = u16::from_le_bytes([bytes[8], bytes[9]]);
            let (number, exact) = extended(word(8), exponent);
            format!("{}{number}", if exact { "" } else { "about " })
        }
        _ => {
            format!("bytes {}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "))
        }
    })
}

/// A number without many zeros: `1e-300` where it is far from one.
fn decimal<F: Into<f64> + Display + LowerExp + Copy>(number: F) -> String {
    let size = number.into().abs();
    match (1e-5..1e17).contains(&size) || size == 0.0 || !size.is_finite() {
        true => number.to_string(),
        false => format!("{number:e}"),
    }
}

/// An 80-bit number as one of 64 bits, and whether it is the same.
fn extended(significand: u64, exponent: u16) -> (f64, bool) {
    let sign = if exponent >> 15 == 1 { -1.0 } else { 1.0 };
    let power = i32::from(exponent & 0x7fff);
    if power == 0x7fff {
        return (if significand << 1 == 0 { sign * f64::INFINITY } else { f64::NAN }, true);
    }
    #[expect(clippy::cast_precision_loss, reason = "that is what the second part of the result says")]
    let whole = significand as f64;
    let scale = power - 16383 - 63;
    // In two steps, since the power alone may be out of range.
    let number = sign * whole * 2_f64.powi(scale / 2) * 2_f64.powi(scale - scale / 2);
    let in_range = number == 0.0 && significand == 0 || number.is_normal();
    (number, significand.trailing_zeros() >= 11 && in_range || significand == 0)
}
