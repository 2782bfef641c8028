//! `gretel synth` on the guests that crash, measured against the truth: what the recorded program executed. The tests of
//! the two C libraries run beside each other, so a machine with two processors is busy and no more.

use std::fs;
use std::io::{Write, stderr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use synth::report::metrics::compare_paths;
use synth::suffix::Suffix;
use tempfile::TempDir;
use vmm::recording::Recording;
use vmm::trail::{tail_log, tail_of_tasks};

use crate::engines;
use crate::images::{self, Guest};
use crate::skipped;

/// No suffix that is compared with the truth is longer.
const INSTRUCTIONS: u64 = 300;
/// How many branch records are used.
const RECORDS: usize = 16;

/// A guest that was recorded on the software CPU until it crashed.
struct Crashed {
    name: String,
    folder: TempDir,
}

/// All guests that crash.
fn crashed(libc: &str) -> Vec<Crashed> {
    let crashing = images::all().into_iter().filter(|guest| guest.expected.crash.is_some());
    let all: Vec<_> = crashing.map(|guest| Crashed::record(&guest, libc)).collect();
    assert!(all.len() >= 8, "only {} guest images crash", all.len());
    all
}

impl Crashed {
    /// On a busy machine another thread may have got the processor just before the crash, which empties the branch records:
    /// then it is recorded again.
    fn record(guest: &Guest, libc: &str) -> Crashed {
        let mut crashed = Crashed::record_once(guest, libc);
        for _ in 0..5 {
            if crashed.branch_records() >= RECORDS {
                break;
            }
            crashed = Crashed::record_once(guest, libc);
        }
        crashed
    }

    fn record_once(guest: &Guest, libc: &str) -> Crashed {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let name = format!("{} with {libc}", guest.name);
        let recorded = engines::record(guest, libc, "soft", &folder.path().join("recording"));
        assert!(
            folder.path().join("recording/core").is_file(),
            "{name}: {}",
            String::from_utf8_lossy(&recorded.stderr)
        );
        Crashed { name, folder }
    }

    fn branch_records(&self) -> usize {
        engines::core(&self.recording())["trail"]["records"].as_array().map_or(0, Vec::len)
    }

    fn recording(&self) -> PathBuf {
        self.folder.path().join("recording")
    }

    fn suffix_file(&self) -> PathBuf {
        self.folder.path().join("suffix.json")
    }

    /// What the program executed before it crashed, oldest first.
    fn truth(&self) -> Vec<u64> {
        let recording = Recording::open(&self.recording()).expect("a fresh recording opens");
        tail_log(&recording, engines::soft(), INSTRUCTIONS).expect("a fresh recording replays")
    }

    /// Works backwards from the crash.
    fn synthesize(&self, options: &[&str]) -> Synthesized {
        self.synthesize_up_to(INSTRUCTIONS, options)
    }

    /// So many instructions, if it comes that far.
    fn synthesize_up_to(&self, instructions: u64, options: &[&str]) -> Synthesized {
        // One that is there is not overwritten.
        let _ = fs::remove_file(self.suffix_file());
        let mut command = synth_command(&self.recording(), instructions, options);
        Synthesized::of(&self.name, &command.arg("-o").arg(self.suffix_file()).output().expect("gretel runs"))
    }

    /// The suffix that was saved, which only its owner may read.
    fn suffix(&self) -> Suffix {
        let path = self.suffix_file();
        let mode = fs::metadata(&path).expect("the suffix was saved").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", self.name);
        Suffix::load(&path).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

fn synth_command(input: &Path, instructions: u64, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
    command
        .arg("synth")
        .arg(input)
        .args(options)
        .arg("--json")
        .args(["--instructions", &instructions.to_string()]);
    command
}

/// What `gretel synth --json` answered.
struct Synthesized {
    result: Value,
}

impl Synthesized {
    /// Its exit status says the same as its verdict.
    fn of(name: &str, output: &Output) -> Synthesized {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked"), "{name}: {stderr}");
        let result: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{name}: {error}, {}: {stderr}", output.status));
        let status = match result["verdict"].as_str() {
            Some("certified") => 0,
            Some("infeasible") => 1,
            Some("inconclusive") => 2,
            _ => panic!("{name}: no such verdict: {result}"),
        };
        assert_eq!(output.status.code(), Some(status), "{name}: {stderr}");
        Synthesized { result }
    }

    fn is_certified(&self) -> bool {
        self.result["verdict"] == "certified"
    }

    /// The instructions that are listed, oldest first.
    fn steps(&self) -> &[Value] {
        self.result["listing"]["steps"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// Tells a figure, past the capture of test output.
fn tell(line: &str) {
    // A closed stderr only loses the figure.
    let _ = writeln!(stderr(), "{line}");
}

/// The suffix ends as the program did, for as long as the branch records say how it went.
fn is_true_where_recorded(crashed: &Crashed) {
    let synthesized = crashed.synthesize(&["--records", "16", "--fuel", "3"]);
    let (name, result) = (&crashed.name, &synthesized.result);
    assert!(synthesized.is_certified(), "{name}: {result}");
    let engines: Vec<_> =
        result["listing"]["summary"]["engines"].as_array().expect("engines").iter().collect();
    for engine in engines::usable("is_true_where_recorded") {
        assert!(
            engines.iter().any(|&used| used == engine),
            "{name} was not certified on {engine}: {engines:?}"
        );
    }
    let (suffix, truth) = (crashed.suffix(), crashed.truth());
    assert!(!suffix.is_empty(), "{name}");
    assert_eq!(suffix.path.last(), truth.last(), "{name}: the instruction before the crash");
    let metrics = compare_paths(&suffix.path, &truth);
    let (covered, measured) = (suffix.coverage.instructions, &result["metrics"]);
    tell(&format!(
        "{name}: {} instructions, {covered} covered by {} records, the last {} as in the true execution; values used: {}",
        metrics.length, suffix.coverage.records, metrics.common, measured["uses"]
    ));
    assert!(covered > 0, "{name}: the records cover nothing");
    assert!(
        metrics.common >= covered.min(truth.len()),
        "{name}: {metrics:?} differs within the {covered} covered"
    );
    assert!(measured["uses"]["right"].as_u64() > Some(0), "{name}: no value is the true one: {measured}");
    assert_eq!(measured["uses"]["wrong"], measured["uses"]["chosen"], "{name}: a wrong value has no mark");
    // A repeated string instruction is one instruction there, and several entries of the path here.
    if synthesized.steps().iter().all(|step| step["iterations"] == 1) {
        assert_eq!(measured["path"]["common"], metrics.common, "{name}: two ways to compare paths differ");
    }
}

#[test]
fn suffixes_are_true_where_recorded_glibc() {
    crashed("glibc").iter().for_each(is_true_where_recorded);
}

#[test]
fn suffixes_are_true_where_recorded_musl() {
    crashed("musl").iter().for_each(is_true_where_recorded);
}

/// Records of returns and indirect branches alone leave the ways between them open, and are crossed all the same in some crashes.
#[test]
fn filtered_records_are_crossed() {
    let crashed = crashed("glibc");
    let mut crossed = 0;
    for crashed in &crashed {
        let options = ["--records", "16", "--filter", "ret-ind", "--fuel", "3"];
        let synthesized = crashed.synthesize_up_to(3000, &options);
        assert!(synthesized.is_certified(), "{}: {}", crashed.name, synthesized.result);
        let (coverage, length) = (crashed.suffix().coverage, crashed.suffix().len());
        tell(&format!("{} with ret-ind: {length} instructions, {coverage:?}", crashed.name));
        let measured = &synthesized.result["metrics"]["uses"];
        assert_eq!(measured["wrong"], measured["chosen"], "{}: a wrong value has no mark", crashed.name);
        crossed += usize::from(coverage.instructions > 0 && coverage.instructions < length);
    }
    assert!(
        crossed * 2 >= crashed.len(),
        "all records are covered in {crossed} of {} crashes",
        crashed.len()
    );
}

/// Most crashes have a suffix even where no branch was recorded.
fn most_without_records(libc: &str) {
    let (mut certified, mut others) = (0, Vec::new());
    for crashed in crashed(libc) {
        let synthesized = crashed.synthesize(&["--records", "0", "--fuel", "1"]);
        if !synthesized.is_certified() {
            others.push(format!("{}: {}", crashed.name, synthesized.result));
            continue;
        }
        certified += 1;
        let suffix = crashed.suffix();
        assert_eq!(suffix.coverage.records, 0, "{}", crashed.name);
        let metrics = compare_paths(&suffix.path, &crashed.truth());
        tell(&format!(
            "{} without records: {} instructions, the last {} as in the true execution",
            crashed.name, metrics.length, metrics.common
        ));
    }
    assert!(certified >= 4, "{certified} certified without records; not these: {others:#?}");
}

#[test]
fn most_crashes_have_suffixes_without_records_glibc() {
    most_without_records("glibc");
}

#[test]
fn most_crashes_have_suffixes_without_records_musl() {
    most_without_records("musl");
}

/// A crash of an image that has threads.
fn with_threads(name: &str, libc: &str) -> Crashed {
    let guests = images::all();
    let guest = guests.iter().find(|guest| guest.name == name).expect("the image is there");
    Crashed::record(guest, libc)
}

/// How many of the last steps are of the thread that crashed, and of how many threads all are.
fn newest_turn(steps: &[Value]) -> (usize, usize) {
    let tasks: Vec<u64> = steps.iter().filter_map(|step| step["task"].as_u64()).collect();
    assert_eq!(tasks.len(), steps.len(), "each step has its thread");
    let newest = tasks.iter().rev().take_while(|task| Some(*task) == tasks.last()).count();
    let all: std::collections::BTreeSet<u64> = tasks.into_iter().collect();
    (newest, all.len())
}

/// What a crash comes of lies in another thread: the suffix goes there, where the crumbs say that it ran, and it is the truth beyond
/// the switch.
fn goes_through_switches(name: &str, libc: &str) {
    let crashed = with_threads(name, libc);
    let synthesized = crashed.synthesize_up_to(1000, &["--records", "16", "--fuel", "4"]);
    let (name, result) = (&crashed.name, &synthesized.result);
    assert!(synthesized.is_certified(), "{name}: {result}");
    let (summary, measured) = (&result["listing"]["summary"], &result["metrics"]);
    for engine in engines::usable("goes_through_switches") {
        let engines = summary["engines"].as_array().expect("engines");
        assert!(engines.iter().any(|used| used == engine), "{name} on {engine}: {summary}");
    }
    let (suffix, (newest, threads)) = (crashed.suffix(), newest_turn(synthesized.steps()));
    let recording = Recording::open(&crashed.recording()).expect("a fresh recording opens");
    let truth =
        tail_of_tasks(&recording, engines::soft(), suffix.len() as u64).expect("a fresh recording replays");
    let steps = synthesized.steps().iter();
    let found: Vec<(u32, u64)> = steps.map(|step| (number(&step["task"]), address(step))).collect();
    let metrics = compare_paths(&found, &truth);
    tell(&format!(
        "{name}: {} instructions of {threads} threads, {} switches, {newest} of the last thread, {} true; values used: {}",
        metrics.length, summary["switches"], metrics.common, measured["uses"]
    ));
    assert!(summary["switches"].as_u64() > Some(0) && threads > 1, "{name}: {summary}");
    assert_eq!(suffix.switches().count() as u64, summary["switches"].as_u64().unwrap_or(0), "{name}");
    assert!(metrics.common > newest, "{name}: {metrics:?} is not true beyond the switch at {newest}");
    assert_eq!(measured["path"]["common"], metrics.common, "{name}: two ways to compare paths differ");
    assert_eq!(measured["uses"]["wrong"], measured["uses"]["chosen"], "{name}: a wrong value has no mark");
    is_verified(&crashed, &suffix);
}

fn number(value: &Value) -> u32 {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).expect("a number")
}

fn address(step: &Value) -> u64 {
    let digits = step["address"].as_str().and_then(|text| text.strip_prefix("0x")).expect("an address");
    u64::from_str_radix(digits, 16).expect("hexadecimal digits")
}

/// The kept suffix is certified again, and not with another schedule; a debugger is told why it is not served.
fn is_verified(crashed: &Crashed, suffix: &Suffix) {
    let verify = |file: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
        command.arg("verify").arg(file).arg(crashed.recording()).arg("--no-kvm");
        command.output().expect("gretel runs").status.code()
    };
    assert_eq!(verify(&crashed.suffix_file()), Some(0), "{}", crashed.name);
    let mut other = suffix.clone();
    let turn = other.turns.last_mut().expect("it has turns");
    turn.step -= 1;
    let file = crashed.folder.path().join("other.json");
    other.save(&file).expect("saved");
    assert_eq!(verify(&file), Some(1), "{}: another schedule is certified", crashed.name);
    let mut command = Command::new(env!("CARGO_BIN_EXE_gretel"));
    command.arg("gdb").arg(crashed.recording()).arg("--suffix").arg(crashed.suffix_file());
    let refused = command.output().expect("gretel runs");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && stderr.contains("threads take turns"), "{stderr}");
}

#[test]
fn suffixes_go_through_switches_glibc() {
    goes_through_switches("handed-over", "glibc");
    // The thread that crashed began on the way.
    goes_through_switches("second-thread", "glibc");
}

#[test]
fn suffixes_go_through_switches_musl() {
    goes_through_switches("handed-over", "musl");
    goes_through_switches("second-thread", "musl");
}

/// Where crumbs are missing nobody knows who ran: the suffix ends there, and that is said; nothing is infeasible.
#[test]
fn a_schedule_with_a_hole_is_a_barrier() {
    const HIDDEN: &str = "a thread that went on where the crumbs do not tell";
    let crashed = with_threads("handed-over", "glibc");
    let core = crashed.recording().join("core");
    for kept in [3, 4] {
        keep_crumbs(&core, kept);
        let synthesized = crashed.synthesize_up_to(1000, &["--records", "16", "--fuel", "2"]);
        let (verdict, search) = (&synthesized.result["verdict"], &synthesized.result["search"]);
        assert_eq!(verdict, "certified", "{kept} crumbs: {search}");
        assert_eq!(synthesized.result["listing"]["summary"]["switches"], 0, "{kept} crumbs");
        assert!(search["barriers"][HIDDEN].as_u64() > Some(0), "{kept} crumbs: {search}");
    }
}

/// Leaves a core the newest `kept` of its crumbs: the others get numbers behind a hole.
fn keep_crumbs(core: &Path, kept: usize) {
    let mut file = fs::read(core).expect("the core can be read");
    let at = file.windows(8).position(|bytes| bytes == b"gtrcrmbs").expect("the core has crumbs");
    // The size of the note's content stands before its type, and the owner's name behind that.
    let size: [u8; 4] = file[at - 16..at - 12].try_into().expect("four bytes");
    let behind = at + usize::try_from(u32::from_le_bytes(size)).expect("a size");
    let mut crumbs = lbr::Crumbs::from_bytes(&file[at..behind]).expect("crumbs in order");
    let newest = crumbs.entries.last().map_or(0, |entry| entry.number);
    let older = crumbs.entries.len().checked_sub(kept).expect("that many crumbs");
    for (entry, number) in crumbs.entries[..older].iter_mut().zip(1..) {
        entry.number = number;
    }
    for (entry, number) in crumbs.entries[older..].iter_mut().zip(newest + 1..) {
        entry.number = number;
    }
    file[at..behind].copy_from_slice(&crumbs.to_bytes());
    fs::write(core, file).expect("the core can be written");
}

/// Memory that an instruction wrote: the first address and the bytes, as the listing has them.
fn written(write: &Value) -> Option<(u64, Vec<u8>)> {
    let address = write["place"].as_str()?.strip_prefix("[0x")?.strip_suffix(']')?;
    let mut digits = write["value"].as_str()?.strip_prefix("0x")?.to_owned();
    if digits.len() % 2 == 1 {
        digits.insert(0, '0');
    }
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).rev().map(byte).collect();
    Some((u64::from_str_radix(address, 16).ok()?, bytes?))
}

/// The last value that the listed instructions left at `va`; `None` when they left none, or the kernel may have.
fn left_at(steps: &[Value], va: u64) -> Option<u8> {
    for step in steps.iter().rev() {
        if !step["call"].is_null() {
            return None;
        }
        for write in step["writes"].as_array()? {
            let Some((first, bytes)) = written(write) else { continue };
            let byte = va.checked_sub(first).and_then(|at| bytes.get(usize::try_from(at).ok()?).copied());
            if byte.is_some() {
                return byte;
            }
        }
    }
    None
}

/// Changes one byte of the memory in a core file, and gives what it is now.
fn flip(core: &Path, va: u64) -> u8 {
    const LOAD: u64 = 1;
    let mut file = fs::read(core).expect("the core can be read");
    let number = |at: usize, len: usize| {
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(&file[at..at + len]);
        u64::from_le_bytes(bytes)
    };
    let index = |value: u64| usize::try_from(value).expect("a place in the core");
    let headers = index(number(0x20, 8));
    let (size, count) = (index(number(0x36, 2)), index(number(0x38, 2)));
    let place = (0..count).map(|n| headers + n * size).find_map(|header| {
        let (offset, start, length) = (number(header + 8, 8), number(header + 16, 8), number(header + 32, 8));
        let within = va.checked_sub(start).filter(|&within| within < length)?;
        (number(header, 4) == LOAD).then(|| index(offset + within))
    });
    let place = place.expect("the byte is in the core");
    file[place] ^= 0x10;
    fs::write(core, &file).expect("the core can be written");
    file[place]
}

/// Places that the listed instructions wrote last, newest first: the kernel did not write since then.
fn last_written(steps: &[Value]) -> Vec<u64> {
    let writes = steps.iter().rev().filter_map(|step| step["writes"].as_array()).flatten();
    let mut places = Vec::new();
    for (va, _) in writes.filter_map(written) {
        if !places.contains(&va) && left_at(steps, va).is_some() {
            places.push(va);
        }
    }
    places
}

/// A core that was changed gets a verdict, and what is certified leads to the core as it is, not as it was.
#[test]
fn a_changed_core_is_not_explained_by_the_old_one() {
    const PLACES: usize = 4;
    let mut changed = 0;
    for crashed in crashed("glibc") {
        let options = ["--records", "16", "--fuel", "1"];
        let core = crashed.recording().join("core");
        let before = crashed.synthesize(&options);
        for va in last_written(before.steps()).into_iter().take(PLACES) {
            let now = flip(&core, va);
            let again = crashed.synthesize(&options);
            tell(&format!("{} with {va:#x} changed: {}", crashed.name, again.result["verdict"]));
            if again.is_certified() {
                let left = left_at(again.steps(), va).unwrap_or(now);
                assert_eq!(left, now, "{}: {va:#x} is {now:#x} in the core", crashed.name);
            }
            // The same change again undoes it.
            flip(&core, va);
            changed += 1;
        }
    }
    assert!(changed > 0, "no suffix wrote memory");
}

/// A core of this machine's kernel is enough, with the program.
#[test]
fn cores_of_the_kernel_have_suffixes() {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if pattern.trim() != "core" {
        return skipped("cores_of_the_kernel_have_suffixes", "core_pattern sends cores elsewhere");
    }
    for guest in
        images::all().into_iter().filter(|guest| ["division", "bad-index"].contains(&guest.name.as_str()))
    {
        for libc in images::LIBCS {
            let name = format!("{} with {libc}", guest.name);
            let folder = tempfile::tempdir().expect("a temporary folder");
            let Some(core) = kernel_core(&guest, libc, folder.path()) else {
                skipped(&name, "the kernel wrote no core");
                continue;
            };
            let program = guest.program(libc).display().to_string();
            let mut command = synth_command(&core, INSTRUCTIONS, &["--exe", &program, "--fuel", "3"]);
            let synthesized = Synthesized::of(&name, &command.output().expect("gretel runs"));
            assert!(synthesized.is_certified(), "{name}: {}", synthesized.result);
            tell(&format!("{name}, a core of the kernel: {} lines", synthesized.steps().len()));
        }
    }
}

/// Runs `guest` natively in `folder`, where the kernel leaves its core.
fn kernel_core(guest: &Guest, libc: &str, folder: &Path) -> Option<PathBuf> {
    Command::new("sh")
        .args(["-c", "ulimit -c unlimited; \"$@\"; true", "sh"])
        .arg(guest.program(libc))
        .args(&guest.expected.arguments)
        // gretel's processors have no AVX, so its registers are in no core that it is asked to explain.
        .env("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX512VL,-AVX512BW,-AVX512F,-AVX")
        .stdin(guest.stdin())
        .current_dir(folder)
        .output()
        .expect("a shell runs");
    let mut files = fs::read_dir(folder).expect("a temporary folder").filter_map(Result::ok);
    files.find(|file| file.file_name().to_string_lossy().starts_with("core")).map(|file| file.path())
}
