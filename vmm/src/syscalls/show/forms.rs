//! Structures, from their bytes.

use super::super::constants::SIGACTION_FLAGS;
use super::super::shape::{Field, Form, Kind, Struct};
use super::super::sockets::FAMILY;
use super::super::structs::DEVICE_STAT;
use super::{text, value};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A structure; `bytes` may be more or fewer than it has.
pub(super) fn shown(shape: &'static Struct, bytes: &[u8]) -> String {
    match shape.form {
        Form::Opaque | Form::Hidden => "{...}".to_owned(),
        Form::Whole(fields) => {
            // A descriptor below zero is passed over, whatever events are asked for.
            let fields =
                if shape.name == "pollfd" && word(bytes, 0, 4) >> 31 == 1 { &fields[..1] } else { fields };
            format!("{{{}}}", self::fields(fields, bytes).join(", "))
        }
        Form::Part(fields) => {
            let of_device = shape.name == "stat" && value::is_device(word(bytes, 24, 4));
            let fields = match DEVICE_STAT.form {
                Form::Part(device) if of_device => device,
                _ => fields,
            };
            format!("{{{}, ...}}", self::fields(fields, bytes).join(", "))
        }
        Form::Number(kind) => format!("[{}]", value::number(kind, word(bytes, 0, bytes.len().min(8)))),
        Form::Array(element) => list(element, bytes, false),
        Form::Text => {
            let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            text::quoted(&bytes[..end])
        }
        Form::Random => text::hexadecimal(bytes),
        Form::Signals => signals(word(bytes, 0, 8)),
        Form::Members => members(bytes),
        Form::Action => action(bytes),
        Form::Status => format!("[{{{}}}]", status(word(bytes, 0, 4))),
        Form::Socket => socket(bytes),
    }
}

/// As many elements as there are bytes for, then `...` if there is a rest.
pub(super) fn list(element: &'static Struct, bytes: &[u8], rest: bool) -> String {
    let size = usize::try_from(element.size).unwrap_or(usize::MAX);
    if bytes.len() < size && !bytes.is_empty() {
        return text::quoted(bytes);
    }
    let mut shown: Vec<String> = bytes
        .chunks_exact(size)
        .map(|bytes| match element.form {
            Form::Number(kind) => value::number(kind, word(bytes, 0, size)),
            _ => self::shown(element, bytes),
        })
        .collect();
    if rest {
        shown.push("...".to_owned());
    }
    format!("[{}]", shown.join(", "))
}

/// A little-endian number in a structure; what is beyond the bytes is zero.
fn word(bytes: &[u8], at: usize, width: usize) -> u64 {
    let mut word = [0; 8];
    for (slot, byte) in word.iter_mut().zip(bytes.iter().skip(at).take(width)) {
        *slot = *byte;
    }
    u64::from_le_bytes(word)
}

fn fields(fields: &[Field], bytes: &[u8]) -> Vec<String> {
    let present = fields.iter().filter(|field| field.at + field.width <= bytes.len());
    present
        .map(|field| {
            let value = match field.kind {
                Kind::Nested(shape) => shown(shape, &bytes[field.at..field.at + field.width]),
                kind => value::number(kind, word(bytes, field.at, field.width)),
            };
            format!("{}={value}", field.name)
        })
        .collect()
}

/// A set of signals; if most are in it, those that are not.
fn signals(set: u64) -> String {
    /// Two thirds of all signals.
    const MOST: u32 = 42;
    let (tilde, listed) = if set.count_ones() >= MOST { ("~", !set) } else { ("", set) };
    let names: Vec<String> =
        (0..64).filter(|n| listed >> n & 1 == 1).map(|n| value::short_signal(n + 1)).collect();
    format!("{tilde}[{}]", names.join(" "))
}

/// A set of numbers from zero.
pub(super) fn members(set: &[u8]) -> String {
    let numbers = (0..8 * set.len()).filter(|n| set[n / 8] >> (n % 8) & 1 == 1);
    let numbers: Vec<String> = numbers.map(|n| n.to_string()).collect();
    format!("[{}]", numbers.join(" "))
}

/// The kernel's `struct sigaction`.
fn action(bytes: &[u8]) -> String {
    const SA_RESTORER: u64 = 0x0400_0000;
    let [handler, flags, restorer, mask] = [0, 8, 16, 24].map(|at| word(bytes, at, 8));
    let handler = match handler {
        0 => "SIG_DFL".to_owned(),
        1 => "SIG_IGN".to_owned(),
        handler => value::address(handler),
    };
    let restorer = if flags & SA_RESTORER == 0 {
        String::new()
    } else {
        format!(", sa_restorer={}", value::address(restorer))
    };
    let flags = value::flags(&SIGACTION_FLAGS, flags);
    format!("{{sa_handler={handler}, sa_mask={}, sa_flags={flags}{restorer}}}", signals(mask))
}

/// What `wait` tells, as the macros that ask for it.
fn status(status: u64) -> String {
    let (low, high) = (status & 0x7f, status >> 8 & 0xff);
    match low {
        0 => format!("WIFEXITED(s) && WEXITSTATUS(s) == {high}"),
        0x7f if status == 0xffff => "WIFCONTINUED(s)".to_owned(),
        0x7f => format!("WIFSTOPPED(s) && WSTOPSIG(s) == {}", value::signal(high)),
        signal => {
            let core = if status & 0x80 != 0 { " && WCOREDUMP(s)" } else { "" };
            format!("WIFSIGNALED(s) && WTERMSIG(s) == {}{core}", value::signal(signal))
        }
    }
}

fn socket(bytes: &[u8]) -> String {
    let family = word(bytes, 0, 2);
    let name = value::number(Kind::Enum(FAMILY), family);
    let port = || u64::from(bytes.get(2).copied().unwrap_or(0)) << 8 | word(bytes, 3, 1);
    let rest = match family {
        1 => unix(bytes.get(2..).unwrap_or_default()),
        2 => {
            let [a, b, c, d, ..] = word(bytes, 4, 4).to_le_bytes();
            format!("sin_port=htons({}), sin_addr=inet_addr(\"{}\")", port(), Ipv4Addr::new(a, b, c, d))
        }
        10 => {
            let mut address = [0; 16];
            address.copy_from_slice(
                &[word(bytes, 8, 8).to_le_bytes(), word(bytes, 16, 8).to_le_bytes()].concat(),
            );
            let flow =
                u32::from_be_bytes(word(bytes, 4, 4).to_le_bytes()[..4].try_into().expect("four bytes"));
            format!(
                "sin6_port=htons({}), sin6_flowinfo=htonl({flow}), inet_pton(AF_INET6, \"{}\", &sin6_addr), \
                 sin6_scope_id={}",
                port(),
                Ipv6Addr::from(address),
                word(bytes, 24, 4)
            )
        }
        16 => format!("nl_pid={}, nl_groups={:08x}", word(bytes, 4, 4), word(bytes, 8, 4)),
        _ => "...".to_owned(),
    };
    format!("{{sa_family={name}, {rest}}}")
}

/// A path, or a name in the abstract space, which begins with a zero.
fn unix(path: &[u8]) -> String {
    match path {
        [0, name @ ..] => format!("sun_path=@{}", text::quoted(name)),
        [] => "...".to_owned(),
        _ => {
            let end = path.iter().position(|byte| *byte == 0).unwrap_or(path.len());
            format!("sun_path={}", text::quoted(&path[..end]))
        }
    }
}
