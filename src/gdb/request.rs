//! What a debugger asks for: each packet as one [`Request`].
//!
//! Source: gdb's manual, appendix "gdb Remote Serial Protocol"; what lldb has besides, from its docs/lldb-gdb-remote.txt. What is not
//! known, or not understood, is [`Request::Unknown`], which is answered by an empty packet: so both debuggers want it.
//!
//! Example: `vCont;s:p2.5;c` is a [`Request::Resume`] with two actions: one step of thread 5 of process 2, and all others go on.

use super::hex;
use super::ids::Who;
use super::points::{Kind, Point};
use vmm::engine::lookout::Access;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// What the debugger can do; it asks what we can.
    Supported(Vec<String>),
    /// Packets are not acknowledged any more.
    LeaveOutAcknowledgements,
    /// It stays connected when the program ends.
    Extended,
    /// Why the program stands where it does.
    WhyStopped,
    /// Whose registers and memory it asks for from now on.
    Look(Who),
    /// Whom it makes run.
    Steer(Who),
    /// Whether there is such a thread.
    IsAlive(Who),
    /// The thread that is looked at.
    Current,
    /// All threads, in the protocol's list.
    Threads,
    /// More of them.
    MoreThreads,
    /// What there is to say of a thread.
    About(Who),
    /// Why a thread stands where it does (lldb).
    StopOf(Who),
    /// All registers.
    Registers,
    /// One of them.
    Register(u64),
    /// So many bytes of memory.
    Read(u64, u64),
    /// Memory or registers are to be changed, or something else is that cannot be: registers if so.
    Change {
        registers: bool,
    },
    Insert(Point),
    Remove(Point),
    /// What vCont can do.
    Actions,
    /// Threads are to run; the first action that fits a thread is its own.
    Resume(Vec<Action>),
    /// Backwards: one instruction, or on.
    Back {
        step: bool,
    },
    /// A part of a document.
    Part(Document, u64, u64),
    /// A command for the target itself.
    Monitor(String),
    /// Files.
    File(FileRequest),
    /// Whether a process was there before the debugger.
    Attached,
    /// These signals (gdb's numbers) are no reason to stop.
    PassSignals(Vec<u64>),
    /// Stops for these system calls, for all if there are none; or for none any more.
    CatchCalls(Option<Vec<u64>>),
    /// It is taken note of, and nothing follows.
    Noted,
    /// A process is not looked at any more; all if there is no number.
    Detach(Option<i32>),
    /// It is ended, which here is the same; its answer differs.
    Kill(Option<i32>),
    /// A process is looked at again.
    Attach(i32),
    /// From the beginning.
    Restart,
    /// What machine this is (lldb).
    Host,
    /// What process this is (lldb).
    Process,
    /// What is mapped at an address (lldb).
    Region(u64),
    Unknown,
}

/// What a thread is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    pub(super) what: Do,
    pub(super) who: Who,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Do {
    Continue,
    Step,
    /// Steps, as long as it stands in this range.
    StepIn(u64, u64),
}

/// What is read in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// The description of registers.
    Features(String),
    /// The path of the program of a process.
    Executable(Option<i32>),
    /// Its auxiliary vector.
    Auxiliary,
    /// All threads.
    Threads,
    /// The signal that a thread has.
    Signal,
}

/// What is asked for of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileRequest {
    /// Names are those that a process has.
    Of,
    Open(Vec<u8>),
    Close(u64),
    Read {
        file: u64,
        len: u64,
        offset: u64,
    },
    /// Something else.
    Other,
}

impl Request {
    /// What a packet asks for.
    pub(super) fn parse(packet: &[u8]) -> Request {
        let Ok(text) = std::str::from_utf8(packet) else {
            return match packet.first() {
                Some(b'X') => Request::Change { registers: false },
                _ => Request::Unknown,
            };
        };
        Request::of(text).unwrap_or(Request::Unknown)
    }

    fn of(text: &str) -> Option<Request> {
        let first = text.chars().next()?;
        let rest = &text[first.len_utf8()..];
        match first {
            'q' => query(rest),
            'Q' => setting(rest),
            'v' => long(rest),
            '!' => Some(Request::Extended),
            '?' => Some(Request::WhyStopped),
            'H' if rest.starts_with('g') => Who::parse(&rest[1..]).map(Request::Look),
            'H' if rest.starts_with('c') => Who::parse(&rest[1..]).map(Request::Steer),
            'T' => Who::parse(rest).map(Request::IsAlive),
            // lldb names a thread behind these, where it was told that this is possible.
            'g' if rest.is_empty() => Some(Request::Registers),
            'p' => hex::number(rest).map(Request::Register),
            'm' => two(rest, ',').map(|(address, len)| Request::Read(address, len)),
            'G' | 'P' => Some(Request::Change { registers: true }),
            'M' | 'X' => Some(Request::Change { registers: false }),
            'Z' => point(rest).map(Request::Insert),
            'z' => point(rest).map(Request::Remove),
            'c' | 'C' => one(Do::Continue),
            's' | 'S' => one(Do::Step),
            'b' if rest == "c" => Some(Request::Back { step: false }),
            'b' if rest == "s" => Some(Request::Back { step: true }),
            'D' if rest.is_empty() => Some(Request::Detach(None)),
            'D' => pid(rest.strip_prefix(';')?).map(|pid| Request::Detach(Some(pid))),
            'k' => Some(Request::Kill(None)),
            'R' => Some(Request::Restart),
            _ => None,
        }
    }
}

/// All threads do the same, or the one that is steered.
fn one(what: Do) -> Option<Request> {
    Some(Request::Resume(vec![Action { what, who: Who::default() }]))
}

fn query(text: &str) -> Option<Request> {
    let (name, rest) = text.split_once([':', ',']).unwrap_or((text, ""));
    match name {
        "Supported" => Some(Request::Supported(rest.split(';').map(str::to_owned).collect())),
        "C" => Some(Request::Current),
        "fThreadInfo" => Some(Request::Threads),
        "sThreadInfo" => Some(Request::MoreThreads),
        "ThreadExtraInfo" => Who::parse(rest).map(Request::About),
        "Attached" => Some(Request::Attached),
        "Symbol" => Some(Request::Noted),
        "Rcmd" => hex::decode(rest).map(|command| Request::Monitor(lossy(command))),
        "Xfer" => part(rest),
        "HostInfo" => Some(Request::Host),
        "ProcessInfo" => Some(Request::Process),
        "MemoryRegionInfo" => hex::number(rest).map(Request::Region),
        _ => name.strip_prefix("ThreadStopInfo").and_then(Who::parse).map(Request::StopOf),
    }
}

fn setting(text: &str) -> Option<Request> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    match name {
        "StartNoAckMode" => Some(Request::LeaveOutAcknowledgements),
        "PassSignals" => {
            let signals = rest.split(';').filter(|signal| !signal.is_empty()).map(hex::number);
            signals.collect::<Option<_>>().map(Request::PassSignals)
        }
        "CatchSyscalls" => match rest.split_once(';').unwrap_or((rest, "")) {
            ("0", _) => Some(Request::CatchCalls(None)),
            ("1", numbers) => {
                let numbers = numbers.split(';').filter(|number| !number.is_empty()).map(hex::number);
                numbers.collect::<Option<_>>().map(|numbers| Request::CatchCalls(Some(numbers)))
            }
            _ => None,
        },
        "ProgramSignals" => Some(Request::Noted),
        _ => None,
    }
}

fn long(text: &str) -> Option<Request> {
    let (name, rest) = text.split_once([';', ':']).unwrap_or((text, ""));
    match name {
        "Cont?" => Some(Request::Actions),
        "Cont" => rest.split(';').map(action).collect::<Option<_>>().map(Request::Resume),
        "File" => Some(Request::File(file(rest).unwrap_or(FileRequest::Other))),
        "Kill" => pid(rest).map(|pid| Request::Kill(Some(pid))),
        "Attach" => pid(rest).map(Request::Attach),
        "Run" => Some(Request::Restart),
        _ => None,
    }
}

fn action(text: &str) -> Option<Action> {
    let (what, who) = text.split_once(':').unwrap_or((text, "-1"));
    let what = match what.chars().next()? {
        // A signal that is passed on is in the recording, if the program got it.
        'c' | 'C' => Do::Continue,
        's' | 'S' => Do::Step,
        'r' => {
            let (start, end) = two(&what[1..], ',')?;
            Do::StepIn(start, end)
        }
        _ => return None,
    };
    Some(Action { what, who: Who::parse(who)? })
}

/// `OBJECT:read:ANNEX:OFFSET,LENGTH`
fn part(text: &str) -> Option<Request> {
    let mut words = text.splitn(4, ':');
    let (object, operation, annex) = (words.next()?, words.next()?, words.next()?);
    let (offset, len) = two(words.next()?, ',')?;
    let document = match (object, operation) {
        ("features", "read") => Document::Features(annex.to_owned()),
        ("exec-file", "read") if annex.is_empty() => Document::Executable(None),
        ("exec-file", "read") => Document::Executable(Some(pid(annex)?)),
        ("auxv", "read") => Document::Auxiliary,
        ("threads", "read") => Document::Threads,
        ("siginfo", "read") => Document::Signal,
        _ => return None,
    };
    Some(Request::Part(document, offset, len))
}

fn file(text: &str) -> Option<FileRequest> {
    let (name, rest) = text.split_once(':')?;
    let mut words = rest.split(',');
    match name {
        "setfs" => Some(FileRequest::Of),
        "open" => hex::decode(words.next()?).map(FileRequest::Open),
        "close" => hex::number(rest).map(FileRequest::Close),
        "pread" => Some(FileRequest::Read {
            file: hex::number(words.next()?)?,
            len: hex::number(words.next()?)?,
            offset: hex::number(words.next()?)?,
        }),
        _ => None,
    }
}

/// `TYPE,ADDRESS,KIND`, and for breakpoints conditions: `;X` and their length, a comma, and their bytes, one behind the other.
fn point(text: &str) -> Option<Point> {
    let (point, conditions) = text.split_once(';').unwrap_or((text, ""));
    let (kind, place) = point.split_once(',')?;
    let (address, len) = two(place, ',')?;
    let kind = match kind {
        "0" => Kind::Software,
        "1" => Kind::Hardware,
        "2" => Kind::Data(Access::Write),
        "3" => Kind::Data(Access::Read),
        "4" => Kind::Data(Access::Any),
        _ => return None,
    };
    Some(Point { kind, address, len, conditions: self::conditions(conditions)? })
}

fn conditions(mut text: &str) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    while let Some(rest) = text.strip_prefix('X') {
        let (len, rest) = rest.split_once(',')?;
        let digits = usize::try_from(hex::number(len)?).ok()?.checked_mul(2)?;
        found.push(hex::decode(rest.get(..digits)?)?);
        text = &rest[digits..];
    }
    // What follows are commands, which nobody was told that we carry out.
    Some(found)
}

fn two(text: &str, between: char) -> Option<(u64, u64)> {
    let (first, second) = text.split_once(between)?;
    Some((hex::number(first)?, hex::number(second)?))
}

fn pid(text: &str) -> Option<i32> {
    hex::number(text).and_then(|pid| i32::try_from(pid).ok())
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn packets_are_what_the_manual_says() {
        let who = |pid, tid| Who { pid, tid };
        for (text, request) in [
            ("qC", Request::Current),
            ("Hgp5.-1", Request::Look(who(Some(5), None))),
            ("mff,10", Request::Read(0xff, 0x10)),
            ("bs", Request::Back { step: true }),
            ("D;1f", Request::Detach(Some(0x1f))),
            ("qXfer:auxv:read::0,ffb", Request::Part(Document::Auxiliary, 0, 0xffb)),
            ("QPassSignals:e;10;", Request::PassSignals(vec![0xe, 0x10])),
            ("QCatchSyscalls:1;1;3c", Request::CatchCalls(Some(vec![1, 0x3c]))),
            ("QCatchSyscalls:1", Request::CatchCalls(Some(Vec::new()))),
            ("QCatchSyscalls:0", Request::CatchCalls(None)),
            ("QCatchSyscalls:2", Request::Unknown),
            ("vFile:pread:1,1000,0", Request::File(FileRequest::Read { file: 1, len: 0x1000, offset: 0 })),
            ("vFile:readlink:2f", Request::File(FileRequest::Other)),
            (
                "vCont;r10,20:p2.5;c",
                Request::Resume(vec![
                    Action { what: Do::StepIn(0x10, 0x20), who: who(Some(2), Some(5)) },
                    Action { what: Do::Continue, who: who(None, None) },
                ]),
            ),
            (
                "Z0,401000,1;X2,2227X1,27;cmds:0,X1,27",
                Request::Insert(Point {
                    kind: Kind::Software,
                    address: 0x40_1000,
                    len: 1,
                    conditions: vec![vec![0x22, 0x27], vec![0x27]],
                }),
            ),
            ("Z0,401000,1;X9,22", Request::Unknown),
            ("vMustReplyEmpty", Request::Unknown),
            ("", Request::Unknown),
        ] {
            assert_eq!(Request::parse(text.as_bytes()), request, "{text}");
        }
        assert_eq!(Request::parse(b"X10,2:\xff\xfe"), Request::Change { registers: false });
    }

    proptest! {
        #[test]
        fn no_packet_is_too_bad(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            Request::parse(&bytes);
        }

        #[test]
        fn nor_is_one_that_begins_well(
            begin in proptest::sample::select(vec![
                "qXfer:auxv:read:", "qSupported:", "vCont;", "vFile:pread:", "vFile:open:", "Z0,", "Z2,", "z0,1,1;X",
                "Hg", "Hcp", "QPassSignals:", "QCatchSyscalls:", "m", "p", "D;", "vAttach;", "qRcmd,", "qThreadStopInfo", "T",
            ]),
            rest in "[0-9a-fX.,;:p+é-]{0,30}",
        ) {
            Request::parse(format!("{begin}{rest}").as_bytes());
        }
    }
}
