//! Where the parts of kallsyms are: VMCOREINFO says it since Linux 6.0; before, they are found by what they look like ([`search`]).
//!
//! Up to Linux 6.3 they lie one behind another, each at a multiple of eight (scripts/kallsyms.c):
//!
//! | part | content |
//! | --- | --- |
//! | offsets | `u32` for each symbol |
//! | relative base | `u64` |
//! | number of symbols | `u32` |
//! | names | for each symbol a length and that many tokens |
//! | markers | `u32` for each 256 symbols: where their names begin |
//! | token table | 256 texts, each with a zero behind it |
//! | token index | `u16` for each token: where its text begins |
//!
//! The index is what can be told from anything else: 256 numbers that go up from zero, and in front of it a text that ends before each.
//! From there it is found backwards.

use super::info::Info;
use super::space::Space;

/// More symbols, or bytes of a name, are damage.
const MOST_SYMBOLS: u32 = 1 << 22;
pub(super) const LONGEST_NAME: usize = 512;

/// Where the parts of kallsyms are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) names: u64,
    count: u64,
    tokens: u64,
    indexes: u64,
    pub(super) offsets: u64,
    /// Where what offsets are added to is; none where an offset is from where it is itself, as in Linux 7.2.
    pub(super) base: Option<u64>,
}

impl Table {
    pub(super) fn of(space: &Space<'_>, info: &Info<'_>) -> Result<Table, String> {
        if info.symbol("kallsyms_names").is_none() {
            let found = info.symbol("_stext").and_then(|code| search(space, code));
            return found.ok_or_else(|| {
                let why = "and they are not in memory as Linux 4.20 to 6.3 has them";
                format!("VMCOREINFO has no SYMBOL(kallsyms_names), as before Linux 6.0, {why}")
            });
        }
        let symbol =
            |name: &str| info.symbol(name).ok_or_else(|| format!("VMCOREINFO has no SYMBOL({name})"));
        Ok(Table {
            names: symbol("kallsyms_names")?,
            count: symbol("kallsyms_num_syms")?,
            tokens: symbol("kallsyms_token_table")?,
            indexes: symbol("kallsyms_token_index")?,
            offsets: symbol("kallsyms_offsets")?,
            base: info.symbol("kallsyms_relative_base"),
        })
    }

    pub(super) fn tokens(&self, space: &Space<'_>) -> Result<Vec<String>, String> {
        let token = |n: u64| {
            let index = space.half(self.indexes.wrapping_add(2 * n))?;
            space.text(self.tokens.wrapping_add(index.into()), LONGEST_NAME)
        };
        (0..TOKENS as u64)
            .map(token)
            .collect::<Option<_>>()
            .ok_or_else(|| "kallsyms' tokens are not in memory".to_owned())
    }

    pub(super) fn offsets(&self, space: &Space<'_>) -> Result<Vec<u32>, String> {
        let count = space.int(self.count).filter(|count| (1..=MOST_SYMBOLS).contains(count));
        let count = count.ok_or("the number of kallsyms is none")?;
        let bytes =
            space.bytes(self.offsets, 4 * count as usize).ok_or("kallsyms_offsets is not in memory")?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect())
    }
}

/// How many tokens the next name has. Takes its length off.
pub(super) fn name_length(bytes: &mut impl Iterator<Item = u8>) -> Option<usize> {
    const LONG: u8 = 0x80;
    let low = bytes.next()?;
    let high = if low & LONG != 0 { bytes.next()? } else { 0 };
    Some(usize::from(low & !LONG) | usize::from(high) << 7)
}

/// What each part begins at a multiple of.
const ALIGN: u64 = 8;
const TOKENS: usize = 256;
/// The symbols of one marker.
const MARKED: u32 = 256;
/// So many bytes from the beginning of the kernel's code on are looked through.
const SEARCHED: u64 = 128 << 20;

/// The parts of a kernel whose code begins there.
fn search(space: &Space<'_>, code: u64) -> Option<Table> {
    const PAGE: u64 = 0x1000;
    let mut pages = (code & !(PAGE - 1)..code.checked_add(SEARCHED)?).step_by(0x1000);
    pages.find_map(|page| {
        // What is not mapped lies between the kernel's parts.
        let bytes = space.bytes(page, 0x1000)?;
        let starts = (page..).step_by(8).zip(bytes.as_chunks::<8>().0);
        let mut likely = starts.filter(|(_, eight)| goes_up(**eight));
        likely.find_map(|(at, _)| behind_index(space, at))
    })
}

/// Whether an index may begin so.
fn goes_up([a, b, c, d, e, f, g, h]: [u8; 8]) -> bool {
    let [first, second, third, fourth] = [[a, b], [c, d], [e, f], [g, h]].map(u16::from_le_bytes);
    first == 0 && first < second && second < third && third < fourth
}

/// The parts of which this is the index, if it is one.
fn behind_index(space: &Space<'_>, indexes: u64) -> Option<Table> {
    let bytes = space.bytes(indexes, 2 * TOKENS)?;
    let index: Vec<u16> = bytes.as_chunks().0.iter().map(|half| u16::from_le_bytes(*half)).collect();
    if !index.is_sorted_by(|a, b| a < b) {
        return None;
    }
    let tokens = token_table(space, indexes, &index)?;
    let (markers, marked) = markers(space, tokens)?;
    let (names, count) = names(space, markers, &marked)?;
    let base = names.checked_sub(2 * ALIGN)?;
    let offsets = base.checked_sub((4 * u64::from(count)).next_multiple_of(ALIGN))?;
    Some(Table { names, count: names - ALIGN, tokens, indexes, offsets, base: Some(base) })
}

/// Where the texts begin that end in front of the index.
fn token_table(space: &Space<'_>, indexes: u64, index: &[u16]) -> Option<u64> {
    let (_, ends) = index.split_first()?;
    let length = u64::from(*index.last()?);
    let last = indexes.checked_sub(length)? & !(ALIGN - 1);
    (0..=LONGEST_NAME as u64 / ALIGN).map(|n| last.wrapping_sub(ALIGN * n)).find(|start| {
        let Some(texts) = space.bytes(*start, usize::try_from(length).unwrap_or(0)) else { return false };
        let zeros = texts.iter().filter(|byte| **byte == 0).count();
        let is_end = |end: &u16| texts.get(usize::from(*end) - 1) == Some(&0);
        let Some(text) = space.text(start + length, LONGEST_NAME) else { return false };
        let end = start + length + text.len() as u64 + 1;
        zeros == ends.len() && ends.iter().all(is_end) && end.next_multiple_of(ALIGN) == indexes
    })
}

/// The markers in front of the texts: where they begin, and what they are.
fn markers(space: &Space<'_>, tokens: u64) -> Option<(u64, Vec<u32>)> {
    let before = |at: u64| Some((at.checked_sub(4)?, space.int(at.checked_sub(4)?)?));
    let (mut at, mut value) = before(tokens)?;
    if value == 0 {
        (at, value) = before(at)?;
    }
    let mut marked = vec![value];
    while value != 0 && marked.len() <= (MOST_SYMBOLS / MARKED) as usize {
        let (next, smaller) = before(at)?;
        if smaller >= value {
            return None;
        }
        (at, value) = (next, smaller);
        marked.push(value);
    }
    marked.reverse();
    (value == 0 && at % ALIGN == 0).then_some((at, marked))
}

/// The names in front of the markers: where they begin, and how many these are.
fn names(space: &Space<'_>, markers: u64, marked: &[u32]) -> Option<(u64, u32)> {
    /// The bytes of the names behind the last marker, at most.
    const MOST: u64 = MARKED as u64 * (LONGEST_NAME as u64 + 2);
    let groups = u32::try_from(marked.len()).ok()?;
    let last = markers.checked_sub(u64::from(*marked.last()?))? & !(ALIGN - 1);
    (0..=MOST / ALIGN).map_while(|n| last.checked_sub(ALIGN * n)).find_map(|start| {
        let count = space.long(start.checked_sub(ALIGN)?)?;
        let count = u32::try_from(count).ok().filter(|count| count.div_ceil(MARKED) == groups)?;
        are_marked(space, (start, markers), count, marked).then_some((start, count))
    })
}

/// Whether so many names end where the markers begin, and are where these say.
fn are_marked(space: &Space<'_>, (start, end): (u64, u64), count: u32, marked: &[u32]) -> bool {
    let Some(bytes) = end.checked_sub(start).and_then(|n| space.bytes(start, usize::try_from(n).ok()?))
    else {
        return false;
    };
    let mut rest = bytes.iter().copied();
    let mut walk = || {
        for n in 0..count {
            let at = bytes.len() - rest.len();
            if n % MARKED == 0 && marked.get((n / MARKED) as usize).map(|at| *at as usize) != Some(at) {
                return None;
            }
            let length = name_length(&mut rest)?;
            rest.nth(length.checked_sub(1)?)?;
        }
        Some((rest.len() as u64) < ALIGN)
    };
    walk() == Some(true)
}
