//! The kernel's log: the ring of records that printk writes, as it is since Linux 5.10 (kernel/printk/printk_ringbuffer.c).
//!
//! A ring of descriptors says for each record where its text is, and whether that is whole; a second ring has facts about it; a third
//! has the text. Example: descriptor 412 is finalized, its text is at 8,000 to 8,064 of a ring of 2^18 bytes, behind eight bytes with
//! the descriptor's number, and its facts say 61 bytes, level 6, 2.358 s.

use super::info::Info;
use super::space::Space;

/// The records of a ring, at most: more is damage.
const MOST_BITS: u32 = 20;
/// The bytes of the text, at most.
const MOST_TEXT_BITS: u32 = 28;

/// A line of the log. A record with line breaks in it is several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The number of the record.
    pub sequence: u64,
    /// When, in nanoseconds since the kernel's start.
    pub nanoseconds: u64,
    /// 0 (emergency) to 7 (debug).
    pub level: u8,
    /// The text.
    pub text: String,
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Oldest first.
    pub lines: Vec<Line>,
    /// Older records that newer ones have replaced.
    pub replaced: u64,
    /// Records that are there, and whose text is not.
    pub unread: u64,
}

/// A ring of text.
struct Texts {
    data: u64,
    size: u64,
}

/// Where the parts of the ring are.
struct Ring {
    descriptors: u64,
    facts: u64,
    count: u64,
    texts: Texts,
}

/// Reads the log.
pub(super) fn read(space: &Space<'_>, info: &Info<'_>) -> Result<Log, String> {
    if info.symbol("prb").is_none() && info.symbol("log_buf").is_some() {
        return Err("the log is of the form before Linux 5.10, which is not read".to_owned());
    }
    let (ring, first, last) = ring(space, info)?;
    let mut log = Log::default();
    // Numbers of descriptors count up for ever, in 62 bits.
    let count = last.wrapping_sub(first) & NUMBER;
    if count >= ring.count {
        return Err("the ends of the log's ring are not in order".to_owned());
    }
    for n in 0..=count {
        let number = first.wrapping_add(n) & NUMBER;
        match record(space, info, &ring, number)? {
            Some(Record::Lines(lines)) => log.lines.extend(lines),
            Some(Record::Unread) => log.unread += 1,
            None => {}
        }
    }
    log.replaced = log.lines.first().map_or(0, |line| line.sequence);
    Ok(log)
}

/// The bits of a descriptor's state that are its number; above them is how far it is.
const NUMBER: u64 = (1 << 62) - 1;

fn ring(space: &Space<'_>, info: &Info<'_>) -> Result<(Ring, u64, u64), String> {
    let gone = |what: &str| format!("{what} is not in memory");
    let symbol = info.symbol("prb").ok_or("VMCOREINFO has no SYMBOL(prb): where the log is is not known")?;
    let ring = space.long(symbol).ok_or_else(|| gone("prb"))?;
    let of = |field: &str| Ok::<u64, String>(ring.wrapping_add(info.offset(field)?));
    let descriptors = of("printk_ringbuffer.desc_ring")?;
    let texts = of("printk_ringbuffer.text_data_ring")?;
    let long = |base: u64, field: &str| {
        space.long(base.wrapping_add(info.offset(field)?)).ok_or_else(|| gone(field))
    };
    let bits = |base: u64, field: &str, most: u32| {
        let bits = space.int(base.wrapping_add(info.offset(field)?)).ok_or_else(|| gone(field))?;
        if bits > most { Err(format!("{field} is {bits}, which no kernel has")) } else { Ok(1_u64 << bits) }
    };
    let made = Ring {
        descriptors: long(descriptors, "prb_desc_ring.descs")?,
        facts: long(descriptors, "prb_desc_ring.infos")?,
        count: bits(descriptors, "prb_desc_ring.count_bits", MOST_BITS)?,
        texts: Texts {
            data: long(texts, "prb_data_ring.data")?,
            size: bits(texts, "prb_data_ring.size_bits", MOST_TEXT_BITS)?,
        },
    };
    let first = long(descriptors, "prb_desc_ring.tail_id")?;
    Ok((made, first, long(descriptors, "prb_desc_ring.head_id")?))
}

/// What a descriptor leads to.
enum Record {
    Lines(Vec<Line>),
    Unread,
}

/// The record of a descriptor; `None` where none was written with that number.
fn record(space: &Space<'_>, info: &Info<'_>, ring: &Ring, number: u64) -> Result<Option<Record>, String> {
    const COMMITTED: u64 = 1;
    const FINALIZED: u64 = 2;
    let slot = number % ring.count;
    let descriptor = ring.descriptors.wrapping_add(slot.wrapping_mul(info.size("prb_desc")?));
    let facts = ring.facts.wrapping_add(slot.wrapping_mul(info.size("printk_info")?));
    let of = |base: u64, field: &str| Ok::<u64, String>(base.wrapping_add(info.offset(field)?));
    let Some(state) = space.long(of(descriptor, "prb_desc.state_var")?) else {
        return Ok(Some(Record::Unread));
    };
    if state & NUMBER != number || !matches!(state >> 62, COMMITTED | FINALIZED) {
        return Ok(None);
    }
    let place = of(descriptor, "prb_desc.text_blk_lpos")?;
    let [begin, end] = ["prb_data_blk_lpos.begin", "prb_data_blk_lpos.next"].map(|field| of(place, field));
    let block = space.long(begin?).zip(space.long(end?));
    let [sequence, time, length] =
        ["printk_info.seq", "printk_info.ts_nsec", "printk_info.text_len"].map(|field| of(facts, field));
    let (sequence, time, length_at) = (space.long(sequence?), space.long(time?), length?);
    // Behind the length: the facility, then flags and level in one byte.
    let (length, level) = (space.half(length_at), space.half(length_at.wrapping_add(2)));
    let known = block.zip(sequence.zip(time)).zip(length.zip(level));
    let Some(((block, (sequence, nanoseconds)), (length, level))) = known else {
        return Ok(Some(Record::Unread));
    };
    let Some(text) = ring.texts.text(space, block, length.into()) else { return Ok(Some(Record::Unread)) };
    let level = level.to_le_bytes()[1] >> 5;
    let line = |text: &str| Line { sequence, nanoseconds, level, text: text.to_owned() };
    let lines = if text.is_empty() { vec![line("")] } else { text.lines().map(line).collect() };
    Ok(Some(Record::Lines(lines)))
}

impl Texts {
    /// The text of a block, whose two ends are numbers that count up for ever. It is not split: what would be is at the ring's beginning.
    fn text(&self, space: &Space<'_>, (begin, end): (u64, u64), length: usize) -> Option<String> {
        /// The number of its descriptor.
        const HEAD: u64 = 8;
        /// Both ends of an empty line. Other odd ends are of a text for which there was no room.
        const EMPTY: u64 = 3;
        if begin & 1 != 0 && end & 1 != 0 {
            return (begin == EMPTY && end == EMPTY).then(String::new);
        }
        let turn = |position: u64| position / self.size;
        let (at, size) = if turn(begin) == turn(end.wrapping_sub(1)) && begin < end {
            (begin % self.size, end - begin)
        } else if turn(begin).wrapping_add(1) == turn(end) {
            (0, end % self.size)
        } else {
            return None;
        };
        let room = usize::try_from(size.checked_sub(HEAD)?).ok()?;
        let bytes = space.bytes(self.data.wrapping_add(at + HEAD), length.min(room))?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}
