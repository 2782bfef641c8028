//! What glibc says before it aborts: it keeps the text in memory, behind the variable `__abort_msg`, for those who have the core alone.
//!
//! Example: `free` of a pointer that no allocation begins at prints "free(): invalid pointer" and aborts. `__abort_msg` points to a
//! page then, with its size in four bytes and the text behind them, up to a zero.

use object::{Object, ObjectSymbol};

const VARIABLE: &str = "__abort_msg";
/// The size of the page is before the text.
const BEFORE_TEXT: u64 = 4;
/// No more of it is shown: a bit more than an assertion with long paths.
const MOST: u64 = 1000;

/// Where a file has the pointer to the text, in the file's own addresses.
pub(crate) fn pointer(bytes: &[u8]) -> Option<u64> {
    let file = object::File::parse(bytes).ok()?;
    let mut symbols = file.dynamic_symbols().chain(file.symbols());
    let found = symbols.find(|it| it.is_definition() && it.name() == Ok(VARIABLE))?;
    Some(found.address())
}

/// The text, on one line; `None` where there is none. `read` gives the program's memory.
pub(crate) fn text(pointer: u64, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Option<String> {
    let mut word = [0; 8];
    let start = read(pointer, &mut word).then(|| u64::from_le_bytes(word)).filter(|start| *start != 0)?;
    let first = start.checked_add(BEFORE_TEXT)?;
    let byte = |n: u64| {
        let mut byte = [0];
        first.checked_add(n).is_some_and(|at| read(at, &mut byte)).then_some(byte[0])
    };
    let bytes: Vec<u8> = (0..MOST).map_while(byte).take_while(|byte| *byte != 0).collect();
    // glibc ends it with a line's end. It may hold anything, and goes to a terminal.
    let text = String::from_utf8_lossy(&bytes);
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    Some(text.trim_end().chars().map(shown).collect()).filter(|text: &String| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn what_is_in_memory_is_shown_and_nothing_else() {
        let memory = |bytes: &'static [u8]| {
            move |at: u64, out: &mut [u8]| {
                let mut all = [&0x1010_u64.to_le_bytes()[..], &[0; 8], &[0, 16, 0, 0], bytes].concat();
                all.push(0);
                let from = usize::try_from(at.wrapping_sub(0x1000)).unwrap_or(usize::MAX);
                let there = from.checked_add(out.len()).and_then(|end| all.get(from..end));
                there.map(|bytes| out.copy_from_slice(bytes)).is_some()
            }
        };
        assert_eq!(text(0x1000, &memory(b"free(): invalid pointer\n")).unwrap(), "free(): invalid pointer");
        assert_eq!(text(0x1000, &memory(b"\x1b[2Ja\nb")).unwrap(), "\\u{1b}[2Ja\\nb");
        assert_eq!(text(0x1000, &memory(b"")), None);
        assert_eq!(text(0x1008, &memory(b"never")), None, "the pointer is zero");
        assert_eq!(text(0x2000, &memory(b"never")), None, "nothing is there");
    }
}
