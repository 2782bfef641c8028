//! What a call did to the program, from its row: registers, and bytes that the kernel may have written.
//!
//! Arguments and result need not be known: the synthesis asks about calls of a past that it only finds out. What is known
//! makes the answer smaller. `read(3, p, 4096) = 1024` wrote 1024 bytes at argument 1, also when p and 4096 are unknown.

use super::commands::request_argument;
use super::shape::{Beyond, Call, Extent, Form, Kind, Mapping};

/// The numbers of rax, rcx and r11 in the hardware's order: the registers that every call changes.
pub const CLOBBERED: [usize; 3] = [0, 1, 11];

/// The numbers of the registers with the arguments, in the hardware's order.
pub const ARGUMENTS: [usize; 6] = [7, 6, 2, 10, 8, 9];

/// Reads memory at an address; false if it cannot.
pub type Read<'a> = dyn Fn(u64, &mut [u8]) -> bool + 'a;

/// What is known of a call.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Its arguments.
    pub arguments: [Option<u64>; 6],
    /// What it returned.
    pub result: Option<u64>,
    /// Memory before or after the call: either bounds what was written.
    pub read: &'a Read<'a>,
}

impl<'a> Known<'a> {
    /// A call of which all is known.
    #[must_use]
    pub fn all(arguments: [u64; 6], result: u64, read: &'a Read<'a>) -> Known<'a> {
        Known { arguments: arguments.map(Some), result: Some(result), read }
    }
}

/// What a call did, beside changing [`CLOBBERED`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Bytes that it may have written; no others changed.
    pub written: Vec<Written>,
    /// How it changed what is mapped.
    pub mapping: Option<Mapping>,
}

/// Bytes that the kernel may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Where.
    pub place: Place,
    /// How many.
    pub length: u64,
}

/// Where bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where an argument points, unless it is null.
    Argument(usize),
    /// At an address that was read from memory.
    Address(u64),
}

/// Why the effects of a call have no bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbounded {
    /// The call is not in the table, or does what no argument shows.
    Call,
    /// It wrote an amount that is not known.
    Amount,
}

impl Effects {
    /// The bytes as addresses and lengths, for arguments that are known.
    #[must_use]
    pub fn ranges(&self, arguments: [u64; 6]) -> Vec<(u64, u64)> {
        let address = |place| match place {
            Place::Argument(n) => arguments[n],
            Place::Address(address) => address,
        };
        self.written.iter().map(|written| (address(written.place), written.length)).collect()
    }
}

/// How a call ended, as far as memory is concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Interrupted,
    Badly,
    Unknown,
}

impl Ended {
    fn with(result: Option<u64>) -> Ended {
        let Some(result) = result else { return Ended::Unknown };
        match result.wrapping_neg() {
            // EINTR, and what the kernel returns inside to begin again.
            4 | 512..=516 => Ended::Interrupted,
            1..=4095 => Ended::Badly,
            _ => Ended::Well,
        }
    }
}

/// The effects of a call that returned.
///
/// # Errors
///
/// If they have no bounds.
pub fn effects(number: u64, known: &Known<'_>) -> Result<Effects, Unbounded> {
    let call = super::find(number).ok_or(Unbounded::Call)?;
    let ended = Ended::with(known.result);
    let failed = matches!(ended, Ended::Badly | Ended::Interrupted);
    let mapping = match call.beyond {
        Beyond::Nothing => None,
        Beyond::Mappings(Mapping::Map | Mapping::Unmap) | Beyond::Exec | Beyond::Task if failed => None,
        Beyond::Mappings(mapping) => Some(mapping),
        _ => return Err(Unbounded::Call),
    };
    let mut written = Vec::new();
    for (n, argument) in call.arguments.iter().enumerate() {
        let (extent, writes) = match actual(argument.kind, known) {
            Kind::Out(extent) => (extent, matches!(ended, Ended::Well | Ended::Unknown)),
            Kind::InOut(extent) => (extent, ended != Ended::Badly),
            Kind::Left(extent) => (extent, matches!(ended, Ended::Interrupted | Ended::Unknown)),
            _ => continue,
        };
        if writes && known.arguments[n] != Some(0) {
            add(call, n, extent, known, &mut written).ok_or(Unbounded::Amount)?;
        }
    }
    written.retain(|written| written.length > 0);
    Ok(Effects { written, mapping })
}

/// What an argument stands for in this call.
pub(super) fn actual(kind: Kind, known: &Known<'_>) -> Kind {
    match kind {
        Kind::By(choices) => {
            let value = known.arguments[choices.by].map(|value| value & choices.mask);
            let chosen = choices.table.iter().find(|(of, _)| Some(*of) == value);
            chosen.map_or(choices.otherwise, |(_, kind)| *kind)
        }
        Kind::Request(n) => request_argument(known.arguments[n]),
        kind => kind,
    }
}

/// Adds what was written at argument `n`; `None` if that has no bounds.
fn add(call: &Call, n: usize, extent: Extent, known: &Known<'_>, written: &mut Vec<Written>) -> Option<()> {
    let at = |address, length| Written { place: Place::Address(address), length };
    match extent {
        Extent::Iovec(count) => {
            let count = known.arguments[count]?;
            let mut left = known.result;
            if left != Some(0) {
                buffers(known.read, known.arguments[n]?, count, &mut left, written)?;
            }
        }
        Extent::Message => message(known.read, known.arguments[n]?, known.result, written)?,
        Extent::Messages(count) => {
            let first = known.arguments[n]?;
            let asked = known.arguments[count]? & 0xffff_ffff;
            for place in 0..known.result.map_or(asked, |result| result.min(asked)).min(MOST) {
                let header = first.checked_add(place.checked_mul(MMSGHDR)?)?;
                written.push(at(header.checked_add(MSGHDR)?, 4));
                // sendmmsg writes the lengths alone.
                if matches!(call.arguments[n].kind, Kind::Out(_)) {
                    message(known.read, header, None, written)?;
                }
            }
        }
        extent => {
            written.push(Written { place: Place::Argument(n), length: length(extent, known)? });
        }
    }
    Some(())
}

/// How many bytes a plain extent has at most; `None` if that is not known.
pub(super) fn length(extent: Extent, known: &Known<'_>) -> Option<u64> {
    let argument = |n: usize| known.arguments[n];
    let returned = |n: usize, size: u64| {
        let bounds = [known.result, argument(n)];
        bounds.into_iter().flatten().min()?.checked_mul(size)
    };
    match extent {
        Extent::Bytes(bytes) => Some(bytes),
        Extent::Struct(shape) => Some(shape.size),
        Extent::Sized(_, n) | Extent::Arg(n) => argument(n),
        Extent::ArgTimes(n, shape) => argument(n)?.checked_mul(shape.size),
        Extent::Result(n) => returned(n, 1),
        Extent::ResultTimes(n, shape) => returned(n, shape.size),
        Extent::PointedBy(n, shape) => {
            let told = argument(n).and_then(|at| word::<4>(known.read, at));
            // No socket has a longer name, whatever the room for it (struct sockaddr_storage).
            let longest = matches!(shape.form, Form::Socket).then_some(shape.size);
            told.into_iter().chain(longest).min()
        }
        Extent::Bits(n) => Some((argument(n)? & 0xffff_ffff).div_ceil(64) * 8),
        Extent::Pages(n) => Some(argument(n)?.div_ceil(4096)),
        Extent::String
        | Extent::Strings
        | Extent::Iovec(_)
        | Extent::Message
        | Extent::Messages(_)
        | Extent::Unknown => None,
    }
}

/// As many buffers, or messages, as one call takes (UIO_MAXIOV).
const MOST: u64 = 1024;
/// The size of `struct msghdr`, and of `struct mmsghdr`.
pub(super) const MSGHDR: u64 = 56;
pub(super) const MMSGHDR: u64 = 64;

/// A little-endian number of `N` bytes.
pub(super) fn word<const N: usize>(read: &Read<'_>, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    read(address, &mut bytes[..N]).then(|| u64::from_le_bytes(bytes))
}

/// The buffers of an array of `struct iovec`, up to `left` bytes.
fn buffers(
    read: &Read<'_>,
    first: u64,
    count: u64,
    left: &mut Option<u64>,
    written: &mut Vec<Written>,
) -> Option<()> {
    for n in 0..count.min(MOST) {
        let element = first.checked_add(16 * n)?;
        let (base, length) = (word::<8>(read, element)?, word::<8>(read, element.checked_add(8)?)?);
        let length = left.map_or(length, |left| left.min(length));
        *left = left.map(|left| left - length);
        written.push(Written { place: Place::Address(base), length });
        if *left == Some(0) {
            break;
        }
    }
    Some(())
}

/// What receiving writes: a part of `struct msghdr`, and the buffers that it names.
fn message(read: &Read<'_>, header: u64, result: Option<u64>, written: &mut Vec<Written>) -> Option<()> {
    let field = |offset| word::<8>(read, header.checked_add(offset)?);
    let (name, control) = (field(0)?, field(32)?);
    let mut add = |address, length| written.push(Written { place: Place::Address(address), length });
    // The name's length, the length of control messages, and the flags.
    for (offset, length) in [(8, 4), (40, 8), (48, 4)] {
        add(header.checked_add(offset)?, length);
    }
    if name != 0 {
        add(name, field(8)? & 0xffff_ffff);
    }
    if control != 0 {
        add(control, field(40)?);
    }
    buffers(read, field(16)?, field(24)?, &mut { result }, written)
}

#[cfg(test)]
mod tests;
