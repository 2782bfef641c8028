//! The file format of a suffix: JSON. Everything read from it is checked.

use super::{Coverage, Forced, Origin, RegisterOrigins, StartMemory, Suffix, SuffixError, SuffixInput};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use x86::state::{Fpu, Regs, State};
use x86::xsave::{Layout, component};

/// What the file says it is.
const FORMAT: &str = "gretel-suffix";
/// The version that is written, and the only one that is read.
const VERSION: u32 = 3;

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
    register_origins: RegisterOrigins,
    memory: Vec<Piece>,
    path: Vec<Hex>,
    inputs: Vec<Input>,
    coverage: Coverage,
    forced: ForcedEnd,
}

/// As [`Forced`], with addresses as they are written here.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ForcedEnd {
    steps: usize,
    register_origins: RegisterOrigins,
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
    result: Hex,
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

fn document(suffix: &Suffix) -> Document {
    let State { regs, fpu } = &suffix.start;
    let registers = Registers {
        gpr: regs.gpr.map(Hex),
        rip: Hex(regs.rip),
        rflags: Hex(regs.rflags),
        fs_base: Hex(regs.fs_base),
        gs_base: Hex(regs.gs_base),
        xsave: HexBytes(fpu.to_xsave(&Layout::MODEL, component::ALL)),
    };
    let memory = suffix.memory.iter().map(|piece| Piece {
        address: Hex(piece.address),
        bytes: HexBytes(piece.bytes.clone()),
        origins: piece.origins.iter().copied().map(letter).collect(),
    });
    let inputs = suffix.inputs.iter().map(|input| Input {
        step: input.step,
        result: Hex(input.result),
        writes: input.writes.iter().map(|(at, bytes)| (Hex(*at), HexBytes(bytes.clone()))).collect(),
        origin: input.origin,
    });
    let forced = suffix.forced.memory.iter();
    let forced = forced.map(|(at, origins)| (Hex(*at), origins.iter().copied().map(letter).collect()));
    Document {
        format: FORMAT.to_owned(),
        version: VERSION,
        registers,
        register_origins: suffix.registers.clone(),
        memory: memory.collect(),
        path: suffix.path.iter().copied().map(Hex).collect(),
        inputs: inputs.collect(),
        coverage: suffix.coverage.clone(),
        forced: ForcedEnd {
            steps: suffix.forced.steps,
            register_origins: suffix.forced.registers.clone(),
            memory: forced.collect(),
        },
    }
}

fn checked(document: Document) -> Result<Suffix, String> {
    if document.format != FORMAT || document.version != VERSION {
        return Err(format!("it is {} version {}", document.format, document.version));
    }
    let registers = document.registers;
    let fpu = Fpu::from_xsave(&Layout::MODEL, &registers.xsave.0)
        .filter(|_| registers.xsave.0.len() == Layout::MODEL.size(component::ALL))
        .ok_or("xsave is not an XSAVE image of 2688 bytes in the standard format")?;
    let regs = Regs {
        gpr: registers.gpr.map(|r| r.0),
        rip: registers.rip.0,
        rflags: registers.rflags.0,
        fs_base: registers.fs_base.0,
        gs_base: registers.gs_base.0,
    };
    let steps = document.path.len();
    if document.inputs.iter().any(|input| input.step >= steps)
        || document.inputs.windows(2).any(|pair| pair[0].step >= pair[1].step)
    {
        return Err("a system call is not on the path, or they are not in order".to_owned());
    }
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
        result: input.result.0,
        writes: input.writes.into_iter().map(|(at, bytes)| (at.0, bytes.0)).collect(),
        origin: input.origin,
    });
    Ok(Suffix {
        start: State { regs, fpu },
        registers: document.register_origins,
        memory: memory?,
        path: document.path.into_iter().map(|rip| rip.0).collect(),
        inputs: inputs.collect(),
        coverage: document.coverage,
        forced: Forced { steps: forced.steps, registers: forced.register_origins, memory: forced_memory? },
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
            registers: RegisterOrigins { flags: Origin::Chosen, ..RegisterOrigins::default() },
            memory: vec![StartMemory {
                address: 0x7fff_0000,
                bytes: vec![0, 0xab, 0xff],
                origins: vec![Origin::Core, Origin::Forced, Origin::Chosen],
            }],
            path: vec![0x40_1000, 0x40_1003],
            inputs: vec![SuffixInput {
                step: 1,
                result: (-5_i64).cast_unsigned(),
                writes: vec![(0x50_0000, vec![1, 2])],
                origin: Origin::Forced,
            }],
            coverage: Coverage { records: 16, instructions: 1 },
            forced: Forced {
                steps: 1,
                registers: RegisterOrigins { opmask: Origin::Forced, ..RegisterOrigins::default() },
                memory: vec![(0x7fff_0001, vec![Origin::Forced, Origin::Chosen])],
            },
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
            ("\"version\":3", "\"version\":1", "version 1"),
            ("\"steps\":1", "\"steps\":3", "more is forced"),
            ("\"step\":1", "\"step\":2", "not on the path"),
            ("\"origins\":\"kfc\"", "\"origins\":\"kf\"", "origins"),
            ("\"instructions\":1", "\"instructions\":3", "cover more"),
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
