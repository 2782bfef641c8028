//! Flight recorders and checkpoints: a bounded window that replays, whenever the recorder is killed.

use crate::{DAMAGED, Place, Ran, USAGE, engines};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Asks for random bytes for ever, or so many times 16 kB, and then crashes.
const READER: &str = r"
    #include <stdlib.h>
    #include <sys/random.h>
    static unsigned char bytes[16384];
    static unsigned table[5000];
    static int crash(volatile int *at) { return *at + 1; }
    int main(int argc, char **argv) {
        unsigned sum = 0;
        for (long n = 0; n < atol(argv[1]); n++) {
            getrandom(bytes, sizeof bytes, 0);
            for (int k = 0; k < sizeof bytes; k++) table[sum % 5000] += sum = sum * 31 + bytes[k];
        }
        return crash((int *)8);
    }";

/// Room for several segments of a program whose checkpoint has half a million bytes.
const ROOM: u64 = 4 << 20;

fn size(place: &Place, recording: &str) -> u64 {
    let segments = fs::read_dir(place.path(recording).join("flight")).expect("a flight recorder's segments");
    let files =
        segments.flat_map(|segment| fs::read_dir(segment.expect("a segment").path()).into_iter().flatten());
    files.map(|file| file.expect("a file").metadata().map_or(0, |found| found.len())).sum()
}

/// The segments that are there.
fn segments(place: &Place, recording: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.path(recording).join("flight")).into_iter().flatten();
    let mut all: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    all.sort();
    all
}

fn replayed(place: &Place, recording: &str, engine: &str) -> (Ran, Value) {
    let ran = place.gretel(&["replay", recording, "--engine", engine, "--json"]);
    let value = serde_json::from_str(&ran.out()).unwrap_or(Value::Null);
    (ran, value)
}

#[test]
fn a_window_is_bounded_and_its_crash_is_certified() {
    let place = Place::new();
    let Some(_program) = place.compile("reader", READER) else { return };
    for recorder in engines() {
        let start =
            ["record", "--engine", recorder, "--flight", "4M", "-o", recorder, "--", "./reader", "600"];
        let recorded = place.gretel(&start);
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        assert!(recorded.err.contains("the window begins at event"), "{}", recorded.err);
        assert!(size(&place, recorder) <= ROOM, "{} bytes", size(&place, recorder));
        let mut digests = Vec::new();
        for replayer in engines() {
            let (ran, value) = replayed(&place, recorder, replayer);
            assert_eq!(ran.code, 0, "{}", ran.err);
            assert!(value["begins"].is_string() && value["end"] == "killed", "{value}");
            digests.push((value["digest"].clone(), value["events"].clone(), value["begins"].clone()));
            let last = value["events"].as_u64().expect("a number") - 3;
            let moment = place.gretel(&["replay", recorder, "--engine", replayer, "--to", &last.to_string()]);
            assert_eq!(moment.code, 0, "{}", moment.err);
            assert!(moment.out().contains(&format!("position {last}")), "{}", moment.out());
        }
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
        let before = place.gretel(&["replay", recorder, "--to", "2"]);
        assert_eq!(before.code, DAMAGED, "{}", before.err);
        assert!(before.err.contains("the window begins at"), "{}", before.err);
        let core = place.gretel(&["core", recorder]);
        assert!(core.out().contains("crash"), "{}{}", core.out(), core.err);
        let synth = place.gretel(&["synth", recorder, "--instructions", "100", "--fuel", "20", "--json"]);
        let verdict: Value = serde_json::from_str(&synth.out()).expect("--json prints JSON");
        assert_eq!(verdict["verdict"], "certified", "{}", synth.err);
    }
}

#[test]
fn a_recorder_that_is_killed_leaves_a_window_that_replays() {
    let place = Place::new();
    let Some(_program) = place.compile("reader", READER) else { return };
    for recorder in engines() {
        for (n, milliseconds) in [0, 3, 37, 111, 190].into_iter().enumerate() {
            let name = format!("{recorder}-{n}");
            let start =
                ["record", "--engine", recorder, "--flight", "1M", "--checkpoint-every", "0.05", "-o", &name];
            let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &start);
            command.args(["--", "./reader", "100000000"]).stderr(Stdio::null());
            let mut child = command.spawn().expect("the command runs");
            let since = Instant::now();
            // Somewhere behind the beginning of the third segment.
            let third = place.path(&name).join("flight/000003");
            while segments(&place, &name).last().is_none_or(|last| *last < third) {
                assert!(since.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none());
                sleep(Duration::from_millis(1));
            }
            sleep(Duration::from_millis(milliseconds));
            child.kill().unwrap();
            child.wait().unwrap();
            let mut digests = Vec::new();
            for replayer in engines() {
                let (ran, value) = replayed(&place, &name, replayer);
                assert_eq!(ran.code, DAMAGED, "{}", ran.err);
                assert!(ran.err.contains("were replayed and are as recorded"), "{}", ran.err);
                assert_eq!(value["end"], "incomplete");
                digests.push((value["digest"].clone(), value["events"].clone()));
            }
            assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
        }
    }
}

#[test]
fn checkpoints_are_beside_the_journal_and_change_nothing() {
    let place = Place::new();
    let Some(_program) = place.compile("reader", READER) else { return };
    for recorder in engines() {
        let start = ["record", "--engine", recorder, "--checkpoint-every", "0.02", "-o", recorder];
        let recorded = place.gretel(&[&start[..], &["--", "./reader", "400"]].concat());
        assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
        let file = place.path(recorder).join("checkpoints");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        for replayer in engines() {
            let to = ["replay", recorder, "--engine", replayer, "--to", "350"];
            let with = place.gretel(&to);
            fs::rename(&file, place.path("away")).unwrap();
            let without = place.gretel(&to);
            // The processor that did not count from the start does not know the number of instructions.
            let place_and_registers =
                |ran: &Ran| ran.out().lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(with.code, 0, "{}", with.err);
            assert_eq!(place_and_registers(&with), place_and_registers(&without));
            let again =
                place.gretel(&["replay", recorder, "--engine", replayer, "--checkpoint-every", "0.01"]);
            assert_eq!(again.code, 0, "{}", again.err);
            assert!(again.err.contains(" written, "), "{}", again.err);
            assert_eq!(place_and_registers(&place.gretel(&to)), place_and_registers(&without));
            fs::rename(place.path("away"), &file).unwrap();
        }
        // Damaged, they are done without, and that is said.
        fs::write(&file, b"GRETELC\n\x02\0\0\0 something else").unwrap();
        let (ran, _) = replayed(&place, recorder, recorder);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.err.contains("are damaged at offset 0xc"), "{}", ran.err);
        let asked = place.gretel(&["last-write", recorder, "0x1000", "8"]);
        assert!(asked.err.contains("are damaged at offset 0xc"), "{}", asked.err);
        // Replacing the recording removes them.
        let plain =
            ["record", "--engine", recorder, "-o", recorder, "--force", "--checkpoint-every", "0", "--"];
        assert_eq!(place.gretel(&[&plain[..], &["busybox", "true"]].concat()).code, 0);
        assert!(!file.exists());
    }
}

#[test]
fn what_is_no_size_or_time_is_refused() {
    let place = Place::new();
    for wrong in [["--flight", "12"], ["--flight", "much"], ["--checkpoint-every", "-1"]] {
        let ran = place.gretel(&[&["record"], &wrong[..], &["--", "busybox", "true"]].concat());
        assert_eq!(ran.code, USAGE, "{wrong:?}: {}", ran.err);
    }
}

#[test]
fn a_window_that_is_kept_stays_when_the_recorder_goes_on() {
    let place = Place::new();
    let Some(_program) = place.compile("reader", READER) else { return };
    for recorder in engines() {
        let start =
            ["record", "--engine", recorder, "--flight", "1M", "--checkpoint-every", "0.05", "-o", recorder];
        let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &start);
        command.args(["--", "./reader", "100000000"]).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command runs");
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let comes_to = |segment: &str| {
            let (wanted, since) = (place.path(recorder).join("flight").join(segment), Instant::now());
            while segments(&place, recorder).last().is_none_or(|last| *last < wanted) {
                assert!(since.elapsed() < Duration::from_secs(120));
                sleep(Duration::from_millis(1));
            }
        };
        comes_to("000003");
        let pid = child.id().to_string();
        assert!(place.command("kill", &["-USR1", &pid]).status().unwrap().success());
        let kept = format!("{recorder}/kept-1");
        assert!(said.any(|line| line == format!("gretel: the window is kept: gretel replay {kept}")));
        let newest = segments(&place, &kept).last().cloned().expect("a segment");
        comes_to("000009");
        assert!(!place.path(recorder).join("flight").join(newest.file_name().unwrap()).exists());
        child.kill().unwrap();
        child.wait().unwrap();
        let mut digests = Vec::new();
        for replayer in engines() {
            let (ran, value) = replayed(&place, &kept, replayer);
            assert_eq!((ran.code, &value["end"]), (0, &Value::from("kept")), "{}", ran.err);
            digests.push((value["digest"].clone(), value["events"].clone()));
        }
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:?}");
        let removed = place.gretel(&["rm", recorder]);
        assert_eq!(removed.code, 0, "{}", removed.err);
        assert!(!place.path(recorder).exists());
    }
}

/// The newest segment goes on behind the moment: files that it names later are not the window's.
#[test]
fn a_window_is_whole_whenever_it_is_kept() {
    let place = Place::new();
    let body = "n=0; while [ $n -lt 60 ]; do head -c 20000 /dev/urandom | cksum; n=$((n+1)); done";
    for recorder in engines() {
        let start =
            ["record", "--engine", recorder, "--flight", "1M", "-o", recorder, "--", "sh", "-c", body];
        let mut command = place.command(env!("CARGO_BIN_EXE_gretel"), &start);
        let mut child =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command runs");
        let pid = child.id().to_string();
        while segments(&place, recorder).is_empty() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(100));
        let mut asked = 0;
        while child.try_wait().unwrap().is_none() && asked < 8 {
            place.command("kill", &["-USR1", &pid]).status().unwrap();
            asked += 1;
            sleep(Duration::from_millis(70));
        }
        assert!(child.wait().unwrap().success());
        let kept = |n: u32| format!("{recorder}/kept-{n}");
        let all: Vec<String> = (1..=asked).map(kept).filter(|name| place.path(name).exists()).collect();
        assert!(!all.is_empty());
        for name in &all {
            let (ran, value) = replayed(&place, name, "soft");
            assert_eq!((ran.code, &value["end"]), (0, &Value::from("kept")), "{name}: {}", ran.err);
        }
    }
}

#[test]
fn a_window_that_cannot_be_begun_with_says_why_of_each_segment() {
    let place = Place::new();
    let Some(_program) = place.compile("reader", READER) else { return };
    let start = ["record", "--engine", "soft", "--flight", "1M", "--checkpoint-every", "0.05", "-o", "rec"];
    let recorded = place.gretel(&[&start[..], &["--", "./reader", "3000"]].concat());
    assert_eq!(recorded.code, 128 + 11, "{}", recorded.err);
    let segments = segments(&place, "rec");
    assert!(!segments.is_empty() && !segments[0].ends_with("000000"), "{segments:?}");
    let (last, others) = segments.split_last().expect("there are some");
    for segment in others {
        let file = fs::File::options().write(true).open(segment.join("checkpoints")).unwrap();
        file.set_len(200).unwrap();
    }
    let file = fs::File::options().write(true).open(last.join("journal")).unwrap();
    file.set_len(20).unwrap();
    let (ran, _) = replayed(&place, "rec", "soft");
    assert_eq!(ran.code, DAMAGED, "{}", ran.err);
    assert!(ran.err.contains("has no segment that begins with a whole checkpoint"), "{}", ran.err);
    for segment in others {
        let name = segment.file_name().unwrap().to_string_lossy();
        let damaged = format!("the checkpoints in rec/flight/{name}/checkpoints are damaged at offset");
        assert!(ran.err.contains(&damaged), "no `{damaged}` in: {}", ran.err);
    }
    let last = last.file_name().unwrap().to_string_lossy();
    assert!(ran.err.contains(&format!("rec/flight/{last}/journal")), "{}", ran.err);
}
