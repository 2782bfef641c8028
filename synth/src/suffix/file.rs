//! The file format of a suffix: JSON. Everything read from it is checked.

use super::{
    Coverage, Forced, Origin, OtherThread, RegisterOrigins, StartMemory, Suffix, SuffixAnswer, SuffixError,
    SuffixInput, SuffixSignal, Turn,
};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use vmm::linux::vdso::TIME_BYTES;
use x86::state::{Fpu, Regs, State};
use x86::xsave::{Layout, component};

/// What the file says it is.
const FORMAT: &str = "gretel-suffix";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 7;

/// A 64-bit number as a hexadecimal string.
#[derive(Clone, Copy)]
struct Hex(u64);

impl Serialize for Hex {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:#x}", self.0))
    }
}

impl<'de> Deserialize<'de> for Hex {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Hex, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        let number = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        number.map(Hex).ok_or_else(|| serde::de::Error::custom(format!("not a hexadecimal number: {text:?}")))
    }
}

/// Bytes as hexadecimal digits.
struct HexBytes(Vec<u8>);

impl Serialize for HexBytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<HexBytes, D::Error> {
        let text = String::deserialize(deserializer)?;
        let pairs = text.as_bytes().chunks(2).map(|pair| {
            let pair =
                std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2 && !pair.starts_with('+'))?;
            u8::from_str_radix(pair, 16).ok()
        });
        let bytes: Option<Vec<u8>> = pairs.collect();
        bytes.map(HexBytes).ok_or_else(|| serde::de::Error::custom("bytes that are not hexadecimal"))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    version: u32,
    registers: Registers,
    inactive_gs: Option<Hex>,
    register_origins: RegisterOrigins,
    memory: Vec<Piece>,
    path: Vec<Hex>,
    inputs: Vec<Input>,
    answers: Vec<Answer>,
    signals: Vec<Signal>,
    coverage: Coverage,
    forced: ForcedEnd,
    turns: Vec<Turn>,
    others: Vec<Other>,
}

/// As [`SuffixAnswer`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answer {
    step: usize,
    value: Hex,
    origin: Origin,
}

/// As [`OtherThread`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Other {
    thread: u32,
    registers: Registers,
    register_origins: RegisterOrigins,
    waits: bool,
}

/// As [`Forced`], with addresses as they are written here.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForcedEnd {
    steps: usize,
    register_origins: RegisterOrigins,
    others: Vec<(u32, RegisterOrigins)>,
    memory: Vec<(Hex, String)>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Registers {
    gpr: [Hex; 16],
    rip: Hex,
    rflags: Hex,
    fs_base: Hex,
    gs_base: Hex,
    xsave: HexBytes,
}

/// `origins`: one letter for each byte, `k` core, `f` forced, `c` chosen.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Piece {
    address: Hex,
    bytes: HexBytes,
    origins: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    step: usize,
    late: bool,
    result: Hex,
    writes: Vec<(Hex, HexBytes)>,
    origin: Origin,
    clock: HexBytes,
}

/// As [`SuffixSignal`].
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Signal {
    step: usize,
    thread: u32,
    raised: bool,
    frame: Hex,
    writes: Vec<(Hex, HexBytes)>,
    origin: Origin,
}

pub(super) fn save(suffix: &Suffix, path: &Path) -> Result<(), SuffixError> {
    let failed = |error| SuffixError::File { action: "write", path: path.display().to_string(), error };
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).map_err(failed)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    let mut text = serde_json::to_vec(&document(suffix)).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    file.write_all(&text).map_err(failed)
}

pub(super) fn load(path: &Path) -> Result<Suffix, SuffixError> {
    let name = || path.display().to_string();
    let text = lbr::regular::read(path).map_err(|error| SuffixError::File {
        action: "read",
        path: name(),
        error,
    })?;
    let document: Result<Document, _> = serde_json::from_slice(&text);
    let suffix = document.map_err(|error| error.to_string()).and_then(checked);
    suffix.map_err(|what| SuffixError::Content { path: name(), what })
}

fn letter(origin: Origin) -> char {
    match origin {
        Origin::Core => 'k',
        Origin::Forced => 'f',
        Origin::Chosen => 'c',
    }
}

impl From<&State> for Registers {
    fn from(State { regs, fpu }: &State) -> Registers {
        Registers {
            gpr: regs.gpr.map(Hex),
            rip: Hex(regs.rip),
            rflags: Hex(regs.rflags),
            fs_base: Hex(regs.fs_base),
            gs_base: Hex(regs.gs_base),
            xsave: HexBytes(fpu.to_xsave(&Layout::MODEL, component::ALL)),
        }
    }
}

impl Registers {
    fn checked(self) -> Result<State, String> {
        let fpu = Fpu::from_xsave(&Layout::MODEL, &self.xsave.0)
            .filter(|_| self.xsave.0.len() == Layout::MODEL.size(component::ALL))
            .ok_or("xsave is not an XSAVE image of 2688 bytes in the standard format")?;
        let regs = Regs {
            gpr: self.gpr.map(|r| r.0),
            rip: self.rip.0,
            rflags: self.rflags.0,
            fs_base: self.fs_base.0,
            gs_base: self.gs_base.0,
        };
        Ok(State { regs, fpu })
    }
}

fn document(suffix: &Suffix) -> Document {
    let memory = suffix.memory.iter().map(|piece| Piece {
        address: Hex(piece.address),
        bytes: HexBytes(piece.bytes.clone()),
        origins: piece.origins.iter().copied().map(letter).collect(),
    });
    let inputs = suffix.inputs.iter().map(|input| Input {
        step: input.step,
        late: input.late,
        result: Hex(input.result),
        writes: input.writes.iter().map(|(at, bytes)| (Hex(*at), HexBytes(bytes.clone()))).collect(),
        origin: input.origin,
        clock: HexBytes(input.clock.clone()),
    });
    let answers = suffix.answers.iter().map(|answer| Answer {
        step: answer.step,
        value: Hex(answer.value),
        origin: answer.origin,
    });
    let signals = suffix.signals.iter().map(|signal| Signal {
        step: signal.step,
        thread: signal.thread,
        raised: signal.raised,
        frame: Hex(signal.frame),
        writes: signal.writes.iter().map(|(at, bytes)| (Hex(*at), HexBytes(bytes.clone()))).collect(),
        origin: signal.origin,
    });
    let others = suffix.others.iter().map(|other| Other {
        thread: other.thread,
        registers: Registers::from(&other.start),
        register_origins: other.registers.clone(),
        waits: other.waits,
    });
    let forced = suffix.forced.memory.iter();
    let forced = forced.map(|(at, origins)| (Hex(*at), origins.iter().copied().map(letter).collect()));
    Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        registers: Registers::from(&suffix.start),
        inactive_gs: suffix.inactive_gs.map(Hex),
        register_origins: suffix.registers.clone(),
        memory: memory.collect(),
        path: suffix.path.iter().copied().map(Hex).collect(),
        inputs: inputs.collect(),
        answers: answers.collect(),
        signals: signals.collect(),
        coverage: suffix.coverage.clone(),
        forced: ForcedEnd {
            steps: suffix.forced.steps,
            register_origins: suffix.forced.registers.clone(),
            others: suffix.forced.others.clone(),
            memory: forced.collect(),
        },
        turns: suffix.turns.clone(),
        others: others.collect(),
    }
}

fn checked(document: Document) -> Result<Suffix, String> {
    if document.format != FORMAT || document.version != VERSION {
        return Err(format!("it is {} version {}", document.format, document.version));
    }
    let start = document.registers.checked()?;
    let steps = document.path.len();
    let at = |input: &Input| (input.step, !input.late);
    if document.inputs.iter().any(|input| input.step >= steps + usize::from(input.late))
        || document.inputs.windows(2).any(|pair| at(&pair[0]) >= at(&pair[1]))
    {
        return Err("a system call is not on the path, or they are not in order".to_owned());
    }
    if document.inputs.iter().any(|input| ![0, TIME_BYTES].contains(&input.clock.0.len())) {
        return Err("the clock's page of a system call has another size".to_owned());
    }
    if document.answers.iter().any(|answer| answer.step >= steps)
        || document.answers.windows(2).any(|pair| pair[0].step >= pair[1].step)
    {
        return Err("what was given from outside is not on the path, or not in order".to_owned());
    }
    if document.signals.iter().any(|signal| !(1..=steps).contains(&signal.step))
        || document.signals.windows(2).any(|pair| pair[0].step > pair[1].step)
    {
        return Err("a signal is not on the path, or they are not in order".to_owned());
    }
    check_turns(&document.turns, &document.others, steps)?;
    if document.coverage.instructions > steps {
        return Err("the records cover more than the path".to_owned());
    }
    let forced = document.forced;
    if forced.steps > steps {
        return Err("more is forced than the path has".to_owned());
    }
    let forced_memory: Result<Vec<_>, String> =
        forced.memory.into_iter().map(|(at, letters)| Ok((at.0, origins(&letters)?))).collect();
    let memory: Result<Vec<StartMemory>, String> = document.memory.into_iter().map(checked_piece).collect();
    let inputs = document.inputs.into_iter().map(|input| SuffixInput {
        step: input.step,
        late: input.late,
        result: input.result.0,
        writes: input.writes.into_iter().map(|(at, bytes)| (at.0, bytes.0)).collect(),
        origin: input.origin,
        clock: input.clock.0,
    });
    let answers = document.answers.into_iter().map(|answer| SuffixAnswer {
        step: answer.step,
        value: answer.value.0,
        origin: answer.origin,
    });
    let signals = document.signals.into_iter().map(|signal| SuffixSignal {
        step: signal.step,
        thread: signal.thread,
        raised: signal.raised,
        frame: signal.frame.0,
        writes: signal.writes.into_iter().map(|(at, bytes)| (at.0, bytes.0)).collect(),
        origin: signal.origin,
    });
    let others: Result<Vec<OtherThread>, String> = document.others.into_iter().map(checked_other).collect();
    Ok(Suffix {
        start,
        inactive_gs: document.inactive_gs.map(|base| base.0),
        registers: document.register_origins,
        memory: memory?,
        path: document.path.into_iter().map(|rip| rip.0).collect(),
        inputs: inputs.collect(),
        answers: answers.collect(),
        signals: signals.collect(),
        coverage: document.coverage,
        forced: Forced {
            steps: forced.steps,
            registers: forced.register_origins,
            others: forced.others,
            memory: forced_memory?,
        },
        turns: document.turns,
        others: others?,
    })
}

/// The turns begin with the path, each is another thread's than the one before, and each thread but the first has a start.
fn check_turns(turns: &[Turn], others: &[Other], steps: usize) -> Result<(), String> {
    let first = turns.first().map(|turn| turn.thread);
    let follow = |pair: &[Turn]| pair[0].step <= pair[1].step && pair[0].thread != pair[1].thread;
    let starts = |turn: &Turn| others.iter().any(|other| other.thread == turn.thread);
    let in_order = turns.first().is_none_or(|turn| turn.step == 0)
        && turns.last().is_none_or(|turn| turn.step <= steps)
        && turns.windows(2).all(follow)
        && turns.iter().all(|turn| Some(turn.thread) == first || starts(turn));
    if !in_order {
        return Err("the turns of its threads are not in order, or one of them has no start".to_owned());
    }
    Ok(())
}

fn checked_other(other: Other) -> Result<OtherThread, String> {
    Ok(OtherThread {
        thread: other.thread,
        start: other.registers.checked()?,
        registers: other.register_origins,
        waits: other.waits,
    })
}

fn checked_piece(piece: Piece) -> Result<StartMemory, String> {
    let (address, bytes, origins) = (piece.address.0, piece.bytes.0, origins(&piece.origins)?);
    if bytes.len() != origins.len() || address.checked_add(bytes.len() as u64).is_none() {
        return Err(format!("memory at {address:#x} does not match its origins"));
    }
    Ok(StartMemory { address, bytes, origins })
}

/// Those of bytes, from their letters.
fn origins(letters: &str) -> Result<Vec<Origin>, String> {
    let origin = |letter| match letter {
        'k' => Ok(Origin::Core),
        'f' => Ok(Origin::Forced),
        'c' => Ok(Origin::Chosen),
        other => Err(format!("an origin {other:?}")),
    };
    letters.chars().map(origin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Suffix {
        let mut start = State::default();
        start.regs.gpr[3] = u64::MAX - 5;
        start.regs.rip = 0x40_1000;
        start.fpu.set_xmm(15, [7, u64::MAX]);
        start.fpu.vector[31][7] = 3;
        start.fpu.opmask[2] = 0xf0;
        Suffix {
            start,
            inactive_gs: Some(0x7f00_0040),
            registers: RegisterOrigins { flags: Origin::Chosen, ..RegisterOrigins::default() },
            memory: vec![StartMemory {
                address: 0x7fff_0000,
                bytes: vec![0, 0xab, 0xff],
                origins: vec![Origin::Core, Origin::Forced, Origin::Chosen],
            }],
            path: vec![0x40_1000, 0x40_1003],
            inputs: vec![SuffixInput {
                step: 1,
                late: false,
                result: (-5_i64).cast_unsigned(),
                writes: vec![(0x50_0000, vec![1, 2])],
                origin: Origin::Forced,
                clock: vec![3; TIME_BYTES],
            }],
            answers: vec![SuffixAnswer { step: 0, value: 0x1_0000_0002, origin: Origin::Chosen }],
            signals: vec![SuffixSignal {
                step: 2,
                thread: 7,
                raised: true,
                frame: 0x7fff_0008,
                writes: vec![(0x7fff_0008, vec![9, 8])],
                origin: Origin::Core,
            }],
            coverage: Coverage { records: 16, instructions: 1 },
            forced: Forced {
                steps: 1,
                registers: RegisterOrigins { opmask: Origin::Forced, ..RegisterOrigins::default() },
                others: vec![(8, RegisterOrigins::default())],
                memory: vec![(0x7fff_0001, vec![Origin::Forced, Origin::Chosen])],
            },
            turns: vec![Turn { step: 0, thread: 7 }, Turn { step: 1, thread: 8 }],
            others: vec![OtherThread {
                thread: 8,
                start,
                registers: RegisterOrigins::default(),
                waits: true,
            }],
        }
    }

    #[test]
    fn a_saved_suffix_loads_again_and_is_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("suffix");
        std::fs::write(&path, "old").expect("a file");
        sample().save(&path).expect("saved");
        assert_eq!(Suffix::load(&path).expect("loaded"), sample());
        let mode = std::fs::metadata(&path).expect("its mode").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_suffix_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("suffix");
        sample().save(&path).expect("saved");
        let good = std::fs::read_to_string(&path).expect("text");
        let cases = [
            ("\"version\":7", "\"version\":6", "version 6"),
            ("\"steps\":1", "\"steps\":3", "more is forced"),
            ("\"step\":1", "\"step\":2", "not on the path"),
            ("\"origins\":\"kfc\"", "\"origins\":\"kf\"", "origins"),
            ("\"instructions\":1", "\"instructions\":3", "cover more"),
            ("{\"step\":1,\"thread\":8}", "{\"step\":1,\"thread\":9}", "no start"),
            ("{\"step\":1,\"thread\":8}", "{\"step\":1,\"thread\":7}", "turns"),
            ("{\"step\":1,\"thread\":8}", "{\"step\":3,\"thread\":8}", "turns"),
            ("\"step\":0,\"value\"", "\"step\":2,\"value\"", "given from outside is not on the path"),
            ("\"step\":2", "\"step\":3", "a signal is not on the path"),
            ("\"clock\":\"0303", "\"clock\":\"03", "another size"),
            ("\"0x401003\"", "\"401003\"", "hexadecimal"),
        ];
        for (from, to, reason) in cases {
            assert!(good.contains(from), "{from}");
            std::fs::write(&path, good.replacen(from, to, 1)).expect("written");
            let error = Suffix::load(&path).expect_err(reason).to_string();
            assert!(error.contains(reason), "{error}");
        }
        for cut in 0..good.len() - 1 {
            std::fs::write(&path, &good[..cut]).expect("written");
            assert!(Suffix::load(&path).is_err(), "cut at {cut}");
        }
    }
}
