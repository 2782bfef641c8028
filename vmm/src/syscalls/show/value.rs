//! Arguments and fields that are numbers.

use super::super::commands::{FUTEX, FUTEX_PRIVATE, FUTEX_REALTIME, request_name};
use super::super::constants::{CLOCKS, SIGNALS};
use super::super::effects::{Known, word};
use super::super::shape::{Bits, Kind, Names};
use super::{SHOWN, memory, text};

/// A number of this kind; empty if the call does not look at it.
pub(super) fn shown(kind: Kind, value: u64, known: &Known<'_>) -> String {
    match kind {
        Kind::Path => path(value, known),
        Kind::Environment => environment(value, known),
        kind => number(kind, value),
    }
}

/// A number of a kind that needs no memory.
pub(super) fn number(kind: Kind, value: u64) -> String {
    match kind {
        Kind::Unused => String::new(),
        Kind::Int | Kind::Fd | Kind::Pid => int(value).to_string(),
        Kind::Long | Kind::Off => signed(value).to_string(),
        Kind::Unsigned => (value & LOW).to_string(),
        Kind::Size => value.to_string(),
        Kind::Hex if value == 0 => "0".to_owned(),
        Kind::Hex => format!("{value:#x}"),
        Kind::DirFd if int(value) == -100 => "AT_FDCWD".to_owned(),
        Kind::DirFd => int(value).to_string(),
        Kind::Id if value & LOW == LOW => "-1".to_owned(),
        Kind::Id => (value & LOW).to_string(),
        Kind::Enum(names) => one_of(names, value),
        Kind::Flags(bits) => flags(bits, value),
        Kind::CloneFlags(bits) => clone_flags(bits, value),
        Kind::Signal => signal(value & LOW),
        Kind::Mode => octal(value & 0xffff),
        Kind::FileType => file_type(value),
        Kind::Clock => one_of(CLOCKS, value),
        Kind::Futex => futex(value),
        Kind::Device => device(value),
        Kind::Limit => limit(value),
        Kind::Command => request_name(value).map_or_else(|| request(value & LOW), ToOwned::to_owned),
        Kind::Address
        | Kind::Path
        | Kind::Environment
        | Kind::In(_)
        | Kind::Out(_)
        | Kind::InOut(_)
        | Kind::Left(_)
        | Kind::Nested(_)
        | Kind::By(_)
        | Kind::Request(_) => address(value),
    }
}

const LOW: u64 = 0xffff_ffff;

/// The low half, as an `int`.
pub(super) fn int(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// A number as a `long`.
pub(super) fn signed(value: u64) -> i64 {
    i64::from_le_bytes(value.to_le_bytes())
}

pub(super) fn address(value: u64) -> String {
    if value == 0 { "NULL".to_owned() } else { format!("{value:#x}") }
}

/// Three octal digits at least.
pub(super) fn octal(value: u64) -> String {
    if value < 0o10 { format!("{value:03o}") } else { format!("0{value:o}") }
}

fn one_of(names: &Names, value: u64) -> String {
    match names.iter().find(|(of, _)| *of == value & LOW) {
        Some((_, name)) => (*name).to_owned(),
        None => int(value).to_string(),
    }
}

/// The names of bits, and what is left in hexadecimal.
pub(super) fn flags(bits: &Bits, value: u64) -> String {
    let mut left = value;
    let mut shown = Vec::new();
    if bits.field != 0 {
        match bits.values.iter().find(|(of, _)| *of == value & bits.field) {
            // A value of zero is named where it has a name of its own, and else where it is all there is.
            Some((_, name)) => shown.push((*name).to_owned()),
            None if value & bits.field != 0 => shown.push(format!("{:#x}", value & bits.field)),
            None => {}
        }
        left &= !bits.field;
    }
    for (bit, name) in bits.bits {
        if left & bit == *bit {
            shown.push((*name).to_owned());
            left &= !bit;
        }
    }
    if left != 0 {
        shown.push(format!("{left:#x}"));
    }
    if shown.is_empty() { bits.none.to_owned() } else { shown.join("|") }
}

fn clone_flags(bits: &Bits, value: u64) -> String {
    let (flags_of, ends_with) = (value & !0xff, value & 0xff);
    match (flags_of, ends_with) {
        (_, 0) => flags(bits, flags_of),
        (0, _) => signal(ends_with),
        _ => format!("{}|{}", flags(bits, flags_of), signal(ends_with)),
    }
}

/// A signal's name: SIGINT, SIGRTMIN, SIGRT_1.
pub fn signal(number: u64) -> String {
    match usize::try_from(number) {
        Ok(0) => "0".to_owned(),
        Ok(1..=64) => format!("SIG{}", short_signal(number)),
        _ => int(number).to_string(),
    }
}

/// The same without SIG, as in a set.
pub(super) fn short_signal(number: u64) -> String {
    match usize::try_from(number).ok().and_then(|number| SIGNALS.get(number)) {
        Some(name) => (*name).to_owned(),
        None if number == 32 => "RTMIN".to_owned(),
        None => format!("RT_{}", number - 32),
    }
}

fn file_type(mode: u64) -> String {
    const TYPES: [(u64, &str); 7] = [
        (0o010_000, "S_IFIFO"),
        (0o020_000, "S_IFCHR"),
        (0o040_000, "S_IFDIR"),
        (0o060_000, "S_IFBLK"),
        (0o100_000, "S_IFREG"),
        (0o120_000, "S_IFLNK"),
        (0o140_000, "S_IFSOCK"),
    ];
    const BITS: [(u64, &str); 3] = [(0o4000, "S_ISUID|"), (0o2000, "S_ISGID|"), (0o1000, "S_ISVTX|")];
    let mut shown = String::new();
    if let Some((_, name)) = TYPES.iter().find(|(of, _)| *of == mode & 0o170_000) {
        shown = format!("{name}|");
    }
    for (bit, name) in BITS {
        if mode & bit != 0 {
            shown.push_str(name);
        }
    }
    shown + &octal(mode & 0o777)
}

/// Whether a file of this type has a device's number.
pub(super) fn is_device(mode: u64) -> bool {
    matches!(mode & 0o170_000, 0o020_000 | 0o060_000)
}

fn device(value: u64) -> String {
    let major = value >> 8 & 0xfff | value >> 32 & !0xfff;
    let minor = value & 0xff | value >> 12 & 0xfff_ff00;
    format!("makedev({major:#x}, {minor:#x})")
}

fn limit(value: u64) -> String {
    match value {
        u64::MAX => "RLIM64_INFINITY".to_owned(),
        1025.. if value.is_multiple_of(1024) => format!("{}*1024", value / 1024),
        _ => value.to_string(),
    }
}

fn futex(operation: u64) -> String {
    let command = operation & LOW & !(FUTEX_PRIVATE | FUTEX_REALTIME);
    let Some((_, name)) = FUTEX.iter().find(|(of, _)| *of == command) else {
        return format!("{:#x}", operation & LOW);
    };
    let private = if operation & FUTEX_PRIVATE != 0 { "_PRIVATE" } else { "" };
    let real = if operation & FUTEX_REALTIME != 0 { "|FUTEX_CLOCK_REALTIME" } else { "" };
    format!("{name}{private}{real}")
}

/// A request of ioctl without a name, taken apart.
fn request(value: u64) -> String {
    const WAYS: [&str; 4] = ["_IOC_NONE", "_IOC_WRITE", "_IOC_READ", "_IOC_READ|_IOC_WRITE"];
    let way = WAYS[usize::from(value.to_le_bytes()[3] >> 6)];
    let (size, kind, number) = (value >> 16 & 0x3fff, value >> 8 & 0xff, value & 0xff);
    format!("_IOC({way}, {kind:#x}, {number:#x}, {size:#x})")
}

/// A path in full.
fn path(value: u64, known: &Known<'_>) -> String {
    memory::string(value, known.read, 4096).map_or_else(|| address(value), |(bytes, _)| text::quoted(&bytes))
}

/// `0x7ffe... /* 35 vars */`.
fn environment(value: u64, known: &Known<'_>) -> String {
    const MOST: u64 = 4096;
    let variables = (0..MOST).map_while(|n| word::<8>(known.read, value.wrapping_add(8 * n)));
    let count = variables.take_while(|variable| *variable != 0).count();
    if value == 0 {
        return address(value);
    }
    format!("{} /* {count} var{} */", address(value), if count == 1 { "" } else { "s" })
}

/// A buffer of this length, of which so much is shown.
pub(super) fn buffer(start: u64, length: u64, known: &Known<'_>, quote: fn(&[u8]) -> String) -> String {
    let count = usize::try_from(length).map_or(SHOWN, |length| length.min(SHOWN));
    let mut bytes = vec![0; count];
    if start == 0 || count > 0 && !(known.read)(start, &mut bytes) {
        return address(start);
    }
    let rest = if length > count as u64 { "..." } else { "" };
    quote(&bytes) + rest
}
