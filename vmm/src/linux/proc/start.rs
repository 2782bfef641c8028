//! What a program was started with: the part of its first stack that /proc shows as `cmdline`, `environ` and `auxv`.
//!
//! Where it lies is read once, behind the loader; the bytes are read from memory when they are asked for, so that what a program
//! writes over its arguments is seen.

use super::super::{Guest, Kernel, Served};
use super::Of;
use crate::memory::AddressSpace;
use crate::plain::plain;
use crate::ram::{Memory, Virt};
use std::ops::Range;

/// As many arguments or variables as are looked for.
const MOST: usize = 1 << 20;
/// The most that is shown of each.
const LONGEST: u64 = 4 << 20;

/// Where the first stack holds what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start {
    /// The stack pointer at the first instruction.
    pub(super) stack: Virt,
    pub(super) arguments: Range<Virt>,
    pub(super) environment: Range<Virt>,
    pub(crate) auxiliary: Vec<u8>,
}

plain!(struct Start { stack, arguments, environment, auxiliary });

impl Start {
    /// That of a program that was just loaded, whose stack pointer is `stack`.
    pub(crate) fn read(space: &AddressSpace, memory: &Memory, stack: Virt) -> Start {
        let mut start = Start { stack, ..Start::default() };
        let word = |at: Virt| {
            let mut bytes = [0; 8];
            space.copy(memory, at, &mut bytes).then(|| u64::from_le_bytes(bytes))
        };
        // The vectors of pointers end with a null each.
        let mut at = stack.wrapping_add(8);
        let mut vector = || {
            let mut texts = Vec::new();
            for _ in 0..MOST {
                let text = word(at).unwrap_or(0);
                at = at.wrapping_add(8);
                if text == 0 {
                    break;
                }
                texts.push(text);
            }
            texts
        };
        let texts = [vector(), vector()];
        let [arguments, environment] = texts.map(|texts| match (texts.first(), texts.last()) {
            (Some(first), Some(last)) => *first..after(space, memory, *last),
            _ => 0..0,
        });
        (start.arguments, start.environment) = (arguments, environment);
        for _ in 0..MOST {
            let (Some(kind), Some(value)) = (word(at), word(at.wrapping_add(8))) else { break };
            start.auxiliary.extend([kind, value].into_iter().flat_map(u64::to_le_bytes));
            at = at.wrapping_add(16);
            if kind == libc::AT_NULL {
                break;
            }
        }
        start
    }
}

/// Behind the zero byte of a text.
fn after(space: &AddressSpace, memory: &Memory, mut at: Virt) -> Virt {
    let mut byte = [1];
    while byte[0] != 0 && space.copy(memory, at, &mut byte) {
        at = at.wrapping_add(1);
    }
    at
}

/// The bytes of a range of a process's memory, as far as they are mapped.
fn bytes(kernel: &Kernel, guest: &Guest<'_>, of: Of, range: &Range<Virt>) -> Vec<u8> {
    let Some(task) = kernel.shown(of) else { return Vec::new() };
    let length = range.end.saturating_sub(range.start).min(LONGEST);
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let read = guest.spaces.get(task.space).copy(guest.memory, range.start, &mut bytes);
    if read { bytes } else { Vec::new() }
}

fn of(kernel: &Kernel, of: Of) -> Start {
    kernel.groups.get(of.group).map(|group| group.start.clone()).unwrap_or_default()
}

pub(super) fn cmdline(kernel: &mut Kernel, guest: &mut Guest<'_>, whose: Of) -> Served<Vec<u8>> {
    let Start { arguments, environment, .. } = of(kernel, whose);
    let text = bytes(kernel, guest, whose, &arguments);
    if text.last().is_none_or(|last| *last == 0) {
        return Ok(text);
    }
    // A title that was written over the arguments and beyond (get_mm_cmdline of fs/proc/base.c).
    let mut title = bytes(kernel, guest, whose, &(arguments.start..environment.end.max(arguments.end)));
    let end = title.iter().position(|byte| *byte == 0).unwrap_or(title.len());
    title.truncate(end);
    Ok(title)
}

pub(super) fn environ(kernel: &mut Kernel, guest: &mut Guest<'_>, whose: Of) -> Served<Vec<u8>> {
    let Start { environment, .. } = of(kernel, whose);
    Ok(bytes(kernel, guest, whose, &environment))
}

pub(super) fn auxv(kernel: &mut Kernel, _guest: &mut Guest<'_>, whose: Of) -> Served<Vec<u8>> {
    Ok(if kernel.shown(whose).is_some() { of(kernel, whose).auxiliary } else { Vec::new() })
}
