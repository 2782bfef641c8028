//! Where files were mapped while samples were taken: `PERF_RECORD_MMAP` and `PERF_RECORD_MMAP2`, as they are in `perf.data` and as
//! `perf script --show-mmap-events` prints them.
//!
//! Linux, include/uapi/linux/perf_event.h for the records; tools/perf/util/event.c, `perf_event__fprintf_mmap` and `_mmap2`, for the
//! text: ` PID/TID: [0xSTART(0xLEN) @ OFFSET maj:min ino gen]: r-xp FILE`; since perf 5.12 a build-id may stand for the device and
//! the inode.

use super::perf::word;

/// `PERF_RECORD_MMAP`: executable mappings, without what they may be used for.
pub(crate) const RECORD_MMAP: u32 = 1;
/// `PERF_RECORD_MMAP2`.
pub(crate) const RECORD_MMAP2: u32 = 10;

/// A file that was mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    /// The file's name.
    pub file: String,
}

impl Mapping {
    /// The mapping that a line of text tells of, if it does.
    #[must_use]
    pub fn parse(line: &str) -> Option<Mapping> {
        let (_, record) = line.split_once("PERF_RECORD_MMAP")?;
        let (range, rest) = record.split_once('[')?.1.split_once("]:")?;
        let (start, rest_of_range) = range.split_once('(')?;
        let (len, place) = rest_of_range.split_once(") @ ")?;
        let (_, file) = rest.trim_start().split_once(' ')?;
        let start = number(start)?;
        Some(Mapping {
            start,
            end: start.checked_add(number(len)?)?,
            offset: number(place.split(' ').next()?)?,
            file: file.trim().to_owned(),
        })
    }

    /// The line that tells of it, of a process.
    #[must_use]
    pub fn print(&self, pid: i32) -> String {
        let Mapping { start, end, offset, file } = self;
        let len = end - start;
        format!(" PERF_RECORD_MMAP2 {pid}/{pid}: [{start:#x}({len:#x}) @ {offset:#x} 00:00 0 0]: r-xp {file}")
    }

    /// What the body of a record tells of, which has one of these types; `None` if it has another, or is cut.
    pub(crate) fn of_record(kind: u32, body: &[u8]) -> Option<Mapping> {
        let name = match kind {
            RECORD_MMAP => 32,
            // Device, inode and its generation, or a build-id; protection, flags.
            RECORD_MMAP2 => 64,
            _ => return None,
        };
        let file = body.get(name..)?.split(|byte| *byte == 0).next()?;
        let field = |at: usize| body.get(at..at + 8).map(word);
        let start = field(8)?;
        Some(Mapping {
            start,
            end: start.checked_add(field(16)?)?,
            offset: field(24)?,
            file: String::from_utf8_lossy(file).into_owned(),
        })
    }
}

/// A number as perf prints it: hexadecimal with a prefix; zero without one.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => (text == "0").then_some(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn libc() -> Mapping {
        let file = "/usr/lib/x86_64-linux-gnu/libc.so.6".to_owned();
        Mapping { start: 0x7f00_0002_6000, end: 0x7f00_0017_b000, offset: 0x26000, file }
    }

    #[test]
    fn what_perf_prints_is_read() {
        let line = "prog 42 1.5: PERF_RECORD_MMAP2 42/42: [0x7f0000026000(0x155000) @ 0x26000 fe:00 1234 0]: r-xp \
                    /usr/lib/x86_64-linux-gnu/libc.so.6\n";
        assert_eq!(Mapping::parse(line), Some(libc()));
        let by_build_id = line.replace("fe:00 1234 0", "<51657f818beb1ae70372216a99b7412b8a100a20>");
        assert_eq!(Mapping::parse(&by_build_id), Some(libc()));
        let of_old = "PERF_RECORD_MMAP -1/0: [0x1000(0x1000) @ 0]: x /a file";
        let expected = Mapping { start: 0x1000, end: 0x2000, offset: 0, file: "/a file".to_owned() };
        assert_eq!(Mapping::parse(of_old), Some(expected));
        assert_eq!(Mapping::parse(&libc().print(42)), Some(libc()));
        for other in ["", "PERF_RECORD_MMAP2 1/1: [0x1000", "PERF_RECORD_COMM: prog", " 0x1/0x2/P/-/-/0 "] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }

    #[test]
    fn what_perf_writes_is_read() {
        let words = [42u64 << 32 | 42, 0x7f00_0002_6000, 0x155000, 0x26000];
        let head: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let name = b"/usr/lib/x86_64-linux-gnu/libc.so.6\0\0\0\0\0";
        let old = [&head[..], name].concat();
        assert_eq!(Mapping::of_record(RECORD_MMAP, &old), Some(libc()));
        let new = [&head[..], &[0; 32], name].concat();
        assert_eq!(Mapping::of_record(RECORD_MMAP2, &new), Some(libc()));
        assert_eq!(Mapping::of_record(RECORD_MMAP2, &new[..40]), None);
        assert_eq!(Mapping::of_record(9, &new), None);
    }
}
