//! The guest images: what each `expected.toml` says is true of the program when it runs natively, so that the engines
//! are compared with this processor and not with a wish.

mod debugger;
mod engines;
mod images;
mod suffixes;

use std::collections::BTreeSet;
use std::io::{Write, stderr};

use debugger::Frame;
use images::{Ending, Guest, LIBCS};

/// Says that something is skipped and why: past the capture of test output, so that it is seen.
fn skipped(what: &str, why: &str) {
    // A closed stderr only loses the notice.
    let _ = writeln!(stderr(), "skipped: {what}, since {why}");
}

/// The frame that gdb should show first among those with a source line.
fn crash_frame(guest: &Guest) -> Option<Frame> {
    let crash = guest.expected.crash.as_ref()?;
    let line = format!("{0}/{0}.c:{1}", guest.name, guest.crash_line());
    Some(Frame { function: crash.function.clone(), line })
}

/// Every program ends natively as its `expected.toml` says: same signal, or same status and output.
#[test]
fn natively_as_expected() {
    for guest in images::all() {
        for libc in LIBCS {
            let outcome = guest.run_natively(libc);
            match guest.ending(libc) {
                Ending::Crash { signal } => {
                    assert_eq!(outcome.signal, Some(signal), "{} with {libc}", guest.name)
                }
                Ending::Exit { status, output } => {
                    assert_eq!(outcome.status, Some(status), "{} with {libc}", guest.name);
                    assert_eq!(outcome.stdout, output, "{} with {libc}", guest.name);
                }
            }
        }
    }
}

/// There are eight ways to crash; each is marked in its source, and the functions it names are in the program.
#[test]
fn every_crash_can_be_found() {
    let mut crashes = 0;
    for guest in images::all() {
        assert!(!guest.expected.summary.is_empty(), "{} has no summary", guest.name);
        let (Some(crash), Some(suffix)) = (&guest.expected.crash, &guest.expected.suffix) else { continue };
        crashes += 1;
        assert!(guest.crash_line() > 1, "{}", guest.name);
        for libc in LIBCS {
            let symbols = guest.symbols(libc);
            for function in suffix.shows.iter().chain([&crash.function]) {
                assert!(symbols.contains(function), "{} with {libc} has no function {function}", guest.name);
            }
        }
    }
    assert!(crashes >= 8, "only {crashes} guest images crash and say what a suffix shows");
}

/// The marked line of the marked function is where gdb, too, sees the program crash.
#[test]
fn natively_crashes_where_marked() {
    if !debugger::available("natively_crashes_where_marked") {
        return;
    }
    for guest in images::all() {
        let Some(expected) = crash_frame(&guest) else { continue };
        for libc in LIBCS.into_iter().filter(|libc| guest.unwinds(libc)) {
            let program = guest.program(libc).display().to_string();
            let arguments = ["-ex", &guest.gdb_run(), "-ex", "backtrace", &program];
            let frames = debugger::backtrace(&arguments).unwrap_or_else(|error| panic!("{program}: {error}"));
            assert_eq!(frames[0], expected, "{program}");
        }
    }
}

/// Recorded on each engine, a program ends as it does natively, with the same output; replayed on each, it does so again.
#[test]
fn recorded_and_replayed() {
    let engines = engines::usable("recorded_and_replayed");
    for guest in images::all() {
        for libc in LIBCS {
            let native = guest.run_natively(libc);
            for engine in &engines {
                let case = format!("{} with {libc} on {engine}", guest.name);
                let folder = tempfile::tempdir().expect("a temporary folder");
                let recording = folder.path().join("recording");
                let recorded = engines::record(&guest, libc, engine, &recording);
                let stderr = String::from_utf8_lossy(&recorded.stderr);
                assert_eq!(recorded.status.code(), native.shell_status(), "{case}: {stderr}");
                assert_eq!(String::from_utf8_lossy(&recorded.stdout), native.stdout, "{case}");
                let mut digests = BTreeSet::new();
                for replayer in &engines {
                    let replayed = engines::replay(&recording, replayer);
                    assert_eq!(replayed.stdout, native.stdout, "{case}, replayed on {replayer}");
                    digests.insert(replayed.digest);
                }
                assert_eq!(digests.len(), 1, "{case}: {digests:?}");
                if let Some(signal) = native.signal {
                    let core = engines::core(&recording);
                    assert_eq!(core["signal"]["number"], signal, "{case}");
                    let provenance = core["trail"]["provenance"].as_str();
                    assert!(matches!(provenance, Some("derived" | "hardware")), "{case}: {provenance:?}");
                    assert_eq!(core["trail"]["records"].as_array().map(Vec::len), Some(16), "{case}");
                }
            }
        }
    }
}

/// The core of a program with threads has them all, the one that crashed first.
#[test]
fn cores_have_every_thread() {
    let guests = images::all();
    let guest = guests.iter().find(|guest| guest.name == "second-thread").expect("the image is there");
    for engine in engines::usable("cores_have_every_thread") {
        for libc in LIBCS {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let recording = folder.path().join("recording");
            engines::record(guest, libc, engine, &recording);
            let core = engines::core(&recording);
            let threads = core["threads"].as_array().expect("a list");
            let ids: Vec<_> = threads.iter().filter_map(|thread| thread["id"].as_i64()).collect();
            let first = *ids.iter().min().expect("a thread");
            assert_eq!(ids, [first + 1, first, first + 2], "{libc} on {engine}");
            assert_eq!(threads[0]["rip"], core["registers"]["rip"], "{libc} on {engine}");
            if debugger::available("cores_have_every_thread") {
                let program = guest.program(libc).display().to_string();
                let core = recording.join("core").display().to_string();
                let threads = debugger::threads(&program, &core);
                assert_eq!(threads, ids.iter().map(i64::to_string).collect::<Vec<_>>(), "{libc} on {engine}");
            }
        }
    }
}

/// gdb opens the core of each crash with the program, and shows the marked line of the marked function.
#[test]
fn cores_open_in_gdb() {
    if !debugger::available("cores_open_in_gdb") {
        return;
    }
    for guest in images::all() {
        let Some(expected) = crash_frame(&guest) else { continue };
        for engine in engines::usable("cores_open_in_gdb") {
            for libc in LIBCS.into_iter().filter(|libc| guest.unwinds(libc)) {
                let folder = tempfile::tempdir().expect("a temporary folder");
                let recording = folder.path().join("recording");
                engines::record(&guest, libc, engine, &recording);
                let program = guest.program(libc).display().to_string();
                let core = recording.join("core").display().to_string();
                let frames = debugger::backtrace(&["-ex", "backtrace", &program, &core]);
                let frames = frames.unwrap_or_else(|error| panic!("{program} on {engine}: {error}"));
                assert_eq!(frames[0], expected, "{program} on {engine}");
            }
        }
    }
}
