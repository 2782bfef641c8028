//! What an argument points to.

use super::super::effects::{Known, MMSGHDR, MSGHDR, Read, length, word};
use super::super::shape::{Extent, Form, Struct};
use super::super::sockets::MESSAGE;
use super::super::structs::SOCKADDR;
use super::value::{self, address};
use super::{SHOWN, forms, text};

/// As many elements of an array as are shown.
const ELEMENTS: u64 = 32;
/// As many bytes of a structure as are read.
const LARGEST: u64 = 4096;

/// The memory at argument `n`, or its address if it cannot be read.
pub(super) fn shown(extent: Extent, n: usize, known: &Known<'_>) -> String {
    let start = known.arguments[n].unwrap_or(0);
    if start == 0 {
        return address(start);
    }
    at(extent, start, known).unwrap_or_else(|| address(start))
}

fn at(extent: Extent, start: u64, known: &Known<'_>) -> Option<String> {
    Some(match extent {
        Extent::Bytes(_) | Extent::Arg(_) => {
            value::buffer(start, length(extent, known)?, known, text::quoted)
        }
        Extent::Result(_) => value::buffer(start, length(extent, known)?, known, text::quoted),
        Extent::Struct(shape) => one(shape, start, shape.size, known)?,
        Extent::Sized(shape, _) | Extent::PointedBy(_, shape) => {
            let length = length(extent, known)?;
            one(shape, start, length, known)?
        }
        Extent::ArgTimes(_, shape) | Extent::ResultTimes(_, shape) => {
            array(shape, start, length(extent, known)?, known)?
        }
        Extent::String => {
            let (bytes, ends) = string(start, known.read, SHOWN)?;
            text::quoted(&bytes) + if ends { "" } else { "..." }
        }
        Extent::Strings => strings(start, known)?,
        Extent::Iovec(count) => iovecs(start, known.arguments[count]?, &mut { known.result }, known)?,
        Extent::Message => message(start, known.result, known)?,
        Extent::Messages(count) => messages(start, known.arguments[count]? & 0xffff_ffff, known)?,
        Extent::Bits(_) => {
            let bytes = bytes(start, length(extent, known)?, known.read)?;
            // The kernel rounds up to words; numbers from the argument on are not looked at.
            forms::members(&bytes)
        }
        Extent::Pages(_) | Extent::Unknown => return None,
    })
}

fn bytes(start: u64, length: u64, read: &Read<'_>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length.min(LARGEST)).ok()?];
    (bytes.is_empty() || read(start, &mut bytes)).then_some(bytes)
}

/// One structure, or what of it `length` bytes hold.
fn one(shape: &'static Struct, start: u64, length: u64, known: &Known<'_>) -> Option<String> {
    if matches!(shape.form, Form::Hidden) {
        return None;
    }
    Some(forms::shown(shape, &bytes(start, length, known.read)?))
}

/// An array; of characters, a text.
fn array(shape: &'static Struct, start: u64, length: u64, known: &Known<'_>) -> Option<String> {
    match shape.form {
        Form::Hidden => None,
        Form::Random => Some(value::buffer(start, length, known, text::hexadecimal)),
        Form::Text | Form::Members => Some(forms::shown(shape, &bytes(start, length, known.read)?)),
        _ => {
            let shown = bytes(start, length.min(ELEMENTS * shape.size), known.read)?;
            let rest = length > shown.len() as u64;
            Some(forms::list(shape, &shown, rest))
        }
    }
}

/// The bytes up to a zero, `most` at most, and whether the zero was found.
pub(super) fn string(start: u64, read: &Read<'_>, most: usize) -> Option<(Vec<u8>, bool)> {
    let mut found = Vec::new();
    for n in 0..=most {
        let mut byte = [0];
        if start == 0 || !read(start.checked_add(n as u64)?, &mut byte) {
            return None;
        }
        if byte == [0] {
            return Some((found, true));
        }
        found.push(byte[0]);
    }
    found.truncate(most);
    Some((found, false))
}

fn strings(start: u64, known: &Known<'_>) -> Option<String> {
    let mut shown = Vec::new();
    for n in 0..=ELEMENTS {
        let element = word::<8>(known.read, start.checked_add(8 * n)?)?;
        if element == 0 {
            break;
        }
        if n == ELEMENTS {
            shown.push("...".to_owned());
            break;
        }
        let text = string(element, known.read, SHOWN);
        let text = text.map(|(bytes, ends)| text::quoted(&bytes) + if ends { "" } else { "..." });
        shown.push(text.unwrap_or_else(|| address(element)));
    }
    Some(format!("[{}]", shown.join(", ")))
}

/// Buffers; of those that were written, `left` bytes.
fn iovecs(start: u64, count: u64, left: &mut Option<u64>, known: &Known<'_>) -> Option<String> {
    let mut shown = Vec::new();
    for n in 0..count.min(ELEMENTS) {
        let element = start.checked_add(16 * n)?;
        let base = word::<8>(known.read, element)?;
        let length = word::<8>(known.read, element.checked_add(8)?)?;
        let filled = left.map_or(length, |left| left.min(length));
        *left = left.map(|left| left - filled);
        let bytes = value::buffer(base, filled, known, text::quoted);
        shown.push(format!("{{iov_base={bytes}, iov_len={length}}}"));
    }
    if count > ELEMENTS {
        shown.push("...".to_owned());
    }
    Some(format!("[{}]", shown.join(", ")))
}

/// A `struct msghdr` whose buffers hold `filled` bytes.
fn message(start: u64, filled: Option<u64>, known: &Known<'_>) -> Option<String> {
    let field = |offset| word::<8>(known.read, start.checked_add(offset)?);
    let (name, name_length) = (field(0)?, field(8)? & 0xffff_ffff);
    let shown_name = match name {
        0 => address(name),
        _ => one(&SOCKADDR, name, name_length, known).unwrap_or_else(|| address(name)),
    };
    let (count, control, control_length) = (field(24)?, field(32)?, field(40)?);
    let buffers = match field(16)? {
        0 => address(0),
        first => iovecs(first, count, &mut { filled }, known)?,
    };
    let control = if control == 0 || control_length == 0 {
        String::new()
    } else {
        format!("msg_control={}, ", address(control))
    };
    let flags = value::flags(&MESSAGE, field(48)? & 0xffff_ffff);
    Some(format!(
        "{{msg_name={shown_name}, msg_namelen={name_length}, msg_iov={buffers}, msg_iovlen={count}, \
         {control}msg_controllen={control_length}, msg_flags={flags}}}"
    ))
}

fn messages(start: u64, count: u64, known: &Known<'_>) -> Option<String> {
    let count = known.result.map_or(count, |result| result.min(count));
    let mut shown = Vec::new();
    for n in 0..count.min(ELEMENTS) {
        let header = start.checked_add(MMSGHDR * n)?;
        let length = word::<4>(known.read, header.checked_add(MSGHDR)?)?;
        // Until the call returned, the length is nothing.
        let filled = known.result.map(|_| length);
        let told = if filled.is_some() { format!(", msg_len={length}") } else { String::new() };
        shown.push(format!("{{msg_hdr={}{told}}}", message(header, filled, known)?));
    }
    Some(format!("[{}]", shown.join(", ")))
}
