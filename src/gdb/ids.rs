//! Threads as the protocol names them: `pPID.TID` in hexadecimal, where both ends know several processes, else `TID`.

use super::hex;

/// A thread of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) pid: i32,
    pub(super) tid: i32,
}

impl Id {
    /// As the other end wants it.
    pub(super) fn text(self, several: bool) -> String {
        match several {
            true => format!("p{:x}.{:x}", self.pid, self.tid),
            false => format!("{:x}", self.tid),
        }
    }
}

/// Whom a request means. What is left open (`-1` for all, `0` for any, or not said) is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) pid: Option<i32>,
    pub(super) tid: Option<i32>,
}

impl Who {
    pub(super) fn parse(text: &str) -> Option<Who> {
        let Some(both) = text.strip_prefix('p') else { return Some(Who { pid: None, tid: number(text)? }) };
        match both.split_once('.') {
            Some((pid, tid)) => Some(Who { pid: number(pid)?, tid: number(tid)? }),
            None => Some(Who { pid: number(both)?, tid: None }),
        }
    }

    /// Whether a thread is one of these.
    pub(super) fn includes(self, id: Id) -> bool {
        self.pid.is_none_or(|pid| pid == id.pid) && self.tid.is_none_or(|tid| tid == id.tid)
    }
}

/// A number, or none of `-1` and `0`.
fn number(text: &str) -> Option<Option<i32>> {
    match text {
        "-1" | "0" => Some(None),
        text => i32::try_from(hex::number(text)?).ok().map(|number| Some(number).filter(|it| *it != 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let id = Id { pid: 0x1f, tid: 0x20 };
        assert_eq!((id.text(true), id.text(false)), ("p1f.20".to_owned(), "20".to_owned()));
        assert_eq!(Who::parse("p1f.20"), Some(Who { pid: Some(0x1f), tid: Some(0x20) }));
        assert!(Who::parse("p1f").is_some_and(|who| who.includes(id)));
        assert!(Who::parse("-1").is_some_and(|who| who.includes(id)));
        assert!(Who::parse("p20.-1").is_some_and(|who| !who.includes(id)));
        assert_eq!((Who::parse("p"), Who::parse("x"), Who::parse("ffffffffff")), (None, None, None));
    }
}
