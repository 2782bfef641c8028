//! What a program said before it gave up: the end of what it wrote to standard error.
//!
//! Example: a Rust program writes `thread 'main' panicked at src/main.rs:18:8:`, what is wrong, and perhaps a stack of thirty lines. The
//! first two are what is shown.

use vmm::position::Position;
use vmm::replay::ReplayError;
use vmm::travel::Travel;
use x86::op::Gpr;

const STANDARD_ERROR: u64 = 2;
/// So many writes are looked at: a stack is written in pieces.
const MOST_WRITES: usize = 300;
/// Those of so many events before: who gives up says it last, and to go back to what was said long before takes long.
const NEWEST_EVENTS: u64 = 500;
/// So much of one.
const LONGEST_WRITE: u64 = 4096;
/// So many lines are shown, of so many characters together.
const MOST_LINES: usize = 3;
const LONGEST: usize = 300;

/// What the loaded thread wrote last, on one line, without control characters. One stays where one stands.
pub(super) fn last_words(travel: &mut Travel) -> Result<Option<String>, ReplayError> {
    let (here, ended, thread) = (travel.position(), travel.ended(), travel.process().thread());
    let near = here.event.saturating_sub(NEWEST_EVENTS)..=here.event;
    let writes = travel.calls(&[libc::SYS_write])?.into_iter();
    let mut writes: Vec<u64> = writes
        .filter_map(|(event, task)| (task == thread && near.contains(&event)).then_some(event))
        .collect();
    writes.drain(..writes.len().saturating_sub(MOST_WRITES));
    let mut text = Vec::new();
    for event in writes {
        travel.seek(Position { event, retired: 0 })?;
        let process = travel.process();
        let regs = process.cpu().regs();
        let [descriptor, start, len] = [Gpr::RDI, Gpr::RSI, Gpr::RDX].map(|it| regs.gpr[usize::from(it.0)]);
        if process.thread() == thread && descriptor == STANDARD_ERROR {
            let mut bytes = vec![0; usize::try_from(len.min(LONGEST_WRITE)).unwrap_or(0)];
            if process.read_memory(start, &mut bytes) {
                text.extend(bytes);
            }
        }
    }
    if ended {
        travel.seek_end()?;
    } else {
        travel.seek(here)?;
    }
    Ok(telling(&String::from_utf8_lossy(&text)))
}

/// The lines that tell what is wrong: of a panic, of an exception that nobody caught; else the last one.
fn telling(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let newest = |with: &str| lines.iter().rposition(|line| line.contains(with));
    let told = match (newest(" panicked at "), newest("terminate called ")) {
        (Some(first), _) => &lines[first..lines.len().min(first + 2)],
        (None, Some(first)) => &lines[first..lines.len().min(first + MOST_LINES)],
        (None, None) => &lines[lines.len().saturating_sub(1)..],
    };
    let shown = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    let told: String = told.join(" ").chars().take(LONGEST).map(shown).collect();
    (!told.is_empty()).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn what_is_wrong_is_told_and_not_the_stack_behind_it() {
        let panic =
            "charging\nthread 'main' (7) panicked at a.rs:18:8:\nNone value\nstack backtrace:\n   0: f\n";
        assert_eq!(telling(panic).unwrap(), "thread 'main' (7) panicked at a.rs:18:8: None value");
        let thrown = "a\nterminate called after throwing an instance of 'E'\n  what():  no\x1b[2J\n";
        assert_eq!(
            telling(thrown).unwrap(),
            "terminate called after throwing an instance of 'E'   what():  no\\u{1b}[2J"
        );
        assert_eq!(telling("one\ntwo\n").unwrap(), "two");
        assert_eq!(telling("\n"), None);
    }
}
